//! The array that a command works on.

use crate::cli::{Failure, complain, plain};
use lanefs::device::{Access, OpenError};
use lanefs_fuse::MountEntry;
use lanefs_raid5::{ArrayOptions, AssembleError, DirtyAndDegraded, OpenArray, Source, Upkeep};
use std::path::{Path, PathBuf};
use std::time::Duration;

const HOW_ARRAYS_ARE_WRITTEN: &str =
    "an array is one word, md:MEMBER,MEMBER,..., as in md:a.img,b.img,c.img";

pub(super) fn parse_array(name: &str) -> Result<PathBuf, &'static str> {
    match Source::parse(name.as_ref()) {
        Some(_) => Ok(name.into()),
        None => Err(HOW_ARRAYS_ARE_WRITTEN),
    }
}

/// The array that a command works on.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct ArrayArgument {
    /// The array: md:MEMBER,MEMBER,... (`missing` for a missing member) or md:UUID. Put a backslash
    /// before a comma, colon or backslash in a path
    #[arg(value_parser = parse_array)]
    pub(super) array: PathBuf,
}

/// Catches members that were given as separate words after the array.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct NothingMore {
    #[arg(hide = true, value_parser = refuse_member)]
    more: Vec<PathBuf>,
}

fn refuse_member(_: &str) -> Result<PathBuf, &'static str> {
    Err(HOW_ARRAYS_ARE_WRITTEN)
}

/// An array that a command changes.
pub(super) enum Found {
    /// The array is not in use; this process has opened it.
    Open(OpenArray),
    /// The server of this mount has the array open.
    Mounted(PathBuf),
}

/// The state of an array, read without writing.
pub(super) struct Look {
    pub(super) array: OpenArray,
    /// The program that uses the array, if any. If a program uses the array, this command has
    /// locked nothing.
    pub(super) in_use: Option<String>,
    /// Where the array is mounted, if it is.
    pub(super) mounted: Option<PathBuf>,
    /// The reason why the array cannot be started, if it cannot.
    pub(super) refused: Option<Failure>,
}

impl ArrayArgument {
    pub(super) fn source(&self) -> Result<Source, Failure> {
        let source = Source::parse(self.array.as_os_str());
        source.ok_or_else(|| self.failure(HOW_ARRAYS_ARE_WRITTEN))
    }

    pub(super) fn open(&self, options: ArrayOptions) -> Result<OpenArray, Failure> {
        let array = self.source()?.open(options).map_err(|error| match &error {
            AssembleError::Open(OpenError::InUse { path, .. }) => match mount_of(path) {
                Some(place) => self.failure(format_args!(
                    "mounted on {}: unmount it first; a mounted array only allows fail, add, remove, \
                     replace, status, and scrub of {0}",
                    place.display()
                )),
                None => self.refused(error),
            },
            _ => self.refused(error),
        })?;
        self.tell_left_out(&array);
        Ok(array)
    }

    fn tell_left_out(&self, array: &OpenArray) {
        for out in array.left_out() {
            complain(format_args!("lanefs raid: {}: left out: {out}", self.array.display()));
        }
    }

    /// Opens the array for changes, or returns where it is mounted.
    pub(super) fn open_or_mounted(&self) -> Result<Found, Failure> {
        let options =
            ArrayOptions { upkeep: Upkeep::Caller, ..ArrayOptions::new(Access::ReadWrite) };
        let source = self.source()?;
        match source.open(options) {
            Ok(array) => {
                self.tell_left_out(&array);
                Ok(Found::Open(array))
            }
            Err(error @ AssembleError::Open(OpenError::InUse { .. })) => {
                // The mount table does not list members that were added since the mount. So if that
                // table lists none of the given members, it is searched for the member that the
                // error names.
                let mount = source.paths().iter().find_map(|path| mount_of(path));
                let mount = mount.or_else(|| match &error {
                    AssembleError::Open(OpenError::InUse { path, .. }) => mount_of(path),
                    _ => None,
                });
                mount.map(Found::Mounted).ok_or_else(|| self.refused(error))
            }
            Err(error) => Err(self.refused(error)),
        }
    }

