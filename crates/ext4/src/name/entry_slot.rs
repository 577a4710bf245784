//! Changing one name of a directory: the only way in which a name changes.
//!
//! The directory's operation lock is held shared, so that others change other names beside: its shape
//! stays, so the block where a name is, or would go, can be told before a handle is joined. Under the
//! handle that block's names are locked, and what was seen is looked at again.
//!
//! If the block cannot be told, or has no room, nothing was changed yet, and the operation starts again
//! with the lock held exclusively. Then it first makes room ([`Directory::make_room`]), in a handle of its own,
//! and changes the name in the same way.
//!
//! *Locking*: [`lanefs_lanes::Rank::Names`] in a handle, two blocks in ascending number; guards under
//! it. A name is published under the guard of the block that changes, so a reader that sees the block
//! changed finds the name published.

use crate::error::Error;
use crate::name::directory::Directory;
use crate::name::locks::Beside;
use crate::names::Named;
use crate::object::dirty::Handle;
use crate::object::inode::Inode;
use crate::object::meta::MetaRef;
use crate::object::objects::Objects;
use crate::plan::dir;
use crate::plan::dir::{DirContext, Found, Indexing, Look};
use lanefs_lanes::MutexGuard;
use lanefs_lanes::sync::Arc;
use lanefs_ondisk::FileBlock;
use lanefs_ondisk::dirent::{self, Name, Packed, Room};
use lanefs_ondisk::inode::InodeFlags;

/// Credits for the block and the inode of a directory in which one name changes.
pub(crate) const ENTRY_CREDITS: u32 = 3;

/// A name, and the one block where it is or would be.
pub(crate) struct EntrySlot<'f> {
    objects: &'f Objects,
    dir: &'f Arc<Inode>,
    context: DirContext,
    name: Name<'f>,
    n: FileBlock,
    pub(crate) block: MetaRef,
    version: u64,
    seen: Look,
}

impl<'f> EntrySlot<'f> {
    /// The slot of `name` in `dir`. Beside others `None` if its block cannot be told so. Sleeps.
    pub(crate) fn of(
        objects: &'f Objects,
        dir: &'f Arc<Inode>,
        name: Name<'f>,
        beside: Beside,
    ) -> Result<Option<EntrySlot<'f>>, Error> {
        let view = Directory::of(objects, dir)?;
        let flagged = InodeFlags::from_bits_retain(dir.rights().flags).contains(InodeFlags::INDEX);
        if view.context.indexing == Indexing::Never && flagged {
            if beside == Beside::Others {
                return Ok(None);
            }
            view.drop_index()?;
        }
        let dots = matches!(name.bytes(), b"." | b"..");
        let n = match (view.leaf_of(name)?, beside) {
            (Some(n), _) => n,
            (None, Beside::Others) => return Ok(None),
            (None, Beside::Nobody) if dots => FileBlock(0),
            (None, Beside::Nobody) => {
                dir::locate(&view.context, &view, name)?.unwrap_or(FileBlock(0))
            }
        };
        let block = view.meta_block(n)?;
        let look = |bytes: &[u8]| match dots {
            // The first block, which may be the root of an index.
            true => dir::find_dot(&view.context, bytes, name).map(Look::There),
            false => dir::look_for(&view.context, n, bytes, name),
        };
        let (version, seen) = block.look_under_guard(look);
        let (context, seen) = (view.context, seen?);
        Ok(Some(EntrySlot { objects, dir, context, name, n, block, version, seen }))
    }

    /// As [`EntrySlot::of`], of a name that is to be added: with room, unless the name is there. Beside
    /// others `None` if there is no room.
    pub(crate) fn with_room(
        objects: &'f Objects,
        dir: &'f Arc<Inode>,
        name: Name<'f>,
        beside: Beside,
    ) -> Result<Option<EntrySlot<'f>>, Error> {
        match (EntrySlot::of(objects, dir, name, beside)?, beside) {
            (Some(place), Beside::Others) if place.seen == Look::Full => Ok(None),
            (Some(place), Beside::Nobody) if place.seen == Look::Full => {
                drop(place);
                Directory::of(objects, dir)?.make_room(name)?;
                EntrySlot::of(objects, dir, name, beside)
            }
            (place, _) => Ok(place),
        }
    }
}

