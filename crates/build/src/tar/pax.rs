//! Extended headers: records of key and value.

use crate::base64;
use crate::entry::Attribute;
use crate::error::Cause;
use lanefs_ondisk::Time;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The largest accepted size in bytes of all records that are in force for an entry.
const MOST_BYTES: usize = 16 << 20;

/// The approximate number of bytes of memory that a record takes beside its key and value. It
/// counts, because a header can consist of a million short records.
const PER_RECORD: usize = 64;

/// The records that are in force for an entry.
#[derive(Debug, Clone, Default)]
pub(crate) struct Records {
    /// The value of each key; `None` for a key that was removed.
    values: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    /// The records of global headers, in which keys that `values` lacks are looked up.
    pub(crate) global: Option<Arc<Records>>,
    /// The number of bytes that the keys, values and pieces take in memory, without those of
    /// `global`.
    bytes: usize,
    /// Offset and length of each piece in GNU's sparse format 0.0. They are not in `values`,
    /// because this format repeats the same keys for each piece.
    pub(crate) sparse: Vec<(u64, u64)>,
    offset: Option<u64>,
}

impl Records {
    /// Creates the records of an entry. At first these are the records of the global headers.
    pub(crate) fn below(global: &Arc<Records>) -> Records {
        Records { global: Some(global.clone()), ..Records::default() }
    }

    /// Adds the records of a header that describes one entry. As in GNU tar and Go, an earlier
    /// header of the same entry counts no longer, although its records count as memory.
    pub(crate) fn replace(&mut self, bytes: &[u8]) -> Result<(), Cause> {
        let earlier = std::mem::take(&mut self.values);
        (self.sparse, self.offset) = (Vec::new(), None);
        self.add(bytes)?;
        let again = earlier.iter().filter(|(key, _)| self.values.contains_key(*key));
        self.bytes -= again.map(|(key, value)| memory(key, value)).sum::<usize>();
        Ok(())
    }

