//! Sequence-locked cells: small values that can be read without writing to memory.
//!
//! ```text
//! store:  sequence even -> odd (CAS, or a store of writers in order)
//!         RELEASE FENCE; words = ..; sequence = even + 2 (Release)
//! load:   before = sequence (Acquire), even; words; ACQUIRE FENCE; sequence unchanged, or again
//! ```
//!
//! Suppose that a store begins after a reader has first read `sequence`, and the reader sees one
//! word of this store. Then the two fences ensure that the reader's second read of `sequence` sees
//! the odd number that was stored before that word, or a later number. The words are atomics, so
//! that reading them during a store is no data race.

use crate::sync::atomic::{AtomicU64, Ordering, fence};
use crate::words::{WordArray, Words};
use crate::world;

/// A small value that is replaced as a whole. A read writes nothing, and never returns a mixture of
/// two values.
///
/// Meant for a value that is read much more often than written, because a reader that overlaps a
/// store tries again.
#[derive(Debug)]
pub struct SeqCell<T: Words> {
    /// Odd during a store.
    sequence: AtomicU64,
    words: <T::Array as WordArray>::Atomics,
}

impl<T: Words> SeqCell<T> {
    /// Creates a cell with `value`.
    #[inline]
    pub fn new(value: T) -> SeqCell<T> {
        SeqCell { sequence: AtomicU64::new(0), words: value.to_words().into_atomics() }
    }

    /// Returns the value, never a mixture of two.
    #[inline]
    pub fn load(&self) -> T {
        let mut round = 0;
        loop {
            let (words, whole) = self.read();
            if whole {
                return T::from_words(words);
            }
            world::relax(round);
            round = round.saturating_add(1);
        }
    }

    /// Returns the value, unless a store was in progress.
    #[inline]
    pub fn try_load(&self) -> Option<T> {
        let (words, whole) = self.read();
        whole.then(|| T::from_words(words))
    }

    /// Returns the words, and whether all of them belong to the same value.
    #[inline]
    fn read(&self) -> (T::Array, bool) {
        let before = self.sequence.load(Ordering::Acquire);
        let words = <T::Array as WordArray>::load(&self.words);
        fence(Ordering::Acquire);
        let after = self.sequence.load(Ordering::Relaxed);
        (words, before & 1 == 0 && before == after)
    }

    /// Returns only word `at` of the value. The store that wrote this word may still be in
    /// progress, so this function is for readers that need no other word of the same store.
    ///
    /// # Panics
    /// If the value has no such word.
    #[inline]
    pub fn word(&self, at: usize) -> u64 {
        // Acquire, paired with the fence in the store, so that the caller also sees what the writer
        // did before that store.
        <T::Array as WordArray>::word(&self.words, at).load(Ordering::Acquire)
    }

    /// Replaces the value. Writers should hold a common lock, which orders them. Writers without a
    /// common lock wait for each other in this function, and the value of the last writer stays.
    pub fn store(&self, value: T) {
        let words = value.to_words();
        let odd = self.begin();
        self.finish(odd, |atomics| words.store(atomics));
    }

    /// Works like [`SeqCell::store`], with one locked instruction less. Writers must hold a common
    /// lock, because otherwise readers may see a mixture of two values.
    pub fn store_in_order(&self, value: T) {
        let words = value.to_words();
        self.change_in_order(|atomics| words.store(atomics));
    }

    /// Works like [`SeqCell::store_in_order`], but replaces only `words`, which are given with
    /// their indexes.
    ///
    /// # Panics
    /// If the value has no such word.
    #[inline]
    pub fn store_words_in_order<const N: usize>(&self, words: [(usize, u64); N]) {
        self.change_in_order(|atomics| {
            for (at, word) in words {
                <T::Array as WordArray>::word(atomics, at).store(word, Ordering::Relaxed);
            }
        });
    }

