//! One name in the one block where it is or would be.

use super::path::Index;
use super::{DirBlocks, DirContext, Found, Indexing};
use crate::Error;
use lanefs_ondisk::dirent::{self, Name, Packed, Room};
use lanefs_ondisk::{FileBlock, Ino};

/// What a block has of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// The entry.
    There(Found),
    /// Nothing, but room for an entry.
    Room(Room),
    /// Nothing, and no room either.
    Full,
}

/// The one block where `name` is, if it is there, and where it would go: which can be told while
/// others change other names, as long as nobody changes the directory's shape. `None` if there may
/// be several: a linear directory of several blocks, or leaves that share the name's hash. "." and
/// ".." are not looked for.
///
/// # Errors
/// Corruption naming the block, and what `blocks` fails with.
pub fn leaf_of(
    cx: &DirContext,
    blocks: &dyn DirBlocks,
    name: Name<'_>,
) -> Result<Option<FileBlock>, Error> {
    if matches!(name.bytes(), b"." | b"..") {
        return Ok(None);
    }
    if cx.indexing != Indexing::Indexed {
        return Ok((blocks.count() == 1).then_some(FileBlock(0)));
    }
    let index = Index::open(cx, blocks)?;
    let hash = index.hasher.hash(name.bytes()).major;
    let path = index.descend(hash)?;
    let alone = path.bounds()?.next != Some(hash | 1);
    Ok(alone.then(|| path.leaf()))
}

/// Looks for `name` in block `n`.
///
/// # Errors
/// Corruption naming the block.
pub fn look_for(
    cx: &DirContext,
    n: FileBlock,
    block: &[u8],
    name: Name<'_>,
) -> Result<Look, Error> {
    let damaged = |cause| cx.damaged(n, cause);
    let entry = dirent::find(&cx.format, block, name).map_err(damaged)?;
    if let Some(found) = entry.and_then(|entry| Found::new(n, &entry)) {
        return Ok(Look::There(found));
    }
    // Room depends on the name's length alone.
    let new = Packed { ino: Ino(0), file_type: None, name };
    let room = dirent::find_room(&cx.format, block, &new).map_err(damaged)?;
    Ok(room.map_or(Look::Full, Look::Room))
}
