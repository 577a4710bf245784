//! The rules for changes of attributes: which callers may make them, and which bits they clear.

use super::set_id::{Member, after_write, settable, without_set_id};
use crate::credentials::Credentials;
use lanefs_ext4::flags::{
    APPEND_ONLY, Change, IMMUTABLE, check_attributes, check_flags, is_append_only, is_verity,
};
use lanefs_ext4::{Attr, Error, InvalidArgument, SetAttr, SetTime};
use lanefs_ondisk::FileType;

/// Fails if an inode's type or flags forbid setting the inode's size.
pub fn check_resize(attr: &Attr) -> Result<(), Error> {
    match attr.file_type {
        FileType::Regular if is_append_only(&attr.rights()) || is_verity(&attr.rights()) => {
            Err(Error::NotPermitted)
        }
        FileType::Regular => Ok(()),
        FileType::Directory => Err(Error::IsDirectory),
        _ => Err(InvalidArgument::NotRegularFile.into()),
    }
}

/// Returns whether atime and mtime both become the present time, as touch(1) requests. A caller
/// with write permission may make this change.
pub(crate) fn is_touch(set: &SetAttr) -> bool {
    matches!((set.atime, set.mtime), (Some(SetTime::Now), Some(SetTime::Now)))
}

/// Returns the kinds of change that `set` makes. The rules of inode flags depend on them.
fn change_of(set: &SetAttr) -> Change {
    let times = set.atime.is_some() || set.mtime.is_some();
    let mut change = Change::empty();
    change.set(Change::MODE, set.permissions.is_some());
    change.set(Change::OWNER, set.uid.is_some() || set.gid.is_some());
    change.set(Change::TOUCH, is_touch(set));
    change
        .set(Change::TIMES, times && !is_touch(set) || set.ctime.is_some() || set.crtime.is_some());
    change.set(Change::SIZE, set.size.is_some());
    change
}

/// Returns the change `set`, completed by the new permissions if the change clears set-ID bits.
/// Returns an error if `who` may not make the change. This function does not check whether the mode
/// lets `who` set the size or touch the inode; its caller does.
pub fn permitted(who: &Credentials, attr: &Attr, set: &SetAttr) -> Result<SetAttr, Error> {
    let change = change_of(set);
    check_attributes(&attr.rights(), change)?;
    let by_owner = change.intersects(Change::MODE | Change::OWNER | Change::TIMES)
        || set.flags.is_some()
        || set.casefold.is_some()
        || set.project.is_some();
    if by_owner && !who.owns(attr.uid) {
        return Err(Error::NotPermitted);
    }
    if !who.is_superuser() {
        check_unprivileged(who, attr, set)?;
    }
    if let Some(asked) = set.flags {
        check_flags(attr.file_type, attr.flags, asked)?;
    }
    let permissions = permissions_after(who, attr, set);
    if permissions.is_some() {
        // Inode flags that forbid chmod also forbid every other operation that would change the
        // mode.
        check_attributes(&attr.rights(), Change::MODE)?;
    }
    Ok(SetAttr { permissions, ..*set })
}

/// Refuses changes that only the superuser may make.
fn check_unprivileged(who: &Credentials, attr: &Attr, set: &SetAttr) -> Result<(), Error> {
    let gives_away = set.uid.is_some_and(|uid| uid != attr.uid);
    let foreign = set.gid.is_some_and(|gid| gid != attr.gid && !who.in_group(gid));
    let flags =
        set.flags.is_some_and(|flags| (flags ^ attr.flags) & (IMMUTABLE | APPEND_ONLY) != 0);
    if gives_away || foreign || flags || set.ctime.is_some() || set.crtime.is_some() {
        return Err(Error::NotPermitted);
    }
    Ok(())
}

/// Returns the permissions to set: the requested ones, or the present ones without the bits that a
/// new owner, group or size clears.
fn permissions_after(who: &Credentials, attr: &Attr, set: &SetAttr) -> Option<u16> {
    let owned = set.uid.is_some() || set.gid.is_some();
    match set.permissions {
        Some(asked) => Some(settable(asked & 0o7777, Member::of(who, set.gid.unwrap_or(attr.gid)))),
        None if owned && attr.file_type != FileType::Directory => {
            let left = without_set_id(attr.permissions, Member::of(who, attr.gid));
            (left != attr.permissions).then_some(left)
        }
        None if set.size.is_some() => after_write(who, &attr.rights()),
        None => None,
    }
}

#[cfg(test)]
mod tests {
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
}
