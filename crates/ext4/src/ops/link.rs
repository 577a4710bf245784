//! Adds and removes names of existing inodes: link, unlink, rmdir.

use crate::attr::{Named, now};
use crate::flags;
use crate::name::directory::checked_entry;
use crate::name::entry_slot::{Edit, EntrySlot};
use crate::name::shared_else_exclusive;
use crate::name::{
    DROP_LINK, DirLocking, NameChange, check_addable, check_ended, drop_link, lock_for_names,
    names_changed, prepare_drop_link,
};
use crate::object::dirty::{Credits, Handle};
use crate::object::fs::Fs;
use crate::object::inode::InodeRef;
use crate::object::orphan::Orphans;
use crate::object::state::Concerns;
use lanefs_lanes::{Nameless, set_nameless};
use lanefs_ondisk::FileType;
use lanefs_ondisk::dirent::Name;
use lanefs_ondisk::inode::MAX_LINKS;
use lanefs_plan::dir::Look;
use lanefs_plan::{Error, InvalidArgument};

/// The credits of [`Fs::add_link`]: an inode without a name has an orphan record.
const ADD_LINK: Credits = Credits::INODE.and(Orphans::RECORD);

/// The kind of inode whose name an operation may remove.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Removal {
    File,
    Directory,
}

/// The result of an operation on a name that was looked up before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "nothing was done if the name has changed"]
pub enum Acted {
    /// The operation was done.
    Done,
    /// The name now refers to another inode. Nothing was done, because the caller has checked only
    /// the inode that it looked up.
    NameChanged,
}

impl Fs {
    /// Adds another name of `inode`.
    pub fn link(&self, inode: &InodeRef, dir: &InodeRef, name: &[u8]) -> Result<(), Error> {
        self.check_writable()?;
        let name = checked_entry(name, || Error::Exists)?;
        if inode.file_type == FileType::Directory {
            return Err(Error::NotPermitted);
        }
        shared_else_exclusive(|locking| self.link_locked(inode, dir, name, locking))?;
        self.obey_dirsync(&[dir])
    }

    /// Adds a name. Returns `None` if this requires that the directory's lock is held exclusively.
    fn link_locked(
        &self,
        inode: &InodeRef,
        dir: &InodeRef,
        name: Name<'_>,
        locking: DirLocking,
    ) -> Result<Option<()>, Error> {
        let both = [Some((dir, locking)), Some((inode, DirLocking::Exclusive))];
        let Some(_locks) = lock_for_names(both) else { return Ok(None) };
        check_addable(&self.volume, dir, NameChange::Uncounted)?;
        flags::check_link(&inode.rights())?;
        self.data(dir).check_project(inode)?;
        self.data(dir).check_policy(inode)?;
        let Some(place) = EntrySlot::with_room(self, dir, name, locking)? else {
            return Ok(None);
        };
        if let Look::There(_) = place.seen() {
            return Err(Error::Exists);
        }
        check_linkable(inode)?;
        let mut handle = self.join(EntrySlot::CREDITS.and(ADD_LINK))?;
        let names = place.lock();
        let Look::Room(room) = place.look_again()? else { return Ok(None) };
        let named = Named { ino: inode.ino, file_type: inode.file_type };
        // The inode changes first, because a thread that finds the name may sync the inode to make
        // the name durable.
        self.add_link(&mut handle, inode);
        place.apply(&mut handle, Edit::Add(room, named));
        drop(names);
        names_changed(&mut handle, dir, NameChange::Uncounted);
        Ok(Some(()))
    }

    /// Apply: counts one more name of `inode`.
    fn add_link(&self, handle: &mut Handle<'_>, inode: &InodeRef) {
        let now = now();
        if inode.attr().links == 0 {
            self.orphans.remove(handle, inode);
            set_nameless(inode, Nameless::No);
        }
        inode.change(handle, Concerns::Attributes, |state| {
            state.disk.links += 1;
            state.disk.ctime = now;
            state.linkable = false;
        });
    }

    /// Removes a name of an inode that is not a directory.
    pub fn unlink(&self, dir: &InodeRef, name: &[u8]) -> Result<(), Error> {
        self.remove_name(dir, name, Removal::File)
    }

    /// Removes a name that refers to `victim`, which the caller has looked up and checked. The same
    /// handle also deletes `victim` if this was its last name, the caller has the last hold, and
    /// `victim` owns no blocks.
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

    /// Does the same as [`Fs::unlink_found`] for an empty directory.
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

    /// Removes a name of `victim`. The caller drops `victim` afterwards, so that the last hold is
    /// dropped after the locks are released.
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
        let acted =
            shared_else_exclusive(|locking| self.remove_locked(dir, name, victim, locking))?;
        if acted == Acted::Done {
            self.obey_dirsync(&[dir])?;
        }
        Ok(acted)
    }

    /// Removes `name` if it refers to `victim`. Returns `None` if this requires that the
    /// directory's lock is held exclusively.
    fn remove_locked(
        &self,
        dir: &InodeRef,
        name: Name<'_>,
        victim: &InodeRef,
        locking: DirLocking,
    ) -> Result<Option<Acted>, Error> {
        let both = [Some((dir, locking)), Some((victim, DirLocking::Exclusive))];
        let Some(_locks) = lock_for_names(both) else { return Ok(None) };
        self.check_removable(dir, victim)?;
        let Some(place) = EntrySlot::of(self, dir, name, locking)? else {
            return Ok(None);
        };
        let Look::There(found) = place.seen() else { return Err(Error::NotFound) };
        if found.ino != victim.ino {
            return Ok(Some(Acted::NameChanged));
        }
        let change = check_ended(self, victim)?;
        let _hold = prepare_drop_link(self, victim)?;
        let mut handle = self.join(EntrySlot::CREDITS.and(DROP_LINK))?;
        let names = place.lock();
        match place.look_again()? {
            Look::There(now) if now.ino == found.ino => place.apply(&mut handle, Edit::Remove(now)),
            _ => return Ok(Some(Acted::NameChanged)),
        }
        drop(names);
        names_changed(&mut handle, dir, change);
        drop_link(self, &mut handle, victim);
        Ok(Some(Acted::Done))
    }

    /// Fails if names must not be removed from `dir`, or if names of `victim` must not be removed.
    fn check_removable(&self, dir: &InodeRef, victim: &InodeRef) -> Result<(), Error> {
        if dir.links() == 0 {
            return Err(Error::NotFound);
        }
        flags::check_deletion(&dir.rights(), &victim.rights())
    }
}

/// Fails if `inode` must not get another name. The caller holds its operation lock exclusively.
fn check_linkable(inode: &InodeRef) -> Result<(), Error> {
    let links = inode.attr().links;
    if links >= u32::from(MAX_LINKS) {
        return Err(Error::TooManyLinks);
    }
    // An inode that was created without a name may get its first name, but only after its creation
    // is complete. Otherwise the creation would record an inode with a name as an orphan.
    let may_get_its_first = || inode.holds.is_nameless() && inode.state.lock().linkable;
    if links == 0 && !may_get_its_first() {
        return Err(Error::NotFound);
    }
    Ok(())
}

/// Checks that `name` can be removed as the name of an inode of this kind.
fn removable(name: &[u8], what: Removal) -> Result<Name<'_>, Error> {
    let dots = || match (what, name) {
        (Removal::File, _) => Error::IsDirectory,
        (Removal::Directory, b".") => Error::InvalidArgument(InvalidArgument::DotName),
        (Removal::Directory, _) => Error::NotEmpty,
    };
    checked_entry(name, dots)
}
