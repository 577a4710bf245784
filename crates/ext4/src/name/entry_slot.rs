//! Changes one name of a directory. Every change of a name goes through this module.
//!
//! The directory's operation lock is held shared, so that other threads can change other names
//! concurrently. The directory's shape does not change meanwhile, so the block that contains a
//! name, or would contain it, is known before the operation joins the transaction. After the join,
//! the names of that block are locked, and the block's contents are checked again.
//!
//! If several blocks may contain the name, or its block has no room, the operation starts again
//! with the lock held exclusively. Until then it has changed nothing. Under the exclusive lock it
//! first makes room ([`Directory::make_room`]), in a separate handle, and then changes the name as
//! above.
//!
//! The operation lock is held exclusively for:
//!
//! - an entry that has no room in its block. Room is made by a compaction, a split, an appended
//!   block, or the conversion to an index (`plan_room`);
//! - a name that may be in several blocks: in a linear directory of several blocks, or where leaves
//!   share its hash;
//! - the first change of a directory that has an index although the file system has no `dir_index`;
//! - the first change of a directory whose entries are in its inode;
//! - a new subdirectory in a directory that has at least half of the links it can have: concurrent
//!   threads do not see each other's counts, so together they could exceed the limit.
//!
//! So the entries of a block never move under the shared lock, and a reader misses no entry that
//! exists during the whole read.
//!
//! A rename adds the new name first, and then removes the old one. Between these two changes both
//! names refer to the file, as rename(2) allows. After a crash exactly one of the names exists,
//! since one handle has both changes.
//!
//! *Locking*: a lock of [`lanefs_lanes::Rank::Names`] is taken in a handle, and guards are taken
//! under this lock. The names of two blocks are locked in ascending order of the block numbers. A
//! name is published under the guard of the block that changes, so a reader that sees the changed
//! block finds the name published.

use crate::attr::Named;
use crate::data::FileData;
use crate::name::DirLocking;
use crate::name::directory::{Directory, StoredName};
use crate::object::dirty::{Credits, Handle};
use crate::object::fs::Fs;
use crate::object::inode::Inode;
use crate::object::meta::MetaRef;
use lanefs_lanes::MutexGuard;
use lanefs_lanes::sync::Arc;
use lanefs_ondisk::dirent::{Name, NameForm, Packed, Room};
use lanefs_ondisk::inode::InodeFlags;
use lanefs_ondisk::{FileBlock, dirent};
use lanefs_plan::dir::{DirContext, Found, Indexing, Look};
use lanefs_plan::{Error, InvalidArgument, dir};

/// A name, and the one block that contains the name or would contain it.
pub(crate) struct EntrySlot<'f> {
    fs: &'f Fs,
    dir: &'f Arc<Inode>,
    context: DirContext,
    name: StoredName<'f>,
    n: FileBlock,
    pub(crate) block: MetaRef,
    version: u64,
    seen: Look,
}

