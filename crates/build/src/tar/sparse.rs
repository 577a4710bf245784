//! Maps of sparse files, in the four forms of GNU tar.

use super::header::{BLOCK, Dialect, Header, number};
use super::pax::Records;
use crate::error::Cause;
use std::io::Read;

/// The limit on the number of pieces. Real files have fewer, and each piece takes 16 bytes of
/// memory.
const MOST_PIECES: usize = 1 << 20;

/// The pieces of a sparse file that the archive holds, and the size of the file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Map {
    pub(crate) size: u64,
    /// The offset and length of each piece, in ascending order.
    pub(crate) pieces: Vec<(u64, u64)>,
}

impl Map {
    /// Checks that the pieces are in order, and that their total length is that of the data in the
    /// archive.
    fn check(self, stored: u64) -> Result<Map, Cause> {
        let mut reached = 0u64;
        let mut total = 0u64;
        for &(offset, len) in &self.pieces {
            let end = offset.checked_add(len).ok_or(Cause::Sparse)?;
            if offset < reached || end > self.size {
                return Err(Cause::Sparse);
            }
            reached = end;
            total += len;
        }
        if total == stored { Ok(self) } else { Err(Cause::Sparse) }
    }
}

/// Reads the map of an entry of type 'S': four pieces in the header, then 21 in each block. `stored`
/// is the number of bytes in the archive.
pub(crate) fn old_gnu(header: &Header, stored: u64, input: &mut dyn Read) -> Result<Map, Cause> {
    let (entries, mut more, size) = header.gnu_sparse()?;
    let mut map = Map { size, pieces: Vec::new() };
    add(&mut map, entries)?;
    while more {
        let mut block = [0; BLOCK];
        input.read_exact(&mut block).map_err(ended)?;
        add(&mut map, block.get(..21 * 24).unwrap_or_default())?;
        more = block.get(504).is_some_and(|byte| *byte != 0);
    }
    map.check(stored)
}

fn add(map: &mut Map, entries: &[u8]) -> Result<(), Cause> {
    for entry in entries.chunks_exact(24) {
        let (offset, len) = entry.split_at_checked(12).ok_or(Cause::Sparse)?;
        // Go and libarchive look for the end of the map in the offsets, GNU tar in the lengths.
        match (offset.first(), len.first()) {
            (Some(0), Some(0)) => break,
            (Some(0), _) | (_, Some(0)) => return Err(Cause::Sparse),
            _ => {}
        }
        let part = |field| number(field).and_then(|n| u64::try_from(n).ok()).ok_or(Cause::Sparse);
        push(map, (part(offset)?, part(len)?))?;
    }
    Ok(())
}

fn push(map: &mut Map, piece: (u64, u64)) -> Result<(), Cause> {
    if map.pieces.len() >= MOST_PIECES {
        return Err(Cause::Sparse);
    }
    map.pieces.push(piece);
    Ok(())
}

/// The forms of a map in records of pax.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Version {
    /// Versions 0.0 and 0.1: the map is in the records.
    InRecords,
    /// Version 1.0: the map is in the data.
    InData,
}

/// Returns the form of the map if the records describe a sparse file.
pub(crate) fn version(records: &Records, dialect: Dialect) -> Result<Option<Version>, Cause> {
    let shown = |part: Option<&[u8]>| String::from_utf8_lossy(part.unwrap_or(b"?")).into_owned();
    let has = |key| records.get(key).is_some();
    match (records.get("GNU.sparse.major"), records.get("GNU.sparse.minor")) {
        (Some(b"1"), Some(b"0")) => Ok(Some(Version::InData)),
        (Some(b"0"), Some(b"0" | b"1")) => Ok(Some(Version::InRecords)),
        (None, None) if has("GNU.sparse.map") || !records.sparse.is_empty() => {
            Ok(Some(Version::InRecords))
        }
        // A size without a map is nothing to Go, a hole to libarchive, and the length of the data
        // to GNU tar.
        (None, None) => match has("GNU.sparse.size") || has("GNU.sparse.realsize") {
            true if dialect == Dialect::Gnu => Err(Cause::Sparse),
            _ => Ok(None),
        },
        (major, minor) => {
            let what = format!("version {}.{} of sparse files", shown(major), shown(minor));
            Err(Cause::Unsupported { what })
        }
    }
}

