//! "The next group after this one that may have such a run", as cheap for a million groups as for
//! a hundred.

use lanefs_lanes::sync::atomic::{AtomicU64, Ordering};

/// A set of numbers as bits, with a bit above for each word that has any, and so on up to one word.
///
/// Changes are rare, for the lines are shared by many groups: a chooser that finds an entry stale
/// takes it out, and only space that becomes free puts it back.
///
/// *Invariant*: at rest, a bit above is set if its word has any. While a word loses its last bit
/// and gains another at the same time, a search may miss the new one.
#[derive(Debug)]
pub(crate) struct Set {
    levels: Vec<Box<[AtomicU64]>>,
}

impl Set {
    /// An empty set of numbers below `len`.
    pub(crate) fn new(len: u32) -> Set {
        let mut levels = Vec::new();
        let mut bits = len.max(1) as usize;
        loop {
            let words = bits.div_ceil(64);
            levels.push((0..words).map(|_| AtomicU64::new(0)).collect());
            if words == 1 {
                return Set { levels };
            }
            bits = words;
        }
    }

    /// Puts a number in; writes nothing if it is there.
    pub(crate) fn insert(&self, number: u32) {
        self.insert_at(0, number as usize);
    }

    fn insert_at(&self, from: usize, mut at: usize) {
        for level in &self.levels[from..] {
            let (word, bit) = (&level[at / 64], 1 << (at % 64));
            // SeqCst: if this sees the bit above still set, then whoever is about to clear it will
            // see what was inserted below, and set it again.
            if word.load(Ordering::SeqCst) & bit == 0 {
                word.fetch_or(bit, Ordering::SeqCst);
            }
            at /= 64;
        }
    }

    /// Takes a number out; writes nothing if it is not there.
    pub(crate) fn remove(&self, number: u32) {
        self.remove_at(0, number as usize);
    }

    fn remove_at(&self, level: usize, at: usize) {
        let Some(words) = self.levels.get(level) else { return };
        let (word, bit) = (&words[at / 64], 1u64 << (at % 64));
        if word.load(Ordering::SeqCst) & bit == 0 {
            return;
        }
        if word.fetch_and(!bit, Ordering::SeqCst) & !bit == 0 {
            self.remove_at(level + 1, at / 64);
            if word.load(Ordering::SeqCst) != 0 {
                self.insert_at(level + 1, at / 64);
            }
        }
    }

    /// The first number at `from` or later.
    pub(crate) fn next(&self, from: u32) -> Option<u32> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_set_does_as_a_sorted_set_does() {
        let seed = fastrand::u64(..);
        eprintln!("seed {seed}");
        let mut rng = fastrand::Rng::with_seed(seed);
        for len in [1, 64, 65, 5000, 300_000] {
            let (set, mut model) = (Set::new(len), BTreeSet::new());
            for round in 0..4000 {
                let number = rng.u32(0..len);
                if rng.usize(0..4000) > round {
                    set.insert(number);
                    model.insert(number);
                } else {
                    set.remove(number);
                    model.remove(&number);
                }
                let from = rng.u32(0..len);
                assert_eq!(set.next(from), model.range(from..).next().copied());
            }
            assert_eq!(set.next(len), None);
        }
    }

    #[test]
    fn what_threads_insert_is_found_when_they_are_done() {
        for _ in 0..200 {
            let set = Set::new(64 * 64 * 4);
            std::thread::scope(|s| {
                for thread in 0..4u32 {
                    let set = &set;
                    s.spawn(move || {
                        // All in one word, so that it is emptied and filled all the time.
                        for i in 0..200 {
                            set.insert(7000 / 64 * 64 + thread * 16 + i % 16);
                            set.remove(7000 / 64 * 64 + thread * 16 + i % 16);
                        }
                        set.insert(7000 / 64 * 64 + thread);
                    });
                }
            });
            assert_eq!(set.next(0), Some(7000 / 64 * 64));
        }
    }
}
