//! The rules of names: which names may be removed from a directory, and which properties a new
//! inode inherits.

use super::set_id::{Member, SGID, STICKY, inherited};
use crate::credentials::Credentials;
use lanefs_ext4::flags::check_deletion;
use lanefs_ext4::{Error, NewInode, NewKind, Rights};

/// The caller's description of a new inode. The credentials give its owner.
#[derive(Debug, Clone, Copy)]
pub struct NewNode<'a> {
    /// The file type, with the target of a symbolic link.
    pub kind: NewKind<'a>,
    /// The low 12 bits of the requested mode.
    pub permissions: u16,
    /// Bits cleared in `permissions` unless the directory has a default access control list.
    pub umask: u16,
}

/// Fails unless `who`, which may write to `dir`, may remove the name of `victim` from it.
pub(crate) fn may_delete(who: &Credentials, dir: &Rights, victim: &Rights) -> Result<(), Error> {
    if dir.permissions & STICKY != 0 && !who.owns(victim.uid) && !who.owns(dir.uid) {
        return Err(Error::NotPermitted);
    }
    check_deletion(dir, victim)
}

/// Fails if `who` is not allowed to create an inode of `kind`: only the superuser may create
/// devices.
pub(crate) fn check_device(who: &Credentials, kind: &NewKind<'_>) -> Result<(), Error> {
    let device = matches!(kind, NewKind::CharDevice(_) | NewKind::BlockDevice(_));
    if device && !who.is_superuser() { Err(Error::NotPermitted) } else { Ok(()) }
}

/// Returns the inode that `who` creates in `dir` from `new`. ext4 itself gives the inode the group
/// of a set-group-ID directory, and an access list that follows from the directory's default list.
pub(crate) fn new_inode<'a>(who: &Credentials, dir: &Rights, new: &NewNode<'a>) -> NewInode<'a> {
    let mut permissions = new.permissions & 0o7777;
    if dir.permissions & SGID != 0 && !matches!(new.kind, NewKind::Directory) {
        permissions = inherited(permissions, Member::of(who, dir.gid));
    }
    NewInode { kind: new.kind, permissions, umask: new.umask, uid: who.uid(), gid: who.gid() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::tests::attr;
    use lanefs_ondisk::FileType;

    #[test]
    fn in_a_sticky_directory_only_owners_delete() {
        let dir = attr(FileType::Directory, 0o1777, 1, 1);
        let file = attr(FileType::Regular, 0o666, 2, 2);
        assert!(may_delete(&Credentials::new(3, 3, []), &dir.rights(), &file.rights()).is_err());
        assert!(may_delete(&Credentials::new(2, 3, []), &dir.rights(), &file.rights()).is_ok());
        assert!(may_delete(&Credentials::new(1, 3, []), &dir.rights(), &file.rights()).is_ok());
        assert!(may_delete(&Credentials::superuser(), &dir.rights(), &file.rights()).is_ok());
    }

    fn made(who: &Credentials, dir_permissions: u16, kind: NewKind<'_>) -> u16 {
        let dir = attr(FileType::Directory, dir_permissions, 1, 50);
        new_inode(who, &dir.rights(), &NewNode { kind, permissions: 0o2775, umask: 0 }).permissions
    }

    #[test]
    fn a_caller_outside_the_group_of_a_directory_makes_no_program_of_that_group() {
        let stranger = Credentials::new(7, 7, []);
        assert_eq!(made(&stranger, 0o2777, NewKind::Regular), 0o775);
        assert_eq!(made(&stranger, 0o777, NewKind::Regular), 0o2775);
        assert_eq!(made(&stranger, 0o2777, NewKind::Directory), 0o2775);
        assert_eq!(made(&Credentials::new(7, 7, [50]), 0o2777, NewKind::Regular), 0o2775);
        assert_eq!(made(&Credentials::superuser(), 0o2777, NewKind::Regular), 0o2775);
    }

    #[test]
    fn only_the_superuser_makes_devices() {
        let device = NewKind::CharDevice(lanefs_ext4::Rdev { major: 1, minor: 3 });
        assert!(check_device(&Credentials::new(7, 7, []), &device).is_err());
        assert!(check_device(&Credentials::new(7, 7, []), &NewKind::Fifo).is_ok());
        assert!(check_device(&Credentials::superuser(), &device).is_ok());
    }
}
