//! The walk along names that are all in the cache: under one pin, without a lock, and without holding
//! what is passed on the way, so that walks through one directory write nothing that others read.
//!
//! It does the plain cases only: names, ".", directories whose mode lets the caller through, no
//! symbolic link but at the end. In any other case, and for every error, it gives up, and the walk
//! that holds ([`crate::walk`]) decides.
//!
//! What a number leads to may change while it is looked up. So a name is looked at again after the
//! inode was found: the same mark says that it led there all the while ([`crate::names::Sighting`]).

use crate::names::Known;
use crate::path::{Component, Slash, first};
use crate::permission::searches_by_mode;
use crate::{Credentials, Follow, Vfs};
use lanefs_ext4::{DirId, Inode, InodeRef};
use lanefs_lanes::sync::Arc;
use lanefs_lanes::{Pin, pin};
use lanefs_ondisk::{FileType, Ino};
use std::ops::Deref;

/// An inode on the way.
enum Passed<'p> {
    /// It is there as long as the pin is.
    Pinned(&'p Inode),
    /// It is counted: found under the lock of a cache that has one.
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

/// A directory that was reached, and what is left of the path.
struct Reached<'p, 'a> {
    dir: Passed<'p>,
    name: &'a [u8],
    slash: Slash,
    /// Bytes of the path before `name`.
    before: usize,
}

/// An inode as it was seen: to be held if it still is that one.
struct Seen {
    ino: Ino,
    generation: u32,
}

impl Seen {
    fn of(inode: &Inode) -> Seen {
        Seen { ino: inode.ino(), generation: inode.generation() }
    }
}

fn id(dir: &Inode) -> DirId {
    DirId { ino: dir.ino(), generation: dir.generation() }
}

/// Whether a walk may end at `inode`: it is not to be followed, and is a directory if a slash says so.
fn ends_there(inode: &Inode, slash: Slash, follow: Follow) -> bool {
    let file_type = inode.file_type();
    let through = file_type == FileType::Symlink && follow == Follow::Links;
    !through && (!slash.follows() || file_type == FileType::Directory)
}

impl Vfs {
    /// What `path` leads to, if that can be told from memory.
    pub(crate) fn walk_cached(
        &self,
        who: &Credentials,
        start: &InodeRef,
        path: &[u8],
        follow: Follow,
    ) -> Option<InodeRef> {
        let (dir, name, slash, seen) = {
            let pin = pin();
            let reached = self.reach(&pin, who, start, path)?;
            if !searches_by_mode(who, &reached.dir) {
                return None;
            }
            let dir = id(&reached.dir);
            let seen = match self.one_lock() {
                Some(_) => None,
                None => {
                    let inode = self.step(&pin, &reached.dir, reached.name)?;
                    if !ends_there(&inode, reached.slash, follow) {
                        return None;
                    }
                    Some(Seen::of(&inode))
                }
            };
            (dir, reached.name, reached.slash, seen)
        };
        let Some(seen) = seen else {
            let inode = self.one_lock()?.hold(dir, name)?;
            return ends_there(&inode, slash, follow).then_some(inode);
        };
        // Without the pin, for this may wait. Held, the inode keeps its number, so that a name which
        // leads to the number leads to it.
        let inode = self.fs().get(seen.ino, Some(seen.generation)).ok()?;
        match self.names().find(dir, name) {
            Known::Entry(named) if named.ino == seen.ino => Some(inode),
            _ => None,
        }
    }

    /// The directory of the last component of `path`, held, and how many bytes of the path lead to it;
    /// if that can be told from memory, and is not `start` itself.
    pub(crate) fn parent_cached(
        &self,
        who: &Credentials,
        start: &InodeRef,
        path: &[u8],
    ) -> Option<(InodeRef, usize)> {
        let (seen, before) = {
            let pin = pin();
            let reached = self.reach(&pin, who, start, path)?;
            if id(&reached.dir) == id(start) {
                return None;
            }
            (Seen::of(&reached.dir), reached.before)
        };
        // The directory may have moved since: then this is where it was when it was passed, as with
        // any walk that is overtaken by a rename.
        Some((self.fs().get(seen.ino, Some(seen.generation)).ok()?, before))
    }

    /// Goes to the directory of the last component.
    fn reach<'p, 'a>(
        &'p self,
        pin: &'p Pin,
        who: &Credentials,
        start: &'p Inode,
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

    /// What `name` in `dir` leads to, if both the name and the inode are in memory.
    fn step<'p>(&'p self, pin: &'p Pin, dir: &Inode, name: &[u8]) -> Option<Passed<'p>> {
        if let Some(cache) = self.one_lock() {
            return cache.step(id(dir), name).map(Passed::Counted);
        }
        let sighting = self.names().sight(pin, id(dir), name);
        let Known::Entry(named) = sighting.known else { return None };
        let inode = self.fs().peek(pin, named.ino)?;
        (self.names().sight(pin, id(dir), name) == sighting).then_some(Passed::Pinned(inode))
    }
}
