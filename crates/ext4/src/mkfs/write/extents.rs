//! The extent tree of a new file.

use super::BlockWriter;
use super::format::Format;
use crate::mkfs::MkfsError;
use lanefs_ondisk::extent::{self, Entries, Extent, Index, Node};
use lanefs_ondisk::{Block, FileBlock, Ino};

/// The number of entries that fit into the root, which is in the inode.
const ROOT_ENTRIES: usize = 4;

/// The root of a tree, and the number of blocks that the tree takes.
pub(super) struct Root {
    pub(super) bytes: [u8; 60],
    pub(super) nodes: u64,
}

/// Writes the nodes of an extent tree for these extents, leaves first.
pub(super) fn write_tree(
    out: &mut BlockWriter<'_>,
    format: &Format,
    ino: Ino,
    extents: &[Extent],
    claim: &mut dyn FnMut() -> Result<u64, MkfsError>,
) -> Result<Root, MkfsError> {
    let block_size = format.block_size.bytes();
    // Four bytes are left for the checksum, which is behind the last possible entry.
    let max = extent::capacity(block_size - 4);
    let mut nodes = 0;
    let mut depth = 0;
    let mut level = Entries::Leaf(extents.to_vec());
    while level.len() > ROOT_ENTRIES {
        let mut above = Vec::new();
        for (start, entries) in pieces(&level, max.into()) {
            let mut bytes = vec![0; block_size];
            Node { depth, max, generation: 0, entries }.encode_into(&mut bytes);
            if let Some(seed) = format.seed_of(ino) {
                extent::seal(&mut bytes, seed);
            }
            let place = claim()?;
            out.write(place, &bytes)?;
            above.push(Index { start, child: Block(place) });
            nodes += 1;
        }
        level = Entries::Index(above);
        depth += 1;
    }
    let mut bytes = [0; 60];
    let root = Node { depth, max: ROOT_ENTRIES as u16, generation: 0, entries: level };
    root.encode_into(&mut bytes);
    Ok(Root { bytes, nodes })
}

/// Divides the entries of a level into nodes. Each node comes with the first file block that it
/// maps.
fn pieces(level: &Entries, most: usize) -> Vec<(FileBlock, Entries)> {
    match level {
        Entries::Leaf(extents) => extents
            .chunks(most)
            .map(|piece| {
                let start = piece.first().map_or(FileBlock(0), |first| first.start);
                (start, Entries::Leaf(piece.to_vec()))
            })
            .collect(),
        Entries::Index(children) => children
            .chunks(most)
            .map(|piece| {
                let start = piece.first().map_or(FileBlock(0), |first| first.start);
                (start, Entries::Index(piece.to_vec()))
            })
            .collect(),
    }
}