impl<'f> EntrySlot<'f> {
    /// Returns the slot of `name` in `dir`. With [`DirLocking::Shared`], returns `None` in two
    /// cases: several blocks may contain the name, or the directory must change first, because its
    /// index is outdated or its entries are in the inode. May sleep.
    ///
    /// # Errors
    /// [`Error::NotFound`] if the directory cannot have the name, because the directory's key is
    /// missing.
    pub(crate) fn of(
        fs: &'f Fs,
        dir: &'f Arc<Inode>,
        name: Name<'f>,
        locking: DirLocking,
    ) -> Result<Option<EntrySlot<'f>>, Error> {
        EntrySlot::beside(None, fs, dir, name, locking)
    }

    /// Does the same as [`EntrySlot::of`]. If the name belongs in the block of `other`, this block
    /// is not looked up again.
    pub(crate) fn beside(
        other: Option<&EntrySlot<'f>>,
        fs: &'f Fs,
        dir: &'f Arc<Inode>,
        name: Name<'f>,
        locking: DirLocking,
    ) -> Result<Option<EntrySlot<'f>>, Error> {
        let mut view = Directory::of(fs, dir)?;
        if view.is_inline() {
            if locking == DirLocking::Shared {
                return Ok(None);
            }
            view.leave_inode()?;
            view = Directory::of(fs, dir)?;
        }
        let is_flagged =
            || InodeFlags::from_bits_retain(dir.rights().flags).contains(InodeFlags::INDEX);
        if view.context.indexing == Indexing::Never && is_flagged() {
            if locking == DirLocking::Shared {
                return Ok(None);
            }
            view.drop_index()?;
        }
        let dots = matches!(name.bytes(), b"." | b"..");
        let stored = view.stored(name)?.ok_or_else(|| Error::NotFound)?;
        let name = stored.name();
        let n = match (view.leaf_of(name)?, locking) {
            (Some(n), _) => n,
            (None, DirLocking::Shared) => return Ok(None),
            (None, DirLocking::Exclusive) if dots => FileBlock(0),
            (None, DirLocking::Exclusive) => match view.find(name)? {
                Some(found) => found.block,
                None => dir::locate_room(&view.context, &view, name)?.unwrap_or(FileBlock(0)),
            },
        };
        let block = match other {
            Some(other) if other.n == n && Arc::ptr_eq(other.dir, dir) => other.block.clone(),
            _ => view.meta_block(n)?,
        };
        let look = |bytes: &[u8]| match dots {
            // "." and ".." are in the first block, which may be the root of an index.
            true => dir::find_dot(&view.context, bytes, name).map(Look::There),
            false => dir::look_for(&view.context, n, bytes, name),
        };
        let (version, seen) = block.look_under_guard(look);
        let (context, seen) = (view.context, seen?);
        Ok(Some(EntrySlot { fs, dir, context, name: stored, n, block, version, seen }))
    }

    /// Does the same as [`EntrySlot::of`] for a name that will be added: the slot has room, unless
    /// the name exists. With [`DirLocking::Shared`], also returns `None` if there is no room.
    pub(crate) fn with_room(
        fs: &'f Fs,
        dir: &'f Arc<Inode>,
        name: Name<'f>,
        locking: DirLocking,
    ) -> Result<Option<EntrySlot<'f>>, Error> {
        let place = EntrySlot::of(fs, dir, name, locking);
        let slot = match &place {
            Ok(Some(slot)) => slot,
            Err(Error::NotFound) => {
                FileData { fs, inode: dir }.check_names_key()?;
                return place;
            }
            Ok(None) | Err(_) => return place,
        };
        if let Look::There(_) = slot.seen {
            return place;
        }
        if !slot.context.hasher.folding.permits_new(name.bytes()) {
            return Err(InvalidArgument::DotName.into());
        }
        if slot.context.format.names == NameForm::Encrypted {
            FileData { fs, inode: dir }.check_names_key()?;
        }
        match (slot.seen, locking) {
            (Look::Full, DirLocking::Shared) => Ok(None),
            (Look::Full, DirLocking::Exclusive) => {
                Directory::of(fs, dir)?.make_room(slot.name.name())?;
                drop(place);
                EntrySlot::of(fs, dir, name, locking)
            }
            _ => place,
        }
    }

    /// Returns the slot of `name` in a block that has room for it; `None` if no block has room. The
    /// name may exist in another spelling. The operation lock is held exclusively.
    pub(crate) fn with_room_beside(
        fs: &'f Fs,
        dir: &'f Arc<Inode>,
        name: Name<'f>,
    ) -> Result<Option<EntrySlot<'f>>, Error> {
        let view = Directory::of(fs, dir)?;
        let Some(n) = dir::locate_room(&view.context, &view, name)? else { return Ok(None) };
        let block = view.meta_block(n)?;
        let look = |bytes: &[u8]| dir::room_for(&view.context, n, bytes, name);
        let (version, seen) = block.look_under_guard(look);
        let (context, seen) = (view.context, seen?);
        let name = StoredName::Given(name);
        Ok(Some(EntrySlot { fs, dir, context, name, n, block, version, seen }))
    }
}

