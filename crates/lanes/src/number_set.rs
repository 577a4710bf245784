//! Sets of numbers in which a search finds the next member in a few steps, however many members
//! there are.

use crate::sync::OnceLock;
use crate::sync::atomic::{AtomicU64, Ordering, fence};

/// A set of numbers, stored as bits. Above these bits there are further levels. Each bit of a level
/// stands for one word of the level below, and is set if that word has any bits. The top level is a
/// single word.
///
/// Meant for hints that change rarely and are looked up often. A search writes nothing, and neither
/// does a change that has no effect. Any other change writes a word that 64 numbers share.
///
/// *Invariant*: when no change is in progress, the bit for a word is set if the word has any bits.
/// While a word loses its last number and gains another, a search may briefly miss the new number.
/// The bit of an empty word may stay set, which costs searches one more step.
///
/// # Locking
/// The caller orders changes of the same number. Changes of different numbers need no order.
#[derive(Debug)]
pub struct NumberSet {
    levels: Vec<Box<[AtomicU64]>>,
    /// The set of the numbers that are too large for `levels`. Its number 0 stands for the first of
    /// them.
    next: OnceLock<Box<NumberSet>>,
}

impl NumberSet {
    /// Creates an empty set for numbers below `len`.
    pub fn new(len: u32) -> NumberSet {
        let mut levels = Vec::new();
        let mut bits = len.max(1) as usize;
        loop {
            let words = bits.div_ceil(64);
            levels.push((0..words).map(|_| AtomicU64::new(0)).collect());
            if words == 1 {
                return NumberSet { levels, next: OnceLock::new() };
            }
            bits = words;
        }
    }

    /// Returns the first number that is too large for `levels`.
    fn end(&self) -> u32 {
        self.levels.first().map_or(0, |words| words.len() as u32 * 64)
    }

    /// Makes room for numbers below `len`. The caller makes sure that only one thread at a time
    /// calls this function.
    ///
    /// # Panics
    /// If another thread grows the set at the same time.
    pub fn grow(&self, len: u32) {
        let Some(more) = len.checked_sub(self.end()).filter(|more| *more > 0) else { return };
        match self.next.get() {
            Some(next) => next.grow(more),
            None => {
                let added = self.next.set(Box::new(NumberSet::new(more)));
                assert!(added.is_ok(), "a set is extended by one thread at a time");
            }
        }
    }

    /// Adds a number.
    ///
    /// # Panics
    /// If `number` is not below the set's length, rounded up to a whole word.
    pub fn insert(&self, number: u32) {
        if let Some(later) = self.next.get()
            && let Some(number) = number.checked_sub(self.end())
        {
            return later.insert(number);
        }
        self.insert_from(0, number as usize);
    }

    fn insert_from(&self, level: usize, mut at: usize) {
        for words in &self.levels[level..] {
            let (word, bit) = place(at);
            // The thread that gives an empty word its first bit also sets the word's bit one level
            // up. If another thread is about to clear that bit, the other thread afterwards finds
            // that the word is no longer empty, and sets the bit again.
            if words[word].load(Ordering::Relaxed) & bit != 0
                || words[word].fetch_or(bit, Ordering::Relaxed) != 0
            {
                return;
            }
            // Either this thread sees that the upper bit is cleared, or the thread that cleared it
            // sees the new lower bit and sets the upper bit again.
            fence(Ordering::SeqCst);
            at = word;
        }
    }

    /// Removes a number.
    ///
    /// # Panics
    /// The same as for [`NumberSet::insert`].
    pub fn remove(&self, number: u32) {
        if let Some(later) = self.next.get()
            && let Some(number) = number.checked_sub(self.end())
        {
            return later.remove(number);
        }
        self.remove_from(0, number as usize);
    }

    fn remove_from(&self, level: usize, at: usize) {
        let Some(words) = self.levels.get(level) else { return };
        let (word, bit) = place(at);
        if words[word].load(Ordering::Relaxed) & bit == 0 {
            return;
        }
        if words[word].fetch_and(!bit, Ordering::Relaxed) & !bit == 0 {
            self.remove_from(level + 1, word);
            fence(Ordering::SeqCst);
            if words[word].load(Ordering::Relaxed) != 0 {
                self.insert_from(level + 1, word);
            }
        }
    }

    /// Returns the smallest number in the set that is not below `from`.
    pub fn next(&self, from: u32) -> Option<u32> {
        self.next_here(from).or_else(|| {
            let later = self.next.get()?.next(from.saturating_sub(self.end()))?;
            later.checked_add(self.end())
        })
    }

    fn next_here(&self, from: u32) -> Option<u32> {
        let (mut level, mut at) = (0, from as usize);
        loop {
            let word = self.levels.get(level)?.get(at / 64)?;
            let bits = word.load(Ordering::Relaxed) >> (at % 64);
            if bits == 0 {
                (level, at) = (level + 1, at / 64 + 1);
            } else {
                at += bits.trailing_zeros() as usize;
                if level == 0 {
                    return Some(at as u32);
                }
                (level, at) = (level - 1, at * 64);
            }
        }
    }
}

/// Returns the index of the word that contains a bit, and the bit's mask.
fn place(at: usize) -> (usize, u64) {
    (at / 64, 1 << (at % 64))
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::sync::{Arc, thread};

    const LOST: &str = "the number is lost";

    #[test]
    fn loom_a_number_that_comes_as_the_last_one_goes_is_found() {
        crate::schedules::check(3, || {
            let set = Arc::new(NumberSet::new(128));
            set.insert(1);
            let leaver = {
                let set = set.clone();
                thread::spawn(move || set.remove(1))
            };
            set.insert(2);
            leaver.join().expect("no panic");
            // The upper bit is checked directly, because a search from 0 starts in the number's own
            // word and does not need this bit.
            assert_eq!(set.levels[1][0].load(Ordering::Relaxed) & 1, 1, "{LOST}");
            assert_eq!(set.next(0), Some(2));
        });
    }

    #[test]
    fn loom_two_that_leave_and_one_that_comes_agree() {
        crate::schedules::check(3, || {
            let set = Arc::new(NumberSet::new(128));
            set.insert(1);
            set.insert(3);
            let leavers = [1, 3].map(|number| {
                let set = set.clone();
                thread::spawn(move || set.remove(number))
            });
            set.insert(2);
            for leaver in leavers {
                leaver.join().expect("no panic");
            }
            assert_eq!(set.levels[1][0].load(Ordering::Relaxed) & 1, 1, "{LOST}");
        });
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
