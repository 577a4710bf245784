//! Walks paths to inodes.
//!
//! The rules are those of path_resolution(7). Each directory of the path has to be searchable,
//! including "." and "..". At most [`MAX_SYMLINKS`] symbolic links are followed; a link in the last
//! component is followed only if requested, or if a slash follows. A name followed by a slash has
//! to be a directory. ".." of the root is the root.

use crate::credentials::Credentials;
use crate::path::{
    Component, Last, MAX_PATH, MAX_SYMLINKS, Slash, check_path, first, without_slashes,
};
use crate::rules::Want;
use crate::vfs::Vfs;
use lanefs_ext4::{Attr, Error, InodeRef};
use lanefs_ondisk::{FileType, Ino};
use std::borrow::Cow;

/// Whether a walk follows a symbolic link at the end of the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Follow {
    /// The walk follows the link.
    Links,
    /// The walk stops at the link.
    Nothing,
}

/// The directory that contains a path's last component; the component itself may be absent.
pub struct Parent<'a> {
    /// The directory, which the caller may search.
    pub dir: InodeRef,
    /// The last component, which was not looked up.
    pub last: Last<'a>,
}

impl Parent<'_> {
    /// Returns the last component, and whether a slash follows it, if the component is a name.
    /// Otherwise fails with `otherwise`, the operation's error for ".", ".." and the root.
    pub fn name(&self, otherwise: impl FnOnce() -> Error) -> Result<(&[u8], Slash), Error> {
        match &self.last {
            Last::Name(name, slash) => Ok((name, *slash)),
            _ => Err(otherwise()),
        }
    }
}

/// The directory that contains a path's last component, found in memory.
pub(crate) struct CachedParent<'a> {
    pub(crate) dir: InodeRef,
    /// Number of bytes of the path before the last component.
    pub(crate) before: usize,
    /// The last component, if it is a name and the mode alone lets the caller search `dir`.
    pub(crate) last: Option<(&'a [u8], Slash)>,
}

/// A directory of the walk. The walk takes a reference to each directory except its start. The
/// caller already has a reference to the start, and taking another one would write memory that
/// other threads use.
enum At<'a> {
    Start(&'a InodeRef),
    Held(InodeRef),
}

impl At<'_> {
    fn inode(&self) -> &InodeRef {
        match self {
            At::Start(inode) => inode,
            At::Held(inode) => inode,
        }
    }
}

/// A walk in progress: `at` is the present directory, `rest[pos..]` the rest of the path.
pub(crate) struct Walk<'a> {
    vfs: &'a Vfs,
    who: &'a Credentials,
    at: At<'a>,
    rest: Cow<'a, [u8]>,
    pos: usize,
    /// The last component, if the walk is in the directory that contains it, and has found that
    /// `who` may search that directory.
    known: Option<(&'a [u8], Slash)>,
    links: u32,
}

