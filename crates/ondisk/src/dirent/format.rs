//! The format of directory blocks, and the header of a record.

use crate::cause::dirent::Cause;
use crate::types::BlockSize;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of a record before its name.
pub const HEADER: usize = 8;
/// The shortest record: a header and a name of one to four bytes.
pub const MIN_RECORD: usize = 12;
/// Bytes of the checksum tail.
pub const TAIL: usize = 12;

/// `struct ext4_dir_entry_2` without the name. Without the feature `filetype` the last byte is the
/// high half of the name's length, which is always zero.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct RawDirEntry {
    pub(super) inode: U32,
    pub(super) rec_len: U16,
    pub(super) name_len: u8,
    pub(super) file_type: u8,
}

const _: () = assert!(size_of::<RawDirEntry>() == HEADER);

/// The format of the directory blocks of one file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DirFormat {
    /// Bytes of a block.
    pub block_size: BlockSize,
    /// Feature `filetype`: entries contain the type of their inode.
    pub has_file_types: bool,
    /// Feature `metadata_csum`: blocks end in a tail with a checksum.
    pub has_checksums: bool,
    /// Feature `large_dir`: an index may have one more level, and a directory may be larger than 4
    /// GiB.
    pub has_large_dirs: bool,
    /// Number of inodes in the file system, which is also the highest inode number.
    pub inodes: u32,
    /// The bytes that names may contain.
    pub names: NameForm,
}

/// The bytes that the names in a directory may contain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum NameForm {
    /// All bytes except `/` and NUL.
    #[default]
    Plain,
    /// All bytes, because the names are encrypted.
    Encrypted,
}

impl DirFormat {
    /// Returns the number of bytes in a leaf that records can use.
    pub fn record_bytes(&self) -> usize {
        self.block_size.bytes() - if self.has_checksums { TAIL } else { 0 }
    }
}

/// Returns how many bytes a record with a name of `name_len` bytes needs.
#[inline]
pub fn space(name_len: usize) -> usize {
    (HEADER + name_len + 3) & !3
}

pub(super) fn check_length(format: &DirFormat, block: &[u8]) -> Result<(), Cause> {
    let expected = format.block_size.bytes();
    if block.len() != expected {
        return Err(Cause::Length { expected, found: block.len() });
    }
    Ok(())
}

/// Decodes a record's length. In 64 KiB blocks, the length of a record that fills the block does
/// not fit into 16 bits and is written as 65,535 (by older writers as 0). In 64 KiB blocks, any
/// value except these two has bits 16 and 17 of the length in its low two bits.
pub(super) fn decode_rec_len(raw: u16, block_size: BlockSize) -> usize {
    let raw = usize::from(raw);
    match (block_size.bytes() == 1 << 16, raw) {
        (false, _) => raw,
        (true, 0 | 0xffff) => 1 << 16,
        (true, _) => raw & 0xfffc | (raw & 3) << 16,
    }
}

pub(super) fn encode_rec_len(rec_len: usize) -> u16 {
    u16::try_from(rec_len).unwrap_or(0xffff)
}
