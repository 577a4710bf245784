//! Disks: tables, hostile ones too, the names of partitions, and growth with a crash at any write.

use super::{MIB, part_at};
use lanefs_device::{
    Access, Device, Ext4, FileDevice, Kept, OpenError, OpenOptions, PartitionError,
    PartitionGrowth, PartitionTable, Pick, RamDevice, RecordingDevice, TableCopy, TableKind,
};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

/// Writes a boot record in sector `at`, with entries of a type, a first sector and a length.
fn boot_record(disk: &dyn Device, at: u64, entries: &[(u8, u32, u32)]) {
    let mut sector = [0; 512];
    for (entry, (kind, start, sectors)) in sector[446..].chunks_mut(16).zip(entries) {
        entry[4] = *kind;
        entry[8..12].copy_from_slice(&start.to_le_bytes());
        entry[12..].copy_from_slice(&sectors.to_le_bytes());
    }
    sector[510..].copy_from_slice(b"\x55\xaa");
    disk.write_at(at * 512, &sector).unwrap();
}

/// A GPT of 128-byte entries, given by number and sectors.
struct Table<'e> {
    sector: u64,
    count: u32,
    size: u32,
    entries: &'e [[u8; 128]],
}

fn crc(bytes: &[u8]) -> [u8; 4] {
    crc::Crc::<u32>::new(&crc::CRC_32_ISO_HDLC).checksum(bytes).to_le_bytes()
}

impl Table<'_> {
    /// Writes header and entries, with right checksums.
    fn write(&self, disk: &dyn Device, at: u64, other: u64, table: u64) {
        let whole = u64::from(self.count).saturating_mul(self.size.into()).min(1 << 18) as usize;
        let mut entries = self.entries.as_flattened().to_vec();
        entries.resize(whole.max(entries.len()), 0);
        let mut header = [0; 92];
        header[..8].copy_from_slice(b"EFI PART");
        header[8..12].copy_from_slice(&[0, 0, 1, 0]);
        header[12] = 92;
        header[24..32].copy_from_slice(&at.to_le_bytes());
        header[32..40].copy_from_slice(&other.to_le_bytes());
        header[40..48].copy_from_slice(&40_u64.to_le_bytes());
        header[72..80].copy_from_slice(&table.to_le_bytes());
        header[80..84].copy_from_slice(&self.count.to_le_bytes());
        header[84..88].copy_from_slice(&self.size.to_le_bytes());
        header[88..].copy_from_slice(&crc(&entries[..whole]));
        let sum = crc(&header);
        header[16..20].copy_from_slice(&sum);
        let place = table.saturating_mul(self.sector);
        let _ = disk.write_at(place, &entries);
        let _ = disk.write_at(at.saturating_mul(self.sector), &header);
    }
}

fn gpt_entry(first: u64, last: u64) -> [u8; 128] {
    let mut entry = [0; 128];
    entry[0] = 0xaf;
    entry[16] = 0x01;
    entry[32..40].copy_from_slice(&first.to_le_bytes());
    entry[40..48].copy_from_slice(&last.to_le_bytes());
    entry
}

fn table_of(disk: &dyn Device) -> PartitionTable {
    PartitionTable::of(disk).unwrap().unwrap()
}

