//! The state of each inode during a check, kept in one word.

use lanefs_lanes::sync::atomic::{AtomicU64, Ordering};
use lanefs_ondisk::{FileType, Ino};
use zerocopy::FromZeros;

/// Bits 0 to 31 hold the number of names that were found, bits 32 to 47 the stored link count. The
/// higher bits are defined below.
const STORED: u32 = 32;
const TYPE: u32 = 48;
const USED: u64 = 1 << 52;
const SCANNED: u64 = 1 << 53;
const HAS_NAME: u64 = 1 << 54;
const VALUES: u64 = 1 << 55;

/// One word for each inode, written by several threads. The host provides memory only for words
/// that are written.
pub struct States {
    words: Box<[AtomicU64]>,
}

/// The state of one inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct State(u64);

impl States {
    pub fn new(inodes: u32) -> Option<States> {
        let len = usize::try_from(inodes).ok()?.checked_add(1)?;
        Some(States { words: <[AtomicU64]>::new_box_zeroed_with_elems(len).ok()? })
    }

    fn word(&self, ino: Ino) -> Option<&AtomicU64> {
        usize::try_from(ino.0).ok().and_then(|n| self.words.get(n))
    }

    /// Records that the inode is in the initialised part of its table. It may be used or free.
    pub fn set_scanned(&self, ino: Ino) {
        self.add(ino, SCANNED);
    }

    /// Records an inode in use.
    pub fn set_used(&self, ino: Ino, kind: Option<FileType>, links: u16) {
        let kind = kind.map_or(0, |kind| u64::from(kind.dirent_byte()));
        self.add(ino, USED | kind << TYPE | u64::from(links) << STORED);
    }

    /// Records that the inode holds the value of an attribute.
    pub fn set_values(&self, ino: Ino) {
        self.add(ino, VALUES);
    }

    /// Records a name of a directory. Returns whether the directory had a name before.
    pub fn set_name(&self, ino: Ino) -> bool {
        let before = self.word(ino).map(|word| word.fetch_or(HAS_NAME, Ordering::Relaxed));
        before.is_some_and(|before| before & HAS_NAME != 0)
    }

    /// Counts an entry that refers to the inode.
    pub fn count_name(&self, ino: Ino) {
        if let Some(word) = self.word(ino) {
            word.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub fn get(&self, ino: Ino) -> State {
        State(self.word(ino).map_or(0, |word| word.load(Ordering::Relaxed)))
    }

    fn add(&self, ino: Ino, bits: u64) {
        if let Some(word) = self.word(ino) {
            word.fetch_or(bits, Ordering::Relaxed);
        }
    }
}

impl State {
    /// Returns the number of entries that refer to the inode.
    pub fn names(self) -> u32 {
        self.0 as u32
    }

    /// Returns the link count that the inode stores.
    pub fn links(self) -> u32 {
        u32::from((self.0 >> STORED) as u16)
    }

    pub fn file_type(self) -> Option<FileType> {
        FileType::from_dirent((self.0 >> TYPE & 0xf) as u8)
    }

    pub fn is_used(self) -> bool {
        self.0 & USED != 0
    }

    /// Returns whether the inode is in the initialised part of its table.
    pub fn is_scanned(self) -> bool {
        self.0 & SCANNED != 0
    }

    pub fn has_values(self) -> bool {
        self.0 & VALUES != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_keeps_its_parts_apart() {
        let states = States::new(10).unwrap();
        states.set_scanned(Ino(10));
        states.set_used(Ino(10), Some(FileType::Symlink), 0xffff);
        states.count_name(Ino(10));
        let state = states.get(Ino(10));
        assert_eq!((state.names(), state.links()), (1, 0xffff));
        assert_eq!(state.file_type(), Some(FileType::Symlink));
        assert!(state.is_used() && state.is_scanned() && !state.has_values());
        assert!(!states.set_name(Ino(10)) && states.set_name(Ino(10)));
        states.set_used(Ino(11), None, 1);
        assert!(!states.get(Ino(11)).is_used());
    }
}
