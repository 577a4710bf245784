//! The tests in an expression of `lanefs find`.

use crate::cli::{
    Case, Failure, Glob, ImagePath, Images, ModeChange, Operand, UserNames, parse_time,
    type_of_letter,
};
use crate::copy::{ImageNode, ImageTree, Listing, Meta, Tree};
use crate::walk::Entry;
use lanefs::{FileType, Time};
use std::cmp::Ordering;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;

const NANOS: i128 = 1_000_000_000;

/// A file on which the tests are run.
pub struct Candidate<'a, 'fs> {
    pub tree: &'a ImageTree<'fs>,
    pub entry: &'a Entry<ImageNode>,
    pub place: &'a ImagePath,
    /// The time when the search began.
    pub now: Time,
}

/// Where the users, groups and files that tests name are looked up.
#[derive(Clone, Copy)]
pub struct Known<'a> {
    pub images: &'a Images,
    pub names: &'a UserNames,
}

/// A test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Criterion {
    Name(Glob, Case),
    Path(Glob, Case),
    Target(Glob),
    Attribute(Glob),
    Types(Vec<FileType>),
    Size { number: Number, unit: u64 },
    Empty,
    Permissions { bits: u16, how: Bits },
    Uid(Number),
    Gid(Number),
    Links(Number),
    Inode(Number),
    Newer(Which, Time),
    Age { which: Which, number: Number, unit: Unit },
}

/// A number with which a value of the file is compared. The value must be equal to the number
/// (`N`), greater (`+N`) or less (`-N`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Number {
    /// Whether the value must be less than, equal to, or greater than the number.
    order: Ordering,
    number: u64,
}

/// How permissions are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bits {
    Same,
    AllOf,
    AnyOf,
}

/// A time of a file. `Change` is the time when its contents changed (mtime), and `Inode` the time
/// when its inode changed (ctime).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    Access,
    Change,
    Inode,
}

/// The unit of an age.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Days. The fraction of a day is ignored.
    Days,
    /// Minutes. An age of N minutes is above N - 1 and at most N.
    Minutes,
}

impl Number {
    fn parse(text: &str) -> Option<Number> {
        let (order, digits) = match text.as_bytes().first() {
            Some(b'+') => (Ordering::Greater, text.get(1..)?),
            Some(b'-') => (Ordering::Less, text.get(1..)?),
            _ => (Ordering::Equal, text),
        };
        let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
        Some(Number { order, number: digits.parse().ok().filter(|_| is_number)? })
    }

    fn holds(self, value: u64) -> bool {
        value.cmp(&self.number) == self.order
    }
}

impl Which {
    fn of(self, meta: &Meta) -> Time {
        match self {
            Which::Access => meta.atime,
            Which::Change => meta.mtime,
            Which::Inode => meta.ctime,
        }
    }
}

fn types(text: &str) -> Option<Vec<FileType>> {
    text.split(',').map(type_of_letter).collect()
}

fn size(text: &str) -> Option<Criterion> {
    let (digits, unit) = match text.as_bytes().last()? {
        b'c' => (text.get(..text.len() - 1)?, 1),
        b'w' => (text.get(..text.len() - 1)?, 2),
        b'b' => (text.get(..text.len() - 1)?, 512),
        b'k' | b'K' => (text.get(..text.len() - 1)?, 1 << 10),
        b'M' => (text.get(..text.len() - 1)?, 1 << 20),
        b'G' => (text.get(..text.len() - 1)?, 1 << 30),
        _ => (text, 512),
    };
    Some(Criterion::Size { number: Number::parse(digits)?, unit })
}

fn permissions(text: &str) -> Option<Criterion> {
    let (how, mode) = match text.as_bytes().first()? {
        b'-' => (Bits::AllOf, text.get(1..)?),
        b'/' => (Bits::AnyOf, text.get(1..)?),
        _ => (Bits::Same, text),
    };
    let mode: ModeChange = mode.parse().ok()?;
    Some(Criterion::Permissions { bits: mode.apply(0, FileType::Regular, 0), how })
}

/// Returns the nanoseconds since 1970.
fn nanos(time: Time) -> i128 {
    i128::from(time.secs) * NANOS + i128::from(time.nanos)
}

