//! The checksum in the tail of an index block.

use super::index::{ENTRY, Kind, index};
use crate::cause::htree::Cause;
use crate::checksum::Seed;
use crate::dirent::DirFormat;

/// Sets the checksum of an index block; without `metadata_csum` does nothing.
///
/// # Errors
/// If limit or count is wrong, because they determine the position and the range of the checksum.
pub fn seal(format: &DirFormat, kind: Kind, seed: Seed, block: &mut [u8]) -> Result<(), Cause> {
    if !format.has_checksums {
        return Ok(());
    }
    let (tail, computed) = compute(format, kind, seed, block)?;
    if let Some(field) = block.get_mut(tail + 4..tail + 8) {
        field.copy_from_slice(&computed.to_le_bytes());
    }
    Ok(())
}

/// Verifies the checksum of an index block; `seed` is the seed of the directory's inode.
pub fn verify(format: &DirFormat, kind: Kind, seed: Seed, block: &[u8]) -> Result<(), Cause> {
    if !format.has_checksums {
        return Ok(());
    }
    let (tail, computed) = compute(format, kind, seed, block)?;
    let stored = block.get(tail + 4..).and_then(|rest| rest.first_chunk::<4>()).copied();
    let found = u32::from_le_bytes(stored.unwrap_or_default());
    if found != computed {
        return Err(Cause::Checksum { found, computed });
    }
    Ok(())
}

/// Returns the position of the tail, and the checksum. The checksum covers the block up to the last
/// entry in use, and then the tail with a checksum field of zero. The bytes between the last entry
/// in use and the tail are not covered.
fn compute(
    format: &DirFormat,
    kind: Kind,
    seed: Seed,
    block: &[u8],
) -> Result<(usize, u32), Cause> {
    let index = index(format, kind, block)?;
    let covered = kind.entries_at() + index.len() * ENTRY;
    let tail = kind.entries_at() + kind.limit(format) * ENTRY;
    let crc = seed
        .chain(block.get(..covered).unwrap_or_default())
        .chain(block.get(tail..tail + 4).unwrap_or_default())
        .chain_u32(0);
    Ok((tail, crc.value()))
}
