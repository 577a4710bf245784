//! Sizes and positions in a file system, computed from the numbers in a checked superblock.

use crate::features::{Compat, Features, Incompat, RoCompat};
use crate::types::{Block, BlockSize, Group, Ino};
use std::ops::Range;

/// The size of clusters (feature `bigalloc`): space is allocated in runs of `2^bits` blocks, each
/// of which starts at a multiple of `2^bits`. Each of these runs is a cluster. One bit of a block
/// bitmap represents one cluster. Extents still count blocks. Without `bigalloc` a cluster is a
/// block.
///
/// Format: <https://docs.kernel.org/filesystems/ext4/>, "Bigalloc".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Clusters {
    bits: u32,
}

impl Clusters {
    /// Returns the size of clusters of `2^bits` blocks. If `bits` is above 16, it counts as 16.
    pub const fn new(bits: u32) -> Clusters {
        Clusters { bits: if bits > 16 { 16 } else { bits } }
    }

    /// Returns whether a cluster is a single block.
    pub fn are_blocks(self) -> bool {
        self.bits == 0
    }

    /// Returns the binary logarithm of the number of blocks of a cluster.
    pub fn bits(self) -> u32 {
        self.bits
    }

    /// Returns the number of blocks of a cluster.
    pub fn blocks(self) -> u32 {
        1 << self.bits
    }

    /// Returns the number of clusters that are needed to hold `blocks` blocks.
    pub fn holding(self, blocks: u32) -> u32 {
        (blocks >> self.bits) + u32::from(blocks & self.mask() != 0)
    }

    /// Returns the first block of the cluster that contains a file block.
    pub fn floor(self, block: u32) -> u32 {
        block & !self.mask()
    }

    /// Returns `block` if a cluster starts at it, otherwise the start of the next cluster. Returns
    /// `u32::MAX` if no cluster follows.
    pub fn ceil(self, block: u32) -> u32 {
        match block & self.mask() {
            0 => block,
            within => block.saturating_add(self.blocks() - within),
        }
    }

    /// Returns the index of a block in its cluster. `block` is a block number of the file system or
    /// of a file.
    pub fn offset(self, block: u64) -> u32 {
        block as u32 & self.mask()
    }

    fn mask(self) -> u32 {
        self.blocks() - 1
    }
}

/// The position of an inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InodePlace {
    /// The group of the inode.
    pub group: Group,
    /// The inode's bit in the group's inode bitmap.
    pub index: u32,
    /// The block of the group's inode table that contains the inode, counted from the start of the
    /// table.
    pub table_block: u32,
    /// The offset of the inode in the block [`InodePlace::table_block`], in bytes.
    pub offset: usize,
}

/// The numbers of a checked superblock that are needed to find metadata, as a copyable value.
///
/// None of its functions panics. A function that looks something up by the number of a group, block
/// or inode returns `None` if the file system does not have that number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    pub(super) block_size: BlockSize,
    pub(super) block_count: u64,
    pub(super) first_data_block: u32,
    pub(super) group_count: u32,
    pub(super) blocks_per_group: u32,
    pub(super) cluster_bits: u32,
    pub(super) inodes_per_group: u32,
    pub(super) inode_count: u32,
    pub(super) inode_size: u16,
    pub(super) first_ino: u32,
    pub(super) desc_size: u16,
    pub(super) reserved_gdt_blocks: u16,
    pub(super) first_meta_bg: u32,
    pub(super) backup_groups: [u32; 2],
    pub(super) flex_size: u32,
    pub(super) features: Features,
}

impl Geometry {
    /// Returns the size of a block.
    pub fn block_size(&self) -> BlockSize {
        self.block_size
    }

    /// Returns the number of blocks, including those before the first data block.
    pub fn block_count(&self) -> u64 {
        self.block_count
    }

    /// Returns the first block of group 0. It is 1 if blocks have 1 KiB and clusters are not larger
    /// than blocks; otherwise it is 0.
    pub fn first_data_block(&self) -> Block {
        Block(self.first_data_block.into())
    }

