//! Looks names up, and lists directories.
//!
//! Only names that are not in the name cache are looked up here. A look-up holds the directory's
//! operation lock shared. `name/directory.rs` goes down the index to the one block where the name
//! can be. `object/meta.rs` finds the block in memory, or `object/load.rs` reads and checks it, and
//! `lanefs_plan::dir` searches its bytes. If the block did not change meanwhile, the result is published
//! to the name cache, even if the result is that the name does not exist.

use crate::fs::Fs;
use crate::name::directory::{Directory, checked};
use crate::names::Named;
use crate::object::inode::InodeRef;
use crate::object::meta::Contents;
use lanefs_ondisk::dirent::Name;
use lanefs_ondisk::inode::Cause as InodeCause;
use lanefs_ondisk::{Corruption, FileBlock, FileType, Ino};
use lanefs_plan::Error;
use lanefs_plan::dir::{DirEntry, Found};
use std::ops::ControlFlow;

/// How often an entry may be found to refer to the same free inode before the entry counts as
/// damaged.
const TRIES: u32 = 64;

impl Fs {
    /// Returns the inode to which `name` in `dir` refers. Publishes the result to the name cache,
    /// even if the name does not exist.
    ///
    /// # Errors
    /// The errors of [`Fs::check_child`] are returned too.
    pub fn lookup(&self, dir: &InodeRef, name: &[u8]) -> Result<Option<Named>, Error> {
        match known(self.entry(dir, name)?) {
            Some(named) => Ok(named),
            // The type is read from the inode.
            None => {
                let inode = self.find(dir, name)?;
                Ok(inode.map(|inode| Named { ino: inode.ino, file_type: inode.file_type }))
            }
        }
    }

    /// Does the same as [`Fs::lookup`], but returns the entry, which may store no type.
    fn entry(&self, dir: &InodeRef, name: &[u8]) -> Result<Option<Found>, Error> {
        let name = checked(name)?;
        self.objects.check_process()?;
        let shared = dir.op.shared();
        if dir.file_type == FileType::Directory && dir.links() == 0 {
            return Ok(None);
        }
        let view = Directory::of(&self.objects, dir)?;
        let (shown, Some(stored)) = (name.bytes(), view.stored(name)?) else { return Ok(None) };
        let name = stored.name();
        let found = match view.leaf_of(name)? {
            Some(leaf) => self.look_up_in(&view, leaf, name)?,
            None => {
                let found = view.find(name)?;
                // A name that may be in several blocks changes only under the exclusive operation
                // lock. This thread holds the lock shared, so `found` is still right.
                if let Some(named) = self.to_publish(found)
                    && view.context.compares_bytes()
                    && !matches!(name.bytes(), b"." | b"..")
                {
                    self.objects.names.publish(dir.dir_id(), name.bytes(), named);
                }
                found
            }
        };
        // The inode is loaded only after the directory's lock was released, because dropping the
        // reference may delete the inode, and a deletion takes the operation lock of the deleted
        // inode.
        drop(shared);
        let is_dot = matches!(shown, b"." | b"..");
        if let Some(Found { ino, .. }) = found
            && view.crypt.is_some()
            && !is_dot
        {
            match self.get(ino, None) {
                Ok(child) => self.check_child(dir, &child)?,
                // The inode was deleted after the name was found.
                Err(Error::Stale) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(found)
    }

    /// Looks for `name` in the only block that may contain it, and publishes the result unless
    /// another thread has changed the block meanwhile.
    fn look_up_in(
        &self,
        view: &Directory<'_>,
        leaf: FileBlock,
        name: Name<'_>,
    ) -> Result<Option<Found>, Error> {
        let dir = view.dir;
        let (block, kind) = view.place(leaf)?;
        let look = |contents: &Contents<'_>| view.find_in(leaf, contents, name);
        let objects = &self.objects;
        objects.meta.look(objects, block, kind, look, |found, still| {
            if let Ok(found) = found
                && view.context.compares_bytes()
                && let Some(named) = self.to_publish(*found)
            {
                objects.names.publish_read(dir.dir_id(), name.bytes(), named, still);
            }
        })?
    }

    /// Does the same as [`known`] for a result that will be published. Returns `None` for the file
    /// system's internal inodes. These must not be published: a reader of the name cache takes an
    /// inode from memory, and the internal inodes are in memory too.
    fn to_publish(&self, found: Option<Found>) -> Option<Option<Named>> {
        let named = known(found)?;
        named.is_none_or(|named| self.objects.volume.is_for_names(named.ino)).then_some(named)
    }

    /// Returns a hold on the inode that `name` in `dir` refers to, or `None`. Looks again if the
    /// inode is deleted before it can be held, or if its number may have been reused. Reports
    /// damage if the entry keeps referring to a free inode.
    pub fn find(&self, dir: &InodeRef, name: &[u8]) -> Result<Option<InodeRef>, Error> {
        let mut free = (Ino(0), 0);
        loop {
            let Some(Found { ino, .. }) = self.entry(dir, name)? else { return Ok(None) };
            match self.get(ino, None) {
                Ok(inode) => {
                    // A held inode keeps its number. So if the name still refers to this number, it
                    // refers to this inode.
                    if self.entry(dir, name)?.is_some_and(|again| again.ino == ino) {
                        return Ok(Some(inode));
                    }
                }
                Err(Error::Stale) if free.0 == ino => free.1 += 1,
                Err(Error::Stale) => free = (ino, 1),
                Err(error) => return Err(error),
            }
            // A name is removed before its inode is freed, so an entry that keeps referring to a
            // free inode is damage.
            if free.1 == TRIES {
                let cause = InodeCause::NotInUse;
                let error = Corruption::Inode { ino, cause }.into();
                self.objects.note_error(&error);
                return Err(error);
            }
        }
    }

    /// Passes the entries after `cookie` (0: from the start) to `each`, in hash order, "." and ".."
    /// first.
    pub fn read_dir(
        &self,
        dir: &InodeRef,
        cookie: u64,
        each: &mut dyn FnMut(&DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        self.objects.check_process()?;
        let _shared = dir.op.shared();
        let blocks = Directory::of(&self.objects, dir)?;
        if dir.links() == 0 {
            return Ok(());
        }
        blocks.read_from(cookie, each)
    }
}

/// Converts an entry, or the absence of an entry, to the result of a look-up. Returns `None` if the
/// entry stores no type, which is the case without the feature `filetype`.
fn known(found: Option<Found>) -> Option<Option<Named>> {
    let Some(Found { ino, file_type, .. }) = found else { return Some(None) };
    file_type.map(|file_type| Some(Named { ino, file_type }))
}
