//! Reads the partition table of a disk.

use super::gpt::Gpt;
use super::mbr::Mbr;
use super::partition::{BadTable, PartitionTable, Read, SECTOR, TableCopy, TableKind, aligned};
use crate::device::Device;

impl PartitionTable {
    /// Reads the partition table of `disk`. `None` if there is none.
    ///
    /// # Errors
    /// If the disk has a table that cannot be used.
    pub fn of(disk: &dyn Device) -> Result<Option<PartitionTable>, BadTable> {
        PartitionTable::of_sectors(disk, SECTOR)
    }

    /// Does the same for a disk whose MBR counts in sectors of `sector` bytes.
    ///
    /// # Errors
    /// The same as for [`PartitionTable::of`].
    pub fn of_sectors(disk: &dyn Device, sector: u64) -> Result<Option<PartitionTable>, BadTable> {
        PartitionTable::read(disk.len(), sector, &aligned(disk))
    }

    /// Reads the partition table of a disk of `len` bytes through `read`. An MBR counts in sectors
    /// of `sector` bytes. The size of a GPT's sectors follows from its place.
    pub(crate) fn read(
        len: u64,
        sector: u64,
        read: Read<'_>,
    ) -> Result<Option<PartitionTable>, BadTable> {
        let mbr = Mbr::read(sector, read);
        // Like the kernel, reads nothing else of an MBR that protects a GPT: its entries say where
        // the GPT is in force.
        if let Some(mbr) = &mbr
            && !mbr.is_protective
            && !mbr.partitions.is_empty()
        {
            let (kind, copy) = (TableKind::Mbr, TableCopy::Primary);
            let partitions = mbr.partitions.clone();
            return Ok(Some(PartitionTable { kind, copy, sector, partitions }));
        }
        match Gpt::read(len, read)? {
            Some(gpt) => Ok(Some(gpt.table())),
            None if mbr.is_some_and(|mbr| mbr.is_protective) => {
                Err(BadTable("both copies of the GPT are missing"))
            }
            None => Ok(None),
        }
    }
}
