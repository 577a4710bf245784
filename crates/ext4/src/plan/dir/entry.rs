//! Looks for a name in the only block that contains it or would contain it.

use super::{DirContext, Found};
use crate::error::Error;
use lanefs_ondisk::dirent::{self, Name, Packed, Room};
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
    // The room that is needed depends only on the name's length.
    let new = Packed { ino: Ino(0), file_type: None, name };
    let room = dirent::find_room(&cx.format, block, &new).map_err(damaged)?;
    Ok(room.map_or(Look::Full, Look::Room))
}
