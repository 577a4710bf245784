//! What only the committer writes when the file system grows: descriptors, the resize inode, and
//! the superblock.

use crate::volume::reader::BlockReader;
use lanefs_lanes::sync::Arc;
use lanefs_ondisk::group_desc::GroupDesc;
use lanefs_ondisk::superblock::Geometry;
use lanefs_ondisk::{Block, Group};
use lanefs_plan::Error;

/// Groups that one transaction adds.
pub(crate) struct Growth {
    pub(crate) old: Geometry,
    pub(crate) new: Geometry,
    /// The descriptors of the new groups. The inode tables of these groups were written before the
    /// transaction. So were their bitmaps, except those that the descriptors mark as uninitialised.
    pub(crate) descriptors: Vec<GroupDesc>,
    /// The resize inode, if it changes.
    pub(crate) resize: Option<ResizeInode>,
}

/// The inode that reserves blocks for descriptors.
pub(crate) struct ResizeInode {
    /// The blocks of the inode that change, with their new contents.
    pub(crate) blocks: Vec<(Block, Vec<u8>)>,
    pub(crate) sectors: u64,
}

impl Growth {
    /// Returns the new groups.
    pub(crate) fn groups(&self) -> impl Iterator<Item = (Group, &GroupDesc)> {
        (self.old.group_count()..).map(Group).zip(&self.descriptors)
    }

    /// Returns the indexes of the descriptor blocks that change.
    pub(crate) fn changed(&self) -> std::ops::Range<u32> {
        let per_block = self.new.descs_per_block();
        let last = self.old.group_count() + self.descriptors.len() as u32;
        self.old.group_count() / per_block..last.div_ceil(per_block)
    }

    /// Returns block `index` of the descriptors as it was before the groups were added.
    pub(crate) fn base(&self, index: u32, reader: &impl BlockReader) -> Result<Arc<[u8]>, Error> {
        // A block beyond the old descriptors either did not exist or was only reserved for
        // descriptors, so its contents on the device are not descriptors.
        if index >= self.old.desc_blocks() {
            return Ok(vec![0; self.new.block_size().bytes()].into());
        }
        reader.read_block(self.new.desc_block(index).ok_or(Error::Stale)?)
    }

    /// Returns the number of blocks that the growth adds to a transaction.
    pub(crate) fn credits(&self) -> u32 {
        let resize = self.resize.as_ref().map_or(0, |resize| resize.blocks.len() + 1);
        self.changed().len() as u32 + resize as u32
    }
}