    /// Reads the state of the array, even if the array is in use or cannot be started.
    pub(super) fn look(&self) -> Result<Look, Failure> {
        let source = self.source()?;
        match look_at(&source) {
            Ok((array, in_use)) => {
                let members = array.metadata().members();
                let mounted = match in_use {
                    Some(_) => members.iter().find_map(|member| mount_of(&member.name)),
                    None => None,
                };
                Ok(Look { array, in_use, mounted, refused: None })
            }
            Err(why @ AssembleError::DirtyAndDegraded { .. }) => {
                let options = ArrayOptions {
                    upkeep: Upkeep::Caller,
                    dirty_and_degraded: DirtyAndDegraded::Accept,
                    ..ArrayOptions::new(Access::ReadOnly)
                };
                let array = source.open(options).map_err(|error| self.refused(error))?;
                let refused = Some(self.refused(why));
                Ok(Look { array, in_use: None, mounted: None, refused })
            }
            Err(error) => Err(self.refused(error)),
        }
    }

    pub(super) fn refused(&self, error: AssembleError) -> Failure {
        refused(&self.array, error)
    }

    pub(super) fn failure(&self, cause: impl std::fmt::Display) -> Failure {
        Failure::new(self.array.display(), cause)
    }

    pub(super) fn close(&self, array: OpenArray) -> Result<(), Failure> {
        array.close().map_err(|error| self.failure(error))
    }
}

/// Closes an array on which the command has neither failed nor replaced a member. Fails if a member
/// has failed meanwhile.
pub(super) fn close_whole(array: OpenArray) -> Result<(), Failure> {
    let failed = |error| Failure::new("array", error);
    array.array().stop().map_err(failed)?;
    let lost = array.metadata().former_members();
    array.close().map_err(failed)?;
    match lost.first() {
        None => Ok(()),
        Some(name) => Err(Failure::new(name.display(), "failed meanwhile; the array is degraded")),
    }
}

/// Opens an array read-only. If another program uses the array, locks nothing, and also returns a
/// description of that use.
pub fn look_at(source: &Source) -> Result<(OpenArray, Option<String>), AssembleError> {
    let options = ArrayOptions { upkeep: Upkeep::Caller, ..ArrayOptions::new(Access::ReadOnly) };
    match source.open(options) {
        Err(AssembleError::Open(OpenError::InUse { path, by })) => {
            let array = peek(source)?;
            let user = match mount_of(&path) {
                Some(place) => format!("mounted on {}", place.display()),
                None => format!("in use {by}"),
            };
            Ok((array, Some(user)))
        }
        opened => Ok((opened?, None)),
    }
}

/// Reads the state of an array in use. Its user may be writing the superblocks one after the other,
/// so a member that seems to be behind is looked at again.
fn peek(source: &Source) -> Result<OpenArray, AssembleError> {
    let mut seen = source.peek();
    for _ in 0..5 {
        if seen.as_ref().is_ok_and(|array| array.left_out().is_empty()) {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
        seen = source.peek();
    }
    seen
}

/// Returns whether an array is mounted on this directory.
pub(super) fn is_mount_point(place: &Path) -> bool {
    let (place, mounts) = (place.canonicalize().ok(), MountEntry::all().unwrap_or_default());
    let is_array = |mount: &MountEntry| Source::parse(mount.source.as_os_str()).is_some();
    mounts.iter().any(|mount| is_array(mount) && Some(&mount.mount_point) == place.as_ref())
}

/// Returns the mount point of the array that has this member.
fn mount_of(member: &Path) -> Option<PathBuf> {
    let member = member.canonicalize().ok()?;
    let mounts = MountEntry::all().ok()?;
    let has = |mount: &MountEntry| {
        let source = Source::parse(mount.source.as_os_str());
        source.is_some_and(|source| source.paths().contains(&member))
    };
    mounts.into_iter().find(has).map(|mount| mount.mount_point)
}

/// Converts an error into a failure of the array or member `name`. The cause does not repeat the
/// name.
pub(super) fn refused(name: &Path, error: AssembleError) -> Failure {
    match error {
        AssembleError::Member { name: member, fault } if member == name => {
            Failure::new(name.display(), plain(&fault.to_string()))
        }
        error => Failure::opening_source(name, &lanefs::Error::from(error)),
    }
}
