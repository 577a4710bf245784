//! Names for inodes that are there: link, unlink, rmdir.

use crate::create::{MAX_LINKS, remove_directory_link};
use crate::directory::checked_entry;
use crate::fs::Fs;
use crate::inode::{Concerns, Inode, InodeRef};
use crate::plant::{Step, left_out};
use crate::read::now;
use crate::{Error, Named};
use lanefs_lanes::ExclusiveHold;
use lanefs_lanes::sync::Arc;
use lanefs_lanes::{Nameless, end_as_only_holder, set_nameless};
use lanefs_ondisk::FileType;
use lanefs_ondisk::dirent::Name;

/// Credits of [`Fs::drop_link`]: an inode, and its group or its place among the orphans.
pub(crate) const DROP_LINK_CREDITS: u32 = 8;

/// What an entry that is to be removed must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Removal {
    File,
    Directory,
}

impl Fs {
    /// Gives `inode` another name.
    pub fn link(&self, inode: &InodeRef, dir: &InodeRef, name: &[u8]) -> Result<(), Error> {
        self.check_writable()?;
        let name = checked_entry(name).map_err(exists_for_dots)?;
        if inode.file_type == FileType::Directory {
            return Err(Error::NotPermitted);
        }
        let _locks = lock_all(&[inode, dir]);
        self.check_not_immutable(dir)?;
        self.check_not_immutable(inode)?;
        let mut edit = self.edit_directory(dir)?;
        if dir.attr().links == 0 {
            return Err(Error::NotFound);
        }
        if edit.find(name)?.is_some() {
            return Err(Error::Exists);
        }
        let links = inode.attr().links;
        if links >= u32::from(MAX_LINKS) {
            return Err(Error::TooManyLinks);
        }
        if links == 0 && !inode.state.lock().linkable {
            return Err(Error::NotFound);
        }
        edit.insert(name, inode.ino, inode.file_type)?;
        let change = edit.finish()?;
        let mut handle = self.join(change.credits + 6)?;
        let now = now();
        self.apply_directory(&mut handle, dir, change, |state| {
            state.disk.mtime = now;
            state.disk.ctime = now;
        });
        if links == 0 {
            self.remove_orphan(&mut handle, inode);
            set_nameless(inode, Nameless::No);
        }
        inode.change(&mut handle, Concerns::Attributes, |state| {
            state.disk.links += 1;
            state.disk.ctime = now;
            state.linkable = false;
        });
        drop(handle);
        let named = Named { ino: inode.ino, file_type: inode.file_type };
        self.names.publish(dir.dir_id(), name.bytes(), Some(named));
        Ok(())
    }

    /// Removes a name that is not a directory's.
    pub fn unlink(&self, dir: &InodeRef, name: &[u8]) -> Result<(), Error> {
        self.remove_name(dir, name, None, Removal::File)
    }

    /// Removes a name that leads to `victim`, as the caller found; if by now it leads elsewhere, that
    /// is removed. A file whose last name and last hold this takes is ended in the same handle.
    pub fn unlink_found(&self, dir: &InodeRef, name: &[u8], victim: InodeRef) -> Result<(), Error> {
        self.remove_name(dir, name, Some(victim), Removal::File)
    }

    /// Removes an empty directory.
    pub fn rmdir(&self, dir: &InodeRef, name: &[u8]) -> Result<(), Error> {
        self.remove_name(dir, name, None, Removal::Directory)
    }

    fn remove_name(
        &self,
        dir: &InodeRef,
        name: &[u8],
        mut found: Option<InodeRef>,
        what: Removal,
    ) -> Result<(), Error> {
        self.check_writable()?;
        let name = match (checked_entry(name), what) {
            (Err(Error::InvalidArgument { .. } | Error::NotEmpty), Removal::File)
                if name.starts_with(b".") =>
            {
                return Err(Error::IsDirectory);
            }
            (checked, _) => checked?,
        };
        loop {
            // Declared before the locks, so that its last hold goes after them.
            let victim = match found.take() {
                Some(victim) => victim,
                None => self.find(dir, name.bytes())?.ok_or(Error::NotFound)?,
            };
            match (what, victim.file_type == FileType::Directory) {
                (Removal::File, true) => return Err(Error::IsDirectory),
                (Removal::Directory, false) => return Err(Error::NotDirectory),
                _ => {}
            }
            let _locks = lock_all(&[dir, &victim]);
            if self.remove_locked(dir, name, &victim)? {
                return Ok(());
            }
        }
    }

