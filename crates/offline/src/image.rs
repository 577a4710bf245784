//! A file system that no other program uses: its structures, and the changes that are not written
//! yet.

use crate::error::{Error, Refusal};
use lanefs_device::Device;
use lanefs_ext4::Expected;
use lanefs_ext4::extent::{Limits, Map, Nodes};
use lanefs_ext4::mapping::Form;
use lanefs_ext4::{Exclusive, Primary, read_descriptors};
use lanefs_ondisk::bitmap::Bitmap;
use lanefs_ondisk::checksum::{Checksums, Seed};
use lanefs_ondisk::group_desc::{GroupDesc, GroupFlags};
use lanefs_ondisk::inode::{BlockField, Inode};
use lanefs_ondisk::orphan::{OrphanBlock, OrphanSeed};
use lanefs_ondisk::superblock::{Geometry, RawSuperblock, Superblock};
use lanefs_ondisk::{Block, Corruption, FileBlock, Group, Ino};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A clean file system, and the changes that the next [`Image::commit`] writes together.
pub struct Image {
    pub(crate) device: Arc<dyn Device>,
    /// The superblock on the device, without the changes.
    pub(crate) found: Superblock,
    /// The superblock to be written.
    pub(crate) superblock: Superblock,
    /// The descriptors on the device, without the changes.
    pub(crate) described: Vec<GroupDesc>,
    /// The descriptors to be written.
    pub(crate) descriptors: Vec<GroupDesc>,
    /// Block bitmaps to be written.
    pub(crate) bitmaps: BTreeMap<Group, Bitmap>,
    /// Inode bitmaps to be written.
    pub(crate) inode_bitmaps: BTreeMap<Group, Bitmap>,
    /// A block is allocated only if its number is below this limit.
    pub(crate) limit: Option<u64>,
    /// Other blocks to be written.
    pub(crate) blocks: BTreeMap<Block, Vec<u8>>,
    /// The device of the log, if the log is on a device of its own.
    pub(crate) journal: Option<Arc<dyn Device>>,
    /// The claim of the file system by this process, if the file system has `mmp`.
    exclusive: Option<Exclusive>,
}

impl Image {
    /// Reads superblock and descriptors; the file system need not be clean.
    pub(crate) fn load(device: Arc<dyn Device>) -> Result<Image, Error> {
        Image::load_with(device, None)
    }

    /// Does the same as [`Image::load`], for a file system whose journal is on `journal`.
    pub(crate) fn load_with(
        device: Arc<dyn Device>,
        journal: Option<&Arc<dyn Device>>,
    ) -> Result<Image, Error> {
        let superblock = Primary::read_with(&*device, journal)?.superblock;
        let geometry = superblock.geometry();
        let descriptors = read_descriptors(&*device, &geometry, superblock.checksums())?;
        Ok(Image {
            device,
            found: superblock.clone(),
            superblock,
            described: descriptors.clone(),
            descriptors,
            bitmaps: BTreeMap::new(),
            inode_bitmaps: BTreeMap::new(),
            limit: None,
            blocks: BTreeMap::new(),
            journal: journal.cloned(),
            exclusive: None,
        })
    }

    /// Works like [`Image::load_with`], and claims the file system. While the image exists, no
    /// other computer that obeys `mmp` writes the file system.
    pub(crate) fn load_exclusively(
        device: Arc<dyn Device>,
        journal: Option<&Arc<dyn Device>>,
    ) -> Result<Image, Error> {
        let exclusive = Exclusive::take(&device)?;
        let device = exclusive.as_ref().map_or(device, Exclusive::device);
        Ok(Image { exclusive, ..Image::load_with(device, journal)? })
    }

    /// Drops all changes that are not written, and reads superblock and descriptors again.
    pub(crate) fn reload(&mut self) -> Result<(), Error> {
        let found = Image::load_with(self.device.clone(), self.journal.as_ref())?;
        *self = Image { exclusive: self.exclusive.take(), limit: self.limit, ..found };
        Ok(())
    }

    /// Returns whether this process has claimed the image by the protocol of `mmp`.
    pub(crate) fn is_exclusive(&self) -> bool {
        self.exclusive.is_some()
    }

