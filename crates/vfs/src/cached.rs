//! The walk along names that are all in the cache: under one pin, without a lock, and without
//! references to the directories on the way. So walks through one directory write nothing that
//! others read.
//!
//! It handles the plain cases only: names, ".", directories whose mode lets the caller through, no
//! symbolic link but at the end. In any other case, and for every error, it gives up, and the walk
//! with references ([`crate::walk`]) decides.
//!
//! A name may lead elsewhere while its inode is looked up. So the name is read again after the
//! inode was found: the same mark says that it led there all the while
//! ([`crate::names::Sighting`]).

use crate::credentials::Credentials;
use crate::names::Known;
use crate::path::{Component, Slash, first};
use crate::rules::searches_by_mode;
use crate::vfs::Vfs;
use crate::walk::Follow;
use lanefs_ext4::{Attr, DirId, Inode, InodeRef};
use lanefs_lanes::sync::Arc;
use lanefs_lanes::{Pin, pin};
use lanefs_ondisk::FileType;
use std::ops::Deref;

/// An inode on the way.
enum Passed<'p> {
    /// It is in memory as long as the pin lives.
    Pinned(&'p Arc<Inode>),
    /// It has a reference: it was found under the lock of a cache that has one.
    Counted(Arc<Inode>),
}

impl Deref for Passed<'_> {
    type Target = Inode;
    fn deref(&self) -> &Inode {
        match self {
            Passed::Pinned(inode) => inode,
            Passed::Counted(inode) => inode,
        }
    }
}

/// A directory on the way, and the rest of the path.
struct Reached<'p, 'a> {
    dir: Passed<'p>,
    name: &'a [u8],
    slash: Slash,
    /// Bytes of the path before `name`.
    before: usize,
}

fn id(dir: &Inode) -> DirId {
    DirId { ino: dir.ino(), generation: dir.generation() }
}

/// Whether a walk may end there: the inode is not a link to be followed, and is a directory if a
/// slash follows.
fn ends_there(file_type: FileType, slash: Slash, follow: Follow) -> bool {
    let through = file_type == FileType::Symlink && follow == Follow::Links;
    !through && (!slash.follows() || file_type == FileType::Directory)
}

impl Vfs {
    /// The inode that `path` leads to, if it can be found in memory.
    pub(crate) fn walk_cached(
        &self,
        who: &Credentials,
        start: &InodeRef,
        path: &[u8],
        follow: Follow,
    ) -> Option<InodeRef> {
        let (dir, name, slash, held, still) = {
            let pin = pin();
            let reached = self.reach(&pin, who, start, path)?;
            if !searches_by_mode(who, &reached.dir) {
                return None;
            }
            let dir = id(&reached.dir);
            let (held, still) = match self.one_lock() {
                Some(_) => (None, true),
                None => {
                    let sighting = self.names().sight(&pin, dir, reached.name);
                    let Known::Entry(named) = sighting.known else { return None };
                    let held = InodeRef::found(self.fs().peek(&pin, named.ino)?)?;
                    // With a reference the inode keeps its number, so a name which leads to the
                    // number leads to it.
                    (Some(held), self.names().still(&pin, dir, reached.name, &sighting))
                }
            };
            (dir, reached.name, reached.slash, held, still)
        };
        // The pin is gone by now: releasing a reference may wait.
        let inode = match held {
            Some(held) => held,
            None => self.one_lock()?.hold(dir, name)?,
        };
        (still && ends_there(inode.file_type(), slash, follow)).then_some(inode)
    }