impl<'a> Walk<'a> {
    /// Creates a walk along `path` from `start`, or from the root if the path begins with a slash.
    /// If the directory that contains the last component is found in memory, the walk is already in
    /// that directory.
    pub(crate) fn to_parent(
        vfs: &'a Vfs,
        who: &'a Credentials,
        start: &'a InodeRef,
        path: &'a [u8],
    ) -> Result<Walk<'a>, Error> {
        let begin = vfs.start_of(start, path);
        Walk::beyond(vfs.parent_cached(who, begin, path), vfs, who, begin, path)
    }

    /// Creates a walk along `path` from `begin`. If `cached` is given, the walk is already in the
    /// directory of `cached`.
    fn beyond(
        cached: Option<CachedParent<'a>>,
        vfs: &'a Vfs,
        who: &'a Credentials,
        begin: &'a InodeRef,
        path: &'a [u8],
    ) -> Result<Walk<'a>, Error> {
        let (at, pos, known) = match cached {
            Some(CachedParent { dir, before, last }) => (At::Held(dir), before, last),
            None => {
                check_path(path)?;
                (At::Start(begin), 0, None)
            }
        };
        Ok(Walk { vfs, who, at, rest: Cow::Borrowed(path), pos, known, links: 0 })
    }

    /// Returns the present directory. After [`Walk::last`] has returned, this is the directory that
    /// contains the last component.
    pub(crate) fn dir(&self) -> &InodeRef {
        self.at.inode()
    }

    /// Walks to the directory that contains the last component. May be called again after
    /// [`Walk::follow`].
    pub(crate) fn last(&mut self) -> Result<Last<'a>, Error> {
        if let Some((name, slash)) = self.known.take() {
            self.pos = self.rest.len();
            return Ok(Last::Name(Cow::Borrowed(name), slash));
        }
        loop {
            let left = without_slashes(self.rest.get(self.pos..).unwrap_or_default());
            let Some((component, rest, slash)) = first(left) else {
                self.pos = self.rest.len();
                return Ok(Last::Root);
            };
            let at = self.at.inode();
            if at.file_type() != FileType::Directory {
                return Err(Error::NotDirectory);
            }
            self.vfs.check(self.who, at, Want::EXECUTE)?;
            let pos = self.rest.len() - rest.len();
            if rest.is_empty() {
                let last = match component {
                    Component::Name(name) => Last::Name(Cow::Owned(name.to_vec()), slash),
                    Component::Dot => Last::Dot,
                    Component::DotDot => Last::DotDot,
                };
                self.pos = pos;
                return Ok(last);
            }
            let next = match component {
                Component::Dot => None,
                Component::DotDot => Some(self.vfs.parent_of(at)?),
                Component::Name(name) => Some(self.vfs.child(at, name)?.ok_or(Error::NotFound)?),
            };
            self.pos = pos;
            match next {
                None => {}
                Some(inode) if inode.file_type() == FileType::Symlink => {
                    self.follow(&inode, Slash::None)?;
                }
                Some(inode) => self.at = At::Held(inode),
            }
        }
    }

    /// Puts the target of `link` before the rest of the path. The link is in the present directory.
    pub(crate) fn follow(&mut self, link: &InodeRef, slash: Slash) -> Result<(), Error> {
        self.links += 1;
        if self.links > MAX_SYMLINKS {
            return Err(Error::Loop);
        }
        let mut target = self.vfs.fs().read_link(link)?;
        self.vfs.record_read(link);
        if target.is_empty() {
            return Err(Error::NotFound);
        }
        if target.starts_with(b"/") {
            self.at = At::Start(self.vfs.root());
        }
        let left = self.rest.get(self.pos..).unwrap_or_default();
        if !left.is_empty() || slash == Slash::Trailing {
            target.push(b'/');
        }
        target.extend_from_slice(left);
        // Each link puts its target before the rest of the path. The longest possible rest has the
        // path and [`MAX_SYMLINKS`] targets, of [`MAX_PATH`] bytes each.
        if target.len() > MAX_PATH * (MAX_SYMLINKS as usize + 1) {
            return Err(Error::NameTooLong);
        }
        (self.rest, self.pos) = (Cow::Owned(target), 0);
        Ok(())
    }

    /// Moves the walk back, so that the last component, `name`, is walked again.
    pub(crate) fn again(&mut self, name: &[u8], slash: Slash) {
        let mut rest = name.to_vec();
        if slash == Slash::Trailing {
            rest.push(b'/');
        }
        (self.rest, self.pos) = (Cow::Owned(rest), 0);
    }

    fn into_dir(self) -> InodeRef {
        match self.at {
            At::Start(inode) => inode.clone(),
            At::Held(inode) => inode,
        }
    }

    /// Looks up the last component; if it is a symbolic link, follows it according to `follow`.
    fn finish(mut self, follow: Follow) -> Result<InodeRef, Error> {
        loop {
            let (name, slash) = match self.last()? {
                Last::Name(name, slash) => (name, slash),
                Last::DotDot => return self.vfs.parent_of(self.dir()),
                Last::Dot | Last::Root => return Ok(self.into_dir()),
            };
            let inode = self.vfs.child(self.dir(), &name)?.ok_or(Error::NotFound)?;
            match inode.file_type() {
                FileType::Symlink if follow == Follow::Links || slash == Slash::Trailing => {
                    self.follow(&inode, slash)?;
                }
                FileType::Directory => return Ok(inode),
                _ if slash == Slash::Trailing => return Err(Error::NotDirectory),
                _ => return Ok(inode),
            }
        }
    }
}

