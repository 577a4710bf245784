//! The format of Linux md's array members: superblock 1.2, bad-block log, write-intent bitmap,
//! partial parity log. Everything is little endian.
//!
//! Functions here return a bare [`Cause`], since only the caller knows which member it read. The
//! functions check a single member; the code that assembles an array checks that the members agree.
//! Offsets in superblocks are in sectors of 512 bytes, even if the device has larger sectors.
//!
//! Sources: `linux/raid/md_p.h` of Linux's interface headers, md(4), and members that Linux's md
//! wrote.

pub mod bad_blocks;
pub mod bitmap;
mod cause;
mod features;
mod level;
pub mod ppl;
mod superblock;
mod units;
mod uuid;

pub use cause::Cause;
pub use features::Features;
pub use level::level_name;
pub use superblock::{Area, BadBlocks, Device, NewArray, Recovery, Role, Superblock};
pub use units::{SECTOR, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE};
pub use uuid::Uuid;
