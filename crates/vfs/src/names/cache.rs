//! The interface of both name caches.

use super::entry::Entry;
use super::hashed::HashedName;
use super::known::Known;
use lanefs_ext4::{DirId, Names, NoNames, OneLockCache};
use lanefs_lanes::{Pin, Seen, pin};

/// The result of a look-up, with a version that changes when ext4 publishes the name again
/// ([`Names`]).
#[derive(Clone, Copy)]
pub struct Sighting<'p> {
    /// What the cache knows about the name.
    pub known: Known,
    /// The result in the form in which the cache stores it, with the version.
    pub(crate) seen: Seen,
    /// The entry, if the cache keeps it in memory as long as the pin lives.
    pub(crate) entry: Option<&'p Entry>,
}

impl Sighting<'_> {
    pub(super) const NONE: Sighting<'static> =
        Sighting { known: Known::Unknown, seen: Seen { word: 0, version: 0 }, entry: None };
}

/// A cache of names that uses bounded memory and that many threads share.
pub trait NameCache: Names {
    /// Returns the inode that `name` in `dir` refers to, if the name is in the cache.
    fn sight<'p>(&'p self, pin: &'p Pin, dir: DirId, name: HashedName<'_>) -> Sighting<'p>;

    /// Returns true if the name has certainly not been published again since `seen`. `pin` is the
    /// pin of the look-up that returned `seen`.
    fn still(&self, pin: &Pin, dir: DirId, name: HashedName<'_>, seen: &Sighting<'_>) -> bool;

    /// Like [`NameCache::sight`], without the version.
    fn find(&self, dir: DirId, name: &[u8]) -> Known {
        self.sight(&pin(), dir, name.into()).known
    }
}

/// A cache that stores nothing, for a caller that caches names itself.
impl NameCache for NoNames {
    fn sight<'p>(&'p self, _: &'p Pin, _: DirId, _: HashedName<'_>) -> Sighting<'p> {
        Sighting::NONE
    }

    fn still(&self, _: &Pin, _: DirId, _: HashedName<'_>, _: &Sighting<'_>) -> bool {
        false
    }
}

impl NameCache for OneLockCache {
    fn sight<'p>(&'p self, _: &'p Pin, dir: DirId, name: HashedName<'_>) -> Sighting<'p> {
        let found = self.name(dir, name.bytes);
        found.map_or(Sighting::NONE, |(entry, mark)| Sighting {
            known: entry.into(),
            seen: Seen { word: 0, version: mark },
            entry: None,
        })
    }

    fn still(&self, pin: &Pin, dir: DirId, name: HashedName<'_>, seen: &Sighting<'_>) -> bool {
        let now = self.sight(pin, dir, name);
        now.known == seen.known && now.seen == seen.seen
    }
}
