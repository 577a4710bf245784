//! Gives a name another spelling in a directory that ignores case.

use crate::clock::now;
use crate::fs::Fs;
use crate::name::directory::Directory;
use crate::name::entry_slot::{ENTRY_CREDITS, Edit, EntrySlot, lock_both};
use crate::name::links::{NameChange, names_changed};
use crate::name::locks::{DirLocking, lock_for_names};
use crate::names::Named;
use crate::object::state::Concerns;
use crate::ops::rename::Ends;
use lanefs_ondisk::casefold::Folding;
use lanefs_ondisk::inode::InodeFlags;
use lanefs_plan::Error;
use lanefs_plan::dir::{Found, Look};

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
    pub(super) fn respell(&self, ends: &Ends<'_>) -> Result<bool, Error> {
        let Ends { from, name, to, new_name, source, .. } = ends;
        let flags = InodeFlags::from_bits_retain(from.rights().flags);
        let folds = self.objects.volume.folding_of(flags) != Folding::None;
        if from.ino != to.ino || name.bytes() == new_name.bytes() || !folds {
            return Ok(true);
        }
        let both = [*from, source].map(|inode| Some((inode, DirLocking::Exclusive)));
        let _locks = lock_for_names(both).ok_or(Error::Busy)?;
        self.check_renamable(ends)?;
        let slot = |name| EntrySlot::of(&self.objects, from, name, DirLocking::Exclusive);
        let old = slot(*name)?.ok_or(Error::Busy)?.seen();
        let new = slot(*new_name)?.ok_or(Error::Busy)?;
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
                Directory::of(&self.objects, from)?.make_room(*new_name)?;
                self.places_of(ends)?.ok_or(Error::NoSpace)?
            }
        };
        self.apply_respelling(ends, &places)?;
        Ok(true)
    }

    /// Returns the blocks that the new spelling needs; `None` if no block has room for it. The
    /// directory's operation lock is held exclusively, and the name exists.
    fn places_of<'f>(&'f self, ends: &'f Ends<'_>) -> Result<Option<Places<'f>>, Error> {
        let (dir, name) = (ends.from, ends.new_name);
        let entry = EntrySlot::of(&self.objects, dir, name, DirLocking::Exclusive)?;
        let entry = entry.ok_or(Error::Busy)?;
        let Look::There(at) = entry.seen() else { return Err(Error::NotFound) };
        let named = Named { ino: ends.source.ino, file_type: ends.source.file_type };
        if entry.fits_instead(at, named) {
            return Ok(Some(Places { entry, at, room: None }));
        }
        let room = EntrySlot::with_room_beside(&self.objects, dir, name)?;
        Ok(room.map(|room| Places { entry, at, room: Some(room) }))
    }

    fn apply_respelling(&self, ends: &Ends<'_>, places: &Places<'_>) -> Result<(), Error> {
        let Places { entry, at, room } = places;
        let (dir, source) = (ends.from, &ends.source);
        let named = Named { ino: source.ino, file_type: source.file_type };
        let mut handle = self.objects.join(2 * ENTRY_CREDITS + 2)?;
        match room {
            None => {
                let _names = entry.lock();
                entry.apply(&mut handle, Edit::Rename(*at, named));
            }
            Some(beside) => {
                let Look::Room(room) = beside.seen() else { return Err(Error::NoSpace) };
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
