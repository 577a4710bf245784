//! Walks paths whose names are all in the cache ([`NameCache`]). A walk runs under one pin
//! ([`Pin`]), which keeps the names and inodes that the walk reads in memory. It
//! takes no lock, and no references to the directories that it passes. So threads that walk through
//! the same directory do not write memory that they share.
//!
//! The cached walk handles only plain paths: the components are names or ".", the mode alone allows
//! searching each directory, and only the last component may be a symbolic link. In any other case,
//! and for every error, the cached walk gives up, and the walk with references ([`crate::walk`])
//! starts.
//!
//! While the inode of a name is looked up, the name may come to refer to another inode. So the name
//! is read again after the inode was found. If the version of the name's entry is unchanged
//! ([`crate::names::Sighting`]), the name referred to the inode the whole time.

use crate::credentials::Credentials;
use crate::names::{HashedName, Known, NameCache, Sighting};
use crate::path::{Component, MAX_PATH, Slash, cut, without_slashes};
use crate::rules::searches_by_mode;
use crate::vfs::Vfs;
use crate::walk::{CachedParent, Follow};
use lanefs_ext4::flags::is_encrypted;
use lanefs_ext4::{Attr, DirId, Inode, InodeRef};
use lanefs_lanes::sync::Arc;
use lanefs_lanes::{NameKey, Pin, pin};
use lanefs_ondisk::FileType;

/// The end of a walk: the directory that contains the last component, and that component.
struct Reached<'a, 'p> {
    /// `None` if this directory is the start of the walk.
    dir: Option<&'p Arc<Inode>>,
    name: HashedName<'a>,
    slash: Slash,
    /// Number of bytes of the path before `name`.
    before: usize,
}

fn id(dir: &Inode) -> DirId {
    DirId { ino: dir.ino(), generation: dir.generation() }
}

