//! The files with several names that were copied.

use super::tree::{Identity, Meta};
use lanefs::Time;
use lanefs_lanes::{Mutex, Rank};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

/// The copies of files that have several names, in one target. All operands of a command share
/// them, because they may name the same file.
pub struct Links<N>(Mutex<HashMap<Identity, Link<N>>>);

/// The original of a copy, and the copy.
struct Link<N> {
    size: u64,
    mtime: Time,
    /// `None` while the file is being copied under its first name.
    copy: Option<Arc<Linked<N>>>,
}

/// The copy of a file that has several names.
pub struct Linked<N> {
    pub node: N,
    pub identity: Identity,
}

/// What was done with a file before it is copied under a name.
pub enum Earlier<N> {
    /// Nothing: the caller copies it, and then calls [`Links::copied`] or [`Links::failed`].
    Nothing,
    /// It was copied.
    Copied(Arc<Linked<N>>),
    /// Another thread is copying it.
    Begun,
}

impl<N> Links<N> {
    /// Creates an empty set.
    pub fn new() -> Links<N> {
        Links(Mutex::new(Rank::Bucket, HashMap::new()))
    }

    /// Returns what was done with the file `meta`. A file with one name may have lost others: a
    /// move removes names that it has copied. Then another file may have got the inode.
    pub fn begin(&self, meta: &Meta) -> Earlier<N> {
        let mut links = self.0.lock();
        match links.entry(meta.identity) {
            Entry::Occupied(known)
                if meta.links > 1
                    || (known.get().size, known.get().mtime) == (meta.size, meta.mtime) =>
            {
                known.get().copy.clone().map_or(Earlier::Begun, Earlier::Copied)
            }
            Entry::Occupied(_) => Earlier::Nothing,
            Entry::Vacant(vacant) => {
                if meta.links > 1 {
                    vacant.insert(Link { size: meta.size, mtime: meta.mtime, copy: None });
                }
                Earlier::Nothing
            }
        }
    }

    /// Notes the copy of the file `meta`.
    pub fn copied(&self, meta: &Meta, linked: Linked<N>) {
        if let Some(link) = self.0.lock().get_mut(&meta.identity) {
            link.copy = Some(Arc::new(linked));
        }
    }

    /// Notes that the file `meta` could not be copied, so that its next name is copied anew.
    pub fn failed(&self, meta: &Meta) {
        self.0.lock().remove(&meta.identity);
    }

    /// Returns the copy of a file.
    pub fn copy_of(&self, file: Identity) -> Option<Arc<Linked<N>>> {
        self.0.lock().get(&file).and_then(|link| link.copy.clone())
    }
}
