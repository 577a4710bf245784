use super::*;

fn flagged(flags: u32) -> Rights {
    Rights { permissions: 0o644, uid: 1, gid: 1, flags }
}

#[test]
fn an_append_only_inode_can_be_touched_and_nothing_else() {
    let rights = flagged(APPEND_ONLY);
    assert!(check_attributes(&rights, Change::TOUCH).is_ok());
    assert!(check_attributes(&rights, Change::empty()).is_ok());
    for change in [Change::MODE, Change::OWNER, Change::TIMES, Change::SIZE] {
        assert!(check_attributes(&rights, change).is_err(), "{change:?}");
        assert!(check_attributes(&rights, change | Change::TOUCH).is_err(), "{change:?}");
    }
}

#[test]
fn an_immutable_inode_lets_nothing_change_but_its_flags() {
    let rights = flagged(IMMUTABLE);
    for change in Change::all().iter() {
        assert!(check_attributes(&rights, change).is_err(), "{change:?}");
    }
    assert!(check_attributes(&flagged(0), Change::all()).is_ok());
}

#[test]
fn flags_of_an_immutable_inode_change_only_with_that_one() {
    const NO_DUMP: u32 = 0x40;
    let check = |now, asked| check_flags(FileType::Regular, now, asked);
    assert!(check(IMMUTABLE, IMMUTABLE).is_ok());
    assert!(check(IMMUTABLE, IMMUTABLE | NO_DUMP).is_err());
    assert!(check(IMMUTABLE, NO_DUMP).is_ok());
    assert!(check(0, IMMUTABLE | NO_DUMP).is_ok());
    // Flags that chattr cannot change are ignored.
    assert!(check(IMMUTABLE | 0x8_0000, IMMUTABLE).is_ok());
}

#[test]
fn a_flag_that_would_have_no_effect_is_refused() {
    const UNKNOWN: u32 = 0x8000_0000;
    let refused = |file_type, now, asked| {
        matches!(check_flags(file_type, now, asked), Err(Error::NotSupported))
    };
    for flag in [OF_DIRECTORIES, UNKEPT, UNKNOWN].map(|set| set & set.wrapping_neg()) {
        assert!(refused(FileType::Regular, 0, flag), "{flag:#x}");
        assert!(!refused(FileType::Regular, flag, flag), "{flag:#x}");
    }
    assert!(!refused(FileType::Directory, 0, OF_DIRECTORIES));
    assert!(refused(FileType::Directory, 0, InodeFlags::JOURNAL_DATA.bits()));
}

#[test]
fn neither_a_frozen_file_nor_a_name_of_a_frozen_directory_is_deleted() {
    for flags in [IMMUTABLE, APPEND_ONLY] {
        assert!(check_deletion(&flagged(flags), &flagged(0)).is_err());
        assert!(check_deletion(&flagged(0), &flagged(flags)).is_err());
    }
    assert!(check_deletion(&flagged(0), &flagged(0)).is_ok());
}

#[test]
fn an_append_only_file_is_opened_to_append_and_never_truncated() {
    let rights = flagged(APPEND_ONLY);
    let opening = Opening { writes: true, appends: false, truncates: false };
    assert!(check_opening(&rights, opening).is_err());
    let appending = Opening { appends: true, ..opening };
    assert!(check_opening(&rights, appending).is_ok());
    assert!(check_opening(&rights, Opening { truncates: true, ..appending }).is_err());
    let reading = Opening { writes: false, appends: false, truncates: false };
    assert!(check_opening(&rights, reading).is_ok());
    assert!(check_opening(&flagged(IMMUTABLE), reading).is_ok());
    assert!(check_opening(&flagged(IMMUTABLE), appending).is_err());
}
