//! The unit of lengths and offsets, and the position of the superblock.

/// The size in bytes of a sector, the unit in which md counts.
pub const SECTOR: u64 = 512;

/// The offset of a superblock of version 1.2 in a member, in bytes.
pub const SUPERBLOCK_OFFSET: u64 = 4096;

/// The largest size of a superblock of version 1, in bytes.
pub const SUPERBLOCK_SIZE: usize = 4096;
