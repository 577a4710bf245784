//! The names of partitions: `IMAGE@WHICH`.

use super::ext4::Ext4;
use super::mbr::Mbr;
use super::partition::{BadTable, Partition, PartitionTable, Read, TableCopy};
use crate::nbd::is_uri;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use thiserror::Error;

/// The types of a root partition in the Discoverable Partitions Specification.
const ROOT: &str = match std::env::consts::ARCH.as_bytes() {
    b"aarch64" => "b921b045-1df0-41c3-af44-4c6f280d3fae",
    b"riscv64" => "72ec70a6-cf74-40e6-bd49-4bda08e8f224",
    _ => "4f68bce3-e8cd-4db1-96e7-fbcaf984b709", // x86-64
};

/// What an image without `@WHICH` stands for, if it is a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Pick {
    /// The whole disk. Whatever formats or overwrites must ask for this.
    #[default]
    Nothing,
    /// Its only ext4 file system. Several are an error. The whole disk, if there is none.
    OnlyExt4,
}

/// Which partition of a disk is meant: `2`, `name=boot`, `root`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Which<'n> {
    text: &'n str,
    key: &'n str,
    value: &'n str,
}

impl Which<'_> {
    fn parse(text: &str) -> Option<Which<'_>> {
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let (key, value) = match text {
            "root" => (text, ROOT),
            _ if is_number => ("number", text),
            _ => text.split_once('=').filter(|(_, value)| !value.is_empty())?,
        };
        let keys = ["name", "label", "uuid", "partuuid"];
        let is_known = text == "root" || is_number || keys.contains(&key);
        is_known.then_some(Which { text, key, value })
    }

    fn is(&self, found: &Partition, read: Read<'_>) -> bool {
        let ext4 = || Ext4::read(found.bytes.start, read);
        match self.key {
            "number" => self.value.parse() == Ok(found.number),
            "name" => found.name == self.value,
            "partuuid" => found.uuid.eq_ignore_ascii_case(self.value),
            "label" => ext4().is_some_and(|ext4| ext4.label == self.value),
            "uuid" => ext4().is_some_and(|ext4| ext4.uuid.eq_ignore_ascii_case(self.value)),
            _ => found.kind == self.value,
        }
    }
}

/// Returns the file or block device of the image `name`: `name` without `@WHICH`. A file that has
/// the whole name wins.
pub fn file_of(name: &Path) -> &Path {
    split(name).0
}

pub(crate) fn split(name: &Path) -> (&Path, Option<Which<'_>>) {
    let bytes = name.as_os_str().as_bytes();
    if !bytes.contains(&b'@') || !is_uri(name) && name.symlink_metadata().is_ok() {
        return (name, None);
    }
    let ats = (0..bytes.len()).rev().filter(|at| bytes.get(*at) == Some(&b'@'));
    let parts = ats.filter_map(|at| bytes.split_at_checked(at));
    let found = parts.filter_map(|(file, which)| {
        let which = Which::parse(std::str::from_utf8(which.get(1..)?).ok()?)?;
        Some((Path::new(OsStr::from_bytes(file)), which))
    });
    let is_there = |file: &Path| is_uri(file) || file.metadata().is_ok_and(|found| !found.is_dir());
    let mut existing = found.filter(|(file, _)| is_there(file));
    existing.next().map_or((name, None), |(file, which)| (file, Some(which)))
}

/// Returns the file before the last `@` of `name`.
pub(crate) fn before_at(name: &Path) -> Option<&Path> {
    let bytes = name.as_os_str().as_bytes();
    let at = bytes.iter().rposition(|byte| *byte == b'@')?;
    Some(Path::new(OsStr::from_bytes(bytes.get(..at)?)))
}

/// Why a partition cannot be chosen.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PartitionError {
    /// There is no such file, and `@` is followed by no name of a partition of the disk.
    #[error(
        "no such file, and no name of a partition: after @ comes a number, name=, label=, uuid=, \
         partuuid= or root"
    )]
    NoName,
    /// The disk has no table.
    #[error("it has no partition table")]
    NoTable,
    /// The table cannot be used.
    #[error(transparent)]
    BadTable(#[from] BadTable),
    /// No partition matches.
    #[error("no partition is {which}: it has {found}")]
    NotFound {
        /// What was asked for.
        which: String,
        /// The partitions of the disk.
        found: String,
    },
    /// Several partitions match.
    #[error("several partitions have {which}, choose one with @NUMBER: {found}")]
    Several {
        /// What was asked for.
        which: String,
        /// The partitions that match.
        found: String,
    },
    /// The partition only holds logical partitions.
    #[error("partition {0} only holds logical partitions")]
    Extended(u32),
    /// Two partitions share bytes, so that none of them can be written.
    #[error("partitions {0} and {1} overlap")]
    Overlap(u32, u32),
    /// Another partition is where this one would grow.
    #[error(
        "partition {number} cannot grow to byte {end}: partition {other} begins at byte {start}"
    )]
    InTheWay {
        /// The partition that would grow.
        number: u32,
        /// The end that was asked for, in bytes.
        end: u64,
        /// The partition in the way.
        other: u32,
        /// Its start in bytes.
        start: u64,
    },
    /// The table has no room for such a change.
    #[error("partition {number} cannot grow: {why}")]
    NoGrowth {
        /// The partition that would grow.
        number: u32,
        /// The reason.
        why: &'static str,
    },
}

