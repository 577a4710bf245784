//! The mounted file system: what its operations share.

use crate::alloc::{Groups, Overwrite};
use crate::error::Fault;
use crate::object::commit::Handle;
use crate::object::home::Home;
use crate::object::inodes::Inodes;
use crate::object::meta::{MetaCache, MetaKind};
use crate::object::orphan::Orphans;
use crate::object::pressure::Pressure;
use crate::object::record::RawRecord;
use crate::object::superblock::SuperState;
use crate::object::table::{TableBlock, TableRef, Tables};
use crate::plan::dir::{DirContext, Indexing};
use crate::volume::reader::BlockReader;
use crate::volume::system::SystemBlocks;
use crate::{Access, Atime, Error, InodeRef, Names, OnError};
use lanefs_device::Device;
use lanefs_journal::Journal;
use lanefs_lanes::sync::Arc;
use lanefs_lanes::sync::atomic::{AtomicBool, Ordering};
use lanefs_lanes::{LaneArc, Mutex};
use lanefs_ondisk::checksum::{Checksums, Seed};
use lanefs_ondisk::dirent::DirFormat;
use lanefs_ondisk::group_desc::GroupDesc;
use lanefs_ondisk::hash::NameHasher;
use lanefs_ondisk::orphan::{OrphanBlock, OrphanSeed};
use lanefs_ondisk::superblock::{ErrorCode, ErrorRecord, Geometry, Superblock};
use lanefs_ondisk::{Block, Group, Ino, extent as disk_extent, inode as disk, orphan};

/// The operations of a mounted file system. All take `&self`, from any number of threads.
pub struct Fs {
    /// The first handle, which keeps all lanes' counts.
    pub(crate) home: LaneArc<Home>,
    pub(crate) device: Arc<dyn Device>,
    pub(crate) geometry: Geometry,
    pub(crate) checksums: Checksums,
    pub(crate) journal: Journal<Fs>,
    pub(crate) groups: Groups,
    pub(crate) inodes: Inodes,
    pub(crate) tables: Tables,
    pub(crate) meta: MetaCache,
    pub(crate) orphans: Orphans,
    pub(crate) superblock: SuperState,
    pub(crate) system: Arc<SystemBlocks>,
    /// The files of the file system itself beyond the reserved numbers: the orphan file, a journal
    /// in a place of its own.
    pub(crate) own_files: Vec<Ino>,
    /// Where each group's inode table starts, and how much of it was ever written.
    pub(crate) descriptors: Vec<GroupDesc>,
    /// Held for a directory that changes its parent, for the loop check.
    pub(crate) topology: Mutex<()>,
    pub(crate) names: Arc<dyn Names>,
    pub(crate) dir_format: DirFormat,
    pub(crate) hasher: NameHasher,
    pub(crate) dir_index: bool,
    pub(crate) dir_nlink: bool,
    pub(crate) atime: Atime,
    pub(crate) overwrite: Overwrite,
    pub(crate) on_error: OnError,
    pub(crate) cache_bytes: u64,
    pub(crate) overhead: u64,
    pub(crate) reserved_blocks: u64,
    pub(crate) fsid: u64,
    /// The largest size a file can have, in bytes.
    pub(crate) max_size: u64,
    pub(crate) read_only: AtomicBool,
    /// As mounted: only with [`Access::ReadWrite`] is there a committer.
    pub(crate) access: Access,
    /// Bounds the caches where no commit does.
    pub(crate) pressure: Pressure,
    /// While a mount deletes the orphans of the last one, inodes without links can be loaded.
    pub(crate) finishing_orphans: AtomicBool,
}

impl BlockReader for Fs {
    fn read_block(&self, block: Block) -> Result<Arc<[u8]>, Error> {
        if let Some(image) = self.journal.image(block)? {
            return Ok(image);
        }
        self.read_home(block)
    }

    fn damaged(&self, error: &Error) {
        self.note_error(error);
    }

    fn crowded(&self) {
        if self.access == Access::ReadWrite {
            self.journal.request_commit();
        }
    }
}

impl Fs {
    /// The root directory.
    pub fn root(&self) -> Result<InodeRef, Error> {
        self.get(Ino::ROOT, None)
    }

    /// True if nothing can be changed: mounted so, or because of an error.
    pub fn is_read_only(&self) -> bool {
        // The committer says so to `read_only` a moment after the abort; whoever was told of the
        // abort must not see it later than that.
        self.read_only.load(Ordering::Acquire) || self.journal.cause().is_some()
    }

