//! Offsets of fields in an inode. Source: ext4 disk layout documentation, "Index Nodes".

use super::mender::put32;

pub const MODE: usize = 0;
pub const SIZE: usize = 4;
pub const DTIME: usize = 0x14;
pub const LINKS: usize = 0x1a;
pub const BLOCKS: usize = 0x1c;
pub const FLAGS: usize = 0x20;
/// The block field.
pub const BLOCK: usize = 0x28;
pub const BLOCK_END: usize = 0x64;
pub const SIZE_HIGH: usize = 0x6c;
pub const FRAGMENT: usize = 0x70;
pub const BLOCKS_HIGH: usize = 0x74;
pub const ACL_HIGH: usize = 0x76;
pub const EXTRA_SIZE: usize = 0x80;
pub const GOOD_OLD_SIZE: usize = 128;
/// The size in bytes of the fields after the first 128 bytes, as mke2fs sets it.
pub const EXTRA: u16 = 32;

/// Sets the size field of a file.
pub fn set_size(bytes: &mut [u8], size: u64) {
    put32(bytes, SIZE, size as u32);
    put32(bytes, SIZE_HIGH, (size >> 32) as u32);
}
