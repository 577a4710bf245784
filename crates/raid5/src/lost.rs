//! Failures of a member in one operation.

use crate::standing::MemberId;
use lanefs_device::DeviceError;

/// A failure of a member in one operation; the array can work without the member.
#[derive(Debug)]
pub(crate) struct Lost {
    pub(crate) member: MemberId,
    pub(crate) error: DeviceError,
    /// The range that could not be read, if a read failed.
    pub(crate) unread: Option<Unread>,
}

impl Lost {
    pub(crate) fn new(member: MemberId, error: DeviceError) -> Lost {
        Lost { member, error, unread: None }
    }
}

/// A range that a member could not read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Unread {
    pub(crate) place: Stretch,
    /// Length in bytes.
    pub(crate) len: u64,
}

/// The reason why a read of a member did not succeed.
pub(crate) enum ReadError {
    /// The member failed, and the array can work without it.
    Lost(Lost),
    /// The members changed since the read was planned. A change of members is not a failure: the
    /// read is planned again. Only changes of members cause a retry, so the number of retries is
    /// limited.
    Gone,
    /// The operation that needs the read fails with this error.
    Final(DeviceError),
}

/// A position in a row, the same on each member.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stretch {
    pub(crate) row: u64,
    /// Offset of the first byte within the chunk.
    pub(crate) from: u64,
}
