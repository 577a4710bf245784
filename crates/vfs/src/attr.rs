//! Who may change what about an inode, and what a change takes with it.
//!
//! The rules are those of chmod(2), chown(2), truncate(2) and utimensat(2) on Linux.

use crate::permission::{GROUP_EXECUTE, SGID, SUID, is_append_only, is_immutable};
use crate::{Credentials, Error, Vfs, Want};
use lanefs_ext4::{Attr, InodeRef, SetAttr, SetTime};
use lanefs_ondisk::FileType;

/// File capabilities: whoever changes a program's bytes or owner must not inherit them.
const CAPABILITY: &[u8] = b"security.capability";
/// `EXT4_IMMUTABLE_FL` and `EXT4_APPEND_FL`, which only the superuser changes.
const PRIVILEGED_FLAGS: u32 = 0x30;

impl Vfs {
    /// Changes `set` of the inode, if `who` may.
    pub fn set_attr(
        &self,
        who: &Credentials,
        inode: &InodeRef,
        set: &SetAttr,
    ) -> Result<Attr, Error> {
        let attr = inode.attr();
        if self.fs().is_read_only() {
            return Err(Error::ReadOnly);
        }
        if is_touch(set) && !who.owns(attr.uid) {
            if is_immutable(&attr.rights()) {
                return Err(Error::NotPermitted);
            }
            self.check_rights(who, inode, &attr.rights(), Want::WRITE)?;
        }
        if set.size.is_some() {
            check_truncate(&attr)?;
            self.check_rights(who, inode, &attr.rights(), Want::WRITE)?;
        }
        let judged = permitted(who, &attr, set)?;
        self.apply(inode, &judged, |attr| permitted(who, attr, set).map(Some))
    }

    /// Sets the size of a file that is open for writing: no permission is asked again.
    pub(crate) fn set_len_open(
        &self,
        who: &Credentials,
        inode: &InodeRef,
        size: u64,
    ) -> Result<Attr, Error> {
        check_truncate(&inode.attr())?;
        let set = SetAttr { size: Some(size), ..SetAttr::default() };
        self.apply(inode, &set, |attr| {
            Ok(Some(SetAttr { permissions: after_write(who, attr), ..set }))
        })
    }

    /// Does what `judge` says of the attributes as they are when it is done: between a look at them and
    /// the change, the file may become another one's. `set` is what it is about.
    fn apply(
        &self,
        inode: &InodeRef,
        set: &SetAttr,
        judge: impl FnOnce(&Attr) -> Result<Option<SetAttr>, Error>,
    ) -> Result<Attr, Error> {
        let owned = set.uid.is_some() || set.gid.is_some();
        if inode.file_type() == FileType::Regular && (owned || set.size.is_some()) {
            self.drop_capability(inode)?;
        }
        self.fs().set_attr_as(inode, judge)
    }

    /// Takes what a write by `who` takes from a program: its set-ID bits.
    pub(crate) fn drop_set_id(&self, who: &Credentials, inode: &InodeRef) -> Result<(), Error> {
        let kept = |attr: &Attr| {
            let permissions = after_write(who, attr)?;
            Some(SetAttr { permissions: Some(permissions), ..SetAttr::default() })
        };
        let attr = inode.attr();
        if attr.permissions & (SUID | SGID) != 0 && kept(&attr).is_some() {
            self.fs().set_attr_as(inode, |attr| Ok(kept(attr)))?;
        }
        Ok(())
    }

    pub(crate) fn drop_capability(&self, inode: &InodeRef) -> Result<(), Error> {
        match self.fs().get_xattr(inode, CAPABILITY) {
            Ok(_) => {}
            Err(Error::NoAttribute | Error::NotSupported) => return Ok(()),
            Err(error) => return Err(error),
        }
        match self.fs().remove_xattr(inode, CAPABILITY) {
            Err(Error::NoAttribute) => Ok(()),
            other => other,
        }
    }
}

fn check_truncate(attr: &Attr) -> Result<(), Error> {
    match attr.file_type {
        FileType::Regular if is_append_only(&attr.rights()) => Err(Error::NotPermitted),
        FileType::Regular => Ok(()),
        FileType::Directory => Err(Error::IsDirectory),
        _ => Err(Error::InvalidArgument { what: "only regular files have a size to set" }),
    }
}

