//! The file system while fast commits are applied: its blocks, with the changes in memory.

use super::refusal::refused;
use crate::error::Error;
use crate::volume::descriptors::descriptors;
use crate::volume::system::SystemBlocks;
use lanefs_lanes::sync::Arc;
use lanefs_ondisk::bitmap::Bitmap;
use lanefs_ondisk::checksum::Checksums;
use lanefs_ondisk::group_desc::GroupDesc;
use lanefs_ondisk::superblock::{Geometry, Superblock};
use lanefs_ondisk::{Block, Group, Ino};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::Range;

/// Blocks with their new contents, in order.
pub(crate) type Images = Vec<(Block, Arc<[u8]>)>;

/// Returns the contents of a block as the last transaction of the log left it.
pub(crate) type Read<'r> = &'r dyn Fn(Block) -> Result<Vec<u8>, Error>;

/// The largest size of all changed blocks together, in bytes. The same limit applies separately to
/// the changed block bitmaps, inode bitmaps and inodes. No log has room for more.
const MOST_BYTES: usize = 1 << 30;
/// The largest number of directory blocks that a replay reads to search for names.
const MOST_SEARCHED: u64 = 1 << 22;
/// The largest number of extents that all changed files together may have.
const MOST_EXTENTS: u64 = 1 << 23;

/// The file system as the last transaction of the log left it, with the changes of the fast commits
/// that were applied so far.
pub(super) struct Draft<'a> {
    pub(super) read: Read<'a>,
    pub(super) superblock: Superblock,
    pub(super) geometry: Geometry,
    pub(super) checksums: Checksums,
    system: SystemBlocks,
    pub(super) descriptors: Vec<GroupDesc>,
    /// The group descriptors as the last transaction left them.
    pub(super) described: Vec<GroupDesc>,
    /// Changed bitmaps of blocks.
    pub(super) bitmaps: BTreeMap<Group, Bitmap>,
    /// Changed bitmaps of inodes.
    pub(super) inode_bitmaps: BTreeMap<Group, Bitmap>,
    /// Changed blocks that are not bitmaps. At the end, `encode_groups` adds the blocks of the
    /// bitmaps.
    pub(super) blocks: BTreeMap<Block, Arc<[u8]>>,
    /// The number of directory blocks that were searched.
    searched: Cell<u64>,
    /// The number of extents that were loaded or added.
    extents: Cell<u64>,
}

impl<'a> Draft<'a> {
    pub(super) fn new(
        superblock: &Superblock,
        read: Read<'a>,
        own: &[(Block, u32)],
    ) -> Result<Draft<'a>, Error> {
        let (geometry, checksums) = (superblock.geometry(), superblock.checksums());
        let descriptors = descriptors(&geometry, checksums, read)?;
        Ok(Draft {
            read,
            superblock: superblock.clone(),
            geometry,
            checksums,
            system: SystemBlocks::new(&geometry, &descriptors, own.iter().copied()),
            described: descriptors.clone(),
            descriptors,
            bitmaps: BTreeMap::new(),
            inode_bitmaps: BTreeMap::new(),
            blocks: BTreeMap::new(),
            searched: Cell::new(0),
            extents: Cell::new(0),
        })
    }

    pub(super) fn block_bytes(&self) -> usize {
        self.geometry.block_size().bytes()
    }

    /// Returns a block with the changes so far.
    pub(super) fn block(&self, block: Block) -> Result<Arc<[u8]>, Error> {
        match self.blocks.get(&block) {
            Some(bytes) => Ok(bytes.clone()),
            None => Ok((self.read)(block)?.into()),
        }
    }

    pub(super) fn put(&mut self, block: Block, bytes: Arc<[u8]>) -> Result<(), Error> {
        self.check_room(self.blocks.len(), bytes.len())?;
        self.blocks.insert(block, bytes);
        Ok(())
    }

    /// Fails if `count + 1` objects of `size` bytes take more than [`MOST_BYTES`].
    pub(super) fn check_room(&self, count: usize, size: usize) -> Result<(), Error> {
        match count.saturating_add(1).saturating_mul(size) > MOST_BYTES {
            true => Err(refused("that change more blocks than a log has")),
            false => Ok(()),
        }
    }

    /// Counts a directory block that is searched. Fails if there are too many.
    pub(super) fn count_search(&self) -> Result<(), Error> {
        self.searched.set(self.searched.get().saturating_add(1));
        match self.searched.get() > MOST_SEARCHED {
            true => Err(refused("of too many names in long directories")),
            false => Ok(()),
        }
    }

    /// Adds `more` to the number of extents that were loaded or added. Fails if there are too many.
    pub(super) fn count_extents(&self, more: u64) -> Result<(), Error> {
        self.extents.set(self.extents.get().saturating_add(more));
        match self.extents.get() > MOST_EXTENTS {
            true => Err(refused("of files with too many extents")),
            false => Ok(()),
        }
    }

    /// Fails if the run is not within the file system, or contains metadata of the file system. An
    /// inode must not map such blocks.
    pub(super) fn check_place(&self, ino: Ino, start: Block, len: u32) -> Result<(), Error> {
        if !self.geometry.contains_run(start, u64::from(len)) {
            return Err(Error::OutsideFileSystem { block: start });
        }
        match self.system.first_in(start, u64::from(len)) {
            Some(block) => Err(Error::ClaimsMetadata { ino, block }),
            None => Ok(()),
        }
    }

    /// Returns the position of an inode's record: its block in the inode table, and its bytes in
    /// that block.
    fn place_of(&self, ino: Ino) -> Result<(Block, Range<usize>), Error> {
        let place = self.geometry.inode_place(ino).ok_or(Error::Stale)?;
        let table = self.descriptor(place.group)?.inode_table;
        let range = place.offset..place.offset + self.geometry.inode_size();
        Ok((Block(table.0 + u64::from(place.table_block)), range))
    }

    /// Returns an inode's record from the inode table.
    pub(super) fn record(&self, ino: Ino) -> Result<Vec<u8>, Error> {
        let (block, range) = self.place_of(ino)?;
        Ok(self.block(block)?.get(range).ok_or(Error::Stale)?.to_vec())
    }

    /// Replaces an inode's record in the inode table.
    pub(super) fn put_record(&mut self, ino: Ino, record: &[u8]) -> Result<(), Error> {
        let (block, range) = self.place_of(ino)?;
        let mut bytes = self.block(block)?.to_vec();
        let place = bytes.get_mut(range).filter(|place| place.len() == record.len());
        place.ok_or(Error::Stale)?.copy_from_slice(record);
        self.put(block, bytes.into())
    }
}