    /// Adds the records of a header. A record replaces an earlier record with the same key. A
    /// record with an empty value only removes the earlier record, unless its key is that of an
    /// extended attribute (`SCHILY.xattr`), whose value may be empty.
    pub(crate) fn add(&mut self, bytes: &[u8]) -> Result<(), Cause> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let record = first(rest).ok_or(Cause::Record { key: String::new() })?;
            let (key, value, after) = record;
            rest = after;
            match key {
                b"GNU.sparse.offset" => self.offset = Some(decimal(key, value)?),
                b"GNU.sparse.numbytes" => {
                    let offset = self.offset.take().ok_or_else(|| malformed(key))?;
                    self.sparse.push((offset, decimal(key, value)?));
                    self.bytes += size_of::<(u64, u64)>();
                }
                _ if value.is_empty() && !key.starts_with(b"SCHILY.xattr.") => {
                    self.set(key, None);
                }
                _ => {
                    self.set(key, Some(value.to_vec()));
                }
            }
        }
        if self.offset.is_some() {
            return Err(malformed(b"GNU.sparse.offset"));
        }
        self.check_bytes()
    }

    /// Adds the records of a global header. Those that describe one entry are refused, because GNU
    /// tar applies them to all entries up to the next global header, and libarchive to none.
    pub(crate) fn add_global(&mut self, bytes: &[u8]) -> Result<(), Cause> {
        self.add(bytes)?;
        let of_one = |key: &&Vec<u8>| {
            matches!(key.as_slice(), b"path" | b"linkpath" | b"size")
                || key.starts_with(b"GNU.sparse.")
        };
        let key = self.values.keys().find(of_one);
        match key.map(|key| String::from_utf8_lossy(key)) {
            Some(key) => {
                Err(Cause::Unsupported { what: format!("the record '{key}' in a global header") })
            }
            None if !self.sparse.is_empty() => Err(Cause::Sparse),
            None => Ok(()),
        }
    }

    /// Fails if the records take too much memory.
    pub(crate) fn check_bytes(&self) -> Result<(), Cause> {
        let bytes = self.bytes + self.global.as_ref().map_or(0, |global| global.bytes);
        match bytes > MOST_BYTES {
            true => {
                let (what, bytes) = ("extended headers", bytes as u64);
                Err(Cause::TooLong { what, bytes, most: MOST_BYTES as u64 })
            }
            false => Ok(()),
        }
    }

    fn set(&mut self, key: &[u8], value: Option<Vec<u8>>) {
        self.bytes += memory(key, &value);
        if let Some(replaced) = self.values.insert(key.to_vec(), value) {
            self.bytes -= memory(key, &replaced);
        }
    }

    pub(crate) fn get(&self, key: &str) -> Option<&[u8]> {
        match self.values.get(key.as_bytes()) {
            Some(value) => value.as_deref(),
            None => self.global.as_ref()?.get(key),
        }
    }

    /// Returns the records whose keys begin with `prefix`, without the prefix.
    fn with_prefix(&self, prefix: &[u8]) -> BTreeMap<&[u8], &[u8]> {
        let global = self.global.as_ref();
        let mut found = global.map_or_else(BTreeMap::new, |global| global.with_prefix(prefix));
        for (key, value) in self.values.range(prefix.to_vec()..) {
            let Some(name) = key.strip_prefix(prefix) else { break };
            match value {
                Some(value) => found.insert(name, value),
                None => found.remove(name),
            };
        }
        found
    }

    pub(crate) fn number(&self, key: &str) -> Result<Option<u64>, Cause> {
        self.get(key).map(|value| decimal(key.as_bytes(), value)).transpose()
    }

    pub(crate) fn id(&self, key: &str) -> Result<Option<u32>, Cause> {
        let number = self.number(key)?;
        number
            .map(|number| u32::try_from(number).map_err(|_| malformed(key.as_bytes())))
            .transpose()
    }

    pub(crate) fn time(&self, key: &str) -> Result<Option<Time>, Cause> {
        let parse = |value| parse_time(value).ok_or_else(|| malformed(key.as_bytes()));
        self.get(key).map(parse).transpose()
    }

    /// Returns the extended attributes.
    pub(crate) fn attributes(&self) -> Result<Vec<Attribute>, Cause> {
        let mut attributes = Vec::new();
        let prefix = b"LIBARCHIVE.xattr.";
        for (name, value) in self.with_prefix(prefix) {
            let decoded = percent(name).zip(base64::decode(value));
            attributes.push(decoded.ok_or_else(|| malformed(&[prefix, name].concat()))?);
        }
        for (name, value) in self.with_prefix(b"SCHILY.xattr.") {
            attributes.push((unescaped(name), value.to_vec()));
        }
        if let Some(label) = self.get("RHT.security.selinux") {
            // A NUL is appended, because the label in the attribute of a file also ends with a NUL.
            let ended = label.ends_with(b"\0");
            let value = if ended { label.to_vec() } else { [label, b"\0"].concat() };
            attributes.push((b"security.selinux".to_vec(), value));
        }
        for (key, name) in [
            ("SCHILY.acl.access", &b"system.posix_acl_access"[..]),
            ("SCHILY.acl.default", b"system.posix_acl_default"),
        ] {
            if let Some(text) = self.get(key) {
                let list = super::acl::parse(text).ok_or_else(|| malformed(key.as_bytes()))?;
                attributes.push((name.to_vec(), list));
            }
        }
        Ok(attributes)
    }
}

/// Returns how many bytes of memory a record takes.
fn memory(key: &[u8], value: &Option<Vec<u8>>) -> usize {
    PER_RECORD + key.len() + value.as_ref().map_or(0, Vec::len)
}

fn malformed(key: &[u8]) -> Cause {
    Cause::Record { key: String::from_utf8_lossy(key).into_owned() }
}

