//! The names by which an ext4 file system is chosen: label and UUID (`struct ext4_super_block`).

use super::partition::{Read, aligned, get, word};
use crate::device::Device;

/// Offset of the superblock in the file system, in bytes.
const SUPERBLOCK: u64 = 1024;
const MAGIC: [u8; 2] = [0x53, 0xef];
/// `INCOMPAT_JOURNAL_DEV`: a journal, which has no files.
const JOURNAL_DEV: u32 = 0x8;

/// The names of an ext4 file system, damaged or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ext4 {
    /// Its label; bytes that are not UTF-8 are replaced.
    pub label: String,
    /// Its UUID.
    pub uuid: String,
}

impl Ext4 {
    /// Reads the names of the file system that begins at byte `start` of `disk`. `None` if there is
    /// none.
    pub fn at(disk: &dyn Device, start: u64) -> Option<Ext4> {
        Ext4::read(start, &aligned(disk))
    }

    pub(super) fn read(start: u64, read: Read<'_>) -> Option<Ext4> {
        let bytes = get::<0x88>(read, start.checked_add(SUPERBLOCK)?)?;
        let is_ext = bytes.get(0x38..0x3a)? == MAGIC && word(&bytes, 0x60)? & JOURNAL_DEV == 0;
        let uuid = uuid::Uuid::from_bytes(*bytes.get(0x68..)?.first_chunk()?).to_string();
        let label = bytes.get(0x78..)?.split(|byte| *byte == 0).next()?;
        is_ext.then(|| Ext4 { label: String::from_utf8_lossy(label).into(), uuid })
    }
}
