//! Collects the next entries of a directory in hash order, in bounded memory.

use super::cookie::{Key, Position};
use crate::attr::DirEntry;
use crate::error::Error;
use lanefs_ondisk::dirent::Entry;
use lanefs_ondisk::{FileType, Ino};
use std::cmp::Ordering;
use std::ops::{ControlFlow, Range};

/// The largest number of entries that are delivered at a time. A leaf of at most 16 KiB cannot have
/// so many entries, so its entries are delivered in one pass. Twice as many entries are collected
/// before the higher half of them is dropped, so that the cost per entry is constant.
const CAPACITY: usize = 1400;

/// Collects the entries with the lowest keys at or after a position.
pub(super) struct Window {
    from: Position,
    entries: Vec<Candidate>,
    /// The names of `entries`, one after another.
    names: Vec<u8>,
    /// The highest key that was kept when entries were dropped; `None` if none were dropped.
    /// Entries with a higher key are not kept any more.
    limit: Option<Key>,
}

/// How far the delivery of a window's entries got.
pub(super) enum Delivered {
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
    pub(super) fn new(from: Position) -> Window {
        // Capacity for a small directory.
        let (entries, names) = (Vec::with_capacity(64), Vec::with_capacity(1024));
        Window { from, entries, names, limit: None }
    }

    /// Adds the entry if it is among the next entries to be delivered.
    pub(super) fn offer(&mut self, key: Key, entry: &Entry<'_>) {
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
    pub(super) fn deliver(
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