impl EntrySlot<'_> {
    /// What was there when it was looked at last.
    pub(crate) fn seen(&self) -> Look {
        self.seen
    }

    /// Locks the block's names. A handle is held.
    pub(crate) fn lock(&self) -> MutexGuard<'_, ()> {
        self.block.lock_names()
    }

    /// What is there now, and stays: the block's names are locked.
    pub(crate) fn look_again(&self) -> Result<Look, Error> {
        if self.block.version() == self.version {
            return Ok(self.seen);
        }
        let look = |bytes: &[u8]| dir::look_for(&self.context, self.n, bytes, self.name);
        self.block.look_under_guard(look).1
    }

    /// Apply: edits the entry, and publishes what the name leads to, both under the block's guard.
    pub(crate) fn apply(&self, handle: &mut Handle<'_>, edit: Edit) {
        self.change(handle, &[(self, edit)]);
    }

    /// Apply: both edits; as one, if their entries are in one block.
    pub(crate) fn apply_both(handle: &mut Handle<'_>, edits: [(&EntrySlot<'_>, Edit); 2]) {
        let [(first, _), (second, _)] = edits;
        if first.block.block == second.block.block {
            return first.change(handle, &edits);
        }
        for (place, edit) in edits {
            place.apply(handle, edit);
        }
    }

    /// Makes edits of this slot's block.
    fn change(&self, handle: &mut Handle<'_>, edits: &[(&EntrySlot<'_>, Edit)]) {
        self.block.change(handle, |data| {
            let bytes = Arc::make_mut(data);
            for (place, edit) in edits {
                place.edit(bytes, edit);
            }
            self.publish(edits);
        });
    }

    /// Tells the name cache what the names lead to from now on.
    fn publish(&self, edits: &[(&EntrySlot<'_>, Edit)]) {
        for (place, edit) in edits {
            // The name cache has no ".."; its change is no change of a name.
            if place.name.bytes() != b".." {
                let (dir, name) = (place.dir.dir_id(), place.name.bytes());
                self.objects.names.publish(dir, name, edit.leads_to());
            }
        }
    }

    fn edit(&self, bytes: &mut [u8], edit: &Edit) {
        let format = &self.context.format;
        let edited = match *edit {
            Edit::Add(room, Named { ino, file_type }) => {
                let new = Packed { ino, file_type: Some(file_type), name: self.name };
                dirent::insert_at(format, bytes, room, &new);
                Ok(())
            }
            Edit::Replace(at, Named { ino, file_type }) => {
                dirent::replace(format, bytes, at.offset, ino, file_type)
            }
            Edit::Remove(at) => dirent::remove(format, bytes, at.offset),
        };
        debug_assert_eq!(edited, Ok(()), "what was found can be edited");
    }
}

/// What is to become of an entry, or of the room for one, that was found with the names locked.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Edit {
    Add(Room, Named),
    Replace(Found, Named),
    Remove(Found),
}

impl Edit {
    fn leads_to(&self) -> Option<Named> {
        match *self {
            Edit::Add(_, named) | Edit::Replace(_, named) => Some(named),
            Edit::Remove(_) => None,
        }
    }
}

/// Locks the names of both places' blocks. A handle is held.
pub(crate) fn lock_both<'p>(
    one: &'p EntrySlot<'_>,
    other: &'p EntrySlot<'_>,
) -> (MutexGuard<'p, ()>, Option<MutexGuard<'p, ()>>) {
    match one.block.block.cmp(&other.block.block) {
        std::cmp::Ordering::Equal => (one.lock(), None),
        std::cmp::Ordering::Less => {
            let first = one.lock();
            (first, Some(other.lock()))
        }
        std::cmp::Ordering::Greater => {
            let first = other.lock();
            (first, Some(one.lock()))
        }
    }
}
