//! Names, path walk, permissions and open files over ext4.
//!
//! A [`Vfs`] is a mounted file system with the interface that programs expect: it checks the
//! caller's [`Credentials`], walks paths, follows symbolic links, and caches names. Operations come
//! in two forms: on a path ([`Vfs::walk`] and [`Vfs::parent`] convert from one form to the other),
//! and on an inode and a name, as a FUSE server receives them. All take `&self`.
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
pub use names::{Known, LaneNames, NameCache, Sighting};
pub use open::{OpenFile, OpenFlags};
pub use path::{Last, MAX_NAME, MAX_PATH, MAX_SYMLINKS, Slash};
pub use rules::{NewNode, Want};
pub use vfs::{Vfs, VfsOptions};
pub use walk::{Follow, Parent};
