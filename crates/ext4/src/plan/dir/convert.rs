//! Converts a linear directory of one block to an indexed one.

use super::plan::Growth;
use super::split::{self, Leaf};
use super::{DirBlocks, DirContext, Plan, leaf};
use crate::error::Error;
use lanefs_ondisk::dirent::{self, Packed};
use lanefs_ondisk::htree::{self, IndexEntry};
use lanefs_ondisk::{FileBlock, Ino};

/// Moves the entries of the first block, and the new entry, into leaves, and replaces the block by
/// a root.
pub(super) fn to_indexed(
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
    leaf::for_each(cx, first, &block, |entry| {
        let hash = cx.hasher.hash(entry.name).major;
        entries.extend(Packed::from_entry(entry).map(|packed| (hash, packed)));
        Ok(())
    })?;
    let (left, right) = split::leaves(cx, entries).ok_or(Error::NoSpace)?;
    let mut growth = Growth::new(cx, blocks);
    let mut index = vec![IndexEntry { hash: 0, block: growth.push(left)? }];
    if let Some(Leaf { low, block }) = right {
        index.push(IndexEntry { hash: low, block: growth.push(block)? });
    }
    let root =
        htree::new_root(&cx.format, ino_of(&dot), ino_of(&dot_dot), cx.hasher.version, 0, &index);
    let root = root.ok_or(Error::NoSpace)?.into();
    Ok(Plan {
        updates: vec![(first, root)],
        appended: growth.into_appended(),
        becomes_indexed: true,
    })
}
