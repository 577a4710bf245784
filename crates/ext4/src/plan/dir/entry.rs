//! Looks for a name in the one block that contains the name or would contain it.

use super::{DirContext, Found};
use crate::error::Error;
use lanefs_ondisk::casefold::Folding;
use lanefs_ondisk::dirent::{self, Name, Packed, Room, Sought};
use lanefs_ondisk::{FileBlock, Ino};

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
