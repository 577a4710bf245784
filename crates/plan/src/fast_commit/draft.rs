//! The file system while fast commits are applied: its blocks, with the changes in memory.

use crate::error::Error;
use crate::error::Expected;
use crate::system::{SystemBlocks, descriptors};
use lanefs_lanes::sync::Arc;
use lanefs_ondisk::bitmap::Bitmap;
use lanefs_ondisk::checksum::Checksums;
use lanefs_ondisk::group_desc::{GroupDesc, GroupFlags};
use lanefs_ondisk::superblock::{Geometry, InodePlace, Superblock};
use lanefs_ondisk::{Block, Corruption, Group, Ino, Unsupported};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::Range;

/// Blocks with their new contents, in order.
pub type Images = Vec<(Block, Arc<[u8]>)>;

/// Returns the contents of a block as the last transaction of the log left it.
pub type Read<'r> = &'r dyn Fn(Block) -> Result<Vec<u8>, Error>;

/// The largest size of all changed blocks together, in bytes. The same limit applies separately to
/// the changed block bitmaps, inode bitmaps and inodes. No log has room for more.
const MOST_BYTES: usize = 1 << 30;
/// The largest number of directory blocks that a replay reads to search for names.
const MOST_SEARCHED: u64 = 1 << 22;
/// The largest number of extents that all changed files together may have.
const MOST_EXTENTS: u64 = 1 << 23;

/// The file system as the last transaction of the log left it, with the changes of the fast commits
/// that were applied so far.
pub(crate) struct Draft<'a> {
    pub(crate) read: Read<'a>,
    pub(crate) superblock: Superblock,
    pub(crate) geometry: Geometry,
    pub(crate) checksums: Checksums,
    system: SystemBlocks,
    pub(crate) descriptors: Vec<GroupDesc>,
    /// The group descriptors as the last transaction left them.
    pub(crate) described: Vec<GroupDesc>,
    /// Changed bitmaps of blocks.
    pub(crate) bitmaps: BTreeMap<Group, Bitmap>,
    /// Changed bitmaps of inodes.
    pub(crate) inode_bitmaps: BTreeMap<Group, Bitmap>,
    /// Changed blocks that are not bitmaps. At the end, `encode_groups` adds the blocks of the
    /// bitmaps.
    pub(crate) blocks: BTreeMap<Block, Arc<[u8]>>,
    /// The number of directory blocks that were searched.
    searched: Cell<u64>,
    /// The number of extents that were loaded or added.
    extents: Cell<u64>,
}

