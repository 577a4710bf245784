//! Tracks the files that are open for writing, because only for these files can the kernel have
//! dirty data. A file that becomes a verity file is not opened for writing meanwhile.

use lanefs_ext4::Error;
use lanefs_lanes::{Mutex, Padded, Rank};
use lanefs_ondisk::Ino;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// The number of shards, a power of two. Each shard has a lock on separate cache lines. There are
/// so many shards that opens of different files rarely use the same one.
const SHARDS: usize = 512;

/// A file that is open for writing, or must not be opened for writing now.
#[derive(Debug, Default, Clone, Copy)]
struct Written {
    /// The number of handles open for writing; 0 if `denied` is set.
    handles: u32,
    /// Whether a [`Denied`] exists.
    denied: bool,
    /// Whether dirty pages of the file could not be stored for lack of space. Writes then fail at
    /// once, until there is space again.
    out_of_space: bool,
    /// Whether a reply has reported one sector for the file, although the file had none.
    has_shown_sector: bool,
    /// Whether pages from the kernel's cache have changed the number of sectors since the last
    /// fsync.
    has_more_sectors: bool,
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
    ///
    /// # Errors
    /// [`Error::BecomesVerity`] while a [`Denied`] of `ino` exists.
    pub fn add(&self, ino: Ino) -> Result<(), Error> {
        let mut shard = self.shard(ino).lock();
        let written = shard.entry(ino).or_default();
        if written.denied {
            return Err(Error::BecomesVerity);
        }
        written.handles += 1;
        Ok(())
    }

    /// Makes [`Writers::add`] fail for `ino` until the result is dropped.
    ///
    /// # Errors
    /// [`Error::OpenForWriting`] if a handle of `ino` is open for writing; [`Error::Busy`] if
    /// another [`Denied`] of `ino` exists.
    pub fn deny(&self, ino: Ino) -> Result<Denied<'_>, Error> {
        match self.shard(ino).lock().entry(ino) {
            Entry::Occupied(written) if written.get().denied => Err(Error::Busy),
            Entry::Occupied(_) => Err(Error::OpenForWriting),
            Entry::Vacant(none) => {
                none.insert(Written { denied: true, ..Written::default() });
                Ok(Denied { writers: self, ino })
            }
        }
    }

    /// Removes a handle of `ino`. Returns true if it was the last handle and
    /// [`Writers::show_sector`] has returned true for the file.
    pub fn remove(&self, ino: Ino) -> bool {
        let mut shard = self.shard(ino).lock();
        let Entry::Occupied(mut written) = shard.entry(ino) else { return false };
        if written.get().denied {
            return false;
        }
        written.get_mut().handles = written.get().handles.saturating_sub(1);
        written.get().handles == 0 && written.remove().has_shown_sector
    }

    /// Returns whether any handle of `ino` is open for writing.
    pub fn has(&self, ino: Ino) -> bool {
        self.shard(ino).lock().get(&ino).is_some_and(|written| written.handles > 0)
    }

    /// Returns whether any handle of `ino` is open for writing. If so, records that a reply reports
    /// one sector for the file, although the file has none.
    pub fn show_sector(&self, ino: Ino) -> bool {
        let mut shard = self.shard(ino).lock();
        let written = shard.get_mut(&ino).filter(|written| written.handles > 0);
        written.map(|written| written.has_shown_sector = true).is_some()
    }

    /// If `ino` is open for writing, records whether its dirty pages could not be stored for lack
    /// of space.
    pub fn set_out_of_space(&self, ino: Ino, out_of_space: bool) {
        if let Some(written) = self.shard(ino).lock().get_mut(&ino) {
            written.out_of_space = out_of_space;
        }
    }

    /// If `ino` is open for writing, records whether its number of sectors has changed since the
    /// last fsync. Returns what was recorded before.
    pub fn set_more_sectors(&self, ino: Ino, more: bool) -> bool {
        let mut shard = self.shard(ino).lock();
        let written = shard.get_mut(&ino);
        written.is_some_and(|written| std::mem::replace(&mut written.has_more_sectors, more))
    }

    /// Returns whether dirty pages of `ino` could not be stored for lack of space.
    pub fn is_out_of_space(&self, ino: Ino) -> bool {
        self.shard(ino).lock().get(&ino).is_some_and(|written| written.out_of_space)
    }
}

/// While this exists, a file is not opened for writing.
#[must_use]
pub struct Denied<'w> {
    writers: &'w Writers,
    ino: Ino,
}

impl Drop for Denied<'_> {
    fn drop(&mut self) {
        self.writers.shard(self.ino).lock().remove(&self.ino);
    }
}

#[cfg(test)]
mod tests;
