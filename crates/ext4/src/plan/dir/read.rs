//! Reads a directory in hash order.

use super::cookie::{Key, Position};
use super::path::{Index, Path};
use super::window::{Delivered, Window};
use super::{DirBlocks, DirContext, Indexing, leaf};
use crate::attr::DirEntry;
use crate::error::Error;
use lanefs_ondisk::hash::NameHasher;
use lanefs_ondisk::htree::Cause;
use lanefs_ondisk::{FileBlock, Ino, dirent};
use std::ops::ControlFlow;

/// Calls `each` with the entries after `cookie`, until `each` breaks or no entries remain. A cookie
/// is either 0, for the start, or the `next` of a delivered entry. "." and ".." come first, then
/// all other entries in the order of their hashes, even in linear directories. So an entry that
/// exists during a whole series of calls is delivered exactly once, even if other entries are added
/// and removed between the calls. (This does not hold among names that are equal in 57 bits of
/// their hashes. If such a name is added or removed, a reader that stopped among these names may
/// miss another one or get it twice. If there are more than 64 such names, some of them share a
/// cookie, and the reader may miss some in any case. With half MD4 and TEA, only someone who knows
/// the file system's hash seed can construct so many such names. With the legacy hash, which has no
/// seed, anyone can.)
///
/// # Errors
/// A corruption error that names the block, and the errors of `blocks`. Some entries may have been
/// delivered before the error.
pub fn read_from(
    cx: &DirContext,
    blocks: &dyn DirBlocks,
    cookie: u64,
    each: &mut dyn FnMut(&DirEntry<'_>) -> ControlFlow<()>,
) -> Result<(), Error> {
    if cookie < 2 && read_dots(cx, blocks, cookie, each)?.is_break() {
        return Ok(());
    }
    let from = Position::from_cookie(cookie);
    match cx.indexing {
        Indexing::Indexed => read_indexed(cx, blocks, from, each),
        Indexing::Never | Indexing::Possible => read_linear(cx, blocks, from, each),
    }
}

/// Returns the cookie at which [`read_from`] continues with the first entry that has this hash or a
/// higher one.
pub fn cookie_of(major: u32) -> u64 {
    Position::of_hash(major).cookie()
}

/// Returns the hash at which [`read_from`] continues with this cookie; `None` if the cookie is
/// after all entries.
pub fn hash_at(cookie: u64) -> Option<u32> {
    Position::from_cookie(cookie).hash()
}

/// Returns the hasher of an indexed directory. The index states which version of the hash it uses.
pub fn hasher_of(cx: &DirContext, blocks: &dyn DirBlocks) -> Result<NameHasher, Error> {
    Ok(Index::open(cx, blocks)?.hasher)
}

/// Returns whether the directory has no entries except "." and "..".
pub fn is_empty(cx: &DirContext, blocks: &dyn DirBlocks) -> Result<bool, Error> {
    let mut empty = ControlFlow::Continue(());
    let mut look = |n: FileBlock| -> Result<ControlFlow<()>, Error> {
        let mut checked = Ok(());
        blocks.look(n, &mut |block| {
            checked = leaf::for_each(cx, n, block, |_| {
                empty = ControlFlow::Break(());
                Ok(())
            });
        })?;
        checked.map(|()| empty)
    };
    match cx.indexing {
        Indexing::Indexed => {
            let mut path = Index::open(cx, blocks)?.descend(0)?;
            while look(path.leaf())?.is_continue() && path.advance()? {}
        }
        Indexing::Never | Indexing::Possible => {
            for n in 0..blocks.count() {
                if look(FileBlock(n))?.is_break() {
                    break;
                }
            }
        }
    }
    Ok(empty.is_continue())
}

fn read_dots(
    cx: &DirContext,
    blocks: &dyn DirBlocks,
    cookie: u64,
    each: &mut dyn FnMut(&DirEntry<'_>) -> ControlFlow<()>,
) -> Result<ControlFlow<()>, Error> {
    let first = FileBlock(0);
    if blocks.count() == 0 {
        return Err(cx.damaged(first, dirent::Cause::NoDots));
    }
    let block = blocks.block(first)?;
    let (dot, dot_dot) =
        dirent::dots(&cx.format, &block).map_err(|cause| cx.damaged(first, cause))?;
    for (entry, next) in [(dot, 1), (dot_dot, 2)] {
        if next <= cookie {
            continue;
        }
        let ino = entry.ino.unwrap_or(Ino(0));
        let entry = DirEntry { ino, file_type: entry.file_type, name: entry.name, next };
        if each(&entry).is_break() {
            return Ok(ControlFlow::Break(()));
        }
    }
    Ok(ControlFlow::Continue(()))
}

/// Reads the entries of a linear directory in the order of their hashes. Each pass reads all
/// blocks, in order to find the entries that come next.
fn read_linear(
    cx: &DirContext,
    blocks: &dyn DirBlocks,
    mut from: Position,
    each: &mut dyn FnMut(&DirEntry<'_>) -> ControlFlow<()>,
) -> Result<(), Error> {
    loop {
        let mut window = Window::new(from);
        for n in (0..blocks.count()).map(FileBlock) {
            let block = blocks.block(n)?;
            leaf::for_each(cx, n, &block, |entry| {
                window.offer(Key::of(&cx.hasher, entry.name).0, entry);
                Ok(())
            })?;
        }
        match window.deliver(each)? {
            Delivered::Until(position) => from = position,
            Delivered::All | Delivered::Stopped => return Ok(()),
        }
    }
}

/// Reads the entries leaf by leaf. Leaves that share a hash are read together.
fn read_indexed(
    cx: &DirContext,
    blocks: &dyn DirBlocks,
    mut from: Position,
    each: &mut dyn FnMut(&DirEntry<'_>) -> ControlFlow<()>,
) -> Result<(), Error> {
    let Some(hash) = from.hash() else { return Ok(()) };
    let index = Index::open(cx, blocks)?;
    let mut path = index.descend(hash)?;
    loop {
        let start = path.clone();
        let mut window = Window::new(from);
        let more = loop {
            offer_leaf(cx, blocks, &index, &path, &mut window)?;
            let next = path.bounds()?.next;
            if !path.advance()? {
                break false;
            }
            if next.is_none_or(|next| next & 1 == 0) {
                break true;
            }
        };
        match window.deliver(each)? {
            Delivered::Stopped => return Ok(()),
            Delivered::All if more => {}
            Delivered::All => return Ok(()),
            Delivered::Until(position) => {
                from = position;
                path = start;
            }
        }
    }
}

fn offer_leaf(
    cx: &DirContext,
    blocks: &dyn DirBlocks,
    index: &Index<'_>,
    path: &Path<'_>,
    window: &mut Window,
) -> Result<(), Error> {
    let (n, bounds) = (path.leaf(), path.bounds()?);
    let block = blocks.block(n)?;
    leaf::for_each(cx, n, &block, |entry| {
        let (key, hash) = Key::of(&index.hasher, entry.name);
        if !bounds.contain(hash) {
            return Err(cx.bad_index(
                FileBlock(0),
                Cause::HashRange { leaf: n, offset: entry.offset, hash },
            ));
        }
        window.offer(key, entry);
        Ok(())
    })
}
