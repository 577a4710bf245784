//! Why a device that was given takes no part in an array.

use std::path::PathBuf;

/// A device that was given and takes no part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOut {
    /// The device.
    pub name: PathBuf,
    /// Why.
    pub why: Outside,
}

/// Why a device takes no part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outside {
    /// It was away while the array was written.
    Stale {
        /// The last event that it has seen.
        events: u64,
        /// The last event there was.
        newest: u64,
    },
    /// It has the number of the last event, but not its time.
    OldCopy,
    /// It does not know of data that the bitmap of the others tells of.
    Behind,
    /// The others say that it failed.
    Faulty,
    /// The others do not know it.
    Unnumbered,
}

impl std::fmt::Display for LeftOut {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = self.name.display();
        match self.why {
            Outside::Stale { events, newest } => {
                write!(f, "{name} is stale: it failed or was away after event {events} of {newest}")
            }
            Outside::OldCopy => {
                write!(f, "{name} is an old copy: it has the last event's number, but not its time")
            }
            Outside::Behind => {
                write!(f, "{name} is stale: the bitmap tells of data written since it was a member")
            }
            Outside::Faulty => write!(f, "{name} failed, as the others know"),
            Outside::Unnumbered => write!(f, "{name} has no part in the array any more"),
        }
    }
}