    /// Returns the number of groups, at least 1.
    pub fn group_count(&self) -> u32 {
        self.group_count
    }

    /// Returns the number of blocks of every group except the last, which may have fewer.
    pub fn blocks_per_group(&self) -> u32 {
        self.blocks_per_group
    }

    /// Returns the binary logarithm of the number of blocks that one bit of a block bitmap
    /// represents. It is 0 without `bigalloc`.
    pub fn cluster_bits(&self) -> u32 {
        self.cluster_bits
    }

    /// Returns the size of clusters.
    pub fn clusters(&self) -> Clusters {
        Clusters::new(self.cluster_bits)
    }

    /// Returns the number of bits in the block bitmap of a whole group: one for each block or, with
    /// `bigalloc`, one for each cluster.
    pub fn clusters_per_group(&self) -> u32 {
        self.blocks_per_group >> self.cluster_bits
    }

    /// Returns the number of inodes of each group.
    pub fn inodes_per_group(&self) -> u32 {
        self.inodes_per_group
    }

    /// Returns the number of inodes.
    pub fn inode_count(&self) -> u32 {
        self.inode_count
    }

    /// Returns the size of an inode in the inode table, in bytes.
    pub fn inode_size(&self) -> usize {
        self.inode_size.into()
    }

    /// Returns the first inode that is not reserved.
    pub fn first_ino(&self) -> Ino {
        Ino(self.first_ino)
    }

    /// Returns the size of a group descriptor, in bytes.
    pub fn desc_size(&self) -> usize {
        self.desc_size.into()
    }

    /// Returns the number of descriptors in one block.
    pub fn descs_per_block(&self) -> u32 {
        (self.block_size.bytes() / usize::from(self.desc_size)) as u32
    }

    /// Returns the number of blocks that contain all descriptors.
    pub fn desc_blocks(&self) -> u32 {
        self.group_count.div_ceil(self.descs_per_block())
    }

    /// Returns the number of blocks that are reserved after the descriptors, so that the file
    /// system can grow.
    pub fn reserved_gdt_blocks(&self) -> u32 {
        self.reserved_gdt_blocks.into()
    }

    /// Returns the number of inodes in one block of an inode table.
    pub fn inodes_per_block(&self) -> u32 {
        (self.block_size.bytes() / usize::from(self.inode_size)) as u32
    }

    /// Returns the number of blocks of one group's inode table.
    pub fn itable_blocks(&self) -> u32 {
        self.inodes_per_group.div_ceil(self.inodes_per_block())
    }

    /// Returns the number of groups in a flexible group. The bitmaps and tables of these groups may
    /// lie together. It is 1 without `flex_bg`.
    pub fn flex_size(&self) -> u32 {
        self.flex_size
    }

    /// Returns the feature words.
    pub fn features(&self) -> Features {
        self.features
    }

    /// Returns whether `block` is a block of a group: neither before the first data block nor
    /// beyond the end.
    pub fn contains(&self, block: Block) -> bool {
        block.0 >= self.first_data_block.into() && block.0 < self.block_count
    }

    /// Returns whether the `len` blocks from `start` lie within the file system; false if `len` is
    /// 0.
    pub fn contains_run(&self, start: Block, len: u64) -> bool {
        let end = start.0.checked_add(len);
        len > 0 && self.contains(start) && end.is_some_and(|end| end <= self.block_count)
    }

    /// Returns the first block of a group.
    pub fn group_first_block(&self, group: Group) -> Option<Block> {
        (group.0 < self.group_count).then(|| {
            let offset = u64::from(group.0) * u64::from(self.blocks_per_group);
            Block(u64::from(self.first_data_block) + offset)
        })
    }

    /// Returns the block where a group's superblock is, or would be if the group had one. This is
    /// the first block of the group, except for group 0 with `bigalloc` and blocks of 1 KiB.
    pub fn group_head(&self, group: Group) -> Option<Block> {
        if group.0 == 0 { Some(self.super_block()) } else { self.group_first_block(group) }
    }

