//! Adds an entry.

use super::path::{Frame, Index, Path, frame_index, kind_at};
use super::plan::Growth;
use super::split::{self, Leaf};
use super::{DirBlocks, DirContext, Indexing, Plan, convert, leaf};
use crate::error::{Error, InvalidArgument};
use lanefs_ondisk::dirent::{self, Name, Packed};
use lanefs_ondisk::htree::{self, Cause, IndexEntry};
use lanefs_ondisk::{FileBlock, FileType, Ino};
use std::sync::Arc;

/// Plans the addition of an entry. The caller has checked with [`super::find`] that the name does
/// not exist.
///
/// # Errors
/// [`Error::NoSpace`] if the directory has reached its largest size, [`Error::InvalidArgument`] for
/// "." and "..", a corruption error that names the block, and the errors of `blocks`.
pub fn plan_insert(
    cx: &DirContext,
    blocks: &dyn DirBlocks,
    name: Name<'_>,
    ino: Ino,
    file_type: FileType,
) -> Result<Plan, Error> {
    if matches!(name.bytes(), b"." | b"..") {
        return Err(InvalidArgument::DotName.into());
    }
    let new = Packed { ino, file_type: Some(file_type), name };
    match cx.indexing {
        Indexing::Indexed => insert_indexed(cx, blocks, &new),
        Indexing::Never | Indexing::Possible => insert_linear(cx, blocks, &new),
    }
}

fn insert_linear(cx: &DirContext, blocks: &dyn DirBlocks, new: &Packed<'_>) -> Result<Plan, Error> {
    for n in (0..blocks.count()).map(FileBlock) {
        if let Some(plan) = insert_into(cx, blocks, n, new)? {
            return Ok(plan);
        }
    }
    if cx.indexing == Indexing::Possible && blocks.count() == 1 {
        return convert::to_indexed(cx, blocks, new);
    }
    let mut growth = Growth::new(cx, blocks);
    growth.push(dirent::pack(&cx.format, &[*new]).ok_or(Error::NameTooLong)?)?;
    Ok(Plan { appended: growth.into_appended(), ..Plan::default() })
}

/// Adds the entry to the slack of block `n`, if there is enough slack.
fn insert_into(
    cx: &DirContext,
    blocks: &dyn DirBlocks,
    n: FileBlock,
    new: &Packed<'_>,
) -> Result<Option<Plan>, Error> {
    let mut block = blocks.block(n)?;
    let room = dirent::find_room(&cx.format, &block, new).map_err(|cause| cx.damaged(n, cause))?;
    let Some(room) = room else { return Ok(None) };
    dirent::insert_at(&cx.format, Arc::make_mut(&mut block), room, new);
    Ok(Some(Plan::update(n, block)))
}

fn insert_indexed(
    cx: &DirContext,
    blocks: &dyn DirBlocks,
    new: &Packed<'_>,
) -> Result<Plan, Error> {
    let index = Index::open(cx, blocks)?;
    let hash = index.hasher.hash(new.name.bytes()).major;
    let first = index.descend(hash)?;
    let mut path = first.clone();
    loop {
        if let Some(plan) = insert_into(cx, blocks, path.leaf(), new)? {
            return Ok(plan);
        }
        if !path.advance_within(hash)? {
            break;
        }
    }
    split_leaf(cx, blocks, &index, first, new)
}

/// Splits the full leaf at the end of `path` into two, and adds the new entry to one of them.
fn split_leaf(
    cx: &DirContext,
    blocks: &dyn DirBlocks,
    index: &Index<'_>,
    path: Path<'_>,
    new: &Packed<'_>,
) -> Result<Plan, Error> {
    let n = path.leaf();
    let bounds = path.bounds()?;
    let block = blocks.block(n)?;
    let mut entries = vec![(index.hasher.hash(new.name.bytes()).major, *new)];
    leaf::for_each(cx, n, &block, |entry| {
        let hash = index.hasher.hash(entry.name).major;
        if !bounds.contain(hash) {
            return Err(cx.bad_index(
                FileBlock(0),
                Cause::HashRange { leaf: n, offset: entry.offset, hash },
            ));
        }
        entries.extend(Packed::from_entry(entry).map(|packed| (hash, packed)));
        Ok(())
    })?;
    let (left, right) = split::leaves(cx, entries).ok_or(Error::NoSpace)?;
    let mut plan = Plan::update(n, left.into());
    let Some(Leaf { low, block }) = right else { return Ok(plan) };
    let mut growth = Growth::new(cx, blocks);
    let child = growth.push(block)?;
    let mut tree =
        Tree { cx, frames: path.into_frames(), levels: index.levels, changed: [false; 4], growth };
    let bottom = tree.frames.len() - 1;
    tree.insert(bottom, IndexEntry { hash: low, block: child })?;
    let changed = tree.frames.into_iter().zip(tree.changed).filter(|(_, changed)| *changed);
    plan.updates.extend(changed.map(|(frame, _)| (frame.block, frame.bytes)));
    plan.appended = tree.growth.into_appended();
    Ok(plan)
}

