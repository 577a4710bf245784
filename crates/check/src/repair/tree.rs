//! Rewrites the mapping of a file, as an extent tree or as block pointers.

use super::inode_offsets::{BLOCK, BLOCK_END};
use super::mender::{Mender, put32};
use super::salvage::Salvaged;
use crate::record::Record;
use lanefs_ondisk::extent::{self, Entries, Extent, Index, Node};
use lanefs_ondisk::inode::InodeFlags;
use lanefs_ondisk::{Block, FileBlock, Ino};

/// The number of entries in a root, which is in the inode.
const ROOT_ENTRIES: usize = 4;
/// The size in bytes of the checksum that follows the entries of a node.
const TAIL: usize = 4;
const DIRECT: u32 = 12;

/// The blocks for the nodes of the new mapping: first the node blocks of the old mapping, then
/// newly allocated ones.
struct Supply {
    old: Vec<Block>,
    is_short: bool,
}

impl Supply {
    fn take(&mut self, mender: &mut Mender<'_>) -> Block {
        let found = self.old.pop().or_else(|| mender.allocate());
        self.is_short |= found.is_none();
        found.unwrap_or_default()
    }
}

impl Mender<'_> {
    /// Writes a mapping that consists of the extents in `salvaged`, and sets the block field of the
    /// inode in `bytes`. Returns false, and changes nothing, if there is no space for the nodes.
    pub fn rebuild(&mut self, ino: Ino, bytes: &mut [u8], salvaged: Salvaged) -> bool {
        let record = Record::decode(bytes);
        let mut supply = Supply { old: salvaged.nodes, is_short: false };
        let mut writes = Vec::new();
        let field = match record.flags.contains(InodeFlags::EXTENTS) {
            true => self.extent_tree(&mut supply, salvaged.extents, &mut writes),
            false => self.pointers(&mut supply, &salvaged.extents, &mut writes),
        };
        if supply.is_short {
            return false;
        }
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

    fn extent_tree(
        &mut self,
        supply: &mut Supply,
        extents: Vec<Extent>,
        writes: &mut Vec<(Block, Vec<u8>)>,
    ) -> [u8; 60] {
        let size = self.run.volume.block_bytes();
        let max = extent::capacity(size - TAIL);
        let mut entries = Entries::Leaf(extents);
        let mut depth = 0;
        while entries.len() > ROOT_ENTRIES {
            let mut index = Vec::new();
            for (start, part) in parts(&entries, max.into()) {
                let block = supply.take(self);
                let mut bytes = vec![0; size];
                Node { depth, max, generation: 0, entries: part }.encode_into(&mut bytes);
                writes.push((block, bytes));
                index.push(Index { start, child: block });
            }
            (entries, depth) = (Entries::Index(index), depth + 1);
        }
        let mut field = [0; 60];
        let max = extent::capacity(field.len());
        Node { depth, max, generation: 0, entries }.encode_into(&mut field);
        field
    }

    fn pointers(
        &mut self,
        supply: &mut Supply,
        extents: &[Extent],
        writes: &mut Vec<(Block, Vec<u8>)>,
    ) -> [u8; 60] {
        let mut field = [0; 60];
        for n in 0..DIRECT {
            put32(&mut field, n as usize * 4, data_at(extents, n));
        }
        let per_block = self.run.volume.block_bytes() as u64 / 4;
        let (mut from, mut covered) = (u64::from(DIRECT), per_block);
        for n in 12..15 {
            let pointer = self.pointer_tree(supply, extents, from, covered, writes);
            put32(&mut field, n * 4, pointer);
            from += covered;
            covered *= per_block;
        }
        field
    }

    /// Adds to `writes` the tree of pointers that maps `covered` blocks of the file from block
    /// `from` on. Returns the block of the tree's root, or 0 if the file has only a hole there.
    fn pointer_tree(
        &mut self,
        supply: &mut Supply,
        extents: &[Extent],
        from: u64,
        covered: u64,
        writes: &mut Vec<(Block, Vec<u8>)>,
    ) -> u32 {
        let first = extents.partition_point(|extent| u64::from(extent.end()) <= from);
        let extents = extents.get(first..).unwrap_or_default();
        let within = |extent: &Extent| u64::from(extent.start.0) < from + covered;
        if !extents.first().is_some_and(within) {
            return 0;
        }
        if covered == 1 {
            return u32::try_from(from).map_or(0, |at| data_at(extents, at));
        }
        let block = supply.take(self);
        let mut bytes = vec![0; self.run.volume.block_bytes()];
        let per_block = bytes.len() as u64 / 4;
        let each = covered / per_block;
        for n in 0..per_block {
            let below = self.pointer_tree(supply, extents, from + n * each, each, writes);
            put32(&mut bytes, n as usize * 4, below);
        }
        writes.push((block, bytes));
        block.0 as u32
    }
}

/// Returns the physical block of block `at` of the file, or 0 for a hole.
fn data_at(extents: &[Extent], at: u32) -> u32 {
    let after = extents.partition_point(|extent| extent.start.0 <= at);
    let found = after.checked_sub(1).and_then(|n| extents.get(n));
    let found = found.filter(|extent| at < extent.end());
    found.map_or(0, |extent| (extent.block.0 + u64::from(at - extent.start.0)) as u32)
}

/// Divides entries into nodes of at most `max` entries. Returns each node with the file block at
/// which its first entry starts.
fn parts(entries: &Entries, max: usize) -> Vec<(FileBlock, Entries)> {
    let max = max.max(1);
    match entries {
        Entries::Leaf(extents) => extents
            .chunks(max)
            .filter_map(|part| Some((part.first()?.start, Entries::Leaf(part.to_vec()))))
            .collect(),
        Entries::Index(children) => children
            .chunks(max)
            .filter_map(|part| Some((part.first()?.start, Entries::Index(part.to_vec()))))
            .collect(),
    }
}