impl<'a> Draft<'a> {
    pub(crate) fn new(
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

    pub(crate) fn block_bytes(&self) -> usize {
        self.geometry.block_size().bytes()
    }

    /// Returns a block with the changes so far.
    pub(crate) fn block(&self, block: Block) -> Result<Arc<[u8]>, Error> {
        match self.blocks.get(&block) {
            Some(bytes) => Ok(bytes.clone()),
            None => Ok((self.read)(block)?.into()),
        }
    }

    pub(crate) fn put(&mut self, block: Block, bytes: Arc<[u8]>) -> Result<(), Error> {
        self.check_room(self.blocks.len(), bytes.len())?;
        self.blocks.insert(block, bytes);
        Ok(())
    }

    /// Fails if `count + 1` objects of `size` bytes take more than [`MOST_BYTES`].
    pub(crate) fn check_room(&self, count: usize, size: usize) -> Result<(), Error> {
        match count.saturating_add(1).saturating_mul(size) > MOST_BYTES {
            true => Err(refused("that change more blocks than a log has")),
            false => Ok(()),
        }
    }

    /// Counts a directory block that is searched. Fails if there are too many.
    pub(crate) fn count_search(&self) -> Result<(), Error> {
        self.searched.set(self.searched.get().saturating_add(1));
        match self.searched.get() > MOST_SEARCHED {
            true => Err(refused("of too many names in long directories")),
            false => Ok(()),
        }
    }

    /// Adds `more` to the number of extents that were loaded or added. Fails if there are too many.
    pub(crate) fn count_extents(&self, more: u64) -> Result<(), Error> {
        self.extents.set(self.extents.get().saturating_add(more));
        match self.extents.get() > MOST_EXTENTS {
            true => Err(refused("of files with too many extents")),
            false => Ok(()),
        }
    }

    /// Fails if the run is not within the file system, or contains metadata of the file system. An
    /// inode must not map such blocks.
    pub(crate) fn check_place(&self, ino: Ino, start: Block, len: u32) -> Result<(), Error> {
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
        let place = self.geometry.inode_place(ino).expected()?;
        let table = self.descriptor(place.group)?.inode_table;
        let range = place.offset..place.offset + self.geometry.inode_size();
        Ok((Block(table.0 + u64::from(place.table_block)), range))
    }

    /// Returns an inode's record from the inode table.
    pub(crate) fn record(&self, ino: Ino) -> Result<Vec<u8>, Error> {
        let (block, range) = self.place_of(ino)?;
        Ok(self.block(block)?.get(range).expected()?.to_vec())
    }

    /// Replaces an inode's record in the inode table.
    pub(crate) fn put_record(&mut self, ino: Ino, record: &[u8]) -> Result<(), Error> {
        let (block, range) = self.place_of(ino)?;
        let mut bytes = self.block(block)?.to_vec();
        let place = bytes.get_mut(range).filter(|place| place.len() == record.len());
        place.expected()?.copy_from_slice(record);
        self.put(block, bytes.into())
    }
}

// Bitmaps, tables and descriptors of groups while fast commits are applied.

impl Draft<'_> {
    pub(crate) fn descriptor(&self, group: Group) -> Result<&GroupDesc, Error> {
        self.descriptors.get(group.0 as usize).expected()
    }

    fn descriptor_mut(&mut self, group: Group) -> Result<&mut GroupDesc, Error> {
        self.descriptors.get_mut(group.0 as usize).expected()
    }

    /// Marks blocks as free. It is no error if some are free already, because an interrupted replay
    /// by another program may have freed them.
    pub(crate) fn free(&mut self, start: Block, len: u32) -> Result<(), Error> {
        for (group, bits) in self.pieces(start, len)? {
            let bitmap = self.bitmap_mut(group)?;
            let mut at = bits.start;
            while let Some(first) = bitmap.next_set(at..bits.end) {
                let end = bitmap.next_clear(first..bits.end).unwrap_or(bits.end);
                let cleared = bitmap.clear(first, end - first);
                cleared.map_err(|cause| Corruption::Bitmap { group, cause })?;
                at = end;
            }
        }
        Ok(())
    }

    /// Marks blocks as in use, even if some are in use already.
    pub(crate) fn take(&mut self, start: Block, len: u32) -> Result<(), Error> {
        for (group, bits) in self.pieces(start, len)? {
            self.bitmap_mut(group)?.fill(bits);
        }
        Ok(())
    }

    /// Takes a free block, if possible in the group of `near` or in a later group.
    pub(crate) fn allocate(&mut self, near: Block) -> Result<Block, Error> {
        let groups = self.geometry.group_count();
        let first = self.geometry.group_of(near).map_or(0, |(group, _)| group.0);
        for group in (first..groups).chain(0..first).map(Group) {
            let is_full = self.descriptor(group)?.free_blocks == 0;
            if is_full && !self.bitmaps.contains_key(&group) {
                continue;
            }
            let bits = self.geometry.clusters_in_group(group).unwrap_or(0);
            let bitmap = self.bitmap_mut(group)?;
            let Some(bit) = bitmap.next_clear(0..bits) else { continue };
            bitmap.fill(bit..bit + 1);
            return self.geometry.block_at(group, bit).expected();
        }
        Err(Error::NoSpace)
    }

