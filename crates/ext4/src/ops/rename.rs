//! Implements rename(2): within one directory or across two, replacing an existing name, exchanging
//! two names, or leaving a whiteout at the old name.

use crate::alloc::GroupHold;
use crate::attr::{Named, Rename, now};
use crate::flags;
use crate::name::directory::{Directory, checked, checked_entry};
use crate::name::entry_slot::{Edit, EntrySlot, lock_both};
use crate::name::shared_else_exclusive;
use crate::name::{
    Ascent, DROP_LINK, DirLocking, IsRing, NameChange, check_ended, drop_link, lock_for_names,
    may_count, names_changed, prepare_drop_link,
};
use crate::object::dirty::{Credits, Handle};
use crate::object::fs::Fs;
use crate::object::inode::{Inode, InodeRef};
use crate::object::state::Concerns;
use crate::ops::create::{Born, Naming};
use crate::ops::link::Acted;
use lanefs_ondisk::casefold::Folding;
use lanefs_ondisk::dirent::{Cause, Name};
use lanefs_ondisk::inode::{InodeFlags, MAX_LINKS};
use lanefs_ondisk::{Corruption, FileBlock, FileType, Ino};
use lanefs_plan::Expected;
use lanefs_plan::dir::{Found, Look};
use lanefs_plan::{Error, InvalidArgument};

/// Holds the two names of a rename, and the inodes to which the names referred when they were
/// looked up.
pub struct Ends<'r> {
    from: &'r InodeRef,
    name: Name<'r>,
    to: &'r InodeRef,
    new_name: Name<'r>,
    source: InodeRef,
    target: Option<InodeRef>,
}

impl<'r> Ends<'r> {
    /// Creates the ends of a rename: `name` in `from` refers to `source`; `new_name` in `to` refers
    /// to `target`, or does not exist if `target` is `None`.
    ///
    /// # Errors
    /// An error if a name cannot be moved, or cannot be the new name.
    pub fn new(
        (from, name): (&'r InodeRef, &'r [u8]),
        (to, new_name): (&'r InodeRef, &'r [u8]),
        source: InodeRef,
        target: Option<InodeRef>,
    ) -> Result<Ends<'r>, Error> {
        let (name, new_name) =
            (checked_entry(name, || Error::Busy)?, checked_entry(new_name, || Error::Busy)?);
        Ok(Ends { from, name, to, new_name, source, target })
    }

    /// Returns two numbers: how many subdirectories the rename adds to the source directory, and
    /// how many it adds to the target directory. If both directories are the same, the first number
    /// is 0 and the second number is the total.
    fn subdirectories(&self, how: Rename) -> (i32, i32) {
        let is_dir = |inode: &InodeRef| i32::from(inode.file_type == FileType::Directory);
        let source = is_dir(&self.source);
        let (leaves, arrives) = match (&self.target, how) {
            (Some(target), Rename::Exchange) => (is_dir(target) - source, source - is_dir(target)),
            (Some(target), _) => (-source, source - is_dir(target)),
            (None, _) => (-source, source),
        };
        match self.from.ino == self.to.ino {
            true => (0, leaves + arrives),
            false => (leaves, arrives),
        }
    }
}

