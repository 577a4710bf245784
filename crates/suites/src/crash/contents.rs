//! The contents that a file may have after a crash.

use super::words::word;

/// A change of the bytes `start..end` of a file.
#[derive(Debug, Clone, Copy)]
pub struct Change {
    /// The operation, counted from 1.
    pub op: usize,
    /// The offset of the first byte.
    pub start: u64,
    /// The offset after the last byte.
    pub end: u64,
    /// What was done to the bytes.
    pub what: What,
}

/// What a change did to its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// The bytes were written.
    Written,
    /// The bytes became zeros.
    Zeros,
    /// The bytes were removed, and the bytes after them moved to the offset of the removed bytes.
    Collapsed,
    /// A hole was inserted at these bytes, and the old bytes from `start` on moved to the end of
    /// the hole.
    Inserted,
}

impl Change {
    /// Returns whether the change moved bytes to other offsets.
    pub fn moves(&self) -> bool {
        matches!(self.what, What::Collapsed | What::Inserted)
    }

    fn covers(&self, offset: u64) -> bool {
        (self.start..self.end).contains(&offset)
    }
}

/// The contents that a file may have. The changes up to some operation are certain; each later
/// change may or may not be present.
pub(super) struct Contents {
    id: u64,
    sure: Vec<u64>,
    maybe: Vec<Change>,
}

impl Contents {
    /// Returns the contents of file `id` after the changes up to operation `sure`. The changes
    /// after `sure`, up to operation `last`, may or may not be present. If a change after `sure`
    /// would move bytes, it is assumed to have had no effect.
    pub(super) fn of(id: u64, changes: &[Change], sure: usize, last: usize) -> Contents {
        let mut words = Vec::new();
        for change in changes.iter().filter(|change| change.op <= sure) {
            apply(id, change, &mut words);
        }
        let is_later = |change: &&Change| change.op > sure && change.op <= last;
        Contents { id, sure: words, maybe: changes.iter().filter(is_later).copied().collect() }
    }

    /// Returns the word at `offset` after the changes that are certain.
    pub(super) fn sure(&self, offset: u64) -> u64 {
        self.sure.get((offset / 8) as usize).copied().unwrap_or(0)
    }

    /// Returns whether `found` may be the word at `offset`.
    pub(super) fn may_have(&self, offset: u64, found: u64) -> bool {
        if found == self.sure(offset) {
            return true;
        }
        // A crash that loses a collapse or an insert loses all later changes too. If it kept a
        // later write, the write would be at an offset that was never written.
        self.maybe.iter().take_while(|change| !change.moves()).any(|change| {
            change.covers(offset)
                && match change.what {
                    What::Written => found == word(self.id, change.op, offset),
                    What::Zeros => found == 0,
                    What::Collapsed | What::Inserted => false,
                }
        })
    }
}

/// Applies a change to the words of file `id`. Words beyond the end of `words` count as zeros.
fn apply(id: u64, change: &Change, words: &mut Vec<u64>) {
    let index = |offset: u64| usize::try_from(offset.div_ceil(8)).unwrap_or(usize::MAX);
    let (start, end, len) = (index(change.start), index(change.end), words.len());
    match change.what {
        What::Written => {
            words.resize(len.max(end), 0);
            for (n, place) in words[start..end].iter_mut().zip(start..end) {
                *n = word(id, change.op, place as u64 * 8);
            }
        }
        What::Zeros => words[start.min(len)..end.min(len)].fill(0),
        What::Collapsed => drop(words.drain(start.min(len)..end.min(len))),
        What::Inserted if start < len => {
            words.splice(start..start, std::iter::repeat_n(0, end - start));
        }
        What::Inserted => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WRITTEN: Change = Change { op: 1, start: 0, end: 32, what: What::Written };

    #[test]
    fn a_write_after_a_lost_collapse_is_lost_too() {
        let collapsed = Change { op: 2, start: 0, end: 16, what: What::Collapsed };
        let later = Change { op: 3, start: 0, end: 8, what: What::Written };
        let changes = [WRITTEN, collapsed, later];
        let lost = Contents::of(7, &changes, 1, 3);
        assert!(lost.may_have(0, word(7, 1, 0)) && lost.may_have(16, word(7, 1, 16)));
        assert!(!lost.may_have(0, word(7, 3, 0)) && !lost.may_have(16, word(7, 3, 0)));
        let kept = Contents::of(7, &changes, 2, 3);
        assert!(kept.may_have(0, word(7, 3, 0)) && kept.may_have(0, word(7, 1, 16)));
        assert!(!kept.may_have(0, word(7, 1, 0)) && kept.may_have(8, word(7, 1, 24)));
    }

    #[test]
    fn a_write_after_a_lost_insert_is_lost_too() {
        let inserted = Change { op: 2, start: 8, end: 16, what: What::Inserted };
        let later = Change { op: 3, start: 8, end: 24, what: What::Written };
        let changes = [WRITTEN, inserted, later];
        let lost = Contents::of(7, &changes, 1, 3);
        assert!(lost.may_have(8, word(7, 1, 8)) && !lost.may_have(8, word(7, 3, 16)));
        assert!(!lost.may_have(8, word(7, 3, 8)) && !lost.may_have(16, word(7, 3, 16)));
        let kept = Contents::of(7, &changes, 2, 2);
        assert!(kept.may_have(8, 0) && kept.may_have(16, word(7, 1, 8)));
    }
}
