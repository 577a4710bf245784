//! Block group descriptors: 32 bytes, or 64 and more with `64bit`.
//!
//! Source: ext4 disk layout documentation, "Block Group Descriptors".

pub use crate::cause::GroupDescCause as Cause;
use crate::checksum::{Checksums, Crc16};
use crate::error::Corruption;
use crate::features::Incompat;
use crate::superblock::Geometry;
use crate::types::{Block, Group};
use bitflags::bitflags;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The first 32 bytes; the fields have the names that the format gives them.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawGroupDesc {
    bg_block_bitmap_lo: U32,
    bg_inode_bitmap_lo: U32,
    bg_inode_table_lo: U32,
    bg_free_blocks_count_lo: U16,
    bg_free_inodes_count_lo: U16,
    bg_used_dirs_count_lo: U16,
    bg_flags: U16,
    bg_exclude_bitmap_lo: U32,
    bg_block_bitmap_csum_lo: U16,
    bg_inode_bitmap_csum_lo: U16,
    bg_itable_unused_lo: U16,
    bg_checksum: U16,
}

/// The next 32 bytes, which exist with `64bit`.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawGroupDescHigh {
    bg_block_bitmap_hi: U32,
    bg_inode_bitmap_hi: U32,
    bg_inode_table_hi: U32,
    bg_free_blocks_count_hi: U16,
    bg_free_inodes_count_hi: U16,
    bg_used_dirs_count_hi: U16,
    bg_itable_unused_hi: U16,
    bg_exclude_bitmap_hi: U32,
    bg_block_bitmap_csum_hi: U16,
    bg_inode_bitmap_csum_hi: U16,
    bg_reserved: U32,
}

const LOW_SIZE: usize = 32;
const CHECKSUM_OFFSET: usize = 0x1e;
const _: () = assert!(size_of::<RawGroupDesc>() == LOW_SIZE);
const _: () = assert!(size_of::<RawGroupDescHigh>() == 32);
const _: () = assert!(std::mem::offset_of!(RawGroupDesc, bg_checksum) == CHECKSUM_OFFSET);

bitflags! {
    /// `bg_flags`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub struct GroupFlags: u16 {
        /// The inode bitmap and the inode table were never written, because no inode is in use.
        const INODE_UNINIT = 1;
        /// The block bitmap was never written, because only the group's own metadata is in use.
        const BLOCK_UNINIT = 2;
        /// The inode table was zeroed.
        const INODE_ZEROED = 4;
        const _ = !0;
    }
}

/// A checked group descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct GroupDesc {
    /// The block of the block bitmap.
    pub block_bitmap: Block,
    /// The block of the inode bitmap.
    pub inode_bitmap: Block,
    /// The first block of the inode table.
    pub inode_table: Block,
    /// Number of free blocks. With `bigalloc`, number of free clusters.
    pub free_blocks: u32,
    /// Number of free inodes.
    pub free_inodes: u32,
    /// Number of directories.
    pub used_dirs: u32,
    /// Number of inodes at the end of the table that were never used.
    pub itable_unused: u32,
    /// Which parts are uninitialised. In a file system without descriptor checksums, `INODE_UNINIT`
    /// and `BLOCK_UNINIT` are meaningless, and decoding clears them.
    pub flags: GroupFlags,
    /// Checksum of the block bitmap; the upper half is 0 in 32-byte descriptors.
    pub block_bitmap_csum: u32,
    /// Checksum of the inode bitmap; the upper half is 0 in 32-byte descriptors.
    pub inode_bitmap_csum: u32,
    /// Bitmap of the blocks that a snapshot excludes; unused.
    pub exclude_bitmap: Block,
}

impl GroupDesc {
    /// Decodes a descriptor with all checks. `bytes` must be [`Geometry::desc_size`] long.
    ///
    /// # Errors
    /// [`Corruption::GroupDescriptor`].
    pub fn decode(
        bytes: &[u8],
        group: Group,
        geometry: &Geometry,
        checksums: Checksums,
    ) -> Result<GroupDesc, Corruption> {
        check_checksum(bytes, group, geometry, checksums)
            .and_then(|()| decode_fields(bytes, geometry))
            .and_then(|desc| desc.check(group, geometry).map(|()| desc))
            .map_err(|cause| Corruption::GroupDescriptor { group, cause })
    }

    /// Decodes the fields without any check, for a program that reports each fault separately.
    ///
    /// # Errors
    /// [`Cause::Length`].
    pub fn decode_unchecked(bytes: &[u8], geometry: &Geometry) -> Result<GroupDesc, Cause> {
        decode_fields(bytes, geometry)
    }

