//! Descends from the root of an index to a leaf, and advances to the next leaf.

use crate::dir::{DirBlocks, DirContext};
use crate::error::Error;
use lanefs_ondisk::dirent::Name;
use lanefs_ondisk::hash::NameHasher;
use lanefs_ondisk::htree::{Cause, IndexEntry, Kind};
use lanefs_ondisk::{FileBlock, htree};
use std::sync::Arc;

/// The root of an index, decoded.
pub(crate) struct Index<'a> {
    cx: &'a DirContext,
    blocks: &'a dyn DirBlocks,
    root: Arc<[u8]>,
    /// Levels of nodes below the root.
    pub(crate) levels: u8,
    /// The hash function for this directory's names.
    pub(crate) hasher: NameHasher,
}

/// One index block of a path, and the chosen entry.
#[derive(Clone)]
pub(crate) struct Frame {
    pub(crate) block: FileBlock,
    pub(crate) bytes: Arc<[u8]>,
    pub(crate) at: usize,
}

/// The path to a leaf: frames from the root down, at least one.
#[derive(Clone)]
pub(crate) struct Path<'a> {
    cx: &'a DirContext,
    blocks: &'a dyn DirBlocks,
    pub(crate) frames: Vec<Frame>,
    pub(crate) leaf: FileBlock,
    /// Number of leaves passed. Unless the index is damaged, it stays below the directory's number
    /// of blocks.
    steps: u32,
}

/// The range of hashes in a leaf.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// The lowest hash of the range. The low bit means the same as in [`IndexEntry::hash`].
    pub(crate) low: u32,
    /// The first hash of the next leaf, if there is one. The low bit means the same as in
    /// [`IndexEntry::hash`].
    pub(crate) next: Option<u32>,
}

impl Bounds {
    /// Returns whether a name with this hash, which is even, may be in the leaf.
    pub(crate) fn contain(&self, hash: u32) -> bool {
        let below = match self.next {
            // If `next` is odd, both this leaf and the next leaf have names with the hash `next -
            // 1`.
            Some(next) => hash < next,
            None => true,
        };
        below && hash >= self.low & !1
    }
}

impl<'a> Index<'a> {
    /// Reads and checks the root.
    pub(crate) fn open(cx: &'a DirContext, blocks: &'a dyn DirBlocks) -> Result<Index<'a>, Error> {
        let first = FileBlock(0);
        if blocks.count() == 0 {
            return Err(cx.bad_index(first, Cause::NotRoot));
        }
        let bytes = blocks.block(first)?;
        let root = htree::root(&cx.format, &bytes).map_err(|cause| cx.bad_index(first, cause))?;
        let (levels, hasher) = (root.levels, NameHasher { version: root.version, ..cx.hasher });
        Ok(Index { cx, blocks, root: bytes, levels, hasher })
    }

    /// Returns the path to the first leaf that may have a name with this hash.
    pub(crate) fn descend(&self, hash: u32) -> Result<Path<'a>, Error> {
        let root = Frame { block: FileBlock(0), bytes: self.root.clone(), at: 0 };
        let mut path = Path {
            cx: self.cx,
            blocks: self.blocks,
            frames: vec![root],
            leaf: FileBlock(0),
            steps: 0,
        };
        for _ in 0..self.levels {
            let child = path.choose(hash)?;
            let bytes = self.blocks.block(child)?;
            path.frames.push(Frame { block: child, bytes, at: 0 });
        }
        path.leaf = path.choose(hash)?;
        Ok(path)
    }
}

impl<'a> Path<'a> {
    /// Returns the range of hashes in the leaf.
    pub(crate) fn bounds(&self) -> Result<Bounds, Error> {
        let mut low = None;
        let mut next = None;
        for depth in (0..self.frames.len()).rev() {
            let Some(frame) = self.frames.get(depth) else { break };
            if low.is_none() && frame.at > 0 {
                low = self.entry(depth, frame.at)?.map(|entry| entry.hash);
            }
            if next.is_none() {
                next = self.entry(depth, frame.at + 1)?.map(|entry| entry.hash);
            }
        }
        Ok(Bounds { low: low.unwrap_or(0), next })
    }

