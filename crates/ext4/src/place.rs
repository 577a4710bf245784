//! Changing one name of a directory that others change too.
//!
//! The directory's operation lock is held shared, so its shape stays: which block a name is in, or
//! would go into, can be told before a handle is joined. Under the handle that block's names are
//! locked, and what was seen is looked at again. If the name has changed meanwhile, or the room is
//! taken, nothing was changed yet, and the caller starts again with the operation lock held
//! exclusively, under which anything can be done.
//!
//! *Locking*: [`lanefs_lanes::Rank::Names`] in a handle, two blocks in ascending number; guards under
//! it. A name is published under the guard of the block that changes, so whoever sees the block
//! changed finds the name published.

use crate::commit::Handle;
use crate::dir::{self, DirContext, Found, Indexing, Look};
use crate::fs::Fs;
use crate::inode::{Inode, InodeRef};
use crate::meta::MetaRef;
use crate::plant::{Step, left_out};
use crate::{Error, Named};
use lanefs_lanes::sync::Arc;
use lanefs_lanes::{ExclusiveHold, MutexGuard, SharedHold};
use lanefs_ondisk::FileBlock;
use lanefs_ondisk::dirent::{self, Name, Packed, Room};
use lanefs_ondisk::inode::InodeFlags;

/// Credits for the block and the inode of a directory in which one name changes.
pub(crate) const PLACE_CREDITS: u32 = 3;

/// A name, and the one block where it is or would be.
pub(crate) struct Place<'f> {
    fs: &'f Fs,
    dir: &'f Arc<Inode>,
    context: DirContext,
    name: Name<'f>,
    n: FileBlock,
    pub(crate) block: MetaRef,
    version: u64,
    seen: Look,
}

impl Fs {
    /// The place of `name` in `dir`, whose operation lock is held shared; `None` if it must be held
    /// exclusively to change this name. Sleeps.
    pub(crate) fn place_of<'f>(
        &'f self,
        dir: &'f Arc<Inode>,
        name: Name<'f>,
    ) -> Result<Option<Place<'f>>, Error> {
        let view = self.view_directory(dir)?;
        let flagged = InodeFlags::from_bits_retain(dir.attr().flags).contains(InodeFlags::INDEX);
        if view.context.indexing == Indexing::Never && flagged {
            // The flag goes with the next change, which is one of the shape.
            return Ok(None);
        }
        let Some(n) = dir::leaf_of(&view.context, &view, name)? else { return Ok(None) };
        let block = self.directory_block(dir, n)?;
        let look = |bytes: &[u8]| dir::look_for(&view.context, n, bytes, name);
        let (version, seen) = block.look_under_guard(look);
        let (context, seen) = (view.context, seen?);
        Ok(Some(Place { fs: self, dir, context, name, n, block, version, seen }))
    }
}

impl Place<'_> {
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
        if self.block.version() == self.version || left_out(Step::PlaceLookedAtAgain) {
            return Ok(self.seen);
        }
        let look = |bytes: &[u8]| dir::look_for(&self.context, self.n, bytes, self.name);
        self.block.look_under_guard(look).1
    }

    /// Apply: the name leads to `named` from now on. There is `room` for it.
    pub(crate) fn add(&self, handle: &mut Handle<'_>, room: Room, named: Named) {
        self.change(handle, Some(named), |format, bytes| {
            let new = Packed { ino: named.ino, file_type: Some(named.file_type), name: self.name };
            dirent::insert_at(format, bytes, room, &new);
        });
    }

    /// Apply: the name, which was `found`, leads nowhere from now on.
    pub(crate) fn remove(&self, handle: &mut Handle<'_>, found: &Found) {
        self.change(handle, None, |format, bytes| {
            let removed = dirent::remove(format, bytes, found.offset);
            debug_assert_eq!(removed, Ok(()), "what was found can be removed");
        });
    }

    /// Changes the block's bytes and publishes the name, both under the guard.
    fn change(
        &self,
        handle: &mut Handle<'_>,
        now: Option<Named>,
        change: impl FnOnce(&dirent::DirFormat, &mut [u8]),
    ) {
        let format = &self.context.format;
        self.block.change(handle, |data| {
            change(format, Arc::make_mut(data));
            if !left_out(Step::PublishedUnderGuard) {
                self.publish(now);
            }
        });
        if left_out(Step::PublishedUnderGuard) {
            self.publish(now);
        }
    }

    fn publish(&self, now: Option<Named>) {
        self.fs.names.publish(self.dir.dir_id(), self.name.bytes(), now);
    }
}

/// Locks a directory shared and another inode exclusively, in ascending number; `None` if they are
/// one.
pub(crate) fn lock_shared<'i>(
    dir: &'i InodeRef,
    inode: &'i InodeRef,
) -> Option<(SharedHold<'i>, ExclusiveHold<'i>)> {
    match dir.ino.cmp(&inode.ino) {
        std::cmp::Ordering::Equal => None,
        std::cmp::Ordering::Less => {
            let dir = dir.op.shared();
            Some((dir, inode.op.exclusive()))
        }
        std::cmp::Ordering::Greater => {
            let inode = inode.op.exclusive();
            Some((dir.op.shared(), inode))
        }
    }
}