    /// Returns the last block of a group.
    pub fn group_last_block(&self, group: Group) -> Option<Block> {
        let first = self.group_first_block(group)?;
        Some(Block((first.0 + u64::from(self.blocks_per_group)).min(self.block_count) - 1))
    }

    /// Returns the number of blocks of a group. The last group may have fewer than
    /// [`Geometry::blocks_per_group`].
    pub fn blocks_in_group(&self, group: Group) -> Option<u32> {
        let (first, last) = (self.group_first_block(group)?, self.group_last_block(group)?);
        Some((last.0 - first.0 + 1) as u32)
    }

    /// Returns the number of bits of a group's block bitmap that represent blocks of the file
    /// system.
    pub fn clusters_in_group(&self, group: Group) -> Option<u32> {
        Some(self.blocks_in_group(group)?.div_ceil(1 << self.cluster_bits))
    }

    /// Returns the group of a block, and the block's bit in the group's bitmap.
    pub fn group_of(&self, block: Block) -> Option<(Group, u32)> {
        if !self.contains(block) {
            return None;
        }
        let offset = block.0 - u64::from(self.first_data_block);
        let per_group = u64::from(self.blocks_per_group);
        let bit = (offset % per_group) as u32 >> self.cluster_bits;
        Some((Group((offset / per_group) as u32), bit))
    }

    /// Returns the first of the blocks that a bit in a group's block bitmap represents.
    pub fn block_at(&self, group: Group, bit: u32) -> Option<Block> {
        let offset = u64::from(bit) << self.cluster_bits;
        let first = self.group_first_block(group)?;
        let last = self.group_last_block(group)?;
        let block = Block(first.0.checked_add(offset)?);
        (block <= last).then_some(block)
    }

    /// Returns whether an inode with this number exists, used or not.
    #[inline]
    pub fn has_inode(&self, ino: Ino) -> bool {
        (1..=self.inode_count).contains(&ino.0)
    }

    /// Returns the position of an inode.
    #[inline]
    pub fn inode_place(&self, ino: Ino) -> Option<InodePlace> {
        let index = self.has_inode(ino).then(|| ino.0 - 1)?;
        let (group, index) = (index / self.inodes_per_group, index % self.inodes_per_group);
        // Every access to an inode calls this function. So shifts replace divisions by the block
        // size and by the inode size, which are powers of two.
        let size = self.inode_size.trailing_zeros();
        let per_block = self.block_size.bits() - size;
        Some(InodePlace {
            group: Group(group),
            index,
            table_block: index >> per_block,
            offset: ((index & ((1 << per_block) - 1)) as usize) << size,
        })
    }

    /// Returns the inode that a bit in a group's inode bitmap represents.
    pub fn ino_at(&self, group: Group, index: u32) -> Option<Ino> {
        if group.0 >= self.group_count || index >= self.inodes_per_group {
            return None;
        }
        Some(Ino(group.0 * self.inodes_per_group + index + 1))
    }

    /// Returns whether a group starts with the superblock or a backup of it.
    ///
    /// With `sparse_super`, groups 0, 1 and the powers of 3, 5 and 7 have a superblock. With
    /// `sparse_super2`, group 0 and two groups that the superblock names have one. Otherwise, all
    /// groups have one.
    pub fn group_has_super(&self, group: Group) -> bool {
        let g = group.0;
        if g == 0 {
            true
        } else if self.features.compat.contains(Compat::SPARSE_SUPER2) {
            self.backup_groups.contains(&g)
        } else if g == 1 || !self.features.ro_compat.contains(RoCompat::SPARSE_SUPER) {
            true
        } else {
            [3, 5, 7].into_iter().any(|base| is_power_of(g, base))
        }
    }

