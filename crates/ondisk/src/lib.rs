//! No promise of stability: a part of Lanefs, for its other crates only.
//!
//! The ext4, jbd2 and md on-disk formats. This crate converts bytes to checked values and back.
//!
//! This crate does no I/O and has no `unsafe`. A type `RawX` has the field names and the byte order
//! of the format (zerocopy, size asserted). A type `X` has decoded and checked values. `X::decode`
//! makes every check, including a check that the checksum is right for the *expected* owner.
//! `encode` writes only what the format can hold, and sets the checksum. Whatever bytes are on the
//! disk, no function of this crate panics, loops for ever or allocates without bound. A function
//! panics only after an error of its caller, as its section *Panics* says.
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

pub use error::{BadSize, Corruption, Dashed, UnfitJournal, Unsupported};
pub use types::{Block, BlockSize, FileBlock, FileType, Group, Ino, Time};
