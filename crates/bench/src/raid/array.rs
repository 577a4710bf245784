//! Arrays in this process's memory.

use crate::error::{Error, Result};
use lanefs_lanes::sync::Arc;
use lanefs_raid5::{Array, Consistency, Geometry, Layout, Policies};

/// The chunk size in bytes, which is mdadm's default.
const CHUNK: u64 = 512 << 10;

/// Returns the geometry of an array with `len` bytes of data or slightly more.
pub(super) fn shape(members: usize, chunk: u64, len: u64) -> Result<Geometry> {
    let share = len.div_ceil(members as u64 - 1).next_multiple_of(chunk);
    let shape = Geometry::new(Layout::LeftSymmetric, members, chunk, share);
    shape.map_err(|e| Error::host("an array", std::io::Error::other(e)))
}

/// Creates an array in this process's memory, with all members and `len` bytes of data or slightly
/// more.
pub(crate) fn array(
    members: usize,
    len: u64,
    consistency: Consistency,
    policies: Policies,
) -> Result<Arc<Array>> {
    let shape = shape(members, CHUNK, len)?;
    let array = Array::in_memory(shape, consistency, policies);
    Ok(Arc::new(array.map_err(|e| Error::host("an array in memory", e))?))
}
