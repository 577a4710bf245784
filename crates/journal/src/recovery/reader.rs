//! Reads log blocks.

use super::input::Input;
use crate::error::Error;
use crate::log_map::LogMap;
use lanefs_device::Device;
use lanefs_ondisk::Corruption;
use lanefs_ondisk::jbd2::{Cause, LogFormat};
use std::ops::Range;

/// The log as a ring of blocks.
pub(super) struct Reader<'a> {
    device: &'a dyn Device,
    map: &'a LogMap,
    pub(super) format: LogFormat,
    area: Range<u32>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(input: &Input<'a>) -> Reader<'a> {
        Reader {
            device: input.device,
            map: input.map,
            format: input.superblock.format(),
            area: input.superblock.log_area(),
        }
    }

    /// Returns the number of blocks in the ring.
    pub(super) fn size(&self) -> u32 {
        self.area.end - self.area.start
    }

    /// Returns the block `n` blocks after `at` in the ring.
    pub(super) fn after(&self, at: u32, n: u32) -> u32 {
        let from_start = u64::from(at - self.area.start) + u64::from(n);
        self.area.start + (from_start % u64::from(self.size())) as u32
    }

    /// Reads log block `at`.
    pub(super) fn read(&self, at: u32) -> Result<Vec<u8>, Error> {
        let mut block = vec![0; self.format.block_size.bytes()];
        let (place, _) = self.map.place(at).ok_or(Error::BadLogMap { log_block: at })?;
        // The map is within the file system, so this does not overflow. If the device is shorter
        // than its file system, the read returns an error.
        self.device.read_at(place.0 << self.format.block_size.bits(), &mut block)?;
        Ok(block)
    }

    /// Returns the error for damage at block `at` of the log.
    pub(super) fn corruption(at: u32, cause: Cause) -> Error {
        Corruption::Journal { block: at, cause }.into()
    }
}
