//! Block and inode bitmaps: checks, searches, checksums. A set bit means that the block or inode is
//! in use.
//!
//! [`Bitmap`] stores bits in words for fast searches. Both in memory and on disk, all bits after
//! the bitmap's last bit are set.
//!
//! Source: ext4 disk layout documentation, "Block and Inode Bitmaps".

mod bits;
mod codec;
mod search;

pub use crate::cause::bitmap::Cause;
pub use bits::Bitmap;
pub use search::ClearRuns;

#[cfg(test)]
mod tests;
