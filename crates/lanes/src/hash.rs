//! The hash of maps, wait queues and name caches, with keys drawn at random once per process.
//!
//! An image determines the names of its files and the numbers of its inodes. Because of the random
//! keys, the author of an image cannot choose names or numbers that fall into one bucket:
//! - A number is multiplied by a random odd number, and the *highest* bits are used. If two numbers
//!   are chosen without knowing this factor, the probability that both fall into the same one of
//!   *m* buckets is at most 2/*m* (Dietzfelbinger, Hagerup, Katajainen, Penttonen, "A reliable
//!   randomized algorithm for the closest-pair problem", 1997). Only factors that also spread
//!   consecutive numbers are used.
//! - A name is read in words of eight bytes. Each word is mixed into a secret state. The result is
//!   multiplied by a secret number, and the two halves of the 128-bit product are folded.
//!
//! Under the schedule checkers, and in tools that trace memory accesses or count instructions
//! ([`fix_hash_keys`]), the keys are fixed.

use crate::sync::unscheduled::OnceLock;
use std::hash::{BuildHasher, Hasher, RandomState};

/// Computes the product in 128 bits and folds its two halves together, so that each bit of the
/// input affects each bit of the output.
#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

/// The keys of the hashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Keys {
    name: NameKey,
    number: NumberKey,
}

/// The key for names, and for numbers whose whole hash is used. A name cache keeps a copy of the
/// key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NameKey {
    /// The initial state, which is also added after each word.
    seed: u64,
    /// The factor for words, which is odd.
    step: u64,
}

/// The factor for numbers, which is odd; see [`NumberKey::spreads`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NumberKey(u64);

static KEYS: OnceLock<Keys> = OnceLock::new();

#[inline]
fn keys() -> &'static Keys {
    KEYS.get_or_init(Keys::of_process)
}

/// Makes hashes the same in each run, for tools that trace memory accesses or count instructions.
/// Must be called before anything is hashed.
///
/// # Panics
/// If random keys were used already.
pub fn fix_hash_keys() {
    let fixed = *KEYS.get_or_init(|| Keys::FIXED) == Keys::FIXED;
    assert!(fixed, "the keys of hashes are fixed before they are drawn");
}

impl Keys {
    // Odd numbers without a pattern: digits of pi and of the golden ratio. The key for numbers is
    // 2^64 divided by the golden ratio (Knuth, The Art of Computer Programming 3, 6.4: "Fibonacci
    // hashing").
    const FIXED: Keys = Keys {
        name: NameKey { seed: 0x243F_6A88_85A3_08D3, step: 0x9E37_79B9_7F4A_7C15 },
        number: NumberKey(0x9E37_79B9_7F4A_7C15),
    };

    #[cold]
    fn of_process() -> Keys {
        if cfg!(any(loom, shuttle)) {
            return Keys::FIXED;
        }
        // The only source of random numbers in `std`, seeded by the system.
        let random = RandomState::new();
        Keys::of(|n| random.hash_one(n))
    }

    /// Creates keys from `word`, which returns a random-looking word for each number.
    fn of(word: impl Fn(u64) -> u64) -> Keys {
        let number = (2..).map(|n| NumberKey(word(n) | 1)).find(|key| key.spreads());
        let name = NameKey { seed: word(0), step: word(1) | 1 };
        Keys { name, number: number.unwrap_or(Keys::FIXED.number) }
    }
}

impl NameKey {
    /// Returns the key of this process.
    #[inline]
    pub fn of_process() -> NameKey {
        keys().name
    }

    /// Returns a hash of bytes for [`NameKey::join`]. This hash by itself is not spread evenly
    /// enough for a table.
    #[inline]
    pub fn hash(self, bytes: &[u8]) -> u64 {
        let mut hasher = KeyedHasher::with(self);
        hasher.write(bytes);
        hasher.state
    }

    /// Returns the number of bytes before the first `end`, and the [`NameKey::hash`] of these
    /// bytes. If no byte equals `end`, returns the number and the hash of all bytes. `end` must not
    /// be zero. Reads the bytes once.
    #[inline(always)]
    pub fn hash_before(self, end: u8, bytes: &[u8]) -> (usize, u64) {
        let mut hasher = KeyedHasher::with(self);
        let (words, rest) = bytes.as_chunks::<8>();
        let mut len = 0;
        for word in words {
            let word = u64::from_le_bytes(*word);
            if let Some(at) = place_in_word(end, word) {
                return (len + at, hasher.after_rest(word & first_bytes(at), len + at));
            }
            hasher.write_u64(word);
            len += 8;
        }
        let word = padded_word(rest);
        let at = place_in_word(end, word).unwrap_or(rest.len());
        (len + at, hasher.after_rest(word & first_bytes(at), len + at))
    }

    /// Returns a hash for a table. It covers `number`, and the bytes whose [`NameKey::hash`] is
    /// `hash`.
    #[inline]
    pub fn join(self, hash: u64, number: u64) -> u64 {
        let mut hasher = KeyedHasher { state: hash, key: self };
        hasher.write_u64(number);
        hasher.finish()
    }
}

/// Returns the index of the first byte in `word` that equals `wanted`, counted from the lowest
/// byte.
#[inline]
fn place_in_word(wanted: u8, word: u64) -> Option<usize> {
    const ONES: u64 = u64::from_le_bytes([1; 8]);
    let other = word ^ (ONES * u64::from(wanted));
    // The first byte that is zero is the lowest byte whose highest bit gets set.
    let same = other.wrapping_sub(ONES) & !other & (ONES << 7);
    (same != 0).then(|| same.trailing_zeros() as usize / 8)
}