/// Returns key and value of the first record, and the rest: `"LEN KEY=VALUE\n"`.
fn first(bytes: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let space = bytes.iter().take(20).position(|byte| *byte == b' ')?;
    let len: usize = std::str::from_utf8(bytes.get(..space)?).ok()?.parse().ok()?;
    let (record, rest) = bytes.split_at_checked(len)?;
    let pair = record.get(space + 1..)?.strip_suffix(b"\n")?;
    let equals = pair.iter().position(|byte| *byte == b'=')?;
    let (key, value) = pair.split_at_checked(equals)?;
    Some((key, value.get(1..)?, rest))
}

fn decimal(key: &[u8], value: &[u8]) -> Result<u64, Cause> {
    let text = std::str::from_utf8(value).map_err(|_| malformed(key))?;
    text.parse().map_err(|_| malformed(key))
}

/// Parses seconds with a fraction, such as "-1.5". Digits after the ninth are ignored.
fn parse_time(value: &[u8]) -> Option<Time> {
    let text = std::str::from_utf8(value).ok()?;
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let secs: i64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let digits = fraction.bytes().chain(std::iter::repeat(b'0')).take(9);
    let nanos = digits.fold(0u32, |nanos, digit| nanos * 10 + u32::from(digit - b'0'));
    match (negative, nanos) {
        (false, _) => Some(Time { secs, nanos }),
        (true, 0) => Some(Time { secs: secs.checked_neg()?, nanos: 0 }),
        (true, _) => {
            Some(Time { secs: secs.checked_neg()?.checked_sub(1)?, nanos: 1_000_000_000 - nanos })
        }
    }
}

/// Decodes "%2C" and the like in the name of an attribute.
fn percent(name: &[u8]) -> Option<Vec<u8>> {
    let mut decoded = Vec::new();
    let mut bytes = name.iter();
    while let Some(byte) = bytes.next() {
        if *byte != b'%' {
            decoded.push(*byte);
            continue;
        }
        let digits = [*bytes.next()?, *bytes.next()?];
        decoded.push(u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?);
    }
    Some(decoded)
}

/// Decodes a name that GNU tar encoded. GNU tar writes `=` as `%3D` and `%` as `%25`, and encodes
/// no other byte. Source: experiment with GNU tar 1.34.
fn unescaped(name: &[u8]) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(name.len());
    let mut rest = name;
    while let Some((byte, after)) = rest.split_first() {
        let escape =
            [(b"%3D", b'='), (b"%25", b'%')].into_iter().find(|(e, _)| rest.starts_with(*e));
        match escape {
            Some((escape, byte)) => {
                decoded.push(byte);
                rest = rest.get(escape.len()..).unwrap_or_default();
            }
            None => {
                decoded.push(*byte);
                rest = after;
            }
        }
    }
    decoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_1970_keep_their_fraction() {
        let time = |text: &str| parse_time(text.as_bytes()).map(|time| (time.secs, time.nanos));
        assert_eq!(time("1.5"), Some((1, 500_000_000)));
        assert_eq!(time("-1.5"), Some((-2, 500_000_000)));
        assert_eq!(time("-1"), Some((-1, 0)));
        assert_eq!(time("12.1234567891"), Some((12, 123_456_789)));
        assert_eq!(time("1.x"), None);
    }

    #[test]
    fn a_record_whose_length_is_wrong_is_refused() {
        let mut records = Records::default();
        records.add(b"11 path=abc\n6 a=b\n").expect_err("one byte too short");
        records.add(b"12 path=abc\n6 a=b\n").expect("two records");
        assert_eq!(records.get("path"), Some(&b"abc"[..]));
        for bad in ["99 path=abc\n", "x path=abc\n", "12 path:abc\n", "0 \n", "12 path=abc "] {
            records.add(bad.as_bytes()).expect_err(bad);
        }
    }

    #[test]
    fn percent_signs_encode_bytes() {
        assert_eq!(percent(b"user.a%3Db"), Some(b"user.a=b".to_vec()));
        assert_eq!(unescaped(b"user.a%3Db%25c%20%"), b"user.a=b%c%20%".to_vec());
    }
}