/// What a rename changes apart from the two entries, ready for Apply.
struct Moving<'f> {
    /// The inode that loses its name, with the group in which it may be deleted.
    replaced: Option<(&'f InodeRef, Option<GroupHold<'f>>)>,
    exchanged: Option<&'f InodeRef>,
    /// See [`Ends::subdirectories`].
    subdirectories: (i32, i32),
    /// The entries ".." of directories that get another parent.
    parents: [Option<(EntrySlot<'f>, Edit)>; 2],
    /// The whiteout.
    born: Option<Born<'f>>,
}

impl Moving<'_> {
    /// The credits for these changes and the two entries. A whiteout may lose its name again at
    /// once, instead of the changes of entries.
    fn credits(&self) -> Credits {
        let none = Credits::blocks(0);
        let renamed = Credits::INODE.times(1 + self.exchanged.iter().len());
        let entries = EntrySlot::CREDITS.times(2);
        let parents = Credits::blocks(1).times(self.parents.iter().flatten().count());
        let replaced = self.replaced.as_ref().map_or(none, |_| DROP_LINK);
        let born = self.born.as_ref().map_or(none, Born::credits);
        renamed.and(entries).and(parents).and(replaced).or(DROP_LINK).and(born)
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
        let (name, new_name) =
            (checked_entry(name, || Error::Busy)?, checked_entry(new_name, || Error::Busy)?);
        loop {
            let source = self.find(from, name.bytes())?.ok_or(Error::NotFound)?;
            let target = self.find(to, new_name.bytes())?;
            let ends = Ends { from, name, to, new_name, source, target };
            // If the names have changed meanwhile, the rename starts again.
            if self.try_rename(&ends, how)? {
                return self.obey_dirsync(&[from, to]);
            }
        }
    }

    /// Renames the inodes that the caller has looked up and checked.
    pub fn rename_found(&self, ends: Ends<'_>, how: Rename) -> Result<Acted, Error> {
        self.check_writable()?;
        if !self.try_rename(&ends, how)? {
            return Ok(Acted::NameChanged);
        }
        self.obey_dirsync(&[ends.from, ends.to])?;
        Ok(Acted::Done)
    }

    fn try_rename(&self, ends: &Ends<'_>, how: Rename) -> Result<bool, Error> {
        let Ends { from, to, source, target, .. } = ends;
        match (target, how) {
            (None, Rename::Exchange) => return Err(Error::NotFound),
            (Some(_), how) if how.needs_free_name() => return Err(Error::Exists),
            (Some(target), Rename::Replace) if target.ino == source.ino => {
                return self.respell(ends);
            }
            (Some(target), _) if target.ino == source.ino => return Ok(true),
            (Some(_), Rename::Exchange) | (None, _) => {}
            (Some(target), _) => check_kinds(source, target)?,
        }
        // An entry that refers to its own directory is damage. It is refused here, because the
        // rename would otherwise plan two edits of one directory.
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
        let changes_the_tree = moves(source) || exchanged.is_some_and(moves);
        let _topology = changes_the_tree.then(|| self.topology.0.lock());
        if moves(source) && self.is_ancestor(source.ino, to)? {
            return Err(InvalidArgument::IntoItself.into());
        }
        if exchanged.is_some_and(moves)
            && self.is_ancestor(exchanged.map_or(Ino(0), |t| t.ino), from)?
        {
            return Err(InvalidArgument::IntoItself.into());
        }
        if let Some(target) = target
            && how != Rename::Exchange
            && other_parent
            && target.file_type == FileType::Directory
            && target.ino == from.ino
        {
            return Err(Error::NotEmpty);
        }
        shared_else_exclusive(|locking| self.rename_locked(ends, how, locking))
    }

    /// Fails if one of the inodes must not be changed, or if the target directory was deleted.
    fn check_renamable(&self, ends: &Ends<'_>) -> Result<(), Error> {
        let Ends { from, to, source, target, .. } = ends;
        flags::check_deletion(&from.rights(), &source.rights())?;
        match target {
            Some(target) => flags::check_deletion(&to.rights(), &target.rights())?,
            None => flags::check_not_immutable(&to.rights())?,
        }
        if to.links() == 0 {
            return Err(Error::NotFound);
        }
        Ok(())
    }

    /// Fails if the key of a directory is missing, or if a directory is encrypted and the inode
    /// that moves into it has another policy or none.
    fn check_policies(&self, ends: &Ends<'_>, how: Rename) -> Result<(), Error> {
        let Ends { from, to, source, target, .. } = ends;
        self.data(from).check_names_key()?;
        self.data(to).check_names_key()?;
        if from.ino == to.ino {
            return Ok(());
        }
        self.data(to).check_policy(source)?;
        match (target, how) {
            (Some(target), Rename::Exchange) => self.data(from).check_policy(target),
            _ => Ok(()),
        }
    }

    /// Fails if the rename is forbidden, whatever its names refer to now.
    fn check_rename(&self, ends: &Ends<'_>, how: Rename) -> Result<(), Error> {
        let Ends { from, to, source, target, .. } = ends;
        self.check_renamable(ends)?;
        self.data(to).check_project(source)?;
        if let (Some(target), Rename::Exchange) = (target, how) {
            self.data(from).check_project(target)?;
        }
        self.check_policies(ends, how)
    }

    /// Returns the slots of the old and the new name; `None` if the directories must be locked
    /// exclusively. Room for the new name is made first, because that may move the old name.
    fn slots_of<'f>(
        &'f self,
        ends: &'f Ends<'_>,
        locking: DirLocking,
    ) -> Result<Option<(EntrySlot<'f>, EntrySlot<'f>)>, Error> {
        let Ends { from, name, to, new_name, target, .. } = ends;
        let arriving = match target {
            Some(_) => EntrySlot::of(self, to, *new_name, locking)?,
            None => EntrySlot::with_room(self, to, *new_name, locking)?,
        };
        let Some(arriving) = arriving else { return Ok(None) };
        let leaving = EntrySlot::beside(Some(&arriving), self, from, *name, locking)?;
        Ok(leaving.map(|leaving| (leaving, arriving)))
    }

    /// Returns the changes of the entries ".." of directories that get another parent.
    fn new_parents<'f>(
        &'f self,
        ends: &'f Ends<'_>,
        exchanged: Option<&'f InodeRef>,
    ) -> Result<[Option<(EntrySlot<'f>, Edit)>; 2], Error> {
        let Ends { from, to, source, .. } = ends;
        let moves =
            |inode: &&InodeRef| from.ino != to.ino && inode.file_type == FileType::Directory;
        let moved = Some(source).filter(moves).map(|dir| self.parent_entry(dir, to.ino));
        let moved_back = exchanged.filter(moves).map(|dir| self.parent_entry(dir, from.ino));
        Ok([moved.transpose()?, moved_back.transpose()?])
    }

    /// Apply: changes the renamed inodes. They change before the entries, because a thread that
    /// finds a name may sync the inode to make the name durable.
    fn note_renamed(
        &self,
        handle: &mut Handle<'_>,
        source: &InodeRef,
        exchanged: Option<&InodeRef>,
    ) {
        let is_directory = |inode: &InodeRef| inode.file_type == FileType::Directory;
        if let Some(fast) = &self.fast
            && (is_directory(source) || exchanged.is_some_and(is_directory))
        {
            fast.tree_changes(handle.tid());
        }
        let now = now();
        for moved in std::iter::once(source).chain(exchanged) {
            moved.change(handle, Concerns::Attributes, |state| state.disk.ctime = now);
        }
    }

    /// Renames under the locks. Returns false if a name now refers to another inode, and `None` if
    /// the rename needs the directories' locks exclusively.
    fn rename_locked(
        &self,
        ends: &Ends<'_>,
        how: Rename,
        locking: DirLocking,
    ) -> Result<Option<bool>, Error> {
        let Ends { from, to, source, target, .. } = ends;
        // Declared before the locks, so that a whiteout that gets no name is deleted after the
        // locks are released.
        let whiteout;
        let exclusively = |inode| (inode, DirLocking::Exclusive);
        let Some(_locks) = lock_for_names([
            Some((*from, locking)),
            Some((*to, locking)),
            Some(exclusively(source)),
            target.as_ref().map(exclusively),
        ]) else {
            return Ok(None);
        };
        self.check_rename(ends, how)?;
        let Some((leaving, arriving)) = self.slots_of(ends, locking)? else { return Ok(None) };
        let elsewhere = match locking {
            // It is not known yet whether one of the names now refers to another inode than it did
            // at the look-up. The retry, which holds the locks exclusively, finds out.
            DirLocking::Shared => None,
            DirLocking::Exclusive => Some(false),
        };
        if edits(ends, how, None, leaving.seen(), arriving.seen()).is_none() {
            return Ok(elsewhere);
        }
        let Some(mut moving) = self.prepare_rename(ends, how, locking)? else { return Ok(None) };
        let mut handle = self.join(moving.credits())?;
        whiteout = moving.born.take().map(|born| self.apply_birth(&mut handle, born));
        let names = lock_both(&leaving, &arriving);
        let edits = leaving
            .look_again()
            .and_then(|at| Ok(edits(ends, how, whiteout.as_ref(), at, arriving.look_again()?)));
        let Ok(Some([leaves, arrives])) = edits else {
            drop(names);
            if let Some(unused) = &whiteout {
                drop_link(self, &mut handle, unused);
            }
            return edits.map(|_| elsewhere);
        };
        self.note_renamed(&mut handle, source, moving.exchanged);
        EntrySlot::apply_both(&mut handle, [(&arriving, arrives), (&leaving, leaves)]);
        drop(names);
        for (place, edit) in moving.parents.iter().flatten() {
            place.apply(&mut handle, *edit);
        }
        let (lost, gained) = moving.subdirectories;
        names_changed(&mut handle, to, NameChange::of_directories(gained));
        if from.ino != to.ino {
            names_changed(&mut handle, from, NameChange::of_directories(lost));
        }
        if let Some((replaced, _hold)) = &moving.replaced {
            drop_link(self, &mut handle, replaced);
        }
        Ok(Some(true))
    }

    /// Prepares what a rename changes apart from the two entries. Returns `None` if the directories
    /// must be locked exclusively. The inodes are locked, and the names refer to them.
    fn prepare_rename<'f>(
        &'f self,
        ends: &'f Ends<'_>,
        how: Rename,
        locking: DirLocking,
    ) -> Result<Option<Moving<'f>>, Error> {
        let target = ends.target.as_ref();
        let exchanged = target.filter(|_| how == Rename::Exchange);
        let mut replaced = None;
        if let Some(inode) = target.filter(|_| how != Rename::Exchange) {
            check_ended(self, inode)?;
            replaced = Some((inode, prepare_drop_link(self, inode)?));
        }
        let subdirectories @ (lost, gained) = ends.subdirectories(how);
        if !self.may_gain(ends.to, gained, locking)? || !self.may_gain(ends.from, lost, locking)? {
            return Ok(None);
        }
        let parents = self.new_parents(ends, exchanged)?;
        let born = how.whiteout().map(|new| self.prepare_inode(ends.from, &new, Naming::Named));
        let born = born.transpose()?;
        Ok(Some(Moving { replaced, exchanged, subdirectories, parents, born }))
    }

    /// Returns whether `dir` can get `gained` more subdirectories under this locking, even if other
    /// threads that hold the lock shared add subdirectories at the same time ([`may_count`]).
    ///
    /// # Errors
    /// [`Error::TooManyLinks`] at the limit, without the feature `dir_nlink`.
    fn may_gain(&self, dir: &InodeRef, gained: i32, locking: DirLocking) -> Result<bool, Error> {
        if gained > 0 && dir.attr().links >= u32::from(MAX_LINKS) && !self.volume.dir_nlink {
            return Err(Error::TooManyLinks);
        }
        Ok(may_count(dir, NameChange::of_directories(gained), locking))
    }

    /// Returns the slot of the entry ".." of `dir`, and the edit that makes this entry refer to
    /// `parent`. `dir` is locked exclusively.
    fn parent_entry<'f>(
        &'f self,
        dir: &'f InodeRef,
        parent: Ino,
    ) -> Result<(EntrySlot<'f>, Edit), Error> {
        let place = EntrySlot::of(self, dir, checked(b"..")?, DirLocking::Exclusive)?;
        match place.map(|place| (place.seen(), place)) {
            Some((Look::There(dots), place)) => {
                let parent = Named { ino: parent, file_type: FileType::Directory };
                Ok((place, Edit::Replace(dots, parent)))
            }
            _ => Err(Error::NotFound),
        }
    }

    /// Returns whether `ancestor` is `dir` or above it. The caller holds no operation lock. It
    /// holds the topology lock, so that no directory changes its parent meanwhile.
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

    /// Records the damage of a directory that is among its own ancestors, and returns the error.
    pub fn ring_of_parents(&self, ino: Ino) -> Error {
        let damage = Corruption::Directory { ino, block: FileBlock(0), cause: Cause::ParentRing };
        let error = damage.into();
        self.note_error(&error);
        error
    }
}

