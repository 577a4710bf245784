//! An archive in blocks: the headers of its files, and their data without holes.

use crate::cli::{Failure, Report, UserNames, entry_text};
use crate::copy::{Attribute, Meta, TreeFile};
use lanefs::Time;
use lanefs_build::base64;
use lanefs_ondisk::acl::Acl;
use std::fmt::Write as _;
use std::io::{self, Write};

/// The size of a block in bytes.
pub const BLOCK: usize = 512;
/// How many bytes are collected before they are written.
const BUFFER: usize = 1 << 20;

/// An archive that is being written.
pub struct Archive {
    out: io::BufWriter<Box<dyn Write>>,
}

impl Archive {
    /// Begins an archive.
    pub fn new(out: Box<dyn Write>) -> Archive {
        Archive { out: io::BufWriter::with_capacity(BUFFER, out) }
    }

    /// Writes bytes.
    pub fn bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.out.write_all(bytes)
    }

    /// Writes zeros after `len` bytes of data, up to the end of their last block.
    pub fn pad(&mut self, len: u64) -> io::Result<()> {
        let rest = (len % BLOCK as u64) as usize;
        let padding = if rest == 0 { 0 } else { BLOCK - rest };
        self.bytes([0; BLOCK].get(..padding).unwrap_or_default())
    }

    /// Writes the end mark: two blocks of zeros.
    pub fn finish(&mut self) -> io::Result<()> {
        self.bytes(&[0; 2 * BLOCK])?;
        self.out.flush()
    }
}

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
pub fn pieces_of(content: &mut impl TreeFile, size: u64) -> Result<Pieces, Failure> {
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
pub fn write_pieces(
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

// Headers: the ustar format (POSIX.1-1988), and records of the pax format (POSIX.1-2001) where a
// field is too small or missing.

/// The times that are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Times {
    /// Only the time of the last data change, in whole seconds, in the header block. Extended
    /// headers store no times.
    None,
    /// The time of the last change of the data.
    Changed,
    /// The times of the last access, data change and inode change.
    All,
}

/// The type of a file, with the values that this type needs.
pub enum Kind<'a> {
    Regular(&'a Pieces),
    Directory,
    /// Another name of a file. The archive already contains the file, under the name given here.
    Link(&'a [u8]),
    Symlink(&'a [u8]),
    CharDevice,
    BlockDevice,
    Fifo,
}

/// The header of an entry.
pub struct Header<'a> {
    pub name: &'a [u8],
    pub meta: &'a Meta,
    pub kind: Kind<'a>,
    pub attributes: &'a [Attribute],
}

/// The largest numbers that fit into octal fields of 8 and 12 bytes.
const MOST_8: u64 = (1 << 21) - 1;
const MOST_12: u64 = (1 << 33) - 1;
const NAME: usize = 100;

impl Header<'_> {
    /// Writes the header. If an extended header is needed, writes that one first.
    pub fn write(&self, times: Times, archive: &mut Archive) -> io::Result<()> {
        let records = self.records(times);
        if !records.is_empty() {
            let name = [b"./PaxHeaders/", base(self.name)].concat();
            let mut block = Block::new(&name, b'x');
            block.octal(100, 8, 0o644);
            block.octal(124, 12, records.len() as u64);
            archive.bytes(&block.finish())?;
            archive.bytes(&records)?;
            archive.pad(records.len() as u64)?;
        }
        archive.bytes(&self.block())
    }

    fn sparse(&self) -> Option<&Pieces> {
        match self.kind {
            Kind::Regular(pieces) if pieces.is_sparse() => Some(pieces),
            _ => None,
        }
    }

    fn link(&self) -> &[u8] {
        match self.kind {
            Kind::Link(name) | Kind::Symlink(name) => name,
            _ => b"",
        }
    }

    fn stored(&self) -> u64 {
        match self.kind {
            Kind::Regular(pieces) => pieces.stored(),
            _ => 0,
        }
    }

    fn block(&self) -> [u8; BLOCK] {
        let Meta { permissions, uid, gid, mtime, rdev, .. } = *self.meta;
        let (letter, is_device) = match self.kind {
            Kind::Regular(_) => (b'0', false),
            Kind::Link(_) => (b'1', false),
            Kind::Symlink(_) => (b'2', false),
            Kind::CharDevice => (b'3', true),
            Kind::BlockDevice => (b'4', true),
            Kind::Directory => (b'5', false),
            Kind::Fifo => (b'6', false),
        };
        let name = match self.sparse() {
            // A program that does not know the sparse format unpacks the map and the data under
            // this name.
            Some(_) => [b"./GNUSparseFile.0/", base(self.name)].concat(),
            None => self.name.to_vec(),
        };
        let mut block = Block::new(&name, letter);
        block.octal(100, 8, permissions.into());
        block.octal(108, 8, fitting(uid.into(), MOST_8));
        block.octal(116, 8, fitting(gid.into(), MOST_8));
        block.octal(124, 12, fitting(self.stored(), MOST_12));
        block.octal(136, 12, fitting(u64::try_from(mtime.secs).unwrap_or(0), MOST_12));
        block.text(157, NAME, self.link());
        if is_device {
            block.octal(329, 8, fitting(rdev.major.into(), MOST_8));
            block.octal(337, 8, fitting(rdev.minor.into(), MOST_8));
        }
        block.finish()
    }

    /// Returns one record for each value that the header's fields cannot hold.
    fn records(&self, times: Times) -> Vec<u8> {
        let Meta { uid, gid, atime, mtime, ctime, rdev, .. } = *self.meta;
        let mut records = Records::default();
        let is_text = |bytes: &[u8]| std::str::from_utf8(bytes).is_ok();
        let (sparse, link) = (self.sparse(), self.link());
        let is_name_recorded = self.name.len() > NAME || sparse.is_some();
        let is_link_recorded = link.len() > NAME;
        if is_name_recorded && !is_text(self.name) || is_link_recorded && !is_text(link) {
            records.add(b"hdrcharset", b"BINARY");
        }
        if let Some(pieces) = sparse {
            records.add(b"GNU.sparse.major", b"1");
            records.add(b"GNU.sparse.minor", b"0");
            records.add(b"GNU.sparse.name", self.name);
            records.number(b"GNU.sparse.realsize", pieces.size);
        } else if is_name_recorded {
            records.add(b"path", self.name);
        }
        if is_link_recorded {
            records.add(b"linkpath", link);
        }
        for (key, value, most) in [
            (&b"uid"[..], u64::from(uid), MOST_8),
            (b"gid", gid.into(), MOST_8),
            (b"size", self.stored(), MOST_12),
            (b"SCHILY.devmajor", rdev.major.into(), MOST_8),
            (b"SCHILY.devminor", rdev.minor.into(), MOST_8),
        ] {
            if value > most {
                records.number(key, value);
            }
        }
        let in_field = |time: Time| {
            time.nanos == 0 && u64::try_from(time.secs).is_ok_and(|secs| secs <= MOST_12)
        };
        if times != Times::None && !in_field(mtime) {
            records.add(b"mtime", &decimal(mtime));
        }
        if times == Times::All {
            records.add(b"atime", &decimal(atime));
            records.add(b"ctime", &decimal(ctime));
        }
        for (name, value) in self.attributes {
            records.attribute(name, value);
        }
        records.bytes
    }
}

fn fitting(value: u64, most: u64) -> u64 {
    if value <= most { value } else { 0 }
}

/// Returns the last name of a path.
fn base(path: &[u8]) -> &[u8] {
    let path = path.strip_suffix(b"/").unwrap_or(path);
    path.rsplit(|byte| *byte == b'/').next().unwrap_or_default()
}

/// Formats a time as decimal seconds, such as "-1.500000000", or "-1" if it has no fraction.
fn decimal(time: Time) -> Vec<u8> {
    let nanos = i128::from(time.secs) * 1_000_000_000 + i128::from(time.nanos);
    let sign = if nanos < 0 { "-" } else { "" };
    let (secs, fraction) =
        (nanos.unsigned_abs() / 1_000_000_000, nanos.unsigned_abs() % 1_000_000_000);
    let text = match fraction {
        0 => format!("{sign}{secs}"),
        _ => format!("{sign}{secs}.{fraction:09}"),
    };
    text.into_bytes()
}

/// A block that is being filled.
struct Block([u8; BLOCK]);

impl Block {
    fn new(name: &[u8], letter: u8) -> Block {
        let mut block = Block([0; BLOCK]);
        block.text(0, NAME, name);
        block.text(156, 1, &[letter]);
        block.text(257, 8, b"ustar\x0000");
        for (at, len) in [(108, 8), (116, 8), (124, 12), (136, 12)] {
            block.octal(at, len, 0);
        }
        block
    }

    fn text(&mut self, at: usize, len: usize, text: &[u8]) {
        let len = len.min(text.len());
        if let (Some(field), Some(text)) = (self.0.get_mut(at..at + len), text.get(..len)) {
            field.copy_from_slice(text);
        }
    }

    /// Fills a field with digits and a NUL.
    fn octal(&mut self, at: usize, len: usize, value: u64) {
        self.text(at, len, format!("{value:0width$o}\0", width = len - 1).as_bytes());
    }

    /// Adds the checksum. It is computed while the checksum field holds spaces.
    fn finish(mut self) -> [u8; BLOCK] {
        self.text(148, 8, b"        ");
        let sum: u64 = self.0.iter().map(|byte| u64::from(*byte)).sum();
        self.text(148, 8, format!("{sum:06o}\0 ").as_bytes());
        self.0
    }
}

/// The records of an extended header.
#[derive(Default)]
struct Records {
    bytes: Vec<u8>,
}

impl Records {
    /// Adds `"LEN KEY=VALUE\n"`, where LEN counts its own digits too.
    fn add(&mut self, key: &[u8], value: &[u8]) {
        let rest = key.len() + value.len() + 3;
        let mut len = rest + 1;
        while len != rest + len.to_string().len() {
            len = rest + len.to_string().len();
        }
        self.bytes.extend_from_slice(format!("{len} ").as_bytes());
        for part in [key, b"=", value, b"\n"] {
            self.bytes.extend_from_slice(part);
        }
    }

    fn number(&mut self, key: &[u8], value: u64) {
        self.add(key, value.to_string().as_bytes());
    }

    /// Adds an extended attribute. An access control list is added as text, as other programs
    /// expect.
    fn attribute(&mut self, name: &[u8], value: &[u8]) {
        let key: &[u8] = match name {
            b"system.posix_acl_access" => b"SCHILY.acl.access",
            b"system.posix_acl_default" => b"SCHILY.acl.default",
            _ => b"",
        };
        let list = if key.is_empty() { None } else { Acl::from_system(value).ok() };
        match list.and_then(|list| list) {
            Some(list) => self.add(key, list_as_text(&list).as_bytes()),
            // The key of a record ends at the first "=", and GNU tar decodes "%3D" and "%25" in a
            // key. Names with one of these characters need the encoding of libarchive.
            None if name.iter().any(|byte| matches!(byte, b'=' | b'%')) => {
                let key = [b"LIBARCHIVE.xattr.", percent(name).as_bytes()].concat();
                self.add(&key, base64::encode(value).as_bytes());
            }
            None => self.add(&[b"SCHILY.xattr.", name].concat(), value),
        }
    }
}

fn list_as_text(list: &Acl) -> String {
    let entry = |entry| entry_text(entry, &UserNames::numbers());
    list.entries().iter().map(entry).collect::<Vec<_>>().join(",")
}

fn percent(name: &[u8]) -> String {
    name.iter()
        .map(|byte| match byte {
            b'=' | b'%' | 0..=b' ' | 0x7f.. => format!("%{byte:02X}"),
            byte => char::from(*byte).to_string(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_counts_the_digits_of_its_length() {
        for len in [0, 1, 80, 85, 86, 87, 90, 980, 985, 990, 995, 9990] {
            let mut records = Records::default();
            records.add(b"path", &vec![b'x'; len]);
            let text = String::from_utf8(records.bytes).unwrap();
            let (said, _) = text.split_once(' ').unwrap();
            assert_eq!(said.parse::<usize>().unwrap(), text.len(), "{len}");
        }
    }

    #[test]
    fn times_are_decimal_also_before_1970() {
        let text = |secs, nanos| String::from_utf8(decimal(Time { secs, nanos })).unwrap();
        assert_eq!(text(1, 500_000_000), "1.500000000");
        assert_eq!(text(-2, 500_000_000), "-1.500000000");
        assert_eq!(text(-1, 0), "-1");
        assert_eq!(text(-1, 999_999_999), "-0.000000001");
    }
}
