//! The properties of a mount that operations do not change: the device, the positions of metadata
//! on it, and the formats. The size and the positions change only when the file system grows.

use crate::crypt::MasterKey;
use lanefs_device::Device;
use lanefs_lanes::sync::Arc;
use lanefs_lanes::{Growing, Latest};
use lanefs_ondisk::casefold::Folding;
use lanefs_ondisk::checksum::{Checksums, Seed};
use lanefs_ondisk::dirent::{DirFormat, NameForm};
use lanefs_ondisk::features::{Compat, Incompat, RoCompat};
use lanefs_ondisk::group_desc::GroupDesc;
use lanefs_ondisk::hash::{HashVersion, NameHasher};
use lanefs_ondisk::inode::InodeFlags;
use lanefs_ondisk::orphan::{OrphanBlock, OrphanSeed};
use lanefs_ondisk::superblock::{Clusters, Geometry, InodePlace, Superblock};
use lanefs_ondisk::{Block, Corruption, FileBlock, Group, Ino, Unsupported, block_map, orphan};
use lanefs_plan::Expected;
use lanefs_plan::dir::{DirContext, Indexing};
use lanefs_plan::extent::Limits;
use lanefs_plan::mapping::Form;
use lanefs_plan::system::{SystemBlocks, own_files};
use lanefs_plan::{Error, dir, extent, xattr};
use std::ops::Range;

/// The part of a mounted file system that operations do not change.
pub(crate) struct Volume {
    pub(crate) device: Arc<dyn Device>,
    geometry: Latest<Geometry>,
    pub(crate) checksums: Checksums,
    dir_format: DirFormat,
    hasher: NameHasher,
    /// How directories with the flag `CASEFOLD` compare names; `None` without the feature
    /// `casefold`.
    pub(crate) folding: Option<Folding>,
    /// Feature `dir_index`: directories of several blocks get an index.
    pub(crate) dir_index: bool,
    /// Feature `dir_nlink`: a directory with too many subdirectories no longer counts them.
    pub(crate) dir_nlink: bool,
    /// The file system's own files whose inode numbers are not in the reserved range: the orphan
    /// file, quota files, and a journal in an inode other than 8.
    own_files: Vec<Ino>,
    system: Arc<SystemBlocks>,
    /// The first block of each group's inode table.
    inode_tables: Growing<Block>,
    /// Number of blocks reserved for privileged callers and for extent nodes.
    pub(crate) reserved_blocks: u64,
    pub(crate) fsid: u64,
    /// Whether the superblock can get features that inodes begin to use. It has no room for them in
    /// revision 0.
    pub(crate) can_add_features: bool,
    /// The form of mappings that new inodes get.
    pub(crate) new_form: Form,
    /// The largest size in bytes of a file mapped by extents.
    max_size: u64,
    /// The largest size in bytes of a file with a block map.
    max_mapped_size: u64,
    /// The largest space in sectors that the record of an inode can store (`i_blocks`).
    pub(crate) most_sectors: u64,
    /// Feature `inline_data`: small files and directories may have their data in the inode.
    pub(crate) inline_data: bool,
    /// Feature `encrypt`: files, directories and symbolic links may be encrypted.
    pub(crate) encrypts: bool,
    /// Feature `verity`: files can become verity files.
    pub(crate) has_verity: bool,
    /// The master keys that the mount was given.
    pub(crate) keys: Vec<MasterKey>,
    /// Feature `ea_inode`: the seed for hashes of attribute values that have inodes of their own.
    pub(crate) value_seed: Option<Seed>,
    /// Feature `project`: inodes belong to projects.
    pub(crate) projects: bool,
    /// Number of bytes that new inodes use for fields after the first 128 bytes.
    pub(crate) extra_isize: u16,
}

