//! Visits the entries of one block, without "." and "..".

use super::{DirContext, Indexing};
use crate::error::Error;
use lanefs_ondisk::FileBlock;
use lanefs_ondisk::dirent::{self, Cause, Entry};

/// Calls `each` for every entry that is in use in a linear block or a leaf, except "." and "..".
/// These must be the first two entries of a linear directory's first block, and may be nowhere
/// else.
pub(super) fn for_each<'a>(
    cx: &DirContext,
    n: FileBlock,
    block: &'a [u8],
    mut each: impl FnMut(&Entry<'a>) -> Result<(), Error>,
) -> Result<(), Error> {
    let damaged = |cause| cx.damaged(n, cause);
    let starts_directory = n == FileBlock(0) && cx.indexing != Indexing::Indexed;
    let names_begin = match starts_directory {
        true => dirent::dots(&cx.format, block).map_err(damaged)?.1.offset + 1,
        false => 0,
    };
    for entry in dirent::entries(&cx.format, block).map_err(damaged)? {
        let entry = entry.map_err(damaged)?;
        if entry.ino.is_none() || entry.offset < names_begin {
            continue;
        }
        if entry.is_dot() {
            return Err(damaged(Cause::MisplacedDot { offset: entry.offset }));
        }
        each(&entry)?;
    }
    Ok(())
}
