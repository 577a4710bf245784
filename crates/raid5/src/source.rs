//! `md:...`: how an array is named where a device is asked for.

use crate::{ArrayOptions, AssembleError, Candidate, OpenArray};
use lanefs_device::Access;
use lanefs_ondisk::md::Uuid;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// What such a name begins with.
pub const PREFIX: &str = "md:";
/// What stands for a member that is not there.
const MISSING: &str = "missing";

/// An array by name.
///
/// `md:a.img,b.img,c.img`: these members, in any order; `missing` stands for one that is not there.
/// `md:UUID`: the members of this array among the block devices; `md:UUID,DIR`: among the files and
/// devices in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    members: Members,
    absent: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Members {
    These(Vec<PathBuf>),
    Scan { set: Uuid, places: Vec<PathBuf> },
}

impl Source {
    /// The array that `name` means; `None` if it does not begin with `md:`.
    pub fn parse(name: &OsStr) -> Option<Source> {
        let list = name.as_bytes().strip_prefix(PREFIX.as_bytes())?;
        let words = list.split(|byte| *byte == b',').filter(|word| !word.is_empty());
        let words = words.map(|word| OsString::from_vec(word.to_vec()));
        Some(Source::of(words.collect()))
    }

    /// The array that these members, `missing` among them, or a uuid and places, make.
    pub fn of(mut words: Vec<OsString>) -> Source {
        let given = words.len();
        words.retain(|word| word != MISSING);
        let absent = given - words.len();
        let set = words.first().and_then(|word| word.to_str()).and_then(Uuid::parse);
        let paths = words.into_iter().map(PathBuf::from);
        let members = match set {
            Some(set) => Members::Scan { set, places: paths.skip(1).collect() },
            None => Members::These(paths.collect()),
        };
        Source { members, absent }
    }

    /// With `missing` for so many members more.
    pub fn without(mut self, absent: usize) -> Source {
        self.absent += absent;
        self
    }

    /// The members' paths, if they were given.
    pub fn paths(&self) -> &[PathBuf] {
        match &self.members {
            Members::These(paths) => paths,
            Members::Scan { .. } => &[],
        }
    }

    /// How many members were said to be missing.
    pub fn absent(&self) -> usize {
        self.absent
    }

    /// Opens the members, for writing exclusively.
    ///
    /// # Errors
    /// The first that cannot be opened, or is none. A scan passes over what is none, and over what
    /// it may not open.
    pub fn candidates(&self, access: Access) -> Result<Vec<Candidate>, AssembleError> {
        match &self.members {
            Members::These(paths) => {
                paths.iter().map(|path| Candidate::open(path, access)).collect()
            }
            Members::Scan { set, places } => {
                let paths = scan(*set, places);
                if paths.is_empty() {
                    return Err(AssembleError::NotFound { set: *set });
                }
                paths.iter().map(|path| Candidate::open(path, access)).collect()
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

/// Paths of members of the array.
fn scan(set: Uuid, places: &[PathBuf]) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = match places {
        [] => block_devices(),
        places => places.iter().flat_map(|place| entries(place)).collect(),
    };
    found.sort();
    found.dedup();
    let is_member = |path: &PathBuf| {
        Candidate::open(path, Access::ReadOnly).is_ok_and(|c| c.superblock.set() == set)
    };
    found.retain(is_member);
    found
}

fn entries(place: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(place) else { return vec![place.to_path_buf()] };
    entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect()
}

/// As the kernel lists them.
fn block_devices() -> Vec<PathBuf> {
    let list = std::fs::read_to_string("/proc/partitions").unwrap_or_default();
    let names = list.lines().skip(2).filter_map(|line| line.split_whitespace().nth(3));
    names.map(|name| Path::new("/dev").join(name.replace('!', "/"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(name: &str) -> Option<Source> {
        Source::parse(OsStr::new(name))
    }

    #[test]
    fn members_are_given_in_a_list() {
        let members = Members::These(vec!["a.img".into(), "/dev/sdb".into()]);
        assert_eq!(parse("md:a.img,missing,/dev/sdb"), Some(Source { members, absent: 1 }));
        assert_eq!(parse("a.img"), None);
    }

    #[test]
    fn an_array_is_given_by_its_uuid_and_where_to_look() {
        let set = Uuid([0x11; 16]);
        let members = Members::Scan { set, places: vec!["/srv".into()] };
        let name = format!("md:{set},/srv,missing");
        assert_eq!(parse(&name), Some(Source { members, absent: 1 }));
        let members = Members::Scan { set, places: vec![] };
        assert_eq!(parse(&format!("md:{set}")), Some(Source { members, absent: 0 }));
    }
}
