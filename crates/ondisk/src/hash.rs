//! Directory hashes: legacy, half MD4 and TEA, each with signed or unsigned bytes.
//!
//! The root of a directory's index names the hash that it uses. A flag of the superblock determines
//! whether the bytes of a name count as signed. The program that created the file system set this
//! flag according to whether `char` was signed on its machine. Sources: kernel documentation,
//! *ext4: Hash Tree Directories*; MD4 as in RFC 1320, reduced to eight of its sixteen words; TEA as
//! published by Wheeler and Needham, with sixteen cycles. The test values come from `debugfs -R
//! dx_hash`.

use crate::casefold::Folding;

/// The kind of hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HashVersion {
    /// The hash of the first prototypes. Many names collide.
    Legacy = 0,
    /// Half of MD4, the default of `mke2fs`.
    HalfMd4 = 1,
    /// The Tiny Encryption Algorithm, used as a hash.
    Tea = 2,
}

impl HashVersion {
    /// Decodes the version from a byte of the superblock or of the root of an index.
    pub fn from_byte(byte: u8) -> Option<HashVersion> {
        Some(match byte {
            0 => HashVersion::Legacy,
            1 => HashVersion::HalfMd4,
            2 => HashVersion::Tea,
            _ => return None,
        })
    }

    /// Returns the byte that stands for the version in the root of an index.
    pub fn byte(self) -> u8 {
        self as u8
    }
}

/// The interpretation of name bytes above 127.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NameBytes {
    /// Bytes above 127 are negative numbers (superblock flag 1).
    Signed,
    /// Bytes above 127 are positive numbers (superblock flag 2).
    Unsigned,
}

/// The hash of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NameHash {
    /// The part of the hash by which the index is sorted. The low bit is clear, and the value is
    /// always below [`MAX_MAJOR`].
    pub major: u32,
    /// Another 32 bits of the hash; 0 with the legacy hash.
    pub minor: u32,
}

/// The value that means "the end of the directory" to readers. This value is never the hash of a
/// name.
pub const MAX_MAJOR: u32 = 0xffff_fffe;

/// Hashes the names of one file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NameHasher {
    /// The kind of hash.
    pub version: HashVersion,
    /// The interpretation of bytes above 127.
    pub bytes: NameBytes,
    /// `s_hash_seed`; all zero means the standard start values.
    pub seed: [u32; 4],
    /// How the directory compares names. Names that are equal in this comparison have equal hashes.
    pub folding: Folding,
}

/// The start values of MD4. They serve as the seed if the file system has no seed.
const DEFAULT_SEED: [u32; 4] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];

impl NameHasher {
    /// Hashes a name. "." and ".." are not in an index and need no hash.
    pub fn hash(&self, name: &[u8]) -> NameHash {
        match self.folding {
            Folding::None => self.hash_bytes(name),
            folding => self.hash_bytes(&folding.form(name)),
        }
    }

    fn hash_bytes(&self, name: &[u8]) -> NameHash {
        let seed = if self.seed == [0; 4] { DEFAULT_SEED } else { self.seed };
        let (major, minor) = match self.version {
            HashVersion::Legacy => (self.legacy(name), 0),
            HashVersion::HalfMd4 => {
                let state = self.fold::<8>(name, seed, half_md4);
                (state[1], state[2])
            }
            HashVersion::Tea => {
                let state = self.fold::<4>(name, seed, tea);
                (state[0], state[1])
            }
        };
        let major = match major & !1 {
            MAX_MAJOR => MAX_MAJOR - 2,
            major => major,
        };
        NameHash { major, minor }
    }

    fn byte(&self, byte: u8) -> u32 {
        match self.bytes {
            NameBytes::Signed => byte as i8 as u32,
            NameBytes::Unsigned => u32::from(byte),
        }
    }

    fn legacy(&self, name: &[u8]) -> u32 {
        let (mut last, mut before) = (0x12a3_fe2d_u32, 0x37ab_e8f9_u32);
        for &byte in name {
            let mut next = before.wrapping_add(last ^ self.byte(byte).wrapping_mul(7_152_373));
            if next >> 31 == 1 {
                next = next.wrapping_sub(0x7fff_ffff);
            }
            (before, last) = (last, next);
        }
        last << 1
    }

