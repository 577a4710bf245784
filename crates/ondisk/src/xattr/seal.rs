//! The checksum of a block of attributes. The checksum covers the block's number but no inode
//! number, since several inodes may share the block.

use super::entry::HEADER;
use crate::cause::xattr::Cause;
use crate::checksum::Seed;
use crate::types::Block;

/// The offset of `h_checksum`.
const CHECKSUM: usize = 16;

/// Sets the checksum; `seed` is the seed of the file system.
pub fn seal(seed: Seed, place: Block, block: &mut [u8]) {
    let checksum = compute(seed, place, block);
    if let Some(field) = block.get_mut(CHECKSUM..CHECKSUM + 4) {
        field.copy_from_slice(&checksum.to_le_bytes());
    }
}

/// Checks the checksum of a block that was read from block `place`.
pub fn verify(seed: Seed, place: Block, block: &[u8]) -> Result<(), Cause> {
    if block.len() < HEADER {
        return Err(Cause::Length { len: block.len() });
    }
    let stored = block.get(CHECKSUM..).and_then(|rest| rest.first_chunk()).copied();
    let found = u32::from_le_bytes(stored.unwrap_or_default());
    let computed = compute(seed, place, block);
    if found != computed {
        return Err(Cause::Checksum { found, computed });
    }
    Ok(())
}

fn compute(seed: Seed, place: Block, block: &[u8]) -> u32 {
    seed.chain_u64(place.0)
        .chain(block.get(..CHECKSUM).unwrap_or_default())
        .chain_u32(0)
        .chain(block.get(CHECKSUM + 4..).unwrap_or_default())
        .value()
}
