//! The way from the root of an index to a leaf, and on to the next leaf.

use super::{DirBlocks, DirContext};
use crate::error::Error;
use lanefs_ondisk::FileBlock;
use lanefs_ondisk::hash::NameHasher;
use lanefs_ondisk::htree::{self, Cause, IndexEntry, Kind};
use std::sync::Arc;

/// The root of an index, opened.
pub(super) struct Index<'a> {
    cx: &'a DirContext,
    blocks: &'a dyn DirBlocks,
    root: Arc<[u8]>,
    /// Levels of nodes below the root.
    pub(super) levels: u8,
    /// How this directory hashes names.
    pub(super) hasher: NameHasher,
}

/// One index block on the way, and the entry taken in it.
#[derive(Clone)]
pub(super) struct Frame {
    pub(super) block: FileBlock,
    pub(super) bytes: Arc<[u8]>,
    pub(super) at: usize,
}

/// The way to a leaf: frames from the root down, at least one.
#[derive(Clone)]
pub(super) struct Path<'a> {
    cx: &'a DirContext,
    blocks: &'a dyn DirBlocks,
    frames: Vec<Frame>,
    leaf: FileBlock,
    /// Leaves come by, of which a sound index has less than the directory has blocks.
    steps: u32,
}

/// The hashes of a leaf's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bounds {
    /// The lowest; the low bit as in [`IndexEntry::hash`].
    pub(super) low: u32,
    /// Where the next leaf begins, if there is one; the low bit as in [`IndexEntry::hash`].
    pub(super) next: Option<u32>,
}

impl Bounds {
    /// True if a name of this (even) hash may be in the leaf.
    pub(super) fn contain(&self, hash: u32) -> bool {
        let below = match self.next {
            Some(next) => hash < next, // an odd bound is above its own even hash, which continues
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

    /// The way to the first leaf that may have a name of this hash.
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
    /// The leaf it leads to.
    pub(super) fn leaf(&self) -> FileBlock {
        self.leaf
    }

    /// The frames, root first.
    pub(super) fn into_frames(self) -> Vec<Frame> {
        self.frames
    }

    /// The hashes that belong into the leaf.
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

    /// Goes on to the next leaf if that one continues the names of `hash`.
    pub(super) fn advance_within(&mut self, hash: u32) -> Result<bool, Error> {
        match self.bounds()?.next {
            Some(next) if next == hash | 1 => self.advance(),
            _ => Ok(false),
        }
    }

    /// Goes on to the next leaf; false at the last.
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

    /// Takes the entry for `hash` in the last frame, and returns its child.
    fn choose(&mut self, hash: u32) -> Result<FileBlock, Error> {
        let depth = self.frames.len() - 1;
        if let Some(frame) = self.frames.last_mut() {
            frame.at = frame_index(self.cx, depth, frame)?.search(hash);
        }
        self.child()
    }

    /// The child that the last frame's entry leads to.
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

/// Which kind of index block is at this depth.
pub(super) fn kind_at(depth: usize) -> Kind {
    if depth == 0 { Kind::Root } else { Kind::Node }
}

/// The entries of a frame.
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
