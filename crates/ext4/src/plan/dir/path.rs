//! Descends from the root of an index to a leaf, and advances to the next leaf.

use super::{DirBlocks, DirContext};
use crate::error::Error;
use lanefs_ondisk::FileBlock;
use lanefs_ondisk::hash::NameHasher;
use lanefs_ondisk::htree::{self, Cause, IndexEntry, Kind};
use std::sync::Arc;

/// The root of an index, decoded.
pub(super) struct Index<'a> {
    cx: &'a DirContext,
    blocks: &'a dyn DirBlocks,
    root: Arc<[u8]>,
    /// Levels of nodes below the root.
    pub(super) levels: u8,
    /// The hash function for this directory's names.
    pub(super) hasher: NameHasher,
}

/// One index block of a path, and the chosen entry.
#[derive(Clone)]
pub(super) struct Frame {
    pub(super) block: FileBlock,
    pub(super) bytes: Arc<[u8]>,
    pub(super) at: usize,
}

/// The path to a leaf: frames from the root down, at least one.
#[derive(Clone)]
pub(super) struct Path<'a> {
    cx: &'a DirContext,
    blocks: &'a dyn DirBlocks,
    frames: Vec<Frame>,
    leaf: FileBlock,
    /// Number of leaves passed. Unless the index is damaged, it stays below the directory's number
    /// of blocks.
    steps: u32,
}

/// The range of hashes in a leaf.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bounds {
    /// The lowest hash of the range. The low bit means the same as in [`IndexEntry::hash`].
    pub(super) low: u32,
    /// The first hash of the next leaf, if there is one. The low bit means the same as in
    /// [`IndexEntry::hash`].
    pub(super) next: Option<u32>,
}

impl Bounds {
    /// Returns whether a name with this hash, which is even, may be in the leaf.
    pub(super) fn contain(&self, hash: u32) -> bool {
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
    pub(super) fn open(cx: &'a DirContext, blocks: &'a dyn DirBlocks) -> Result<Index<'a>, Error> {
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
    pub(super) fn descend(&self, hash: u32) -> Result<Path<'a>, Error> {
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
    /// Returns the leaf at the end of the path.
    pub(super) fn leaf(&self) -> FileBlock {
        self.leaf
    }

    /// Returns the frames, root first.
    pub(super) fn into_frames(self) -> Vec<Frame> {
        self.frames
    }

    /// Returns the range of hashes in the leaf.
    pub(super) fn bounds(&self) -> Result<Bounds, Error> {
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
    pub(super) fn advance_within(&mut self, hash: u32) -> Result<bool, Error> {
        match self.bounds()?.next {
            Some(next) if next == hash | 1 => self.advance(),
            _ => Ok(false),
        }
    }

    /// Advances to the next leaf; returns false at the last leaf.
    pub(super) fn advance(&mut self) -> Result<bool, Error> {
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
pub(super) fn kind_at(depth: usize) -> Kind {
    if depth == 0 { Kind::Root } else { Kind::Node }
}

/// Decodes the entries of a frame.
pub(super) fn frame_index<'f>(
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
