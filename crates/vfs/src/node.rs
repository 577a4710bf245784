//! Operations on names: create, link, rename, remove.

use crate::credentials::Credentials;
use crate::path::check_name;
use crate::rules::{NewNode, Want, check_device, check_link, new_inode};
use crate::vfs::Vfs;
use lanefs_ext4::{Acted, Ascent, Ends, Error, Inode, InodeRef, InvalidArgument, IsRing, Rename};
use lanefs_ondisk::{FileType, Ino};

impl Vfs {
    /// Creates the inode `new` with `name` in `dir`.
    pub fn make(
        &self,
        who: &Credentials,
        dir: &InodeRef,
        name: &[u8],
        new: &NewNode<'_>,
    ) -> Result<InodeRef, Error> {
        check_new_name(name)?;
        let allowed = self.check_add(who, dir).and_then(|()| check_device(who, &new.kind));
        self.or_exists(allowed, dir, name)?;
        self.fs().create(dir, name, &new_inode(who, &dir.rights(), new))
    }

    /// Creates a file without a name, with the checks and inherited properties of a file in `dir`.
    pub fn make_unnamed(
        &self,
        who: &Credentials,
        dir: &InodeRef,
        new: &NewNode<'_>,
    ) -> Result<InodeRef, Error> {
        if dir.file_type() != FileType::Directory {
            return Err(Error::NotDirectory);
        }
        self.check_add(who, dir)?;
        self.fs().create_unnamed(dir, &new_inode(who, &dir.rights(), new))
    }

    /// Adds the hard link `name` in `dir` to `inode`.
    pub fn link(
        &self,
        who: &Credentials,
        inode: &InodeRef,
        dir: &InodeRef,
        name: &[u8],
    ) -> Result<(), Error> {
        check_new_name(name)?;
        let allowed = self.check_add(who, dir).and_then(|()| match inode.file_type() {
            FileType::Directory => Err(Error::NotPermitted),
            _ => check_link(&inode.rights()),
        });
        self.or_exists(allowed, dir, name)?;
        self.fs().link(inode, dir, name)
    }

    /// Removes a name that does not refer to a directory.
    pub fn unlink(&self, who: &Credentials, dir: &InodeRef, name: &[u8]) -> Result<(), Error> {
        check_name(name)?;
        again(|| {
            let victim = self.victim(who, dir, name)?;
            if victim.file_type() == FileType::Directory {
                return Err(Error::IsDirectory);
            }
            self.fs().unlink_found(dir, name, victim)
        })
    }

    /// Removes an empty directory.
    pub fn rmdir(&self, who: &Credentials, dir: &InodeRef, name: &[u8]) -> Result<(), Error> {
        check_name(name)?;
        again(|| {
            let victim = self.victim(who, dir, name)?;
            if victim.file_type() != FileType::Directory {
                return Err(Error::NotDirectory);
            }
            self.fs().rmdir_found(dir, name, victim)
        })
    }

    /// Moves the name `name` in `from` to `new_name` in `to`. A whiteout that the rename leaves is
    /// owned by `who`.
    pub fn rename(
        &self,
        who: &Credentials,
        from: &InodeRef,
        name: &[u8],
        to: &InodeRef,
        new_name: &[u8],
        how: Rename,
    ) -> Result<(), Error> {
        let (uid, gid) = (who.uid(), who.gid());
        let how = match how {
            Rename::Whiteout { .. } => Rename::Whiteout { uid, gid },
            Rename::WhiteoutNoReplace { .. } => Rename::WhiteoutNoReplace { uid, gid },
            how => how,
        };
        again(|| self.rename_once(who, (from, name), (to, new_name), how))
    }

