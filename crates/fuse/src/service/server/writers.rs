//! Which files are open for writing: only of these can the kernel have data that we have not.

use lanefs_lanes::{Mutex, Rank};
use lanefs_ondisk::Ino;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// Parts, each with its own lock: opens of different files rarely meet.
const SHARDS: usize = 64;

/// A file that is open for writing.
#[derive(Debug, Default, Clone, Copy)]
struct Written {
    /// Open files.
    handles: u32,
    /// Pages of it found no room: until there is some, programs are told so at once.
    out_of_space: bool,
}

/// Files open for writing. *Locking*: a shard is a leaf, held for a look at its map only.
pub struct Writers {
    shards: Vec<Mutex<HashMap<Ino, Written>>>,
}

impl Writers {
    /// None.
    pub fn new() -> Writers {
        let shard = |_| Mutex::new(Rank::Bucket, HashMap::new());
        Writers { shards: (0..SHARDS).map(shard).collect() }
    }

    fn shard(&self, ino: Ino) -> &Mutex<HashMap<Ino, Written>> {
        &self.shards[ino.0 as usize % SHARDS]
    }

    /// One more handle writes `ino`.
    pub fn add(&self, ino: Ino) {
        self.shard(ino).lock().entry(ino).or_default().handles += 1;
    }

    /// One fewer.
    pub fn remove(&self, ino: Ino) {
        if let Entry::Occupied(mut written) = self.shard(ino).lock().entry(ino) {
            written.get_mut().handles = written.get().handles.saturating_sub(1);
            if written.get().handles == 0 {
                written.remove();
            }
        }
    }

    /// Whether any handle writes `ino`.
    pub fn has(&self, ino: Ino) -> bool {
        self.shard(ino).lock().contains_key(&ino)
    }

    /// Remembers whether pages of `ino` found room, if it is open for writing.
    pub fn set_out_of_space(&self, ino: Ino, out_of_space: bool) {
        if let Some(written) = self.shard(ino).lock().get_mut(&ino) {
            written.out_of_space = out_of_space;
        }
    }

    /// Whether pages of `ino` found no room.
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
}
