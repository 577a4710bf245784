//! Metadata and attributes of files by path.

use crate::error::{At, Result};
use crate::filesystem::FileSystem;
use crate::metadata::{FileTimes, Metadata};
use crate::mounted::owners;
use lanefs_ext4::{FileDigest, MasterKey, NewVerity, SetAttr};
use lanefs_ondisk::encryption::Policy;
use lanefs_vfs::Follow;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

impl FileSystem {
    /// Returns the metadata of the file at `path`. Follows a symbolic link.
    pub fn metadata(&self, path: impl AsRef<Path>) -> Result<Metadata> {
        self.stat(path.as_ref(), Follow::Links)
    }

    /// Returns the metadata of the file at `path`. Does not follow a symbolic link.
    pub fn symlink_metadata(&self, path: impl AsRef<Path>) -> Result<Metadata> {
        self.stat(path.as_ref(), Follow::Nothing)
    }

    /// Returns whether a file exists at `path`; follows symbolic links.
    pub fn exists(&self, path: impl AsRef<Path>) -> Result<bool> {
        match self.metadata(path) {
            Ok(_) => Ok(true),
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Changes the attributes of the inode at `path`, except those for which `set` has no value.
    ///
    /// # Errors
    /// `EOPNOTSUPP` if a flag is to be set that only the file system sets.
    pub fn set_attr(&self, path: impl AsRef<Path>, set: &SetAttr, follow: Follow) -> Result<()> {
        let path = path.as_ref();
        self.mounted().set_attr(&self.find(path, follow)?, set).at(path)
    }

    /// Encrypts an empty directory with `key`, which is one of [`crate::OpenOptions::keys`].
    /// Contents are encrypted by AES-256-XTS, names by AES-256-CTS with a padding of 32 bytes. All
    /// new files and directories in the directory are encrypted too.
    ///
    /// # Errors
    /// See [`lanefs_ext4::Fs::set_encryption_policy`].
    pub fn encrypt_dir(&self, path: impl AsRef<Path>, key: &MasterKey) -> Result<()> {
        let path = path.as_ref();
        let dir = self.find(path, Follow::Links)?;
        let policy = Policy::aes_256(*key.identifier());
        self.vfs().set_encryption_policy(self.credentials(), &dir, &policy).at(path)
    }

    /// Returns the encryption policy of the inode at `path`; `None` if the inode is not encrypted.
    pub fn encryption_policy(
        &self,
        path: impl AsRef<Path>,
        follow: Follow,
    ) -> Result<Option<Policy>> {
        let path = path.as_ref();
        let inode = self.find(path, follow)?;
        self.vfs().fs().encryption_policy(&inode).at(path)
    }

    /// Makes a regular file a verity file: its data never changes again, and is checked against a
    /// hash tree when it is read. Returns the file's digest.
    ///
    /// # Errors
    /// See [`lanefs_ext4::Fs::enable_verity`].
    pub fn enable_verity(&self, path: impl AsRef<Path>, new: &NewVerity) -> Result<FileDigest> {
        let path = path.as_ref();
        let file = self.find(path, Follow::Links)?;
        self.vfs().enable_verity(self.credentials(), &file, new).at(path)
    }

    /// Returns the digest of a verity file, as `fsverity digest` computes it; `None` if the file is
    /// not a verity file. Does not follow a symbolic link.
    pub fn digest(&self, path: impl AsRef<Path>) -> Result<Option<FileDigest>> {
        let path = path.as_ref();
        let file = self.find(path, Follow::Nothing)?;
        self.vfs().fs().file_digest(&file).at(path)
    }

    /// Sets the low 12 bits of the mode.
    pub fn set_permissions(&self, path: impl AsRef<Path>, permissions: u16) -> Result<()> {
        let set = SetAttr { permissions: Some(permissions), ..SetAttr::default() };
        self.set_attr(path, &set, Follow::Links)
    }

    /// Sets owner and group; `None` leaves the owner or the group unchanged.
    pub fn set_owner(
        &self,
        path: impl AsRef<Path>,
        uid: Option<u32>,
        gid: Option<u32>,
    ) -> Result<()> {
        self.set_attr(path, &owners(uid, gid), Follow::Links)
    }

    /// Works like [`FileSystem::set_owner`], without following a symbolic link.
    pub fn set_symlink_owner(
        &self,
        path: impl AsRef<Path>,
        uid: Option<u32>,
        gid: Option<u32>,
    ) -> Result<()> {
        self.set_attr(path, &owners(uid, gid), Follow::Nothing)
    }

    /// Sets times.
    pub fn set_times(&self, path: impl AsRef<Path>, times: FileTimes) -> Result<()> {
        self.set_attr(path, &times.into(), Follow::Links)
    }

    /// Works like [`FileSystem::set_times`], without following a symbolic link.
    pub fn set_symlink_times(&self, path: impl AsRef<Path>, times: FileTimes) -> Result<()> {
        self.set_attr(path, &times.into(), Follow::Nothing)
    }

    /// Returns the value of an extended attribute (`user.x`); `None` if it does not exist. The
    /// methods for extended attributes do not follow symbolic links; those of [`crate::File`] are
    /// of the file to which a link led.
    pub fn xattr(
        &self,
        path: impl AsRef<Path>,
        name: impl AsRef<OsStr>,
    ) -> Result<Option<Vec<u8>>> {
        let path = path.as_ref();
        self.mounted().xattr(&self.find(path, Follow::Nothing)?, name.as_ref()).at(path)
    }

    /// Sets an extended attribute.
    pub fn set_xattr(
        &self,
        path: impl AsRef<Path>,
        name: impl AsRef<OsStr>,
        value: impl AsRef<[u8]>,
    ) -> Result<()> {
        let path = path.as_ref();
        let inode = self.find(path, Follow::Nothing)?;
        self.mounted().set_xattr(&inode, name.as_ref(), value.as_ref()).at(path)
    }

    /// Removes an extended attribute.
    pub fn remove_xattr(&self, path: impl AsRef<Path>, name: impl AsRef<OsStr>) -> Result<()> {
        let path = path.as_ref();
        let inode = self.find(path, Follow::Nothing)?;
        self.vfs().remove_xattr(self.credentials(), &inode, name.as_ref().as_bytes()).at(path)
    }

    /// Returns the names of the extended attributes.
    pub fn xattrs(&self, path: impl AsRef<Path>) -> Result<Vec<OsString>> {
        let path = path.as_ref();
        self.mounted().xattrs(&self.find(path, Follow::Nothing)?).at(path)
    }
}
