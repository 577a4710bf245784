//! The fields of a header block.

use crate::error::Cause;
use std::ops::Range;

/// The size of a header in bytes. Everything in an archive takes a multiple of this size.
pub(crate) const BLOCK: usize = 512;

const CHECKSUM: Range<usize> = 148..156;

/// Returns whether a block has the magic of the formats ustar, GNU and pax.
pub(crate) fn has_magic(block: &[u8; BLOCK]) -> bool {
    block.get(257..262) == Some(b"ustar")
}

/// Whose reading of an archive is followed where programs differ: in names that are stated twice,
/// global headers, names that end in a slash, and incomplete records of sparse files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// GNU tar's, for plain archives.
    Gnu,
    /// That of Go's package `archive/tar`, for layers and archives of container images, because
    /// docker, containerd, podman and buildah read them with it. Otherwise an image could hold files
    /// that they never see.
    Go,
}

/// A header whose checksum was found to be right.
pub(crate) struct Header(Box<[u8; BLOCK]>);

impl Header {
    /// Checks the checksum. Returns `None` for a block of zeros, which ends the archive.
    pub(crate) fn check(bytes: &[u8; BLOCK]) -> Result<Option<Header>, Cause> {
        if bytes.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        let header = Header(Box::new(*bytes));
        // The sum of the bytes as unsigned numbers and their sum as signed numbers are both valid,
        // because old programs added up signed bytes.
        let (mut unsigned, mut signed) = (0u64, 0i64);
        for (at, byte) in header.0.iter().enumerate() {
            let byte = if CHECKSUM.contains(&at) { b' ' } else { *byte };
            unsigned += u64::from(byte);
            signed += i64::from(byte as i8);
        }
        let stored = octal(header.field(CHECKSUM)).ok_or(Cause::HeaderChecksum)?;
        match stored == unsigned || i64::try_from(stored) == Ok(signed) {
            true => Ok(Some(header)),
            false => Err(Cause::HeaderChecksum),
        }
    }

    fn field(&self, range: Range<usize>) -> &[u8] {
        self.0.get(range).unwrap_or_default()
    }

    /// Returns the text of a field up to a NUL.
    fn text(&self, range: Range<usize>) -> &[u8] {
        self.field(range).split(|byte| *byte == 0).next().unwrap_or_default()
    }

    fn number(&self, range: Range<usize>, field: &'static str) -> Result<i64, Cause> {
        number(self.field(range)).ok_or(Cause::HeaderField { field })
    }

    fn unsigned(&self, range: Range<usize>, field: &'static str) -> Result<u64, Cause> {
        let number = self.number(range, field)?;
        u64::try_from(number).map_err(|_| Cause::HeaderField { field })
    }

    fn id(&self, range: Range<usize>, field: &'static str) -> Result<u32, Cause> {
        let number = self.number(range, field)?;
        // On systems whose ids are signed, GNU tar writes negative ids, such as -1.
        u32::try_from(number)
            .or_else(|_| i32::try_from(number).map(|id| id as u32))
            .map_err(|_| Cause::HeaderField { field })
    }

    /// Returns whether the header has the magic of the formats ustar and pax.
    pub(crate) fn is_ustar(&self) -> bool {
        self.field(257..263) == b"ustar\0"
    }

    fn is_gnu(&self) -> bool {
        self.field(257..265) == b"ustar  \0"
    }

    /// Returns the name. If the header has a prefix as in the ustar format, the prefix is put
    /// before the name.
    pub(crate) fn name(&self, dialect: Dialect) -> Vec<u8> {
        let name = self.text(0..100);
        let prefix = self.prefix(dialect);
        match prefix.is_empty() {
            true => name.to_vec(),
            false => [prefix, b"/", name].concat(),
        }
    }

    fn prefix(&self, dialect: Dialect) -> &[u8] {
        let is_ustar = self.is_ustar();
        match dialect {
            // In the format of Schily's tar the prefix is shorter, and two times follow it.
            Dialect::Go if is_ustar && self.field(508..512) == b"tar\0" => self.text(345..476),
            _ if is_ustar => self.text(345..500),
            // Versions of Go before 1.8 wrote a prefix in the place of the two times of GNU tar.
            Dialect::Go if self.is_gnu() && !self.has_times() => {
                let prefix = self.text(345..500);
                if prefix.is_ascii() { prefix } else { &[] }
            }
            _ => &[],
        }
    }