    /// Why the file system became read-only while running, if it did.
    pub fn failure(&self) -> Option<Error> {
        self.journal.cause().map(Error::from)
    }

    /// The superblock as the last commit left it.
    pub fn superblock(&self) -> Superblock {
        self.superblock.snapshot()
    }

    /// What the journal has done since the mount.
    pub fn journal_statistics(&self) -> lanefs_journal::Statistics {
        self.journal.statistics()
    }

    /// Inodes, metadata blocks and inode-table blocks in memory.
    pub fn cached(&self) -> (usize, usize, usize) {
        (self.inodes.len(), self.meta.blocks.len(), self.tables.blocks.len())
    }

    pub(crate) fn check_writable(&self) -> Result<(), Error> {
        if self.is_read_only() { Err(Error::ReadOnly) } else { Ok(()) }
    }

    pub(crate) fn become_read_only(&self) {
        self.read_only.store(true, Ordering::Release);
    }

    /// A handle with credits for the worst case.
    pub(crate) fn join(&self, credits: u32) -> Result<Handle<'_>, Error> {
        self.check_writable()?;
        Ok(self.journal.join(credits)?)
    }

    /// Damage that was found where nobody can be told: remembered in the superblock, and the end
    /// of writing if the mount says so.
    pub(crate) fn note_error(&self, error: &Error) {
        let Fault::Image { ino, block } = error.fault() else { return };
        let now = crate::ops::read::now();
        self.superblock.note_error(ErrorRecord {
            time: now.secs.try_into().unwrap_or(0),
            ino: ino.map_or(0, |ino| ino.0),
            block: block.map_or(0, |block| block.0),
            function: "lanefs".into(),
            line: 0,
            code: ErrorCode::Damage,
        });
        if self.on_error == OnError::ReadOnly {
            self.become_read_only();
        }
    }

    /// The contents of `block` on the device, whatever the journal holds.
    pub(crate) fn read_home(&self, block: Block) -> Result<Arc<[u8]>, Error> {
        if !self.geometry.contains(block) {
            return Err(Error::OutsideFileSystem { block });
        }
        let size = self.geometry.block_size().bytes();
        // Read to where it stays: a block is copied once for some files of a walk.
        let mut bytes: Arc<[u8]> = std::iter::repeat_n(0, size).collect();
        let place = Arc::get_mut(&mut bytes).expect("nobody else has it yet");
        self.device.read_at(block.0 * size as u64, place)?;
        Ok(bytes)
    }

    /// Block `index` of a group's inode table.
    pub(crate) fn table_block(&self, group: Group, index: u32) -> Result<TableRef, Error> {
        let start = self.descriptors.get(group.0 as usize).ok_or(Error::Stale)?.inode_table;
        self.tables.get(group, index, Block(start.0 + u64::from(index)))
    }

    /// An inode-table block: what was never initialised reads as zeros, whatever lies there.
    pub(crate) fn read_table_block(&self, table: &TableBlock) -> Result<Arc<[u8]>, Error> {
        if !self.tables.is_initialised(table) {
            return Ok(vec![0; self.geometry.block_size().bytes()].into());
        }
        self.read_block(table.block)
    }

    /// The group of an inode and its bit there.
    pub(crate) fn inode_group(&self, ino: Ino) -> Result<(Group, u32), Error> {
        let place = self.geometry.inode_place(ino).ok_or(Error::Stale)?;
        Ok((place.group, place.index))
    }

    pub(crate) fn sectors_a_block(&self) -> u64 {
        (self.geometry.block_size().bytes() / 512) as u64
    }

    pub(crate) fn limits_of(&self, ino: Ino) -> crate::plan::extent::Limits {
        let space = self.geometry.first_data_block().0..self.geometry.block_count();
        crate::plan::extent::Limits::new(ino, self.geometry.block_size(), space)
    }

    /// The seed of an inode's checksums; any without `metadata_csum`, where nobody uses it.
    pub(crate) fn seed_of(&self, ino: Ino, generation: u32) -> Seed {
        let seed = self.checksums.seed().unwrap_or(Seed::from_raw(0));
        seed.of_inode(ino, generation)
    }

    pub(crate) fn dir_context_of(
        &self,
        ino: Ino,
        generation: u32,
        indexing: Indexing,
    ) -> DirContext {
        DirContext {
            ino,
            seed: self.seed_of(ino, generation),
            format: self.dir_format,
            hasher: self.hasher,
            indexing,
        }
    }

    /// Checks a metadata block that was read.
    pub(crate) fn verify(&self, block: Block, kind: MetaKind, bytes: &[u8]) -> Result<(), Error> {
        use lanefs_ondisk::Corruption;
        match kind {
            MetaKind::Directory { ino, generation, block: n } => {
                let indexing = self.indexing_of(ino);
                crate::plan::dir::verify(&self.dir_context_of(ino, generation, indexing), n, bytes)
            }
            MetaKind::Extents { ino, generation } => {
                if self.checksums.seed().is_none() {
                    return Ok(());
                }
                disk_extent::verify(bytes, self.seed_of(ino, generation)).map_err(|cause| {
                    Corruption::ExtentNode { ino, block: Some(block), cause }.into()
                })
            }
            MetaKind::Xattr => self.verify_xattr_block(block, bytes),
            MetaKind::Orphans { ino, generation, block: n } => {
                let seed = OrphanSeed::new(self.checksums, ino, generation);
                OrphanBlock::decode(bytes, block, seed)
                    .map(|_| ())
                    .map_err(|cause| Corruption::OrphanFile { ino, block: n, cause }.into())
            }
        }
    }

    /// Sets the checksum of a metadata block that goes into a transaction.
    pub(crate) fn seal(&self, block: Block, kind: MetaKind, mut data: Arc<[u8]>) -> Arc<[u8]> {
        let Some(seed) = self.checksums.seed() else { return data };
        let bytes = Arc::make_mut(&mut data);
        match kind {
            MetaKind::Directory { ino, generation, .. } => {
                // The shape of the block tells an index from a leaf.
                let context = self.dir_context_of(ino, generation, self.indexing_of(ino));
                crate::plan::dir::seal(&context, bytes);
            }
            MetaKind::Extents { ino, generation } => {
                disk_extent::seal(bytes, self.seed_of(ino, generation));
            }
            MetaKind::Xattr => crate::plan::xattr::seal(Some(seed), block, bytes),
            MetaKind::Orphans { ino, generation, .. } => {
                orphan::seal(bytes, block, OrphanSeed::new(self.checksums, ino, generation));
            }
        }
        data
    }

    fn indexing_of(&self, ino: Ino) -> Indexing {
        let flags = self.inodes.get(ino).map_or(0, |dir| dir.rights().flags);
        match disk::InodeFlags::from_bits_retain(flags).contains(disk::InodeFlags::INDEX) {
            true if self.dir_index => Indexing::Indexed,
            _ if self.dir_index => Indexing::Possible,
            _ => Indexing::Never,
        }
    }

    /// Where a group's descriptor lies: its block, and the bytes in it.
    pub(crate) fn descriptor_place(
        &self,
        group: Group,
    ) -> Result<(Block, std::ops::Range<usize>), Error> {
        let (index, range) = self.geometry.desc_place(group).ok_or(Error::Stale)?;
        Ok((self.geometry.desc_block(index).ok_or(Error::Stale)?, range))
    }

    /// Patches an inode's record into a copy of its table block.
    pub(crate) fn encode_record(
        &self,
        ino: Ino,
        disk: &disk::Inode,
        raw: &RawRecord,
        table: &mut [u8],
        offset: usize,
    ) -> Result<(), Error> {
        let len = self.geometry.inode_size();
        let record = table.get_mut(offset..offset + len).ok_or(Error::Stale)?;
        raw.write_to(record);
        disk.encode_into(record, ino, &self.geometry, self.checksums)
            .map_err(|_| Error::FileTooLarge)
    }

    /// Patches the deletion time, which is the chain of the legacy orphan list, of a record that
    /// did not change otherwise.
    pub(crate) fn chain_record(
        &self,
        ino: Ino,
        next: Option<Ino>,
        table: &mut [u8],
        offset: usize,
    ) -> Result<(), Error> {
        let len = self.geometry.inode_size();
        let record = table.get_mut(offset..offset + len).ok_or(Error::Stale)?;
        let mut disk = disk::Inode::decode(record, ino, &self.geometry, self.checksums)?;
        disk.dtime = next.map_or(0, |next| next.0);
        disk.encode_into(record, ino, &self.geometry, self.checksums)
            .map_err(|_| Error::FileTooLarge)
    }
}