/// Returns the edits of the source entry and of the target entry. If `whiteout` is given, the
/// source entry is edited to refer to it. Returns `None` if the entries have changed since they
/// were looked up.
fn edits(
    ends: &Ends<'_>,
    how: Rename,
    whiteout: Option<&InodeRef>,
    at: Look,
    there: Look,
) -> Option<[Edit; 2]> {
    let Ends { source, target, .. } = ends;
    let named = |inode: &InodeRef| Named { ino: inode.ino, file_type: inode.file_type };
    let Look::There(at) = at else { return None };
    let arrives = match (there, target) {
        (Look::There(there), Some(target)) if there.ino == target.ino => {
            Edit::Replace(there, named(source))
        }
        (Look::Room(room), None) => Edit::Add(room, named(source)),
        _ => return None,
    };
    let leaves = match (how, target, whiteout) {
        (Rename::Exchange, Some(target), _) => Edit::Replace(at, named(target)),
        (_, _, Some(whiteout)) => Edit::Replace(at, named(whiteout)),
        _ => Edit::Remove(at),
    };
    (at.ino == source.ino).then_some([leaves, arrives])
}

/// Checks that a directory replaces a directory, or that neither inode is a directory.
fn check_kinds(source: &Inode, target: &Inode) -> Result<(), Error> {
    match (source.file_type == FileType::Directory, target.file_type == FileType::Directory) {
        (true, false) => Err(Error::NotDirectory),
        (false, true) => Err(Error::IsDirectory),
        _ => Ok(()),
    }
}

