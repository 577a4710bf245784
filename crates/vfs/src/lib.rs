//! Names, path walk, permissions and open files over ext4.
//!
//! A [`Vfs`] is a mounted file system with the interface that programs expect: it checks the
//! caller's [`Credentials`], walks paths, follows symbolic links, and caches names. Operations come
//! in two forms: on a path ([`Vfs::walk`] and [`Vfs::parent`] convert from one form to the other),
//! and on an inode and a name, as a FUSE server receives them. All operations take `&self`.
//!
//! # How do the name cache and the walk stay correct?
//!
//! `names` says why a cached name is never older than its directory. Between reading a name and
//! referencing the inode, the inode may be freed and its number used again. So the walk references
//! the inode first and then reads the name again: a referenced inode keeps its number.
//!
//! # When are permissions checked?
//!
//! [`rules`] has the rules; those of immutable and append-only files are in `lanefs_ext4::flags`,
//! since they need the locks of the operation. A check and its operation see the same state:
//!
//! - Removing or moving a name checks the inode to which the name refers. If the name refers to
//!   another inode once the inodes are locked, ext4 does nothing and reports that
//!   (`Acted::NameChanged`), and look-up and check begin again. Otherwise a user could have another
//!   user's file removed from a sticky directory.
//! - Attributes, extended attributes and ACLs are checked under the operation lock
//!   (`Fs::set_attr_as`, `Fs::set_xattr_as`). Otherwise an owner's chmod that runs beside root's
//!   chown could make a set-user-ID program that belongs to root.
//! - Some checks are made before the operation lock is taken: whether a mode or ACL lets a caller
//!   write to a directory, set a size, touch an inode, make a verity file, or set a `user.`
//!   attribute; and whether a caller owns the directory that gets an encryption policy.
//!
//! If a flag forbids a change of the mode, an operation that would clear set-ID bits is refused.
#![forbid(unsafe_code)]

mod acl;
mod attr;
mod cached;
mod credentials;
mod names;
mod node;
mod open;
mod path;
mod permission;
pub mod rules;
mod vfs;
mod walk;
mod xattr;

pub use credentials::Credentials;
pub use lanefs_ext4::{Error, NameCachePolicy};
pub use names::{HashedName, Known, LaneNames, NameCache, Sighting};
pub use open::{OpenFile, OpenFlags};
pub use path::{Last, MAX_NAME, MAX_PATH, MAX_SYMLINKS, Slash};
pub use rules::{NewNode, Want};
pub use vfs::{Vfs, VfsOptions};
pub use walk::{Follow, Parent};
