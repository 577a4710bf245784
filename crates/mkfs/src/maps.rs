//! The block map of a new file without extents: twelve blocks in the inode, then trees of one, two
//! and three levels of pointer blocks.
//!
//! Source: ext4 disk layout documentation, "Direct/Indirect Block Addressing".

use lanefs_ondisk::extent::Extent;
use std::collections::HashMap;

/// Blocks that the inode itself points to.
const DIRECT: u64 = 12;
/// Pointers in the inode: twelve blocks, and the roots of the three trees.
const SLOTS: usize = 15;

/// A block map that is being filled.
pub(crate) struct BlockMap {
    /// The base-2 logarithm of the number of pointers in a block.
    bits: u32,
    root: [u32; SLOTS],
    /// The pointer blocks, in the order in which they were needed.
    nodes: Vec<Node>,
    /// Maps the position of each pointer block to the block's index in `nodes`.
    by_place: HashMap<u32, usize>,
}

struct Node {
    place: u64,
    pointers: Vec<u32>,
}

impl BlockMap {
    /// Creates the map of a file without blocks; blocks have `1 << block_bits` bytes.
    pub(crate) fn new(block_bits: u32) -> BlockMap {
        BlockMap {
            bits: block_bits - 2,
            root: [0; SLOTS],
            nodes: Vec::new(),
            by_place: HashMap::new(),
        }
    }

    /// Returns the largest number of blocks that a file can have.
    pub(crate) fn most_blocks(block_bits: u32) -> u64 {
        let bits = block_bits - 2;
        DIRECT + (1 << bits) + (1 << (2 * bits)) + (1 << (3 * bits))
    }

    /// Returns the slot in the inode, the number of pointer blocks between the slot and block `at`,
    /// and the index of block `at` among the blocks below the slot.
    fn way(&self, at: u64) -> (usize, u32, u64) {
        if at < DIRECT {
            return (at as usize, 0, 0);
        }
        let mut rest = at - DIRECT;
        let mut levels = 1;
        while levels < 3 && rest >= 1 << (levels * self.bits) {
            rest -= 1 << (levels * self.bits);
            levels += 1;
        }
        (DIRECT as usize + levels as usize - 1, levels, rest)
    }

    /// Returns the first file block after `at` that needs a further pointer block.
    pub(crate) fn next_node(&self, at: u64) -> u64 {
        match at.checked_sub(DIRECT) {
            None => DIRECT,
            Some(behind) => DIRECT + (((behind >> self.bits) + 1) << self.bits),
        }
    }

    /// Maps `len` file blocks, starting at `at`, to the blocks that start at `place`. `claim`
    /// returns the positions of new pointer blocks.
    pub(crate) fn set<E>(
        &mut self,
        at: u64,
        place: u64,
        len: u64,
        claim: &mut dyn FnMut() -> Result<u64, E>,
    ) -> Result<(), E> {
        let (mut at, mut place, end) = (at, place, at + len);
        while at < end {
            let here = self.next_node(at).min(end) - at;
            let (slot, levels, index) = self.way(at);
            let (mut node, mut slot) = (None, slot);
            for level in (0..levels).rev() {
                node = Some(self.descend(node, slot, claim)?);
                slot = (index >> (level * self.bits)) as usize & self.mask();
            }
            let pointers = self.pointers(node).iter_mut().skip(slot);
            for (pointer, place) in pointers.zip((place..).take(here as usize)) {
                *pointer = place as u32;
            }
            at += here;
            place += here;
        }
        Ok(())
    }

    fn mask(&self) -> usize {
        (1 << self.bits) - 1
    }

    fn pointers(&mut self, node: Option<usize>) -> &mut [u32] {
        match node {
            Some(node) => self.nodes.get_mut(node).map_or(&mut [], |node| &mut node.pointers),
            None => &mut self.root,
        }
    }

    /// Returns the pointer block in a slot, or adds a new one if the slot is empty.
    fn descend<E>(
        &mut self,
        from: Option<usize>,
        slot: usize,
        claim: &mut dyn FnMut() -> Result<u64, E>,
    ) -> Result<usize, E> {
        let known = self.pointers(from).get(slot).copied().unwrap_or(0);
        if known != 0 {
            return Ok(self.by_place.get(&known).copied().unwrap_or(0));
        }
        let place = claim()?;
        if let Some(pointer) = self.pointers(from).get_mut(slot) {
            *pointer = place as u32;
        }
        self.by_place.insert(place as u32, self.nodes.len());
        self.nodes.push(Node { place, pointers: vec![0; 1 << self.bits] });
        Ok(self.nodes.len() - 1)
    }

    /// Maps all blocks of the extents.
    pub(crate) fn fill<E>(
        &mut self,
        extents: &[Extent],
        claim: &mut dyn FnMut() -> Result<u64, E>,
    ) -> Result<(), E> {
        for extent in extents {
            self.set(extent.start.0.into(), extent.block.0, extent.len.into(), claim)?;
        }
        Ok(())
    }

    /// Returns the block field of the inode.
    pub(crate) fn block_field(&self) -> [u8; 60] {
        let mut field = [0; 60];
        for (bytes, pointer) in field.as_chunks_mut::<4>().0.iter_mut().zip(self.root) {
            *bytes = pointer.to_le_bytes();
        }
        field
    }

    /// Returns the pointer blocks with their positions.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = (u64, Vec<u8>)> {
        let bytes = |node: &Node| node.pointers.iter().flat_map(|p| p.to_le_bytes()).collect();
        self.nodes.iter().map(move |node| (node.place, bytes(node)))
    }

    /// Returns the number of pointer blocks.
    pub(crate) fn node_count(&self) -> u64 {
        self.nodes.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the block to which the map points for file block `at`.
    fn get(map: &BlockMap, at: u64) -> u32 {
        let (slot, levels, index) = map.way(at);
        let mut place = map.root[slot];
        for level in (0..levels).rev() {
            let node = map.nodes.iter().find(|node| node.place == u64::from(place)).unwrap();
            place = node.pointers[(index >> (level * map.bits)) as usize & map.mask()];
        }
        place
    }

    #[test]
    fn each_block_is_found_where_it_was_set() {
        let mut map = BlockMap::new(10);
        let mut next = 1_000_000;
        let mut claim = || {
            next += 1;
            Ok::<u64, ()>(next)
        };
        let edges = [0, 11, 12, 267, 268, 523, 524, 65803, 65804, 66059, 131_340, 16_843_019];
        for at in edges {
            map.set(at, at + 7, 1, &mut claim).unwrap();
        }
        for at in edges {
            assert_eq!(u64::from(get(&map, at)), at + 7);
        }
        assert_eq!(BlockMap::most_blocks(10), 16_843_020);
        assert_eq!([0, 11, 12, 267, 268].map(|at| map.next_node(at)), [12, 12, 268, 268, 524]);
    }
}