    /// Returns the first block of an inode's group.
    pub(crate) fn first_block_near(&self, ino: Ino) -> Block {
        let group = self.geometry.inode_place(ino).map(|place| place.group);
        group.and_then(|group| self.geometry.group_first_block(group)).unwrap_or_default()
    }

    /// Splits a run of blocks by group, and returns the run's bits in each group.
    fn pieces(&self, start: Block, len: u32) -> Result<Vec<(Group, Range<u32>)>, Error> {
        let mut pieces = Vec::new();
        let (mut at, end) = (start.0, start.0.saturating_add(len.into()));
        while at < end {
            let outside = Error::OutsideFileSystem { block: Block(at) };
            let (group, bit) = self.geometry.group_of(Block(at)).ok_or(outside.clone())?;
            let last = self.geometry.group_last_block(group).ok_or(outside)?;
            let len = end.min(last.0 + 1) - at;
            pieces.push((group, bit..bit + len as u32));
            at += len;
        }
        Ok(pieces)
    }

    fn bitmap_mut(&mut self, group: Group) -> Result<&mut Bitmap, Error> {
        if !self.bitmaps.contains_key(&group) {
            self.check_room(self.bitmaps.len(), self.block_bytes())?;
            let desc = self.descriptor(group)?;
            let bitmap = match desc.flags.contains(GroupFlags::BLOCK_UNINIT) {
                true => {
                    let own = desc.metadata(&self.geometry);
                    Bitmap::uninitialised_blocks(group, own, &self.geometry)?
                }
                false => {
                    let bytes = self.block(desc.block_bitmap)?;
                    Bitmap::decode_blocks(&bytes, group, desc, &self.geometry, self.checksums)?
                }
            };
            self.bitmaps.insert(group, bitmap);
        }
        self.bitmaps.get_mut(&group).expected()
    }

    fn inode_bitmap_mut(&mut self, group: Group) -> Result<&mut Bitmap, Error> {
        if !self.inode_bitmaps.contains_key(&group) {
            self.check_room(self.inode_bitmaps.len(), self.block_bytes())?;
            let desc = self.descriptor(group)?;
            let bitmap = match desc.flags.contains(GroupFlags::INODE_UNINIT) {
                true => Bitmap::new(self.geometry.inodes_per_group()),
                false => {
                    let bytes = self.block(desc.inode_bitmap)?;
                    Bitmap::decode_inodes(&bytes, group, desc, &self.geometry, self.checksums)?
                }
            };
            self.inode_bitmaps.insert(group, bitmap);
        }
        self.inode_bitmaps.get_mut(&group).expected()
    }

    /// Returns whether an inode is in use.
    pub(crate) fn is_used(&mut self, ino: Ino) -> Result<bool, Error> {
        let place = self.geometry.inode_place(ino).expected()?;
        Ok(self.inode_bitmap_mut(place.group)?.get(place.index))
    }

    /// Marks an inode as in use, and initialises the inode table up to the inode's block.
    pub(crate) fn use_inode(&mut self, ino: Ino) -> Result<(), Error> {
        let place = self.geometry.inode_place(ino).expected()?;
        self.initialise_table(&place)?;
        let index = place.index;
        self.inode_bitmap_mut(place.group)?.fill(index..index + 1);
        let per_group = self.geometry.inodes_per_group();
        let desc = self.descriptor_mut(place.group)?;
        desc.itable_unused = desc.itable_unused.min(per_group.saturating_sub(index + 1));
        Ok(())
    }

