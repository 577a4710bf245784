//! The data of a regular file, without its holes.

use super::archive::{Archive, BLOCK};
use crate::cli::{Failure, Report};
use crate::copy::TreeFile;
use std::fmt::Write;
use std::io;

/// The number of bytes read at once.
const CHUNK: u64 = 1 << 20;

/// The parts of a file that the archive stores: all but the holes.
#[derive(Debug)]
pub struct Pieces {
    /// The size of the file in bytes.
    pub size: u64,
    /// The offset and length of each part, in ascending order.
    parts: Vec<(u64, u64)>,
    /// The map that precedes the data of a file with holes, in GNU's sparse format 1.0. Empty for a
    /// file without holes.
    map: Vec<u8>,
}

impl Pieces {
    /// Returns whether the file has holes.
    pub fn is_sparse(&self) -> bool {
        !self.map.is_empty()
    }

    /// Returns the number of bytes that the map and the data take in the archive.
    pub fn stored(&self) -> u64 {
        self.map.len() as u64 + self.parts.iter().map(|(_, len)| len).sum::<u64>()
    }
}

/// Returns the pieces of a file of `size` bytes.
pub fn of(content: &mut impl TreeFile, size: u64) -> Result<Pieces, Failure> {
    let mut parts: Vec<(u64, u64)> = Vec::new();
    let (mut at, mut total) = (0, 0);
    while at < size {
        let Some((start, end)) = content.data_after(at)? else { break };
        let end = end.min(size);
        if start >= end {
            break;
        }
        parts.push((start, end - start));
        total += end - start;
        at = end;
    }
    if total == size {
        return Ok(Pieces { size, parts, map: Vec::new() });
    }
    // An empty piece marks a hole at the end.
    if at < size {
        parts.push((size, 0));
    }
    let mut map = format!("{}\n", parts.len());
    for (start, len) in &parts {
        // Writing to a string does not fail.
        let _ = write!(map, "{start}\n{len}\n");
    }
    let mut map = map.into_bytes();
    map.resize(map.len().next_multiple_of(BLOCK), 0);
    Ok(Pieces { size, parts, map })
}

/// Writes map and data. If a part cannot be read, reports the failure and writes zeros in its
/// place, because the header has already stated the length.
pub fn write(
    pieces: &Pieces,
    content: &mut impl TreeFile,
    archive: &mut Archive,
    report: &Report,
) -> io::Result<()> {
    let mut failed = Ok(());
    let done = (|| {
        archive.bytes(&pieces.map)?;
        let longest = pieces.parts.iter().map(|(_, len)| *len).max().unwrap_or(0);
        let mut buf = vec![0; longest.min(CHUNK) as usize];
        for &(start, len) in &pieces.parts {
            let mut at = start;
            while at < start + len {
                let want = (start + len - at).min(CHUNK) as usize;
                let Some(part) = buf.get_mut(..want) else { break };
                if let Err(failure) = content.fill(at, part) {
                    part.fill(0);
                    failed = Err(failure);
                }
                archive.bytes(part)?;
                at += want as u64;
            }
        }
        archive.pad(pieces.stored())
    })();
    report.check(failed);
    done
}
