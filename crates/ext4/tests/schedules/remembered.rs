//! A name cache that evicts nothing, so that a wrong publication can still be found at the end.

use lanefs_ext4::{DirId, Error, Fs, Named, Names};
use lanefs_lanes::{Mutex, Rank};
use std::collections::HashMap;

type Known = HashMap<(DirId, Vec<u8>), Option<Named>>;

/// The last publication of each name.
pub struct Remembered(Mutex<Known>);

impl Remembered {
    pub fn new() -> Remembered {
        Remembered(Mutex::new(Rank::Bucket, HashMap::new()))
    }

    /// Returns the published entry of a name.
    pub fn of(&self, dir: DirId, name: &[u8]) -> Option<Option<Named>> {
        self.0.lock().get(&(dir, name.to_vec())).copied()
    }

    /// Checks all published entries. Called after the last change of names.
    ///
    /// # Panics
    /// If an entry is wrong.
    pub fn check(&self, fs: &Fs) {
        let all: Vec<_> = self.0.lock().iter().map(|(k, v)| (k.clone(), *v)).collect();
        for ((dir, name), known) in all {
            let there = match fs.get(dir.ino, Some(dir.generation)) {
                Ok(dir) => fs.lookup(&dir, &name).unwrap(),
                Err(Error::Stale) => continue,
                Err(error) => panic!("{error}"),
            };
            assert_eq!(known, there, "what is known of {:?}", String::from_utf8_lossy(&name));
        }
    }
}

impl Names for Remembered {
    fn publish_read(
        &self,
        dir: DirId,
        name: &[u8],
        entry: Option<Named>,
        still: &dyn Fn() -> bool,
    ) {
        let mut known = self.0.lock();
        if still() {
            known.insert((dir, name.to_vec()), entry);
        }
    }

    fn forget(&self, dir: DirId) {
        self.0.lock().retain(|(known, _), _| *known != dir);
    }
}
