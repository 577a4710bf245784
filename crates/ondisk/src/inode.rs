//! Inodes: 128 bytes, or more with room for further fields and attributes.
//!
//! Source: ext4 disk layout documentation, "Index Nodes". The first 128 bytes always exist. Of the
//! rest, the first `i_extra_isize` bytes hold fields, and the other bytes hold attributes.

mod codec;
mod raw;

pub use crate::cause::InodeCause as Cause;

use crate::checksum::Checksums;
use crate::dirent::NameForm;
use crate::error::Corruption;
use crate::features::Incompat;
use crate::inode::raw::{GOOD_OLD_SIZE, RawExtra, RawInode, fits};
use crate::superblock::Geometry;
use crate::types::{Block, FileType, Ino, Time};
use bitflags::bitflags;
use std::ops::Range;
use thiserror::Error;
use zerocopy::FromBytes;

/// A value that the format cannot hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are the values
pub enum TooLarge {
    #[error("{sectors} sectors need the feature huge_file")]
    Blocks { sectors: u64 },
    #[error("{links} links need the feature dir_nlink")]
    Links { links: u32 },
}

bitflags! {
    /// `i_flags`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub struct InodeFlags: u32 {
        /// Asks for the data to be overwritten when the file is deleted; ignored.
        const SECRM = 0x1;
        /// Asks for the data to be kept after deletion, so that the file can be restored; ignored.
        const UNRM = 0x2;
        /// Asks for the data to be compressed; ignored.
        const COMPR = 0x4;
        /// Writes are synchronous.
        const SYNC = 0x8;
        /// The inode must not be changed.
        const IMMUTABLE = 0x10;
        /// Data may only be appended.
        const APPEND = 0x20;
        /// dump(8) skips the file.
        const NODUMP = 0x40;
        /// Reads do not set the access time.
        const NOATIME = 0x80;
        /// Data is encrypted.
        const ENCRYPT = 0x800;
        /// The directory has a hashed index.
        const INDEX = 0x1000;
        /// An inode of the AFS server.
        const IMAGIC = 0x2000;
        /// Data is written to the journal first.
        const JOURNAL_DATA = 0x4000;
        /// The tail of the file is not merged with other tails; ignored.
        const NOTAIL = 0x8000;
        /// Changes of the directory are synchronous.
        const DIRSYNC = 0x10000;
        /// The subdirectories are unrelated, so they should be allocated far from each other.
        const TOPDIR = 0x20000;
        /// `i_blocks` counts blocks, not sectors.
        const HUGE_FILE = 0x40000;
        /// Blocks are mapped by extents.
        const EXTENTS = 0x80000;
        /// A verity file: its data is verified by a hash tree and never changes.
        const VERITY = 0x10_0000;
        /// The inode contains the value of an attribute.
        const EA_INODE = 0x20_0000;
        /// Obsolete: blocks beyond the end of the file are allocated.
        const EOFBLOCKS = 0x40_0000;
        /// Access bypasses the page cache.
        const DAX = 0x200_0000;
        /// Data is in the inode.
        const INLINE_DATA = 0x1000_0000;
        /// New files in the directory get its project id.
        const PROJINHERIT = 0x2000_0000;
        /// Names in the directory ignore case.
        const CASEFOLD = 0x4000_0000;
        const _ = !0;
    }
}

/// The use of the 60 bytes of `i_block`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockField {
    /// The root of an extent tree.
    ExtentTree,
    /// The pointers of an indirect block map.
    BlockMap,
    /// Data of a file or directory (`inline_data`).
    InlineData,
    /// The inode maps no blocks: the field contains a symbolic link's target, a device number, or
    /// nothing.
    NoMapping,
}

