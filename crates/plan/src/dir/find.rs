//! Looks up names.

use crate::dir::index::Index;
use crate::dir::{DirBlocks, DirContext, Indexing, NameIndex};
use crate::error::Error;
use lanefs_ondisk::casefold::Folding;
use lanefs_ondisk::dirent::{Entry, Name, Packed, Room, Sought};
use lanefs_ondisk::{FileBlock, FileType, Ino, dirent};

/// An entry and its position. The position is valid as long as the directory does not change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
    /// The inode number.
    pub ino: Ino,
    /// The file type, if the directory stores it.
    pub file_type: Option<FileType>,
    /// The block of the entry.
    pub block: FileBlock,
    /// Where the entry's record starts, in bytes from the start of the block.
    pub offset: usize,
    /// The start of some record before the entry; 0 if no such record is known. A removal searches
    /// from there for the record directly before the entry.
    pub before: u32,
}

impl Found {
    pub(crate) fn new(block: FileBlock, entry: &Entry<'_>) -> Option<Found> {
        let &Entry { ino, file_type, offset, .. } = entry;
        Some(Found { ino: ino?, file_type, block, offset, before: 0 })
    }
}

/// Finds an entry, "." and ".." included.
///
/// # Errors
/// A corruption error that names the block, and the errors of `blocks`.
pub fn find(
    cx: &DirContext,
    blocks: &dyn DirBlocks,
    name: Name<'_>,
) -> Result<Option<Found>, Error> {
    match name.bytes() {
        b"." | b".." if blocks.count() == 0 => Err(cx.damaged(FileBlock(0), dirent::Cause::NoDots)),
        b"." | b".." => find_dot(cx, &blocks.block(FileBlock(0))?, name).map(Some),
        _ if cx.indexing == Indexing::Indexed => find_indexed(cx, blocks, name),
        _ => find_linear(cx, blocks, name),
    }
}

/// Finds "." or ".." in the first block of a directory, which may be the root of an index.
///
/// # Errors
/// A corruption error that names the block.
pub fn find_dot(cx: &DirContext, block: &[u8], name: Name<'_>) -> Result<Found, Error> {
    let first = FileBlock(0);
    let damaged = |cause| cx.damaged(first, cause);
    let (dot, dot_dot) = dirent::dots(&cx.format, block).map_err(damaged)?;
    let found = Found::new(first, if name.bytes() == b"." { &dot } else { &dot_dot });
    found.ok_or_else(|| damaged(dirent::Cause::NoDots))
}

fn find_linear(
    cx: &DirContext,
    blocks: &dyn DirBlocks,
    name: Name<'_>,
) -> Result<Option<Found>, Error> {
    for n in (0..blocks.count()).map(FileBlock) {
        if let Some(found) = find_in(cx, n, &blocks.block(n)?, name)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

fn find_indexed(
    cx: &DirContext,
    blocks: &dyn DirBlocks,
    name: Name<'_>,
) -> Result<Option<Found>, Error> {
    let index = Index::open(cx, blocks)?;
    let hash = index.hasher.hash(name.bytes());
    let mut path = index.descend(hash.major)?;
    loop {
        let n = path.leaf;
        if let Some(found) = find_in(cx, n, &blocks.block(n)?, name)? {
            return Ok(Some(found));
        }
        if !path.advance_within(hash.major)? {
            return Ok(None);
        }
    }
}

/// Finds an entry in block `n`, whose contents are given.
///
/// # Errors
/// A corruption error that names the block.
pub fn find_in(
    cx: &DirContext,
    n: FileBlock,
    block: &[u8],
    name: Name<'_>,
) -> Result<Option<Found>, Error> {
    let entry = cx.entry(block, name).map_err(|cause| cx.damaged(n, cause))?;
    Ok(entry.and_then(|entry| Found::new(n, &entry)))
}

/// Does the same as [`find_in`], but uses the index of the block's names.
///
/// # Errors
/// The errors of [`find_in`].
pub fn find_by(
    cx: &DirContext,
    n: FileBlock,
    names: &NameIndex,
    block: &[u8],
    name: Name<'_>,
) -> Result<Option<Found>, Error> {
    let found = names.find(&cx.format, |_| Some(block), name);
    let entry = found.map_err(|cause| cx.damaged(n, cause))?;
    Ok(entry.and_then(|(_, entry)| Found::new(n, &entry)))
}

// Looks for a name in the one block that contains the name or would contain it.

/// The result of looking for a name in a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// The entry exists.
    There(Found),
    /// The name does not exist; the block has room for it.
    Room(Room),
    /// The name does not exist, and the block has no room for it.
    Full,
}

/// Looks for `name` in block `n`.
///
/// # Errors
/// A corruption error that names the block.
pub fn look_for(
    cx: &DirContext,
    n: FileBlock,
    block: &[u8],
    name: Name<'_>,
) -> Result<Look, Error> {
    let damaged = |cause| cx.damaged(n, cause);
    if cx.hasher.folding != Folding::None {
        let entry = cx.entry(block, name).map_err(damaged)?;
        let found = entry.and_then(|entry| Found::new(n, &entry));
        return found.map_or_else(|| room_for(cx, n, block, name), |found| Ok(Look::There(found)));
    }
    // `find_or_room` gets only the name, because the room that an entry needs depends only on the
    // length of its name.
    match dirent::find_or_room(&cx.format, block, name).map_err(damaged)? {
        Sought::Entry { entry, before } => {
            let found = Found::new(n, &entry).map(|found| Found { before: before as u32, ..found });
            Ok(found.map_or(Look::Full, Look::There))
        }
        Sought::Room(room) => Ok(room.map_or(Look::Full, Look::Room)),
    }
}

/// Looks for room for `name` in block `n`. It does not matter whether the name exists.
///
/// # Errors
/// A corruption error that names the block.
pub fn room_for(
    cx: &DirContext,
    n: FileBlock,
    block: &[u8],
    name: Name<'_>,
) -> Result<Look, Error> {
    let new = Packed { ino: Ino(0), file_type: None, name };
    let room = dirent::find_room(&cx.format, block, &new).map_err(|cause| cx.damaged(n, cause))?;
    Ok(room.map_or(Look::Full, Look::Room))
}
