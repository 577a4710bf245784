//! The ext4, jbd2 and md on-disk formats: bytes to checked values and back.
//!
//! This crate does no I/O and has no `unsafe`. It converts all bytes to values: a type `RawX` has
//! the format's own field names and byte order (zerocopy, size asserted), a type `X` is decoded and
//! checked. `X::decode` makes every check, including that of the checksum with the *expected*
//! owner. `encode` writes only what the format can hold, and sets the checksum. Whatever bytes the
//! disk has, no function of this crate panics, loops for ever or allocates without bound. Only
//! errors of the caller make functions panic, as their sections *Panics* say.
#![forbid(unsafe_code)]

pub mod acl;
pub mod bitmap;
pub mod block_map;
pub mod casefold;
mod cause;
pub mod checksum;
pub mod dirent;
pub mod encryption;
mod error;
pub mod extent;
pub mod features;
pub mod group_desc;
pub mod hash;
pub mod htree;
pub mod inode;
pub mod jbd2;
pub mod md;
pub mod mmp;
pub mod orphan;
pub mod quota;
pub mod superblock;
mod types;
pub mod verity;
pub mod xattr;

pub use error::{Corruption, Unsupported};
pub use types::{Block, BlockSize, FileBlock, FileType, Group, Ino, Time};
