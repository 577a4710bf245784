//! Allocates and frees blocks.

use crate::error::Error;
use crate::image::{Image, ImageNodes};
use lanefs_ext4::Expected;
use lanefs_ondisk::checksum::Seed;
use lanefs_ondisk::group_desc::GroupDesc;
use lanefs_ondisk::inode::Inode;
use lanefs_ondisk::{Block, Corruption, Group, Ino};

impl Image {
    /// Allocates `count` free blocks, preferably in the group of `goal` or a later group. Allocates
    /// one run if a group has a free run of this length, and otherwise a few long runs. Blocks that
    /// were freed since the last commit are not used.
    ///
    /// # Errors
    /// [`lanefs_ext4::Error::NoSpace`], in which case nothing was allocated.
    pub(crate) fn claim(&mut self, goal: Block, count: u32) -> Result<Vec<(Block, u32)>, Error> {
        let groups = self.geometry().group_count();
        let first = self.geometry().group_of(goal).map_or(0, |(group, _)| group.0);
        let order: Vec<Group> = (first..groups).chain(0..first).map(Group).collect();
        // Tries long runs first: one run of all blocks, then runs of at least half of the remaining
        // blocks, and so on.
        let mut taken = Vec::new();
        let mut left = count;
        let mut least = count.min(self.geometry().blocks_per_group());
        while left > 0 {
            let mut found = false;
            for &group in &order {
                while let Some((start, len)) = self.claim_in(group, least.min(left), left)? {
                    taken.push((start, len));
                    left -= len;
                    found = true;
                    if left == 0 {
                        return Ok(joined(taken));
                    }
                }
            }
            if !found && least == 1 {
                for (start, len) in taken {
                    self.release(start, len.into())?;
                }
                return Err(lanefs_ext4::Error::NoSpace.into());
            }
            least = (least / 2).max(1);
        }
        Ok(joined(taken))
    }

    /// Allocates at most `most` blocks of the first run in `group` that has at least `least`
    /// blocks.
    fn claim_in(
        &mut self,
        group: Group,
        least: u32,
        most: u32,
    ) -> Result<Option<(Block, u32)>, Error> {
        let geometry = self.geometry();
        let free = self.descriptor(group)?.free_blocks;
        if free < least && !self.bitmaps.contains_key(&group) {
            return Ok(None);
        }
        let bits = geometry.clusters_in_group(group).unwrap_or(0);
        let first = geometry.group_first_block(group).unwrap_or_default().0;
        let limit = self.limit.map_or(u64::MAX, |limit| limit.saturating_sub(first));
        let bits = limit.min(bits.into()) as u32;
        let bitmap = self.block_bitmap(group)?;
        let found = match self.described_bitmap(group)? {
            Some(mut both) => {
                both.union(&bitmap);
                both.next_clear_run(0..bits, least)
            }
            None => bitmap.next_clear_run(0..bits, least),
        };
        let Some(run) = found else { return Ok(None) };
        let len = (run.end.min(bits) - run.start).min(most);
        if len < least {
            return Ok(None);
        }
        let start = geometry.block_at(group, run.start).expected()?;
        self.set_bits(group, run.start, len)?;
        Ok(Some((start, len)))
    }

    fn set_bits(&mut self, group: Group, start: u32, len: u32) -> Result<(), Error> {
        let set = self.bitmap_mut(group)?.set(start, len);
        Ok(set.map_err(|cause| Corruption::Bitmap { group, cause })?)
    }

    /// Frees blocks that are in use.
    pub(crate) fn release(&mut self, start: Block, len: u64) -> Result<(), Error> {
        for (group, bit, len) in self.pieces(start, len)? {
            let cleared = self.bitmap_mut(group)?.clear(bit, len);
            cleared.map_err(|cause| Corruption::Bitmap { group, cause })?;
        }
        Ok(())
    }

    /// Splits a run of blocks at group borders. Returns for each piece the group, the first bit in
    /// the group's bitmap, and the number of bits.
    pub(crate) fn pieces(&self, start: Block, len: u64) -> Result<Vec<(Group, u32, u32)>, Error> {
        let geometry = self.geometry();
        let mut pieces = Vec::new();
        let (mut at, end) = (start.0, start.0.saturating_add(len));
        while at < end {
            let outside = lanefs_ext4::Error::OutsideFileSystem { block: Block(at) };
            let (group, bit) = geometry.group_of(Block(at)).ok_or(outside.clone())?;
            let last = geometry.group_last_block(group).ok_or(outside)?;
            let len = end.min(last.0 + 1) - at;
            pieces.push((group, bit, len as u32));
            at += len;
        }
        Ok(pieces)
    }

    /// Frees all blocks of a file, including those of its extent tree.
    pub(crate) fn release_all(&mut self, ino: Ino, inode: &Inode) -> Result<(), Error> {
        let (map, nodes) = self.map(ino, inode)?;
        for extent in map.iter() {
            self.release(extent.block, extent.len.into())?;
        }
        nodes.into_iter().try_for_each(|node| self.release(node, 1))
    }

    pub(crate) fn set_descriptor(&mut self, group: Group, desc: GroupDesc) {
        if let Some(slot) = self.descriptors.get_mut(group.0 as usize) {
            *slot = desc;
        }
    }

    pub(crate) fn nodes(&self, ino: Ino, seed: Option<Seed>) -> ImageNodes<'_> {
        ImageNodes { image: self, ino, seed, met: Default::default() }
    }
}

/// Joins adjacent runs.
fn joined(mut runs: Vec<(Block, u32)>) -> Vec<(Block, u32)> {
    runs.sort_unstable();
    let mut out: Vec<(Block, u32)> = Vec::new();
    for (start, len) in runs {
        match out.last_mut() {
            Some((before, sum)) if before.0 + u64::from(*sum) == start.0 => *sum += len,
            _ => out.push((start, len)),
        }
    }
    out
}
