//! Checks that an array can use a device.

use crate::error::ArrayError;
use crate::layout::Geometry;
use crate::standing::{LogArea, Member};
use lanefs_device::Device;
use lanefs_ondisk::md::ppl::HEADER_SIZE;

/// Checks that a log has room for a header and the partial parity of one write, so that every write
/// can be logged.
pub(crate) fn check_log(
    slot: usize,
    log: Option<LogArea>,
    per_write: u64,
) -> Result<(), ArrayError> {
    let needed = HEADER_SIZE as u64 + per_write;
    match log {
        Some(log) if log.len >= needed => Ok(()),
        _ => Err(ArrayError::TooSmall { slot, len: log.map_or(0, |l| l.len), needed }),
    }
}

/// Checks that the data area and the log fit on the device.
pub(crate) fn check_size(shape: &Geometry, slot: usize, member: &Member) -> Result<(), ArrayError> {
    let len = member.device.len();
    let log = member.log.map_or(0, |log| log.offset.saturating_add(log.len));
    let needed = member.data_offset.saturating_add(shape.member_len()).max(log);
    if needed > len { Err(ArrayError::TooSmall { slot, len, needed }) } else { Ok(()) }
}
