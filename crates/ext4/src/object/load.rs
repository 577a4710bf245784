//! Loads inodes and other objects into memory by number.

use crate::object::inode::{Inode, InodeRef, Parts};
use crate::object::meta::MetaSource;
use crate::object::objects::Objects;
use crate::object::record::RawRecord;
use crate::object::table::TableRef;
use crate::volume::kind::MetaKind;
use crate::volume::reader::BlockReader;
use lanefs_lanes::sync::Arc;
use lanefs_lanes::sync::atomic::Ordering;
use lanefs_ondisk::inode::InodeFlags;
use lanefs_ondisk::{Block, Corruption, Group, Ino, inode as disk};
use lanefs_plan::Error;

impl MetaSource for Objects {
    fn load(&self, block: Block, kind: MetaKind) -> Result<Arc<[u8]>, Error> {
        let read = || {
            kind.check_place(&self.volume, block)?;
            let bytes = self.read_block(block)?;
            kind.verify(&self.volume, block, &bytes, |ino| self.flags_of(ino))?;
            Ok(bytes)
        };
        read().inspect_err(|error| self.note_error(error))
    }

    fn loaded(&self) {
        self.note_load();
    }
}

impl Objects {
    /// Returns a hold on inode `ino`, and reads the inode if it is not in memory. [`Error::Stale`]
    /// if the inode is free or holds the value of an attribute, or if `generation` is given and
    /// differs.
    pub(crate) fn get(&self, ino: Ino, generation: Option<u32>) -> Result<InodeRef, Error> {
        if !self.volume.is_for_names(ino) {
            let cause = disk::Cause::NoSuchInode;
            return Err(Corruption::Inode { ino, cause }.into());
        }
        let held = self.get_any(ino, generation)?;
        let flags = InodeFlags::from_bits_retain(held.rights().flags);
        if flags.contains(InodeFlags::EA_INODE) && self.volume.value_seed.is_some() {
            // No name refers to an inode that holds the value of an attribute. If the caller has
            // the number from a directory entry, either the number was reused since, or the image
            // is damaged; `Fs::find` finds out which.
            return Err(Error::Stale);
        }
        Ok(held)
    }

    /// Does the same as [`Objects::get`], but also for the file system's internal files and for
    /// inodes that hold the value of an attribute.
    pub(crate) fn get_any(&self, ino: Ino, generation: Option<u32>) -> Result<InodeRef, Error> {
        self.check_process()?;
        let mut was_loaded = false;
        let load = || {
            was_loaded = true;
            self.load_inode(ino)
        };
        let held = self.inodes.hold_or_load(ino, load)?;
        if was_loaded {
            self.note_load();
        }
        match generation {
            Some(wanted) if wanted != held.generation => Err(Error::Stale),
            _ => Ok(held),
        }
    }

    fn load_inode(&self, ino: Ino) -> Result<InodeRef, Error> {
        let place = self.volume.inode_place(ino)?;
        let table = self.table_block(place.group, place.table_block)?;
        let base = self.tables.base(&table, self)?;
        let raw = self.volume.record_in(&base, place.offset).ok_or(Error::Stale)?;
        let decoded = disk::Inode::decode(raw, ino, self.volume.geometry(), self.volume.checksums)
            .map_err(Error::from)
            .inspect_err(|error| self.note_error(error))?;
        if decoded.links == 0 && !self.finishing_orphans.load(Ordering::Acquire) {
            return Err(Error::Stale);
        }
        let raw = RawRecord::read(raw);
        let inode = self.new_inode(ino, table, place.offset, &decoded, raw)?;
        // Data that was written through the previous, evicted object may still need a flush.
        let mark = self.inodes.get(ino).map_or(0, |dead| dead.flush_mark.load(Ordering::Acquire));
        let mark = mark.max(self.mount.totals.evicted_mark.0.load(Ordering::Acquire));
        inode.flush_mark.store(mark, Ordering::Relaxed);
        self.inodes.insert(inode.clone(), |_| ());
        Ok(InodeRef::adopt(inode))
    }

    /// Creates an inode object, which has one hold and is in no map yet.
    #[inline]
    pub(crate) fn new_inode(
        &self,
        ino: Ino,
        table: TableRef,
        offset: usize,
        disk: &disk::Inode,
        raw: RawRecord,
    ) -> Result<Arc<Inode>, Error> {
        let file_type = disk.file_type().ok_or_else(|| Error::Stale)?;
        let mount = self.mount.clone();
        let parts = Parts { ino, file_type, mount, table, offset, disk, raw };
        Ok(Arc::new(Inode::new(parts)))
    }

    /// Returns block `index` of a group's inode table; the block need not be loaded yet.
    pub(crate) fn table_block(&self, group: Group, index: u32) -> Result<TableRef, Error> {
        self.tables.get(group, index, self.volume.table_block(group, index)?)
    }

    /// Returns the flags of a directory in memory. The caller reads the directory's blocks, and
    /// therefore holds the directory's operation lock.
    fn flags_of(&self, ino: Ino) -> InodeFlags {
        let flags = self.inodes.get(ino).map_or(0, |dir| dir.rights().flags);
        InodeFlags::from_bits_retain(flags)
    }
}
