//! Repairs blocks that are in use more than once: the first file keeps the block, and each later
//! file gets a copy or a hole. Blocks of a file that cannot stay in their clusters (`bigalloc`) are
//! treated alike, as in e2fsck.

use super::mender::{Mender, Shared};
use super::salvage::push_run;
use crate::fault::Fault;
use crate::inodes::BAD_BLOCKS;
use crate::place::Place;
use crate::report::Finding;
use lanefs_ondisk::extent::Extent;
use lanefs_ondisk::{Block, FileBlock, Ino};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;

impl Mender<'_> {
    /// Separates files that share blocks.
    pub fn mend_shared(&mut self, found: &[Finding]) {
        let mut files: BTreeMap<Ino, Vec<Range<u64>>> = BTreeMap::new();
        for finding in found {
            let range = match finding.fault {
                Fault::DoublyClaimed { start, len } => Some(self.blocks_of(start, len)),
                _ => None,
            };
            match finding.place {
                Place::Attributes { ino, block: Some(block) } => self.part_attributes(ino, block),
                Place::Inode { ino: Ino::RESIZE } => {
                    self.mend_resize();
                }
                place => {
                    let Some(ino) = place.ino() else { continue };
                    files.entry(ino).or_default().extend(range);
                }
            }
        }
        for (ino, ranges) in files {
            self.part_file(ino, &ranges);
        }
    }

    fn part_file(&mut self, ino: Ino, ranges: &[Range<u64>]) {
        let Some((mut bytes, record)) = self.read_inode(ino) else { return };
        let mut salvaged = self.salvage(ino, &record);
        let strays = self.strays(&salvaged.extents);
        let bits = self.run.volume.geometry.cluster_bits();
        let is_stray = |block: u32| strays.contains(&(block >> bits));
        let mut copies = HashMap::new();
        // A block of a file is no bad block.
        let cuts = self.shared == Shared::Cut || ino == BAD_BLOCKS;
        let (mut extents, mut cut) = (Vec::new(), false);
        for extent in &salvaged.extents {
            let end = extent.block.0 + u64::from(extent.len);
            let meets = |range: &Range<u64>| range.start < end && extent.block.0 < range.end;
            let has_stray = is_stray(extent.start.0) || is_stray(extent.end() - 1);
            if !has_stray && !ranges.iter().any(meets) {
                push_run(&mut extents, *extent);
                continue;
            }
            for n in 0..extent.len {
                let old = Block(extent.block.0 + u64::from(n));
                let start = FileBlock(extent.start.0 + n);
                let is_shared = ranges.iter().any(|range| range.contains(&old.0));
                let block = match (is_shared, is_stray(start.0)) {
                    (true, _) if cuts => None,
                    (false, false) => Some(old),
                    _ => self.copy(&mut copies, old, start),
                };
                match block {
                    Some(block) => {
                        push_run(&mut extents, Extent { start, len: 1, block, ..*extent })
                    }
                    None => cut = true,
                }
            }
        }
        salvaged.extents = extents;
        if self.rebuild(ino, &mut bytes, salvaged) {
            self.write_inode(ino, bytes);
            let what = match cut {
                true => "blocks that another file uses are cut",
                false => "blocks that another file uses are copied",
            };
            self.act(Place::Inode { ino }, what);
        }
    }

    /// Returns the clusters of a file whose blocks are not all in the same cluster of the device,
    /// each at its place.
    fn strays(&self, extents: &[Extent]) -> HashSet<u32> {
        let bits = self.run.volume.geometry.cluster_bits();
        let (mut strays, mut last) = (HashSet::new(), None);
        for extent in extents {
            // Blocks of one cluster of the file have the same distance.
            let distance = extent.block.0.wrapping_sub(extent.start.0.into());
            let clusters = extent.start.0 >> bits..=(extent.end() - 1) >> bits;
            if last.is_some_and(|(at, other)| at == *clusters.start() && other != distance) {
                strays.insert(*clusters.start());
            }
            last = Some((*clusters.end(), distance));
            if distance & ((1 << bits) - 1) != 0 {
                strays.extend(clusters);
            }
        }
        strays
    }

    /// Copies a block. All blocks of one cluster of the file are copied into the same new cluster.
    /// Returns `None` if no space is left, or the blocks cannot be read or written.
    fn copy(
        &mut self,
        copies: &mut HashMap<u32, Option<Block>>,
        old: Block,
        start: FileBlock,
    ) -> Option<Block> {
        let bits = self.run.volume.geometry.cluster_bits();
        let new = *copies.entry(start.0 >> bits).or_insert_with(|| self.allocate());
        let block = Block(new?.0 + u64::from(start.0 & ((1 << bits) - 1)));
        let bytes = self.read_block(old)?;
        self.write_block(block, &bytes).then_some(block)
    }
}