impl EntrySlot<'_> {
    /// The credits for changing the entry: its block, and the directory's inode, which
    /// [`crate::name::names_changed`] changes.
    pub(crate) const CREDITS: Credits = Credits::blocks(1).and(Credits::INODE);

    /// Returns the entry or the room that was found before the names were locked.
    pub(crate) fn seen(&self) -> Look {
        self.seen
    }

    /// Locks the block's names. The caller holds a handle.
    pub(crate) fn lock(&self) -> MutexGuard<'_, ()> {
        self.block.lock_names()
    }

    /// Returns the entry of the name, or the room for a new entry, as the block has it now. The
    /// result stays valid, since the block's names are locked.
    pub(crate) fn look_again(&self) -> Result<Look, Error> {
        if self.block.version() == self.version {
            return Ok(self.seen);
        }
        let look = |bytes: &[u8]| dir::look_for(&self.context, self.n, bytes, self.name.name());
        self.block.look_under_guard(look).1
    }

    /// Apply: edits the entry, and publishes the name's new target, both under the block's guard.
    pub(crate) fn apply(&self, handle: &mut Handle<'_>, edit: Edit) {
        self.change(handle, &[(self, edit)]);
    }

    /// Apply: applies both edits, in one change if their entries are in one block.
    pub(crate) fn apply_both(handle: &mut Handle<'_>, edits: [(&EntrySlot<'_>, Edit); 2]) {
        let [(first, _), (second, _)] = edits;
        if first.block.block == second.block.block {
            return first.change(handle, &edits);
        }
        for (place, edit) in edits {
            place.apply(handle, edit);
        }
    }

    /// Applies edits to this slot's block.
    fn change(&self, handle: &mut Handle<'_>, edits: &[(&EntrySlot<'_>, Edit)]) {
        if self.fs.fast.is_some() {
            for (place, _) in edits.iter().filter(|(_, edit)| !matches!(edit, Edit::Add(..))) {
                place.dir.note_unfit(handle.tid());
            }
        }
        for (place, _) in edits {
            place.dir.name_changes(handle.tid());
        }
        self.block.change(handle, |data| {
            let bytes = Arc::make_mut(data);
            for (place, edit) in edits {
                place.edit(bytes, edit);
            }
            self.publish(edits);
        });
    }

    /// Publishes the new targets of the edited names to the name cache.
    fn publish(&self, edits: &[(&EntrySlot<'_>, Edit)]) {
        for (place, edit) in edits {
            // The name cache has only names that are compared by their bytes, and it never has
            // "..".
            let name = place.name.name().bytes();
            if place.context.compares_bytes() && name != b".." {
                let dir = place.dir.dir_id();
                self.fs.options.names.publish(dir, name, edit.target());
            }
        }
    }

    /// Returns whether the entry `at` has this name, byte for byte.
    pub(crate) fn is_spelled(&self, at: Found) -> bool {
        let format = &self.context.format;
        let named = |bytes: &[u8]| {
            dirent::named_at(format, bytes, at.offset, self.name.name())
                .is_ok_and(|entry| entry.is_some())
        };
        self.block.look_under_guard(named).1
    }

    /// Returns whether this name fits into the block in place of the entry `at`. The directory's
    /// operation lock is held exclusively.
    pub(crate) fn fits_instead(&self, at: Found, named: Named) -> bool {
        let (_, mut bytes) = self.block.look_under_guard(<[u8]>::to_vec);
        self.rename(&mut bytes, at, named) == Ok(())
    }

    fn rename(
        &self,
        bytes: &mut [u8],
        at: Found,
        Named { ino, file_type }: Named,
    ) -> Result<(), dirent::Cause> {
        let format = &self.context.format;
        dirent::remove(format, bytes, at.before as usize, at.offset)?;
        let new = Packed { ino, file_type: Some(file_type), name: self.name.name() };
        let room = dirent::find_room(format, bytes, &new)?;
        let room = room.ok_or(dirent::Cause::Length { expected: new.space(), found: 0 })?;
        dirent::insert_at(format, bytes, room, &new);
        Ok(())
    }

    fn edit(&self, bytes: &mut [u8], edit: &Edit) {
        let format = &self.context.format;
        let edited = match *edit {
            Edit::Add(room, Named { ino, file_type }) => {
                let new = Packed { ino, file_type: Some(file_type), name: self.name.name() };
                dirent::insert_at(format, bytes, room, &new);
                Ok(())
            }
            Edit::Replace(at, Named { ino, file_type }) => {
                dirent::replace(format, bytes, at.offset, ino, file_type)
            }
            Edit::Remove(at) => dirent::remove(format, bytes, at.before as usize, at.offset),
            Edit::Rename(at, named) => self.rename(bytes, at, named),
        };
        debug_assert_eq!(edited, Ok(()), "what was found can be edited");
    }
}

/// A planned edit of a block: a change of an entry, or a new entry in free room. The entry or the
/// room was found with the block's names locked.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Edit {
    Add(Room, Named),
    Replace(Found, Named),
    Remove(Found),
    /// Gives the entry another spelling of its name, in a directory that ignores case.
    Rename(Found, Named),
}

impl Edit {
    fn target(&self) -> Option<Named> {
        match *self {
            Edit::Add(_, named) | Edit::Replace(_, named) | Edit::Rename(_, named) => Some(named),
            Edit::Remove(_) => None,
        }
    }
}

/// Locks the names of the blocks of both slots. The caller holds a handle.
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