    /// Returns the first block of the group's inode table, which never changes. This is all that a
    /// descriptor can be trusted with before the log is replayed: after a crash it may be torn, or
    /// of another moment than the superblock, so that its counts are those of a larger group.
    ///
    /// # Errors
    /// [`Corruption::GroupDescriptor`] if the table does not lie within the file system.
    pub fn table_before_replay(
        bytes: &[u8],
        group: Group,
        geometry: &Geometry,
    ) -> Result<Block, Corruption> {
        let place = decode_fields(bytes, geometry).and_then(|desc| {
            let block = desc.inode_table;
            let is_valid = geometry.contains_run(block, geometry.itable_blocks().into());
            is_valid.then_some(block).ok_or(Cause::InodeTablePlace { block })
        });
        place.map_err(|cause| Corruption::GroupDescriptor { group, cause })
    }

    /// Verifies the checksum of an encoded descriptor.
    ///
    /// # Errors
    /// [`Cause::Length`] or [`Cause::Checksum`].
    pub fn verify(
        bytes: &[u8],
        group: Group,
        geometry: &Geometry,
        checksums: Checksums,
    ) -> Result<(), Cause> {
        check_checksum(bytes, group, geometry, checksums)
    }

    /// Writes the fields over `bytes`, keeps bytes of unknown fields, and sets the checksum.
    ///
    /// # Panics
    /// If `bytes` is not [`Geometry::desc_size`] long, which is an error of the caller.
    pub fn encode_into(
        &self,
        bytes: &mut [u8],
        group: Group,
        geometry: &Geometry,
        checksums: Checksums,
    ) {
        assert_eq!(bytes.len(), geometry.desc_size(), "length of a descriptor");
        if let Ok((low, _)) = RawGroupDesc::mut_from_prefix(bytes) {
            self.encode_low(low);
        }
        if let Some(Ok((high, _))) =
            bytes.get_mut(LOW_SIZE..).map(RawGroupDescHigh::mut_from_prefix)
        {
            self.encode_high(high);
        }
        if let Some(sum) = checksum(bytes, group, checksums) {
            bytes[CHECKSUM_OFFSET..LOW_SIZE].copy_from_slice(&sum.to_le_bytes());
        }
    }

    fn encode_low(&self, low: &mut RawGroupDesc) {
        low.bg_block_bitmap_lo.set(self.block_bitmap.0 as u32);
        low.bg_inode_bitmap_lo.set(self.inode_bitmap.0 as u32);
        low.bg_inode_table_lo.set(self.inode_table.0 as u32);
        low.bg_free_blocks_count_lo.set(self.free_blocks as u16);
        low.bg_free_inodes_count_lo.set(self.free_inodes as u16);
        low.bg_used_dirs_count_lo.set(self.used_dirs as u16);
        low.bg_flags.set(self.flags.bits());
        low.bg_exclude_bitmap_lo.set(self.exclude_bitmap.0 as u32);
        low.bg_block_bitmap_csum_lo.set(self.block_bitmap_csum as u16);
        low.bg_inode_bitmap_csum_lo.set(self.inode_bitmap_csum as u16);
        low.bg_itable_unused_lo.set(self.itable_unused as u16);
    }

    fn encode_high(&self, high: &mut RawGroupDescHigh) {
        high.bg_block_bitmap_hi.set((self.block_bitmap.0 >> 32) as u32);
        high.bg_inode_bitmap_hi.set((self.inode_bitmap.0 >> 32) as u32);
        high.bg_inode_table_hi.set((self.inode_table.0 >> 32) as u32);
        high.bg_free_blocks_count_hi.set((self.free_blocks >> 16) as u16);
        high.bg_free_inodes_count_hi.set((self.free_inodes >> 16) as u16);
        high.bg_used_dirs_count_hi.set((self.used_dirs >> 16) as u16);
        high.bg_itable_unused_hi.set((self.itable_unused >> 16) as u16);
        high.bg_exclude_bitmap_hi.set((self.exclude_bitmap.0 >> 32) as u32);
        high.bg_block_bitmap_csum_hi.set((self.block_bitmap_csum >> 16) as u16);
        high.bg_inode_bitmap_csum_hi.set((self.inode_bitmap_csum >> 16) as u16);
    }

    fn check(&self, group: Group, geometry: &Geometry) -> Result<(), Cause> {
        self.check_places(group, geometry)?;
        let per_group = geometry.inodes_per_group();
        let clusters = geometry.clusters_in_group(group).ok_or(Cause::NoSuchGroup)?;
        if self.free_blocks > clusters {
            Err(Cause::FreeBlocks { blocks: self.free_blocks })
        } else if self.free_inodes > per_group {
            Err(Cause::FreeInodes { inodes: self.free_inodes })
        } else if self.used_dirs > per_group {
            Err(Cause::UsedDirs { directories: self.used_dirs })
        } else if self.itable_unused > per_group {
            Err(Cause::ItableUnused { inodes: self.itable_unused })
        } else {
            Ok(())
        }
    }