// Gives a name another spelling in a directory that ignores case.

/// The blocks of a name that gets another spelling: the block of its entry, and another block if
/// the new spelling needs more room than the entry's block has.
struct Places<'f> {
    entry: EntrySlot<'f>,
    at: Found,
    room: Option<EntrySlot<'f>>,
}

impl Fs {
    /// Changes the spelling of a name in a directory that ignores case, if both names denote the
    /// same entry. If they denote two entries of one inode, both entries stay as they are. Returns
    /// false if the names changed meanwhile.
    pub(crate) fn respell(&self, ends: &Ends<'_>) -> Result<bool, Error> {
        let Ends { from, name, to, new_name, source, .. } = ends;
        let flags = InodeFlags::from_bits_retain(from.rights().flags);
        let folds = self.volume.folding_of(flags) != Folding::None;
        if from.ino != to.ino || name.bytes() == new_name.bytes() || !folds {
            return Ok(true);
        }
        let both = [*from, source].map(|inode| Some((inode, DirLocking::Exclusive)));
        let _locks = lock_for_names(both).expected()?;
        self.check_renamable(ends)?;
        let slot = |name| EntrySlot::of(self, from, name, DirLocking::Exclusive);
        let old = slot(*name)?.expected()?.seen();
        let new = slot(*new_name)?.expected()?;
        let (Look::There(old), Look::There(found)) = (old, new.seen()) else { return Ok(false) };
        if old.ino != source.ino || old != found {
            return Ok(old.ino == source.ino && found.ino == source.ino);
        }
        if new.is_spelled(found) {
            return Ok(true);
        }
        drop(new);
        let places = match self.places_of(ends)? {
            Some(places) => places,
            None => {
                Directory::of(self, from)?.make_room(*new_name)?;
                self.places_of(ends)?.expected()?
            }
        };
        self.apply_respelling(ends, &places)?;
        Ok(true)
    }