    /// Advances to the next leaf if names with the hash `hash` continue there.
    pub(crate) fn advance_within(&mut self, hash: u32) -> Result<bool, Error> {
        match self.bounds()?.next {
            Some(next) if next == hash | 1 => self.advance(),
            _ => Ok(false),
        }
    }

    /// Advances to the next leaf; returns false at the last leaf.
    pub(crate) fn advance(&mut self) -> Result<bool, Error> {
        let bounds = self.bounds()?;
        let Some(depth) = self.deepest_with_more()? else { return Ok(false) };
        self.steps += 1;
        if self.steps >= self.blocks.count() {
            return Err(self.cx.bad_index(FileBlock(0), Cause::TooManyLeaves));
        }
        let levels = self.frames.len();
        self.frames.truncate(depth + 1);
        if let Some(frame) = self.frames.last_mut() {
            frame.at += 1;
            if bounds.next.is_some_and(|next| next & !1 < bounds.low & !1) {
                return Err(self.cx.bad_index(frame.block, Cause::Order { entry: frame.at }));
            }
        }
        while self.frames.len() < levels {
            let child = self.child()?;
            let bytes = self.blocks.block(child)?;
            self.frames.push(Frame { block: child, bytes, at: 0 });
        }
        self.leaf = self.child()?;
        Ok(true)
    }

    fn deepest_with_more(&self) -> Result<Option<usize>, Error> {
        for depth in (0..self.frames.len()).rev() {
            let at = self.frames.get(depth).map_or(0, |frame| frame.at);
            if self.entry(depth, at + 1)?.is_some() {
                return Ok(Some(depth));
            }
        }
        Ok(None)
    }

    /// Chooses the entry for `hash` in the last frame, and returns its child.
    fn choose(&mut self, hash: u32) -> Result<FileBlock, Error> {
        let depth = self.frames.len() - 1;
        if let Some(frame) = self.frames.last_mut() {
            frame.at = frame_index(self.cx, depth, frame)?.search(hash);
        }
        self.child()
    }

    /// Returns the child of the last frame's entry.
    fn child(&self) -> Result<FileBlock, Error> {
        let depth = self.frames.len() - 1;
        let Some(frame) = self.frames.last() else { return Ok(FileBlock(0)) };
        let child = self.entry(depth, frame.at)?.map_or(FileBlock(0), |entry| entry.block);
        let blocks = self.blocks.count();
        let loops = self.frames.iter().any(|frame| frame.block == child);
        if loops || child.0 >= blocks {
            return Err(self
                .cx
                .bad_index(frame.block, Cause::Child { entry: frame.at, child, blocks }));
        }
        Ok(child)
    }

    fn entry(&self, depth: usize, position: usize) -> Result<Option<IndexEntry>, Error> {
        let Some(frame) = self.frames.get(depth) else { return Ok(None) };
        Ok(frame_index(self.cx, depth, frame)?.get(position))
    }
}

/// Returns the kind of index block at this depth.
pub(crate) fn kind_at(depth: usize) -> Kind {
    if depth == 0 { Kind::Root } else { Kind::Node }
}

/// Decodes the entries of a frame.
pub(crate) fn frame_index<'f>(
    cx: &DirContext,
    depth: usize,
    frame: &'f Frame,
) -> Result<htree::Index<'f>, Error> {
    let index = match kind_at(depth) {
        Kind::Root => htree::root(&cx.format, &frame.bytes).map(|root| root.index),
        Kind::Node => htree::node(&cx.format, &frame.bytes),
    };
    index.map_err(|cause| cx.bad_index(frame.block, cause))
}

// Finds the leaf of a name, for callers that read blocks without keeping them.

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
        debug_assert_eq!(kind_at(self.depth), Kind::Node);
        let at = self.child;
        let index = htree::node(&cx.format, block).map_err(|cause| cx.bad_index(at, cause))?;
        self.pass(cx, at, index)?;
        Ok(self)
    }

    /// Returns the leaf, unless names with the same hash are also in the next leaf.
    pub fn only_leaf(&self) -> Option<FileBlock> {
        (self.next != Some(self.hash | 1)).then_some(self.child)
    }

    fn pass(
        &mut self,
        cx: &DirContext,
        at: FileBlock,
        index: htree::Index<'_>,
    ) -> Result<(), Error> {
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
