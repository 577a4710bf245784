//! Checks permissions for inodes and directories by applying the rules to their present attributes.

use crate::credentials::Credentials;
use crate::rules::{Verdict, Want, by_mode, is_immutable, may_delete};
use crate::vfs::Vfs;
use lanefs_ext4::{Error, InodeRef, Rights};
use lanefs_ondisk::FileType;

impl Vfs {
    /// Fails unless `who` has all permissions `want` for the inode.
    pub fn check(&self, who: &Credentials, inode: &InodeRef, want: Want) -> Result<(), Error> {
        self.check_rights(who, inode, &inode.rights(), want)
    }

    /// Does the same as [`Vfs::check`], with `rights` in place of the inode's own rights.
    pub fn check_rights(
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
            if stored {
                self.fs().check_writable()?;
            }
            if is_immutable(rights) {
                return Err(Error::NotPermitted);
            }
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

    /// Fails unless `who` may remove the name of `victim` from `dir`.
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