/// Returns the map of an entry with pax records, if the entry is a sparse file. `stored` is the
/// number of bytes in the archive. In format 1.0 these bytes begin with the map, so the number of
/// bytes after the map is returned too.
pub(crate) fn of_records(
    records: &Records,
    dialect: Dialect,
    stored: u64,
    input: &mut dyn Read,
) -> Result<Option<(Map, u64)>, Cause> {
    let Some(version) = version(records, dialect)? else { return Ok(None) };
    let size = records.number("GNU.sparse.size")?;
    let size = size.map_or_else(|| records.number("GNU.sparse.realsize"), |size| Ok(Some(size)))?;
    let (pieces, stored) = match version {
        Version::InData => {
            let (pieces, taken) = in_data(input, stored)?;
            (pieces, stored - taken)
        }
        Version::InRecords => match (records.get("GNU.sparse.map"), records.sparse.as_slice()) {
            (Some(map), []) => (in_text(map)?, stored),
            (Some(_), _) | (None, []) => return Err(Cause::Sparse),
            (None, pieces) => (pieces.to_vec(), stored),
        },
    };
    let size = match (size, version) {
        (Some(size), _) => size,
        (None, Version::InRecords) => stored,
        (None, Version::InData) => return Err(Cause::Sparse),
    };
    Ok(Some((Map { size, pieces }.check(stored)?, stored)))
}

/// Parses "offset,length,offset,length,...".
fn in_text(text: &[u8]) -> Result<Vec<(u64, u64)>, Cause> {
    let text = std::str::from_utf8(text).map_err(|_| Cause::Sparse)?;
    let numbers: Result<Vec<u64>, _> = text.split(',').map(str::parse).collect();
    let numbers = numbers.map_err(|_| Cause::Sparse)?;
    match numbers.as_chunks() {
        (pairs, []) => Ok(pairs.iter().map(|[offset, len]| (*offset, *len)).collect()),
        _ => Err(Cause::Sparse),
    }
}

/// Reads the map at the start of the data. The map consists of lines with decimal numbers: the
/// number of pieces, then the offset and length of each. Reads whole blocks.
fn in_data(input: &mut dyn Read, stored: u64) -> Result<(Vec<(u64, u64)>, u64), Cause> {
    let mut taken = 0u64;
    let mut block = [0u8; BLOCK];
    let mut at = BLOCK;
    let mut next = || -> Result<u64, Cause> {
        let mut value = 0u64;
        let mut digits = 0;
        loop {
            if at == BLOCK {
                if taken + BLOCK as u64 > stored {
                    return Err(Cause::Sparse);
                }
                input.read_exact(&mut block).map_err(ended)?;
                taken += BLOCK as u64;
                at = 0;
            }
            let byte = block.get(at).copied().unwrap_or(0);
            at += 1;
            match byte {
                b'0'..=b'9' => {
                    let digit = u64::from(byte - b'0');
                    let more = value.checked_mul(10).and_then(|value| value.checked_add(digit));
                    value = more.ok_or(Cause::Sparse)?;
                    digits += 1;
                }
                b'\n' if digits > 0 => return Ok(value),
                _ => return Err(Cause::Sparse),
            }
        }
    };
    let count = usize::try_from(next()?).map_err(|_| Cause::Sparse)?;
    if count > MOST_PIECES {
        return Err(Cause::Sparse);
    }
    let mut pieces = Vec::new();
    for _ in 0..count {
        pieces.push((next()?, next()?));
    }
    Ok((pieces, taken))
}

/// Converts a read error. An input that ends in the middle of an entry is reported as a truncated
/// archive.
pub(super) fn ended(error: std::io::Error) -> Cause {
    match error.kind() {
        std::io::ErrorKind::UnexpectedEof => Cause::Truncated,
        _ => Cause::Io(error),
    }
}
