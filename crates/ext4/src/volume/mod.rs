//! What never changes after the mount: the device, where things lie on it, in which formats.

pub(crate) mod kind;
pub(crate) mod reader;
pub(crate) mod system;

use crate::error::Error;
use crate::plan::dir::{DirContext, Indexing};
use crate::plan::extent::{self, Limits};
use lanefs_device::Device;
use lanefs_lanes::sync::Arc;
use lanefs_ondisk::checksum::{Checksums, Seed};
use lanefs_ondisk::dirent::DirFormat;
use lanefs_ondisk::features::{Compat, Incompat, RoCompat};
use lanefs_ondisk::group_desc::GroupDesc;
use lanefs_ondisk::hash::{HashVersion, NameBytes, NameHasher};
use lanefs_ondisk::superblock::{Geometry, InodePlace, JournalPlace, SuperFlags, Superblock};
use lanefs_ondisk::{Block, Group, Ino, Unsupported};
use std::ops::Range;
use system::SystemBlocks;

/// A file system on a device, as far as no operation changes it.
pub(crate) struct Volume {
    pub(crate) device: Arc<dyn Device>,
    pub(crate) geometry: Geometry,
    pub(crate) checksums: Checksums,
    pub(crate) dir_format: DirFormat,
    hasher: NameHasher,
    /// Feature `dir_index`: directories of several blocks get an index.
    pub(crate) dir_index: bool,
    /// Feature `dir_nlink`: a directory with too many subdirectories counts them no more.
    pub(crate) dir_nlink: bool,
    /// The files of the file system itself beyond the reserved numbers: the orphan file, a journal
    /// in a place of its own.
    own_files: Vec<Ino>,
    system: Arc<SystemBlocks>,
    /// Where each group's inode table starts.
    inode_tables: Box<[Block]>,
    /// Blocks that no file can use.
    overhead: u64,
    /// Blocks kept back for the privileged and for extent nodes.
    pub(crate) reserved_blocks: u64,
    pub(crate) fsid: u64,
    /// The largest size a file can have, in bytes.
    max_size: u64,
    /// Bytes beyond the first 128 that new inodes use for fields.
    pub(crate) extra_isize: u16,
}

impl Volume {
    /// As `superblock` and the checked `descriptors` say.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a hash of names that is not known.
    pub(crate) fn new(
        device: Arc<dyn Device>,
        superblock: &Superblock,
        descriptors: &[GroupDesc],
        system: Arc<SystemBlocks>,
    ) -> Result<Volume, Error> {
        let features = superblock.features();
        Ok(Volume {
            device,
            geometry: superblock.geometry(),
            checksums: superblock.checksums(),
            dir_format: dir_format(superblock),
            hasher: name_hasher(superblock)?,
            dir_index: features.compat.contains(Compat::DIR_INDEX),
            dir_nlink: features.ro_compat.contains(RoCompat::DIR_NLINK),
            own_files: own_files(superblock),
            // As the kernel's statfs counts: what no file can use, the journal included.
            overhead: system.count(),
            system,
            inode_tables: descriptors.iter().map(|desc| desc.inode_table).collect(),
            reserved_blocks: superblock
                .reserved_blocks()
                .saturating_add(extent_reserve(superblock)),
            fsid: fold_uuid(&superblock.uuid()),
            max_size: max_file_size(superblock),
            extra_isize: superblock.extra_isize(),
        })
    }

    /// Bytes of a block.
    pub(crate) fn block_size(&self) -> usize {
        self.geometry.block_size().bytes()
    }

    /// The contents of `block` on the device, whatever the journal holds.
    pub(crate) fn read(&self, block: Block) -> Result<Arc<[u8]>, Error> {
        if !self.geometry.contains(block) {
            return Err(Error::OutsideFileSystem { block });
        }
        let size = self.block_size();
        // Read to where it stays: a block is copied once for some files of a walk.
        let mut bytes: Arc<[u8]> = std::iter::repeat_n(0, size).collect();
        let unshared = Arc::get_mut(&mut bytes).expect("this is the only reference so far");
        self.device.read_at(block.0 * size as u64, unshared)?;
        Ok(bytes)
    }

    /// Block `index` of a group's inode table.
    pub(crate) fn table_block(&self, group: Group, index: u32) -> Result<Block, Error> {
        let start = self.inode_tables.get(group.0 as usize).ok_or(Error::Stale)?;
        Ok(Block(start.0 + u64::from(index)))
    }

    /// Where the record of an inode lies.
    pub(crate) fn inode_place(&self, ino: Ino) -> Result<InodePlace, Error> {
        self.geometry.inode_place(ino).ok_or(Error::Stale)
    }

