//! Walks paths whose names are all in the cache: under one pin, without a lock, and without
//! references to the directories of the path. So walks through one directory write no memory that
//! other threads read.
//!
//! It handles the plain cases only: names, ".", directories whose mode allows the search, and no
//! symbolic link except at the end of the path. In any other case, and for every error, it gives
//! up, and the walk with references ([`crate::walk`]) decides.
//!
//! A name may be changed to refer to another inode while its inode is looked up. So the name is
//! read again after the inode was found: an unchanged mark shows that the name referred to the
//! inode the whole time ([`crate::names::Sighting`]).

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

/// An inode of the path.
enum Passed<'p> {
    /// An inode that stays in memory as long as the pin lives.
    Pinned(&'p Arc<Inode>),
    /// An inode with a reference, which the cache with one lock provides.
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

/// A directory of the path, and the last component.
struct Reached<'p, 'a> {
    dir: Passed<'p>,
    name: &'a [u8],
    slash: Slash,
    /// Number of bytes of the path before `name`.
    before: usize,
}

fn id(dir: &Inode) -> DirId {
    DirId { ino: dir.ino(), generation: dir.generation() }
}

/// Returns whether a walk may end at an inode of this type: it is not a link to be followed, and is
/// a directory if a slash follows.
fn ends_there(file_type: FileType, slash: Slash, follow: Follow) -> bool {
    let through = file_type == FileType::Symlink && follow == Follow::Links;
    !through && (!slash.follows() || file_type == FileType::Directory)
}

impl Vfs {
    /// Returns the inode that `path` refers to, if it can be found in memory.
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
            if !self.searches(who, &reached.dir) {
                return None;
            }
            let dir = id(&reached.dir);
            let (held, still) = match self.one_lock() {
                Some(_) => (None, true),
                None => {
                    let sighting = self.names().sight(&pin, dir, reached.name);
                    let Known::Entry(named) = sighting.known else { return None };
                    let held = InodeRef::found(self.fs().peek(&pin, named.ino)?)?;
                    // The reference keeps the inode's number from being reused, so a name that
                    // refers to the number refers to this inode.
                    (Some(held), self.names().still(&pin, dir, reached.name, &sighting))
                }
            };
            (dir, reached.name, reached.slash, held, still)
        };
        // The pin is dropped first: releasing a reference may wait.
        let inode = match held {
            Some(held) => held,
            None => self.one_lock()?.hold(dir, name)?,
        };
        (still && ends_there(inode.file_type(), slash, follow)).then_some(inode)
    }

    /// Returns the attributes of the inode that `path` refers to, if they can be found in memory.
    /// Takes no reference: the name refers to the inode both before and after the attributes are
    /// read.
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
        if !self.searches(who, &reached.dir) {
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

    /// Returns the inode that `name` in `dir` refers to, with a reference; `Some(None)` if the name
    /// is known to be absent; `None` if the name or the inode is not in memory.
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
        // If the name refers to another inode now, the reference is dropped after the pin.
        still.then_some(Some(held))
    }

    /// Returns the directory of the last component of `path`, with a reference, and the number of
    /// bytes of the path before that component. `None` if it cannot be found in memory, or is
    /// `start` itself.
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
        // The directory may have moved after the walk passed it. The result is then the directory
        // that the walk passed, as for any walk that is concurrent with a rename.
        let dir = match &reached.dir {
            Passed::Pinned(inode) => InodeRef::found(inode)?,
            Passed::Counted(inode) => InodeRef::found(inode)?,
        };
        Some((dir, reached.before))
    }

    /// Returns whether the cache can know the names in `dir`, and the mode alone lets `who` search
    /// it.
    fn searches(&self, who: &Credentials, dir: &Inode) -> bool {
        !self.folds(dir) && searches_by_mode(who, dir)
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
            if !self.searches(who, &dir) {
                return None;
            }
            let next = self.step(pin, &dir, name)?;
            if next.file_type() != FileType::Directory {
                return None;
            }
            (dir, left) = (next, rest);
        }
    }

    /// Returns the inode that `name` in `dir` refers to, if both the name and the inode are in
    /// memory.
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
