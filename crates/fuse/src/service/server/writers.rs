//! Tracks the files that are open for writing, because only for these files can the kernel have
//! dirty data.

use lanefs_lanes::{Mutex, Padded, Rank};
use lanefs_ondisk::Ino;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// The number of shards, a power of two. Each shard has a lock on separate cache lines. There are
/// so many shards that opens of different files rarely use the same one.
const SHARDS: usize = 512;

/// A file that is open for writing.
#[derive(Debug, Default, Clone, Copy)]
struct Written {
    /// The number of handles open for writing.
    handles: u32,
    /// Whether dirty pages of the file could not be stored for lack of space. Writes then fail at
    /// once, until there is space again.
    out_of_space: bool,
    /// Whether a reply has reported one sector for the file, although the file had none.
    has_shown_sector: bool,
}

/// The files that are open for writing. *Locking*: a shard's lock is a leaf, held only to access
/// its map.
pub struct Writers {
    shards: Vec<Padded<Mutex<HashMap<Ino, Written>>>>,
}

impl Writers {
    /// Creates an empty set.
    pub fn new() -> Writers {
        let shard = |_| Padded(Mutex::new(Rank::Bucket, HashMap::new()));
        Writers { shards: (0..SHARDS).map(shard).collect() }
    }

    fn shard(&self, ino: Ino) -> &Mutex<HashMap<Ino, Written>> {
        // Inode numbers are multiplied, since files of different directories often have the same
        // index within their block groups. The constant is 2^32 divided by the golden ratio.
        let hash = ino.0.wrapping_mul(0x9e37_79b9) >> (32 - SHARDS.trailing_zeros());
        &self.shards[hash as usize]
    }

    /// Adds a handle by which `ino` is open for writing.
    pub fn add(&self, ino: Ino) {
        self.shard(ino).lock().entry(ino).or_default().handles += 1;
    }

    /// Removes a handle of `ino`. Returns true if it was the last handle and
    /// [`Writers::show_sector`] has returned true for the file.
    pub fn remove(&self, ino: Ino) -> bool {
        let mut shard = self.shard(ino).lock();
        let Entry::Occupied(mut written) = shard.entry(ino) else { return false };
        written.get_mut().handles = written.get().handles.saturating_sub(1);
        written.get().handles == 0 && written.remove().has_shown_sector
    }

    /// Returns whether any handle of `ino` is open for writing.
    pub fn has(&self, ino: Ino) -> bool {
        self.shard(ino).lock().contains_key(&ino)
    }

    /// Returns whether any handle of `ino` is open for writing. If so, records that a reply reports
    /// one sector for the file, although the file has none.
    pub fn show_sector(&self, ino: Ino) -> bool {
        let mut shard = self.shard(ino).lock();
        let written = shard.get_mut(&ino);
        written.map(|written| written.has_shown_sector = true).is_some()
    }

    /// If `ino` is open for writing, records whether its dirty pages could not be stored for lack
    /// of space.
    pub fn set_out_of_space(&self, ino: Ino, out_of_space: bool) {
        if let Some(written) = self.shard(ino).lock().get_mut(&ino) {
            written.out_of_space = out_of_space;
        }
    }

    /// Returns whether dirty pages of `ino` could not be stored for lack of space.
    pub fn is_out_of_space(&self, ino: Ino) -> bool {
        self.shard(ino).lock().get(&ino).is_some_and(|written| written.out_of_space)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_written_until_the_last_handle_is_gone() {
        let (writers, ino) = (Writers::new(), Ino(12));
        assert!(!writers.has(ino));
        writers.set_out_of_space(ino, true);
        assert!(!writers.is_out_of_space(ino));
        writers.add(ino);
        writers.add(ino);
        writers.set_out_of_space(ino, true);
        writers.remove(ino);
        assert!(writers.has(ino) && writers.is_out_of_space(ino));
        writers.remove(ino);
        writers.remove(ino);
        assert!(!writers.has(ino) && !writers.is_out_of_space(ino));
        assert!(!writers.has(Ino(12 + SHARDS as u32)));
    }

    #[test]
    fn the_last_handle_tells_whether_a_sector_was_shown() {
        let (writers, ino) = (Writers::new(), Ino(12));
        assert!(!writers.show_sector(ino) && !writers.remove(ino));
        writers.add(ino);
        writers.add(ino);
        assert!(writers.show_sector(ino));
        assert!(!writers.remove(ino));
        assert!(writers.remove(ino));
        writers.add(ino);
        assert!(!writers.remove(ino));
    }
}