    /// Removes `name` if it still leads to `victim`; both operation locks are held.
    fn remove_locked(
        &self,
        dir: &InodeRef,
        name: Name<'_>,
        victim: &InodeRef,
    ) -> Result<bool, Error> {
        self.check_not_immutable(dir)?;
        self.check_not_immutable(victim)?;
        let mut edit = self.edit_directory(dir)?;
        let Some(found) = edit.find(name)? else { return Err(Error::NotFound) };
        if found.ino != victim.ino && !left_out(Step::NameLookedAtAgain) {
            return Ok(false);
        }
        let is_directory = victim.file_type == FileType::Directory;
        if is_directory && !self.edit_directory(victim)?.is_empty()? {
            return Err(Error::NotEmpty);
        }
        self.check_mapped_by_extents(victim)?;
        edit.remove(&found)?;
        let change = edit.finish()?;
        self.prepare_drop_link(victim)?;
        let mut handle = self.join(change.credits + DROP_LINK_CREDITS)?;
        let now = now();
        self.apply_directory(&mut handle, dir, change, |state| {
            state.disk.mtime = now;
            state.disk.ctime = now;
            if is_directory {
                remove_directory_link(&mut state.disk);
            }
        });
        self.drop_link(&mut handle, victim);
        drop(handle);
        self.names.publish(dir.dir_id(), name.bytes(), None);
        Ok(true)
    }

    /// Reads what [`Fs::drop_link`] may need. Sleeps.
    pub(crate) fn prepare_drop_link(&self, victim: &Inode) -> Result<(), Error> {
        let (group, _) = self.inode_group(victim.ino)?;
        self.groups.load(self, group)
    }

    /// Apply: `victim` has lost a name, or all of a directory's. Without one left it is ended: here,
    /// if it has nothing to free but its number and the caller's is the only hold; else it is an
    /// orphan from now on, for whoever drops the last hold to end.
    pub(crate) fn drop_link(&self, handle: &mut crate::commit::Handle<'_>, victim: &Arc<Inode>) {
        let now = now();
        let left = match victim.file_type {
            FileType::Directory => 0,
            _ => victim.attr().links.saturating_sub(1),
        };
        let ends = victim.change(handle, Concerns::Attributes, |state| {
            state.disk.links = left as u16;
            state.disk.ctime = now;
            left == 0 && state.owns_nothing()
        });
        if left > 0 {
            return;
        }
        // Not before its links are seen to be none: who finds it dead must know that it is gone for
        // good, and not load it again.
        if ends && end_as_only_holder(victim) {
            self.end_inode(handle, victim);
            return;
        }
        if !left_out(Step::OrphanRecorded) {
            self.add_orphan(handle, victim);
        }
        set_nameless(victim, Nameless::Yes);
    }
}

/// Locks inodes in ascending number, each once.
pub(crate) fn lock_all<'i>(inodes: &[&'i InodeRef]) -> Vec<ExclusiveHold<'i>> {
    let mut sorted: Vec<&'i InodeRef> = inodes.to_vec();
    sorted.sort_by_key(|inode| inode.ino);
    sorted.dedup_by_key(|inode| inode.ino);
    sorted.into_iter().map(|inode| inode.op.exclusive()).collect()
}

/// "." and ".." are always there.
fn exists_for_dots(error: Error) -> Error {
    match error {
        Error::InvalidArgument { what: "the name \".\"" } | Error::NotEmpty => Error::Exists,
        other => other,
    }
}