#[test]
fn a_part_that_begins_in_a_partition_ends_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk");
    let disk = FileDevice::create(&path, 16 * MIB).unwrap();
    boot_record(&disk, 0, &[(0x83, 2048, 4096), (0x05, 8192, 16384)]);
    boot_record(&disk, 8192, &[(0x83, 2048, 2048), (0x05, 6144, 8192)]);
    // The second logical partition leads back to the first one.
    boot_record(&disk, 14336, &[(0x83, 2048, 4096), (0x05, 0, 8192)]);
    drop(disk);
    let part = |offset, len| FileDevice::open(&path, Access::ReadWrite, part_at(offset, len));
    for (offset, len, number) in [
        (MIB, 2 * MIB, Some(1)),
        (MIB + 512, 2 * MIB - 512, Some(1)),
        (3 * MIB - 1, 1, Some(1)),
        (3 * MIB, 13 * MIB, None),
        (5 * MIB, MIB, Some(5)),
        (8 * MIB, 2 * MIB, Some(6)),
        (10 * MIB, 2 * MIB, Some(2)),
        (12 * MIB, 4 * MIB, None),
    ] {
        let device = part(offset, None).unwrap();
        assert_eq!((device.len(), device.partition().map(|p| p.number)), (len, number), "{offset}");
        drop(device);
        assert_eq!(part(offset, Some(len)).unwrap().len(), len);
        let refused = part(offset, Some(len + 1)).unwrap_err();
        match number {
            Some(number) => {
                let what = format!("beyond partition {number}, which has {len} bytes");
                assert!(refused.to_string().contains(&what), "{refused}");
            }
            None => assert!(matches!(refused, OpenError::OutOfRange { .. }), "{refused}"),
        }
    }
    // A device can grow when its partition has grown.
    let device = part(MIB, None).unwrap();
    device.lengthen(2 * MIB).unwrap();
    device.lengthen(2 * MIB + 1).unwrap_err();
    let mut raw = [0; 512];
    FileDevice::peek(&path, OpenOptions::default()).unwrap().read_at(0, &mut raw).unwrap();
    let write = |raw: &[u8]| {
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, raw, 0).unwrap();
    };
    raw[446 + 13] = 0x12;
    write(&raw);
    device.lengthen(2 * MIB + 4096).unwrap();
    assert_eq!(device.len(), 2 * MIB + MIB / 4);
    // Without its partition, nothing says how much room it has.
    raw[446..510].fill(0);
    write(&raw);
    device.lengthen(3 * MIB).unwrap_err();
    assert_eq!(device.len(), 2 * MIB + MIB / 4);
}

#[test]
fn the_entries_of_a_primary_gpt_stay_where_its_header_says() {
    let disk = RamDevice::create(16 * MIB).unwrap();
    let last = 16 * MIB / 512 - 1;
    let table = Table { sector: 512, count: 4, size: 128, entries: &[gpt_entry(2048, 4095)] };
    boot_record(&disk, 0, &[(0xee, 1, u32::MAX)]);
    table.write(&disk, last, 1, last - 1);
    table.write(&disk, 1, last, 20);
    let (loader, mut left) = ([7; 18 * 512], [0; 18 * 512]);
    disk.write_at(2 * 512, &loader).unwrap();
    // A growth was cut while it wrote these entries.
    disk.write_at(20 * 512 + 33, &[0x55]).unwrap();
    assert_eq!(table_of(&disk).copy, TableCopy::Backup);
    PartitionGrowth::plan(&disk, 512, 1, Some(8 * MIB)).unwrap().apply(&disk).unwrap();
    let found = table_of(&disk);
    assert_eq!((found.copy, found.partitions[0].bytes.end), (TableCopy::Primary, 8 * MIB));
    disk.read_at(2 * 512, &mut left).unwrap();
    assert!(left == loader, "a boot loader in front of the entries is overwritten");
}

#[test]
fn both_tables_of_a_gpt_and_both_sizes_of_sectors_are_read() {
    for sector in [512, 4096] {
        let disk = RamDevice::create(16 * MIB).unwrap();
        let last = 16 * MIB / sector - 1;
        let entries = [gpt_entry(MIB / sector, 2 * MIB / sector - 1), [0; 128]];
        let entries = [entries[0], entries[1], gpt_entry(4 * MIB / sector, 4 * MIB / sector)];
        let table = Table { sector, count: 3, size: 128, entries: &entries };
        boot_record(&disk, 0, &[(0xee, 1, u32::MAX)]);
        for (at, other, entries, copy) in
            [(last, 1, last - 4, TableCopy::Backup), (1, last, 2, TableCopy::Primary)]
        {
            table.write(&disk, at, other, entries);
            let found = table_of(&disk);
            assert_eq!((found.kind, found.copy, found.sector), (TableKind::Gpt, copy, sector));
            let of = |p: &lanefs_device::Partition| (p.number, p.bytes.clone());
            let found: Vec<_> = found.partitions.iter().map(of).collect();
            assert_eq!(found, [(1, MIB..2 * MIB), (3, 4 * MIB..4 * MIB + sector)]);
        }
        // A primary table that is torn gives way to the backup, in the header or the entries.
        for at in [sector + 60, 2 * sector + 33] {
            let mut byte = [0];
            disk.read_at(at, &mut byte).unwrap();
            disk.write_at(at, &[!byte[0]]).unwrap();
            assert_eq!(table_of(&disk).copy, TableCopy::Backup);
            disk.write_at(at, &byte).unwrap();
            assert_eq!(table_of(&disk).copy, TableCopy::Primary);
        }
        // The entry of the MBR is no partition, even if both headers are lost.
        for at in [last, 1] {
            disk.write_at(at * sector, &[0; 92]).unwrap();
        }
        let lost = PartitionTable::of(&disk).unwrap_err();
        assert_eq!(lost.to_string(), "both copies of the GPT are missing");
        // The copy of a larger disk's table, which an offset moved, is none.
        let end = RamDevice::create(MIB).unwrap();
        table.write(&end, MIB / sector - 1, 1, 2);
        assert!(PartitionTable::of(&end).unwrap().is_some());
        boot_record(&end, 0, &[]);
        let mut header = vec![0; sector as usize];
        end.read_at(MIB - sector, &mut header).unwrap();
        end.write_at(MIB - 3 * sector, &header).unwrap();
        end.write_at(MIB - sector, &[0; 92]).unwrap();
        assert_eq!(PartitionTable::of(&end), Ok(None));
    }
}

