//! The GUID partition table (UEFI specification, 5.3).

use super::partition::{
    BadTable, Partition, PartitionTable, Read, SECTOR, TableCopy, TableKind, long, put, word,
};
use crate::device::{Device, DeviceError};
use crc::Crc;
use std::ops::Range;
use uuid::Uuid;

const SIGNATURE: &[u8] = b"EFI PART";
const CRC: Crc<u32> = Crc::<u32>::new(&crc::CRC_32_ISO_HDLC);
/// The most bytes of entries that are read: 1024 entries. Usual are 128; the kernel takes 256.
const MOST_BYTES: u64 = 128 << 10;
/// The sizes of an entry in bytes.
const ENTRY_SIZES: Range<u64> = 128..4097;

/// Offsets of the header's fields, and their sizes.
const HEADER_SIZE: usize = 12;
const HEADER_CRC: usize = 16;
const OWN_SECTOR: usize = 24;
const OTHER_SECTOR: usize = 32;
const FIRST_USABLE: usize = 40;
const LAST_USABLE: usize = 48;
const ENTRIES_SECTOR: usize = 72;
const ENTRY_COUNT: usize = 80;
const ENTRY_SIZE: usize = 84;
const ENTRIES_CRC: usize = 88;
/// Offsets of an entry's fields.
const FIRST: usize = 32;
const LAST: usize = 40;
const NAME: Range<usize> = 56..128;

/// A table whose checksums are right.
#[derive(Clone)]
pub(super) struct Gpt {
    pub sector: u64,
    pub copy: TableCopy,
    /// The header's whole sector.
    pub header: Vec<u8>,
    pub entries: Vec<u8>,
    entry_size: usize,
    /// The sector of the primary table's entries.
    primary_entries: u64,
}

impl Gpt {
    /// Reads the table of a disk of `len` bytes: the primary one, or else its copy. A primary
    /// header that is whole says where its copy is; otherwise it is in the last sector.
    pub(super) fn read(len: u64, read: Read<'_>) -> Result<Option<Gpt>, BadTable> {
        let mut bad = None;
        let mut try_at = |sector, at, copy| match Gpt::read_at(sector, at, copy, read) {
            Ok(found) => found,
            Err(error) => {
                bad.get_or_insert(error);
                None
            }
        };
        let sectors = [SECTOR, 4096];
        let primary = |sector| (sector, 1, TableCopy::Primary);
        let stated = sectors.into_iter().filter_map(|sector| {
            let header = header_at(sector, 1, read).ok()??;
            Some((sector, long(&header, OTHER_SECTOR)?, TableCopy::Backup))
        });
        let last = sectors
            .into_iter()
            .filter_map(|sector| Some((sector, (len / sector).checked_sub(1)?, TableCopy::Backup)));
        let mut places = sectors.into_iter().map(primary).chain(stated).chain(last);
        let found = places.find_map(|(sector, at, copy)| try_at(sector, at, copy));
        match (found, bad) {
            (None, Some(bad)) => Err(bad),
            (found, _) => Ok(found),
        }
    }

    /// Reads the table whose header is in sector `at`. `None` if there is no header.
    fn read_at(
        sector: u64,
        at: u64,
        copy: TableCopy,
        read: Read<'_>,
    ) -> Result<Option<Gpt>, BadTable> {
        let Some(header) = header_at(sector, at, read)? else { return Ok(None) };
        let short = BadTable("the header of the GPT is too short");
        let field = |at| word(&header, at).map(u64::from).ok_or(short);
        let (count, size) = (field(ENTRY_COUNT)?, field(ENTRY_SIZE)?);
        if !ENTRY_SIZES.contains(&size) || !size.is_power_of_two() {
            return Err(BadTable("the GPT has entries of an impossible size"));
        }
        let len = count.checked_mul(size).filter(|len| *len <= MOST_BYTES);
        let len = len.ok_or(BadTable("the GPT has more than 1024 entries"))?;
        let table = long(&header, ENTRIES_SECTOR).and_then(|at| at.checked_mul(sector));
        let mut entries = vec![0; len as usize];
        table
            .and_then(|at| read(at, &mut entries))
            .ok_or(BadTable("the entries of the GPT are beyond the end of the disk"))?;
        if word(&header, ENTRIES_CRC) != Some(CRC.checksum(&entries)) {
            return Err(BadTable("the entries of the GPT have a wrong checksum"));
        }
        // A primary header whose entries are torn still says where they belong.
        let primary = header_at(sector, 1, read).ok().flatten();
        let primary_entries = primary.and_then(|header| long(&header, ENTRIES_SECTOR)).unwrap_or(2);
        let entry_size = size as usize;
        Ok(Some(Gpt { sector, copy, header, entries, entry_size, primary_entries }))
    }