impl Volume {
    /// Creates the volume from `superblock` and the checked `descriptors`.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the superblock selects an unknown hash function for names.
    pub(crate) fn new(
        device: Arc<dyn Device>,
        superblock: &Superblock,
        descriptors: &[GroupDesc],
        system: Arc<SystemBlocks>,
        keys: &[MasterKey],
    ) -> Result<Volume, Error> {
        let features = superblock.features();
        Ok(Volume {
            device,
            geometry: Latest::new(superblock.geometry()),
            checksums: superblock.checksums(),
            dir_format: DirFormat {
                inodes: u32::MAX,
                ..superblock.dir_format(InodeFlags::empty())
            },
            hasher: name_hasher(superblock)?,
            folding: superblock.folding(),
            dir_index: features.compat.contains(Compat::DIR_INDEX),
            dir_nlink: features.ro_compat.contains(RoCompat::DIR_NLINK),
            own_files: own_files(superblock),
            system,
            inode_tables: descriptors.iter().map(|desc| desc.inode_table).collect(),
            reserved_blocks: superblock
                .reserved_blocks()
                .saturating_add(extent_reserve(superblock)),
            fsid: fold_uuid(&superblock.uuid()),
            can_add_features: has_features(superblock),
            new_form: match features.incompat.contains(Incompat::EXTENTS) {
                true => Form::Extents,
                false => Form::BlockMap,
            },
            max_size: max_file_size(superblock, Form::Extents),
            max_mapped_size: max_file_size(superblock, Form::BlockMap),
            most_sectors: match features.ro_compat.contains(RoCompat::HUGE_FILE) {
                true => ((1 << 48) - 1) * (superblock.geometry().block_size().bytes() as u64 / 512),
                false => u32::MAX.into(),
            },
            inline_data: features.incompat.contains(Incompat::INLINE_DATA),
            encrypts: features.incompat.contains(Incompat::ENCRYPT),
            has_verity: features.ro_compat.contains(RoCompat::VERITY),
            keys: keys.to_vec(),
            value_seed: features
                .incompat
                .contains(Incompat::EA_INODE)
                .then(|| superblock.value_seed()),
            projects: features.ro_compat.contains(RoCompat::PROJECT),
            extra_isize: superblock.extra_isize(),
        })
    }

    /// Returns sizes and positions. They are replaced when the file system grows.
    #[inline]
    pub(crate) fn geometry(&self) -> &Geometry {
        self.geometry.get()
    }

    /// Adds the new groups at the end, and the blocks that the last old group gained. Two threads
    /// must not call this function at the same time.
    pub(crate) fn grow(&self, geometry: Geometry, descriptors: &[GroupDesc]) {
        self.inode_tables.extend(descriptors.iter().map(|desc| desc.inode_table));
        self.geometry.set(geometry);
    }

    /// Returns the block size in bytes.
    pub(crate) fn block_size(&self) -> usize {
        self.geometry().block_size().bytes()
    }

    /// Reads `block` from the device, ignoring images in the journal.
    pub(crate) fn read(&self, block: Block) -> Result<Arc<[u8]>, Error> {
        if !self.geometry().contains(block) {
            return Err(Error::OutsideFileSystem { block });
        }
        let size = self.block_size();
        // The block is read directly into the final buffer, so that it need not be copied.
        let mut bytes: Arc<[u8]> = std::iter::repeat_n(0, size).collect();
        let unshared = Arc::get_mut(&mut bytes).expect("this is the only reference so far");
        self.device.read_at(block.0 * size as u64, unshared)?;
        Ok(bytes)
    }

    /// Returns block `index` of a group's inode table.
    pub(crate) fn table_block(&self, group: Group, index: u32) -> Result<Block, Error> {
        let start = self.inode_tables.get(group.0 as usize).expected()?;
        Ok(Block(start.0 + u64::from(index)))
    }

    /// Returns the position of an inode's record.
    pub(crate) fn inode_place(&self, ino: Ino) -> Result<InodePlace, Error> {
        self.geometry().inode_place(ino).ok_or_else(|| Error::Stale)
    }