    /// The bytes of the record at `offset` in a table block.
    pub(crate) fn record_in<'b>(&self, table: &'b [u8], offset: usize) -> Option<&'b [u8]> {
        table.get(offset..offset.checked_add(self.geometry.inode_size())?)
    }

    /// Where a group's descriptor lies: its block, and the bytes in it.
    pub(crate) fn descriptor_place(&self, group: Group) -> Result<(Block, Range<usize>), Error> {
        let (index, range) = self.geometry.desc_place(group).ok_or(Error::Stale)?;
        Ok((self.geometry.desc_block(index).ok_or(Error::Stale)?, range))
    }

    /// Blocks that files can use.
    pub(crate) fn usable_blocks(&self) -> u64 {
        self.geometry.block_count().saturating_sub(self.overhead)
    }

    /// What `blocks` blocks add to an inode's count of sectors.
    pub(crate) fn sectors(&self, blocks: u64) -> u64 {
        blocks * (self.block_size() / 512) as u64
    }

    /// How many groups a run of blocks lies in.
    pub(crate) fn groups_of(&self, start: Block, len: u32) -> u32 {
        let group =
            |block: u64| self.geometry.group_of(Block(block)).map_or(0, |(group, _)| group.0);
        let last = start.0 + u64::from(len.max(1)) - 1;
        group(last).saturating_sub(group(start.0)) + 1
    }

    /// Whether a name may lead to this number: to none of the file system's own files.
    pub(crate) fn is_for_names(&self, ino: Ino) -> bool {
        ino == Ino::ROOT || (ino >= self.geometry.first_ino() && !self.own_files.contains(&ino))
    }

    /// No file is larger than its format can say.
    pub(crate) fn check_size(&self, size: u64) -> Result<(), Error> {
        if size > self.max_size { Err(Error::FileTooLarge) } else { Ok(()) }
    }

    /// Fails if blocks of an inode may not lie here.
    pub(crate) fn check_place(&self, ino: Ino, start: Block, len: u32) -> Result<(), Error> {
        if !self.geometry.contains_run(start, u64::from(len)) {
            return Err(Error::OutsideFileSystem { block: start });
        }
        match self.system.first_in(start, u64::from(len)) {
            // The journal is a file too, read when it was opened.
            Some(block) if ino != Ino::JOURNAL => Err(Error::ClaimsMetadata { ino, block }),
            _ => Ok(()),
        }
    }

    /// What an extent tree of an inode may map.
    pub(crate) fn limits_of(&self, ino: Ino) -> Limits {
        let space = self.geometry.first_data_block().0..self.geometry.block_count();
        Limits::new(ino, self.geometry.block_size(), space)
    }

    /// The seed of an inode's checksums; any without `metadata_csum`, where none is used.
    pub(crate) fn seed_of(&self, ino: Ino, generation: u32) -> Seed {
        let seed = self.checksums.seed().unwrap_or(Seed::from_raw(0));
        seed.of_inode(ino, generation)
    }

    /// What the planners know of a directory.
    pub(crate) fn dir_context(&self, ino: Ino, generation: u32, indexing: Indexing) -> DirContext {
        DirContext {
            ino,
            seed: self.seed_of(ino, generation),
            format: self.dir_format,
            hasher: self.hasher,
            indexing,
        }
    }

    /// Whether a directory has an index, if `flagged` is what its inode says.
    pub(crate) fn indexing(&self, flagged: bool) -> Indexing {
        match (self.dir_index, flagged) {
            (false, _) => Indexing::Never,
            (true, false) => Indexing::Possible,
            (true, true) => Indexing::Indexed,
        }
    }
}

/// The files of the file system itself that the superblock names.
fn own_files(superblock: &Superblock) -> Vec<Ino> {
    let journal = match superblock.journal() {
        Some(JournalPlace::Inode(ino)) => Some(ino),
        _ => None,
    };
    superblock.orphan_file().into_iter().chain(journal).collect()
}

/// Blocks kept back for the nodes of extent trees, so that a write into allocated space never fails
/// for lack of one: as many as the kernel's ext4 keeps, which its statfs shows.
fn extent_reserve(superblock: &Superblock) -> u64 {
    (superblock.geometry().block_count() / 50).min(4096)
}

fn dir_format(superblock: &Superblock) -> DirFormat {
    let features = superblock.features();
    DirFormat {
        block_size: superblock.geometry().block_size(),
        has_file_types: features.incompat.contains(Incompat::FILETYPE),
        has_checksums: features.ro_compat.contains(RoCompat::METADATA_CSUM),
        has_large_dirs: features.incompat.contains(Incompat::LARGE_DIR),
        inodes: superblock.geometry().inode_count(),
    }
}

fn name_hasher(superblock: &Superblock) -> Result<NameHasher, Error> {
    let byte = superblock.hash_version();
    let Some(version) = HashVersion::from_byte(byte) else {
        return Err(Unsupported { what: format!("directory hash {byte}") }.into());
    };
    let bytes = match superblock.flags().contains(SuperFlags::UNSIGNED_HASH) {
        true => NameBytes::Unsigned,
        false => NameBytes::Signed,
    };
    Ok(NameHasher { version, bytes, seed: superblock.hash_seed() })
}

/// The largest size that this file system's features can record.
fn max_file_size(superblock: &Superblock) -> u64 {
    let geometry = superblock.geometry();
    let mapped = u64::from(extent::END) << geometry.block_size().bits();
    let features = superblock.features().ro_compat;
    let most = if features.contains(RoCompat::LARGE_FILE) { u64::MAX } else { (1 << 31) - 1 };
    // Without huge_file the space taken is counted in 32 bits of sectors.
    let counted =
        if features.contains(RoCompat::HUGE_FILE) { u64::MAX } else { (1 << 41) - (1 << 20) };
    mapped.min(most).min(counted)
}

fn fold_uuid(uuid: &[u8; 16]) -> u64 {
    let half = |at: usize| {
        uuid[at..at + 8].iter().rev().fold(0u64, |word, byte| (word << 8) | u64::from(*byte))
    };
    half(0) ^ half(8)
}