/// The index blocks on the path from the root to a leaf, while an entry is added.
struct Tree<'a> {
    cx: &'a DirContext,
    frames: Vec<Frame>,
    levels: u8,
    /// For each frame, whether it is an existing block with new contents.
    changed: [bool; 4],
    growth: Growth,
}

impl Tree<'_> {
    /// Adds an entry after the entry that was chosen at `depth`. A full node is split, and this
    /// function calls itself for the parent. Below a full root a level is added, and this function
    /// calls itself for the new node.
    fn insert(&mut self, depth: usize, entry: IndexEntry) -> Result<(), Error> {
        let Some(frame) = self.frames.get(depth) else { return Err(Error::NoSpace) };
        let index = frame_index(self.cx, depth, frame)?;
        let mut entries: Vec<IndexEntry> = index.iter().collect();
        let at = frame.at;
        if !index.is_full() {
            entries.insert((at + 1).min(entries.len()), entry);
            return self.write(depth, &entries);
        }
        if depth == 0 {
            return self.add_level(&entries, at, entry);
        }
        let upper = entries.split_off(entries.len() / 2);
        let middle = upper.first().map_or(0, |first| first.hash);
        let (mut lower, mut upper) = (entries, upper);
        match at.checked_sub(lower.len()) {
            Some(at) => upper.insert((at + 1).min(upper.len()), entry),
            None => lower.insert(at + 1, entry),
        }
        self.write(depth, &lower)?;
        let node = htree::new_node(&self.cx.format, &upper).ok_or(Error::NoSpace)?;
        let block = self.growth.push(node)?;
        self.insert(depth - 1, IndexEntry { hash: middle, block })
    }

    /// Moves the root's entries into a new node, which has room for a few more entries than the
    /// root.
    fn add_level(
        &mut self,
        entries: &[IndexEntry],
        at: usize,
        entry: IndexEntry,
    ) -> Result<(), Error> {
        if self.levels >= htree::max_levels(&self.cx.format) {
            return Err(Error::NoSpace);
        }
        let mut entries = entries.to_vec();
        entries.insert((at + 1).min(entries.len()), entry);
        let node = htree::new_node(&self.cx.format, &entries).ok_or(Error::NoSpace)?;
        let block = self.growth.push(node)?;
        let Some(frame) = self.frames.first_mut() else { return Err(Error::NoSpace) };
        let root = htree::root(&self.cx.format, &frame.bytes)
            .map_err(|cause| self.cx.bad_index(FileBlock(0), cause))?;
        let only = [IndexEntry { hash: 0, block }];
        let bytes = htree::new_root(
            &self.cx.format,
            root.ino,
            root.parent,
            root.version,
            self.levels + 1,
            &only,
        );
        frame.bytes = bytes.ok_or(Error::NoSpace)?.into();
        self.changed[0] = true;
        Ok(())
    }

    fn write(&mut self, depth: usize, entries: &[IndexEntry]) -> Result<(), Error> {
        let Some(frame) = self.frames.get_mut(depth) else { return Err(Error::NoSpace) };
        let bytes = Arc::make_mut(&mut frame.bytes);
        if !htree::write_entries(&self.cx.format, kind_at(depth), bytes, entries) {
            return Err(Error::NoSpace);
        }
        if let Some(changed) = self.changed.get_mut(depth) {
            *changed = true;
        }
        Ok(())
    }
}
