//! The parents of all directories, which are recorded while names are counted.

use lanefs_lanes::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use lanefs_ondisk::Ino;

/// For each directory, the directory that contains its name, and the directory to which its ".."
/// refers.
pub struct Parents {
    /// The directories, in ascending order.
    inos: Vec<Ino>,
    parents: Vec<AtomicU32>,
    dot_dots: Vec<AtomicU32>,
    lost_and_found: AtomicBool,
}

impl Parents {
    pub fn new(mut inos: Vec<Ino>) -> Parents {
        inos.sort_unstable();
        let zeros = |inos: &[Ino]| inos.iter().map(|_| AtomicU32::new(0)).collect();
        let (parents, dot_dots) = (zeros(&inos), zeros(&inos));
        Parents { inos, parents, dot_dots, lost_and_found: AtomicBool::new(false) }
    }

    pub fn inos(&self) -> &[Ino] {
        &self.inos
    }

    /// Returns the position of a directory in [`Parents::inos`].
    pub fn position(&self, ino: Ino) -> Option<usize> {
        self.inos.binary_search(&ino).ok()
    }

    /// Records that `parent` contains a name of the directory `ino`. If the directory has several
    /// names, the first one counts.
    pub fn set_parent(&self, ino: Ino, parent: Ino) {
        if let Some(word) = self.position(ino).and_then(|n| self.parents.get(n)) {
            let _ = word.compare_exchange(0, parent.0, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    pub fn set_dot_dot(&self, ino: Ino, parent: Ino) {
        if let Some(word) = self.position(ino).and_then(|n| self.dot_dots.get(n)) {
            word.store(parent.0, Ordering::Relaxed);
        }
    }

    pub fn set_lost_and_found(&self) {
        self.lost_and_found.store(true, Ordering::Relaxed);
    }

    pub fn has_lost_and_found(&self) -> bool {
        self.lost_and_found.load(Ordering::Relaxed)
    }

    /// Returns the directory that contains the name of directory `n`.
    pub fn parent(&self, n: usize) -> Option<Ino> {
        load(&self.parents, n)
    }

    /// Returns the inode to which ".." of directory `n` refers.
    pub fn dot_dot(&self, n: usize) -> Option<Ino> {
        load(&self.dot_dots, n)
    }
}

fn load(words: &[AtomicU32], n: usize) -> Option<Ino> {
    let ino = words.get(n)?.load(Ordering::Relaxed);
    (ino != 0).then_some(Ino(ino))
}
