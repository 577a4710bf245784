//! AES-256-CBC with ciphertext stealing, on names and on targets of symbolic links.
//!
//! Ciphertext stealing works as in RFC 2040 and in the kernel's `cts(cbc(aes))`: the last two
//! blocks change places even if the last one is full. The initialisation vector can be zero,
//! because each inode has a key of its own.

use aes::Aes256;
use aes::cipher::{Array, BlockCipherDecrypt, BlockCipherEncrypt, KeyInit};
use lanefs_ondisk::hash::NameHash;
use sha2::{Digest, Sha256};

/// AES block size in bytes, which is also the length of the shortest encrypted name.
pub(crate) const UNIT: usize = 16;

type Unit = Array<u8, aes::cipher::consts::U16>;

/// The cipher of the names in one directory, or of one symbolic link's target. The key is
/// overwritten when it is dropped.
pub(crate) struct Names {
    cipher: Aes256,
    padding: usize,
}

impl Names {
    pub(crate) fn new(key: &[u8; 32], padding: usize) -> Names {
        Names { cipher: Aes256::new(&Array::from(*key)), padding }
    }

    /// Returns the encrypted form of `name`, padded with NULs as the policy requires, but to at
    /// most `most` bytes. Returns `None` if `name` is longer than `most`.
    pub(crate) fn encrypt(&self, name: &[u8], most: usize) -> Option<Vec<u8>> {
        let len = name.len().max(UNIT).next_multiple_of(self.padding).min(most);
        let mut padded = name.to_vec();
        if name.len() > len || len < UNIT {
            return None;
        }
        padded.resize(len, 0);
        self.encrypt_padded(&mut padded);
        Some(padded)
    }

    /// Returns the name whose encrypted form is `encrypted`; `None` if `encrypted` is shorter than
    /// any encrypted name.
    pub(crate) fn decrypt(&self, encrypted: &[u8]) -> Option<Vec<u8>> {
        if encrypted.len() < UNIT {
            return None;
        }
        let mut name = encrypted.to_vec();
        self.decrypt_padded(&mut name);
        let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
        name.truncate(end);
        Some(name)
    }

    fn encrypt_padded(&self, text: &mut [u8]) {
        // The total length of all units but the last. The last unit may be short.
        let before_last = (text.len() - 1) / UNIT * UNIT;
        let (head, last) = text.split_at_mut(before_last);
        let mut chain = Unit::default();
        let (units, _) = Unit::slice_as_chunks_mut(head);
        for unit in units.iter_mut() {
            self.chain_in(&mut chain, unit);
            *unit = chain;
        }
        let stolen = chain;
        self.chain_in(&mut chain, last);
        let Some(place) = units.last_mut() else {
            last.copy_from_slice(&chain);
            return;
        };
        *place = chain;
        for (byte, of_stolen) in last.iter_mut().zip(stolen) {
            *byte = of_stolen;
        }
    }

    /// Encrypts one unit by CBC: pads `text` with NULs, encrypts it as the unit that follows the
    /// encrypted unit `chain`, and stores the result in `chain`.
    fn chain_in(&self, chain: &mut Unit, text: &[u8]) {
        for (byte, of_text) in chain.iter_mut().zip(text) {
            *byte ^= of_text;
        }
        self.cipher.encrypt_block(chain);
    }

    fn decrypt_padded(&self, text: &mut [u8]) {
        let before_last = (text.len() - 1) / UNIT * UNIT;
        let (head, last) = text.split_at_mut(before_last);
        let (units, _) = Unit::slice_as_chunks_mut(head);
        if let Some(place) = units.last_mut() {
            // Undoes the ciphertext stealing: the last place but one holds the unit that was
            // encrypted last.
            let mut opened = *place;
            self.cipher.decrypt_block(&mut opened);
            let mut stolen = opened;
            for ((byte, of_opened), of_stolen) in last.iter_mut().zip(opened).zip(&mut stolen) {
                (*byte, *of_stolen) = (*byte ^ of_opened, *byte);
            }
            *place = stolen;
            self.decrypt_chain(units);
            return;
        }
        let mut only = Unit::default();
        only.copy_from_slice(last);
        self.cipher.decrypt_block(&mut only);
        last.copy_from_slice(&only);
    }

    fn decrypt_chain(&self, units: &mut [Unit]) {
        let mut before = Unit::default();
        for unit in units {
            let encrypted = *unit;
            self.cipher.decrypt_block(unit);
            for (byte, of_before) in unit.iter_mut().zip(before) {
                *byte ^= of_before;
            }
            before = encrypted;
        }
    }
}

