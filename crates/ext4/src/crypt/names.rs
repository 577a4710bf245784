//! AES-256-CBC with ciphertext stealing, on names and on targets of symbolic links.
//!
//! Ciphertext stealing works as in RFC 2040 and in the kernel's `cts(cbc(aes))`: the last two
//! blocks change places even if the last one is full. The initialisation vector can be zero,
//! because each inode has a key of its own.

use aes::Aes256;
use aes::cipher::{Array, BlockCipherDecrypt, BlockCipherEncrypt, KeyInit};

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
    pub(super) fn new(key: &[u8; 32], padding: usize) -> Names {
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