/// Lists partitions by number, label or name, and size.
fn list<'p>(partitions: impl Iterator<Item = &'p Partition>, read: Read<'_>) -> String {
    const LISTED: usize = 16;
    let shown = partitions.filter(|partition| !partition.is_extended).take(LISTED).map(|found| {
        let ext4 = Ext4::read(found.bytes.start, read);
        let label = ext4.map(|ext4| ext4.label).filter(|label| !label.is_empty());
        let name = label.unwrap_or_else(|| found.name.clone());
        let name = if name.is_empty() { name } else { format!(" {name:?}") };
        format!("{}{name} ({} MiB)", found.number, (found.bytes.end - found.bytes.start) >> 20)
    });
    let shown: Vec<String> = shown.collect();
    if shown.is_empty() { "no partitions".into() } else { shown.join(", ") }
}

impl PartitionTable {
    fn ext4<'t>(&'t self, read: Read<'t>) -> impl Iterator<Item = &'t Partition> {
        let holds = |found: &&Partition| Ext4::read(found.bytes.start, read).is_some();
        self.partitions.iter().filter(|found| !found.is_extended).filter(holds)
    }

    /// Returns the partition that `which` names.
    fn choose<'t>(
        &'t self,
        which: Which<'_>,
        read: Read<'t>,
    ) -> Result<&'t Partition, PartitionError> {
        let matches = |found: &&Partition| which.is(found, read);
        let mut found: Vec<&Partition> = self.partitions.iter().filter(matches).collect();
        if found.is_empty() && which.key == "root" {
            found = self.ext4(read).collect();
        }
        match found[..] {
            [one] if one.is_extended => Err(PartitionError::Extended(one.number)),
            [one] => Ok(one),
            [] => {
                let found = list(self.partitions.iter(), read);
                Err(PartitionError::NotFound { which: which.text.into(), found })
            }
            _ => {
                let found = list(found.into_iter(), read);
                Err(PartitionError::Several { which: which.text.into(), found })
            }
        }
    }
}

/// The part of a disk that a name and an offset stand for.
pub(crate) struct Place {
    /// Its first byte.
    pub start: u64,
    /// The partition that holds it. None if it begins at the start of the disk.
    pub partition: Option<Partition>,
    /// The number of another partition that shares bytes with the chosen one.
    pub overlaps: Option<u32>,
    /// What its user should know.
    pub notes: Vec<String>,
}

impl Place {
    /// Finds the part of a disk of `len` bytes with sectors of `sector` bytes: the byte `offset` of
    /// the partition `which`, or of the disk.
    pub(crate) fn find(
        which: Option<Which<'_>>,
        (offset, pick): (u64, Pick),
        (len, sector): (u64, u64),
        read: Read<'_>,
    ) -> Result<Place, PartitionError> {
        let whole = Place { start: offset, partition: None, overlaps: None, notes: Vec::new() };
        let Some(which) = which else {
            if offset == 0 && (pick == Pick::Nothing || Ext4::read(0, read).is_some()) {
                return Ok(whole);
            }
            // A table that cannot be used is as good as none: nobody asked for a partition.
            let Ok(Some(table)) = PartitionTable::read(len, sector, read) else { return Ok(whole) };
            if offset > 0 {
                return Ok(Place { partition: table.holder(offset).cloned(), ..whole });
            }
            // What is left of a GPT behind another format may be of long ago.
            let is_in_force = table.copy == TableCopy::Primary
                || Mbr::read(sector, read).is_some_and(|mbr| mbr.is_protective);
            return Ok(match *table.ext4(read).collect::<Vec<_>>() {
                _ if !is_in_force => whole,
                [] => whole,
                [one] => {
                    let (number, start, kind) = (one.number, one.bytes.start, table.kind);
                    let mut place = table.place(one, 0);
                    place.notes.push(format!(
                        "partition {number} (byte {start}), the only ext4 of its {kind} partition \
                         table"
                    ));
                    place
                }
                ref several => {
                    let found = list(several.iter().copied(), read);
                    return Err(PartitionError::Several { which: "ext4".into(), found });
                }
            });
        };
        let table = PartitionTable::read(len, sector, read)?.ok_or(PartitionError::NoTable)?;
        Ok(table.place(table.choose(which, read)?, offset))
    }
}

impl PartitionTable {
    fn place(&self, partition: &Partition, offset: u64) -> Place {
        let backup = "its primary GPT is damaged or missing: the backup is used";
        Place {
            start: partition.bytes.start.saturating_add(offset),
            partition: Some(partition.clone()),
            overlaps: self.overlapping(partition).map(|other| other.number),
            notes: if self.copy == TableCopy::Backup { vec![backup.into()] } else { Vec::new() },
        }
    }
}