#[test]
fn a_gpt_of_impossible_numbers_is_named_in_bounded_memory() {
    let disk = RamDevice::create(4 * MIB).unwrap();
    let entries = [gpt_entry(2048, 4095)];
    let bad = |count, size, table| {
        disk.write_at(0, &[0; 4096]).unwrap();
        Table { sector: 512, count, size, entries: &entries }.write(&disk, 1, 0, table);
        PartitionTable::of(&disk).map(|found| found.unwrap().partitions.len())
    };
    assert_eq!(bad(0, 128, 2), Ok(0));
    assert_eq!(bad(1, 128, 2), Ok(1));
    assert_eq!(bad(1, 4096, 2), Ok(1));
    assert_eq!(bad(1024, 128, 2), Ok(1));
    for (count, size, table, words) in [
        (1025, 128, 2, "more than 1024 entries"),
        (u32::MAX, 128, 2, "more than 1024 entries"),
        (u32::MAX, 4096, 2, "more than 1024 entries"),
        (1, 0, 2, "impossible size"),
        (1, 1, 2, "impossible size"),
        (1, 127, 2, "impossible size"),
        (1, 136, 2, "impossible size"),
        (1, 8192, 2, "impossible size"),
        (1, u32::MAX, 2, "impossible size"),
        (1, 128, u64::MAX, "beyond the end"),
        (128, 128, 4 * MIB / 512 - 1, "beyond the end"),
    ] {
        let why = bad(count, size, table).unwrap_err().to_string();
        assert!(why.contains(words), "{count} {size} {table}: {why}");
    }
}

#[test]
fn a_table_of_any_numbers_is_read_and_grown_without_a_panic() {
    let mut random = fastrand::Rng::with_seed(34);
    let number = |random: &mut fastrand::Rng| match random.u8(..5) {
        0 => u64::MAX >> random.u8(..64),
        1 => random.u64(..40_000),
        2 => random.u64(..3),
        3 => u64::MAX - random.u64(..3),
        _ => random.u64(..),
    };
    let mut read = [0; 2];
    for _ in 0..2000 {
        let disk = RamDevice::create(4 * MIB).unwrap();
        let kinds = [0, 0x05, 0x0f, 0x83, 0xee];
        for at in [0, 1, 2, 7] {
            let entry = |random: &mut fastrand::Rng| {
                let kind = kinds[random.usize(..kinds.len())];
                (kind, number(random).min(9) as u32, number(random) as u32)
            };
            let entries: Vec<_> = (0..4).map(|_| entry(&mut random)).collect();
            boot_record(&disk, at, &entries);
        }
        if random.bool() {
            let counts = [0, 1, 4, 128, 1024, 1025, u32::MAX];
            let sizes = [0, 1, 128, 256, 4096, u32::MAX];
            let entries: Vec<_> =
                (0..4).map(|_| gpt_entry(number(&mut random), number(&mut random))).collect();
            let table = Table {
                sector: [512, 4096][random.usize(..2)],
                count: counts[random.usize(..counts.len())],
                size: if random.bool() { 128 } else { sizes[random.usize(..sizes.len())] },
                entries: &entries,
            };
            boot_record(&disk, 0, &[(0xee, 1, u32::MAX)]);
            let place = if random.bool() { 2 } else { number(&mut random) };
            table.write(&disk, 1, number(&mut random), place);
        }
        let Ok(Some(table)) = PartitionTable::of(&disk) else { continue };
        read[usize::from(table.kind == TableKind::Gpt)] += 1;
        assert!(table.partitions.len() <= 1024);
        assert!(table.partitions.iter().all(|p| p.bytes.start < p.bytes.end));
        table.holder(number(&mut random));
        for found in &table.partitions {
            table.overlapping(found);
            Ext4::at(&disk, found.bytes.start);
            for end in [None, Some(number(&mut random))] {
                if let Ok(growth) = PartitionGrowth::plan(&disk, 512, found.number, end) {
                    assert!(growth.size() >= found.bytes.end - found.bytes.start);
                    let _ = growth.apply(&disk);
                }
            }
        }
    }
    assert!(read.iter().all(|count| *count > 100), "tables that can be read: {read:?}");
}