    /// Returns the superblock, including changes that are not written yet.
    pub fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// Returns the file system's geometry, including changes that are not written yet.
    pub fn geometry(&self) -> Geometry {
        self.superblock.geometry()
    }

    /// Changes the superblock in memory.
    pub(crate) fn edit(&mut self, change: impl FnOnce(&mut RawSuperblock)) -> Result<(), Error> {
        let mut raw = self.superblock.raw().clone();
        change(&mut raw);
        self.superblock = Superblock::from_raw(raw)?;
        Ok(())
    }

    pub(crate) fn checksums(&self) -> Checksums {
        self.superblock.checksums()
    }

    pub(crate) fn block_bytes(&self) -> usize {
        self.geometry().block_size().bytes()
    }

    /// Returns a block, including changes that are not written yet.
    pub(crate) fn block(&self, block: Block) -> Result<Vec<u8>, Error> {
        if let Some(bytes) = self.blocks.get(&block) {
            return Ok(bytes.clone());
        }
        let mut bytes = vec![0; self.block_bytes()];
        if !self.geometry().contains_run(block, 1) && block != self.geometry().super_block() {
            return Err(lanefs_ext4::Error::OutsideFileSystem { block }.into());
        }
        self.device.read_at(block.0 << self.geometry().block_size().bits(), &mut bytes)?;
        Ok(bytes)
    }

    pub(crate) fn descriptor(&self, group: Group) -> Result<&GroupDesc, Error> {
        let found = self.descriptors.get(group.0 as usize);
        Ok(found.expected()?)
    }

    /// Returns the block of the inode table that contains `ino`, and the bytes of the inode in it.
    fn place_of(&self, ino: Ino) -> Result<(Block, std::ops::Range<usize>), Error> {
        let geometry = self.geometry();
        let cause = lanefs_ondisk::inode::Cause::NoSuchInode;
        let place = geometry.inode_place(ino).ok_or(Corruption::Inode { ino, cause })?;
        let table = self.descriptor(place.group)?.inode_table.0;
        let range = place.offset..place.offset + geometry.inode_size();
        Ok((Block(table + u64::from(place.table_block)), range))
    }

    /// Returns an inode.
    pub(crate) fn inode(&self, ino: Ino) -> Result<Inode, Error> {
        let (block, range) = self.place_of(ino)?;
        let bytes = self.block(block)?;
        let record = bytes.get(range).unwrap_or_default();
        Ok(Inode::decode(record, ino, &self.geometry(), self.checksums())?)
    }

    /// Returns the bytes of an inode in its table.
    pub(crate) fn record(&self, ino: Ino) -> Result<Vec<u8>, Error> {
        let (block, range) = self.place_of(ino)?;
        let bytes = self.block(block)?;
        Ok(bytes.get(range).expected()?.to_vec())
    }

    /// Changes the bytes of an inode in its table.
    pub(crate) fn put_record(&mut self, ino: Ino, record: Vec<u8>) -> Result<(), Error> {
        let (block, range) = self.place_of(ino)?;
        let mut bytes = self.block(block)?;
        let place = bytes.get_mut(range).filter(|place| place.len() == record.len());
        place.expected()?.copy_from_slice(&record);
        self.blocks.insert(block, bytes);
        Ok(())
    }

    /// Changes an inode. The bytes after its fields, which hold attributes, do not change.
    pub(crate) fn put_inode(&mut self, ino: Ino, inode: &Inode) -> Result<(), Error> {
        let (block, range) = self.place_of(ino)?;
        let mut bytes = self.block(block)?;
        let record = bytes.get_mut(range).expected()?;
        inode
            .encode_into(record, ino, &self.geometry(), self.checksums())
            .map_err(|cause| Refusal::InodeTooLarge { ino, cause })?;
        self.blocks.insert(block, bytes);
        Ok(())
    }

    /// Returns the mappings of a file or directory, and the blocks that hold the mapping nodes.
    pub(crate) fn map(&self, ino: Ino, inode: &Inode) -> Result<(Map, Vec<Block>), Error> {
        let form = self.form_of(inode).ok_or_else(|| {
            let what = format!("{ino}: a file without a mapping of blocks");
            lanefs_ext4::Error::from(lanefs_ondisk::Unsupported { what })
        })?;
        let nodes = self.nodes(ino, self.node_seed(ino, inode, form));
        let map = form.load(&inode.block, &nodes, &self.limits_of(ino))?;
        Ok((map, nodes.met.into_inner()))
    }

