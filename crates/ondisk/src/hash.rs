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
    Legacy,
    /// Half of MD4, the default of `mke2fs`.
    HalfMd4,
    /// The Tiny Encryption Algorithm, used as a hash.
    Tea,
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
        match self {
            HashVersion::Legacy => 0,
            HashVersion::HalfMd4 => 1,
            HashVersion::Tea => 2,
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: &[u8] = b"a_rather_long_name_of_more_than_thirty_two_bytes_to_take_two_rounds.txt";
    const FULL: &[u8] = b"abcdefghijklmnopqrstuvwxyz012345";
    const UTF8: &[u8] = b"caf\xc3\xa9";
    const HIGH: &[u8] = b"\xff\xfe\x80zzzzz";

    fn check(
        version: HashVersion,
        bytes: NameBytes,
        seed: [u32; 4],
        name: &[u8],
        major: u32,
        minor: u32,
    ) {
        let hash = NameHasher { version, bytes, seed, folding: Folding::None }.hash(name);
        assert_eq!(
            (hash.major, hash.minor),
            (major, minor),
            "{version:?} {bytes:?} {}",
            name.escape_ascii()
        );
    }

    #[test]
    fn names_hash_as_debugfs_hashes_them() {
        use HashVersion::*;
        use NameBytes::*;
        let plain = [0; 4];
        for bytes in [Signed, Unsigned] {
            check(Legacy, bytes, plain, b"hello.txt", 0x65a0_5776, 0);
            check(HalfMd4, bytes, plain, b"hello.txt", 0xa26e_1d86, 0x133b_3f98);
            check(Tea, bytes, plain, b"hello.txt", 0x5107_c3f2, 0x0384_0cb7);
            check(Legacy, bytes, plain, b"a", 0xe74b_53e2, 0);
            check(HalfMd4, bytes, plain, b"a", 0xd5fa_7d7a, 0xacb4_8187);
            check(Tea, bytes, plain, b"a", 0x6d0e_a4c0, 0xc189_22df);
            check(Legacy, bytes, plain, LONG, 0xfe22_e9ca, 0);
            check(HalfMd4, bytes, plain, LONG, 0xb425_efb0, 0xcbd8_3da1);
            check(Tea, bytes, plain, LONG, 0x295c_b35c, 0x4a39_7a01);
            check(Legacy, bytes, plain, FULL, 0x8be2_2c02, 0);
            check(HalfMd4, bytes, plain, FULL, 0x1964_3b1a, 0xdde3_a0bf);
            check(Tea, bytes, plain, FULL, 0xe78c_76dc, 0x94dd_872b);
        }
    }

    #[test]
    fn bytes_above_127_hash_by_sign_as_debugfs_hashes_them() {
        use HashVersion::*;
        use NameBytes::*;
        let plain = [0; 4];
        check(Legacy, Signed, plain, UTF8, 0x96ca_5a2c, 0);
        check(HalfMd4, Signed, plain, UTF8, 0xfb9c_5e5c, 0x0573_e8b8);
        check(Tea, Signed, plain, UTF8, 0x1058_42ea, 0xfb91_65ca);
        check(Legacy, Unsigned, plain, UTF8, 0x6dde_4230, 0);
        check(HalfMd4, Unsigned, plain, UTF8, 0x9d72_aed6, 0xf613_8c6a);
        check(Tea, Unsigned, plain, UTF8, 0x6621_f032, 0xf866_99c6);
        check(Legacy, Signed, plain, HIGH, 0xaf04_e090, 0);
        check(HalfMd4, Signed, plain, HIGH, 0x0e32_1228, 0x95fd_c8ed);
        check(Tea, Signed, plain, HIGH, 0x2a76_a8e6, 0x21db_db96);
        check(Legacy, Unsigned, plain, HIGH, 0x01f3_7d3a, 0);
        check(HalfMd4, Unsigned, plain, HIGH, 0x1fb4_1a1c, 0xc337_8e73);
        check(Tea, Unsigned, plain, HIGH, 0x0469_8c98, 0x704a_4ced);
    }

    #[test]
    fn a_seed_changes_half_md4_and_tea() {
        // debugfs takes the seed as a UUID: 00112233-4455-6677-8899-aabbccddeeff.
        let seed = [0x3322_1100, 0x7766_5544, 0xbbaa_9988, 0xffee_ddcc];
        check(
            HashVersion::HalfMd4,
            NameBytes::Signed,
            seed,
            b"hello.txt",
            0xfd21_d2d0,
            0x1502_7261,
        );
        check(HashVersion::Tea, NameBytes::Signed, seed, b"hello.txt", 0x0392_5122, 0x4873_0c90);
    }

    #[test]
    fn a_folded_name_has_the_hash_of_its_form() {
        let (version, bytes, seed) = (HashVersion::HalfMd4, NameBytes::Signed, [0; 4]);
        let hasher = NameHasher { version, bytes, seed, folding: Folding::Lenient };
        // From debugfs -R "dx_hash -h half_md4 -c -e utf8 NAME"; the folded form of the last name
        // is empty.
        for (name, major, minor) in [
            ("ABC", 0xd196_a868, 0xc420_eb28),
            ("aBc\u{200d}", 0xd196_a868, 0xc420_eb28),
            ("\u{200d}", 0xefcd_ab88, 0x98ba_dcfe),
        ] {
            assert_eq!(hasher.hash(name.as_bytes()), NameHash { major, minor }, "{name}");
        }
    }

    #[test]
    fn no_name_hashes_to_the_end_of_the_directory() {
        let hasher = NameHasher {
            version: HashVersion::Legacy,
            bytes: NameBytes::Signed,
            seed: [0; 4],
            folding: Folding::None,
        };
        for i in 0..100_000u32 {
            let hash = hasher.hash(&i.to_le_bytes());
            assert!(hash.major < MAX_MAJOR && hash.major & 1 == 0);
        }
    }
}