#[test]
fn a_circle_of_logical_partitions_ends() {
    let disk = RamDevice::create(4 * MIB).unwrap();
    boot_record(&disk, 0, &[(0x05, 1, u32::MAX)]);
    boot_record(&disk, 1, &[(0x83, 1, 1), (0x05, 1, 1)]);
    boot_record(&disk, 2, &[(0x83, 1, 1), (0x05, 1, 1)]);
    assert!(table_of(&disk).partitions.len() < 300);
}

/// Runs a program of the host. `None`, with a message, if the host lacks it.
fn tool(line: &str, input: &str) -> Option<String> {
    let path = std::env::var("PATH").unwrap_or_default() + ":/sbin:/usr/sbin";
    let script = format!("printf '{input}' | {line} 2>&1");
    let program = line.split(' ').next().unwrap();
    let mut look = Command::new("sh");
    look.env("PATH", &path).args(["-c", "command -v \"$0\"", program]).stdout(Stdio::null());
    if !look.status().unwrap().success() {
        eprintln!("skipped: no {program}");
        return None;
    }
    let out = Command::new("sh").env("PATH", path).args(["-c", &script]).output().unwrap();
    Some(String::from_utf8_lossy(&out.stdout).into_owned())
}

/// Returns a disk of 64 MiB that sfdisk has partitioned.
fn sfdisk(dir: &Path, script: &str) -> Option<PathBuf> {
    let path = dir.join("d@k.img");
    drop(FileDevice::create(&path, 64 * MIB).unwrap());
    tool(&format!("sfdisk -q {}", path.display()), script)?;
    Some(path)
}

/// Writes the magic number, label and UUID of an ext4 file system at byte `at`.
fn ext4_at(disk: &Path, at: u64, label: &str) {
    let disk = FileDevice::open(disk, Access::ReadWrite, OpenOptions::default()).unwrap();
    let mut bytes = [0; 0x88];
    bytes[0x38..0x3a].copy_from_slice(&[0x53, 0xef]);
    bytes[0x68..0x78].copy_from_slice(&[7; 16]);
    bytes[0x78..0x78 + label.len()].copy_from_slice(label.as_bytes());
    disk.write_at(at + 1024, &bytes).unwrap();
}

