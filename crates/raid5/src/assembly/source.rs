//! Parses `md:...`, which names an array where the name of a device is expected.

use crate::array::setup::{ArrayOptions, DirtyAndDegraded, Upkeep};
use crate::assembly::Candidate;
use crate::assembly::error::{AssembleError, InvalidRequest};
use crate::assembly::open::OpenArray;
use lanefs_device::Access;
use lanefs_ondisk::md::Uuid;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The prefix of the name of an array.
pub const PREFIX: &str = "md:";
/// The wait before a second read of the superblocks. It is longer than a change of the superblocks
/// of all members takes.
const AGAIN: Duration = Duration::from_millis(200);
/// The word that stands for a missing member.
pub const MISSING: &str = "missing";

/// What the name of an array says about the array.
///
/// `md:a.img,b.img,c.img` lists the members, in any order, with `missing` in place of each missing
/// member. `md:UUID` finds the members of the array with this UUID among the block devices.
/// `md:UUID,DIR` finds them among the files and devices in a directory. A backslash escapes a
/// comma, colon or backslash in a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    members: Named,
    absent: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Named {
    These(Vec<PathBuf>),
    Scan {
        set: Uuid,
        places: Vec<PathBuf>,
    },
    /// A member's name is empty, as between two commas.
    Unclear,
}

/// Splits a list at commas, and removes escaping backslashes.
fn words(list: &[u8]) -> Vec<OsString> {
    let (mut all, mut word, mut plain) = (Vec::new(), Vec::new(), false);
    for &byte in list {
        match byte {
            b'\\' if !plain => {
                plain = true;
                continue;
            }
            b',' if !plain => all.push(OsString::from_vec(std::mem::take(&mut word))),
            _ => {
                // A backslash that stands before any other byte is an ordinary byte.
                if plain && !matches!(byte, b',' | b':' | b'\\') {
                    word.push(b'\\');
                }
                word.push(byte);
            }
        }
        plain = false;
    }
    if plain {
        word.push(b'\\');
    }
    all.push(OsString::from_vec(word));
    all
}

impl Source {
    /// Parses the name of an array; `None` if it does not start with `md:`.
    pub fn parse(name: &OsStr) -> Option<Source> {
        let list = name.as_bytes().strip_prefix(PREFIX.as_bytes())?;
        Some(Source::from_words(if list.is_empty() { Vec::new() } else { words(list) }))
    }

    /// Returns the paths of the members if the name lists them; `None` if they are searched for.
    pub fn listed(&self) -> Option<&[PathBuf]> {
        match &self.members {
            Named::These(members) => Some(members),
            Named::Scan { .. } | Named::Unclear => None,
        }
    }