    /// Returns whether Go would accept the times of a header of GNU tar as numbers.
    fn has_times(&self) -> bool {
        [345..357, 357..369].into_iter().all(|range| match self.field(range) {
            [0, ..] => true,
            field @ [0x80..=0xff, ..] => number(field).is_some(),
            field => {
                let mut blanks = field.split(|byte| !matches!(byte, b' ' | 0));
                let (before, after) = (blanks.next(), blanks.next_back());
                let before = before.map_or(0, <[u8]>::len);
                let end = field.len() - after.map_or(0, <[u8]>::len);
                let digits = field.get(before..end).unwrap_or_default();
                let digits = digits.split(|byte| *byte == 0).next().unwrap_or_default();
                digits.iter().all(|byte| matches!(byte, b'0'..=b'7'))
            }
        })
    }

    pub(crate) fn link_name(&self) -> Vec<u8> {
        self.text(157..257).to_vec()
    }

    pub(crate) fn kind(&self) -> u8 {
        self.0.get(156).copied().unwrap_or(0)
    }

    pub(crate) fn permissions(&self) -> Result<u16, Cause> {
        Ok((self.number(100..108, "mode")? & 0o7777) as u16)
    }

    pub(crate) fn uid(&self) -> Result<u32, Cause> {
        self.id(108..116, "uid")
    }

    pub(crate) fn gid(&self) -> Result<u32, Cause> {
        self.id(116..124, "gid")
    }

    pub(crate) fn size(&self) -> Result<u64, Cause> {
        self.unsigned(124..136, "size")
    }

    pub(crate) fn mtime(&self) -> Result<i64, Cause> {
        self.number(136..148, "mtime")
    }

    /// Returns the access time and the change time, which GNU tar stores in incremental archives.
    pub(crate) fn gnu_times(&self) -> (Option<i64>, Option<i64>) {
        let time = |range: Range<usize>| {
            let field = self.field(range);
            let is_set = self.is_gnu() && field.iter().any(|byte| *byte != 0);
            number(field).filter(|_| is_set)
        };
        (time(345..357), time(357..369))
    }

    pub(crate) fn device_major(&self) -> Result<u32, Cause> {
        self.device_number(329..337)
    }

    pub(crate) fn device_minor(&self) -> Result<u32, Cause> {
        self.device_number(337..345)
    }

    fn device_number(&self, range: Range<usize>) -> Result<u32, Cause> {
        let field = "device number";
        let number = self.number(range, field)?;
        u32::try_from(number).map_err(|_| Cause::HeaderField { field })
    }

    /// Returns the four map entries in the header of a GNU sparse file, whether more entries
    /// follow, and the size of the file.
    pub(crate) fn gnu_sparse(&self) -> Result<(&[u8], bool, u64), Cause> {
        if !self.is_gnu() {
            return Err(Cause::HeaderField { field: "magic" });
        }
        let more = self.0.get(482).is_some_and(|byte| *byte != 0);
        Ok((self.field(386..482), more, self.unsigned(483..495, "size")?))
    }
}

/// Parses a field of octal digits, or a binary field, in which the highest bit of the first byte is
/// set.
pub(crate) fn number(field: &[u8]) -> Option<i64> {
    let (first, rest) = field.split_first()?;
    match first {
        0x80 | 0xff => {
            let sign = if *first == 0xff { -1i64 } else { 0 };
            rest.iter()
                .try_fold(sign, |value, byte| value.checked_mul(256)?.checked_add(i64::from(*byte)))
        }
        0x81..0xff => None,
        _ => i64::try_from(octal(field)?).ok(),
    }
}

/// Parses octal digits between spaces and NULs; an empty field is 0.
fn octal(field: &[u8]) -> Option<u64> {
    let is_blank = |byte: &u8| *byte == b' ' || *byte == 0;
    let digits = field.iter().skip_while(|byte| is_blank(byte));
    let mut value = 0u64;
    let mut ended = false;
    for byte in digits {
        match byte {
            b'0'..=b'7' if !ended => {
                value = value.checked_mul(8)?.checked_add(u64::from(byte - b'0'))?;
            }
            byte if is_blank(byte) => ended = true,
            // What follows a blank or NUL is ignored, because some programs leave garbage after a
            // NUL.
            _ if ended => {}
            _ => return None,
        }
    }
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_octal_or_binary() {
        assert_eq!(number(b"0000644\0"), Some(0o644));
        assert_eq!(number(b"   644 \0"), Some(0o644));
        assert_eq!(number(b"\0\0\0\0"), Some(0));
        assert_eq!(number(b"12a\0"), None);
        assert_eq!(number(&[0x80, 0, 0, 0, 1, 0, 0, 0]), Some(1 << 24));
        assert_eq!(number(&[0xff; 12]), Some(-1));
        assert_eq!(number(&[0x80, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]), None);
    }
}
