//! The fields of an inode, decoded without any check.
//!
//! Source: ext4 disk layout documentation, "Index Nodes".

use crate::bytes::{le16, le32};
use lanefs_ondisk::features::{Incompat, RoCompat};
use lanefs_ondisk::inode::InodeFlags;
use lanefs_ondisk::superblock::Geometry;
use lanefs_ondisk::{Block, FileType};

/// The size in bytes of the part that every inode has.
const GOOD_OLD_SIZE: usize = 128;

/// The fields of an inode as they are on disk.
#[derive(Debug, Clone)]
pub struct Record {
    pub mode: u16,
    pub links: u16,
    pub flags: InodeFlags,
    pub size_lo: u32,
    pub size_hi: u32,
    pub blocks_lo: u32,
    pub blocks_hi: u16,
    pub dtime: u32,
    pub generation: u32,
    pub acl_lo: u32,
    pub acl_hi: u16,
    pub fragment: u32,
    pub extra_isize: u16,
    pub ctime: u32,
    pub uid: u32,
    pub gid: u32,
    pub projid: u32,
    pub version: u32,
    pub block: [u8; 60],
}

impl Record {
    /// Decodes the fields. Fields that extend beyond the end of `bytes` are 0.
    pub fn decode(bytes: &[u8]) -> Record {
        let mut block = [0; 60];
        if let Some(from) = bytes.get(0x28..0x64) {
            block.copy_from_slice(from);
        }
        Record {
            mode: le16(bytes, 0),
            links: le16(bytes, 0x1a),
            flags: InodeFlags::from_bits_retain(le32(bytes, 0x20)),
            size_lo: le32(bytes, 4),
            size_hi: le32(bytes, 0x6c),
            blocks_lo: le32(bytes, 0x1c),
            blocks_hi: le16(bytes, 0x74),
            dtime: le32(bytes, 0x14),
            generation: le32(bytes, 0x64),
            acl_lo: le32(bytes, 0x68),
            acl_hi: le16(bytes, 0x76),
            fragment: le32(bytes, 0x70),
            ctime: le32(bytes, 0x0c),
            uid: u32::from(le16(bytes, 0x78)) << 16 | u32::from(le16(bytes, 2)),
            gid: u32::from(le16(bytes, 0x7a)) << 16 | u32::from(le16(bytes, 0x18)),
            projid: projid(bytes),
            version: le32(bytes, 0x24),
            extra_isize: if bytes.len() > GOOD_OLD_SIZE { le16(bytes, 0x80) } else { 0 },
            block,
        }
    }

    pub fn file_type(&self) -> Option<FileType> {
        FileType::from_mode(self.mode)
    }

    pub fn is_directory(&self) -> bool {
        self.file_type() == Some(FileType::Directory)
    }

    pub fn size(&self) -> u64 {
        u64::from(self.size_hi) << 32 | u64::from(self.size_lo)
    }

    /// Returns the reference count of an inode that holds the value of an attribute. The count is
    /// stored in fields that have no other use in such an inode.
    pub fn value_references(&self) -> u64 {
        u64::from(self.ctime) << 32 | u64::from(self.version)
    }

    /// Returns the block that holds the inode's extended attributes.
    pub fn file_acl(&self, geometry: &Geometry) -> Option<Block> {
        let wide = geometry.features().incompat.contains(Incompat::BIT64);
        let hi = if wide { self.acl_hi } else { 0 };
        let block = u64::from(hi) << 32 | u64::from(self.acl_lo);
        (block != 0).then_some(Block(block))
    }

    /// Returns whether the mapping must end at the size of the file, as in e2fsck: that of a
    /// regular file whose extents are in nodes. Otherwise the size grows with the mapping.
    pub fn ends_at_size(&self) -> bool {
        self.file_type() == Some(FileType::Regular)
            && self.flags & (InodeFlags::EXTENTS | InodeFlags::VERITY) == InodeFlags::EXTENTS
            && le16(&self.block, 6) > 0
    }

    /// Returns whether the inode has links or data. Such an inode is in use even if nothing refers
    /// to it.
    pub fn is_in_use(&self) -> bool {
        self.links != 0 || self.blocks_lo != 0 || self.pointer(0) != 0
    }

    /// Returns `i_blocks`, in sectors or blocks as stored.
    pub fn blocks(&self, geometry: &Geometry) -> u64 {
        let huge = geometry.features().ro_compat.contains(RoCompat::HUGE_FILE);
        let hi = if huge { self.blocks_hi } else { 0 };
        u64::from(hi) << 32 | u64::from(self.blocks_lo)
    }

    /// Returns word `n` of the block field: a pointer in a file without extents.
    pub fn pointer(&self, n: usize) -> u32 {
        le32(&self.block, n.saturating_mul(4))
    }

    /// Returns whether the inode is a symbolic link whose target is in the block field and is not
    /// inline data.
    pub fn is_fast_symlink(&self) -> bool {
        let elsewhere = InodeFlags::EXTENTS | InodeFlags::INLINE_DATA;
        self.file_type() == Some(FileType::Symlink)
            && !self.flags.intersects(elsewhere)
            && self.size() < self.block.len() as u64
    }

    /// Returns whether the inode maps blocks: it is a regular file, a directory or a symbolic link,
    /// and its data is not in the inode.
    pub fn maps_blocks(&self) -> bool {
        let data = [FileType::Regular, FileType::Directory, FileType::Symlink];
        self.file_type().is_some_and(|kind| data.contains(&kind))
            && !self.flags.contains(InodeFlags::INLINE_DATA)
            && !self.is_fast_symlink()
    }

    /// Returns the offset at which the attributes in the inode start, if there is room for
    /// attributes.
    pub fn attributes_at(&self, geometry: &Geometry) -> Option<usize> {
        let start = GOOD_OLD_SIZE + usize::from(self.extra_isize);
        (self.extra_isize != 0 && start + 4 <= geometry.inode_size()).then_some(start)
    }
}

/// Returns the project id, or 0 if the inode's extra fields do not include it.
fn projid(bytes: &[u8]) -> u32 {
    const PROJID: usize = 0x9c;
    let fields = GOOD_OLD_SIZE + usize::from(le16(bytes, 0x80));
    if bytes.len() > GOOD_OLD_SIZE && fields >= PROJID + 4 { le32(bytes, PROJID) } else { 0 }
}
