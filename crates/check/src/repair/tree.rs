//! Rewrites the mapping of a file, as an extent tree or as block pointers.

use super::inode_offsets::{BLOCK, BLOCK_END};
use super::mender::{Mender, put32};
use super::salvage::Salvaged;
use crate::record::Record;
use lanefs_ondisk::extent::{self, Extent};
use lanefs_ondisk::inode::InodeFlags;
use lanefs_ondisk::{Block, Ino};

const DIRECT: u32 = 12;

impl Mender<'_> {
    /// Writes a mapping that consists of the extents in `salvaged`, and sets the block field of the
    /// inode in `bytes`. Returns false, and changes nothing, if there is no space for the nodes.
    pub fn rebuild(&mut self, ino: Ino, bytes: &mut [u8], salvaged: Salvaged) -> bool {
        let record = Record::decode(bytes);
        let Salvaged { nodes: mut old, extents, .. } = salvaged;
        let mut writes = Vec::new();
        let field = match record.flags.contains(InodeFlags::EXTENTS) {
            true => {
                let block_size = self.run.volume.geometry.block_size();
                let built = extent::build(extents, block_size, &mut |bytes| {
                    let block = self.take(&mut old).ok_or(())?;
                    writes.push((block, bytes));
                    Ok::<_, ()>(block)
                });
                built.ok()
            }
            false => self.pointers(&mut old, &extents, &mut writes),
        };
        let Some(field) = field else { return false };
        let seed = self.seed(ino, &record).filter(|_| record.flags.contains(InodeFlags::EXTENTS));
        for (block, mut bytes) in writes {
            if let Some(seed) = seed {
                extent::seal(&mut bytes, seed);
            }
            self.write_block(block, &bytes);
        }
        if let Some(place) = bytes.get_mut(BLOCK..BLOCK_END) {
            place.copy_from_slice(&field);
        }
        true
    }

    /// Returns a block for a node of the new mapping: a node block of the old mapping, or else a
    /// newly allocated one.
    fn take(&mut self, old: &mut Vec<Block>) -> Option<Block> {
        old.pop().or_else(|| self.allocate())
    }

    fn pointers(
        &mut self,
        old: &mut Vec<Block>,
        extents: &[Extent],
        writes: &mut Vec<(Block, Vec<u8>)>,
    ) -> Option<[u8; 60]> {
        let mut field = [0; 60];
        for n in 0..DIRECT {
            put32(&mut field, n as usize * 4, data_at(extents, n));
        }
        let per_block = self.run.volume.block_bytes() as u64 / 4;
        let (mut from, mut covered) = (u64::from(DIRECT), per_block);
        for n in 12..15 {
            let pointer = self.pointer_tree(old, extents, from, covered, writes)?;
            put32(&mut field, n * 4, pointer);
            from += covered;
            covered *= per_block;
        }
        Some(field)
    }

    /// Adds to `writes` the tree of pointers that maps `covered` blocks of the file from block
    /// `from` on. Returns the block of the tree's root, or 0 if the file has only a hole there;
    /// `None` if there is no space.
    fn pointer_tree(
        &mut self,
        old: &mut Vec<Block>,
        extents: &[Extent],
        from: u64,
        covered: u64,
        writes: &mut Vec<(Block, Vec<u8>)>,
    ) -> Option<u32> {
        let first = extents.partition_point(|extent| u64::from(extent.end()) <= from);
        let extents = extents.get(first..).unwrap_or_default();
        let within = |extent: &Extent| u64::from(extent.start.0) < from + covered;
        if !extents.first().is_some_and(within) {
            return Some(0);
        }
        if covered == 1 {
            return Some(u32::try_from(from).map_or(0, |at| data_at(extents, at)));
        }
        let block = self.take(old)?;
        let mut bytes = vec![0; self.run.volume.block_bytes()];
        let per_block = bytes.len() as u64 / 4;
        let each = covered / per_block;
        for n in 0..per_block {
            let below = self.pointer_tree(old, extents, from + n * each, each, writes)?;
            put32(&mut bytes, n as usize * 4, below);
        }
        writes.push((block, bytes));
        Some(block.0 as u32)
    }
}

/// Returns the physical block of block `at` of the file, or 0 for a hole.
fn data_at(extents: &[Extent], at: u32) -> u32 {
    let after = extents.partition_point(|extent| extent.start.0 <= at);
    let found = after.checked_sub(1).and_then(|n| extents.get(n));
    let found = found.filter(|extent| at < extent.end());
    found.map_or(0, |extent| (extent.block.0 + u64::from(at - extent.start.0)) as u32)
}
