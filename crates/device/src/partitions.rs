//! The partition table of a disk: GPT (UEFI specification, 5.3) or MBR, with its logical
//! partitions.

use crate::device::Device;
use std::ops::Range;

/// The size in bytes of a sector of most disks, and of those that image files hold.
pub const SECTOR: u64 = 512;
/// The largest number of partitions that are read. It also ends a circle of logical partitions.
const MOST: u32 = 256;
/// The types of a partition that holds logical partitions.
const EXTENDED: [u8; 3] = [0x05, 0x0f, 0x85];
/// The type of the partition with which an MBR protects a GPT.
const PROTECTIVE: u8 = 0xee;

/// The format of a partition table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TableKind {
    /// A GUID partition table.
    Gpt,
    /// The table in a master boot record.
    Mbr,
}

/// A partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partition {
    /// Its number, as the kernel counts.
    pub number: u32,
    /// Its bytes on the disk.
    pub bytes: Range<u64>,
    /// Whether it only holds logical partitions.
    pub is_extended: bool,
}

/// The partition table of a disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionTable {
    /// The format.
    pub kind: TableKind,
    /// The partitions, in the order of the table.
    pub partitions: Vec<Partition>,
}

impl PartitionTable {
    /// Reads the partition table of `disk`. `None` if there is none, or it cannot be read.
    pub fn of(disk: &dyn Device) -> Option<PartitionTable> {
        let alignment = u64::from(disk.alignment()).max(1);
        PartitionTable::read(disk.len(), SECTOR, &|at, bytes| {
            let start = at / alignment * alignment;
            let end = at.checked_add(bytes.len() as u64)?.checked_next_multiple_of(alignment)?;
            let mut whole = vec![0; usize::try_from(end - start).ok()?];
            (end <= disk.len()).then(|| disk.read_at(start, &mut whole).ok())??;
            let from = usize::try_from(at - start).ok()?;
            bytes.copy_from_slice(whole.get(from..from.checked_add(bytes.len())?)?);
            Some(())
        })
    }

    /// Reads the partition table of a disk of `len` bytes through `read`. An MBR counts in sectors
    /// of `sector` bytes. The size of a GPT's sectors follows from its place.
    pub(crate) fn read(len: u64, sector: u64, read: Read<'_>) -> Option<PartitionTable> {
        let (kind, partitions) = match mbr(sector, read) {
            // Like the kernel, reads nothing else of an MBR that protects a GPT: its entries say
            // where the GPT is in force. If the GPT cannot be read, no partition is known.
            Some(Mbr { is_protective: true, .. }) => {
                (TableKind::Gpt, gpt(len, read).unwrap_or_default())
            }
            Some(Mbr { partitions, .. }) if !partitions.is_empty() => (TableKind::Mbr, partitions),
            _ => (TableKind::Gpt, gpt(len, read)?),
        };
        Some(PartitionTable { kind, partitions })
    }

    /// Returns the smallest partition that holds the byte at `offset`.
    pub fn holder(&self, offset: u64) -> Option<&Partition> {
        let holders = self.partitions.iter().filter(|found| found.bytes.contains(&offset));
        holders.min_by_key(|found| found.bytes.end - found.bytes.start)
    }
}

/// Reads bytes at an offset of the disk. Returns `None` if they cannot be read.
pub(crate) type Read<'r> = &'r dyn Fn(u64, &mut [u8]) -> Option<()>;

fn get<const N: usize>(read: Read<'_>, at: u64) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    read(at, &mut bytes).map(|()| bytes)
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?).into())
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// The table of a master boot record.
struct Mbr {
    partitions: Vec<Partition>,
    /// Whether it protects a GPT.
    is_protective: bool,
}

/// An entry of a boot record, with its place and length in sectors.
struct Entry {
    kind: u8,
    start: u64,
    sectors: u64,
}

