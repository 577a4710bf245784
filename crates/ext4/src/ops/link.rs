//! Names for inodes that are there: link, unlink, rmdir.

use crate::alloc::GroupHold;
use crate::flags;
use crate::fs::Fs;
use crate::name::directory::checked_entry;
use crate::name::place::{Beside, Edit, PLACE_CREDITS, lock_for_names};
use crate::object::commit::Handle;
use crate::object::inode::{Concerns, Inode, InodeRef};
use crate::ops::create::{MAX_LINKS, NameChange};
use crate::ops::read::now;
use crate::plan::dir::Look;
use crate::plant::{Step, left_out};
use crate::{Error, Named};
use lanefs_lanes::sync::Arc;
use lanefs_lanes::{Nameless, end_as_only_holder, set_nameless};
use lanefs_ondisk::FileType;
use lanefs_ondisk::dirent::Name;

/// Credits of [`Fs::add_link`]: an inode and its place among the orphans.
const ADD_LINK_CREDITS: u32 = 6;
/// Credits of [`Fs::drop_link`]: an inode, and its group or its place among the orphans.
pub(crate) const DROP_LINK_CREDITS: u32 = 8;

/// What an entry that is to be removed must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Removal {
    File,
    Directory,
}

/// What came of an operation on a name that was looked up before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "nothing was done if the name leads elsewhere"]
pub enum Acted {
    /// It was done.
    Done,
    /// The name leads elsewhere by now: nothing was done, since what the caller found out about what it
    /// led to, and whether it may be done to that, is not about what it leads to now.
    LeadsElsewhere,
}

impl Fs {
    /// Gives `inode` another name.
    pub fn link(&self, inode: &InodeRef, dir: &InodeRef, name: &[u8]) -> Result<(), Error> {
        self.check_writable()?;
        let name = checked_entry(name, Error::Exists)?;
        if inode.file_type == FileType::Directory {
            return Err(Error::NotPermitted);
        }
        match self.link_beside(inode, dir, name, Beside::Others)? {
            Some(()) => {}
            None => self.link_beside(inode, dir, name, Beside::Nobody)?.ok_or(Error::Busy)?,
        }
        self.obey_dirsync(&[dir])
    }

    /// Links; `None` if that cannot be beside others.
    fn link_beside(
        &self,
        inode: &InodeRef,
        dir: &InodeRef,
        name: Name<'_>,
        beside: Beside,
    ) -> Result<Option<()>, Error> {
        let Some(_locks) = lock_for_names(&[dir], &[inode], beside) else { return Ok(None) };
        self.check_addable(dir, NameChange::Uncounted)?;
        flags::check_link(&inode.rights())?;
        let Some(place) = self.place_for(dir, name, beside)? else { return Ok(None) };
        if let Look::There(_) = place.seen() {
            return Err(Error::Exists);
        }
        check_linkable(inode)?;
        let mut handle = self.join(PLACE_CREDITS + ADD_LINK_CREDITS)?;
        let names = place.lock();
        let Look::Room(room) = place.look_again()? else { return Ok(None) };
        let named = Named { ino: inode.ino, file_type: inode.file_type };
        place.apply(&mut handle, Edit::Add(room, named));
        drop(names);
        self.names_changed(&mut handle, dir, NameChange::Uncounted);
        self.add_link(&mut handle, inode);
        Ok(Some(()))
    }

    /// Apply: `inode` has one name more.
    fn add_link(&self, handle: &mut Handle<'_>, inode: &InodeRef) {
        let now = now();
        if inode.attr().links == 0 {
            self.remove_orphan(handle, inode);
            set_nameless(inode, Nameless::No);
        }
        inode.change(handle, Concerns::Attributes, |state| {
            state.disk.links += 1;
            state.disk.ctime = now;
            state.linkable = false;
        });
    }

    /// Removes a name that is not a directory's.
    pub fn unlink(&self, dir: &InodeRef, name: &[u8]) -> Result<(), Error> {
        self.remove_name(dir, name, Removal::File)
    }

    /// Removes a name that leads to `victim`, as the caller found and judged. A file whose last name
    /// and last hold this takes is ended in the same handle.
    pub fn unlink_found(
        &self,
        dir: &InodeRef,
        name: &[u8],
        victim: InodeRef,
    ) -> Result<Acted, Error> {
        self.remove_found(dir, name, &victim, Removal::File)
    }

    /// Removes an empty directory.
    pub fn rmdir(&self, dir: &InodeRef, name: &[u8]) -> Result<(), Error> {
        self.remove_name(dir, name, Removal::Directory)
    }

    /// As [`Fs::unlink_found`], of an empty directory.
    pub fn rmdir_found(
        &self,
        dir: &InodeRef,
        name: &[u8],
        victim: InodeRef,
    ) -> Result<Acted, Error> {
        self.remove_found(dir, name, &victim, Removal::Directory)
    }