    /// Returns the groups that start with a backup of the superblock, in order.
    pub fn backups(&self) -> impl Iterator<Item = Group> + '_ {
        let few = self.features.compat.contains(Compat::SPARSE_SUPER2);
        let (named, all) = match few {
            true => (self.backup_groups, 0..0),
            false => ([0; 2], 1..self.group_count),
        };
        let exists = |g: &u32| *g > 0 && *g < self.group_count;
        let all = named.into_iter().chain(all).filter(exists).map(Group);
        all.filter(|group| self.group_has_super(*group))
    }

    /// Returns the number of blocks at the start of a group that hold descriptors or are reserved
    /// for more of them. The group's superblock, if it has one, is not counted.
    pub fn group_desc_blocks(&self, group: Group) -> u32 {
        let meta_group = group.0 / self.descs_per_block();
        if self.is_meta_bg(meta_group) {
            let first = meta_group * self.descs_per_block();
            let last = first.saturating_add(self.descs_per_block() - 1);
            let holders = [first, first.saturating_add(1), last];
            return holders.contains(&group.0).into();
        }
        if !self.group_has_super(group) {
            return 0;
        }
        let old_style = if self.features.incompat.contains(Incompat::META_BG) {
            self.first_meta_bg
        } else {
            self.desc_blocks()
        };
        old_style + self.reserved_gdt_blocks()
    }

    /// Returns the number of blocks at the start of a group that hold a superblock or descriptors,
    /// or are reserved for more descriptors.
    pub fn group_overhead(&self, group: Group) -> u32 {
        u32::from(self.group_has_super(group)) + self.group_desc_blocks(group)
    }

    /// Returns the block that holds the primary copy (not a backup) of descriptor block `index`,
    /// which is counted from 0.
    pub fn desc_block(&self, index: u32) -> Option<Block> {
        if index >= self.desc_blocks() {
            return None;
        }
        if !self.is_meta_bg(index) {
            return Some(Block(self.super_block().0 + 1 + u64::from(index)));
        }
        let group = Group(index * self.descs_per_block());
        let head = self.group_head(group)?;
        Some(Block(head.0 + u64::from(self.group_has_super(group))))
    }

    /// Returns the position of a group's descriptor: the index of its descriptor block (see
    /// [`Geometry::desc_block`]) and its byte range in that block.
    pub fn desc_place(&self, group: Group) -> Option<(u32, Range<usize>)> {
        if group.0 >= self.group_count {
            return None;
        }
        let per_block = self.descs_per_block();
        let start = (group.0 % per_block) as usize * usize::from(self.desc_size);
        Some((group.0 / per_block, start..start + usize::from(self.desc_size)))
    }

    /// Returns the first group of the flexible group that a group belongs to.
    pub fn flex_first_group(&self, group: Group) -> Group {
        Group(group.0 - group.0 % self.flex_size)
    }

    /// Returns the blocks of group 0 where no bitmap or table may lie: the superblock, the
    /// descriptors and the blocks reserved for more of them.
    pub fn primary_metadata(&self) -> Range<u64> {
        let end = self.super_block().0 + u64::from(self.group_overhead(Group(0)));
        u64::from(self.first_data_block)..end
    }

    /// Returns the block that contains the superblock, that is, byte 1024 of the image. This is the
    /// first data block, except with `bigalloc` and 1 KiB blocks, where groups start at block 0.
    pub fn super_block(&self) -> Block {
        Block(u64::from(self.block_size.bytes() == 1024))
    }

    /// Returns the largest size in bytes of a file mapped by extents: 2^32 - 1 blocks. A file never
    /// has file block 2^32 - 1, because its number serves as an end mark.
    pub fn max_file_size(&self) -> u64 {
        u64::from(u32::MAX) << self.block_size.bits()
    }

    /// Returns whether descriptor block `meta_group` and its backups lie in the groups that this
    /// block describes. With `meta_bg`, this is so for all descriptor blocks from number
    /// `s_first_meta_bg` on.
    pub fn is_meta_bg(&self, meta_group: u32) -> bool {
        self.features.incompat.contains(Incompat::META_BG) && meta_group >= self.first_meta_bg
    }
}

fn is_power_of(n: u32, base: u32) -> bool {
    let mut power = base;
    while power < n {
        match power.checked_mul(base) {
            Some(next) => power = next,
            None => return false,
        }
    }
    power == n
}

#[cfg(test)]
mod tests;
