//! Why an array cannot be assembled, or a device is left out.

use crate::array::setup::RecordError;
use crate::base::ArrayError;
use crate::base::layout::GeometryError;
use lanefs_device::{DeviceError, OpenError};
use lanefs_ondisk::{Unsupported, md};
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Why an array cannot be assembled, or why a device cannot become a member of an array.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum AssembleError {
    /// A member cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A device cannot be a member, or a member failed.
    #[error("{}: {fault}", name.display())]
    Member {
        /// The device.
        name: PathBuf,
        /// The reason.
        fault: MemberFault,
    },
    /// No member was given or found.
    #[error("no member was given")]
    Nothing,
    /// A scan found no member of the requested array.
    #[error("no member of array {set} was found")]
    NotFound {
        /// The array that was requested.
        set: md::Uuid,
    },
    /// Members of two arrays were given.
    #[error("{} is of array {set}, {} of array {other_set}", name.display(), other.display())]
    Mixed {
        /// A member.
        name: PathBuf,
        /// The UUID of the array to which `name` belongs.
        set: md::Uuid,
        /// Another member.
        other: PathBuf,
        /// The UUID of the array to which `other` belongs.
        other_set: md::Uuid,
    },
    /// A device was given twice, or together with a copy of itself.
    #[error("{}", twice(name, other))]
    Twice {
        /// One of the two devices.
        name: PathBuf,
        /// The other device.
        other: PathBuf,
    },
    /// Members disagree about the array.
    #[error("{} and {} do not agree on the array's {field}", name.display(), other.display())]
    Differs {
        /// A member.
        name: PathBuf,
        /// The freshest member, which has the highest event count.
        other: PathBuf,
        /// The field in which they differ.
        field: &'static str,
    },
    /// Some members were neither given nor named as missing.
    #[error("{given} of {members} members were given: write `missing` for each that is not there")]
    Absent {
        /// The number of members given, including those named as `missing`.
        given: usize,
        /// The number of members of the array.
        members: usize,
    },
    /// More than one member is unusable.
    #[error("{}", too_many(*members, missing, left_out))]
    TooManyMissing {
        /// The number of members of the array.
        members: usize,
        /// Slots without a member in sync.
        missing: Vec<usize>,
        /// Devices that were left out.
        left_out: Vec<LeftOut>,
    },
    /// The array was not closed cleanly and one member is missing.
    #[error("{}", dirty_and_degraded(*slot, logs, left_out))]
    DirtyAndDegraded {
        /// The slot whose member is missing.
        slot: usize,
        /// Slots whose partial parity logs cannot be read; empty if the array has no log.
        logs: Vec<usize>,
        /// Devices that were left out.
        left_out: Vec<LeftOut>,
    },
    /// The members do not form a valid array.
    #[error(transparent)]
    Array(#[from] ArrayError),
    /// An operation on the array failed.
    #[error(transparent)]
    Failed(#[from] DeviceError),
    /// A change of the members failed when some superblocks may have had it already, so its outcome
    /// is known only at the next start. Nothing may be undone: the superblocks may name each device
    /// that was a member before the change or was to be one after it.
    #[error("{0}; whether the change is recorded is not known")]
    Unsettled(DeviceError),
    /// The request is impossible.
    #[error(transparent)]
    Invalid(#[from] InvalidRequest),
}

impl From<RecordError> for AssembleError {
    fn from(error: RecordError) -> AssembleError {
        AssembleError::Failed(error.error)
    }
}

impl From<BadBitmapChunk> for AssembleError {
    fn from(bad: BadBitmapChunk) -> AssembleError {
        InvalidRequest::BitmapChunk(bad).into()
    }
}

impl AssembleError {
    pub(crate) fn member(name: &Path, fault: impl Into<MemberFault>) -> AssembleError {
        AssembleError::Member { name: name.into(), fault: fault.into() }
    }
}

/// Why a device cannot be a member, or how a member failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum MemberFault {
    /// The device cannot be read or written.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The device is not a member, or its metadata is damaged.
    #[error(transparent)]
    Format(#[from] md::Cause),
    /// The array is of a kind that is not supported.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    /// The event count is at its limit.
    #[error(
        "its event count, {events}, is at the limit: whether another member is newer cannot be told"
    )]
    NoMoreEvents {
        /// The member's event count.
        events: u64,
    },
    /// The array that the member describes cannot exist.
    #[error(transparent)]
    Geometry(#[from] GeometryError),
    /// The device is too small to become a member.
    #[error("{len} bytes are too few: {needed} are needed")]
    TooSmall {
        /// The device's length in bytes.
        len: u64,
        /// The required length in bytes.
        needed: u64,
    },
}

/// Why a request is impossible.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum InvalidRequest {
    /// The number of UUIDs differs from the number of members.
    #[error("each member needs a uuid")]
    Uuids,
    /// The slot that is to have no member is beyond the last slot.
    #[error("the slot that is to be missing is none of the array's")]
    NoSuchSlot,
    /// The size of a bitmap chunk is invalid.
    #[error(transparent)]
    BitmapChunk(#[from] BadBitmapChunk),
    /// The array is complete.
    #[error("the array misses no member")]
    NoneMissing,
    /// The device is a member, or another change is writing it.
    #[error("the device is a member already, or becomes one")]
    Claimed,
    /// Only a member in sync can be copied.
    #[error("slot {slot} has no member in sync: add the new one instead")]
    NotInSync {
        /// The slot.
        slot: usize,
    },
    /// The name of the array has an empty part.
    #[error("a member has no name: write `missing` for one that is not there")]
    UnnamedMember,
    /// An offset and a size were given for an array.
    #[error("a part of an array cannot be opened: offset and size are for images")]
    PartOfArray,
}

/// Why a size of bitmap chunks is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BadBitmapChunk {
    /// The size is not a power of two, or it is less than 4 KiB.
    #[error("bitmap chunks are powers of two of at least 4 KiB")]
    NotAPower,
    /// The size is so small that the bitmap has more bits than there is room for on a member.
    #[error("there is no room for so many bits: larger bitmap chunks are needed")]
    TooSmall,
    /// The size is over 2 GiB.
    #[error("bitmap chunks over 2 GiB")]
    TooLarge,
}

fn dirty_and_degraded(slot: usize, logs: &[usize], left_out: &[LeftOut]) -> String {
    let mut text = format!(
        "the array was not closed cleanly, and slot {slot} has no member in sync: in rows whose \
         parity may be wrong, data of that member cannot be computed; old blocks too would be read \
         back wrong, without an error"
    );
    if !logs.is_empty() {
        let slots: Vec<String> = logs.iter().map(|slot| slot.to_string()).collect();
        text.push_str(&format!(
            " (the partial parity log would prevent this, but the log of slots {} is damaged)",
            slots.join(", ")
        ));
    }
    for out in left_out {
        text.push_str(&format!("; {out}"));
    }
    text.push_str(". Add the member again, or accept the loss");
    text
}

fn twice(name: &Path, other: &Path) -> String {
    match name == other {
        true => format!("{} is given twice", name.display()),
        false => {
            format!("{} and {} are one member, or a copy of it", name.display(), other.display())
        }
    }
}

fn too_many(members: usize, missing: &[usize], left_out: &[LeftOut]) -> String {
    let slots: Vec<String> = missing.iter().map(|slot| slot.to_string()).collect();
    let mut text = format!(
        "slots {} of {members} have no member in sync: a RAID-5 array can do without one",
        slots.join(", ")
    );
    for out in left_out {
        text.push_str(&format!("; {out}"));
    }
    text
}

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
            Outside::Spare => write!(f, "{name} has no slot"),
        }
    }
}
