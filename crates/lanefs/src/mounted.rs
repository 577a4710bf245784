//! The mounted file system, which a [`crate::FileSystem`] shares with its open files.

use crate::source::Source;
use lanefs_ext4::{CHANGEABLE_FLAGS, Error, InodeRef, SetAttr, SetXattr};
use lanefs_lanes::LaneArc;
use lanefs_vfs::{Credentials, Vfs};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// A mounted file system, whose operations run with one set of credentials.
pub(crate) struct Mounted {
    pub vfs: Vfs,
    pub credentials: Credentials,
    /// The image or array, if the file system was opened from a [`Source`]. This field is dropped
    /// after the file system.
    pub source: Option<Source>,
}

/// A handle that keeps the file system mounted. Each open file has a handle. Creating or dropping a
/// handle writes only the reference count of the thread's lane (see [`LaneArc`]), and using a
/// handle writes no shared memory.
pub(crate) type Shared = LaneArc<Mounted>;

impl Mounted {
    /// Changes attributes of an inode.
    pub fn set_attr(&self, inode: &InodeRef, set: &SetAttr) -> Result<(), Error> {
        // The floor below ignores flags that no user may set. chattr(1) gets this error for them.
        if set.flags.is_some_and(|flags| flags & !(CHANGEABLE_FLAGS | inode.attr().flags) != 0) {
            return Err(Error::NotSupported);
        }
        self.vfs.set_attr(&self.credentials, inode, set).map(drop)
    }

    pub fn xattr(&self, inode: &InodeRef, name: &OsStr) -> Result<Option<Vec<u8>>, Error> {
        match self.vfs.get_xattr(&self.credentials, inode, name.as_bytes()) {
            Err(Error::NoAttribute) => Ok(None),
            value => value.map(Some),
        }
    }

    pub fn set_xattr(&self, inode: &InodeRef, name: &OsStr, value: &[u8]) -> Result<(), Error> {
        self.vfs.set_xattr(&self.credentials, inode, name.as_bytes(), value, SetXattr::Any)
    }

    pub fn xattrs(&self, inode: &InodeRef) -> Result<Vec<OsString>, Error> {
        let names = self.vfs.list_xattr(&self.credentials, inode)?;
        Ok(names.into_iter().map(OsString::from_vec).collect())
    }
}

/// Sets owner and group. As with chown(2), the number -1 stands for "unchanged" too.
pub(crate) fn owners(uid: Option<u32>, gid: Option<u32>) -> SetAttr {
    let given = |id: &u32| *id != u32::MAX;
    SetAttr { uid: uid.filter(given), gid: gid.filter(given), ..SetAttr::default() }
}
