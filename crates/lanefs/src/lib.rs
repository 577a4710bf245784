//! ext4 in user space that keeps scaling as cores are added.
//!
//! [`FileSystem`] opens an ext4 image or block device and works on it as [`std::fs`] does on the
//! host, without a mount and without privileges. It is shared by threads as it is.
#![forbid(unsafe_code)]

mod directory;
mod error;
mod file;
mod filesystem;
mod metadata;
mod options;
mod remove;

pub use directory::{DirEntry, ReadDir};
pub use error::{Cause, Error, Result};
pub use file::File;
pub use filesystem::FileSystem;
pub use lanefs_device as device;
pub use lanefs_ext4::{
    Atime, Attr, Fallocate, NewKind, Rdev, Rename, SetAttr, SetTime, SetXattr, StatFs,
};
pub use lanefs_ondisk::{FileType, Ino, Time};
pub use lanefs_vfs::{Credentials, Follow, NameCachePolicy, NewNode, Vfs};
pub use metadata::{FileTimes, Metadata};
pub use options::{FileOptions, OpenOptions};