    /// Returns the blocks that the new spelling needs; `None` if no block has room for it. The
    /// directory's operation lock is held exclusively, and the name exists.
    fn places_of<'f>(&'f self, ends: &'f Ends<'_>) -> Result<Option<Places<'f>>, Error> {
        let (dir, name) = (ends.from, ends.new_name);
        let entry = EntrySlot::of(self, dir, name, DirLocking::Exclusive)?;
        let entry = entry.expected()?;
        let Look::There(at) = entry.seen() else { return Err(Error::NotFound) };
        let named = Named { ino: ends.source.ino, file_type: ends.source.file_type };
        if entry.fits_instead(at, named) {
            return Ok(Some(Places { entry, at, room: None }));
        }
        let room = EntrySlot::with_room_beside(self, dir, name)?;
        Ok(room.map(|room| Places { entry, at, room: Some(room) }))
    }

    fn apply_respelling(&self, ends: &Ends<'_>, places: &Places<'_>) -> Result<(), Error> {
        let Places { entry, at, room } = places;
        let (dir, source) = (ends.from, &ends.source);
        let named = Named { ino: source.ino, file_type: source.file_type };
        let mut handle = self.join(EntrySlot::CREDITS.times(2).and(Credits::INODE))?;
        match room {
            None => {
                let _names = entry.lock();
                entry.apply(&mut handle, Edit::Rename(*at, named));
            }
            Some(beside) => {
                let Look::Room(room) = beside.seen() else { return Err(Error::internal()) };
                let _names = lock_both(beside, entry);
                let edits = [(beside, Edit::Add(room, named)), (entry, Edit::Remove(*at))];
                EntrySlot::apply_both(&mut handle, edits);
            }
        }
        names_changed(&mut handle, dir, NameChange::of_directories(0));
        let now = now();
        source.change(&mut handle, Concerns::Attributes, |state| state.disk.ctime = now);
        Ok(())
    }
}
