//! Handles an inode's record: the bytes of the inode in a block of the inode table.

use crate::volume::Volume;
use lanefs_lanes::Lane;
use lanefs_ondisk::{Ino, inode as disk};
use lanefs_plan::Error;
use std::borrow::Cow;
use std::ops::Range;

/// Holds a record's bytes as they were read or will be written. They are needed for the part that
/// [`disk::Inode`] does not decode: the attributes in the inode. A new inode has no bytes until it
/// gets attributes.
#[derive(Clone, Default)]
pub(crate) struct RawRecord {
    /// The bytes; `None` means all zeros.
    bytes: Option<Box<[u8]>>,
}

impl RawRecord {
    /// Copies the bytes of a record that was read from the inode table.
    pub(crate) fn read(bytes: &[u8]) -> RawRecord {
        RawRecord { bytes: Some(bytes.into()) }
    }

    /// Returns the bytes in `area`, or an empty slice if the record is too short to contain `area`.
    pub(crate) fn area(&self, area: Range<usize>) -> Cow<'_, [u8]> {
        match &self.bytes {
            Some(bytes) => bytes.get(area).unwrap_or_default().into(),
            None => vec![0; area.len()].into(),
        }
    }

    /// Returns whether bytes were read or set.
    pub(crate) fn has_bytes(&self) -> bool {
        self.bytes.is_some()
    }

    /// Sets the bytes in `area` of a record of `len` bytes.
    pub(crate) fn set(&mut self, len: usize, area: Range<usize>, bytes: &[u8]) {
        let record = self.bytes.get_or_insert_with(|| vec![0; len].into());
        if let Some(kept) = record.get_mut(area) {
            kept.copy_from_slice(bytes);
        }
    }

    /// Overwrites the whole `record` with these bytes.
    pub(crate) fn write_to(&self, record: &mut [u8]) {
        match &self.bytes {
            Some(bytes) => record.copy_from_slice(bytes),
            None => record.fill(0),
        }
    }
}

/// An inode's record as of one transaction.
pub(crate) struct Record {
    pub(crate) disk: disk::Inode,
    pub(crate) raw: RawRecord,
    pub(crate) freed: bool,
}

impl Record {
    /// Copies the record for a transaction.
    pub(crate) fn of(disk: &disk::Inode, raw: &RawRecord, freed: bool) -> Box<Record> {
        Box::new(Record { disk: disk.clone(), raw: raw.clone(), freed })
    }

    /// Patches the record into a copy of its table block.
    pub(crate) fn patch_into(
        &self,
        volume: &Volume,
        ino: Ino,
        table: &mut [u8],
        offset: usize,
    ) -> Result<(), Error> {
        let len = volume.geometry().inode_size();
        let record = table.get_mut(offset..offset + len).ok_or(Error::Stale)?;
        self.raw.write_to(record);
        encode(volume, ino, &self.disk, record)
    }

    /// Returns the bytes of the record.
    pub(crate) fn encoded(&self, volume: &Volume, ino: Ino) -> Result<Vec<u8>, Error> {
        let mut bytes = vec![0; volume.geometry().inode_size()];
        self.patch_into(volume, ino, &mut bytes, 0)?;
        Ok(bytes)
    }

    /// Compares this record with `other`, a record of an inode with the same number. Returns
    /// whether this record belongs to the later inode.
    pub(crate) fn is_after(&self, other: &Record) -> bool {
        self.disk.generation.wrapping_sub(other.disk.generation) as i32 > 0
    }
}

/// Where an inode is recorded as an orphan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OrphanSlot {
    /// Slot `slot` of block `block` of the orphan file.
    File { block: usize, slot: usize },
    /// Entry `number` of the list of `lane`.
    List { lane: Lane, number: u64 },
}

/// Patches the deletion time in a record that has no other change. The legacy orphan list is
/// chained through the deletion times.
pub(crate) fn chain_record(
    volume: &Volume,
    ino: Ino,
    next: Option<Ino>,
    table: &mut [u8],
    offset: usize,
) -> Result<(), Error> {
    let len = volume.geometry().inode_size();
    let record = table.get_mut(offset..offset + len).ok_or(Error::Stale)?;
    let mut disk = disk::Inode::decode(record, ino, volume.geometry(), volume.checksums)?;
    disk.dtime = next.map_or(0, |next| next.0);
    encode(volume, ino, &disk, record)
}

fn encode(volume: &Volume, ino: Ino, disk: &disk::Inode, record: &mut [u8]) -> Result<(), Error> {
    disk.encode_into(record, ino, volume.geometry(), volume.checksums)
        .map_err(|_| Error::FileTooLarge)
}