#[test]
fn a_name_chooses_a_partition() {
    let dir = tempfile::tempdir().unwrap();
    let script = "label: gpt\n\
        size=8M, name=\"boot\", uuid=11111111-2222-3333-4444-555555555555\n\
        size=16M, name=\"two\"\nsize=8M, name=\"two\", type=S\n\
        size=8M, type=4f68bce3-e8cd-4db1-96e7-fbcaf984b709\n";
    let Some(path) = sfdisk(dir.path(), script) else { return };
    let open = |which: &str, pick| {
        let name = format!("{}{which}", path.display());
        FileDevice::open(name, Access::ReadWrite, OpenOptions { pick, ..part_at(0, None) })
    };
    let number = |which: &str| open(which, Pick::Nothing).unwrap().partition().unwrap().number;
    let why = |which: &str, pick| open(which, pick).unwrap_err().to_string();
    ext4_at(&path, 9 * MIB, "root");
    assert_eq!(number("@1"), 1);
    assert_eq!(number("@name=boot"), 1);
    assert_eq!(number("@partuuid=11111111-2222-3333-4444-555555555555"), 1);
    assert_eq!(number("@label=root"), 2);
    assert_eq!(number("@uuid=07070707-0707-0707-0707-070707070707"), 2);
    let root = if cfg!(target_arch = "x86_64") { 4 } else { 2 };
    assert_eq!(number("@root"), root);
    assert_eq!(open("@2", Pick::Nothing).unwrap().len(), 16 * MIB);
    assert_eq!(open("", Pick::Nothing).unwrap().len(), 64 * MIB, "the whole disk");
    let picked = open("", Pick::OnlyExt4).unwrap();
    assert_eq!((picked.start(), picked.len()), (9 * MIB, 16 * MIB));
    assert!(picked.notes()[0].contains("partition 2"), "{:?}", picked.notes());
    let other = picked.beside(format!("{}@1", path.display()), OpenOptions::default()).unwrap();
    assert_eq!(other.start(), MIB);
    other.write_at(0, &[1]).unwrap();
    let same = picked.beside(format!("{}@2", path.display()), OpenOptions::default());
    assert!(matches!(same, Err(OpenError::InUse { .. })));
    drop(picked);
    assert!(
        matches!(open("@2", Pick::Nothing), Err(OpenError::InUse { .. })),
        "the lock is shared"
    );
    drop(other);
    assert!(why("@name=two", Pick::Nothing).contains("2 \"root\" (16 MiB), 3 \"two\" (8 MiB)"));
    assert!(why("@9", Pick::Nothing).contains("no partition is 9: it has 1 \"boot\" (8 MiB), 2"));
    assert!(why("@99999999999", Pick::Nothing).contains("no partition is 99999999999"));
    assert!(why("@label=none", Pick::Nothing).contains("no partition is label=none"));
    ext4_at(&path, MIB, "");
    let several = why("", Pick::OnlyExt4);
    assert!(several.contains("choose one with @NUMBER: 1 \"boot\" (8 MiB), 2"), "{several}");
    // What is no name of a partition is a part of the file's name, and such a file wins.
    for name in ["@two", "@", "@name=", "@-1", "@+1"] {
        assert!(why(name, Pick::Nothing).contains("after @ comes a number"), "{name}");
    }
    assert!(why("@2/x", Pick::Nothing).contains("after @"));
    assert!(why(".copy@x", Pick::Nothing).contains("No such file"), "no such disk");
    drop(FileDevice::create(dir.path().join("d@k.img@2"), MIB).unwrap());
    assert_eq!(open("@2", Pick::Nothing).unwrap().len(), MIB);
}

#[test]
fn overlapping_partitions_are_read_but_not_written() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk");
    let disk = FileDevice::create(&path, 16 * MIB).unwrap();
    boot_record(&disk, 0, &[(0x83, 2048, 4096), (0x83, 4096, 4096), (0x83, 16384, u32::MAX)]);
    drop(disk);
    let open = |which, access| {
        FileDevice::open(format!("{}@{which}", path.display()), access, OpenOptions::default())
    };
    open(1, Access::ReadOnly).unwrap();
    let why = open(1, Access::ReadWrite).unwrap_err().to_string();
    assert!(why.contains("partitions 1 and 2 overlap"), "{why}");
    let cut = open(3, Access::ReadWrite).unwrap();
    assert_eq!(cut.len(), 8 * MIB, "a partition ends with the disk");
    cut.write_at(8 * MIB, &[0]).unwrap_err();
}

/// Grows partition 2 from 16 MiB to 32 MiB, and passes each state that a crash can leave to
/// `judge`, with whether the growth was complete. `lengthened` bytes are added to the disk first.
fn cut_growth(path: &Path, lengthened: u64, judge: impl Fn(&Path, bool)) {
    let file = std::fs::File::options().write(true).open(path).unwrap();
    file.set_len(64 * MIB + lengthened).unwrap();
    let disk = RecordingDevice::new(Arc::new(RamDevice::from_file(path).unwrap())).unwrap();
    let plan = |disk: &dyn Device| PartitionGrowth::plan(disk, 512, 2, Some(41 * MIB)).unwrap();
    plan(&disk).apply(&disk).unwrap();
    let recording = disk.recording();
    let mut replay = recording.replay();
    let state = path.with_extension("state");
    let mut torn_states = 0;
    for cut in 0..=recording.events().len() {
        let torn = (0..2).map(|seed| Kept::Torn { seed });
        for kept in [Kept::All, Kept::None].into_iter().chain(torn) {
            let crashed = replay.state(cut, kept);
            let end = |disk: &dyn Device| table_of(disk).partitions[1].bytes.end;
            assert!([25 * MIB, 41 * MIB].contains(&end(&crashed)), "cut {cut}, {kept:?}");
            torn_states += u32::from(table_of(&crashed).copy == TableCopy::Backup);
            let _ = std::fs::remove_file(&state);
            crashed.to_file(&state).unwrap();
            judge(&state, false);
            plan(&crashed).apply(&crashed).unwrap();
            assert_eq!((end(&crashed), table_of(&crashed).copy), (41 * MIB, TableCopy::Primary));
            std::fs::remove_file(&state).unwrap();
            crashed.to_file(&state).unwrap();
            judge(&state, true);
        }
    }
    assert_eq!(torn_states > 0, table_of(&disk).kind == TableKind::Gpt);
}

