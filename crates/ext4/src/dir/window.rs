//! The next entries of a directory in order, in bounded memory.

use super::cookie::{Key, Position};
use crate::{DirEntry, Error};
use lanefs_ondisk::dirent::Entry;
use lanefs_ondisk::{FileType, Ino};
use std::collections::BinaryHeap;
use std::ops::ControlFlow;

/// Most entries that are sorted at a time: more than a leaf of 16 KiB can have.
const CAPACITY: usize = 1400;

/// Collects the lowest entries at or behind a position.
pub(super) struct Window {
    from: Position,
    lowest: BinaryHeap<Candidate>,
    overflowed: bool,
}

/// What became of a window's entries.
pub(super) enum Delivered {
    /// All that were offered have been delivered.
    All,
    /// There are more, from this position on.
    Until(Position),
    /// The reader had enough.
    Stopped,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    key: Key,
    name: Box<[u8]>,
    ino: Ino,
    file_type: Option<u8>,
}

impl Window {
    pub(super) fn new(from: Position) -> Window {
        Window { from, lowest: BinaryHeap::new(), overflowed: false }
    }

    /// Takes the entry if it is one of the next.
    pub(super) fn offer(&mut self, key: Key, entry: &Entry<'_>) {
        let Some(ino) = entry.ino else { return };
        if key < self.from.key() {
            return;
        }
        if self.lowest.len() >= CAPACITY {
            self.overflowed = true;
            match self.lowest.peek() {
                Some(highest) if (key, entry.name) < (highest.key, &*highest.name) => {
                    self.lowest.pop()
                }
                _ => return,
            };
        }
        let file_type = entry.file_type.map(FileType::dirent_byte);
        self.lowest.push(Candidate { key, name: entry.name.into(), ino, file_type });
    }

    /// Hands the entries on in order. Entries before the position that share its key have been
    /// collected too, since only then the ordinals of the others are known.
    pub(super) fn deliver(
        self,
        each: &mut dyn FnMut(&DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<Delivered, Error> {
        let mut last: Option<(Key, u64)> = None;
        let mut until = self.from;
        for candidate in self.lowest.into_sorted_vec() {
            let ordinal = match last {
                Some((key, ordinal)) if key == candidate.key => ordinal + 1,
                _ => 0,
            };
            last = Some((candidate.key, ordinal));
            let position = Position::of(candidate.key, ordinal);
            until = until.max(position.after());
            if position < self.from {
                continue;
            }
            let entry = DirEntry {
                ino: candidate.ino,
                file_type: candidate.file_type.and_then(FileType::from_dirent),
                name: &candidate.name,
                next: position.after().cookie(),
            };
            if each(&entry).is_break() {
                return Ok(Delivered::Stopped);
            }
        }
        Ok(if self.overflowed { Delivered::Until(until) } else { Delivered::All })
    }
}
