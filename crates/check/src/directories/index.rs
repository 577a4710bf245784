//! Checks the index of a directory: its levels, and the range of hashes of each leaf.

use super::directory::Directory;
use crate::fault::Fault;
use crate::mapping::Runs;
use crate::place::Place;
use lanefs_ondisk::FileBlock;
use lanefs_ondisk::hash::{MAX_MAJOR, NameHasher};
use lanefs_ondisk::htree::{self, Cause, Index, IndexEntry, Kind};
use lanefs_ondisk::inode::InodeFlags;
use std::collections::HashMap;
use std::ops::RangeInclusive;

/// The blocks of an index, and the leaves to which the index refers.
pub(super) struct Tree {
    blocks: HashMap<FileBlock, Role>,
    /// `None` if the checker cannot compute the hashes of the directory's names, or if the root is
    /// damaged.
    hasher: Option<NameHasher>,
    is_damaged: bool,
}

#[derive(Debug, Clone)]
enum Role {
    Root,
    Node,
    Leaf(RangeInclusive<u32>),
}

/// A leaf with the range of its hashes.
pub(super) struct Leaf {
    pub(super) hasher: NameHasher,
    pub(super) block: FileBlock,
    pub(super) least: u32,
    pub(super) most: u32,
}

/// The part of an index below one block.
struct Branch {
    /// Levels of nodes between the block and the leaves.
    levels: u8,
    range: RangeInclusive<u32>,
}

impl Tree {
    /// Reads all blocks of an index, each of them once, and reports their faults.
    pub(super) fn read(directory: &Directory<'_>, runs: &Runs, blocks: u32) -> Tree {
        let mut tree = Tree { blocks: HashMap::new(), hasher: None, is_damaged: false };
        tree.blocks.insert(FileBlock(0), Role::Root);
        let bytes = runs.block(FileBlock(0)).map(|at| directory.run.volume.read_block(at));
        let Some(Ok(bytes)) = bytes else {
            tree.is_damaged = true;
            return tree;
        };
        match htree::root(&directory.format, &bytes) {
            Ok(root) => {
                // In an encrypted directory that ignores case, the hashes are computed from the
                // plain-text names, so they cannot be checked without the key.
                let keyed = InodeFlags::CASEFOLD | InodeFlags::ENCRYPT;
                if directory.record.flags.contains(keyed) {
                    directory.run.report.unchecked("hashes of encrypted names that ignore case");
                } else {
                    let volume = &directory.run.volume;
                    tree.hasher =
                        Some(volume.superblock().hasher(root.version, directory.folding()));
                }
                let branch = Branch { levels: root.levels, range: 0..=MAX_MAJOR };
                tree.walk(directory, runs, blocks, FileBlock(0), &root.index, branch);
            }
            Err(cause) => tree.fault(directory, FileBlock(0), cause),
        }
        tree
    }

    fn fault(&mut self, directory: &Directory<'_>, block: FileBlock, cause: Cause) {
        self.is_damaged = true;
        directory.run.add(Place::Index { ino: directory.ino, block }, Fault::Index(cause));
    }

    fn walk(
        &mut self,
        directory: &Directory<'_>,
        runs: &Runs,
        blocks: u32,
        block: FileBlock,
        index: &Index<'_>,
        branch: Branch,
    ) {
        let entries: Vec<IndexEntry> = index.iter().collect();
        let mut before = 0;
        for (n, entry) in entries.iter().enumerate() {
            if entry.hash < before {
                self.fault(directory, block, Cause::Order { entry: n });
            }
            before = entry.hash;
            if entry.block.0 >= blocks {
                let child = entry.block;
                self.fault(directory, block, Cause::Child { entry: n, child, blocks });
                continue;
            }
            let least = if n == 0 { *branch.range.start() } else { entry.hash & !1 };
            let next = entries.get(n + 1).map(|next| next.hash & !1);
            let range = least..=next.unwrap_or(*branch.range.end());
            if self.blocks.contains_key(&entry.block) {
                self.is_damaged = true;
                let place = Place::Directory { ino: directory.ino, block: entry.block };
                directory.run.add(place, Fault::NotInIndex);
                continue;
            }
            match branch.levels.checked_sub(1) {
                None => {
                    self.blocks.insert(entry.block, Role::Leaf(range));
                }
                Some(levels) => {
                    self.blocks.insert(entry.block, Role::Node);
                    self.node(directory, runs, blocks, entry.block, Branch { levels, range });
                }
            }
        }
    }

    fn node(
        &mut self,
        directory: &Directory<'_>,
        runs: &Runs,
        blocks: u32,
        block: FileBlock,
        branch: Branch,
    ) {
        let bytes = runs.block(block).map(|at| directory.run.volume.read_block(at));
        let Some(Ok(bytes)) = bytes else {
            self.is_damaged = true;
            return;
        };
        match htree::node(&directory.format, &bytes) {
            Ok(index) => self.walk(directory, runs, blocks, block, &index, branch),
            Err(cause) => self.fault(directory, block, cause),
        }
    }

    /// Returns the kind of a block of the index itself.
    pub(super) fn index_kind(&self, block: FileBlock) -> Option<Kind> {
        match self.blocks.get(&block)? {
            Role::Root => Some(Kind::Root),
            Role::Node => Some(Kind::Node),
            Role::Leaf(_) => None,
        }
    }

    /// Returns the range of hashes of a leaf. If no index entry refers to the block, reports that
    /// as a fault.
    pub(super) fn leaf(&self, directory: &Directory<'_>, block: FileBlock) -> Option<Leaf> {
        let Some(Role::Leaf(range)) = self.blocks.get(&block) else {
            if !self.is_damaged {
                let place = Place::Directory { ino: directory.ino, block };
                directory.run.add(place, Fault::NotInIndex);
            }
            return None;
        };
        let (least, most) = (*range.start(), *range.end());
        Some(Leaf { hasher: self.hasher?, block, least, most })
    }
}