/// Returns the four entries of a boot record. `None` if it has none: it lacks the signature, or an
/// entry is neither marked as active nor as inactive, so the bytes are something else.
fn entries(sector: &[u8; 512]) -> Option<Vec<Entry>> {
    let (entries, _) = sector.get(446..510)?.as_chunks::<16>();
    let is_table = sector.ends_with(b"\x55\xaa") && entries.iter().all(|e| e[0] & 0x7f == 0);
    let entry = |bytes: &[u8; 16]| {
        Some(Entry { kind: bytes[4], start: word(bytes, 8)?, sectors: word(bytes, 12)? })
    };
    is_table.then(|| entries.iter().filter_map(entry).collect())
}

fn partition(number: u32, start: u64, entry: &Entry, sector: u64) -> Option<Partition> {
    let first = start.checked_add(entry.start)?;
    let bytes =
        first.checked_mul(sector)?..first.checked_add(entry.sectors)?.checked_mul(sector)?;
    let is_extended = EXTENDED.contains(&entry.kind);
    let is_used = entry.kind != 0 && first > 0 && !bytes.is_empty();
    is_used.then_some(Partition { number, bytes, is_extended })
}

fn mbr(sector: u64, read: Read<'_>) -> Option<Mbr> {
    let table = entries(&get(read, 0)?)?;
    let is_protective = table.iter().any(|entry| entry.kind == PROTECTIVE);
    let numbered = (1..).zip(&table);
    let mut partitions: Vec<Partition> =
        numbered.filter_map(|(number, entry)| partition(number, 0, entry, sector)).collect();
    if let Some(extended) = table.iter().find(|entry| EXTENDED.contains(&entry.kind)) {
        partitions.extend(logical(extended.start, sector, read));
    }
    Some(Mbr { partitions, is_protective })
}

/// Returns the logical partitions. Each lies behind a boot record of its own, whose first entry
/// counts from this record, and whose second entry leads to the next record and counts from
/// `first`, the start of the extended partition.
fn logical(first: u64, sector: u64, read: Read<'_>) -> Vec<Partition> {
    let mut found = Vec::new();
    let mut at = first;
    for number in 5..MOST {
        let record = at.checked_mul(sector).and_then(|at| entries(&get(read, at)?));
        let Some([entry, next, ..]) = record.as_deref() else { break };
        found.extend(partition(number, at, entry, sector));
        let Some(following) = first.checked_add(next.start) else { break };
        if !EXTENDED.contains(&next.kind) || next.start == 0 {
            break;
        }
        at = following;
    }
    found
}

/// Returns the partitions of a GPT: of the first table, or of its copy at the end of the disk.
fn gpt(len: u64, read: Read<'_>) -> Option<Vec<Partition>> {
    let sectors = [SECTOR, 4096];
    let first = sectors.into_iter().map(|sector| (sector, 1));
    let last =
        sectors.into_iter().filter_map(|sector| Some((sector, (len / sector).checked_sub(1)?)));
    first.chain(last).find_map(|(sector, at)| gpt_at(sector, at, read))
}

/// Returns the partitions of the GPT whose header is in sector `at`.
fn gpt_at(sector: u64, at: u64, read: Read<'_>) -> Option<Vec<Partition>> {
    let header = get::<92>(read, at.checked_mul(sector)?)?;
    // The copy at the end of a larger disk states another sector than the one it is found in.
    if !header.starts_with(b"EFI PART") || (at != 1 && long(&header, 24)? != at) {
        return None;
    }
    let (table, count, size) = (long(&header, 72)?, word(&header, 80)?, word(&header, 84)?);
    let entry = |index: u32| {
        let at = table.checked_mul(sector)?.checked_add(u64::from(index).checked_mul(size)?)?;
        let entry = get::<48>(read, at)?;
        let first = long(&entry, 32)?;
        let end = long(&entry, 40)?.checked_add(1)?;
        let bytes = first.checked_mul(sector)?..end.checked_mul(sector)?;
        let is_used = entry.iter().take(16).any(|byte| *byte != 0) && !bytes.is_empty();
        is_used.then_some(Partition { number: index + 1, bytes, is_extended: false })
    };
    Some((0..count.min(MOST.into()) as u32).filter_map(entry).collect())
}