    /// Returns the bytes of the record at `offset` in a table block.
    pub(crate) fn record_in<'b>(&self, table: &'b [u8], offset: usize) -> Option<&'b [u8]> {
        table.get(offset..offset.checked_add(self.geometry().inode_size())?)
    }

    /// Returns the position of a group's descriptor: the block, and the byte range in the block.
    pub(crate) fn descriptor_place(&self, group: Group) -> Result<(Block, Range<usize>), Error> {
        let (index, range) = self.geometry().desc_place(group).expected()?;
        Ok((self.geometry().desc_block(index).expected()?, range))
    }

    /// Returns the number of blocks that files can use.
    pub(crate) fn usable_blocks(&self) -> u64 {
        // As in the kernel's statfs, the blocks of the journal do not count as usable, but the MMP
        // block does.
        let has_mmp = self.geometry().features().incompat.contains(Incompat::MMP);
        let system = self.system.count().saturating_sub(has_mmp.into());
        self.geometry().block_count().saturating_sub(system)
    }

    /// Returns the size of clusters.
    #[inline]
    pub(crate) fn clusters(&self) -> Clusters {
        self.geometry().clusters()
    }

    /// Returns the size of a cluster in bytes.
    pub(crate) fn cluster_bytes(&self) -> u64 {
        (self.block_size() as u64) << self.clusters().bits()
    }

    /// Returns by how much `clusters` clusters increase an inode's sector count.
    pub(crate) fn sectors(&self, clusters: u64) -> u64 {
        clusters * (self.cluster_bytes() / 512)
    }

    /// Returns the number of groups that a run of blocks overlaps.
    pub(crate) fn groups_of(&self, start: Block, len: u32) -> u32 {
        let group =
            |block: u64| self.geometry().group_of(Block(block)).map_or(0, |(group, _)| group.0);
        let last = start.0 + u64::from(len.max(1)) - 1;
        group(last).saturating_sub(group(start.0)) + 1
    }

    /// Returns whether a name may refer to inode `ino`. It may if the inode is the root directory,
    /// or if its number is not reserved and it is not one of the file system's own files.
    pub(crate) fn is_for_names(&self, ino: Ino) -> bool {
        ino == Ino::ROOT || (ino >= self.geometry().first_ino() && !self.own_files.contains(&ino))
    }

    /// Fails if `size` exceeds the largest size of a file whose mappings have this form.
    pub(crate) fn check_size(&self, form: Form, size: u64) -> Result<(), Error> {
        let most = match form {
            Form::Extents => self.max_size,
            Form::BlockMap => self.max_mapped_size,
        };
        if size > most { Err(Error::FileTooLarge) } else { Ok(()) }
    }

    /// Fails if `ino` must not map these blocks, because they lie outside of the file system or
    /// belong to the file system itself.
    pub(crate) fn check_place(&self, ino: Ino, start: Block, len: u32) -> Result<(), Error> {
        if !self.geometry().contains_run(start, u64::from(len)) {
            return Err(Error::OutsideFileSystem { block: start });
        }
        match self.system.first_in(start, u64::from(len)) {
            // The journal itself is a file too, and may map its own blocks.
            Some(block) if ino != Ino::JOURNAL => Err(Error::ClaimsMetadata { ino, block }),
            _ => Ok(()),
        }
    }

    /// Returns the limits of an inode's mappings.
    pub(crate) fn limits_of(&self, ino: Ino) -> Limits {
        let space = self.geometry().first_data_block().0..self.geometry().block_count();
        Limits::new(ino, self.geometry().block_size(), space)
    }

    /// Returns the seed of an inode's checksums. Without `metadata_csum` the seed is arbitrary, and
    /// is not used.
    pub(crate) fn seed_of(&self, ino: Ino, generation: u32) -> Seed {
        self.file_system_seed().of_inode(ino, generation)
    }

    fn file_system_seed(&self) -> Seed {
        self.checksums.seed().unwrap_or(Seed::from_raw(0))
    }

    /// Returns the planners' view of a directory with these flags. The view has no limit for inode
    /// numbers: if the file system grew during an operation, the old limit would refuse valid
    /// names. The inode numbers in a block of the directory are checked when the block is loaded.
    pub(crate) fn dir_context(&self, ino: Ino, generation: u32, flags: InodeFlags) -> DirContext {
        DirContext {
            ino,
            generation,
            file_system_seed: self.file_system_seed(),
            format: DirFormat { names: NameForm::from(flags), ..self.dir_format },
            hasher: NameHasher { folding: self.folding_of(flags), ..self.hasher },
            indexing: self.indexing(flags.contains(InodeFlags::INDEX)),
        }
    }

    /// Returns how a directory with these flags compares names.
    pub(crate) fn folding_of(&self, flags: InodeFlags) -> Folding {
        let folds = flags.contains(InodeFlags::CASEFOLD);
        self.folding.filter(|_| folds).unwrap_or_default()
    }

    /// Returns whether a directory has or may get an index. `flagged` is the index flag of its
    /// inode.
    pub(crate) fn indexing(&self, flagged: bool) -> Indexing {
        match (self.dir_index, flagged) {
            (false, _) => Indexing::Never,
            (true, false) => Indexing::Possible,
            (true, true) => Indexing::Indexed,
        }
    }
}

