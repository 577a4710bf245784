//! Discards free blocks of a file system in use (FITRIM).

use crate::fs::Fs;
use lanefs_ondisk::{Block, Group};
use lanefs_plan::Error;
use std::ops::Range;

impl Fs {
    /// Discards the free blocks in this byte range of the device. Runs of free blocks that are
    /// shorter than `least` bytes are skipped. Returns the number of discarded bytes. Blocks that
    /// are freed in a transaction that is not durable yet are not discarded. Other threads may use
    /// the file system meanwhile.
    ///
    /// # Errors
    /// [`Error::ReadOnly`], the error for a damaged bitmap, or an error of the device.
    pub fn trim(&self, bytes: Range<u64>, least: u64) -> Result<u64, Error> {
        self.objects.check_writable()?;
        let geometry = *self.objects.volume.geometry();
        let size = geometry.block_size();
        let bits = size.bits() + geometry.cluster_bits();
        let Ok(least) = u32::try_from(least.div_ceil(1 << bits).max(1)) else { return Ok(0) };
        let first = bytes.start.div_ceil(size.bytes() as u64).max(geometry.first_data_block().0);
        let blocks = first..(bytes.end >> size.bits()).min(geometry.block_count());
        let mut discarded = 0;
        let Some((from, _)) = geometry.group_of(Block(blocks.start)) else { return Ok(0) };
        for group in (from.0..geometry.group_count()).map(Group) {
            let (Some(start), Some(last)) =
                (geometry.group_first_block(group), geometry.group_last_block(group))
            else {
                break;
            };
            if start.0 >= blocks.end {
                break;
            }
            let within = |block: u64| (block.clamp(start.0, last.0 + 1) - start.0) as u32;
            let clusters = geometry.clusters();
            // Clusters that the range covers only partly are not discarded.
            let bits =
                clusters.holding(within(blocks.start))..within(blocks.end) >> clusters.bits();
            discarded += self.trim_group(group, bits, least)?;
        }
        Ok(discarded)
    }

    fn trim_group(&self, group: Group, bits: Range<u32>, least: u32) -> Result<u64, Error> {
        let objects = &self.objects;
        let shift = objects.volume.geometry().block_size().bits();
        let (mut at, mut run_end, mut discarded) = (bits.start, bits.start, 0);
        loop {
            // A run may be discarded in several pieces. If the whole run is long enough, its last
            // piece is discarded too, however short that piece is.
            let least = if at < run_end { 1 } else { least };
            let run = objects.groups.claim_free_run(objects, group, at..bits.end, least)?;
            let Some(run) = run else { break };
            if let Some(claim) = &run.claim {
                let len = u64::from(claim.len()) << shift;
                objects.volume.device.discard(claim.start().0 << shift, len)?;
                discarded += len;
            }
            (at, run_end) = (run.next, run.end);
        }
        Ok(discarded)
    }
}
