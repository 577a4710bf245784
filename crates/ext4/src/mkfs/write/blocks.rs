//! Writes whole blocks to the device, and counts them.

use crate::mkfs::{Contents, MkfsError};
use lanefs_device::Device;
use lanefs_ondisk::BlockSize;

/// Bytes at the start of the device where other formats have marks: the farthest is btrfs, at 64
/// KiB.
const HEAD: u64 = 128 << 10;
/// Bytes at its end: the farthest mark is md 0.90, up to 128 KiB before the end.
const TAIL: u64 = 128 << 10;

/// Writes whole blocks.
pub(super) struct BlockWriter<'d> {
    device: &'d dyn Device,
    block_size: BlockSize,
    contents: Contents,
    written: u64,
}

impl<'d> BlockWriter<'d> {
    pub(super) fn new(
        device: &'d dyn Device,
        block_size: BlockSize,
        contents: Contents,
    ) -> BlockWriter<'d> {
        BlockWriter { device, block_size, contents, written: 0 }
    }

    /// Returns the bytes written, zeros included.
    pub(super) fn written(&self) -> u64 {
        self.written
    }

    /// Writes one block.
    pub(super) fn write(&mut self, block: u64, bytes: &[u8]) -> Result<(), MkfsError> {
        debug_assert_eq!(bytes.len(), self.block_size.bytes());
        self.device.write_at(block << self.block_size.bits(), bytes)?;
        self.written += bytes.len() as u64;
        Ok(())
    }

    /// Zeroes blocks, unless the device contains only zeros.
    pub(super) fn zero(&mut self, block: u64, len: u64) -> Result<(), MkfsError> {
        if self.contents == Contents::Unknown {
            let bits = self.block_size.bits();
            self.device.write_zeros(block << bits, len << bits)?;
            self.written += len << bits;
        }
        Ok(())
    }

    /// Wipes the marks of other formats, and those of an older ext4.
    pub(super) fn wipe_signatures(&mut self) -> Result<(), MkfsError> {
        if self.contents == Contents::Zeros {
            return Ok(());
        }
        let len = self.device.len();
        self.device.write_zeros(0, HEAD.min(len))?;
        let alignment = u64::from(self.device.alignment());
        let tail = TAIL.min(len) / alignment * alignment;
        self.device.write_zeros(len / alignment * alignment - tail, tail)?;
        Ok(())
    }
}
