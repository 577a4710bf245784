//! The part of a growth of the file system that only the committer writes: descriptors, the resize
//! inode, the superblock.

use crate::error::Error;
use crate::object::dirty::Captured;
use crate::object::objects::Objects;
use crate::volume::reader::BlockReader;
use lanefs_lanes::sync::Arc;
use lanefs_ondisk::group_desc::GroupDesc;
use lanefs_ondisk::inode::Inode;
use lanefs_ondisk::superblock::Geometry;
use lanefs_ondisk::{Block, Group, Ino};

/// Groups that one transaction adds.
pub(crate) struct Growth {
    pub(crate) old: Geometry,
    pub(crate) new: Geometry,
    /// The new groups as they were written first.
    pub(crate) descriptors: Vec<GroupDesc>,
    /// The resize inode, if it changes.
    pub(crate) resize: Option<ResizeInode>,
}

/// The inode that reserves blocks for descriptors.
pub(crate) struct ResizeInode {
    /// Its blocks that change, with their new contents.
    pub(crate) blocks: Vec<(Block, Vec<u8>)>,
    pub(crate) sectors: u64,
}

impl Growth {
    /// Returns the new groups.
    pub(crate) fn groups(&self) -> impl Iterator<Item = (Group, &GroupDesc)> {
        (self.old.group_count()..).map(Group).zip(&self.descriptors)
    }

    /// Returns the blocks of descriptors that change.
    pub(crate) fn changed(&self) -> std::ops::Range<u32> {
        let per_block = self.new.descs_per_block();
        let last = self.old.group_count() + self.descriptors.len() as u32;
        self.old.group_count() / per_block..last.div_ceil(per_block)
    }

    /// Returns block `index` of the descriptors as it was before the new groups.
    pub(crate) fn base(&self, index: u32, objects: &Objects) -> Result<Arc<[u8]>, Error> {
        // Until now the block was in the reserve, where it has other contents, or it is new.
        if index >= self.old.desc_blocks() {
            return Ok(vec![0; self.new.block_size().bytes()].into());
        }
        objects.read_block(self.new.desc_block(index).ok_or(Error::Stale)?)
    }

    /// Returns the number of blocks that this adds to a transaction.
    pub(crate) fn credits(&self) -> u32 {
        let resize = self.resize.as_ref().map_or(0, |resize| resize.blocks.len() + 1);
        self.changed().len() as u32 + resize as u32
    }
}

impl ResizeInode {
    /// Committer: adds the blocks.
    pub(crate) fn capture(&self, captured: &mut Captured<'_>) {
        for (block, bytes) in &self.blocks {
            captured.image(*block, bytes.as_slice().into());
        }
    }
}

impl Objects {
    /// Reads the resize inode.
    pub(crate) fn resize_inode(&self) -> Result<Inode, Error> {
        let place = self.volume.inode_place(Ino::RESIZE)?;
        let table = self.table_block(place.group, place.table_block)?;
        let bytes = self.tables.base(&table, self)?;
        let record = self.volume.record_in(&bytes, place.offset).ok_or(Error::Stale)?;
        let (geometry, checksums) = (self.volume.geometry(), self.volume.checksums);
        Ok(Inode::decode(record, Ino::RESIZE, geometry, checksums)?)
    }
}