    /// The attributes of the inode that `path` leads to, if they can be found in memory. No
    /// reference is taken: the name leads there both before and after the attributes are read.
    pub(crate) fn stat_cached(
        &self,
        who: &Credentials,
        start: &InodeRef,
        path: &[u8],
        follow: Follow,
    ) -> Option<Attr> {
        if self.one_lock().is_some() {
            return self.walk_cached(who, start, path, follow).map(|inode| inode.attr());
        }
        let pin = pin();
        let reached = self.reach(&pin, who, start, path)?;
        if !searches_by_mode(who, &reached.dir) {
            return None;
        }
        let Reached { dir: Passed::Pinned(dir), name, slash, .. } = reached else {
            return None;
        };
        let sighting = self.names().sight(&pin, id(dir), name);
        let Known::Entry(named) = sighting.known else { return None };
        let inode = self.fs().peek(&pin, named.ino)?;
        inode.note_use();
        let attr = inode.attr();
        let still = self.names().still(&pin, id(dir), name, &sighting);
        (still && ends_there(attr.file_type, slash, follow)).then_some(attr)
    }

    /// The inode that `name` in `dir` leads to, with a reference; `Some(None)` if the name is known
    /// to be absent; `None` if memory does not tell.
    pub(crate) fn child_cached(&self, dir: DirId, name: &[u8]) -> Option<Option<InodeRef>> {
        if let Some(cache) = self.one_lock() {
            return cache.hold(dir, name).map(Some);
        }
        let (held, still) = {
            let pin = pin();
            let sighting = self.names().sight(&pin, dir, name);
            let named = match sighting.known {
                Known::Entry(named) => named,
                Known::Absent => return Some(None),
                Known::Unknown => return None,
            };
            let held = InodeRef::found(self.fs().peek(&pin, named.ino)?)?;
            (held, self.names().still(&pin, dir, name, &sighting))
        };
        // If it is not the right inode, it is dropped without the pin.
        still.then_some(Some(held))
    }

    /// The directory of the last component of `path`, with a reference, and how many bytes of the
    /// path lead to it. Nothing if memory cannot tell, or if it is `start` itself.
    pub(crate) fn parent_cached(
        &self,
        who: &Credentials,
        start: &InodeRef,
        path: &[u8],
    ) -> Option<(InodeRef, usize)> {
        let pin = pin();
        let reached = self.reach(&pin, who, start, path)?;
        if id(&reached.dir) == id(start) {
            return None;
        }
        // The directory may have moved since. Then the result is where it was when the walk passed
        // it, as for any walk that a rename overtakes.
        let dir = match &reached.dir {
            Passed::Pinned(inode) => InodeRef::found(inode)?,
            Passed::Counted(inode) => InodeRef::found(inode)?,
        };
        Some((dir, reached.before))
    }

    /// Walks to the directory of the last component.
    fn reach<'p, 'a>(
        &'p self,
        pin: &'p Pin,
        who: &Credentials,
        start: &'p Arc<Inode>,
        path: &'a [u8],
    ) -> Option<Reached<'p, 'a>> {
        let mut dir = Passed::Pinned(start);
        let mut left = path;
        loop {
            let (component, rest, slash) = first(left)?;
            let Component::Name(name) = component else {
                if component == Component::DotDot || rest.is_empty() {
                    return None;
                }
                left = rest;
                continue;
            };
            if rest.is_empty() {
                return Some(Reached { dir, name, slash, before: path.len() - left.len() });
            }
            if !searches_by_mode(who, &dir) {
                return None;
            }
            let next = self.step(pin, &dir, name)?;
            if next.file_type() != FileType::Directory {
                return None;
            }
            (dir, left) = (next, rest);
        }
    }

    /// The inode that `name` in `dir` leads to, if both the name and the inode are in memory.
    fn step<'p>(&'p self, pin: &'p Pin, dir: &Inode, name: &[u8]) -> Option<Passed<'p>> {
        if let Some(cache) = self.one_lock() {
            return cache.step(id(dir), name).map(Passed::Counted);
        }
        let sighting = self.names().sight(pin, id(dir), name);
        let Known::Entry(named) = sighting.known else { return None };
        let inode = self.fs().peek(pin, named.ino)?;
        self.names().still(pin, id(dir), name, &sighting).then_some(Passed::Pinned(inode))
    }
}
