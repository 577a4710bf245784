//! The tail of a leaf, which contains its checksum.

use super::format::{DirFormat, TAIL, check_length};
use crate::cause::dirent::Cause;
use crate::checksum::Seed;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The file type that marks a tail.
const TAIL_TYPE: u8 = 0xde;

/// `struct ext4_dir_entry_tail`.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawTail {
    det_reserved_zero1: U32,
    det_rec_len: U16,
    det_reserved_zero2: u8,
    det_reserved_ft: u8,
    det_checksum: U32,
}

const _: () = assert!(size_of::<RawTail>() == TAIL);

/// Writes a tail with this checksum at the end of a block.
pub(super) fn write(block: &mut [u8], checksum: u32) {
    let tail = RawTail {
        det_reserved_zero1: U32::ZERO,
        det_rec_len: U16::new(TAIL as u16),
        det_reserved_zero2: 0,
        det_reserved_ft: TAIL_TYPE,
        det_checksum: U32::new(checksum),
    };
    if let Some(end) = block.last_chunk_mut::<TAIL>() {
        end.copy_from_slice(tail.as_bytes());
    }
}

/// Returns the checksum in the tail, if the block ends in one.
pub(super) fn stored(block: &[u8]) -> Option<u32> {
    let (_, tail) = RawTail::ref_from_suffix(block).ok()?;
    let is_tail = tail.det_reserved_zero1.get() == 0
        && usize::from(tail.det_rec_len.get()) == TAIL
        && tail.det_reserved_zero2 == 0
        && tail.det_reserved_ft == TAIL_TYPE;
    is_tail.then_some(tail.det_checksum.get())
}

/// Sets the checksum of a linear block or leaf; without `metadata_csum` does nothing.
pub fn seal(format: &DirFormat, seed: Seed, block: &mut [u8]) {
    if format.has_checksums && block.len() >= TAIL {
        let checksum = compute(seed, block);
        write(block, checksum);
    }
}

/// Verifies the checksum of a linear block or leaf; `seed` is the seed of the directory's inode.
pub fn verify(format: &DirFormat, seed: Seed, block: &[u8]) -> Result<(), Cause> {
    check_length(format, block)?;
    if !format.has_checksums {
        return Ok(());
    }
    let found = stored(block).ok_or(Cause::NoTail)?;
    let computed = compute(seed, block);
    if found != computed {
        return Err(Cause::Checksum { found, computed });
    }
    Ok(())
}

fn compute(seed: Seed, block: &[u8]) -> u32 {
    let covered = block.len().saturating_sub(TAIL);
    seed.chain(block.get(..covered).unwrap_or_default()).value()
}
