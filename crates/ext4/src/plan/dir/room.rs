//! Finds or creates room for a name.

use super::path::Index;
use super::{
    DirBlocks, DirContext, Indexing, Look, Plan, has_names, look_for, plan_insert, room_for,
};
use crate::error::Error;
use lanefs_ondisk::dirent::{self, Name};
use lanefs_ondisk::{FileBlock, FileType};
use std::sync::Arc;

/// Returns the block that contains `name`, or else the first block with room for it. `None` if no
/// block has room. Does not look for "." and "..".
///
/// # Errors
/// A corruption error that names the block, and the errors of `blocks`.
pub fn locate(
    cx: &DirContext,
    blocks: &dyn DirBlocks,
    name: Name<'_>,
) -> Result<Option<FileBlock>, Error> {
    locate_by(cx, blocks, name, look_for)
}

/// Returns the first block with room for `name`, or `None` if no block has room. It does not matter
/// whether the name exists.
///
/// # Errors
/// The errors of [`locate`].
pub fn locate_room(
    cx: &DirContext,
    blocks: &dyn DirBlocks,
    name: Name<'_>,
) -> Result<Option<FileBlock>, Error> {
    locate_by(cx, blocks, name, room_for)
}

fn locate_by(
    cx: &DirContext,
    blocks: &dyn DirBlocks,
    name: Name<'_>,
    look: fn(&DirContext, FileBlock, &[u8], Name<'_>) -> Result<Look, Error>,
) -> Result<Option<FileBlock>, Error> {
    let mut room = None;
    let mut is_here = |n: FileBlock| -> Result<bool, Error> {
        let seen = look(cx, n, &blocks.block(n)?, name)?;
        if matches!(seen, Look::Room(_)) {
            room = room.or(Some(n));
        }
        Ok(matches!(seen, Look::There(_)))
    };
    if cx.indexing != Indexing::Indexed {
        for n in (0..blocks.count()).map(FileBlock) {
            if is_here(n)? {
                return Ok(Some(n));
            }
        }
        return Ok(room);
    }
    let index = Index::open(cx, blocks)?;
    let hash = index.hasher.hash(name.bytes()).major;
    let mut path = index.descend(hash)?;
    loop {
        if is_here(path.leaf())? {
            return Ok(Some(path.leaf()));
        }
        if !path.advance_within(hash)? {
            return Ok(room);
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
