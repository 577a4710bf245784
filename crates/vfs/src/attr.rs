//! Sets attributes. To set a size, or the present time on another user's file, the caller must
//! have the right to write; this is checked before any lock is taken. All other checks of
//! [`Vfs::set_attr`] are made under the operation lock, which is then held until the attributes
//! have changed.

use crate::credentials::Credentials;
use crate::rules::Want;
use crate::rules::{
    Change, SGID, SUID, after_write, check_attributes, check_resize, is_touch, permitted,
};
use crate::vfs::Vfs;
use lanefs_ext4::{Attr, Error, FileDigest, InodeRef, NewVerity, SetAttr};
use lanefs_ondisk::FileType;
use lanefs_ondisk::encryption::Policy;

impl Vfs {
    /// Changes attributes of the inode as `set` says, if `who` may make this change.
    pub fn set_attr(
        &self,
        who: &Credentials,
        inode: &InodeRef,
        set: &SetAttr,
    ) -> Result<Attr, Error> {
        let attr = inode.attr();
        self.fs().check_writable()?;
        if is_touch(set) && !who.owns(attr.uid) {
            check_attributes(&attr.rights(), Change::TOUCH)?;
            self.check_rights(who, inode, &attr.rights(), Want::WRITE)?;
        }
        if set.size.is_some() {
            self.check_rights(who, inode, &attr.rights(), Want::WRITE)?;
            check_resize(&attr)?;
        }
        let allowed = permitted(who, &attr, set)?;
        self.apply(who, inode, &allowed, |attr| permitted(who, attr, set).map(Some))
    }

    /// Makes `policy` the encryption policy of an empty directory, if `who` owns it.
    ///
    /// # Errors
    /// [`Error::PermissionDenied`] if `who` does not own the directory, and the errors of
    /// [`lanefs_ext4::Fs::set_encryption_policy`].
    pub fn set_encryption_policy(
        &self,
        who: &Credentials,
        dir: &InodeRef,
        policy: &Policy,
    ) -> Result<(), Error> {
        if !who.owns(dir.rights().uid) {
            return Err(Error::PermissionDenied);
        }
        self.fs().set_encryption_policy(dir, policy)
    }

    /// Makes a file a verity file, if `who` may write to it.
    ///
    /// # Errors
    /// An error if `who` may not write to the file, and the errors of
    /// [`lanefs_ext4::Fs::enable_verity`].
    pub fn enable_verity(
        &self,
        who: &Credentials,
        file: &InodeRef,
        new: &NewVerity,
    ) -> Result<FileDigest, Error> {
        self.check_rights(who, file, &file.rights(), Want::WRITE)?;
        self.fs().enable_verity(file, new, who.privilege())
    }

    /// Sets the size of a file that is open for writing. Does not check the mode, which was checked
    /// at the open.
    pub fn set_len_of_open(
        &self,
        who: &Credentials,
        inode: &InodeRef,
        size: u64,
    ) -> Result<Attr, Error> {
        let set = SetAttr { size: Some(size), ..SetAttr::default() };
        check_resize(&inode.attr())?;
        self.apply(who, inode, &set, |attr| permitted(who, attr, &set).map(Some))
    }

    /// Makes the change that `decide` returns for the present attributes. The operation lock is
    /// held from the call of `decide` until the change is made, because otherwise the file could
    /// get another owner in between. If `set` has a size or an owner, the capabilities of a regular
    /// file are cleared before and after the change.
    fn apply(
        &self,
        who: &Credentials,
        inode: &InodeRef,
        set: &SetAttr,
        decide: impl FnOnce(&Attr) -> Result<Option<SetAttr>, Error>,
    ) -> Result<Attr, Error> {
        let owned = set.uid.is_some() || set.gid.is_some();
        if inode.file_type() != FileType::Regular || !(owned || set.size.is_some()) {
            return self.fs().set_attr_as(inode, who.privilege(), decide);
        }
        self.fs().drop_capability(inode)?;
        let attr = self.fs().set_attr_as(inode, who.privilege(), decide)?;
        self.fs().drop_capability(inode)?;
        Ok(attr)
    }

    /// Clears the set-ID bits of a program that `who` writes to.
    pub(crate) fn drop_set_id(&self, who: &Credentials, inode: &InodeRef) -> Result<(), Error> {
        let rights = inode.rights();
        if rights.permissions & (SUID | SGID) == 0 || after_write(who, &rights).is_none() {
            return Ok(());
        }
        self.fs().set_attr_as(inode, who.privilege(), |attr| {
            let Some(permissions) = after_write(who, &attr.rights()) else { return Ok(None) };
            check_attributes(&attr.rights(), Change::MODE)?;
            Ok(Some(SetAttr { permissions: Some(permissions), ..SetAttr::default() }))
        })?;
        Ok(())
    }
}