/// The permissions of a file after `who` wrote to it, if they change.
fn after_write(who: &Credentials, attr: &Attr) -> Option<u16> {
    if who.is_superuser() || attr.file_type != FileType::Regular {
        return None;
    }
    let kept = without_set_id(who, attr, attr.permissions);
    (kept != attr.permissions).then_some(kept)
}

/// `permissions` without set-user-ID, and without set-group-ID where that is about execution (or
/// about a group that `who` is not in).
fn without_set_id(who: &Credentials, attr: &Attr, permissions: u16) -> u16 {
    let foreign = !who.in_group(attr.gid) && !who.is_trusted();
    let drop_group = permissions & GROUP_EXECUTE != 0 || foreign;
    permissions & !SUID & !(if drop_group { SGID } else { 0 })
}

/// Both times become now: what touch(1) asks, and whoever may write may have.
fn is_touch(set: &SetAttr) -> bool {
    matches!((set.atime, set.mtime), (Some(SetTime::Now), Some(SetTime::Now)))
}

/// `set` as it is to be done, if `who` may do it. Sizes and touches are judged by the caller, as
/// they depend on the mode.
fn permitted(who: &Credentials, attr: &Attr, set: &SetAttr) -> Result<SetAttr, Error> {
    let times = set.atime.is_some() || set.mtime.is_some();
    let explicit_times = times && !is_touch(set);
    let owned = set.uid.is_some() || set.gid.is_some();
    let frozen = is_immutable(&attr.rights()) || is_append_only(&attr.rights());
    if frozen && (set.permissions.is_some() || owned || explicit_times) {
        return Err(Error::NotPermitted);
    }
    if is_immutable(&attr.rights()) && times {
        return Err(Error::NotPermitted);
    }
    let owner = who.owns(attr.uid);
    let by_owner = set.permissions.is_some() || owned || explicit_times || set.flags.is_some();
    if by_owner && !owner {
        return Err(Error::NotPermitted);
    }
    if !who.is_trusted() {
        let gives_away = set.uid.is_some_and(|uid| uid != attr.uid);
        let foreign = set.gid.is_some_and(|gid| gid != attr.gid && !who.in_group(gid));
        if gives_away || foreign || set.ctime.is_some() || set.crtime.is_some() {
            return Err(Error::NotPermitted);
        }
        if set.flags.is_some_and(|flags| (flags ^ attr.flags) & PRIVILEGED_FLAGS != 0) {
            return Err(Error::NotPermitted);
        }
    }
    let mut done = *set;
    done.permissions = match set.permissions {
        Some(asked) if !who.is_trusted() && !who.in_group(set.gid.unwrap_or(attr.gid)) => {
            Some(asked & 0o7777 & !SGID)
        }
        Some(asked) => Some(asked & 0o7777),
        None if owned && attr.file_type != FileType::Directory => {
            Some(without_set_id(who, attr, attr.permissions)).filter(|p| *p != attr.permissions)
        }
        None if set.size.is_some() => after_write(who, attr),
        None => None,
    };
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::permission::tests::attr;
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
    fn nobody_gives_a_file_away() {
        assert!(permitted(&owner(), &program(), &chown(Some(11), None)).is_err());
        assert!(permitted(&owner(), &program(), &chown(Some(10), None)).is_ok());
        assert!(permitted(&Credentials::superuser(), &program(), &chown(Some(11), None)).is_ok());
    }

    #[test]
    fn an_owner_changes_the_group_only_to_his_own() {
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
    fn a_write_takes_the_set_id_bits_but_not_for_the_superuser() {
        assert_eq!(after_write(&owner(), &program()), Some(0o755));
        assert_eq!(after_write(&Credentials::superuser(), &program()), None);
        assert_eq!(after_write(&owner(), &attr(FileType::Regular, 0o2644, 10, 20)), None);
        let foreign = attr(FileType::Regular, 0o2644, 10, 99);
        assert_eq!(after_write(&owner(), &foreign), Some(0o644));
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
}