    /// Makes the sequence odd, calls `store`, and makes the sequence even again. Writers must hold
    /// a common lock.
    #[inline]
    fn change_in_order(&self, store: impl FnOnce(&<T::Array as WordArray>::Atomics)) {
        let odd = self.sequence.load(Ordering::Relaxed).wrapping_add(1);
        debug_assert!(odd & 1 == 1, "two writers at once");
        self.sequence.store(odd, Ordering::Relaxed);
        self.finish(odd, store);
    }

    /// Completes a store that made the sequence `odd`.
    #[inline]
    fn finish(&self, odd: u64, store: impl FnOnce(&<T::Array as WordArray>::Atomics)) {
        fence(Ordering::Release);
        store(&self.words);
        self.sequence.store(odd.wrapping_add(1), Ordering::Release);
    }

    /// Makes the sequence odd, which excludes other writers. Returns the odd number.
    fn begin(&self) -> u64 {
        let mut round = 0;
        loop {
            let now = self.sequence.load(Ordering::Relaxed);
            let odd = now.wrapping_add(1);
            let (acquire, relaxed) = (Ordering::Acquire, Ordering::Relaxed);
            if now & 1 == 0
                && self.sequence.compare_exchange_weak(now, odd, acquire, relaxed).is_ok()
            {
                return odd;
            }
            world::relax(round);
            round = round.saturating_add(1);
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::sync::unscheduled::atomic::AtomicBool;

    #[test]
    fn a_cell_gives_what_was_stored_last() {
        let cell = SeqCell::new(3_u32);
        cell.store(4);
        assert_eq!(cell.load(), 4);
        let cell = SeqCell::new([5_u64, 6, 7]);
        assert_eq!(cell.word(1), 6);
        cell.store_words_in_order([(2, 8), (0, 4)]);
        assert_eq!(cell.load(), [4, 6, 8]);
    }

    #[test]
    fn readers_never_see_a_torn_value_between_two_writers() {
        let cell = SeqCell::new([0_u64; 8]);
        let done = AtomicBool::new(false);
        std::thread::scope(|s| {
            for _ in 0..2 {
                s.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        let seen = cell.load();
                        assert!(seen.iter().all(|w| *w == seen[0]), "{seen:?}");
                    }
                });
            }
            let writers: Vec<_> = (0..2_u64)
                .map(|me| {
                    let cell = &cell;
                    s.spawn(move || (0..20_000).for_each(|n| cell.store([n * 2 + me; 8])))
                })
                .collect();
            writers.into_iter().for_each(|w| w.join().expect("no panic"));
            done.store(true, Ordering::Relaxed);
        });
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::sync::{Arc, thread};

    #[test]
    fn loom_a_value_is_never_torn() {
        crate::schedules::check(3, || {
            let cell = Arc::new(SeqCell::new([0_u64; 2]));
            let reader = {
                let cell = cell.clone();
                thread::spawn(move || {
                    for _ in 0..2 {
                        if let Some([a, b]) = cell.try_load() {
                            assert_eq!(a, b, "torn value");
                        }
                    }
                })
            };
            // The writer is the thread that runs first. Loom reorders an access only with the
            // latest earlier access to the same location. If the reader ran first, the latest
            // earlier access to each location would be the load with which a store begins, so Loom
            // would not try other orders of the reader's accesses.
            (1..=2).for_each(|n| cell.store([n; 2]));
            reader.join().expect("no panic");
            assert_eq!(cell.load(), [2; 2]);
        });
    }

    #[test]
    fn loom_unordered_writers_do_not_mix() {
        crate::schedules::check(3, || {
            let cell = Arc::new(SeqCell::new([0_u64; 2]));
            let writer = {
                let cell = cell.clone();
                thread::spawn(move || cell.store([1; 2]))
            };
            cell.store([2; 2]);
            let [a, b] = cell.load();
            assert_eq!(a, b, "torn value");
            writer.join().expect("no panic");
        });
    }
}
