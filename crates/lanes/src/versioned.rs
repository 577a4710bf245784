//! A word that can be read twice to detect any change in between, even one that restored the old
//! value.
//!
//! ```text
//! change:  word = new (Release); version += 1 (Release)       (writers are ordered by the caller)
//! look:    version (Acquire); word (Acquire)
//! still:   word (Acquire); version (Acquire): both as they were
//! ```
//!
//! A reader that sees the word that a change stored also sees the version that the previous change
//! stored. So if the word changed and changed back between `look` and `still`, and `still` sees the
//! second change, it also sees that the version is not the one that `look` saw.

use crate::sync::atomic::{AtomicU64, Ordering};

/// A word and the number of its changes.
#[derive(Debug)]
pub struct VersionedWord {
    word: AtomicU64,
    version: AtomicU64,
}

/// The result of a look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// The word.
    pub word: u64,
    /// The number of changes and of calls of [`VersionedWord::end`] at the time of the look, or one
    /// less.
    pub version: u64,
}

impl VersionedWord {
    /// Creates a word with this value.
    pub fn new(word: u64) -> VersionedWord {
        VersionedWord { word: AtomicU64::new(word), version: AtomicU64::new(0) }
    }

    /// Reads the word and its version.
    #[inline]
    pub fn look(&self) -> Seen {
        let version = self.version.load(Ordering::Acquire);
        Seen { word: self.word.load(Ordering::Acquire), version }
    }

    /// Returns whether the word has not changed since `seen` was read. May return false for an
    /// unchanged word.
    #[inline]
    pub fn is_still(&self, seen: Seen) -> bool {
        self.word.load(Ordering::Acquire) == seen.word
            && self.version.load(Ordering::Acquire) == seen.version
    }

    /// Changes the word. Callers must hold a common lock, which orders the changes.
    pub fn change(&self, word: u64) {
        if self.word.load(Ordering::Relaxed) != word {
            // Release: a reader of the word sees the version of the previous change.
            self.word.store(word, Ordering::Release);
            self.end();
        }
    }

    /// Makes [`VersionedWord::is_still`] return false for every [`Seen`] that was read before this
    /// call. Callers must hold a common lock, as for `change`.
    pub fn end(&self) {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version.wrapping_add(1), Ordering::Release);
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn a_change_and_a_change_back_are_seen() {
        let word = VersionedWord::new(1);
        let seen = word.look();
        word.change(1);
        assert!(word.is_still(seen), "nothing has changed");
        word.change(2);
        word.change(1);
        assert!(!word.is_still(seen));
        let seen = word.look();
        word.end();
        assert!(!word.is_still(seen));
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::sync::{Arc, thread};

    /// A name refers to inode 1, then to inode 2, then to inode 1 again. By then inode 1 is another
    /// object, since its number was freed and reused.
    #[test]
    fn loom_an_unchanged_version_means_an_unchanged_value() {
        crate::schedules::check(3, || {
            let word = Arc::new(VersionedWord::new(1));
            let thing = Arc::new(AtomicU64::new(0));
            let writer = {
                let (word, thing) = (word.clone(), thing.clone());
                thread::spawn(move || {
                    word.change(2);
                    thing.store(1, Ordering::Release);
                    word.change(1);
                })
            };
            let seen = word.look();
            let found = thing.load(Ordering::Acquire);
            if seen.version == 0 && seen.word == 1 && word.is_still(seen) {
                assert_eq!(found, 0, "`is_still` is true although the word changed");
            }
            writer.join().expect("no panic");
        });
    }
}
