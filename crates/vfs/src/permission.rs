//! Who may do what to an inode, and to the names in a directory.
//!
//! The rules are those of POSIX as Linux applies them: path_resolution(7), inode(7), acl(5),
//! unlink(2), rename(2). Errors too: a refused mode is [`Error::PermissionDenied`] (EACCES), a
//! refused privilege or a flag [`Error::NotPermitted`] (EPERM).

use crate::{Credentials, Error, Vfs};
use lanefs_ext4::{Inode, InodeRef, Rights};
use lanefs_ondisk::FileType;

bitflags::bitflags! {
    /// What is asked of an inode; the bits of one class of a mode.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Want: u16 {
        /// Read data, or list a directory.
        const READ = 4;
        /// Write data, or change a directory's names.
        const WRITE = 2;
        /// Execute, or look a name up in a directory.
        const EXECUTE = 1;
    }
}

/// Set-user-ID.
pub(crate) const SUID: u16 = 0o4000;
/// Set-group-ID.
pub(crate) const SGID: u16 = 0o2000;
/// Only owners delete.
pub(crate) const STICKY: u16 = 0o1000;
/// May be executed by the group.
pub(crate) const GROUP_EXECUTE: u16 = 0o010;
const GROUP_CLASS: u16 = 0o070;
const ANY_EXECUTE: u16 = 0o111;

/// `EXT4_IMMUTABLE_FL`: nobody changes anything.
const IMMUTABLE: u32 = 0x10;
/// `EXT4_APPEND_FL`: writes only at the end.
const APPEND_ONLY: u32 = 0x20;

pub(crate) fn is_immutable(rights: &Rights) -> bool {
    rights.flags & IMMUTABLE != 0
}

pub(crate) fn is_append_only(rights: &Rights) -> bool {
    rights.flags & APPEND_ONLY != 0
}

/// What mode bits alone decide.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Yes,
    No,
    /// The access control list decides if there is one; if not, this.
    AskList(bool),
}

fn by_mode(who: &Credentials, file_type: FileType, attr: &Rights, want: Want) -> Verdict {
    let class = |shift: u16| Want::from_bits_truncate(attr.permissions >> shift).contains(want);
    if who.is_superuser() {
        // Nobody executes what nobody may execute; directories are always searched.
        let executable = file_type == FileType::Directory || attr.permissions & ANY_EXECUTE != 0;
        return if executable || !want.contains(Want::EXECUTE) {
            Verdict::Yes
        } else {
            Verdict::No
        };
    }
    if who.uid() == attr.uid {
        return if class(6) { Verdict::Yes } else { Verdict::No };
    }
    let allowed = if who.in_group(attr.gid) { class(3) } else { class(0) };
    // With a list, the group class is its mask: empty, it can allow nothing that the mode does not.
    if attr.permissions & GROUP_CLASS != 0 {
        return Verdict::AskList(allowed);
    }
    if allowed { Verdict::Yes } else { Verdict::No }
}

/// True if the mode alone lets `who` search the directory: nothing has to be read to know it.
pub(crate) fn searches_by_mode(who: &Credentials, dir: &Inode) -> bool {
    let verdict = || by_mode(who, dir.file_type(), &dir.rights(), Want::EXECUTE);
    who.is_checked_elsewhere() || verdict() == Verdict::Yes
}

impl Vfs {
    /// Fails unless `who` may do all of `want` to the inode.
    pub fn check(&self, who: &Credentials, inode: &InodeRef, want: Want) -> Result<(), Error> {
        self.check_rights(who, inode, &inode.rights(), want)
    }

    pub(crate) fn check_rights(
        &self,
        who: &Credentials,
        inode: &InodeRef,
        rights: &Rights,
        want: Want,
    ) -> Result<(), Error> {
        if want.contains(Want::WRITE) {
            let stored = matches!(
                inode.file_type(),
                FileType::Regular | FileType::Directory | FileType::Symlink
            );
            if stored && self.fs().is_read_only() {
                return Err(Error::ReadOnly);
            }
            if is_immutable(rights) {
                return Err(Error::NotPermitted);
            }
        }
        if who.is_checked_elsewhere() {
            return Ok(());
        }
        let allowed = match by_mode(who, inode.file_type(), rights, want) {
            Verdict::Yes => true,
            Verdict::No => false,
            Verdict::AskList(otherwise) => {
                self.list_allows(who, inode, rights, want)?.unwrap_or(otherwise)
            }
        };
        if allowed { Ok(()) } else { Err(Error::PermissionDenied) }
    }

    /// Fails unless `who` may add a name to `dir`.
    pub(crate) fn check_add(&self, who: &Credentials, dir: &InodeRef) -> Result<(), Error> {
        self.check(who, dir, Want::WRITE | Want::EXECUTE)
    }

