//! The files that a copy has made or seen, and the chains of directories above them.

use crate::copy::tree::{Identity, Meta};
use lanefs::Time;
use lanefs_lanes::{Mutex, Rank};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
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

/// A chain that shares its earlier links with other chains.
#[derive(Debug, Clone)]
pub struct Chain<T>(Option<Arc<ChainLink<T>>>);

#[derive(Debug)]
struct ChainLink<T> {
    above: Chain<T>,
    value: T,
}

/// The chain of directories from an operand down to a directory, including that directory. It
/// serves to find cycles in a copy that follows all links, and is empty in any other copy.
pub type Way = Chain<Identity>;

impl<T> Chain<T> {
    pub const EMPTY: Chain<T> = Chain(None);

    /// Returns this chain with one more link.
    pub fn with(&self, value: T) -> Chain<T> {
        Chain(Some(Arc::new(ChainLink { above: Chain(self.0.clone()), value })))
    }

    /// Returns the links, the last first.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        let links = std::iter::successors(self.0.as_deref(), |link| link.above.0.as_deref());
        links.map(|link| &link.value)
    }
}

impl<T> Drop for ChainLink<T> {
    /// Drops the chain in a loop. A recursive drop could overflow the thread's stack, because a
    /// tree of an image may be very deep.
    fn drop(&mut self) {
        let mut above = self.above.0.take();
        while let Some(mut link) = above.and_then(Arc::into_inner) {
            above = link.above.0.take();
        }
    }
}

/// A path. The paths of all entries of a directory share the directory's path, so each path takes
/// memory only for its last name, at any depth.
#[derive(Debug, Clone)]
pub struct Trail {
    names: Chain<Box<[u8]>>,
    /// The length of the path in bytes.
    pub len: usize,
}

impl Trail {
    /// Creates a trail from a whole path.
    pub fn new(path: &Path) -> Trail {
        let path = path.as_os_str().as_encoded_bytes();
        Trail { names: Chain::EMPTY.with(path.into()), len: path.len() }
    }

    /// Returns the path of `name` in this directory.
    pub fn join(&self, name: &[u8]) -> Trail {
        Trail { names: self.names.with(name.into()), len: self.len + 1 + name.len() }
    }

    /// Returns the directory above and the name in it, unless the path is in one piece.
    pub fn split(&self) -> Option<(Trail, &[u8])> {
        let last = self.names.0.as_deref()?;
        let names = Chain(Some(last.above.0.clone()?));
        Some((Trail { names, len: self.len - 1 - last.value.len() }, &last.value))
    }

    /// Returns whether both are the same link of a chain; equal paths may be different ones.
    pub fn is(&self, other: &Trail) -> bool {
        let link = |trail: &Trail| trail.names.0.as_ref().map(Arc::as_ptr);
        link(self) == link(other)
    }

    /// Returns the path in one piece.
    pub fn path(&self) -> PathBuf {
        let names: Vec<_> = self.names.iter().collect();
        let mut path = Vec::new();
        for name in names.into_iter().rev() {
            if !path.is_empty() && !path.ends_with(b"/") {
                path.push(b'/');
            }
            path.extend_from_slice(name);
        }
        OsString::from_vec(path).into()
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

    #[test]
    fn names_are_joined_by_slashes() {
        for (top, path) in [("/", "/a/b"), ("/x", "/x/a/b"), ("x/", "x/a/b"), ("", "a/b")] {
            assert_eq!(Trail::new(Path::new(top)).join(b"a").join(b"b").path(), Path::new(path));
        }
    }

    #[test]
    fn a_deep_path_is_dropped_without_recursion() {
        let mut trail = Trail::new(Path::new("/"));
        for _ in 0..1_000_000 {
            trail = trail.join(b"d");
        }
        assert_eq!(trail.path().as_os_str().len(), 2_000_000);
    }
}
