//! Loading: from a number to the object in memory.

use crate::error::Error;
use crate::object::inode::{Inode, InodeRef, Parts};
use crate::object::meta::MetaSource;
use crate::object::objects::Objects;
use crate::object::record::RawRecord;
use crate::object::table::TableRef;
use crate::plan::dir::Indexing;
use crate::volume::kind::MetaKind;
use crate::volume::reader::BlockReader;
use lanefs_lanes::sync::Arc;
use lanefs_lanes::sync::atomic::Ordering;
use lanefs_ondisk::inode::{self as disk, InodeFlags};
use lanefs_ondisk::{Block, Corruption, Group, Ino};

impl MetaSource for Objects {
    fn load(&self, block: Block, kind: MetaKind) -> Result<Arc<[u8]>, Error> {
        let read = || {
            kind.check_place(&self.volume, block)?;
            let bytes = self.read_block(block)?;
            kind.verify(&self.volume, block, &bytes, |ino| self.indexing_of(ino))?;
            Ok(bytes)
        };
        read().inspect_err(|error| self.note_error(error))
    }

    fn loaded(&self) {
        self.note_load();
    }
}

impl Objects {
    /// A reference to inode `ino`, read if need be. [`Error::Stale`] if it is free, or if `generation`
    /// is given and is another.
    pub(crate) fn get(&self, ino: Ino, generation: Option<u32>) -> Result<InodeRef, Error> {
        if !self.volume.is_for_names(ino) {
            let cause = disk::Cause::NoSuchInode;
            return Err(Corruption::Inode { ino, cause }.into());
        }
        self.get_any(ino, generation)
    }

    /// As [`Objects::get`], also for the file system's own files.
    pub(crate) fn get_any(&self, ino: Ino, generation: Option<u32>) -> Result<InodeRef, Error> {
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
        let decoded = disk::Inode::decode(raw, ino, &self.volume.geometry, self.volume.checksums)
            .map_err(Error::from)
            .inspect_err(|error| self.note_error(error))?;
        if decoded.links == 0 && !self.finishing_orphans.load(Ordering::Acquire) {
            return Err(Error::Stale);
        }
        let raw = RawRecord::read(raw);
        let inode = self.new_inode(ino, table, place.offset, decoded, raw)?;
        // Data of the object before, evicted by now, may need a flush.
        let mark = self.inodes.get(ino).map_or(0, |dead| dead.flush_mark.load(Ordering::Acquire));
        let mark = mark.max(self.mount.totals.evicted_mark.0.load(Ordering::Acquire));
        inode.flush_mark.store(mark, Ordering::Relaxed);
        self.inodes.insert(inode.clone(), |_| ());
        Ok(InodeRef::adopt(inode))
    }

    /// An inode object with one reference, in no map yet.
    pub(crate) fn new_inode(
        &self,
        ino: Ino,
        table: TableRef,
        offset: usize,
        decoded: disk::Inode,
        raw: RawRecord,
    ) -> Result<Arc<Inode>, Error> {
        let file_type = decoded.file_type().ok_or(Error::Stale)?;
        let mount = self.mount.clone();
        let parts = Parts { ino, file_type, mount, table, offset, disk: decoded, raw };
        Ok(Arc::new(Inode::new(parts)))
    }

    /// Block `index` of a group's inode table; not necessarily loaded.
    pub(crate) fn table_block(&self, group: Group, index: u32) -> Result<TableRef, Error> {
        self.tables.get(group, index, self.volume.table_block(group, index)?)
    }

    /// As the directory in memory says; its operation lock is held where its blocks are read.
    fn indexing_of(&self, ino: Ino) -> Indexing {
        let flags = self.inodes.get(ino).map_or(0, |dir| dir.rights().flags);
        self.volume.indexing(InodeFlags::from_bits_retain(flags).contains(InodeFlags::INDEX))
    }
}