    /// Zeroes the unused part of the group's inode table, up to the block of the inode at `place`.
    /// Does nothing if the table is marked as zeroed. (With `lazy_itable_init`, mke2fs leaves
    /// tables that are not zeroed.)
    fn initialise_table(&mut self, place: &InodePlace) -> Result<(), Error> {
        let desc = *self.descriptor(place.group)?;
        let is_zeroed = desc.flags.contains(GroupFlags::INODE_ZEROED);
        let used = self.geometry.inodes_per_group().saturating_sub(desc.itable_unused);
        if is_zeroed || self.checksums == Checksums::None || place.index < used {
            return Ok(());
        }
        let (size, per_block) = (self.geometry.inode_size(), self.geometry.inodes_per_block());
        for n in used / per_block.max(1)..place.table_block.saturating_add(1) {
            let block = Block(desc.inode_table.0 + u64::from(n));
            let kept = used.saturating_sub(n.saturating_mul(per_block)).min(per_block);
            let kept = kept as usize * size;
            let mut bytes = vec![0; self.block_bytes()];
            if kept > 0 {
                let old = self.block(block)?;
                let both = bytes.get_mut(..kept).zip(old.get(..kept));
                if let Some((new, old)) = both {
                    new.copy_from_slice(old);
                }
            }
            self.put(block, bytes.into())?;
        }
        Ok(())
    }

    /// Adds `more`, which may be negative, to the directory count of the group that contains `ino`.
    pub(crate) fn count_directories(&mut self, ino: Ino, more: i64) -> Result<(), Error> {
        let place = self.geometry.inode_place(ino).expected()?;
        let desc = self.descriptor_mut(place.group)?;
        desc.used_dirs = u32::try_from(i64::from(desc.used_dirs) + more).unwrap_or(0);
        Ok(())
    }

    /// Encodes the changed bitmaps and their descriptors.
    pub(crate) fn encode_groups(&mut self) -> Result<(), Error> {
        let (geometry, checksums, size) = (self.geometry, self.checksums, self.block_bytes());
        for (group, bitmap) in std::mem::take(&mut self.inode_bitmaps) {
            let mut bytes = vec![0; size];
            let desc = self.descriptor_mut(group)?;
            let free = bitmap.count_clear();
            if free == geometry.inodes_per_group() && free == desc.free_inodes {
                continue;
            }
            desc.flags -= GroupFlags::INODE_UNINIT;
            desc.free_inodes = free;
            bitmap.encode_inodes_into(&mut bytes, desc, &geometry, checksums);
            let place = desc.inode_bitmap;
            self.put(place, bytes.into())?;
        }
        for (group, bitmap) in std::mem::take(&mut self.bitmaps) {
            let mut bytes = vec![0; size];
            let desc = self.descriptor_mut(group)?;
            desc.flags -= GroupFlags::BLOCK_UNINIT;
            desc.free_blocks = bitmap.count_clear();
            bitmap.encode_blocks_into(&mut bytes, desc, &geometry, checksums);
            let place = desc.block_bitmap;
            self.put(place, bytes.into())?;
        }
        let changed: Vec<(Group, GroupDesc)> = (0..)
            .map(Group)
            .zip(self.descriptors.iter().zip(&self.described))
            .filter(|(_, (desc, before))| desc != before)
            .map(|(group, (desc, _))| (group, *desc))
            .collect();
        for (group, desc) in changed {
            let (index, range) = geometry.desc_place(group).expected()?;
            let place = geometry.desc_block(index).expected()?;
            let mut bytes = self.block(place)?.to_vec();
            let record = bytes.get_mut(range).expected()?;
            desc.encode_into(record, group, &geometry, checksums);
            self.put(place, bytes.into())?;
        }
        Ok(())
    }

    /// Returns all changed blocks whose contents differ from those that the last transaction left.
    pub(crate) fn into_images(self) -> Result<Images, Error> {
        let mut images = Vec::new();
        for (block, bytes) in &self.blocks {
            if (self.read)(*block)?[..] != bytes[..] {
                images.push((*block, bytes.clone()));
            }
        }
        Ok(images)
    }
}

/// Returns the error; `why` completes "fast commits ...".
pub(crate) fn refused(why: &str) -> Error {
    let what = format!(
        "fast_commit: fast commits {why} (mount it with the kernel's ext4, which replays them)"
    );
    Unsupported { what }.into()
}