    /// Returns the form of an inode's mappings, if the inode can have mappings.
    pub(crate) fn form_of(&self, inode: &Inode) -> Option<Form> {
        match inode.block_field(&self.geometry()) {
            BlockField::ExtentTree => Some(Form::Extents),
            BlockField::BlockMap => Some(Form::BlockMap),
            BlockField::InlineData | BlockField::NoMapping => None,
        }
    }

    /// Returns the checksum seed for an inode's mapping nodes, if these nodes have checksums.
    pub(crate) fn node_seed(&self, ino: Ino, inode: &Inode, form: Form) -> Option<Seed> {
        let seed = self.checksums().seed().filter(|_| form == Form::Extents)?;
        Some(seed.of_inode(ino, inode.generation))
    }

    pub(crate) fn limits_of(&self, ino: Ino) -> Limits {
        let geometry = self.geometry();
        let space = geometry.first_data_block().0..geometry.block_count();
        Limits::new(ino, geometry.block_size(), space)
    }

    /// Returns the inodes that the orphan file `file` records.
    pub(crate) fn orphans_in(&self, file: Ino) -> Result<Vec<Ino>, Error> {
        let inode = self.inode(file)?;
        let seed = OrphanSeed::new(self.checksums(), file, inode.generation);
        let mut found = Vec::new();
        for extent in self.map(file, &inode)?.0.iter() {
            for n in 0..extent.len {
                let place = Block(extent.block.0 + u64::from(n));
                let block = FileBlock(extent.start.0 + n);
                let entries = OrphanBlock::decode(&self.block(place)?, place, seed)
                    .map_err(|cause| Corruption::OrphanFile { ino: file, block, cause })?;
                found.extend(entries.orphans().map(|(_, ino)| ino));
            }
        }
        Ok(found)
    }

    /// Returns the block bitmap of a group.
    pub(crate) fn block_bitmap(&self, group: Group) -> Result<Bitmap, Error> {
        if let Some(bitmap) = self.bitmaps.get(&group) {
            return Ok(bitmap.clone());
        }
        self.read_bitmap(group, self.descriptor(group)?)
    }

    /// Returns the block bitmap of a group as it is on the device, if the bitmap has changes that
    /// are still to be written. Returns `None` if it has no such changes, or if the group is new.
    pub(crate) fn described_bitmap(&self, group: Group) -> Result<Option<Bitmap>, Error> {
        match self.described.get(group.0 as usize) {
            Some(desc) if self.bitmaps.contains_key(&group) => {
                self.read_bitmap(group, desc).map(Some)
            }
            _ => Ok(None),
        }
    }

    fn read_bitmap(&self, group: Group, desc: &GroupDesc) -> Result<Bitmap, Error> {
        let geometry = self.geometry();
        if desc.flags.contains(GroupFlags::BLOCK_UNINIT) {
            let own = desc.metadata(&geometry);
            return Ok(Bitmap::uninitialised_blocks(group, own, &geometry)?);
        }
        let bytes = self.block(desc.block_bitmap)?;
        Ok(Bitmap::decode_blocks(&bytes, group, desc, &geometry, self.checksums())?)
    }
}

/// Reads the nodes of extent trees and block maps, and records their blocks.
pub(crate) struct ImageNodes<'i> {
    pub(crate) image: &'i Image,
    pub(crate) ino: Ino,
    pub(crate) seed: Option<Seed>,
    pub(crate) met: std::cell::RefCell<Vec<Block>>,
}

impl Nodes for ImageNodes<'_> {
    fn node(&self, block: Block) -> Result<Arc<[u8]>, lanefs_ext4::Error> {
        let bytes = self.image.block(block).map_err(|error| match error {
            Error::Ext4(error) => error,
            _ => lanefs_ext4::Error::internal(),
        })?;
        if let Some(seed) = self.seed {
            lanefs_ondisk::extent::verify(&bytes, seed).map_err(|cause| {
                Corruption::ExtentNode { ino: self.ino, block: Some(block), cause }
            })?;
        }
        self.met.borrow_mut().push(block);
        Ok(bytes.into())
    }
}
