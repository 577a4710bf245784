//! Reads group descriptors without a mounted file system.

use crate::error::Error;
use lanefs_ondisk::checksum::Checksums;
use lanefs_ondisk::group_desc::GroupDesc;
use lanefs_ondisk::superblock::Geometry;
use lanefs_ondisk::{Block, Group};

/// Reads and checks all group descriptors. `read` returns the contents of a block.
///
/// # Errors
/// [`Error::Corruption`], [`Error::TooManyGroups`], and the errors of `read`.
pub(crate) fn descriptors(
    geometry: &Geometry,
    checksums: Checksums,
    read: &dyn Fn(Block) -> Result<Vec<u8>, Error>,
) -> Result<Vec<GroupDesc>, Error> {
    // Not preallocated, since the number of groups comes from the superblock and may be wrong.
    let mut descriptors = Vec::new();
    for index in 0..geometry.desc_blocks() {
        let bytes = read(geometry.desc_block(index).ok_or(Error::Stale)?)?;
        for record in bytes.chunks_exact(geometry.desc_size()) {
            let group = Group(descriptors.len() as u32);
            if group.0 < geometry.group_count() {
                let descriptor = GroupDesc::decode(record, group, geometry, checksums)?;
                descriptors.try_reserve(1).map_err(|_| Error::TooManyGroups)?;
                descriptors.push(descriptor);
            }
        }
    }
    Ok(descriptors)
}
