//! Extent trees.

use super::sink::Sink;
use crate::fault::Fault;
use crate::place::Place;
use crate::record::Record;
use crate::volume::Volume;
use lanefs_ondisk::extent::{
    self, Cause, END, Entries, Expected, MAX_DEPTH, Node, NodePosition, ROOT_BYTES,
};
use lanefs_ondisk::{Block, FileBlock, Ino};
use std::ops::Range;

/// The stored capacity of a node may be up to this many entries smaller than the capacity of the
/// node's block. e2fsck accepts a capacity that leaves space for the checksum, even in file systems
/// without checksums.
const SPARE_ENTRIES: u16 = 2;

struct Walk<'a> {
    volume: &'a Volume,
    ino: Ino,
    generation: u32,
    sink: &'a mut dyn Sink,
}

pub(super) fn walk(volume: &Volume, ino: Ino, record: &Record, sink: &mut dyn Sink) {
    let mut walk = Walk { volume, ino, generation: record.generation, sink };
    walk.node(None, &record.block, NodePosition::Root, 0..END);
}

impl Walk<'_> {
    /// Visits a node. The walk cannot be endless, because the ranges of nodes on one level do not
    /// overlap, and the depth stored in the root limits the number of levels.
    fn node(
        &mut self,
        block: Option<Block>,
        bytes: &[u8],
        position: NodePosition,
        range: Range<u32>,
    ) {
        let from = FileBlock(range.start);
        let geometry = &self.volume.geometry;
        let first = geometry.first_data_block().0.max(1);
        let space = first..geometry.block_count();
        let expected = Expected { position, range: range.clone(), space };
        let node = Node::decode(bytes, &expected).and_then(|node| check_room(node, bytes.len()));
        let node = match node {
            Ok(node) => node,
            Err(cause) => return self.fault(block, cause, from),
        };
        if let (Some(_), Some(seed)) = (block, self.volume.checksums.seed())
            && let Err(cause) = extent::verify(bytes, seed.of_inode(self.ino, self.generation))
        {
            self.fault(block, cause, from);
        }
        match node.entries {
            Entries::Leaf(extents) => extents.into_iter().for_each(|e| self.sink.data(e)),
            Entries::Index(children) => {
                let ends = children.iter().skip(1).map(|next| next.start.0).chain([range.end]);
                for (child, end) in children.iter().zip(ends) {
                    self.child(child.child, node.depth, child.start.0..end);
                }
            }
        }
    }

    fn child(&mut self, block: Block, depth: u16, range: Range<u32>) {
        self.sink.meta(block);
        let Some(depth) = depth.checked_sub(1).filter(|depth| *depth < MAX_DEPTH) else { return };
        match self.volume.read_block(block) {
            Ok(bytes) => self.node(Some(block), &bytes, NodePosition::Depth(depth), range),
            Err(_) => {
                let place = Place::Node { ino: self.ino, block: Some(block) };
                self.sink.fault(place, Fault::Unreadable);
            }
        }
    }

    fn fault(&mut self, block: Option<Block>, cause: Cause, from: FileBlock) {
        self.sink.fault(Place::Node { ino: self.ino, block }, Fault::Extent { cause, from });
    }
}

fn check_room(node: Node, bytes: usize) -> Result<Node, Cause> {
    let fits = extent::capacity(bytes);
    let least = fits.saturating_sub(SPARE_ENTRIES);
    if node.max < least {
        return Err(Cause::Max { max: node.max, fits });
    }
    Ok(node)
}

const _: () = assert!(ROOT_BYTES == 60);