/// Returns how many blocks are reserved for nodes of extent trees, so that a write into allocated
/// space never fails for lack of a block for a node. The kernel's ext4 reserves the same number of
/// blocks, and its statfs does not count them as available.
fn extent_reserve(superblock: &Superblock) -> u64 {
    // A block map needs no new node to punch a hole or to write into allocated space.
    if !superblock.features().incompat.contains(Incompat::EXTENTS) {
        return 0;
    }
    let geometry = superblock.geometry();
    let bits = geometry.cluster_bits();
    ((geometry.block_count() >> bits) / 50).min(4096) << bits
}

fn name_hasher(superblock: &Superblock) -> Result<NameHasher, Error> {
    let byte = superblock.hash_version();
    let Some(version) = HashVersion::from_byte(byte) else {
        return Err(Unsupported { what: format!("directory hash {byte}") }.into());
    };
    Ok(superblock.hasher(version, Folding::None))
}

/// Returns whether the superblock has words for features: revision 0 has none.
fn has_features(superblock: &Superblock) -> bool {
    superblock.raw().s_rev_level.get() > 0
}

/// Returns the largest file size that this file system's features can record.
fn max_file_size(superblock: &Superblock, form: Form) -> u64 {
    let size = superblock.geometry().block_size();
    let features = superblock.features().ro_compat;
    // The feature `large_file` is added with the first larger file.
    let may_be_large = features.contains(RoCompat::LARGE_FILE) || has_features(superblock);
    let most = if may_be_large { u64::MAX } else { (1 << 31) - 1 };
    // Without `huge_file` the number of allocated sectors has 32 bits.
    let counts_blocks = features.contains(RoCompat::HUGE_FILE);
    let mapped = match form {
        Form::Extents => {
            let counted = if counts_blocks { u64::MAX } else { (1 << 41) - (1 << 20) };
            // With `bigalloc`, the largest file ends with the last whole cluster.
            let end = superblock.geometry().clusters().floor(extent::END);
            (u64::from(end) << size.bits()).min(counted)
        }
        Form::BlockMap => {
            let sectors = u64::from(u32::MAX) >> (size.bits() - 9);
            block_map::max_file_size(size, if counts_blocks { 1 << 48 } else { sectors })
        }
    };
    mapped.min(most)
}

fn fold_uuid(uuid: &[u8; 16]) -> u64 {
    let half = |at: usize| {
        uuid[at..at + 8].iter().rev().fold(0u64, |word, byte| (word << 8) | u64::from(*byte))
    };
    half(0) ^ half(8)
}

// The kinds of metadata blocks, and how their contents are checked and sealed.

/// The kind and the owner of a metadata block. They determine the checksum of the block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MetaKind {
    /// Block `block` of directory `ino`.
    Directory { ino: Ino, generation: u32, block: FileBlock },
    /// A node of the extent tree of `ino`.
    Extents { ino: Ino, generation: u32 },
    /// An indirect block of the block map of `ino`. It has no checksum.
    Indirect { ino: Ino, generation: u32 },
    /// Extended attributes; several inodes may share the block, so the block has no owner.
    Xattr,
    /// Block `block` of the orphan file `ino`.
    Orphans { ino: Ino, generation: u32, block: FileBlock },
}

