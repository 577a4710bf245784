//! The growth of a partition.
//!
//! A GPT has two copies. The backup is written first and flushed, then the primary table, so that
//! one of them is whole after a crash at any write. While the primary one is written it may be
//! torn: then sgdisk, libblkid and Lanefs use the backup; the kernel alone does not, unless it is
//! started with the option `gpt`. A second growth to the same end completes the first.

use super::gpt::Gpt;
use super::mbr::{ENTRIES, ENTRY, PROTECTIVE};
use super::partition::{Partition, PartitionTable, TableCopy, TableKind, aligned, put};
use super::which::PartitionError;
use crate::device::{Device, DeviceError};

/// The unit to which the end of a partition is rounded, and that of the length of an image file.
const END_UNIT: u64 = 4096;
const FILE_UNIT: u64 = 1 << 20;

/// A growth of a partition that is possible.
pub struct PartitionGrowth {
    partition: Partition,
    /// The end of the partition afterwards, in bytes.
    end: u64,
    /// The length of the disk that the growth needs, in bytes.
    disk_len: u64,
    sector: u64,
    gpt: Option<Gpt>,
}

impl PartitionGrowth {
    /// Plans the growth of partition `number` to byte `end` of the disk, or, if that is `None`, as
    /// far as the present disk has room. An MBR counts in sectors of `sector` bytes. Nothing is
    /// written.
    ///
    /// # Errors
    /// If another partition is in the way, or the table cannot hold such a partition.
    pub fn plan(
        disk: &dyn Device,
        sector: u64,
        number: u32,
        end: Option<u64>,
    ) -> Result<PartitionGrowth, PartitionError> {
        let read = aligned(disk);
        let table = PartitionTable::read(disk.len(), sector, &read)?;
        let table = table.ok_or(PartitionError::NoTable)?;
        let refused = |why| PartitionError::NoGrowth { number, why };
        let this = table.partitions.iter().find(|found| found.number == number);
        let this = this.ok_or_else(|| refused("it does not exist"))?.clone();
        if this.is_extended || table.kind == TableKind::Mbr && number > 4 {
            return Err(refused("it is logical, or holds such partitions: use sfdisk"));
        }
        if let Some(other) = table.overlapping(&this) {
            return Err(PartitionError::Overlap(number, other.number));
        }
        let gpt = match table.kind {
            TableKind::Gpt => Gpt::read(disk.len(), &read)?,
            TableKind::Mbr => None,
        };
        let behind = gpt.as_ref().map_or(0, Gpt::bytes_at_end);
        let next = table.partitions.iter().filter(|other| other.bytes.start >= this.bytes.end);
        let next = next.min_by_key(|other| other.bytes.start);
        let end = match end {
            Some(end) => end.checked_next_multiple_of(END_UNIT).ok_or(refused("out of range"))?,
            None => {
                let room = disk.len().saturating_sub(behind);
                next.map_or(room, |next| next.bytes.start.min(room)) / END_UNIT * END_UNIT
            }
        };
        let end = end.max(this.bytes.end);
        if let Some(next) = next.filter(|next| next.bytes.start < end) {
            let (other, start) = (next.number, next.bytes.start);
            return Err(PartitionError::InTheWay { number, end, other, start });
        }
        if gpt.is_none() && (end - this.bytes.start) / table.sector > u32::MAX.into() {
            return Err(refused(
                "an MBR has room for 2^32 sectors: make it a GPT first (sgdisk -g)",
            ));
        }
        if gpt.as_ref().is_some_and(|gpt| gpt.copy == TableCopy::Backup && !gpt.has_primary_room())
        {
            return Err(refused("its primary GPT is damaged, and has no room: use sgdisk"));
        }
        let needed = end.checked_add(behind).and_then(|end| match end <= disk.len() {
            true => Some(disk.len()),
            false => end.checked_next_multiple_of(FILE_UNIT),
        });
        let disk_len = needed.ok_or(refused("out of range"))?;
        let is_cut = |other: &Partition| other.bytes.end > disk_len.saturating_sub(behind);
        if gpt.is_some() && table.partitions.iter().any(|o| o.number != number && is_cut(o)) {
            return Err(refused("another partition reaches beyond the end of the disk"));
        }
        Ok(PartitionGrowth { partition: this, end, disk_len, sector: table.sector, gpt })
    }

    /// Returns the first byte of the partition.
    pub fn start(&self) -> u64 {
        self.partition.bytes.start
    }

    /// Returns the size of the partition afterwards, in bytes.
    pub fn size(&self) -> u64 {
        self.end - self.partition.bytes.start
    }

    /// Returns the length of the disk that the growth needs, in bytes.
    pub fn disk_len(&self) -> u64 {
        self.disk_len
    }

    /// Makes the disk longer if that is needed, and writes the table. Flushes the disk.
    ///
    /// # Errors
    /// If the disk fails, or is a device that is too short. A second growth completes this one.
    pub fn apply(self, disk: &dyn Device) -> Result<(), DeviceError> {
        let is_moved = self.end > self.partition.bytes.end;
        let is_whole = self.gpt.as_ref().is_none_or(|gpt| gpt.copy == TableCopy::Primary);
        if !is_moved && is_whole {
            return Ok(());
        }
        if disk.len() < self.disk_len {
            disk.lengthen(self.disk_len)?;
        }
        let mut record = [0; 512];
        disk.read_at(0, &mut record)?;
        let number = self.partition.number;
        let Some(mut gpt) = self.gpt else {
            set_sectors(&mut record, number as usize - 1, self.size() / self.sector);
            disk.write_at(0, &record)?;
            return disk.flush();
        };
        if gpt.copy == TableCopy::Backup {
            // The new backup may overwrite the old one, so the primary table comes first.
            gpt.write_primary(disk)?;
            disk.flush()?;
        }
        gpt.set_end(number, self.end);
        gpt.set_disk_len(disk.len());
        gpt.write_backup(disk)?;
        disk.flush()?;
        let mut used = (0..4).filter(|at| record.get(ENTRIES + at * ENTRY + 4) != Some(&0));
        if let (Some(at), None) = (used.next(), used.next())
            && record.get(ENTRIES + at * ENTRY + 4) == Some(&PROTECTIVE)
        {
            set_sectors(&mut record, at, gpt.last_sector());
            disk.write_at(0, &record)?;
        }
        gpt.write_primary(disk)?;
        disk.flush()
    }
}

/// Sets the length of entry `at` of a boot record.
fn set_sectors(record: &mut [u8], at: usize, sectors: u64) {
    let sectors = u32::try_from(sectors).unwrap_or(u32::MAX);
    put(record, ENTRIES + at * ENTRY + 12, &sectors.to_le_bytes());
}