/// A checked inode with plain values; [`Inode::encode_into`] encodes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inode {
    /// Type and permissions as in stat(2); 0 in an inode that was never used.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Owning group.
    pub gid: u32,
    /// Size in bytes.
    pub size: u64,
    /// Time of the last access.
    pub atime: Time,
    /// Time of the last change of the inode.
    pub ctime: Time,
    /// Time of the last change of the data.
    pub mtime: Time,
    /// Time of creation; `None` if the inode has no room for it.
    pub crtime: Option<Time>,
    /// Time of deletion in seconds since 1970, or the next inode in the list of orphans.
    pub dtime: u32,
    /// Number of hard links.
    pub links: u16,
    /// Allocated space, in sectors of 512 bytes.
    pub sectors: u64,
    /// Flags.
    pub flags: InodeFlags,
    /// The field `i_block`. [`Inode::block_field`] returns what it contains.
    pub block: [u8; 60],
    /// The generation, which changes when the inode is reused. The checksums of the inode, and of
    /// its directory blocks and extent nodes, depend on the generation.
    pub generation: u32,
    /// Block of extended attributes, if there is one.
    pub file_acl: Option<Block>,
    /// Change counter; 128-byte inodes store only the lower 32 bits.
    pub version: u64,
    /// Number of bytes of fields after the first 128; 0 in 128-byte inodes.
    pub extra_isize: u16,
    /// Project; 0 if the inode has no room for it.
    pub projid: u32,
}

/// The largest link count of an inode (ext4's limit). A directory with more links stores the count
/// 1.
pub const MAX_LINKS: u16 = 65000;

impl From<InodeFlags> for NameForm {
    /// Returns the form of the names in a directory with these flags.
    fn from(flags: InodeFlags) -> NameForm {
        match flags.contains(InodeFlags::ENCRYPT) {
            true => NameForm::Encrypted,
            false => NameForm::Plain,
        }
    }
}

impl Inode {
    /// Adds `more` subdirectories to the link count of a directory, or removes some if `more` is
    /// negative. Past [`MAX_LINKS`] the count becomes 1, which means "many" (feature `dir_nlink`)
    /// and stays.
    pub fn add_directory_links(&mut self, more: i32) {
        for _ in 0..more {
            self.links = match self.links {
                1 => 1,
                links if links >= MAX_LINKS => 1,
                links => links + 1,
            };
        }
        for _ in more..0 {
            if self.links > 2 {
                self.links -= 1;
            }
        }
    }

    /// Creates a free inode: all fields are zero except `extra_isize`.
    pub fn zeroed(extra_isize: u16) -> Inode {
        Inode {
            mode: 0,
            uid: 0,
            gid: 0,
            size: 0,
            atime: Time::default(),
            ctime: Time::default(),
            mtime: Time::default(),
            crtime: fits(extra_isize, RawExtra::CRTIME_END).then(Time::default),
            dtime: 0,
            links: 0,
            sectors: 0,
            flags: InodeFlags::empty(),
            block: [0; 60],
            generation: 0,
            file_acl: None,
            version: 0,
            extra_isize,
            projid: 0,
        }
    }

    /// Decodes an inode with all checks. `bytes` must be [`Geometry::inode_size`] long.
    ///
    /// An inode that is all zeros is free, and its checksum is not checked, because new inode
    /// tables contain only zeros.
    ///
    /// # Errors
    /// [`Corruption::Inode`].
    // Inlined, so that the compiler can leave out fields which the caller does not use.
    #[inline]
    pub fn decode(
        bytes: &[u8],
        ino: Ino,
        geometry: &Geometry,
        checksums: Checksums,
    ) -> Result<Inode, Corruption> {
        Inode::decode_checked(bytes, ino, geometry, checksums)
            .map_err(|cause| Corruption::Inode { ino, cause })
    }

    /// Decodes an inode without any check, for a caller that knows that the record was checked or
    /// written before. Returns `None` if `bytes` is too short for an inode.
    pub fn decode_unchecked(bytes: &[u8], geometry: &Geometry) -> Option<Inode> {
        let (base, rest) = RawInode::ref_from_prefix(bytes).ok()?;
        let extra = RawExtra::from_front(rest);
        let extra_isize = if rest.is_empty() { 0 } else { extra.i_extra_isize.get() };
        Some(Inode::decode_fields(base, &extra, extra_isize, geometry))
    }

    /// Returns whether the inode has room for a project id.
    pub fn has_project(&self) -> bool {
        fits(self.extra_isize, RawExtra::PROJID_END)
    }