    /// Passes the name to `round` in pieces of `WORDS` words. Each word is built from four bytes,
    /// of which the first is the most significant. If the name does not fill the last piece, that
    /// piece is padded: the value of each padding byte is the number of bytes of the name in this
    /// piece.
    fn fold<const WORDS: usize>(
        &self,
        name: &[u8],
        mut state: [u32; 4],
        round: fn(&mut [u32; 4], &[u32; WORDS]),
    ) -> [u32; 4] {
        let mut rest = name;
        while !rest.is_empty() {
            let padding = (rest.len() as u32).wrapping_mul(0x0101_0101);
            let (piece, after) = rest.split_at(rest.len().min(WORDS * 4));
            let mut words = [padding; WORDS];
            for (word, bytes) in words.iter_mut().zip(piece.chunks(4)) {
                if let &[first, second, third, last] = bytes
                    && bytes.is_ascii()
                {
                    *word = u32::from_be_bytes([first, second, third, last]);
                    continue;
                }
                for &byte in bytes {
                    *word = (*word << 8).wrapping_add(self.byte(byte));
                }
            }
            round(&mut state, &words);
            rest = after;
        }
        state
    }
}

/// Computes one block of MD4 with eight message words instead of sixteen. Each of the three rounds
/// has eight steps, and takes the words in a different order.
fn half_md4(state: &mut [u32; 4], words: &[u32; 8]) {
    let before = *state;
    let choose = |x: u32, y: u32, z: u32| (x & y) | (!x & z);
    md4_round(state, words, choose, 0, [0, 1, 2, 3, 4, 5, 6, 7], [3, 7, 11, 19]);
    let most = |x: u32, y: u32, z: u32| (x & y) | (x & z) | (y & z);
    md4_round(state, words, most, 0x5a82_7999, [1, 3, 5, 7, 0, 2, 4, 6], [3, 5, 9, 13]);
    let odd = |x: u32, y: u32, z: u32| x ^ y ^ z;
    md4_round(state, words, odd, 0x6ed9_eba1, [3, 7, 2, 6, 1, 5, 0, 4], [3, 9, 11, 15]);
    for (value, add) in state.iter_mut().zip(before) {
        *value = value.wrapping_add(add);
    }
}

/// Computes one round of MD4. Always inlined, so that the compiler knows the order of the words and
/// unrolls the steps. This matters because the function hashes every name in every directory that
/// is read.
#[inline(always)]
fn md4_round(
    state: &mut [u32; 4],
    words: &[u32; 8],
    mix: impl Fn(u32, u32, u32) -> u32,
    constant: u32,
    order: [usize; 8],
    shifts: [u32; 4],
) {
    let [mut a, mut b, mut c, mut d] = *state;
    for (step, word) in order.into_iter().enumerate() {
        let sum = a.wrapping_add(mix(b, c, d)).wrapping_add(words[word]).wrapping_add(constant);
        (a, d, c, b) = (d, c, b, sum.rotate_left(shifts[step % 4]));
    }
    *state = [a, b, c, d];
}

/// Computes sixteen cycles of TEA with the message as the key; only the first two words of the
/// state change.
fn tea(state: &mut [u32; 4], key: &[u32; 4]) {
    let (mut y, mut z) = (state[0], state[1]);
    let mut sum = 0u32;
    let half = |v: u32, sum: u32, k0: u32, k1: u32| {
        (v << 4).wrapping_add(k0) ^ v.wrapping_add(sum) ^ (v >> 5).wrapping_add(k1)
    };
    for _ in 0..16 {
        sum = sum.wrapping_add(0x9e37_79b9);
        y = y.wrapping_add(half(z, sum, key[0], key[1]));
        z = z.wrapping_add(half(y, sum, key[2], key[3]));
    }
    state[0] = state[0].wrapping_add(y);
    state[1] = state[1].wrapping_add(z);
}