// The text that stands for an encrypted name while its key is missing.
//
// The text is base64url of the name's directory hash and the encrypted name. If that would be more
// than 255 characters, the first 149 bytes of the encrypted name and the SHA-256 of the remaining
// bytes replace the encrypted name. The directory hash leads to the leaf with the name. This is
// the kernel's format (`struct fscrypt_nokey_name`, since 5.10), as seen in directory listings of
// Linux 6.18.

/// Bytes of the hash.
const HASH: usize = 8;
/// The largest number of bytes of an encrypted name that a text contains. The digest stands for the
/// remaining bytes.
const MOST: usize = 149;
/// Bytes of the digest that stands for the rest of the encrypted name.
const DIGEST: usize = 32;

/// The largest length of a text in characters.
const MOST_TEXT: usize = (HASH + MOST + DIGEST) / 3 * 4;

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// An encrypted name that was given as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NoKeyName {
    /// The whole encrypted name.
    Whole(Vec<u8>),
    /// The start of a long encrypted name, and the digest of its remaining bytes.
    Long {
        /// The high part of the directory hash.
        major: u32,
        start: [u8; MOST],
        digest: [u8; DIGEST],
    },
}

impl NoKeyName {
    /// Returns the text for an encrypted name.
    pub(crate) fn encode(hash: NameHash, encrypted: &[u8]) -> Vec<u8> {
        let mut bytes = [hash.major.to_le_bytes(), hash.minor.to_le_bytes()].concat();
        match encrypted.split_at_checked(MOST) {
            Some((start, rest)) if !rest.is_empty() => {
                bytes.extend_from_slice(start);
                bytes.extend_from_slice(&Sha256::digest(rest));
            }
            _ => bytes.extend_from_slice(encrypted),
        }
        encode(&bytes)
    }

    /// Decodes a text; `None` if it stands for no name.
    pub(crate) fn decode(text: &[u8]) -> Option<NoKeyName> {
        if text.len() > MOST_TEXT {
            return None;
        }
        let bytes = decode(text)?;
        let (hash, name) = bytes.split_at_checked(HASH)?;
        match name.len() {
            1..=MOST => Some(NoKeyName::Whole(name.to_vec())),
            len if len == MOST + DIGEST => {
                let (major, (start, digest)) = (hash.get(..4)?, name.split_at_checked(MOST)?);
                Some(NoKeyName::Long {
                    major: u32::from_le_bytes(major.try_into().ok()?),
                    start: start.try_into().ok()?,
                    digest: digest.try_into().ok()?,
                })
            }
            _ => None,
        }
    }

    /// Returns whether the text stands for this encrypted name.
    pub(crate) fn is_of(&self, encrypted: &[u8]) -> bool {
        match self {
            NoKeyName::Whole(name) => name == encrypted,
            NoKeyName::Long { start, digest, .. } => encrypted
                .split_at_checked(MOST)
                .is_some_and(|(first, rest)| first == start && *Sha256::digest(rest) == *digest),
        }
    }
}

/// Encodes bytes as base64url without padding (RFC 4648).
fn encode(bytes: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let bits = group.iter().fold(0, |bits, byte| bits << 8 | u32::from(*byte));
        let bits = bits << (24 - 8 * group.len());
        let digits = (0..=group.len()).map(|n| bits >> (18 - 6 * n) & 63);
        text.extend(digits.map(|digit| ALPHABET[digit as usize]));
    }
    text
}

/// Decodes base64url without padding; `None` also if the unused bits are not zero. As in the
/// kernel, a single character after the last whole group of four is ignored if its bits are zero.
fn decode(text: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() * 3 / 4);
    for group in text.chunks(4) {
        let mut bits = 0;
        for character in group {
            let digit = ALPHABET.iter().position(|one| one == character)?;
            bits = bits << 6 | digit as u32;
        }
        let bits = bits << (24 - 6 * group.len());
        // The first byte of `decoded` is always zero. The next `n - 1` bytes are those that a group
        // of `n` characters encodes.
        let decoded = bits.to_be_bytes();
        let (used, unused) = decoded.split_at_checked(group.len())?;
        if unused.iter().any(|byte| *byte != 0) {
            return None;
        }
        bytes.extend_from_slice(used.get(1..)?);
    }
    Some(bytes)
}