    /// Writes the fields over `bytes`, and sets the checksum. Bytes that are not fields, such as
    /// attributes, stay unchanged. For a new inode, `bytes` must be zeros.
    ///
    /// # Errors
    /// [`TooLarge`] if the allocated space does not fit; `bytes` then stay unchanged.
    ///
    /// # Panics
    /// If `bytes` is not [`Geometry::inode_size`] long, or `extra_isize` does not fit into `bytes`.
    /// Either is an error of the caller.
    pub fn encode_into(
        &self,
        bytes: &mut [u8],
        ino: Ino,
        geometry: &Geometry,
        checksums: Checksums,
    ) -> Result<(), TooLarge> {
        assert_eq!(bytes.len(), geometry.inode_size(), "length of an inode");
        assert!(GOOD_OLD_SIZE + usize::from(self.extra_isize) <= bytes.len(), "extra size");
        let space = self.encode_space(geometry)?;
        if let Ok((base, _)) = RawInode::mut_from_prefix(bytes) {
            self.encode_base(base, space, geometry);
        }
        if bytes.len() > GOOD_OLD_SIZE {
            self.encode_extra(&mut bytes[GOOD_OLD_SIZE..]);
        }
        raw::set_checksum(bytes, ino, self.generation, self.extra_isize, checksums);
        Ok(())
    }

    /// Returns the type of the inode; `None` if the mode has no valid type, as in an inode that was
    /// never used, and in some reserved inodes.
    pub fn file_type(&self) -> Option<FileType> {
        FileType::from_mode(self.mode)
    }

    /// Returns whether the mode and the number of links are 0. Not every free inode is blank,
    /// because a deleted inode may keep its mode. Only the bitmap tells whether an inode is in use.
    pub fn is_blank(&self) -> bool {
        self.mode == 0 && self.links == 0
    }

    /// Returns the device number of a device inode.
    pub fn device_number(&self) -> DeviceNumber {
        DeviceNumber::decode(&self.block)
    }

    /// Sets the device number of a device inode.
    pub fn set_device_number(&mut self, device: DeviceNumber) {
        device.encode(&mut self.block);
    }

    /// Returns the target of a symbolic link if the target is stored in the inode itself. The
    /// allocated space shows whether it is: such a link has space only for its attributes. This is
    /// at most one attribute block, but with `ea_inode`, it can be any amount. The length of the
    /// target does not show it, because early ext2 stored short targets in blocks.
    pub fn fast_symlink(&self, geometry: &Geometry) -> Option<&[u8]> {
        let attributes = match self.file_acl {
            _ if geometry.features().incompat.contains(Incompat::EA_INODE) => u64::MAX,
            Some(_) => (geometry.block_size().bytes() as u64 / 512) << geometry.cluster_bits(),
            None => 0,
        };
        let elsewhere = InodeFlags::EXTENTS | InodeFlags::INLINE_DATA;
        if self.file_type() != Some(FileType::Symlink)
            || self.flags.intersects(elsewhere)
            || self.sectors > attributes
        {
            return None;
        }
        // A target has at most 59 of the 60 bytes, because a NUL follows it.
        let len = usize::try_from(self.size).ok()?;
        self.block[..59].get(..len)
    }

    /// Returns the kind of contents that [`Inode::block`] has.
    pub fn block_field(&self, geometry: &Geometry) -> BlockField {
        if self.flags.contains(InodeFlags::EXTENTS) {
            return BlockField::ExtentTree;
        }
        if self.flags.contains(InodeFlags::INLINE_DATA) {
            return BlockField::InlineData;
        }
        match self.file_type() {
            Some(FileType::Regular | FileType::Directory) => BlockField::BlockMap,
            Some(FileType::Symlink) if self.fast_symlink(geometry).is_none() => {
                BlockField::BlockMap
            }
            _ => BlockField::NoMapping,
        }
    }

    /// Returns the byte range of the inode that contains attributes: all bytes after the fields.
    /// `None` if fewer than 4 bytes follow the fields. Also `None` if `extra_isize` is 0, because
    /// then the bytes after the fields were never written.
    pub fn xattr_area(&self, geometry: &Geometry) -> Option<Range<usize>> {
        let start = GOOD_OLD_SIZE + usize::from(self.extra_isize);
        let area = start..geometry.inode_size();
        (self.extra_isize != 0 && area.len() >= 4).then_some(area)
    }

    /// Sets the time of the last read, rounded to the nearest time that the inode can store.
    pub fn set_atime(&mut self, time: Time) {
        self.atime = nearest_time(time, fits(self.extra_isize, RawExtra::ATIME_END));
    }

    /// Sets the time of the last change of the data, rounded to the nearest time that the inode can
    /// store.
    pub fn set_mtime(&mut self, time: Time) {
        self.mtime = nearest_time(time, fits(self.extra_isize, RawExtra::MTIME_END));
    }

