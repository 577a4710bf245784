//! What can go wrong with a member in one operation.

use crate::standing::MemberId;
use lanefs_device::DeviceError;

/// A member failed an operation that the array can do without.
#[derive(Debug)]
pub(crate) struct Lost {
    pub(crate) member: MemberId,
    pub(crate) error: DeviceError,
    /// What could not be read, if that is what failed.
    pub(crate) unread: Option<Unread>,
}

impl Lost {
    pub(crate) fn new(member: MemberId, error: DeviceError) -> Lost {
        Lost { member, error, unread: None }
    }
}

/// What a member could not read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Unread {
    pub(crate) place: Stretch,
    /// Bytes.
    pub(crate) len: u64,
}

/// What can come of a member read.
pub(crate) enum ReadError {
    /// The member failed, and can be done without.
    Lost(Lost),
    /// The members are not those that were found when the read was planned. It is no failure: look
    /// again. It comes only of a change of members, so nobody looks again for ever.
    Gone,
    /// Nothing helps.
    Final(DeviceError),
}

/// Where in a row: the same on each member.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stretch {
    pub(crate) row: u64,
    /// First byte within the chunk.
    pub(crate) from: u64,
}
