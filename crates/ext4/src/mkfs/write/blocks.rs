//! Writes whole blocks to the device, and counts them.

use crate::mkfs::{Contents, MkfsError};
use lanefs_device::Device;
use lanefs_ondisk::BlockSize;

/// How many bytes are wiped at the start of the device, where other formats have marks. The mark of
/// btrfs is just after 64 KiB.
const HEAD: u64 = 128 << 10;
/// How many bytes are wiped at the end of the device. The farthest mark is that of md 0.90, at most
/// 128 KiB before the end.
const TAIL: u64 = 128 << 10;
/// The largest number of bytes that wait to be written together with the next block.
const MOST_WAITING: usize = 1 << 20;

/// Writes whole blocks; adjacent blocks that are passed one after another are written together.
pub(crate) struct BlockWriter<'d> {
    device: &'d dyn Device,
    block_size: BlockSize,
    contents: Contents,
    written: u64,
    /// Bytes that are not on the device yet, from block `start` on.
    waiting: Vec<u8>,
    start: u64,
}

impl<'d> BlockWriter<'d> {
    pub(crate) fn new(
        device: &'d dyn Device,
        block_size: BlockSize,
        contents: Contents,
    ) -> BlockWriter<'d> {
        BlockWriter { device, block_size, contents, written: 0, waiting: Vec::new(), start: 0 }
    }

    /// Returns how many bytes were written, including zeros.
    pub(super) fn written(&self) -> u64 {
        self.written
    }

    /// Adds `bytes` to the number of written bytes, for data that was written without this writer.
    pub(super) fn count(&mut self, bytes: u64) {
        self.written += bytes;
    }

    /// Writes one block.
    pub(super) fn write(&mut self, block: u64, bytes: &[u8]) -> Result<(), MkfsError> {
        debug_assert_eq!(bytes.len(), self.block_size.bytes());
        let next = self.start + (self.waiting.len() as u64 >> self.block_size.bits());
        if block != next || self.waiting.len() >= MOST_WAITING {
            self.send()?;
            self.start = block;
        }
        self.waiting.extend_from_slice(bytes);
        self.written += bytes.len() as u64;
        Ok(())
    }

    /// Writes the waiting bytes.
    fn send(&mut self) -> Result<(), MkfsError> {
        if !self.waiting.is_empty() {
            self.device.write_at(self.start << self.block_size.bits(), &self.waiting)?;
            self.start += self.waiting.len() as u64 >> self.block_size.bits();
            self.waiting.clear();
        }
        Ok(())
    }

    /// Makes everything durable.
    pub(super) fn flush(&mut self) -> Result<(), MkfsError> {
        self.send()?;
        Ok(self.device.flush()?)
    }

    /// Zeroes blocks, unless the device contains only zeros.
    pub(super) fn zero(&mut self, block: u64, len: u64) -> Result<(), MkfsError> {
        if self.contents == Contents::Unknown {
            self.send()?;
            let bits = self.block_size.bits();
            self.device.write_zeros(block << bits, len << bits)?;
            self.written += len << bits;
        }
        Ok(())
    }

    /// Wipes the marks of other formats, and those of an older ext4.
    pub(crate) fn wipe_signatures(&mut self) -> Result<(), MkfsError> {
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