    /// Sets the time of the last change of the inode, rounded to the nearest time that the inode
    /// can store.
    pub fn set_ctime(&mut self, time: Time) {
        self.ctime = nearest_time(time, fits(self.extra_isize, RawExtra::CTIME_END));
    }

    /// Sets the time of creation, rounded to the nearest time that the inode can store. Does
    /// nothing if the inode stores no time of creation.
    pub fn set_crtime(&mut self, time: Time) {
        self.crtime = self.crtime.map(|_| nearest_time(time, true));
    }

    /// Returns whether all times have nanoseconds and the larger range.
    pub fn has_fine_times(&self) -> bool {
        fits(self.extra_isize, RawExtra::ATIME_END)
    }
}

/// Verifies the checksum of an encoded inode, without any other check.
///
/// # Errors
/// [`Cause::Length`] or [`Cause::Checksum`].
pub fn verify(bytes: &[u8], ino: Ino, checksums: Checksums) -> Result<(), Cause> {
    let (generation, extra_isize) = owner_fields(bytes)?;
    raw::check_checksum(bytes, ino, generation, extra_isize, checksums)
}

/// Sets the checksum of an encoded inode whose fields were changed in place.
///
/// # Errors
/// [`Cause::Length`].
pub fn seal(bytes: &mut [u8], ino: Ino, checksums: Checksums) -> Result<(), Cause> {
    let (generation, extra_isize) = owner_fields(bytes)?;
    raw::set_checksum(bytes, ino, generation, extra_isize, checksums);
    Ok(())
}

/// Returns the fields on which the checksum depends: generation and extra size.
fn owner_fields(bytes: &[u8]) -> Result<(u32, u16), Cause> {
    let length = Cause::Length { len: bytes.len() };
    let (base, rest) = RawInode::ref_from_prefix(bytes).map_err(|_| length.clone())?;
    if !rest.is_empty() && rest.len() < GOOD_OLD_SIZE {
        return Err(length);
    }
    let extra = if rest.is_empty() { 0 } else { RawExtra::from_front(rest).i_extra_isize.get() };
    Ok((base.i_generation.get(), extra))
}

impl Inode {
    #[inline]
    fn check(&self, geometry: &Geometry) -> Result<(), Cause> {
        if self.is_blank() {
            // The other fields of a blank inode are not interpreted.
            return Ok(());
        }
        if self.mode >> 12 != 0 && self.file_type().is_none() {
            return Err(Cause::Mode { mode: self.mode });
        }
        if self.size > geometry.max_file_size() {
            return Err(Cause::Size { size: self.size });
        }
        if let Some(block) = self.file_acl.filter(|&block| !geometry.contains(block)) {
            return Err(Cause::FileAcl { block });
        }
        let block_size = geometry.block_size().bytes() as u64;
        let inline = self.flags.contains(InodeFlags::INLINE_DATA);
        match self.file_type() {
            Some(FileType::Directory) if !inline && !self.size.is_multiple_of(block_size) => {
                Err(Cause::DirectorySize { size: self.size })
            }
            Some(FileType::Symlink) if self.size > block_size => {
                Err(Cause::SymlinkSize { size: self.size })
            }
            _ => Ok(()),
        }
    }
}

// Times: 32 bits of seconds, and in larger inodes a word with two more bits and nanoseconds.
//
// Source: ext4 disk layout documentation, "Inode Timestamps". The lower word is signed; the two
// bits add multiples of 2^32 to it.

const MIN: i64 = i32::MIN as i64;
const MAX: i64 = MIN + (4 << 32) - 1;

/// Decodes a time. A number of nanoseconds above 999,999,999, as in a hostile image, is reduced to
/// 999,999,999.
fn time_of(secs: u32, extra: u32) -> Time {
    let epoch = i64::from(extra & 3) << 32;
    Time { secs: i64::from(secs as i32) + epoch, nanos: (extra >> 2).min(999_999_999) }
}

/// Returns the lower word, which has the lower 32 bits of the seconds. A time that the inode cannot
/// hold is replaced by the nearest time that it can hold.
fn low_word(time: Time, extended: bool) -> u32 {
    let max = if extended { MAX } else { i32::MAX.into() };
    time.secs.clamp(MIN, max) as u32
}

