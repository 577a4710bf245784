use super::*;

fn entry(tag: Tag, permissions: u16) -> AclEntry {
    AclEntry { tag, permissions: Permissions::from_bits(permissions) }
}

fn acl(entries: &[(Tag, u16)]) -> Acl {
    let entries = entries.iter().map(|&(tag, permissions)| entry(tag, permissions));
    Acl::new(entries.collect()).expect("valid")
}

/// The list after `setfacl -m u:1000:rwx,g:5:r` on a file with mode 0644.
fn sample() -> Acl {
    acl(&[
        (Tag::Owner, 6),
        (Tag::User(1000), 7),
        (Tag::OwningGroup, 4),
        (Tag::Group(5), 4),
        (Tag::Mask, 7),
        (Tag::Other, 4),
    ])
}

#[test]
fn lists_of_linux_are_decoded_and_encoded_unchanged() {
    // The bytes are from a block written by Linux 6.18.
    let disk = [
        1, 0, 0, 0, 1, 0, 6, 0, 2, 0, 7, 0, 0xe8, 3, 0, 0, 4, 0, 4, 0, 8, 0, 4, 0, 5, 0, 0, 0,
        0x10, 0, 7, 0, 0x20, 0, 4, 0,
    ];
    let list = Acl::from_disk(&disk).expect("valid");
    assert_eq!(list, sample());
    assert_eq!(list.to_disk(), disk);
    let system = list.to_system();
    assert_eq!(system.len(), 4 + 6 * 8);
    assert_eq!(system[..12], [2, 0, 0, 0, 1, 0, 6, 0, 0xff, 0xff, 0xff, 0xff]);
    assert_eq!(Acl::from_system(&system), Ok(Some(list)));
    assert_eq!(Acl::from_system(&[2, 0, 0, 0]), Ok(None));
}

#[test]
fn broken_bytes_are_their_cause() {
    let disk = sample().to_disk();
    let cause = |at: usize, byte: u8| {
        let mut disk = disk.clone();
        disk[at] = byte;
        Acl::from_disk(&disk).expect_err("broken")
    };
    assert_eq!(cause(0, 2), Cause::Version { found: 2, expected: 1 });
    assert_eq!(cause(4, 3), Cause::Tag { offset: 4, found: 3 });
    assert_eq!(cause(6, 8), Cause::Permissions { offset: 4, found: 8 });
    assert_eq!(cause(4, 0x20), Cause::Entries);
    assert_eq!(Acl::from_disk(&disk[..disk.len() - 1]), Err(Cause::Length { len: disk.len() - 1 }));
    assert_eq!(Acl::from_disk(&[]), Err(Cause::Length { len: 0 }));
    let mut no_id = disk.clone();
    no_id[12..16].fill(0xff);
    assert_eq!(Acl::from_disk(&no_id), Err(Cause::Id { offset: 8 }));
    let no_mask: Vec<_> =
        sample().entries().iter().copied().filter(|entry| entry.tag != Tag::Mask).collect();
    assert_eq!(Acl::new(no_mask), Err(Cause::NoMask));
    assert_eq!(Acl::new(Vec::new()), Err(Cause::Entries));
    for len in 0..disk.len() {
        let _ = Acl::from_disk(&disk[..len]);
        let _ = Acl::from_system(&disk[..len]);
    }
}

#[test]
fn a_list_of_three_entries_is_a_mode() {
    for mode in 0..0o1000 {
        let list = Acl::from_mode(mode);
        assert!(list.is_minimal());
        assert_eq!(list.mode_bits(), mode);
        assert_eq!(Acl::from_mode(0o777).with_mode(mode), list);
    }
    assert!(!sample().is_minimal());
    assert_eq!(sample().mode_bits(), 0o674);
}

#[test]
fn chmod_changes_the_mask_and_not_the_owning_group() {
    let list = sample().with_mode(0o750);
    assert_eq!(list.mode_bits(), 0o750);
    assert_eq!(list.permissions(Tag::Mask), Some(Permissions::from_bits(5)));
    assert_eq!(list.permissions(Tag::OwningGroup), Some(Permissions::from_bits(4)));
    assert_eq!(list.permissions(Tag::User(1000)), Some(Permissions::from_bits(7)));
}

#[test]
fn a_new_file_gets_what_default_list_and_mode_both_allow() {
    let inherited = sample().inherit(0o100640);
    assert_eq!(inherited.mode, 0o100640);
    let access = inherited.access.expect("names somebody");
    assert_eq!(access.permissions(Tag::Mask), Some(Permissions::READ));
    assert_eq!(access.permissions(Tag::User(1000)), Some(Permissions::from_bits(7)));
    assert_eq!(access.permissions(Tag::Other), Some(Permissions::NONE));
    let minimal = Acl::from_mode(0o750).inherit(0o666);
    assert_eq!(minimal, Inherited { mode: 0o640, access: None });
}

#[test]
fn the_first_class_that_fits_decides() {
    let owner = Owner { uid: 1, gid: 100 };
    let allows = |list: &Acl, wanted: u16, uid: u32, gids: &[u32]| {
        list.allows(Permissions::from_bits(wanted), &Subject { uid, gids }, &owner)
    };
    let list = sample();
    assert!(allows(&list, 6, 1, &[100]) && !allows(&list, 1, 1, &[100]));
    assert!(allows(&list, 7, 1000, &[]));
    assert!(allows(&list, 4, 2, &[100]) && !allows(&list, 2, 2, &[100]));
    assert!(allows(&list, 4, 2, &[5]) && !allows(&list, 1, 2, &[5]));
    assert!(allows(&list, 4, 2, &[]) && !allows(&list, 2, 2, &[]));
    let masked = list.clone().with_mode(0o600);
    assert!(
        !allows(&masked, 4, 1000, &[])
            && !allows(&masked, 4, 2, &[5])
            && allows(&masked, 6, 1, &[])
    );
    let open = list.clone().with_mode(0o604);
    assert!(allows(&open, 4, 1000, &[]) && !allows(&open, 4, 2, &[100]), "as Linux does");
    let split = acl(&[
        (Tag::Owner, 0),
        (Tag::OwningGroup, 4),
        (Tag::Group(5), 2),
        (Tag::Mask, 7),
        (Tag::Other, 7),
    ]);
    assert!(!allows(&split, 6, 2, &[100, 5]), "no one group gives both");
    assert!(allows(&split, 4, 2, &[100, 5]) && allows(&split, 2, 2, &[100, 5]));
    assert!(!allows(&split, 1, 2, &[5]), "others' permissions are not for members of a group");
    assert!(!allows(&split, 4, 1, &[100]), "the owner's entry decides for the owner");
}