    /// Decodes the entries.
    pub(super) fn table(&self) -> PartitionTable {
        let partition = |(number, entry): (u32, &[u8])| {
            let uuid = |at: usize| {
                Some(Uuid::from_bytes_le(*entry.get(at..)?.first_chunk()?)).filter(|u| !u.is_nil())
            };
            let first = long(entry, FIRST)?;
            let end = long(entry, LAST)?.checked_add(1)?;
            let bytes = first.checked_mul(self.sector)?..end.checked_mul(self.sector)?;
            let (units, _) = entry.get(NAME)?.as_chunks::<2>();
            let name: Vec<u16> = units.iter().map(|unit| u16::from_le_bytes(*unit)).collect();
            let name = name.split(|unit| *unit == 0).next().unwrap_or_default();
            let kind = uuid(0)?.to_string();
            (!bytes.is_empty()).then(|| Partition {
                number,
                bytes,
                kind,
                name: String::from_utf16_lossy(name),
                uuid: uuid(16).unwrap_or_default().to_string(),
                is_extended: false,
            })
        };
        PartitionTable {
            kind: TableKind::Gpt,
            copy: self.copy,
            sector: self.sector,
            partitions: (1..)
                .zip(self.entries.chunks(self.entry_size))
                .filter_map(partition)
                .collect(),
        }
    }
}

/// The change of a table.
impl Gpt {
    fn sectors_of_entries(&self) -> u64 {
        (self.entries.len() as u64).div_ceil(self.sector)
    }

    /// Returns the bytes that the backup takes at the end of the disk.
    pub(super) fn bytes_at_end(&self) -> u64 {
        (self.sectors_of_entries() + 1) * self.sector
    }

    /// Returns whether the entries fit between the primary header and the first usable sector.
    pub(super) fn has_primary_room(&self) -> bool {
        let end = self.primary_entries.checked_add(self.sectors_of_entries());
        end.is_some_and(|end| self.primary_entries > 1 && end <= self.field(FIRST_USABLE))
    }

    fn field(&self, at: usize) -> u64 {
        long(&self.header, at).unwrap_or(0)
    }

    /// Returns the last sector of the disk, which has the header of the backup.
    pub(super) fn last_sector(&self) -> u64 {
        self.field(if self.copy == TableCopy::Primary { OTHER_SECTOR } else { OWN_SECTOR })
    }

    /// Moves the end of partition `number` to byte `end`.
    pub(super) fn set_end(&mut self, number: u32, end: u64) {
        let at = (number as usize - 1) * self.entry_size + LAST;
        put(&mut self.entries, at, &(end / self.sector - 1).to_le_bytes());
    }

    /// Moves the backup to the end of a disk of `len` bytes. From then on the table counts as the
    /// primary one.
    pub(super) fn set_disk_len(&mut self, len: u64) {
        let last = (len / self.sector).saturating_sub(1);
        let usable = last.saturating_sub(self.sectors_of_entries() + 1);
        put(&mut self.header, ENTRIES_SECTOR, &self.primary_entries.to_le_bytes());
        self.copy = TableCopy::Primary;
        put(&mut self.header, OWN_SECTOR, &1_u64.to_le_bytes());
        put(&mut self.header, OTHER_SECTOR, &last.to_le_bytes());
        put(&mut self.header, LAST_USABLE, &usable.to_le_bytes());
    }

    pub(super) fn write_primary(&self, disk: &dyn Device) -> Result<(), DeviceError> {
        self.write(disk, 1, self.last_sector(), self.primary_entries)
    }

    pub(super) fn write_backup(&self, disk: &dyn Device) -> Result<(), DeviceError> {
        let last = self.last_sector();
        self.write(disk, last, 1, last.saturating_sub(self.sectors_of_entries()))
    }

    /// Writes the header to sector `own` and the entries to sector `entries`.
    fn write(
        &self,
        disk: &dyn Device,
        own: u64,
        other: u64,
        entries: u64,
    ) -> Result<(), DeviceError> {
        let mut header = self.header.clone();
        put(&mut header, OWN_SECTOR, &own.to_le_bytes());
        put(&mut header, OTHER_SECTOR, &other.to_le_bytes());
        put(&mut header, ENTRIES_SECTOR, &entries.to_le_bytes());
        put(&mut header, ENTRIES_CRC, &CRC.checksum(&self.entries).to_le_bytes());
        let crc = header_crc(&header).unwrap_or_default();
        put(&mut header, HEADER_CRC, &crc.to_le_bytes());
        disk.write_at(entries.saturating_mul(self.sector), &self.entries)?;
        disk.write_at(own.saturating_mul(self.sector), &header)
    }
}

/// Reads the header in sector `at`. `None` if there is none.
fn header_at(sector: u64, at: u64, read: Read<'_>) -> Result<Option<Vec<u8>>, BadTable> {
    let mut header = vec![0; sector as usize];
    let found = at.checked_mul(sector).and_then(|at| read(at, &mut header));
    // The copy at the end of a larger disk states another sector than the one it is found in.
    if found.is_none() || !header.starts_with(SIGNATURE) || long(&header, OWN_SECTOR) != Some(at) {
        return Ok(None);
    }
    match header_crc(&header) {
        Some(crc) if word(&header, HEADER_CRC) == Some(crc) => Ok(Some(header)),
        _ => Err(BadTable("the header of the GPT has a wrong checksum")),
    }
}

/// Computes the checksum of a header, which counts its own field as zero. `None` if the length that
/// the header states is impossible.
fn header_crc(header: &[u8]) -> Option<u32> {
    let size = usize::try_from(word(header, HEADER_SIZE)?).ok()?;
    let mut covered = header.get(..size).filter(|_| size >= 92)?.to_vec();
    put(&mut covered, HEADER_CRC, &[0; 4]);
    Some(CRC.checksum(&covered))
}