    fn rename_once(
        &self,
        who: &Credentials,
        (from, name): (&InodeRef, &[u8]),
        (to, new_name): (&InodeRef, &[u8]),
        how: Rename,
    ) -> Result<Acted, Error> {
        check_name(name)?;
        let source = self.lookup(who, from, name)?;
        check_name(new_name)?;
        let target = match self.lookup(who, to, new_name) {
            Ok(target) => Some(target),
            Err(Error::NotFound) => None,
            Err(error) => return Err(error),
        };
        match (&target, how) {
            (Some(_), how) if how.needs_free_name() => return Err(Error::Exists),
            (None, Rename::Exchange) => return Err(Error::NotFound),
            // If both names refer to the same inode, nothing is to be done. The exception is a
            // rename within a directory that ignores case: it may change the spelling of the name.
            // `is_uncached` is also true for an encrypted directory; ext4 then finds out that
            // nothing is to be done.
            (Some(target), _)
                if target.ino() == source.ino()
                    && (from.ino() != to.ino() || !self.is_uncached(to)) =>
            {
                return Ok(Acted::Done);
            }
            _ => {}
        }
        let is_dir = |inode: &Inode| inode.file_type() == FileType::Directory;
        if from.ino() != to.ino() {
            let inward: Error = InvalidArgument::IntoItself.into();
            if is_dir(&source) {
                self.check_not_above(&source, to, inward.clone())?;
            }
            if let Some(target) = target.as_ref().filter(|target| is_dir(target)) {
                let or = if how == Rename::Exchange { inward } else { Error::NotEmpty };
                self.check_not_above(target, from, or)?;
            }
        }
        self.check_delete(who, from, &source)?;
        match &target {
            Some(target) => self.check_delete(who, to, target)?,
            None => self.check_add(who, to)?,
        }
        if let Some(target) = target.as_ref().filter(|_| how != Rename::Exchange) {
            match (is_dir(&source), is_dir(target)) {
                (true, false) => return Err(Error::NotDirectory),
                (false, true) => return Err(Error::IsDirectory),
                _ => {}
            }
        }
        // Moving a directory to another parent needs write permission for the directory, since its
        // ".." changes.
        if from.ino() != to.ino() {
            if is_dir(&source) {
                self.check(who, &source, Want::WRITE)?;
            }
            if let Some(target) = target.as_ref().filter(|t| how == Rename::Exchange && is_dir(t)) {
                self.check(who, target, Want::WRITE)?;
            }
        }
        self.fs().rename_found(Ends::new((from, name), (to, new_name), source, target)?, how)
    }

    /// Returns the target of a symbolic link.
    pub fn read_link(&self, inode: &InodeRef) -> Result<Vec<u8>, Error> {
        if inode.file_type() != FileType::Symlink {
            return Err(InvalidArgument::NotSymlink.into());
        }
        let target = self.fs().read_link(inode)?;
        self.record_read(inode);
        Ok(target)
    }

    /// If the operation is not allowed and the name exists, returns "exists" instead of the error
    /// in `allowed`. This reveals nothing: a caller that may search the directory can look the name
    /// up anyway.
    fn or_exists(
        &self,
        allowed: Result<(), Error>,
        dir: &InodeRef,
        name: &[u8],
    ) -> Result<(), Error> {
        match allowed {
            Err(Error::PermissionDenied | Error::NotPermitted | Error::ReadOnly)
                if self.child(dir, name).is_ok_and(|there| there.is_some()) =>
            {
                Err(Error::Exists)
            }
            allowed => allowed,
        }
    }

    /// Fails with the error `or` if `inode` is `dir` or an ancestor of `dir`.
    fn check_not_above(&self, inode: &Inode, dir: &InodeRef, or: Error) -> Result<(), Error> {
        let mut at = dir.clone();
        let mut ascent = Ascent::new(at.ino());
        while at.ino() != inode.ino() {
            if at.ino() == Ino::ROOT {
                return Ok(());
            }
            at = self.parent_of(&at)?;
            ascent.step(&at.ino()).map_err(|IsRing| self.fs().ring_of_parents(at.ino()))?;
        }
        Err(or)
    }

    fn victim(&self, who: &Credentials, dir: &InodeRef, name: &[u8]) -> Result<InodeRef, Error> {
        let victim = self.lookup(who, dir, name)?;
        self.check_delete(who, dir, &victim)?;
        Ok(victim)
    }

    /// Records that `inode` was read. If the time cannot be stored, the read does not fail.
    pub(crate) fn record_read(&self, inode: &InodeRef) {
        let _ = self.fs().touch_atime(inode);
    }
}

/// Repeats `act`, which looks up names, checks permissions and performs the operation, until the
/// names refer to the same inodes during all three steps. Otherwise the permission for one file
/// could be used for another file that got the first file's name meanwhile.
fn again(mut act: impl FnMut() -> Result<Acted, Error>) -> Result<(), Error> {
    while act()? == Acted::NameChanged {}
    Ok(())
}

/// Like [`check_name`], but fails with "exists" for "." and "..".
fn check_new_name(name: &[u8]) -> Result<(), Error> {
    if name == b"." || name == b".." {
        return Err(Error::Exists);
    }
    check_name(name)
}