impl Vfs {
    /// Returns the inode that `path` refers to from `start` (or from the root, if it begins with a
    /// slash).
    pub fn walk(
        &self,
        who: &Credentials,
        start: &InodeRef,
        path: &[u8],
        follow: Follow,
    ) -> Result<InodeRef, Error> {
        match self.walk_cached(who, self.start_of(start, path), path, follow) {
            Some(inode) => Ok(inode),
            None => Walk::to_parent(self, who, start, path)?.finish(follow),
        }
    }

    /// Finds the inode that `path` refers to, as [`Vfs::walk`] does, and returns its attributes.
    /// Takes no reference if everything on the path is in memory.
    #[inline]
    pub fn stat(
        &self,
        who: &Credentials,
        start: &InodeRef,
        path: &[u8],
        follow: Follow,
    ) -> Result<Attr, Error> {
        match self.stat_cached(who, self.start_of(start, path), path, follow) {
            Some(attr) => Ok(attr),
            None => self.stat_with_references(who, start, path, follow),
        }
    }

    #[cold]
    fn stat_with_references(
        &self,
        who: &Credentials,
        start: &InodeRef,
        path: &[u8],
        follow: Follow,
    ) -> Result<Attr, Error> {
        let inode = Walk::to_parent(self, who, start, path)?.finish(follow)?;
        Ok(self.fs().stat(&inode))
    }

    /// Returns the directory where a walk along `path` starts.
    #[inline]
    fn start_of<'a>(&'a self, start: &'a InodeRef, path: &[u8]) -> &'a InodeRef {
        if path.starts_with(b"/") { self.root() } else { start }
    }

    /// Returns the directory that contains the last component of `path`, or would contain it if it
    /// existed.
    pub fn parent<'a>(
        &'a self,
        who: &'a Credentials,
        start: &'a InodeRef,
        path: &'a [u8],
    ) -> Result<Parent<'a>, Error> {
        let begin = self.start_of(start, path);
        let cached = match self.parent_cached(who, begin, path) {
            Some(CachedParent { dir, last: Some((name, slash)), .. }) => {
                return Ok(Parent { dir, last: Last::Name(Cow::Borrowed(name), slash) });
            }
            cached => cached,
        };
        let mut walk = Walk::beyond(cached, self, who, begin, path)?;
        let last = walk.last()?;
        Ok(Parent { dir: walk.into_dir(), last })
    }

    /// Returns the inode that `name` in `dir` refers to; "." and ".." are names too.
    pub fn lookup(
        &self,
        who: &Credentials,
        dir: &InodeRef,
        name: &[u8],
    ) -> Result<InodeRef, Error> {
        if dir.file_type() != FileType::Directory {
            return Err(Error::NotDirectory);
        }
        if name.len() > crate::path::MAX_NAME {
            return Err(Error::NameTooLong);
        }
        self.check(who, dir, Want::EXECUTE)?;
        match name {
            b"." => self.fs().get(dir.ino(), Some(dir.generation())),
            b".." => self.parent_of(dir),
            name => self.child(dir, name)?.ok_or_else(|| Error::NotFound),
        }
    }

    /// Returns the parent of a directory; the root is its own parent.
    pub(crate) fn parent_of(&self, dir: &InodeRef) -> Result<InodeRef, Error> {
        if dir.ino() == Ino::ROOT {
            return Ok(self.root().clone());
        }
        self.child(dir, b"..")?.ok_or(Error::NotFound)
    }
}
