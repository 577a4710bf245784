use super::*;

fn plain() -> Attr {
    let epoch = Time::default();
    Attr {
        ino: lanefs_ondisk::Ino(12),
        generation: 0,
        file_type: FileType::Regular,
        permissions: 0o644,
        links: 1,
        uid: 0,
        gid: 0,
        size: 0,
        sectors: 0,
        rdev: Rdev { major: 0, minor: 0 },
        atime: epoch,
        mtime: epoch,
        ctime: epoch,
        crtime: None,
        flags: 0,
    }
}

#[test]
fn device_numbers_survive_the_wire() {
    for (major, minor) in [(0, 0), (8, 1), (1, 3), (0xfff, 0xfffff), (259, 300)] {
        let rdev = Rdev { major, minor };
        assert_eq!(rdev_of(rdev_word(rdev)), rdev);
    }
    assert_eq!(rdev_word(Rdev { major: 8, minor: 1 }), 0x801);
}

#[test]
fn only_times_that_the_file_has_need_no_transaction() {
    let (early, late) = (Time { secs: 1, nanos: 2 }, Time { secs: 3, nanos: 4 });
    let now = Attr { mtime: early, ctime: late, ..plain() };
    let times =
        SetAttr { mtime: Some(SetTime::At(early)), ctime: Some(late), ..SetAttr::default() };
    assert!(is_told_already(&times, &now));
    let immutable = Attr { flags: 0x10, ..now };
    assert!(!is_told_already(&times, &immutable));
    for set in [
        SetAttr { ctime: Some(early), ..times },
        SetAttr { ctime: None, ..times },
        SetAttr { mtime: Some(SetTime::At(late)), ..times },
        SetAttr { atime: Some(SetTime::Now), ..times },
        SetAttr { permissions: Some(0o600), ..times },
        SetAttr { size: Some(0), ..times },
    ] {
        assert!(!is_told_already(&set, &now), "{set:?}");
    }
}

fn setattr(valid: u32, mtime: i64, ctime: i64) -> (abi::SetattrIn, SetAttr) {
    let zeros = [0; size_of::<abi::SetattrIn>()];
    let input = <abi::SetattrIn as zerocopy::FromBytes>::read_from_bytes(&zeros).unwrap();
    let input = abi::SetattrIn { valid, mtime, ctime, ..input };
    let size = (valid & fattr::SIZE != 0).then_some(0);
    (input, SetAttr { size, ..SetAttr::default() })
}

#[test]
fn times_set_by_programs_are_distinguished_from_those_of_the_kernel() {
    let change = |valid, mtime, ctime| {
        let (input, set) = setattr(valid, mtime, ctime);
        change_of(&input, &set)
    };
    let (atime, mtime, ctime) = (fattr::ATIME, fattr::MTIME, fattr::CTIME);
    let (atime_now, mtime_now) = (atime | fattr::ATIME_NOW, mtime | fattr::MTIME_NOW);
    // The kernel sends times that it has set itself: mtime and ctime after a write, but only
    // ctime after a change of the inode.
    assert_eq!(change(mtime | ctime | fattr::FH, 5, 5), Change::empty());
    assert_eq!(change(ctime, 0, 5), Change::empty());
    // The requests of touch(1), with the writeback cache and without.
    assert_eq!(change(atime_now | mtime | ctime, 5, 5), Change::TOUCH);
    assert_eq!(change(atime_now | mtime_now, 0, 0), Change::TOUCH);
    // A program sets one of the times to a value of its own, or leaves one of them unchanged.
    assert_eq!(change(atime_now | mtime | ctime, 4, 5), Change::TIMES);
    assert_eq!(change(atime_now | ctime, 0, 5), Change::TIMES);
    assert_eq!(change(mtime_now, 0, 0), Change::TIMES);
    assert_eq!(change(mtime | ctime, 5, 5), Change::TIMES);
    assert_eq!(change(atime | mtime | ctime, 5, 5), Change::TIMES);
    // truncate(2) sets times too.
    assert_eq!(change(fattr::SIZE | mtime | ctime, 4, 5), Change::SIZE);
}