    /// Checks that the bitmaps and the inode table lie within the file system, or, without
    /// `flex_bg`, within their group. Also checks that they overlap neither the primary superblock
    /// and descriptors nor each other.
    fn check_places(&self, group: Group, geometry: &Geometry) -> Result<(), Cause> {
        let table_len = u64::from(geometry.itable_blocks());
        let first = geometry.group_first_block(group).ok_or(Cause::NoSuchGroup)?;
        let last = geometry.group_last_block(group).ok_or(Cause::NoSuchGroup)?;
        let flexible = geometry.features().incompat.contains(Incompat::FLEX_BG);
        let primary = geometry.primary_metadata();
        let allowed = |start: Block, len: u64| {
            geometry.contains_run(start, len)
                && (start.0 >= primary.end || start.0 + len <= primary.start)
                && (flexible || (start >= first && start.0 + len - 1 <= last.0))
        };
        if !allowed(self.block_bitmap, 1) {
            return Err(Cause::BlockBitmapPlace { block: self.block_bitmap });
        }
        if !allowed(self.inode_bitmap, 1) {
            return Err(Cause::InodeBitmapPlace { block: self.inode_bitmap });
        }
        if !allowed(self.inode_table, table_len) {
            return Err(Cause::InodeTablePlace { block: self.inode_table });
        }
        let table = self.inode_table.0..self.inode_table.0 + table_len;
        let overlap = self.block_bitmap == self.inode_bitmap
            || table.contains(&self.block_bitmap.0)
            || table.contains(&self.inode_bitmap.0);
        if overlap { Err(Cause::Overlap) } else { Ok(()) }
    }
}

fn decode_fields(bytes: &[u8], geometry: &Geometry) -> Result<GroupDesc, Cause> {
    let length = Cause::Length { len: bytes.len() };
    let (low, rest) = RawGroupDesc::ref_from_prefix(bytes).map_err(|_| length)?;
    // `None` in 32-byte descriptors.
    let high = RawGroupDescHigh::ref_from_prefix(rest).ok().map(|(high, _)| high);
    let block = |lo: &U32, hi: fn(&RawGroupDescHigh) -> &U32| {
        Block(u64::from(high.map_or(0, |h| hi(h).get())) << 32 | u64::from(lo.get()))
    };
    let count = |lo: &U16, hi: fn(&RawGroupDescHigh) -> &U16| {
        u32::from(high.map_or(0, |h| hi(h).get())) << 16 | u32::from(lo.get())
    };
    let mut flags = GroupFlags::from_bits_retain(low.bg_flags.get());
    if !geometry.features().has_descriptor_checksums() {
        flags -= GroupFlags::INODE_UNINIT | GroupFlags::BLOCK_UNINIT;
    }
    Ok(GroupDesc {
        block_bitmap: block(&low.bg_block_bitmap_lo, |h| &h.bg_block_bitmap_hi),
        inode_bitmap: block(&low.bg_inode_bitmap_lo, |h| &h.bg_inode_bitmap_hi),
        inode_table: block(&low.bg_inode_table_lo, |h| &h.bg_inode_table_hi),
        free_blocks: count(&low.bg_free_blocks_count_lo, |h| &h.bg_free_blocks_count_hi),
        free_inodes: count(&low.bg_free_inodes_count_lo, |h| &h.bg_free_inodes_count_hi),
        used_dirs: count(&low.bg_used_dirs_count_lo, |h| &h.bg_used_dirs_count_hi),
        itable_unused: count(&low.bg_itable_unused_lo, |h| &h.bg_itable_unused_hi),
        flags,
        block_bitmap_csum: count(&low.bg_block_bitmap_csum_lo, |h| &h.bg_block_bitmap_csum_hi),
        inode_bitmap_csum: count(&low.bg_inode_bitmap_csum_lo, |h| &h.bg_inode_bitmap_csum_hi),
        exclude_bitmap: block(&low.bg_exclude_bitmap_lo, |h| &h.bg_exclude_bitmap_hi),
    })
}

fn check_checksum(
    bytes: &[u8],
    group: Group,
    geometry: &Geometry,
    checksums: Checksums,
) -> Result<(), Cause> {
    if bytes.len() != geometry.desc_size() || bytes.len() < LOW_SIZE {
        return Err(Cause::Length { len: bytes.len() });
    }
    let found = u16::from_le_bytes([bytes[CHECKSUM_OFFSET], bytes[CHECKSUM_OFFSET + 1]]);
    match checksum(bytes, group, checksums) {
        Some(expected) if found != expected => Err(Cause::Checksum { found, expected }),
        _ => Ok(()),
    }
}

/// Computes the checksum. The two kinds of checksum treat the checksum field itself differently.
/// The crc32c takes the field as zeros, and only the lower half of the result is kept. The crc16
/// omits the field.
fn checksum(bytes: &[u8], group: Group, checksums: Checksums) -> Option<u16> {
    let (before, after) = (&bytes[..CHECKSUM_OFFSET], &bytes[LOW_SIZE..]);
    match checksums {
        Checksums::None => None,
        Checksums::Descriptors { uuid } => {
            let head = Crc16::start().chain(&uuid).chain(&group.0.to_le_bytes());
            Some(head.chain(before).chain(after).value())
        }
        Checksums::All { seed } => {
            let sum = seed.chain_u32(group.0).chain(before).chain(&[0, 0]).chain(after);
            Some(sum.value() as u16)
        }
    }
}
