use super::*;
use crate::rules::tests::attr;

#[test]
fn trusted_attributes_are_hidden_from_all_but_the_superuser() {
    let file = attr(FileType::Regular, 0o666, 1, 1);
    let user = Credentials::new(1, 1, []);
    assert_eq!(by_name(&user, &file, b"trusted.x", Use::Read), Rule::Hidden);
    assert_eq!(by_name(&user, &file, b"trusted.x", Use::Set), Rule::Denied);
    let root = Credentials::superuser();
    assert_eq!(by_name(&root, &file, b"trusted.x", Use::Set), Rule::Allowed);
}

#[test]
fn user_attributes_are_for_files_and_directories() {
    let user = Credentials::new(1, 1, []);
    let link = attr(FileType::Symlink, 0o777, 1, 1);
    assert_eq!(by_name(&user, &link, b"user.x", Use::Set), Rule::Denied);
    let file = attr(FileType::Regular, 0o777, 2, 2);
    assert_eq!(by_name(&user, &file, b"user.x", Use::Set), Rule::AsData);
}

#[test]
fn in_a_sticky_directory_only_the_owner_sets_user_attributes() {
    let dir = attr(FileType::Directory, 0o1777, 2, 2);
    assert_eq!(by_name(&Credentials::new(1, 1, []), &dir, b"user.x", Use::Set), Rule::Denied);
    assert_eq!(by_name(&Credentials::new(2, 1, []), &dir, b"user.x", Use::Set), Rule::AsData);
}

#[test]
fn lists_are_set_by_the_owner_and_labels_by_the_superuser() {
    let file = attr(FileType::Regular, 0o666, 1, 1);
    let (owner, other) = (Credentials::new(1, 1, []), Credentials::new(2, 2, []));
    let acl = b"system.posix_acl_access";
    assert_eq!(by_name(&owner, &file, acl, Use::Set), Rule::Allowed);
    assert_eq!(by_name(&other, &file, acl, Use::Set), Rule::Denied);
    assert_eq!(by_name(&owner, &file, b"security.selinux", Use::Set), Rule::Denied);
    assert_eq!(by_name(&other, &file, b"security.selinux", Use::Read), Rule::Allowed);
}

#[test]
fn a_default_list_of_a_file_is_nothing_to_remove_and_impossible_to_set() {
    let file = attr(FileType::Regular, 0o666, 1, 1);
    let other = Credentials::new(2, 2, []);
    assert_eq!(by_name(&other, &file, DEFAULT_LIST, Use::Remove), Rule::Nothing);
    assert_eq!(by_name(&other, &file, DEFAULT_LIST, Use::Set), Rule::Impossible);
    let dir = attr(FileType::Directory, 0o777, 1, 1);
    assert_eq!(by_name(&other, &dir, DEFAULT_LIST, Use::Set), Rule::Denied);
}

#[test]
fn only_the_superuser_is_told_of_trusted_attributes() {
    assert!(is_listed(b"trusted.x", true) && !is_listed(b"trusted.x", false));
    assert!(is_listed(b"user.x", false) && is_listed(b"security.x", false));
}