const TWO: &str = "size=8M, type=L\nsize=16M, type=L\n";

#[test]
fn after_a_crash_at_any_write_of_a_growth_tools_find_a_table_and_a_second_run_completes_it() {
    let dir = tempfile::tempdir().unwrap();
    for (label, lengthened) in [("gpt", 0), ("gpt", 4096), ("gpt", 16 * MIB), ("dos", 0)] {
        let script = format!("label: {label}\n{TWO}");
        let Some(path) = sfdisk(dir.path(), &script) else { return };
        cut_growth(&path, lengthened, |state, is_done| {
            let state = state.display();
            let Some(kind) = tool(&format!("blkid -p -s PTTYPE -o value {state}"), "") else {
                return;
            };
            assert_eq!(kind.trim(), label);
            let ends = tool(&format!("sfdisk -d {state}"), "").unwrap();
            let size = |mib: u64| format!("size={:>12}", mib * 2048);
            assert!(ends.contains(&size(32)) || !is_done && ends.contains(&size(16)), "{ends}");
            if label == "gpt"
                && let Some(said) = tool(&format!("sgdisk -p {state}"), "")
            {
                let (new, old) = ("83967", "51199");
                assert!(said.contains(new) || !is_done && said.contains(old), "{said}");
                let verified = tool(&format!("sgdisk -v {state}"), "").unwrap();
                assert!(!is_done || verified.contains("No problems found"), "{verified}");
            }
        });
        std::fs::remove_file(path).unwrap();
    }
}

#[test]
fn growth_is_refused_before_a_write_if_something_is_in_the_way() {
    let dir = tempfile::tempdir().unwrap();
    let Some(path) = sfdisk(dir.path(), &format!("label: gpt\n{TWO}")) else { return };
    let disk = RamDevice::from_file(&path).unwrap();
    let plan = |number, end| PartitionGrowth::plan(&disk, 512, number, end);
    let in_the_way = plan(1, Some(10 * MIB)).err();
    let (number, end, other, start) = (1, 10 * MIB, 2, 9 * MIB);
    assert_eq!(in_the_way, Some(PartitionError::InTheWay { number, end, other, start }));
    assert_eq!(plan(1, None).unwrap().size(), 8 * MIB, "no room");
    assert!(matches!(plan(3, None), Err(PartitionError::NoGrowth { .. })));
    let all = plan(2, None).unwrap();
    assert_eq!((all.size(), all.disk_len()), (55 * MIB - 20480, 64 * MIB));
    assert_eq!(plan(2, Some(64 * MIB)).unwrap().disk_len(), 65 * MIB);
    // The backup table would be written over what is left of a partition that was cut off.
    let gap = "size=4M, type=L\nstart=32M, size=16M, type=L\n";
    std::fs::remove_file(&path).unwrap();
    let path = sfdisk(dir.path(), &format!("label: gpt\n{gap}")).unwrap();
    std::fs::File::options().write(true).open(&path).unwrap().set_len(40 * MIB).unwrap();
    let disk = RamDevice::from_file(&path).unwrap();
    for end in [None, Some(8 * MIB)] {
        let refused = PartitionGrowth::plan(&disk, 512, 1, end).err();
        assert!(matches!(refused, Some(PartitionError::NoGrowth { .. })), "{refused:?}");
    }
    // A logical partition would need its container to grow.
    let logical = "label: dos\nsize=8M, type=L\nsize=40M, type=E\nsize=8M, type=L\n";
    std::fs::remove_file(&path).unwrap();
    let path = sfdisk(dir.path(), logical).unwrap();
    let disk = RamDevice::from_file(&path).unwrap();
    for number in [2, 5] {
        assert!(PartitionGrowth::plan(&disk, 512, number, Some(60 * MIB)).is_err());
    }
}
