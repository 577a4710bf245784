use super::*;
use crate::rules::tests::attr;
use lanefs_ondisk::Time;

fn program() -> Attr {
    attr(FileType::Regular, 0o6755, 10, 20)
}

fn owner() -> Credentials {
    Credentials::new(10, 20, [30])
}

fn chown(uid: Option<u32>, gid: Option<u32>) -> SetAttr {
    SetAttr { uid, gid, ..SetAttr::default() }
}

fn chmod(permissions: u16) -> SetAttr {
    SetAttr { permissions: Some(permissions), ..SetAttr::default() }
}

#[test]
fn only_the_superuser_gives_a_file_away() {
    assert!(permitted(&owner(), &program(), &chown(Some(11), None)).is_err());
    assert!(permitted(&owner(), &program(), &chown(Some(10), None)).is_ok());
    assert!(permitted(&Credentials::superuser(), &program(), &chown(Some(11), None)).is_ok());
}

#[test]
fn an_owner_changes_the_group_only_to_one_of_its_own() {
    assert!(permitted(&owner(), &program(), &chown(None, Some(30))).is_ok());
    assert!(permitted(&owner(), &program(), &chown(None, Some(40))).is_err());
    let other = Credentials::new(11, 20, [30]);
    assert!(permitted(&other, &program(), &chown(None, Some(30))).is_err());
}

#[test]
fn a_new_owner_takes_the_set_id_bits_even_from_the_superuser() {
    let root = Credentials::superuser();
    let done = permitted(&root, &program(), &chown(Some(11), None)).unwrap();
    assert_eq!(done.permissions, Some(0o755));
    let dir = attr(FileType::Directory, 0o2755, 10, 20);
    assert_eq!(permitted(&root, &dir, &chown(Some(11), None)).unwrap().permissions, None);
    let both = SetAttr { permissions: Some(0o4755), ..chown(Some(11), None) };
    assert_eq!(permitted(&root, &program(), &both).unwrap().permissions, Some(0o4755));
}

#[test]
fn set_group_id_without_group_execute_stays() {
    let file = attr(FileType::Regular, 0o2644, 10, 20);
    assert_eq!(permitted(&owner(), &file, &chown(None, Some(30))).unwrap().permissions, None);
}

#[test]
fn chmod_is_for_the_owner_and_drops_a_foreign_set_group_id() {
    assert!(permitted(&Credentials::new(11, 20, []), &program(), &chmod(0o777)).is_err());
    let done = permitted(&owner(), &program(), &chmod(0o2755)).unwrap();
    assert_eq!(done.permissions, Some(0o2755));
    let outside = Credentials::new(10, 99, []);
    let done = permitted(&outside, &program(), &chmod(0o2755)).unwrap();
    assert_eq!(done.permissions, Some(0o755));
}

#[test]
fn explicit_times_are_for_the_owner() {
    let at = Some(SetTime::At(Time { secs: 1, nanos: 0 }));
    let set = SetAttr { mtime: at, ..SetAttr::default() };
    assert!(permitted(&owner(), &program(), &set).is_ok());
    let denied = permitted(&Credentials::new(11, 11, []), &program(), &set);
    assert!(matches!(denied, Err(Error::NotPermitted)));
    let now = Some(SetTime::Now);
    let touch = SetAttr { atime: now, mtime: now, ..SetAttr::default() };
    assert!(permitted(&Credentials::new(11, 11, []), &program(), &touch).is_ok());
}

#[test]
fn an_immutable_file_keeps_mode_owner_and_times_but_lets_its_flags_go() {
    let file = Attr { flags: 0x10, ..program() };
    let root = Credentials::superuser();
    assert!(permitted(&root, &file, &chmod(0o600)).is_err());
    assert!(permitted(&root, &file, &chown(Some(1), None)).is_err());
    let flags = SetAttr { flags: Some(0), ..SetAttr::default() };
    assert!(permitted(&root, &file, &flags).is_ok());
    assert!(permitted(&owner(), &file, &flags).is_err());
}

#[test]
fn an_append_only_file_can_be_touched_but_keeps_mode_owner_and_size() {
    let file = Attr { flags: APPEND_ONLY, ..program() };
    let root = Credentials::superuser();
    let now = Some(SetTime::Now);
    let touch = SetAttr { atime: now, mtime: now, ..SetAttr::default() };
    assert!(permitted(&owner(), &file, &touch).is_ok());
    let half = SetAttr { mtime: now, ..SetAttr::default() };
    let cut = SetAttr { size: Some(0), ..SetAttr::default() };
    for set in [chmod(0o600), chown(Some(1), None), half, cut] {
        let denied = permitted(&root, &file, &set);
        assert!(matches!(denied, Err(Error::NotPermitted)), "{set:?}");
    }
}