/// Returns the mask of the lowest `count` bytes of a word. `count` is less than eight.
#[inline]
fn first_bytes(count: usize) -> u64 {
    (1 << (count * 8)) - 1
}

impl NumberKey {
    /// Returns the key of this process.
    pub(crate) fn of_process() -> NumberKey {
        keys().number
    }

    /// Returns a hash of a number; callers use its highest bits.
    #[inline]
    pub(crate) fn hash<K: std::hash::Hash>(self, key: &K) -> u64 {
        let mut hasher = NumberHasher { key: self, hash: 0 };
        key.hash(&mut hasher);
        hasher.finish()
    }

    /// Returns whether the key spreads both consecutive numbers and the first numbers of many
    /// groups of equal length. The inodes and blocks of a tree have such numbers. About one key in
    /// sixty spreads them, so about 2^57 keys remain possible.
    fn spreads(self) -> bool {
        self.spreads_rows() && self.spreads_groups()
    }

    /// Checks rows of up to 2^24 consecutive numbers. The multiples of a number between 0 and 1 are
    /// spread evenly if the terms of its continued fraction are small (Knuth, 6.4, theorem S;
    /// Niederreiter, "Random Number Generation and Quasi-Monte Carlo Methods", 1992, 3.1).
    fn spreads_rows(self) -> bool {
        const LARGEST: u128 = 8;
        let (mut over, mut under) = (1_u128 << 64, u128::from(self.0));
        let (mut length, mut before) = (1_u128, 0_u128);
        while length < 1 << 24 && under != 0 {
            let term = over / under;
            if term > LARGEST {
                return false;
            }
            (over, under) = (under, over % under);
            (length, before) = (term * length + before, length);
        }
        true
    }

    /// Checks the first 16 numbers of each of 64 groups, for several usual group lengths: no two of
    /// these numbers may fall into the same one of 2^14 buckets.
    fn spreads_groups(self) -> bool {
        let apart = |distance: i64| {
            let hash = self.0.wrapping_mul(distance as u64).cast_signed();
            hash.unsigned_abs() >> 50 != 0
        };
        [8176, 8192, 32_768, 4 * 32_768, 8 * 8192]
            .iter()
            .all(|group| (1..64).all(|n| (-15..16).all(|more| apart(n * group + more))))
    }
}

/// Returns up to seven bytes as a word, with zeros after them. The bytes are read in pieces that
/// may overlap. Copying them into a buffer first would cost a call, and then a stall when the
/// buffer is read as a word.
#[inline]
fn padded_word(bytes: &[u8]) -> u64 {
    if let (Some(low), Some(high)) = (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
        let before = (bytes.len() - 4) * 8;
        return u64::from(u32::from_le_bytes(*low))
            | u64::from(u32::from_le_bytes(*high)) << (before % 64);
    }
    match *bytes {
        [] => 0,
        [a] => a.into(),
        [a, b] => u64::from(a) | u64::from(b) << 8,
        [a, b, c, ..] => u64::from(a) | u64::from(b) << 8 | u64::from(c) << 16,
    }
}

/// A hasher for names, and for numbers whose whole hash is used.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KeyedHasher {
    state: u64,
    key: NameKey,
}

impl KeyedHasher {
    #[inline]
    fn with(key: NameKey) -> KeyedHasher {
        KeyedHasher { state: key.seed, key }
    }

    /// Returns the state after the last bytes of a name of `len` bytes. These bytes, `rest`, do not
    /// fill a whole word.
    #[inline]
    fn after_rest(mut self, rest: u64, len: usize) -> u64 {
        // The length distinguishes a short rest from the same bytes followed by zeros.
        self.write_u64(rest ^ (len as u64) << 56);
        self.state
    }
}

impl Default for KeyedHasher {
    #[inline]
    fn default() -> Self {
        KeyedHasher::with(keys().name)
    }
}

impl Hasher for KeyedHasher {
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.write_u64(u64::from_le_bytes(*word));
        }
        self.state = self.after_rest(padded_word(rest), bytes.len());
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
        self.state = fold(self.state ^ value, self.key.step).wrapping_add(self.key.seed);
    }
    #[inline]
    fn write_usize(&mut self, value: usize) {
        self.write_u64(value as u64);
    }
    #[inline]
    fn finish(&self) -> u64 {
        fold(self.state, self.key.step ^ self.state.rotate_left(32))
    }
}

/// Multiplies a number by the key. Different numbers have different hashes.
#[derive(Debug, Clone, Copy)]
struct NumberHasher {
    key: NumberKey,
    hash: u64,
}

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
        self.hash = (self.hash.rotate_left(32) ^ value).wrapping_mul(self.key.0);
    }
    #[inline]
    fn finish(&self) -> u64 {
        self.hash
    }
}

/// Returns a hash of `key`. The hash of a key does not change while the process runs.
#[inline]
pub fn hash_of<K: std::hash::Hash + ?Sized>(key: &K) -> u64 {
    hash_with(keys().name, key)
}

#[inline]
fn hash_with<K: std::hash::Hash + ?Sized>(name_key: NameKey, key: &K) -> u64 {
    let mut hasher = KeyedHasher::with(name_key);
    key.hash(&mut hasher);
    hasher.finish()
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
