//! rename(2): within one directory or across two, over an existing name or exchanging with it.

use crate::fs::Fs;
use crate::name::ascent::{Ascent, IsRing};
use crate::name::directory::{DirEdit, checked_entry};
use crate::name::place::{Edit, PLACE_CREDITS, Place, lock_beside, lock_both};
use crate::object::inode::{Concerns, Inode, InodeRef};
use crate::ops::create::{MAX_LINKS, NameChange, add_directory_links};
use crate::ops::link::{Acted, DROP_LINK_CREDITS, lock_all};
use crate::ops::read::now;
use crate::plan::dir::Look;
use crate::plant::{Step, left_out};
use crate::{Error, Named, Rename};
use lanefs_lanes::sync::Arc;
use lanefs_ondisk::dirent::{Cause, Name};
use lanefs_ondisk::{Corruption, FileBlock, FileType, Ino};

/// The two ends of a rename as they were found.
pub struct Ends<'r> {
    from: &'r InodeRef,
    name: Name<'r>,
    to: &'r InodeRef,
    new_name: Name<'r>,
    source: InodeRef,
    target: Option<InodeRef>,
}

impl<'r> Ends<'r> {
    /// `name` in `from` leads to `source`, and `new_name` in `to` to `target`, or nowhere.
    ///
    /// # Errors
    /// A name that cannot be moved, or be moved to.
    pub fn new(
        (from, name): (&'r InodeRef, &'r [u8]),
        (to, new_name): (&'r InodeRef, &'r [u8]),
        source: InodeRef,
        target: Option<InodeRef>,
    ) -> Result<Ends<'r>, Error> {
        let (name, new_name) = (entry_or_busy(name)?, entry_or_busy(new_name)?);
        Ok(Ends { from, name, to, new_name, source, target })
    }
}

impl Fs {
    /// Renames `name` in `from` to `new_name` in `to`.
    pub fn rename(
        &self,
        from: &InodeRef,
        name: &[u8],
        to: &InodeRef,
        new_name: &[u8],
        how: Rename,
    ) -> Result<(), Error> {
        self.check_writable()?;
        let (name, new_name) = (entry_or_busy(name)?, entry_or_busy(new_name)?);
        loop {
            let source = self.find(from, name.bytes())?.ok_or(Error::NotFound)?;
            let target = self.find(to, new_name.bytes())?;
            let ends = Ends { from, name, to, new_name, source, target };
            // Names changed meanwhile: start again.
            if self.try_rename(&ends, how)? {
                return Ok(());
            }
        }
    }

    /// Renames what the caller found and judged.
    pub fn rename_found(&self, ends: Ends<'_>, how: Rename) -> Result<Acted, Error> {
        self.check_writable()?;
        Ok(match self.try_rename(&ends, how)? {
            true => Acted::Done,
            false => Acted::LeadsElsewhere,
        })
    }

