//! The hash of maps and wait queues: fixed, so that runs repeat, and quick on numbers and names.

use std::hash::Hasher;

/// Multiplies to 128 bits and folds the halves: each bit of the input reaches each of the output.
#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

// Odd numbers without pattern: digits of pi and of the golden ratio.
const SEED: u64 = 0x243F_6A88_85A3_08D3;
const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

/// Up to seven bytes in a word, in pieces that may overlap: a copy of some bytes to one place is a
/// call, and a wait when it is read as a word.
#[inline]
fn word_of(rest: &[u8]) -> u64 {
    if let (Some(low), Some(high)) = (rest.first_chunk::<4>(), rest.last_chunk::<4>()) {
        return u64::from(u32::from_le_bytes(*low)) | u64::from(u32::from_le_bytes(*high)) << 32;
    }
    match *rest {
        [] => 0,
        [a] => a.into(),
        [a, b] => u64::from(a) | u64::from(b) << 8,
        [a, b, c, ..] => u64::from(a) | u64::from(b) << 8 | u64::from(c) << 16,
    }
}

/// A hasher without keys. Not for where an attacker gains by collisions: who crafts an image can
/// make one bucket long, but not a map large.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FixedHasher(u64);

impl Default for FixedHasher {
    fn default() -> Self {
        FixedHasher(SEED)
    }
}

impl Hasher for FixedHasher {
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.write_u64(u64::from_le_bytes(*word));
        }
        // The length tells a short rest from one with zeros.
        self.write_u64(word_of(rest) ^ (bytes.len() as u64) << 56);
    }
    #[inline]
    fn write_u8(&mut self, value: u8) {
        self.write_u64(u64::from(value));
    }
    #[inline]
    fn write_u16(&mut self, value: u16) {
        self.write_u64(u64::from(value));
    }
    #[inline]
    fn write_u32(&mut self, value: u32) {
        self.write_u64(u64::from(value));
    }
    #[inline]
    fn write_u64(&mut self, value: u64) {
        self.0 = fold(self.0 ^ value, STEP).wrapping_add(SEED);
    }
    #[inline]
    fn write_usize(&mut self, value: usize) {
        self.write_u64(value as u64);
    }
    #[inline]
    fn finish(&self) -> u64 {
        fold(self.0, STEP ^ self.0.rotate_left(32))
    }
}

/// A hash of `key` that is the same in each run.
pub fn hash_of<K: std::hash::Hash + ?Sized>(key: &K) -> u64 {
    let mut hasher = FixedHasher::default();
    key.hash(&mut hasher);
    hasher.finish()
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    /// The fullest of 1024 buckets when `hashes` fall into them, four to each on average.
    fn fullest(hashes: impl Iterator<Item = u64>, shift: u32) -> u32 {
        let mut buckets = [0; 1024];
        hashes.for_each(|hash| buckets[(hash >> shift) as usize % 1024] += 1);
        buckets.into_iter().max().expect("there are buckets")
    }

    #[test]
    fn numbers_and_names_spread_in_the_low_and_in_the_high_bits() {
        for shift in [0, 32, 54] {
            for stride in [1_u64, 64, 4096, 1 << 32] {
                let most = fullest((0..4096).map(|n| hash_of(&(n * stride))), shift);
                assert!(most < 20, "{most} of stride {stride} at {shift}");
            }
            let names = fullest((0..4096).map(|n| hash_of(format!("file{n}").as_str())), shift);
            assert!(names < 20, "{names} at {shift}");
        }
    }

    #[test]
    fn a_rest_of_zeros_is_not_nothing() {
        assert_ne!(hash_of(&b"ab\0"[..]), hash_of(&b"ab"[..]));
        assert_ne!(hash_of(&[0_u8; 8][..]), hash_of(&[0_u8; 9][..]));
    }
}
