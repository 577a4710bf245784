//! Devices that were given but are not used in an array.

use std::path::PathBuf;

/// A device that was given but is not used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOut {
    /// The device.
    pub name: PathBuf,
    /// The reason.
    pub why: Outside,
}

/// Why a device is not used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outside {
    /// The device was missing while the array was written.
    Stale {
        /// The last event in the device's superblock.
        events: u64,
        /// The last event of the array.
        newest: u64,
    },
    /// The device has the event count of the last change, but not the time of that change.
    OldCopy,
    /// The bitmap of the other members has bits for writes that the device missed.
    Behind,
    /// The other members record the device as failed.
    Faulty,
    /// The other members have no record of the device.
    Unnumbered,
    /// The device has no slot, although one is empty: it is a spare, or its addition was
    /// interrupted.
    Spare,
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
                write!(
                    f,
                    "{name} is stale: the bitmap has bits for data written since it was a member"
                )
            }
            Outside::Faulty => write!(f, "{name} failed, as the other members record"),
            Outside::Unnumbered => write!(f, "{name} has no part in the array any more"),
            Outside::Spare => write!(f, "{name} has no slot: lanefs raid add gives it one"),
        }
    }
}