fn age(which: Which, text: &str, unit: Unit) -> Option<Criterion> {
    Some(Criterion::Age { which, number: Number::parse(text)?, unit })
}

impl Criterion {
    /// Parses the test `option`, without its dashes; `None` if there is no such test. Without
    /// `known`, what the test names is not looked up.
    pub fn parse<'a>(
        option: &str,
        argument: &mut dyn FnMut() -> Result<&'a OsString, Failure>,
        known: Option<Known<'_>>,
    ) -> Result<Option<Criterion>, Failure> {
        let mut glob = |case| Ok::<_, Failure>(Glob::new(argument()?.as_bytes(), case));
        Ok(Some(match option {
            "name" => Criterion::Name(glob(Case::Differs)?, Case::Differs),
            "iname" => Criterion::Name(glob(Case::Ignored)?, Case::Ignored),
            "path" | "wholename" => Criterion::Path(glob(Case::Differs)?, Case::Differs),
            "ipath" | "iwholename" => Criterion::Path(glob(Case::Ignored)?, Case::Ignored),
            "lname" => Criterion::Target(glob(Case::Differs)?),
            "xattr" => Criterion::Attribute(glob(Case::Differs)?),
            "empty" => Criterion::Empty,
            "user" => Criterion::Uid(id(known, "-user", argument()?, UserNames::uid)?),
            "group" => Criterion::Gid(id(known, "-group", argument()?, UserNames::gid)?),
            _ => return text(option, argument),
        }))
    }
}

/// Looks up a user or group.
fn id(
    known: Option<Known<'_>>,
    option: &str,
    name: &OsString,
    look_up: fn(&UserNames, &str) -> Result<u32, String>,
) -> Result<Number, Failure> {
    let found = known.map_or(Ok(0), |known| look_up(known.names, &name.to_string_lossy()));
    let number = found.map_err(|why| Failure::new(option, why))?.into();
    Ok(Number { order: Ordering::Equal, number })
}

/// Parses the tests whose argument is text.
fn text<'a>(
    option: &str,
    argument: &mut dyn FnMut() -> Result<&'a OsString, Failure>,
) -> Result<Option<Criterion>, Failure> {
    type Parse = fn(&str) -> Option<Criterion>;
    let parse: Parse = match option {
        "type" => |text| types(text).map(Criterion::Types),
        "size" => size,
        "perm" => permissions,
        "uid" => |text| Number::parse(text).map(Criterion::Uid),
        "gid" => |text| Number::parse(text).map(Criterion::Gid),
        "links" => |text| Number::parse(text).map(Criterion::Links),
        "inum" => |text| Number::parse(text).map(Criterion::Inode),
        "mtime" => |text| age(Which::Change, text, Unit::Days),
        "mmin" => |text| age(Which::Change, text, Unit::Minutes),
        "atime" => |text| age(Which::Access, text, Unit::Days),
        "amin" => |text| age(Which::Access, text, Unit::Minutes),
        "ctime" => |text| age(Which::Inode, text, Unit::Days),
        "cmin" => |text| age(Which::Inode, text, Unit::Minutes),
        "newermt" => |text| Some(Criterion::Newer(Which::Change, parse_time(text).ok()?)),
        _ => return Ok(None),
    };
    let word = argument()?.to_string_lossy();
    match parse(&word) {
        Some(test) => Ok(Some(test)),
        None => {
            let why = format!("'{word}' is not understood (--help explains the test)");
            Err(Failure::new(format_args!("-{option}"), why))
        }
    }
}

/// Returns the time of the last modification of a file.
pub fn changed(images: &Images, file: &Operand) -> Result<Time, Failure> {
    match file {
        Operand::Image(place) => {
            let found = images.get(&place.image)?.metadata(&place.path);
            Ok(found.map_err(|error| place.failure(error))?.attr().mtime)
        }
        Operand::Host(path) => {
            let found = path.metadata().map_err(Failure::on_host(path))?;
            Ok(Time { secs: found.mtime(), nanos: found.mtime_nsec().try_into().unwrap_or(0) })
        }
        Operand::Standard => Err(Failure::new("-newer", "standard input has no time")),
    }
}

