//! A set of files.

use super::Identity;
use std::collections::HashMap;

/// The number of inode numbers that a page covers.
const PAGE: u64 = 4096;

/// A set of files. Inode numbers are divided into pages of [`PAGE`] numbers. The set has a bitmap
/// for each page that has a file in the set.
#[derive(Debug, Default)]
pub struct Seen {
    pages: HashMap<(u64, u64), Box<[u64; PAGE as usize / 64]>>,
}

impl Seen {
    /// Returns whether a file is in the set.
    pub fn contains(&self, file: Identity) -> bool {
        let page = self.pages.get(&(file.device, file.inode / PAGE));
        let word = page.and_then(|page| page.get((file.inode % PAGE / 64) as usize));
        word.is_some_and(|word| word & 1 << (file.inode % 64) != 0)
    }

    /// Adds a file; returns false if it is in the set already.
    pub fn insert(&mut self, file: Identity) -> bool {
        let page = self.pages.entry((file.device, file.inode / PAGE));
        let page = page.or_insert_with(|| Box::new([0; PAGE as usize / 64]));
        let (word, bit) = (file.inode % PAGE / 64, 1 << (file.inode % 64));
        let Some(word) = page.get_mut(word as usize) else { return false };
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_file_is_new_once() {
        let mut seen = Seen::default();
        for inode in [0, 1, 63, 64, 4095, 4096, u64::MAX] {
            for device in [0, 7] {
                assert!(seen.insert(Identity { device, inode }), "{inode}");
                assert!(!seen.insert(Identity { device, inode }), "{inode}");
            }
        }
    }
}