/// Returns the nearest time that the words can express. At the ends of the range the nanoseconds
/// are dropped, as in Linux (observed with 6.18).
fn nearest_time(time: Time, extended: bool) -> Time {
    let max = if extended { MAX } else { i32::MAX.into() };
    let secs = time.secs.clamp(MIN, max);
    let nanos = if !extended || secs == MIN || secs == max { 0 } else { time.nanos };
    Time { secs, nanos: nanos.min(999_999_999) }
}

/// Returns the upper word, which has two more bits of the seconds, and the nanoseconds.
fn extra_word(time: Time) -> u32 {
    let secs = time.secs.clamp(MIN, MAX);
    let epoch = ((secs - i64::from(secs as i32)) >> 32) as u32 & 3;
    time.nanos.min(999_999_999) << 2 | epoch
}

/// Major and minor number of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct DeviceNumber {
    /// Major number, which selects the driver; 12 bits are stored.
    pub major: u32,
    /// Minor number, which selects one of the driver's devices; 20 bits are stored.
    pub minor: u32,
}

impl DeviceNumber {
    /// Decodes either form. The old form has 8 bits of each number in the first word. If the first
    /// word is zero, the second word has the new form, which is, from the lowest bit on: minor bits
    /// 0-7, major bits 0-11, minor bits 8-19.
    fn decode(block: &[u8; 60]) -> DeviceNumber {
        let word = |at: usize| {
            u32::from_le_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]])
        };
        match word(0) {
            0 => {
                let new = word(4);
                DeviceNumber {
                    major: (new >> 8) & 0xfff,
                    minor: (new & 0xff) | ((new >> 12) & 0xf_ff00),
                }
            }
            old => DeviceNumber { major: (old >> 8) & 0xff, minor: old & 0xff },
        }
    }

    /// Encodes the numbers in the old form if it can hold them, otherwise in the new form.
    fn encode(self, block: &mut [u8; 60]) {
        let (major, minor) = (self.major & 0xfff, self.minor & 0xf_ffff);
        let words = if major < 256 && minor < 256 && (major, minor) != (0, 0) {
            [major << 8 | minor, 0]
        } else {
            [0, (minor & 0xff) | major << 8 | (minor & 0xf_ff00) << 12]
        };
        block.fill(0);
        block[..4].copy_from_slice(&words[0].to_le_bytes());
        block[4..8].copy_from_slice(&words[1].to_le_bytes());
    }
}

// Inodes that hold the value of an extended attribute (feature `ea_inode`).
//
// Such an inode is a regular file with the flag `EA_INODE` and a link count of one, but no
// directory entry refers to it. Its time fields hold no times. The field of the access time holds
// the hash of the value. The field of the change time and the lower half of the version together
// hold the number of attributes with this value. Source: kernel documentation, *Large Extended
// Attribute Values*.

impl Inode {
    /// Returns whether the inode holds the value of an attribute.
    pub fn is_attribute_value(&self) -> bool {
        self.flags.contains(InodeFlags::EA_INODE) && self.file_type() == Some(FileType::Regular)
    }

    /// Returns the stored hash of the value.
    pub fn value_hash(&self) -> u32 {
        self.atime.secs as u32
    }

    /// Returns the number of attributes with this value.
    pub fn value_references(&self) -> u64 {
        u64::from(self.ctime.secs as u32) << 32 | u64::from(self.version as u32)
    }

    /// Sets the number of attributes with this value.
    pub fn set_value_references(&mut self, references: u64) {
        self.ctime = word((references >> 32) as u32);
        self.version = references & u64::from(u32::MAX);
    }

    /// Makes the inode hold the value of one attribute; `hash` is the hash of the value.
    pub fn become_attribute_value(&mut self, hash: u32) {
        self.flags |= InodeFlags::EA_INODE;
        self.links = 1;
        self.atime = word(hash);
        self.set_value_references(1);
    }

    /// Returns whether the inode records the inode `owner` as its only user. Lustre, which
    /// introduced such inodes, stored the owner instead of a hash and a reference count.
    pub fn is_value_of(&self, owner: Ino, generation: u32) -> bool {
        self.mtime.secs as u32 == owner.0 && self.generation == generation
    }
}

/// Returns the time whose seconds the inode stores as the word `value`.
fn word(value: u32) -> Time {
    Time { secs: i64::from(value as i32), nanos: 0 }
}

#[cfg(test)]
mod tests;