    /// Returns the name of the array of these members.
    pub fn name_of<'a>(members: impl IntoIterator<Item = &'a Path>) -> OsString {
        let mut name = PREFIX.as_bytes().to_vec();
        for (at, member) in members.into_iter().enumerate() {
            name.extend((at > 0).then_some(b','));
            for &byte in member.as_os_str().as_bytes() {
                name.extend(matches!(byte, b',' | b':' | b'\\').then_some(b'\\'));
                name.push(byte);
            }
        }
        OsString::from_vec(name)
    }

    /// Returns the array that the words name. The words are either the paths of the array's
    /// members, with `missing` in place of each missing member, or a UUID followed by directories.
    pub fn from_words(mut words: Vec<OsString>) -> Source {
        let given = words.len();
        words.retain(|word| word != MISSING);
        let absent = given - words.len();
        let set = words.first().and_then(|word| word.to_str()).and_then(Uuid::parse);
        let unclear = words.iter().any(|word| word.is_empty());
        let paths = words.into_iter().map(PathBuf::from);
        let members = match set {
            _ if unclear => Named::Unclear,
            Some(set) => Named::Scan { set, places: paths.skip(1).collect() },
            None => Named::These(paths.collect()),
        };
        Source { members, absent }
    }

    /// Adds `missing` for this many members.
    pub fn without(mut self, absent: usize) -> Source {
        self.absent += absent;
        self
    }

    /// Returns the members' paths, if they were given.
    pub fn paths(&self) -> &[PathBuf] {
        match &self.members {
            Named::These(paths) => paths,
            Named::Scan { .. } | Named::Unclear => &[],
        }
    }

    /// Returns the UUID for which members are searched, if the array was given by UUID.
    pub fn set(&self) -> Option<Uuid> {
        match &self.members {
            Named::Scan { set, .. } => Some(*set),
            Named::These(_) | Named::Unclear => None,
        }
    }

    /// Returns the number of members that were given as missing.
    pub fn absent(&self) -> usize {
        self.absent
    }

    /// Opens the members, exclusively if they are to be written.
    ///
    /// # Errors
    /// The error of the first device that cannot be opened or is not a member. A scan skips such
    /// devices, and devices for which permission is denied.
    pub fn candidates(&self, access: Access) -> Result<Vec<Candidate>, AssembleError> {
        self.found(|path| Candidate::open(path, access))
    }

    fn found(
        &self,
        open: impl Fn(&Path) -> Result<Candidate, AssembleError>,
    ) -> Result<Vec<Candidate>, AssembleError> {
        match &self.members {
            Named::Unclear => Err(InvalidRequest::UnnamedMember.into()),
            Named::These(paths) => paths.iter().map(|path| open(path)).collect(),
            Named::Scan { set, places } => {
                let paths = scan(*set, places);
                if paths.is_empty() {
                    return Err(AssembleError::NotFound { set: *set });
                }
                paths.iter().map(|path| open(path)).collect()
            }
        }
    }

    /// Reads the state of the array while another process uses it. Nothing is locked or written.
    /// The other process may be changing the state, which it writes to one member after the other.
    /// So if members seem outdated or cannot be assembled, all members are read a second time.
    ///
    /// # Errors
    /// See [`AssembleError`].
    pub fn peek(&self) -> Result<OpenArray, AssembleError> {
        let options = ArrayOptions {
            // An array in use is usually dirty. If it is degraded too, it is accepted nevertheless,
            // because only its state is read.
            dirty_and_degraded: DirtyAndDegraded::Accept,
            upkeep: Upkeep::Caller,
            ..ArrayOptions::new(Access::ReadOnly)
        };
        let look = || OpenArray::assemble(self.found(Candidate::peek)?, self.absent, options);
        match look() {
            Ok(array) if array.left_out().is_empty() => Ok(array),
            _ => {
                std::thread::sleep(AGAIN);
                look()
            }
        }
    }

    /// Opens the array.
    ///
    /// # Errors
    /// See [`AssembleError`].
    pub fn open(&self, options: ArrayOptions) -> Result<OpenArray, AssembleError> {
        OpenArray::assemble(self.candidates(options.access)?, self.absent, options)
    }
}

/// Returns the paths of the files and devices that are members of array `set`. Searches `places`,
/// or all block devices if `places` is empty.
fn scan(set: Uuid, places: &[PathBuf]) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = match places {
        [] => block_devices(),
        places => places.iter().flat_map(|place| entries(place)).collect(),
    };
    found.sort();
    found.dedup();
    let is_member = |path: &PathBuf| Candidate::peek(path).is_ok_and(|c| c.superblock.set() == set);
    found.retain(is_member);
    found
}

fn entries(place: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(place) else { return vec![place.to_path_buf()] };
    entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect()
}

/// Returns the block devices that the kernel lists.
fn block_devices() -> Vec<PathBuf> {
    let list = std::fs::read_to_string("/proc/partitions").unwrap_or_default();
    let names = list.lines().skip(2).filter_map(|line| line.split_whitespace().nth(3));
    names.map(|name| Path::new("/dev").join(name.replace('!', "/"))).collect()
}

#[cfg(test)]
mod tests;
