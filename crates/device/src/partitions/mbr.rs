//! The partition table of a master boot record, with its logical partitions.

use super::partition::{Partition, Read, get, word};

/// The largest number of boot records of logical partitions that are read. It also ends a circle of
/// them.
const MOST: usize = 256;
/// The types of a partition that holds logical partitions.
const EXTENDED: [u8; 3] = [0x05, 0x0f, 0x85];
/// The type of the partition with which an MBR protects a GPT.
pub(super) const PROTECTIVE: u8 = 0xee;
/// Where the entries begin in a boot record, and the size of one.
pub(super) const ENTRIES: usize = 446;
pub(super) const ENTRY: usize = 16;

/// The table of a master boot record.
pub(super) struct Mbr {
    pub partitions: Vec<Partition>,
    /// Whether it protects a GPT.
    pub is_protective: bool,
}

/// An entry of a boot record, with its place and length in sectors.
struct Entry {
    kind: u8,
    start: u64,
    sectors: u64,
}

impl Entry {
    fn is_extended(&self) -> bool {
        EXTENDED.contains(&self.kind)
    }

    /// Returns the partition, whose place counts from sector `from`. `None` if the entry is unused.
    fn partition(&self, disk: u32, number: u32, from: u64, sector: u64) -> Option<Partition> {
        let first = from.checked_add(self.start)?;
        let bytes =
            first.checked_mul(sector)?..first.checked_add(self.sectors)?.checked_mul(sector)?;
        let is_used = self.kind != 0 && first > 0 && !bytes.is_empty();
        is_used.then(|| Partition {
            number,
            bytes,
            kind: format!("{:#04x}", self.kind),
            name: String::new(),
            uuid: format!("{disk:08x}-{number:02x}"),
            is_extended: self.is_extended(),
        })
    }
}

/// Returns the four entries of a boot record. `None` if it has none: it lacks the signature, or an
/// entry is neither marked as active nor as inactive, so the bytes are something else.
fn entries(sector: &[u8; 512]) -> Option<Vec<Entry>> {
    let (entries, _) = sector.get(ENTRIES..510)?.as_chunks::<ENTRY>();
    let is_table = sector.ends_with(b"\x55\xaa") && entries.iter().all(|e| e[0] & 0x7f == 0);
    let entry = |bytes: &[u8; ENTRY]| {
        let (start, sectors) = (word(bytes, 8)?.into(), word(bytes, 12)?.into());
        Some(Entry { kind: bytes[4], start, sectors })
    };
    is_table.then(|| entries.iter().filter_map(entry).collect())
}

impl Mbr {
    pub(super) fn read(sector: u64, read: Read<'_>) -> Option<Mbr> {
        let record = get(read, 0)?;
        let (table, disk) = (entries(&record)?, word(&record, 440)?);
        let is_protective = table.iter().any(|entry| entry.kind == PROTECTIVE);
        let numbered = (1..).zip(&table);
        let mut partitions: Vec<Partition> =
            numbered.filter_map(|(n, entry)| entry.partition(disk, n, 0, sector)).collect();
        if let Some(extended) = table.iter().find(|entry| entry.is_extended()) {
            partitions.extend(logical(extended.start, disk, sector, read));
        }
        Some(Mbr { partitions, is_protective })
    }
}

/// Returns the logical partitions. Each lies behind a boot record of its own, whose first entry
/// counts from this record, and whose second entry leads to the next record and counts from
/// `first`, the start of the extended partition. Like the kernel, gives unused entries no number.
fn logical(first: u64, disk: u32, sector: u64, read: Read<'_>) -> Vec<Partition> {
    let mut found = Vec::new();
    let mut at = first;
    for _ in 0..MOST {
        let record = at.checked_mul(sector).and_then(|at| entries(&get(read, at)?));
        let Some([entry, next, ..]) = record.as_deref() else { break };
        found.extend(entry.partition(disk, 5 + found.len() as u32, at, sector));
        let Some(following) = first.checked_add(next.start) else { break };
        if !next.is_extended() || next.start == 0 {
            break;
        }
        at = following;
    }
    found
}
