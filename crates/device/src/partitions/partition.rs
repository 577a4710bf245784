//! Partitions and their table, and the bytes of both.

use crate::device::{Device, read_unaligned};
use std::fmt;
use std::ops::Range;
use thiserror::Error;

/// The size in bytes of a sector of most disks, and of those that image files hold.
pub const SECTOR: u64 = 512;

/// The format of a partition table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TableKind {
    /// A GUID partition table.
    Gpt,
    /// The table in a master boot record.
    Mbr,
}

impl fmt::Display for TableKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TableKind::Gpt => "GPT",
            TableKind::Mbr => "MBR",
        })
    }
}

/// The copy of a table that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TableCopy {
    /// The table at the start of the disk.
    Primary,
    /// The copy at the end of the disk, because the primary table is damaged or missing.
    Backup,
}

/// Why a partition table cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct BadTable(pub(super) &'static str);

/// A partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partition {
    /// Its number, as the kernel counts.
    pub number: u32,
    /// Its bytes on the disk.
    pub bytes: Range<u64>,
    /// Its type: a UUID in a GPT, a number such as `0x83` in an MBR.
    pub kind: String,
    /// Its name in a GPT; empty in an MBR.
    pub name: String,
    /// Its own UUID in a GPT. In an MBR, the number of the disk and its own, as the kernel joins
    /// them: `9c8a1d02-01`.
    pub uuid: String,
    /// Whether it only holds logical partitions.
    pub is_extended: bool,
}

impl Partition {
    fn overlaps(&self, other: &Partition) -> bool {
        let apart = self.bytes.end <= other.bytes.start || other.bytes.end <= self.bytes.start;
        !apart && self.number != other.number && !other.is_extended && !self.is_extended
    }
}

/// The partition table of a disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionTable {
    /// The format.
    pub kind: TableKind,
    /// The copy that was read. There is only one of an MBR.
    pub copy: TableCopy,
    /// The size of a sector in bytes.
    pub sector: u64,
    /// The partitions, in the order of the table.
    pub partitions: Vec<Partition>,
}

impl PartitionTable {
    /// Returns the smallest partition that holds the byte at `offset`.
    pub fn holder(&self, offset: u64) -> Option<&Partition> {
        let holders = self.partitions.iter().filter(|found| found.bytes.contains(&offset));
        holders.min_by_key(|found| found.bytes.end - found.bytes.start)
    }

    /// Returns another partition that has bytes of `partition`.
    pub fn overlapping(&self, partition: &Partition) -> Option<&Partition> {
        self.partitions.iter().find(|other| partition.overlaps(other))
    }
}

/// Reads bytes at an offset of the disk. Returns `None` if they cannot be read.
pub(crate) type Read<'r> = &'r dyn Fn(u64, &mut [u8]) -> Option<()>;

/// Returns a function that reads any bytes of `disk`, whatever its alignment.
pub(super) fn aligned(disk: &dyn Device) -> impl Fn(u64, &mut [u8]) -> Option<()> {
    |at, bytes| read_unaligned(disk, at, bytes).ok()?.then_some(())
}

pub(super) fn get<const N: usize>(read: Read<'_>, at: u64) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    read(at, &mut bytes).map(|()| bytes)
}

pub(super) fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

pub(super) fn long(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Writes `value` at `at`, if there is room.
pub(super) fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    if let Some(place) = bytes.get_mut(at..).and_then(|rest| rest.get_mut(..value.len())) {
        place.copy_from_slice(value);
    }
}