impl Criterion {
    /// Returns whether the file passes the test.
    pub fn holds(&self, file: &Candidate<'_, '_>) -> Result<bool, Failure> {
        let Entry { node, meta, .. } = file.entry;
        let path = file.place.path.as_os_str().as_bytes();
        let name = || {
            let path = path.strip_suffix(b"/").unwrap_or(path);
            path.rsplit(|byte| *byte == b'/').next().unwrap_or_default()
        };
        Ok(match self {
            Criterion::Name(glob, case) => glob.matches(name(), *case),
            Criterion::Path(glob, case) => glob.matches(path, *case),
            Criterion::Target(glob) => {
                meta.file_type == FileType::Symlink
                    && glob.matches(&file.tree.read_link(node)?, Case::Differs)
            }
            Criterion::Attribute(glob) => {
                let attributes = file.tree.attributes(node)?;
                attributes.iter().any(|(name, _)| glob.matches(name, Case::Differs))
            }
            Criterion::Types(types) => types.contains(&meta.file_type),
            Criterion::Size { number, unit } => number.holds(meta.size.div_ceil(*unit)),
            Criterion::Empty => match meta.file_type {
                FileType::Regular => meta.size == 0,
                FileType::Directory => file.tree.list(node)?.next()?.is_none(),
                _ => false,
            },
            Criterion::Permissions { bits, how } => match how {
                Bits::Same => meta.permissions == *bits,
                Bits::AllOf => meta.permissions & bits == *bits,
                Bits::AnyOf => *bits == 0 || meta.permissions & bits != 0,
            },
            Criterion::Uid(number) => number.holds(meta.uid.into()),
            Criterion::Gid(number) => number.holds(meta.gid.into()),
            Criterion::Links(number) => number.holds(meta.links),
            Criterion::Inode(number) => number.holds(meta.identity.inode),
            Criterion::Newer(which, than) => {
                let time = which.of(meta);
                (time.secs, time.nanos) > (than.secs, than.nanos)
            }
            Criterion::Age { which, number, unit } => {
                is_aged(nanos(file.now) - nanos(which.of(meta)), *number, *unit)
            }
        })
    }
}

/// Compares an age in nanoseconds, which is negative for a time in the future.
fn is_aged(age: i128, number: Number, unit: Unit) -> bool {
    let n = i128::from(number.number);
    match (unit, number.order) {
        (Unit::Days, order) => age.div_euclid(86_400 * NANOS).cmp(&n) == order,
        (Unit::Minutes, Ordering::Less) => age < n * 60 * NANOS,
        (Unit::Minutes, Ordering::Greater) => age > n * 60 * NANOS,
        (Unit::Minutes, Ordering::Equal) => age > (n - 1) * 60 * NANOS && age <= n * 60 * NANOS,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_rounded_as_in_find() {
        let aged = |secs: i128, text: &str, unit| {
            is_aged(secs * NANOS, Number::parse(text).unwrap(), unit)
        };
        const DAY: i128 = 86_400;
        assert!(aged(DAY - 1, "0", Unit::Days) && !aged(DAY, "0", Unit::Days));
        assert!(!aged(2 * DAY - 1, "+1", Unit::Days) && aged(2 * DAY, "+1", Unit::Days));
        assert!(aged(DAY - 1, "-1", Unit::Days) && !aged(DAY, "-1", Unit::Days));
        assert!(aged(-5, "-1", Unit::Days));
        assert!(aged(301, "+5", Unit::Minutes) && !aged(300, "+5", Unit::Minutes));
        assert!(aged(299, "-5", Unit::Minutes) && !aged(300, "-5", Unit::Minutes));
        assert!(aged(241, "5", Unit::Minutes) && !aged(240, "5", Unit::Minutes));
    }

    #[test]
    fn numbers_have_a_sign_for_more_and_less() {
        for text in ["", "+", "-", "++1", "1k", "x"] {
            assert_eq!(Number::parse(text), None, "{text}");
        }
        assert!(Number::parse("+3").unwrap().holds(4) && !Number::parse("+3").unwrap().holds(3));
    }
}
