//! Finds the leaf of a name, for callers that read blocks without keeping them.

use super::{DirContext, path};
use crate::error::Error;
use lanefs_ondisk::dirent::Name;
use lanefs_ondisk::hash::NameHasher;
use lanefs_ondisk::htree::{self, Cause, Index};
use lanefs_ondisk::{FileBlock, htree::Kind};

/// The largest number of index blocks above a leaf, including the root.
const DEEPEST: usize = 3;

/// A descent through an index: [`Descent::begin`] reads the root, then [`Descent::step`] reads the
/// node that [`Descent::node`] returns, until `node` returns `None`.
#[derive(Debug, Clone, Copy)]
pub struct Descent {
    hash: u32,
    /// Number of blocks of the directory.
    count: u32,
    /// The index blocks read so far; `depth` is their number.
    passed: [FileBlock; DEEPEST],
    depth: usize,
    /// Levels of nodes below the root.
    levels: usize,
    /// The child of the last block that was read.
    child: FileBlock,
    /// The lowest hash after the child's range, if it is known. Its low bit is set if names with
    /// the child's last hash continue in the next leaf.
    next: Option<u32>,
}

impl Descent {
    /// Starts the descent for `name` at the root of an index; the directory has `count` blocks.
    ///
    /// # Errors
    /// A corruption error that names the root.
    pub fn begin(
        cx: &DirContext,
        count: u32,
        block: &[u8],
        name: Name<'_>,
    ) -> Result<Descent, Error> {
        let first = FileBlock(0);
        let root = htree::root(&cx.format, block).map_err(|cause| cx.bad_index(first, cause))?;
        let hasher = NameHasher { version: root.version, ..cx.hasher };
        let mut descent = Descent {
            hash: hasher.hash(name.bytes()).major,
            count,
            passed: [first; DEEPEST],
            depth: 0,
            levels: usize::from(root.levels),
            child: first,
            next: None,
        };
        descent.pass(cx, first, root.index)?;
        Ok(descent)
    }

    /// Returns the node that must be read next; `None` if the leaf was found.
    pub fn node(&self) -> Option<FileBlock> {
        (self.depth <= self.levels).then_some(self.child)
    }

    /// Continues the descent with the contents of [`Descent::node`].
    ///
    /// # Errors
    /// A corruption error that names the block.
    pub fn step(mut self, cx: &DirContext, block: &[u8]) -> Result<Descent, Error> {
        debug_assert_eq!(path::kind_at(self.depth), Kind::Node);
        let at = self.child;
        let index = htree::node(&cx.format, block).map_err(|cause| cx.bad_index(at, cause))?;
        self.pass(cx, at, index)?;
        Ok(self)
    }

    /// Returns the leaf, unless names with the same hash are also in the next leaf.
    pub fn only_leaf(&self) -> Option<FileBlock> {
        (self.next != Some(self.hash | 1)).then_some(self.child)
    }

    fn pass(&mut self, cx: &DirContext, at: FileBlock, index: Index<'_>) -> Result<(), Error> {
        let entry = index.search(self.hash);
        let child = index.get(entry).map_or(FileBlock(0), |entry| entry.block);
        if let Some(passed) = self.passed.get_mut(self.depth) {
            *passed = at;
        }
        if child.0 >= self.count || self.passed.contains(&child) {
            return Err(cx.bad_index(at, Cause::Child { entry, child, blocks: self.count }));
        }
        self.depth += 1;
        self.child = child;
        // The range of a node's last child ends with the range of the node.
        self.next = index.get(entry + 1).map(|next| next.hash).or(self.next);
        Ok(())
    }
}
