//! Records which clusters are in use: one bit for each, set by several threads.

use lanefs_lanes::sync::atomic::{AtomicU64, Ordering};
use std::ops::Range;
use zerocopy::FromZeros;

const WORD: u64 = 64;

/// The clusters that files and metadata claim within one window, which is a part of the file
/// system. Claims outside of the window are ignored: the check of a file system that is larger than
/// the window makes one pass for each window.
pub struct Claims {
    words: Box<[AtomicU64]>,
    window: Range<u64>,
}

impl Claims {
    /// Creates an empty set of claims. The host provides zeroed memory only when it is first used,
    /// so a large but mostly empty file system costs little.
    pub fn new(window: Range<u64>) -> Option<Claims> {
        let words = (window.end - window.start).div_ceil(WORD);
        let words = <[AtomicU64]>::new_box_zeroed_with_elems(usize::try_from(words).ok()?).ok()?;
        Some(Claims { words, window })
    }

    /// Claims a run of clusters. Returns the parts of the run that had already been claimed.
    pub fn claim(&self, run: Range<u64>) -> Vec<Range<u64>> {
        let mut doubled: Vec<Range<u64>> = Vec::new();
        self.for_words(run, |word, mask, first| {
            let mut before = word.fetch_or(mask, Ordering::Relaxed) & mask;
            while before != 0 {
                let at = before.trailing_zeros();
                let len = (before >> at).trailing_ones();
                before &= !(u64::MAX >> (WORD as u32 - len) << at);
                let start = first + u64::from(at);
                let end = start + u64::from(len);
                match doubled.last_mut().filter(|last| last.end == start) {
                    Some(last) => last.end = end,
                    None => doubled.push(start..end),
                }
            }
        });
        doubled
    }

    /// Returns the first cluster of the run that has been claimed, if there is one.
    pub fn first_of(&self, run: Range<u64>) -> Option<u64> {
        let mut claimed = None;
        self.for_words(run, |word, mask, first| {
            let found = word.load(Ordering::Relaxed) & mask;
            if found != 0 && claimed.is_none() {
                claimed = Some(first + u64::from(found.trailing_zeros()));
            }
        });
        claimed
    }

    /// Returns the bits of the 64 clusters from `cluster` on.
    pub fn word_at(&self, cluster: u64) -> u64 {
        let Some(at) = cluster.checked_sub(self.window.start) else { return 0 };
        let load = |n: u64| {
            let word = usize::try_from(n).ok().and_then(|n| self.words.get(n));
            word.map_or(0, |word| word.load(Ordering::Relaxed))
        };
        match at % WORD {
            0 => load(at / WORD),
            shift => load(at / WORD) >> shift | load(at / WORD + 1) << (WORD - shift),
        }
    }

    /// For each word that has bits of the run, calls `f` with the word, the mask of these bits, and
    /// the cluster of the word's first bit.
    fn for_words(&self, run: Range<u64>, mut f: impl FnMut(&AtomicU64, u64, u64)) {
        let start = run.start.max(self.window.start) - self.window.start;
        let end = run.end.min(self.window.end).saturating_sub(self.window.start);
        let mut at = start;
        while at < end {
            let next = (at / WORD * WORD + WORD).min(end);
            let mask = (u64::MAX >> (WORD - (next - at))) << (at % WORD);
            let word = usize::try_from(at / WORD).ok().and_then(|n| self.words.get(n));
            if let Some(word) = word {
                f(word, mask, at / WORD * WORD + self.window.start);
            }
            at = next;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::slice::from_ref;

    #[test]
    fn a_second_claim_is_seen_at_its_clusters() {
        let claims = Claims::new(0..1000).unwrap();
        assert_eq!(claims.claim(10..200), []);
        assert_eq!(claims.claim(200..300), []);
        assert_eq!(claims.claim(299..400).as_slice(), from_ref(&(299..300)));
        assert_eq!(claims.claim(0..11).as_slice(), from_ref(&(10..11)));
        assert_eq!(claims.claim(600..640), []);
        assert_eq!(claims.claim(390..1000), [390..400, 600..640]);
        assert_eq!((claims.first_of(0..9), claims.first_of(1000..2000)), (Some(0), None));
        assert_eq!(claims.word_at(0), u64::MAX);
        assert_eq!(claims.word_at(995), 0b11111);
    }

    #[test]
    fn claims_outside_of_the_window_are_ignored() {
        let claims = Claims::new(128..256).unwrap();
        assert_eq!(claims.claim(0..130), []);
        assert_eq!(claims.claim(0..129).as_slice(), from_ref(&(128..129)));
        assert_eq!(claims.claim(255..1 << 40), []);
        assert_eq!((claims.word_at(128), claims.word_at(250)), (3, 1 << 5));
        assert_eq!(claims.claim(1 << 40..1 << 41), []);
    }
}
