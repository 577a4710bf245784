//! Reads log blocks.

use super::input::Input;
use crate::error::Error;
use crate::log_map::LogMap;
use lanefs_device::Device;
use lanefs_ondisk::Corruption;
use lanefs_ondisk::jbd2::{Cause, LogFormat};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;

/// The largest number of bytes that are read together.
const PIECE: usize = 64 << 10;

/// The largest number of bytes of the log that are kept in memory, so that the later passes need
/// not read a short log again.
const KEPT: usize = 8 << 20;

/// The log as a ring of blocks.
pub(super) struct Reader<'a> {
    device: &'a dyn Device,
    map: &'a LogMap,
    pub(super) format: LogFormat,
    area: Range<u32>,
    /// Pieces of the log that were read, keyed by their first log block.
    pieces: RefCell<BTreeMap<u32, Vec<u8>>>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(input: &Input<'a>) -> Reader<'a> {
        Reader {
            device: input.device,
            map: input.map,
            format: input.superblock.format(),
            area: input.superblock.log_area(),
            pieces: RefCell::default(),
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

    /// Reads log block `at`, and blocks after it, which the caller will probably read next.
    pub(super) fn read(&self, at: u32) -> Result<Vec<u8>, Error> {
        if let Some(block) = self.kept(at) {
            return Ok(block);
        }
        let (_, adjacent) = self.map.place(at).ok_or(Error::BadLogMap { log_block: at })?;
        let size = self.format.block_size.bytes();
        let piece = match self.read_run(at, (PIECE / size).min(adjacent as usize)) {
            Ok(piece) => piece,
            // The block that cannot be read may be one that was only read ahead and that no pass
            // needs.
            Err(_) => return self.read_run(at, 1),
        };
        let block = piece.get(..size).unwrap_or_default().to_vec();
        let mut pieces = self.pieces.borrow_mut();
        if (pieces.len() + 1) * PIECE > KEPT {
            pieces.clear();
        }
        pieces.insert(at, piece);
        Ok(block)
    }

    /// Reads log block `at` alone.
    pub(super) fn read_one(&self, at: u32) -> Result<Vec<u8>, Error> {
        self.kept(at).map_or_else(|| self.read_run(at, 1), Ok)
    }

    fn kept(&self, at: u32) -> Option<Vec<u8>> {
        let pieces = self.pieces.borrow();
        let (first, piece) = pieces.range(..=at).next_back()?;
        let size = self.format.block_size.bytes();
        let start = (at - first) as usize * size;
        Some(piece.get(start..start + size)?.to_vec())
    }

    /// Reads `len` blocks, which are adjacent on the device.
    fn read_run(&self, at: u32, len: usize) -> Result<Vec<u8>, Error> {
        let mut bytes = vec![0; len * self.format.block_size.bytes()];
        let (place, _) = self.map.place(at).ok_or(Error::BadLogMap { log_block: at })?;
        // The map is within the file system, so the shift does not overflow. If the device is
        // shorter than its file system, the read returns an error.
        self.device.read_at(place.0 << self.format.block_size.bits(), &mut bytes)?;
        Ok(bytes)
    }

    /// Returns the error for damage at block `at` of the log.
    pub(super) fn corruption(at: u32, cause: Cause) -> Error {
        Corruption::Journal { block: at, cause }.into()
    }
}