    fn try_rename(&self, ends: &Ends<'_>, how: Rename) -> Result<bool, Error> {
        let Ends { from, to, source, target, .. } = ends;
        match (target, how) {
            (None, Rename::Exchange) => return Err(Error::NotFound),
            (Some(_), Rename::NoReplace) => return Err(Error::Exists),
            (Some(target), _) if target.ino == source.ino => return Ok(true),
            (Some(target), Rename::Replace) => check_kinds(source, target)?,
            _ => {}
        }
        // Entries that name the directory they are in: two edits of one directory would be planned.
        let damaged = |dir: &InodeRef, entry: &InodeRef| {
            let (ino, block, cause) = (dir.ino, FileBlock(0), Cause::NamesItself);
            (dir.ino == entry.ino).then_some(Corruption::Directory { ino, block, cause })
        };
        let there = target.as_ref().and_then(|target| damaged(to, target));
        if let Some(damage) = damaged(from, source).or(there) {
            let error = damage.into();
            self.note_error(&error);
            return Err(error);
        }
        let other_parent = from.ino != to.ino;
        let moves = |inode: &InodeRef| other_parent && inode.file_type == FileType::Directory;
        let exchanged = target.as_ref().filter(|_| how == Rename::Exchange);
        let _topology = match moves(source) || exchanged.is_some_and(moves) {
            true if !left_out(Step::TopologyLock) => Some(self.topology.lock()),
            _ => None,
        };
        if moves(source) && self.is_ancestor(source.ino, to)? {
            return Err(Error::InvalidArgument { what: "a directory moved into itself" });
        }
        if exchanged.is_some_and(moves)
            && self.is_ancestor(exchanged.map_or(Ino(0), |t| t.ino), from)?
        {
            return Err(Error::InvalidArgument { what: "a directory moved into itself" });
        }
        if let (Some(target), Rename::Replace) = (target, how)
            && other_parent
            && target.file_type == FileType::Directory
            && target.ino == from.ino
        {
            return Err(Error::NotEmpty);
        }
        if !moves(source)
            && !exchanged.is_some_and(moves)
            && let Some(done) = self.rename_in_place(ends, how)?
        {
            return Ok(done);
        }
        let inodes: Vec<_> = [*from, *to, source].into_iter().chain(target).collect();
        let _locks = lock_all(&inodes);
        self.check_renamable(ends)?;
        self.rename_locked(ends, how)
    }

    /// Fails if one of the inodes may not be changed, or the target directory is gone.
    fn check_renamable(&self, ends: &Ends<'_>) -> Result<(), Error> {
        let Ends { from, to, source, target, .. } = ends;
        for inode in [*from, *to, source].into_iter().chain(target) {
            self.check_not_immutable(inode)?;
        }
        if to.links() == 0 {
            return Err(Error::NotFound);
        }
        Ok(())
    }

    /// Renames beside others who change other names of the directories, if no directory changes its
    /// parent; false if a name leads elsewhere by now, `None` if it cannot be done so.
    fn rename_in_place(&self, ends: &Ends<'_>, how: Rename) -> Result<Option<bool>, Error> {
        let Ends { from, name, to, new_name, source, target } = ends;
        let inodes: Vec<_> = std::iter::once(source).chain(target).collect();
        let Some(_locks) = lock_beside(&[from, to], &inodes) else { return Ok(None) };
        self.check_renamable(ends)?;
        let Some(leaving) = self.place_of(from, *name)? else { return Ok(None) };
        let Some(arriving) = self.place_of(to, *new_name)? else { return Ok(None) };
        let named = |inode: &InodeRef| Named { ino: inode.ino, file_type: inode.file_type };
        // What is to be done with what is there; nothing if that is not what was found.
        let edits = |at: Look, there: Look| {
            let Look::There(at) = at else { return None };
            let arrives = match (there, target) {
                (Look::There(there), Some(target)) if there.ino == target.ino => {
                    Edit::Replace(there, named(source))
                }
                (Look::Room(room), None) => Edit::Add(room, named(source)),
                _ => return None,
            };
            let leaves = match (how, target) {
                (Rename::Exchange, Some(target)) => Edit::Replace(at, named(target)),
                _ => Edit::Remove(at),
            };
            (at.ino == source.ino).then_some([(&arriving, arrives), (&leaving, leaves)])
        };
        if edits(leaving.seen(), arriving.seen()).is_none() {
            return Ok(None);
        }
        let replaced = target.as_ref().filter(|_| how != Rename::Exchange);
        let mut change = NameChange::Uncounted;
        if let Some(replaced) = replaced {
            change = self.check_ended(replaced)?;
            self.prepare_drop_link(replaced)?;
        }
        let mut handle = self.join(2 * PLACE_CREDITS + 2 + DROP_LINK_CREDITS)?;
        let names = lock_both(&leaving, &arriving);
        let Some(edits) = edits(leaving.look_again()?, arriving.look_again()?) else {
            return Ok(None);
        };
        Place::apply_both(&mut handle, edits);
        drop(names);
        self.names_changed(&mut handle, to, change);
        if from.ino != to.ino {
            self.names_changed(&mut handle, from, NameChange::Uncounted);
        }
        let now = now();
        let exchanged = target.as_ref().filter(|_| how == Rename::Exchange);
        for moved in std::iter::once(source).chain(exchanged) {
            moved.change(&mut handle, Concerns::Attributes, |state| state.disk.ctime = now);
        }
        if let Some(replaced) = replaced {
            self.drop_link(&mut handle, replaced);
        }
        Ok(Some(true))
    }