    fn remove_name(&self, dir: &InodeRef, name: &[u8], what: Removal) -> Result<(), Error> {
        self.check_writable()?;
        let entry = removable(name, what)?;
        loop {
            let victim = self.find(dir, entry.bytes())?.ok_or(Error::NotFound)?;
            if self.remove_found(dir, name, &victim, what)? == Acted::Done {
                return Ok(());
            }
        }
    }

    /// `victim` is dropped by the caller, so that its last hold goes after the locks.
    fn remove_found(
        &self,
        dir: &InodeRef,
        name: &[u8],
        victim: &InodeRef,
        what: Removal,
    ) -> Result<Acted, Error> {
        self.check_writable()?;
        let name = removable(name, what)?;
        match (what, victim.file_type == FileType::Directory) {
            (Removal::File, true) => return Err(Error::IsDirectory),
            (Removal::Directory, false) => return Err(Error::NotDirectory),
            _ => {}
        }
        let acted = match self.remove_beside(dir, name, victim, Beside::Others)? {
            Some(acted) => acted,
            None => self.remove_beside(dir, name, victim, Beside::Nobody)?.ok_or(Error::Busy)?,
        };
        if acted == Acted::Done {
            self.obey_dirsync(&[dir])?;
        }
        Ok(acted)
    }

    /// Removes `name` if it leads to `victim`; `None` if that cannot be beside others.
    fn remove_beside(
        &self,
        dir: &InodeRef,
        name: Name<'_>,
        victim: &InodeRef,
        beside: Beside,
    ) -> Result<Option<Acted>, Error> {
        let Some(_locks) = lock_for_names(&[dir], &[victim], beside) else { return Ok(None) };
        self.check_removable(dir, victim)?;
        let Some(place) = self.place_of(dir, name, beside)? else { return Ok(None) };
        let Look::There(found) = place.seen() else { return Err(Error::NotFound) };
        if found.ino != victim.ino && !left_out(Step::NameLookedAtAgain) {
            return Ok(Some(Acted::LeadsElsewhere));
        }
        let change = self.check_ended(victim)?;
        let _hold = self.prepare_drop_link(victim)?;
        let mut handle = self.join(PLACE_CREDITS + DROP_LINK_CREDITS)?;
        let names = place.lock();
        match place.look_again()? {
            Look::There(now) if now.ino == found.ino => place.apply(&mut handle, Edit::Remove(now)),
            _ => return Ok(Some(Acted::LeadsElsewhere)),
        }
        drop(names);
        self.names_changed(&mut handle, dir, change);
        self.drop_link(&mut handle, victim);
        Ok(Some(Acted::Done))
    }

    /// Fails if no name may be taken from `dir`, or none of `victim`.
    fn check_removable(&self, dir: &InodeRef, victim: &InodeRef) -> Result<(), Error> {
        if dir.links() == 0 {
            return Err(Error::NotFound);
        }
        flags::check_deletion(&dir.rights(), &victim.rights())
    }

    /// Fails if `victim` cannot lose the name, for it is a directory that is not empty, or could not
    /// be ended; what that does to its parent. Its operation lock is held exclusively.
    pub(crate) fn check_ended(&self, victim: &InodeRef) -> Result<NameChange, Error> {
        let is_directory = victim.file_type == FileType::Directory;
        if is_directory && !self.is_empty_directory(victim)? {
            return Err(Error::NotEmpty);
        }
        self.check_mapped_by_extents(victim)?;
        Ok(match is_directory {
            true => NameChange::OneDirectoryLess,
            false => NameChange::Uncounted,
        })
    }

    /// Reads what [`Fs::drop_link`] may need, to be held until then. Sleeps.
    pub(crate) fn prepare_drop_link(&self, victim: &Inode) -> Result<GroupHold<'_>, Error> {
        let (group, _) = self.inode_group(victim.ino)?;
        self.groups.load(self, group)
    }

    /// Apply: `victim` has lost a name, or all of a directory's. Without one left it is ended: here,
    /// if it has nothing to free but its number and the caller's is the only hold; else it is an
    /// orphan from now on, for whoever drops the last hold to end.
    pub(crate) fn drop_link(&self, handle: &mut Handle<'_>, victim: &Arc<Inode>) {
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

/// Fails if `inode` takes no further name. Its operation lock is held exclusively.
fn check_linkable(inode: &InodeRef) -> Result<(), Error> {
    let links = inode.attr().links;
    if links >= u32::from(MAX_LINKS) {
        return Err(Error::TooManyLinks);
    }
    // Not before its birth is over: it would be an orphan with a name.
    let may_get_its_first = || inode.holds.is_nameless() && inode.state.lock().linkable;
    if links == 0 && !may_get_its_first() {
        return Err(Error::NotFound);
    }
    Ok(())
}

/// `name` if it may be removed as what it is to be.
fn removable(name: &[u8], what: Removal) -> Result<Name<'_>, Error> {
    let dots = match (what, name) {
        (Removal::File, _) => Error::IsDirectory,
        (Removal::Directory, b".") => Error::InvalidArgument { what: "the name \".\"" },
        (Removal::Directory, _) => Error::NotEmpty,
    };
    checked_entry(name, dots)
}
