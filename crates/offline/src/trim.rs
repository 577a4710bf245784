//! Returns free blocks to the host, by punching holes into a file or by a discard on a device.
//!
//! Only free blocks of a clean file system are discarded, and nothing is written, so a crash leaves
//! the file system as it was.

use crate::error::Error;
use crate::image::Image;
use lanefs_ext4::Expected;
use lanefs_ondisk::{Block, Group};

/// The space that was returned.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Trimmed {
    /// Bytes of free space that were discarded; some may have been holes before.
    pub bytes: u64,
    /// The number of runs of free blocks that were discarded.
    pub runs: u64,
}

impl Image {
    /// Discards every run of free blocks that is at least `least` bytes long.
    ///
    /// # Errors
    /// [`Error::Ext4`] if a bitmap is damaged or the device fails.
    pub fn trim(&mut self, least: u64) -> Result<Trimmed, Error> {
        let bits = self.geometry().block_size().bits();
        let mut trimmed = Trimmed::default();
        for (start, len) in self.free_runs()? {
            let bytes = len << bits;
            if bytes >= least {
                self.device.discard(start.0 << bits, bytes)?;
                trimmed.bytes += bytes;
                trimmed.runs += 1;
            }
        }
        self.device.flush()?;
        Ok(trimmed)
    }

    /// Returns the runs of free blocks, in ascending order. A run may cover parts of several
    /// groups.
    fn free_runs(&self) -> Result<Vec<(Block, u64)>, Error> {
        let geometry = self.geometry();
        let mut runs: Vec<(Block, u64)> = Vec::new();
        for group in (0..geometry.group_count()).map(Group) {
            let bitmap = self.block_bitmap(group)?;
            for run in bitmap.clear_runs(0..bitmap.bits()) {
                let start = geometry.block_at(group, run.start).expected()?;
                let len = u64::from(run.end - run.start) << geometry.cluster_bits();
                match runs.last_mut() {
                    Some((before, sum)) if before.0 + *sum == start.0 => *sum += len,
                    _ => runs.push((start, len)),
                }
            }
        }
        Ok(runs)
    }

    /// Returns the runs of blocks in use, including the blocks before the first group.
    pub(crate) fn used_runs(&self) -> Result<Vec<(Block, u64)>, Error> {
        let end = self.geometry().block_count();
        let mut runs = Vec::new();
        let mut at = 0;
        for (start, len) in self.free_runs()? {
            if start.0 > at {
                runs.push((Block(at), start.0 - at));
            }
            at = start.0 + len;
        }
        if end > at {
            runs.push((Block(at), end - at));
        }
        Ok(runs)
    }
}