    /// The rename itself, with all operation locks held; false if a name leads elsewhere by now.
    fn rename_locked(&self, ends: &Ends<'_>, how: Rename) -> Result<bool, Error> {
        let Ends { from, name, to, new_name, source, target } = ends;
        let same_dir = from.ino == to.ino;
        let mut leaving = self.edit_directory(from)?;
        let mut arriving = if same_dir { None } else { Some(self.edit_directory(to)?) };
        let Some(at) = leaving.find(*name)? else { return Err(Error::NotFound) };
        let there = arriving.as_ref().unwrap_or(&leaving).find(*new_name)?;
        let moved = at.ino != source.ino || there.map(|t| t.ino) != target.as_ref().map(|t| t.ino);
        if moved && !left_out(Step::NameLookedAtAgain) {
            return Ok(false);
        }
        let is_dir = |inode: &InodeRef| inode.file_type == FileType::Directory;
        if let (Some(target), Rename::Replace) = (target, how) {
            self.check_mapped_by_extents(target)?;
        }
        if let (Some(target), Rename::Replace) = (target, how)
            && is_dir(target)
            && !self.edit_directory(target)?.is_empty()?
        {
            return Err(Error::NotEmpty);
        }
        // The target first: its place is not moved by the removal of the source.
        {
            let edit = arriving.as_mut().unwrap_or(&mut leaving);
            match &there {
                Some(there) => edit.replace(there, source.ino, source.file_type)?,
                None => edit.insert(*new_name, source.ino, source.file_type)?,
            }
        }
        // Found again: an insertion into the same directory may have moved it.
        let at = leaving.find(*name)?.ok_or(Error::NotFound)?;
        match (how, target) {
            (Rename::Exchange, Some(target)) => {
                leaving.replace(&at, target.ino, target.file_type)?
            }
            _ => leaving.remove(&at)?,
        }
        let mut parents = Vec::new();
        if !same_dir && is_dir(source) {
            parents.push((source, self.reparent(source, to.ino)?));
        }
        if let (false, Rename::Exchange, Some(target)) = (same_dir, how, target)
            && is_dir(target)
        {
            parents.push((target, self.reparent(target, from.ino)?));
        }
        let replaced = target.as_ref().filter(|_| how != Rename::Exchange);
        let exchanged = target.as_ref().filter(|_| how == Rename::Exchange);
        // Subdirectories that `from` loses, and that `to` gains.
        let lost = i32::from(is_dir(source)) - i32::from(exchanged.is_some_and(is_dir));
        let gained = lost - i32::from(replaced.is_some_and(is_dir));
        if !same_dir {
            self.check_room_for_directories(to, gained)?;
            self.check_room_for_directories(from, -lost)?;
        }

        let leaving = leaving.finish()?;
        let arriving = arriving.map(DirEdit::finish).transpose()?;
        let parents: Vec<_> = parents
            .into_iter()
            .map(|(inode, edit)| Ok((inode, edit.finish()?)))
            .collect::<Result<_, Error>>()?;
        let credits = leaving.credits
            + arriving.as_ref().map_or(0, |change| change.credits)
            + parents.iter().map(|(_, change)| change.credits).sum::<u32>();
        if let Some(replaced) = replaced {
            self.prepare_drop_link(replaced)?;
        }
        let mut handle = self.join(credits + 5 + DROP_LINK_CREDITS)?;
        let now = now();
        let times = |disk: &mut lanefs_ondisk::inode::Inode| {
            disk.mtime = now;
            disk.ctime = now;
        };
        let balance = if same_dir { gained - lost } else { -lost };
        self.apply_directory(&mut handle, from, leaving, |state| {
            times(&mut state.disk);
            add_directory_links(&mut state.disk, balance);
        });
        if let Some(arriving) = arriving {
            self.apply_directory(&mut handle, to, arriving, |state| {
                times(&mut state.disk);
                add_directory_links(&mut state.disk, gained);
            });
        }
        for (inode, change) in parents {
            self.apply_directory(&mut handle, inode, change, |_| ());
        }
        let touch = |handle: &mut crate::object::commit::Handle<'_>, inode: &Arc<Inode>| {
            inode.change(handle, Concerns::Attributes, |state| state.disk.ctime = now);
        };
        touch(&mut handle, source);
        if let Some(exchanged) = exchanged {
            touch(&mut handle, exchanged);
        }
        if let Some(replaced) = replaced {
            self.drop_link(&mut handle, replaced);
        }
        drop(handle);
        let named = |inode: &InodeRef| Named { ino: inode.ino, file_type: inode.file_type };
        self.names.publish(from.dir_id(), name.bytes(), exchanged.map(named));
        self.names.publish(to.dir_id(), new_name.bytes(), Some(named(source)));
        Ok(true)
    }

    /// Without the feature `dir_nlink` a directory has only so many subdirectories.
    fn check_room_for_directories(&self, dir: &InodeRef, gained: i32) -> Result<(), Error> {
        if gained > 0 && dir.attr().links >= u32::from(MAX_LINKS) && !self.dir_nlink {
            return Err(Error::TooManyLinks);
        }
        Ok(())
    }

    /// An edit that lets `..` of `dir` name `parent`.
    fn reparent<'f>(&'f self, dir: &'f InodeRef, parent: Ino) -> Result<DirEdit<'f>, Error> {
        let mut edit = self.edit_directory(dir)?;
        let dots = edit.find(crate::name::directory::checked(b"..")?)?.ok_or(Error::NotFound)?;
        edit.replace(&dots, parent, FileType::Directory)?;
        Ok(edit)
    }

    /// Whether `ancestor` is `dir` or above it. The topology lock is held, so that no directory
    /// changes its parent meanwhile; no operation lock is.
    fn is_ancestor(&self, ancestor: Ino, dir: &InodeRef) -> Result<bool, Error> {
        let mut at = dir.clone();
        let mut ascent = Ascent::new(at.ino);
        loop {
            if at.ino == ancestor {
                return Ok(true);
            }
            if at.ino == Ino::ROOT {
                return Ok(false);
            }
            let Some(parent) = self.find(&at, b"..")? else { return Ok(false) };
            at = parent;
            ascent.step(&at.ino).map_err(|IsRing| self.ring_of_parents(at.ino))?;
        }
    }

    /// The error for a directory whose parents lead back to it; remembered as damage.
    pub fn ring_of_parents(&self, ino: Ino) -> Error {
        let damage = Corruption::Directory { ino, block: FileBlock(0), cause: Cause::ParentRing };
        let error = damage.into();
        self.note_error(&error);
        error
    }
}

/// A directory replaces only a directory, anything else only what is none.
fn check_kinds(source: &Inode, target: &Inode) -> Result<(), Error> {
    match (source.file_type == FileType::Directory, target.file_type == FileType::Directory) {
        (true, false) => Err(Error::NotDirectory),
        (false, true) => Err(Error::IsDirectory),
        _ => Ok(()),
    }
}

fn entry_or_busy(name: &[u8]) -> Result<Name<'_>, Error> {
    match name {
        b"." | b".." => Err(Error::Busy),
        _ => checked_entry(name),
    }
}