    /// Fails unless `who` may take the name of `victim` from `dir`.
    pub(crate) fn check_delete(
        &self,
        who: &Credentials,
        dir: &InodeRef,
        victim: &InodeRef,
    ) -> Result<(), Error> {
        let at = dir.rights();
        self.check_rights(who, dir, &at, Want::WRITE | Want::EXECUTE)?;
        may_delete(who, &at, &victim.rights())
    }
}

/// The rules of deletion that are not about the directory's mode.
fn may_delete(who: &Credentials, dir: &Rights, victim: &Rights) -> Result<(), Error> {
    let sticky = dir.permissions & STICKY != 0 && !who.owns(victim.uid) && !who.owns(dir.uid);
    if sticky || is_append_only(dir) || is_append_only(victim) || is_immutable(victim) {
        return Err(Error::NotPermitted);
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use lanefs_ext4::{Attr, Rdev};
    use lanefs_ondisk::{Ino, Time};

    pub(crate) fn attr(file_type: FileType, permissions: u16, uid: u32, gid: u32) -> Attr {
        Attr {
            ino: Ino(12),
            generation: 1,
            file_type,
            permissions,
            links: 1,
            uid,
            gid,
            size: 0,
            sectors: 0,
            rdev: Rdev::default(),
            atime: Time::default(),
            mtime: Time::default(),
            ctime: Time::default(),
            crtime: None,
            flags: 0,
        }
    }

    #[test]
    fn the_owner_is_judged_by_the_owner_bits_alone() {
        let file = attr(FileType::Regular, 0o077, 5, 6);
        let who = Credentials::new(5, 6, []);
        assert_eq!(by_mode(&who, file.file_type, &file.rights(), Want::READ), Verdict::No);
    }

    #[test]
    fn a_supplementary_group_counts_as_a_group() {
        let file = attr(FileType::Regular, 0o640, 5, 6);
        assert_eq!(
            by_mode(&Credentials::new(7, 8, [6]), file.file_type, &file.rights(), Want::READ),
            Verdict::AskList(true)
        );
        assert_eq!(
            by_mode(&Credentials::new(7, 8, []), file.file_type, &file.rights(), Want::READ),
            Verdict::AskList(false)
        );
    }

    #[test]
    fn without_group_bits_no_list_is_read() {
        let file = attr(FileType::Regular, 0o604, 5, 6);
        assert_eq!(
            by_mode(&Credentials::new(7, 8, []), file.file_type, &file.rights(), Want::READ),
            Verdict::Yes
        );
        assert_eq!(
            by_mode(&Credentials::new(7, 6, []), file.file_type, &file.rights(), Want::READ),
            Verdict::No
        );
    }

    #[test]
    fn the_superuser_reads_and_writes_all_but_executes_only_executables() {
        let root = Credentials::superuser();
        let plain = attr(FileType::Regular, 0o000, 5, 6);
        assert_eq!(
            by_mode(&root, plain.file_type, &plain.rights(), Want::READ | Want::WRITE),
            Verdict::Yes
        );
        assert_eq!(by_mode(&root, plain.file_type, &plain.rights(), Want::EXECUTE), Verdict::No);
        let script = attr(FileType::Regular, 0o001, 5, 6);
        assert_eq!(by_mode(&root, script.file_type, &script.rights(), Want::EXECUTE), Verdict::Yes);
        let dir = attr(FileType::Directory, 0o000, 5, 6);
        assert_eq!(by_mode(&root, dir.file_type, &dir.rights(), Want::all()), Verdict::Yes);
    }

    #[test]
    fn in_a_sticky_directory_only_owners_delete() {
        let dir = attr(FileType::Directory, 0o1777, 1, 1);
        let file = attr(FileType::Regular, 0o666, 2, 2);
        assert!(may_delete(&Credentials::new(3, 3, []), &dir.rights(), &file.rights()).is_err());
        assert!(may_delete(&Credentials::new(2, 3, []), &dir.rights(), &file.rights()).is_ok());
        assert!(may_delete(&Credentials::new(1, 3, []), &dir.rights(), &file.rights()).is_ok());
        assert!(may_delete(&Credentials::superuser(), &dir.rights(), &file.rights()).is_ok());
        assert!(
            may_delete(&Credentials::checked_elsewhere(3, 3), &dir.rights(), &file.rights())
                .is_ok()
        );
    }

    #[test]
    fn nobody_deletes_what_is_immutable() {
        let dir = attr(FileType::Directory, 0o777, 1, 1);
        let file = Attr { flags: IMMUTABLE, ..attr(FileType::Regular, 0o666, 2, 2) };
        let denied = may_delete(&Credentials::superuser(), &dir.rights(), &file.rights());
        assert!(matches!(denied, Err(Error::NotPermitted)));
    }
}