/// Returns whether a walk may end at an inode of this type. It may not end at a link that is to be
/// followed, and if a slash follows the name, it may end only at a directory.
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
        let names = self.names()?;
        let (held, slash, still) = {
            let pin = pin();
            let Reached { dir, name, slash, .. } = self.reach(names, &pin, who, start, path)?;
            let dir = dir.unwrap_or(start);
            if !self.searches(who, dir) {
                return None;
            }
            let (inode, sighting) = self.sight(names, &pin, dir, name)?;
            let held = InodeRef::found(inode)?;
            // The reference keeps the inode's number from being reused, so a name that refers to
            // the number refers to this inode.
            (held, slash, sighting.still())
        };
        // If the name refers to another inode now, the reference is dropped only after the pin has
        // ended, because dropping a reference may wait.
        (still && ends_there(held.file_type(), slash, follow)).then_some(held)
    }

    /// Returns the attributes of the inode that `path` refers to, if they can be found in memory.
    /// Takes no reference. Instead it checks that the name refers to the inode both before and
    /// after it reads the attributes.
    #[inline] // so that the attributes are copied once
    pub(crate) fn stat_cached(
        &self,
        who: &Credentials,
        start: &InodeRef,
        path: &[u8],
        follow: Follow,
    ) -> Option<Attr> {
        let names = self.names()?;
        let pin = pin();
        let Reached { dir, name, slash, .. } = self.reach(names, &pin, who, start, path)?;
        let dir = dir.unwrap_or(start);
        if !self.searches(who, dir) {
            return None;
        }
        let (inode, sighting) = self.sight(names, &pin, dir, name)?;
        if !ends_there(inode.file_type(), slash, follow) {
            return None;
        }
        inode.note_use();
        let attr = inode.attr();
        if attr.file_type == FileType::Symlink && is_encrypted(&attr.rights()) {
            // The size of an encrypted symbolic link is the length of its decrypted target, which
            // may not be in memory.
            return None;
        }
        if !sighting.still() {
            return None;
        }
        Some(attr)
    }

    /// Returns the inode that `name` in `dir` refers to, with a reference; `Some(None)` if the name
    /// is known to be absent; `None` if the name or the inode is not in memory.
    pub(crate) fn child_cached(&self, dir: DirId, name: &[u8]) -> Option<Option<InodeRef>> {
        let names = self.names()?;
        let (held, still) = {
            let (pin, name) = (pin(), HashedName::from(name));
            let sighting = names.sight(&pin, dir, name);
            let named = match sighting.known {
                Known::Entry(named) => named,
                Known::Absent => return Some(None),
                Known::Unknown => return None,
            };
            let held = InodeRef::found(self.fs().peek(&pin, named.ino)?)?;
            (held, sighting.still())
        };
        // If the name refers to another inode now, the reference is dropped only after the pin has
        // ended.
        still.then_some(Some(held))
    }

    /// Returns the directory that contains the last component of `path`, with a reference. `None`
    /// if that directory cannot be found in memory, or is `start` itself.
    pub(crate) fn parent_cached<'a>(
        &self,
        who: &Credentials,
        start: &InodeRef,
        path: &'a [u8],
    ) -> Option<CachedParent<'a>> {
        // The directory may have been moved after the walk reached it. The result is valid
        // nevertheless: in any walk that runs at the same time as a rename, a directory may move
        // after the walk has passed it.
        let (names, pin) = (self.names()?, pin());
        let Reached { dir, name, slash, before } = self.reach(names, &pin, who, start, path)?;
        let dir = InodeRef::found(dir?)?;
        drop(pin);
        let last = searches_by_mode(who, &dir).then_some((name.bytes, slash));
        Some(CachedParent { dir, before, last })
    }

    /// Returns true if the cache can contain names in `dir` and the mode of `dir` alone lets `who`
    /// search `dir`.
    #[inline(always)]
    fn searches(&self, who: &Credentials, dir: &Inode) -> bool {
        !self.is_uncached(dir) && searches_by_mode(who, dir)
    }

    /// Walks to the directory that contains the last component.
    #[inline(always)]
    fn reach<'a, 'p>(
        &'p self,
        names: &'p NameCache,
        pin: &'p Pin,
        who: &Credentials,
        start: &Inode,
        path: &'a [u8],
    ) -> Option<Reached<'a, 'p>> {
        // A path with a NUL byte is invalid too. It needs no check here, because no name in the
        // cache has a NUL byte.
        if path.len() > MAX_PATH {
            return None;
        }
        let (mut dir, key) = (None::<&Arc<Inode>>, NameKey::of_process());
        let mut left = without_slashes(path);
        loop {
            let (end, hash) = key.hash_before(b'/', left);
            let (component, rest, slash) = cut(left, end)?;
            let Component::Name(bytes) = component else {
                if component == Component::DotDot || rest.is_empty() {
                    return None;
                }
                left = rest;
                continue;
            };
            let name = HashedName { bytes, hash };
            if rest.is_empty() {
                return Some(Reached { dir, name, slash, before: path.len() - left.len() });
            }
            let at = dir.map_or(start, |dir| &**dir);
            if !self.searches(who, at) {
                return None;
            }
            let next = self.step(names, pin, at, name)?;
            if next.file_type() != FileType::Directory {
                return None;
            }
            (dir, left) = (Some(next), rest);
        }
    }

    /// Returns the inode that `name` in `dir` refers to, if both the name and the inode are in
    /// memory.
    #[inline(always)]
    fn step<'p>(
        &'p self,
        names: &'p NameCache,
        pin: &'p Pin,
        dir: &Inode,
        name: HashedName<'_>,
    ) -> Option<&'p Arc<Inode>> {
        let (inode, sighting) = self.sight(names, pin, dir, name)?;
        sighting.still().then_some(inode)
    }

    /// Returns the inode that `name` in `dir` refers to, if both the name and the inode are in
    /// memory. Also returns a sighting, with which [`Sighting::still`] checks later that the name
    /// still refers to the inode.
    #[inline(always)]
    fn sight<'p>(
        &'p self,
        names: &'p NameCache,
        pin: &'p Pin,
        dir: &Inode,
        name: HashedName<'_>,
    ) -> Option<(&'p Arc<Inode>, Sighting<'p>)> {
        let sighting = names.sight(pin, id(dir), name);
        let Known::Entry(named) = sighting.known else { return None };
        Some((self.fs().peek(pin, named.ino)?, sighting))
    }
}
