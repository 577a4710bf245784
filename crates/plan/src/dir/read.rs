//! Reads a directory: in hash order, or without an index block by block.

use crate::dir::index::{Index, Path};
use crate::dir::{DirBlocks, DirContext, Found, Indexing, blocks::for_each_name};
use crate::error::Error;
use lanefs_ondisk::checksum::Seed;
use lanefs_ondisk::dirent::{Entry, Name};
use lanefs_ondisk::hash::{HashVersion, NameHasher};
use lanefs_ondisk::htree::Cause;
use lanefs_ondisk::{FileBlock, FileType, Ino, dirent};
use std::cmp::Ordering;
use std::ops::{ControlFlow, Range};

/// An entry of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DirEntry<'a> {
    /// The inode number.
    pub ino: Ino,
    /// The file type, if the directory stores it.
    pub file_type: Option<FileType>,
    /// The name: any bytes but `/` and NUL.
    pub name: &'a [u8],
    /// The cookie with which [`read_from`] continues after this entry.
    pub next: u64,
}

/// Calls `each` with the entries after `cookie`, until `each` breaks or no entries remain. A cookie
/// is either 0, for the start, or the `next` of a delivered entry. "." and ".." come first, then
/// all other entries: in the order of their hashes ([`in_hash_order`]), or in that of their places,
/// which do not change. So an entry that exists during a whole series of calls is delivered exactly
/// once, even if other entries are added and removed between the calls. (This does not hold among
/// names that are equal in 57 bits of their hashes. If such a name is added or removed, a reader
/// that stopped among these names may miss another one or get it twice. If there are more than 64
/// such names, some of them share a cookie, and the reader may miss some in any case. With half MD4
/// and TEA, only someone who knows the file system's hash seed can construct so many such names.
/// With the legacy hash, which has no seed, anyone can.)
///
/// # Errors
/// A corruption error that names the block, and the errors of `blocks`. As the kernel does, it goes
/// on behind a fault, and reads all blocks if the index is damaged. So after an error too, what can
/// be read was delivered, until `each` broke.
pub fn read_from(
    cx: &DirContext,
    blocks: &dyn DirBlocks,
    cookie: u64,
    each: &mut dyn FnMut(&DirEntry<'_>) -> ControlFlow<()>,
) -> Result<(), Error> {
    let dots = match cookie {
        0 | 1 => read_dots(cx, blocks, cookie, each),
        _ => Ok(ControlFlow::Continue(())),
    };
    if matches!(dots, Ok(ControlFlow::Break(()))) {
        return Ok(());
    }
    let from = Position::from_cookie(cookie);
    let read = match cx.indexing {
        Indexing::Indexed => {
            let mut reached = from;
            let indexed = read_indexed(cx, blocks, from, &mut |entry| {
                let flow = each(entry);
                reached = Position::from_cookie(entry.next);
                flow
            });
            match indexed {
                Err(fault @ Error::Corruption(_)) if blocks.count() <= MOST_READ => {
                    let hasher = hasher_of(cx, blocks).unwrap_or(cx.hasher);
                    let cx = &DirContext { indexing: Indexing::Never, hasher, ..*cx };
                    // The blocks of the index may be faults of their own: they have no names.
                    let _further = read_linear(cx, blocks, reached, each);
                    Err(fault)
                }
                read => read,
            }
        }
        _ if in_hash_order(cx, blocks) => read_linear(cx, blocks, from, each),
        _ => read_in_place(cx, blocks, from.0, each),
    };
    dots.and(read)
}

/// Returns whether the entries are read in the order of their hashes, as in the kernel: with an
/// index, or if the directory gets one when its only block is full.
pub fn in_hash_order(cx: &DirContext, blocks: &dyn DirBlocks) -> bool {
    match cx.indexing {
        Indexing::Indexed => true,
        Indexing::Possible => blocks.count() == 1,
        Indexing::Never => false,
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
            checked = for_each_name(cx, n, block, |_| {
                empty = ControlFlow::Break(());
                Ok(())
            });
        })?;
        checked.map(|()| empty)
    };
    match cx.indexing {
        Indexing::Indexed => {
            let mut path = Index::open(cx, blocks)?.descend(0)?;
            while look(path.leaf)?.is_continue() && path.advance()? {}
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

/// The largest number of faulty blocks that one call passes: a damaged size can be that of
/// billions.
const MOST_FAULTY: u32 = 1000;

/// The largest number of blocks of a directory with a fault that one call reads as a whole, for its
/// names in the order of their hashes, or for one name. A larger directory gives the fault alone.
const MOST_READ: u32 = 1024;

/// Calls `each` with the names of these blocks, until `each` breaks. Returns the first fault after
/// it has read what can be read.
fn for_each_in(
    cx: &DirContext,
    blocks: &dyn DirBlocks,
    numbers: impl Iterator<Item = u32>,
    mut each: impl FnMut(FileBlock, &Entry<'_>) -> ControlFlow<()>,
) -> Result<(), Error> {
    let (mut fault, mut faulty) = (Ok(()), 0);
    for n in numbers.map(FileBlock) {
        let mut flow = ControlFlow::Continue(());
        let mut visit = |block: &[u8]| {
            for_each_name(cx, n, block, |entry| {
                if flow.is_continue() {
                    flow = each(n, entry);
                }
                Ok(())
            })
        };
        let read = match blocks.block(n) {
            Ok(block) => visit(&block),
            Err(found) => {
                blocks.unsound(n, &found).map_or(Ok(()), |block| visit(&block)).and(Err(found))
            }
        };
        faulty += u32::from(read.is_err());
        let may_go_on = matches!(read, Ok(()) | Err(Error::Corruption(_))) && faulty < MOST_FAULTY;
        fault = fault.and(read);
        if flow.is_break() || !may_go_on {
            break;
        }
    }
    fault
}

/// Finds an entry other than "." and ".." wherever it can be read, in a directory with a fault.
/// Begins with block `first`: a name is mostly looked up after its neighbours.
pub fn find_anywhere(
    cx: &DirContext,
    blocks: &dyn DirBlocks,
    name: Name<'_>,
    first: u32,
) -> Option<Found> {
    if blocks.count() > MOST_READ {
        return None;
    }
    let first = first.min(blocks.count());
    let numbers = (first..blocks.count()).chain(0..first);
    let folding = cx.hasher.folding;
    let wanted = folding.form(name.bytes());
    let cx = &DirContext { indexing: Indexing::Never, ..*cx };
    let mut found = None;
    let _faults =
        for_each_in(cx, blocks, numbers, |n, entry| match folding.has_form(entry.name, &wanted) {
            true => {
                found = Found::new(n, entry);
                ControlFlow::Break(())
            }
            false => ControlFlow::Continue(()),
        });
    found
}

/// Reads the entries of a linear directory in the order of their places. `from` is the block's
/// number and the entry's offset in it, of 16 bits: an entry keeps its place.
fn read_in_place(
    cx: &DirContext,
    blocks: &dyn DirBlocks,
    from: u64,
    each: &mut dyn FnMut(&DirEntry<'_>) -> ControlFlow<()>,
) -> Result<(), Error> {
    let first = u32::try_from(from >> 16).unwrap_or(u32::MAX);
    for_each_in(cx, blocks, first..blocks.count(), |n, entry| {
        let place = Position(u64::from(n.0) << 16 | entry.offset as u64);
        match entry.ino {
            Some(ino) if place.0 >= from => {
                let (file_type, next) = (entry.file_type, place.after().cookie());
                each(&DirEntry { ino, file_type, name: entry.name, next })
            }
            _ => ControlFlow::Continue(()),
        }
    })
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
        let read = for_each_in(cx, blocks, 0..blocks.count(), |_, entry| {
            window.offer(Key::of(&cx.hasher, entry.name).0, entry);
            ControlFlow::Continue(())
        });
        match window.deliver(each)? {
            Delivered::Until(position) => from = position,
            Delivered::All | Delivered::Stopped => return read,
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
    let (n, bounds) = (path.leaf, path.bounds()?);
    let block = blocks.block(n)?;
    for_each_name(cx, n, &block, |entry| {
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

// Collects the next entries of a directory in hash order, in bounded memory.

/// The largest number of entries that are delivered at a time. A leaf of at most 16 KiB cannot have
/// so many entries, so its entries are delivered in one pass. Twice as many entries are collected
/// before the higher half of them is dropped, so that the cost per entry is constant.
const CAPACITY: usize = 1400;

/// Collects the entries with the lowest keys at or after a position.
pub(crate) struct Window {
    from: Position,
    entries: Vec<Candidate>,
    /// The names of `entries`, one after another.
    names: Vec<u8>,
    /// The highest key that was kept when entries were dropped; `None` if none were dropped.
    /// Entries with a higher key are not kept any more.
    limit: Option<Key>,
}

/// How far the delivery of a window's entries got.
pub(crate) enum Delivered {
    /// All offered entries were delivered.
    All,
    /// There are more entries, from this position on.
    Until(Position),
    /// The receiver of the entries asked to stop.
    Stopped,
}

struct Candidate {
    key: Key,
    name: Range<usize>,
    ino: Ino,
    file_type: Option<FileType>,
}

/// Compares entries for a listing: by hash, and by name if their hashes are equal.
fn order(names: &[u8], a: &Candidate, b: &Candidate) -> Ordering {
    let by_name = || names.get(a.name.clone()).cmp(&names.get(b.name.clone()));
    a.key.cmp(&b.key).then_with(by_name)
}

impl Window {
    pub(crate) fn new(from: Position) -> Window {
        // Capacity for a small directory.
        let (entries, names) = (Vec::with_capacity(64), Vec::with_capacity(1024));
        Window { from, entries, names, limit: None }
    }

    /// Adds the entry if it is among the next entries to be delivered.
    pub(crate) fn offer(&mut self, key: Key, entry: &Entry<'_>) {
        let Some(ino) = entry.ino else { return };
        if key < self.from.key() || self.limit.is_some_and(|limit| key > limit) {
            return;
        }
        let start = self.names.len();
        self.names.extend_from_slice(entry.name);
        let name = start..self.names.len();
        self.entries.push(Candidate { key, name, ino, file_type: entry.file_type });
        if self.entries.len() >= 2 * CAPACITY {
            self.drop_the_highest();
        }
    }

    /// Keeps the lowest [`CAPACITY`] entries, and their names.
    fn drop_the_highest(&mut self) {
        let Window { entries, names, limit, .. } = self;
        if entries.len() <= CAPACITY {
            return;
        }
        let (_, highest, _) =
            entries.select_nth_unstable_by(CAPACITY - 1, |a, b| order(names, a, b));
        *limit = Some(highest.key);
        entries.truncate(CAPACITY);
        let mut kept = Vec::with_capacity(names.len() / 2);
        for entry in entries {
            let start = kept.len();
            kept.extend_from_slice(names.get(entry.name.clone()).unwrap_or_default());
            entry.name = start..kept.len();
        }
        *names = kept;
    }

    /// Delivers the entries in order. The window may also have entries that have the key of the
    /// start position but come before this position. These entries are not delivered; they are
    /// needed to compute the ordinals of the later entries with this key.
    pub(crate) fn deliver(
        mut self,
        each: &mut dyn FnMut(&DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<Delivered, Error> {
        self.drop_the_highest();
        let Window { from, mut entries, names, limit } = self;
        entries.sort_unstable_by(|a, b| order(&names, a, b));
        let mut last: Option<(Key, u64)> = None;
        let mut until = from;
        for candidate in entries {
            let ordinal = match last {
                Some((key, ordinal)) if key == candidate.key => ordinal + 1,
                _ => 0,
            };
            last = Some((candidate.key, ordinal));
            let position = Position::of(candidate.key, ordinal);
            until = until.max(position.after());
            if position < from {
                continue;
            }
            let entry = DirEntry {
                ino: candidate.ino,
                file_type: candidate.file_type,
                name: names.get(candidate.name).unwrap_or_default(),
                next: position.after().cookie(),
            };
            if each(&entry).is_break() {
                return Ok(Delivered::Stopped);
            }
        }
        Ok(if limit.is_some() { Delivered::Until(until) } else { Delivered::All })
    }
}

// The positions of readers in a directory.
//
// Entries are read in the order of their *position*, a number whose bits, except for the last six,
// are computed from the name only. So a reader can continue after any change of the directory: a
// split, the conversion to an index, an insertion, or a removal. A position has three parts, from
// the highest bit down: 31 bits of the hash by which an index is sorted, 26 bits of a second hash,
// and 6 bits that count entries with the same 57 hash bits. The kernel's position consists only of
// the two halves of the directory hash. So a kernel reader that stops between names of equal hash
// misses some of these names. Such names are common with the legacy hash, which has no second
// half.

/// The number of bits that count entries with the same hash bits.
const ORDINAL_BITS: u32 = 6;
/// The highest count.
const MOST_ORDINAL: u64 = (1 << ORDINAL_BITS) - 1;
/// The number of entries that come first, "." and "..". Their cookies are 1 and 2.
const DOTS: u64 = 2;

/// The part of a position that the name determines; the low bits are clear.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key(u64);

impl Key {
    /// Returns the key of a name, and the hash that determines its leaf.
    pub(crate) fn of(hasher: &NameHasher, name: &[u8]) -> (Key, u32) {
        let hash = hasher.hash(name);
        // The second hash is the minor hash, which depends on the file system's secret seed. The
        // legacy hash has no minor part, so a checksum of the name takes the place of the minor
        // hash.
        let further = match hasher.version {
            HashVersion::Legacy => Seed::START.chain(name).value(),
            HashVersion::HalfMd4 | HashVersion::Tea => hash.minor,
        } >> ORDINAL_BITS;
        let key = u64::from(hash.major >> 1) << 32 | u64::from(further) << ORDINAL_BITS;
        (Key(key), hash.major)
    }
}

/// A position in the order of the entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position(u64);

impl Position {
    /// Returns the position of the `ordinal`-th entry with this key.
    pub(crate) fn of(key: Key, ordinal: u64) -> Position {
        Position(key.0 | ordinal.min(MOST_ORDINAL))
    }

    /// Returns the position at which a reader with this cookie continues, among the entries other
    /// than "." and "..".
    pub(crate) fn from_cookie(cookie: u64) -> Position {
        Position(cookie.saturating_sub(DOTS))
    }

    /// Returns the cookie for continuing at this position.
    pub(crate) fn cookie(self) -> u64 {
        self.0.saturating_add(DOTS)
    }

    /// Returns the position before all entries with this directory hash.
    pub(crate) fn of_hash(major: u32) -> Position {
        Position(u64::from(major >> 1) << 32)
    }

    /// Returns the next position.
    pub(crate) fn after(self) -> Position {
        Position(self.0.saturating_add(1))
    }

    /// Returns the lowest key whose entries can be at or after this position.
    pub(crate) fn key(self) -> Key {
        Key(self.0 & !MOST_ORDINAL)
    }

    /// Returns the directory hash of entries at this position; `None` if it is after all entries.
    pub(crate) fn hash(self) -> Option<u32> {
        u32::try_from(self.0 >> 32).ok()?.checked_mul(2)
    }
}
