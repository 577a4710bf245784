//! No promise of stability: a part of Lanefs, for its other crates only.
//!
//! Names, path walk, permissions and open files over ext4.
//!
//! A [`Vfs`] is a mounted file system with the interface that programs expect: it checks the
//! caller's [`Credentials`], walks paths, follows symbolic links, and caches names. Operations come
//! in two forms. One form takes a path. The other takes an inode and a name, as in the requests to
//! a FUSE server; [`Vfs::walk`] and [`Vfs::parent`] convert a path to this form. All operations
//! take `&self`.
//!
//! # How do the name cache and the walk stay correct?
//!
//! The module `names` explains why a cached name is never older than its directory. After a walk
//! has read a name, and before it takes a reference to the inode, the inode may be freed and its
//! number reused. So the walk reads the name again after it has taken the reference, since the
//! number of a referenced inode is not reused.
//!
//! # When are permissions checked?
//!
//! The module [`rules`] has the permission rules, except those of immutable and append-only files.
//! The rules of these files are in `lanefs_ext4::flags`, since they are checked under the locks of
//! the operation. A check and its operation see the same state, except for the checks in the third
//! item:
//!
//! - Removing or moving a name checks the inode to which the name refers. If the name refers to
//!   another inode by the time the inodes are locked, ext4 changes nothing and reports this
//!   (`Acted::NameChanged`), and look-up and check begin again. Otherwise a user could have another
//!   user's file removed from a sticky directory.
//! - Attributes, extended attributes and ACLs are checked under the operation lock
//!   (`Fs::set_attr_as`, `Fs::set_xattr_as`). Otherwise, if an owner's chmod ran at the same time
//!   as root's chown, the file could become a set-user-ID program that belongs to root.
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
pub use lanefs_ext4::Error;
pub use open::{OpenFile, OpenFlags};
pub use path::{Last, MAX_NAME, MAX_PATH, MAX_SYMLINKS, Slash};
pub use rules::{NewNode, Want};
pub use vfs::{Vfs, VfsOptions};
pub use walk::{Follow, Parent};