impl MetaKind {
    /// Returns the kind of the nodes of an inode's mappings.
    pub(crate) fn node(form: Form, ino: Ino, generation: u32) -> MetaKind {
        match form {
            Form::Extents => MetaKind::Extents { ino, generation },
            Form::BlockMap => MetaKind::Indirect { ino, generation },
        }
    }

    /// Returns the inode that owns the block; 0 if several inodes may own it.
    fn owner(self) -> Ino {
        match self {
            MetaKind::Directory { ino, .. }
            | MetaKind::Extents { ino, .. }
            | MetaKind::Indirect { ino, .. }
            | MetaKind::Orphans { ino, .. } => ino,
            MetaKind::Xattr => Ino(0),
        }
    }

    /// Fails if a block of this kind must not be at this position on the device.
    pub(crate) fn check_place(self, volume: &Volume, block: Block) -> Result<(), Error> {
        volume.check_place(self.owner(), block, 1)
    }

    /// Checks contents that were read from `block`. For a directory block, `flags_of` returns the
    /// flags of the directory's inode.
    pub(crate) fn verify(
        self,
        volume: &Volume,
        block: Block,
        bytes: &[u8],
        flags_of: impl FnOnce(Ino) -> InodeFlags,
    ) -> Result<(), Error> {
        match self {
            MetaKind::Directory { ino, generation, block: n } => {
                let mut context = volume.dir_context(ino, generation, flags_of(ino));
                context.format.inodes = volume.geometry().inode_count();
                dir::verify(&context, n, bytes)
            }
            MetaKind::Extents { ino, generation } => {
                if volume.checksums.seed().is_none() {
                    return Ok(());
                }
                lanefs_ondisk::extent::verify(bytes, volume.seed_of(ino, generation)).map_err(
                    |cause| Corruption::ExtentNode { ino, block: Some(block), cause }.into(),
                )
            }
            MetaKind::Indirect { .. } => Ok(()),
            MetaKind::Xattr => xattr::verify(volume.checksums.seed(), Ino(0), block, bytes),
            MetaKind::Orphans { ino, generation, block: n } => {
                let seed = OrphanSeed::new(volume.checksums, ino, generation);
                OrphanBlock::decode(bytes, block, seed)
                    .map(|_| ())
                    .map_err(|cause| Corruption::OrphanFile { ino, block: n, cause }.into())
            }
        }
    }

    /// Sets the checksum of contents that are added to a transaction.
    pub(crate) fn seal(self, volume: &Volume, block: Block, mut data: Arc<[u8]>) -> Arc<[u8]> {
        let Some(seed) = volume.checksums.seed() else { return data };
        let bytes = Arc::make_mut(&mut data);
        match self {
            MetaKind::Directory { ino, generation, .. } => {
                // The flags of the directory's inode are not needed, because a block's shape shows
                // whether it is an index block or a leaf.
                let context = volume.dir_context(ino, generation, InodeFlags::empty());
                dir::seal(&context, bytes);
            }
            MetaKind::Extents { ino, generation } => {
                lanefs_ondisk::extent::seal(bytes, volume.seed_of(ino, generation));
            }
            MetaKind::Indirect { .. } => {}
            MetaKind::Xattr => xattr::seal(Some(seed), block, bytes),
            MetaKind::Orphans { ino, generation, .. } => {
                orphan::seal(bytes, block, OrphanSeed::new(volume.checksums, ino, generation));
            }
        }
        data
    }
}

// The interface for reading metadata blocks.

/// Reads metadata blocks with the changes of all transactions whose block images the journal has,
/// even if they are not committed yet. A block is read from the journal's image if that image is
/// not written to its final location yet, otherwise from the device.
pub(crate) trait BlockReader: Send + Sync {
    /// Returns the contents of `block`, which are one block long. May sleep.
    fn read_block(&self, block: Block) -> Result<Arc<[u8]>, Error>;

    /// Reports that contents read through this reader are damaged. The caller reports each damage
    /// once.
    fn damaged(&self, _error: &Error) {}

    /// Reports that the caches exceed their memory limit, and that a commit would make some of that
    /// memory clean.
    fn over_limit(&self) {}
}
