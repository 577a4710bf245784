//! Names looked up, and directories listed.

use crate::attr::DirEntry;
use crate::error::Error;
use crate::fs::Fs;
use crate::name::directory::{Directory, checked};
use crate::names::Named;
use crate::object::inode::InodeRef;
use crate::object::meta::Contents;
use crate::plan::dir::Found;
use lanefs_ondisk::dirent::Name;
use lanefs_ondisk::inode::Cause as InodeCause;
use lanefs_ondisk::{Corruption, FileBlock, FileType, Ino};
use std::ops::ControlFlow;

/// How often an entry names the same free inode before that is damage.
const TRIES: u32 = 64;

impl Fs {
    /// What `name` leads to in `dir`: also published to the name cache, if it leads nowhere too.
    pub fn lookup(&self, dir: &InodeRef, name: &[u8]) -> Result<Option<Named>, Error> {
        let name = checked(name)?;
        let shared = dir.op.shared();
        if dir.file_type == FileType::Directory && dir.links() == 0 {
            return Ok(None);
        }
        let view = Directory::of(&self.objects, dir)?;
        let found = match view.leaf_of(name)? {
            Some(leaf) => self.look_up_in(&view, leaf, name)?,
            None => {
                let found = view.find(name)?;
                // Nobody changes this name but with the lock held exclusively.
                if let Some(named) = self.to_publish(found)
                    && !matches!(name.bytes(), b"." | b"..")
                {
                    self.objects.names.publish(dir.dir_id(), name.bytes(), named);
                }
                found
            }
        };
        drop(shared);
        match (known(found), found) {
            (Some(named), _) => Ok(named),
            // The inode knows its type. Not asked with the lock held, since letting an inode go may
            // end it.
            (None, Some(Found { ino, .. })) => {
                Ok(Some(Named { ino, file_type: self.get(ino, None)?.file_type }))
            }
            (None, None) => Ok(None),
        }
    }

    /// Looks for `name` in the one block where it can be, which others may be changing, and publishes
    /// what is found if they have not.
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
                && let Some(named) = self.to_publish(*found)
            {
                objects.names.publish_read(dir.dir_id(), name.bytes(), named, still);
            }
        })?
    }

    /// As [`known`], of what a name may lead to: who hears of it may look for the inode in memory, where
    /// the file system's own files are too.
    fn to_publish(&self, found: Option<Found>) -> Option<Option<Named>> {
        let named = known(found)?;
        named.is_none_or(|named| self.objects.volume.is_for_names(named.ino)).then_some(named)
    }

    /// A hold on what `name` leads to in `dir`, or `None`. Asks again if the inode is gone before
    /// it can be held, or its number may be another one's by then; damage if the entry names an inode
    /// that stays free.
    pub fn find(&self, dir: &InodeRef, name: &[u8]) -> Result<Option<InodeRef>, Error> {
        let mut free = (Ino(0), 0);
        loop {
            let Some(named) = self.lookup(dir, name)? else { return Ok(None) };
            match self.get(named.ino, None) {
                Ok(inode) => {
                    // Held, it keeps its number: if the name leads to the number, it leads to it.
                    let again = self.lookup(dir, name)?.map(|again| again.ino);
                    if again == Some(named.ino) {
                        return Ok(Some(inode));
                    }
                }
                Err(Error::Stale) if free.0 == named.ino => free.1 += 1,
                Err(Error::Stale) => free = (named.ino, 1),
                Err(error) => return Err(error),
            }
            // A name that goes away takes its inode with it, not the other way round.
            if free.1 == TRIES {
                let cause = InodeCause::NotInUse;
                let error = Corruption::Inode { ino: named.ino, cause }.into();
                self.objects.note_error(&error);
                return Err(error);
            }
        }
    }

    /// Entries after `cookie` (0: from the start) in hash order, "." and ".." first.
    pub fn read_dir(
        &self,
        dir: &InodeRef,
        cookie: u64,
        each: &mut dyn FnMut(&DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        let _shared = dir.op.shared();
        let blocks = Directory::of(&self.objects, dir)?;
        if dir.links() == 0 {
            return Ok(());
        }
        blocks.read_from(cookie, each)
    }
}

/// What an entry or its absence tells of a name; `None` if the directory does not keep types (no
/// feature `filetype`).
fn known(found: Option<Found>) -> Option<Option<Named>> {
    let Some(Found { ino, file_type, .. }) = found else { return Some(None) };
    file_type.map(|file_type| Some(Named { ino, file_type }))
}
