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

/// Multiplies a number by 2^64 divided by the golden ratio (Knuth, The Art of Computer Programming 3,
/// 6.4: "Fibonacci hashing"): numbers in a row, and the first ones of many groups of equal length, as
/// inodes and blocks have them, fall far apart in the *highest* bits. No two have one hash.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct NumberHasher(u64);

impl Hasher for NumberHasher {
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }
    #[inline]
    fn write_u32(&mut self, value: u32) {
        self.write_u64(u64::from(value));
    }
    #[inline]
    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0.rotate_left(32) ^ value).wrapping_mul(STEP);
    }
    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}

/// A hash of a number, of which the highest bits are to be used.
#[inline]
pub(crate) fn number_hash_of<K: std::hash::Hash>(key: &K) -> u64 {
    let mut hasher = NumberHasher::default();
    key.hash(&mut hasher);
    hasher.finish()
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
    use std::collections::HashSet;

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
    fn numbers_of_many_groups_fall_into_buckets_of_their_own() {
        for (group, apart) in [(8192, 1), (8192, 8), (8176, 1), (32768, 1), (32768, 4)] {
            let firsts = (0..64).flat_map(|g| (12..28).map(move |n| g * apart * group + n));
            let buckets: HashSet<u64> = firsts.map(|n: u64| number_hash_of(&n) >> 50).collect();
            assert_eq!(buckets.len(), 64 * 16, "groups of {group}, each {apart}th");
        }
    }

    #[test]
    fn numbers_in_a_row_fill_buckets_evenly() {
        for stride in [1, 3, 16, 64, 4096, 8192, 1 << 32] {
            let most = fullest((1..=4096_u64).map(|n| number_hash_of(&(n * stride))), 54);
            assert!(most < 12, "{most} of stride {stride}");
        }
    }

    #[test]
    fn a_rest_of_zeros_is_not_nothing() {
        assert_ne!(hash_of(&b"ab\0"[..]), hash_of(&b"ab"[..]));
        assert_ne!(hash_of(&[0_u8; 8][..]), hash_of(&[0_u8; 9][..]));
    }
}
