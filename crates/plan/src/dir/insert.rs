//! Adds an entry.

use crate::dir::blocks::Growth;
use crate::dir::index::{Frame, Index, Path, frame_index, kind_at};
use crate::dir::{
    DirBlocks, DirContext, Indexing, Look, Plan, blocks::for_each_name, has_names, room_for,
};
use crate::error::Expected;
use crate::error::{Error, InvalidArgument};
use lanefs_ondisk::dirent::{Name, Packed};
use lanefs_ondisk::htree::{Cause, IndexEntry};
use lanefs_ondisk::{FileBlock, FileType, Ino, dirent, htree};
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
        return to_indexed(cx, blocks, new);
    }
    let mut growth = Growth::new(cx, blocks);
    growth.push(dirent::pack(&cx.format, &[*new]).ok_or(Error::NameTooLong)?)?;
    Ok(Plan { appended: growth.appended, ..Plan::default() })
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
        if let Some(plan) = insert_into(cx, blocks, path.leaf, new)? {
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
    let n = path.leaf;
    let bounds = path.bounds()?;
    let block = blocks.block(n)?;
    let mut entries = vec![(index.hasher.hash(new.name.bytes()).major, *new)];
    for_each_name(cx, n, &block, |entry| {
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
    let (left, right) = leaves(cx, entries).expected()?;
    let mut plan = Plan::update(n, left.into());
    let Some(Leaf { low, block }) = right else { return Ok(plan) };
    let mut growth = Growth::new(cx, blocks);
    let child = growth.push(block)?;
    let mut tree =
        Tree { cx, frames: path.frames, levels: index.levels, changed: [false; 4], growth };
    let bottom = tree.frames.len() - 1;
    tree.insert(bottom, IndexEntry { hash: low, block: child })?;
    let changed = tree.frames.into_iter().zip(tree.changed).filter(|(_, changed)| *changed);
    plan.updates.extend(changed.map(|(frame, _)| (frame.block, frame.bytes)));
    plan.appended = tree.growth.appended;
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
        let frame = self.frames.get(depth).expected()?;
        let index = frame_index(self.cx, depth, frame)?;
        let mut entries: Vec<IndexEntry> = index.iter().collect();
        let at = frame.at;
        // In an index out of order, the new entry might not be found again.
        let falls = |pair: &[IndexEntry]| matches!(pair, [a, b] if b.hash < a.hash);
        if let Some(before) = entries.windows(2).position(falls) {
            return Err(self.cx.bad_index(frame.block, Cause::Order { entry: before + 1 }));
        }
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
        let node = htree::new_node(&self.cx.format, &upper).expected()?;
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
        let node = htree::new_node(&self.cx.format, &entries).expected()?;
        let block = self.growth.push(node)?;
        let frame = self.frames.first_mut().expected()?;
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
        frame.bytes = bytes.expected()?.into();
        self.changed[0] = true;
        Ok(())
    }

    fn write(&mut self, depth: usize, entries: &[IndexEntry]) -> Result<(), Error> {
        let frame = self.frames.get_mut(depth).expected()?;
        let bytes = Arc::make_mut(&mut frame.bytes);
        if !htree::write_entries(&self.cx.format, kind_at(depth), bytes, entries) {
            return Err(Error::internal());
        }
        if let Some(changed) = self.changed.get_mut(depth) {
            *changed = true;
        }
        Ok(())
    }
}

// Finds or creates room for a name.

/// Returns the first block with room for `name`, or `None` if no block has room. It does not matter
/// whether the name exists.
///
/// # Errors
/// A corruption error that names the block, and the errors of `blocks`.
pub fn locate_room(
    cx: &DirContext,
    blocks: &dyn DirBlocks,
    name: Name<'_>,
) -> Result<Option<FileBlock>, Error> {
    let has_room = |n: FileBlock| -> Result<bool, Error> {
        Ok(matches!(room_for(cx, n, &blocks.block(n)?, name)?, Look::Room(_)))
    };
    if cx.indexing != Indexing::Indexed {
        for n in (0..blocks.count()).map(FileBlock) {
            if has_room(n)? {
                return Ok(Some(n));
            }
        }
        return Ok(None);
    }
    let index = Index::open(cx, blocks)?;
    let hash = index.hasher.hash(name.bytes()).major;
    let mut path = index.descend(hash)?;
    loop {
        if has_room(path.leaf)? {
            return Ok(Some(path.leaf));
        }
        if !path.advance_within(hash)? {
            return Ok(None);
        }
    }
}

/// Plans room for `name`, which does not exist, in a block where the name may be: splits a leaf,
/// appends a block, or converts a linear directory to an indexed one. The entries stay the same.
///
/// # Errors
/// The errors of [`plan_insert`].
pub fn plan_room(cx: &DirContext, blocks: &dyn DirBlocks, name: Name<'_>) -> Result<Plan, Error> {
    // This plans to insert an entry, and then removes the entry from the planned blocks again. So
    // the block where the name belongs keeps room for the entry.
    let mut plan = plan_insert(cx, blocks, name, cx.ino, FileType::Regular)?;
    let indexing = if plan.becomes_indexed { Indexing::Indexed } else { cx.indexing };
    let cx = &DirContext { indexing, ..*cx };
    let updates = plan.updates.iter_mut().map(|(n, block)| (*n, block));
    let first = blocks.count();
    let appended = (first..).map(FileBlock).zip(plan.appended.iter_mut());
    for (n, block) in updates.chain(appended) {
        if !has_names(cx, n, block) {
            continue;
        }
        let damaged = |cause| cx.damaged(n, cause);
        let entry = dirent::find(&cx.format, block, name).map_err(damaged)?;
        if let Some(offset) = entry.map(|entry| entry.offset) {
            dirent::remove(&cx.format, Arc::make_mut(block), 0, offset).map_err(damaged)?;
        }
    }
    Ok(plan)
}

// Distributes the entries of a full leaf over two leaves.

/// A leaf, together with the hash of its index entry.
pub(crate) struct Leaf {
    /// The lowest hash of the leaf. The low bit is set if the leaf before it has names with that
    /// hash too.
    pub(crate) low: u32,
    /// The contents.
    pub(crate) block: Vec<u8>,
}

/// Packs the entries, given with their hashes, into one leaf, or into two if they do not fit into
/// one. `None` if two leaves are not enough, which is impossible for the entries of one leaf and a
/// new entry.
pub(crate) fn leaves(
    cx: &DirContext,
    mut entries: Vec<(u32, Packed<'_>)>,
) -> Option<(Vec<u8>, Option<Leaf>)> {
    entries.sort_by_key(|(hash, _)| *hash);
    let at = split_point(&entries, cx.format.record_bytes())?;
    let packed: Vec<Packed<'_>> = entries.iter().map(|(_, packed)| *packed).collect();
    let (left, right) = packed.split_at_checked(at)?;
    let left_block = dirent::pack(&cx.format, left)?;
    if right.is_empty() {
        return Some((left_block, None));
    }
    let low = entries.get(at)?.0;
    let continues = at
        .checked_sub(1)
        .and_then(|before| entries.get(before))
        .is_some_and(|(hash, _)| *hash == low);
    let block = dirent::pack(&cx.format, right)?;
    Some((left_block, Some(Leaf { low: low | u32::from(continues), block })))
}

/// Returns the number of entries for the left leaf. If all entries fit into one leaf, the left leaf
/// gets all of them. Otherwise both leaves get about the same number of bytes. Names with the same
/// hash are separated only if that cannot be avoided, since every look-up of such a hash would read
/// both leaves.
fn split_point(entries: &[(u32, Packed<'_>)], capacity: usize) -> Option<usize> {
    let total: usize = entries.iter().map(|(_, packed)| packed.space()).sum();
    if total <= capacity {
        return Some(entries.len());
    }
    let mut left = 0;
    let mut best: Option<(bool, usize, usize)> = None;
    for (at, pair) in entries.windows(2).enumerate() {
        let [(hash, packed), (next, _)] = pair else { continue };
        left += packed.space();
        let right = total - left;
        if left > capacity || right > capacity {
            continue;
        }
        let candidate = (hash == next, left.abs_diff(right), at + 1);
        if best.is_none_or(|best| candidate < best) {
            best = Some(candidate);
        }
    }
    best.map(|(_, _, at)| at)
}

// Converts a linear directory of one block to an indexed one.

/// Moves the entries of the first block, and the new entry, into leaves, and replaces the block by
/// a root.
pub(crate) fn to_indexed(
    cx: &DirContext,
    blocks: &dyn DirBlocks,
    new: &Packed<'_>,
) -> Result<Plan, Error> {
    let first = FileBlock(0);
    let block = blocks.block(first)?;
    let (dot, dot_dot) =
        dirent::dots(&cx.format, &block).map_err(|cause| cx.damaged(first, cause))?;
    let ino_of = |entry: &dirent::Entry<'_>| entry.ino.unwrap_or(Ino(0));
    let mut entries = vec![(cx.hasher.hash(new.name.bytes()).major, *new)];
    for_each_name(cx, first, &block, |entry| {
        let hash = cx.hasher.hash(entry.name).major;
        entries.extend(Packed::from_entry(entry).map(|packed| (hash, packed)));
        Ok(())
    })?;
    let (left, right) = leaves(cx, entries).expected()?;
    let mut growth = Growth::new(cx, blocks);
    let mut index = vec![IndexEntry { hash: 0, block: growth.push(left)? }];
    if let Some(Leaf { low, block }) = right {
        index.push(IndexEntry { hash: low, block: growth.push(block)? });
    }
    let root =
        htree::new_root(&cx.format, ino_of(&dot), ino_of(&dot_dot), cx.hasher.version, 0, &index);
    let root = root.expected()?.into();
    Ok(Plan { updates: vec![(first, root)], appended: growth.appended, becomes_indexed: true })
}
