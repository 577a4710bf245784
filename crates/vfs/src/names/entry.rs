//! A cached name. If the name comes to refer to another inode, the entry is changed in place
//! ([`VersionedWord`]). An evicted entry is marked, so that a thread that read it does not confuse
//! it with a later entry of the same name.

use super::known::Known;
use lanefs_ext4::{DirId, Named};
use lanefs_lanes::sync::atomic::{AtomicBool, Ordering};
use lanefs_lanes::{Seen, VersionedWord};
use lanefs_ondisk::{FileType, Ino};

/// A name of at most this length is stored in the entry itself, so that the entry occupies a single
/// cache line.
const SHORT: usize = 22;

/// The word of an entry whose name does not exist. No file type sets this bit.
const ABSENT: u64 = 1 << 63;

/// A name in a directory, on its own cache lines.
#[repr(align(64))]
pub(crate) struct Entry {
    hash: u64,
    dir: DirId,
    /// The inode number in the low 32 bits, and above them the file type as in `i_mode`; or
    /// [`ABSENT`].
    target: VersionedWord,
    /// Set when the entry is found. A search for an entry to evict clears this mark and passes the
    /// entry over. The mark is only a hint, so its accesses are relaxed.
    pub(super) used: AtomicBool,
    name: EntryName,
}

enum EntryName {
    Short(u8, [u8; SHORT]),
    Long(Box<[u8]>),
}

impl EntryName {
    fn new(name: &[u8]) -> EntryName {
        let mut short = [0; SHORT];
        match short.get_mut(..name.len()) {
            Some(start) => {
                start.copy_from_slice(name);
                EntryName::Short(name.len() as u8, short)
            }
            None => EntryName::Long(name.into()),
        }
    }

    #[inline]
    fn bytes(&self) -> &[u8] {
        match self {
            EntryName::Short(len, bytes) => &bytes[..usize::from(*len)],
            EntryName::Long(bytes) => bytes,
        }
    }
}

fn word_of(target: Option<Named>) -> u64 {
    target.map_or(ABSENT, |named| {
        u64::from(named.ino.0) | u64::from(named.file_type.mode_bits()) << 32
    })
}

#[inline(always)]
pub(super) fn known_from(word: u64) -> Known {
    if word & ABSENT != 0 {
        return Known::Absent;
    }
    // The word always comes from `word_of`, so the type is valid.
    let file_type = FileType::from_mode((word >> 32) as u16).unwrap_or(FileType::Regular);
    Known::Entry(Named { ino: Ino(word as u32), file_type })
}

impl lanefs_lanes::Replaced for Entry {
    fn heap_bytes(&self) -> usize {
        match &self.name {
            EntryName::Short(..) => 0,
            EntryName::Long(name) => name.len(),
        }
    }
}

impl Entry {
    pub(super) fn new(hash: u64, dir: DirId, name: &[u8], target: Option<Named>) -> Entry {
        Entry {
            hash,
            dir,
            target: VersionedWord::new(word_of(target)),
            used: AtomicBool::new(false),
            name: EntryName::new(name),
        }
    }

    #[inline]
    pub(super) fn is(&self, hash: u64, dir: DirId, name: &[u8]) -> bool {
        self.hash == hash && self.dir == dir && *self.name.bytes() == *name
    }

    /// Sets the inode that the name refers to. The caller holds the bucket's lock.
    pub(super) fn change(&self, target: Option<Named>) {
        self.target.change(word_of(target));
    }

    /// Marks the entry as evicted. The caller holds the bucket's lock, and removes the entry
    /// afterwards.
    pub(super) fn go(&self) {
        self.target.end();
    }

    /// Returns the present target.
    #[inline]
    pub(super) fn look(&self) -> Seen {
        // The mark is set only if it is clear, so that threads that find the same name do not all
        // write the entry's cache line.
        if !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
        self.target.look()
    }

    /// Returns false if the entry was published again or evicted after the look-up that returned
    /// `seen`.
    #[inline]
    pub(super) fn is_still(&self, seen: Seen) -> bool {
        self.target.is_still(seen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIR: DirId = DirId { ino: Ino(2), generation: 7 };

    #[test]
    fn an_entry_with_a_short_name_is_one_line() {
        assert_eq!(size_of::<Entry>(), 64);
    }

    #[test]
    fn names_of_all_lengths_are_kept_whole() {
        for len in 1..=255 {
            let name: Vec<u8> = (0..len).map(|n| b'a' + n % 26).collect();
            let entry = Entry::new(1, DIR, &name, None);
            assert!(entry.is(1, DIR, &name));
            assert!(!entry.is(1, DIR, &name[1..]));
            assert!(!entry.is(1, DIR, &[&name[..], b"x"].concat()));
        }
    }

    #[test]
    fn the_inode_of_a_name_survives_encoding() {
        for file_type in [
            FileType::Regular,
            FileType::Directory,
            FileType::Symlink,
            FileType::CharDevice,
            FileType::BlockDevice,
            FileType::Fifo,
            FileType::Socket,
        ] {
            for ino in [1, u32::MAX] {
                let named = Some(Named { ino: Ino(ino), file_type });
                let seen = Entry::new(1, DIR, b"a", named).look();
                assert_eq!(known_from(seen.word), named.into());
            }
        }
        assert_eq!(known_from(Entry::new(1, DIR, b"a", None).look().word), Known::Absent);
    }
}
