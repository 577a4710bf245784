//! Block and inode bitmaps: checks, searches, checksums. A set bit means that the block or inode is
//! in use.
//!
//! [`Bitmap`] stores bits in words for fast searches. Unused bits after the bitmap's last bit count
//! as used, in memory as on disk.
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
