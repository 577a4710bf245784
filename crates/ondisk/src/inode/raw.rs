//! The raw fields of an inode, under the names that the format gives them, and the inode's
//! checksum.

use crate::cause::InodeCause as Cause;
use crate::checksum::{Checksums, Seed};
use crate::types::Ino;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The size in bytes of the part that every inode has.
pub(super) const GOOD_OLD_SIZE: usize = 128;
/// Default size of an inode in bytes.
const USUAL_SIZE: usize = 256;
/// The number of bytes from which the seed of an inode is computed: see [`Seed::of_inode`].
const SEEDED: usize = 8;
const CHECKSUM_LO: usize = 0x7c;
const CHECKSUM_HI: usize = 0x82;

/// The first 128 bytes, as Linux uses them.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct RawInode {
    pub(super) i_mode: U16,
    pub(super) i_uid: U16,
    pub(super) i_size_lo: U32,
    pub(super) i_atime: U32,
    pub(super) i_ctime: U32,
    pub(super) i_mtime: U32,
    pub(super) i_dtime: U32,
    pub(super) i_gid: U16,
    pub(super) i_links_count: U16,
    pub(super) i_blocks_lo: U32,
    pub(super) i_flags: U32,
    pub(super) l_i_version: U32,
    pub(super) i_block: [u8; 60],
    pub(super) i_generation: U32,
    pub(super) i_file_acl_lo: U32,
    pub(super) i_size_high: U32,
    pub(super) i_obso_faddr: U32,
    pub(super) l_i_blocks_high: U16,
    pub(super) l_i_file_acl_high: U16,
    pub(super) l_i_uid_high: U16,
    pub(super) l_i_gid_high: U16,
    pub(super) l_i_checksum_lo: U16,
    pub(super) l_i_reserved: U16,
}

/// The fields after the first 128 bytes, as far as `i_extra_isize` reaches.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct RawExtra {
    pub(super) i_extra_isize: U16,
    pub(super) i_checksum_hi: U16,
    pub(super) i_ctime_extra: U32,
    pub(super) i_mtime_extra: U32,
    pub(super) i_atime_extra: U32,
    pub(super) i_crtime: U32,
    pub(super) i_crtime_extra: U32,
    pub(super) i_version_hi: U32,
    pub(super) i_projid: U32,
}

const _: () = assert!(size_of::<RawInode>() == GOOD_OLD_SIZE);
const _: () = assert!(size_of::<RawExtra>() == 32);
const _: () = assert!(std::mem::offset_of!(RawInode, l_i_checksum_lo) == CHECKSUM_LO);
const _: () = assert!(std::mem::offset_of!(RawInode, i_block) == 0x28);

impl RawExtra {
    pub(super) const CHECKSUM_END: u16 = 4;
    pub(super) const CTIME_END: u16 = 8;
    pub(super) const MTIME_END: u16 = 12;
    pub(super) const ATIME_END: u16 = 16;
    pub(super) const CRTIME_END: u16 = 24;
    pub(super) const VERSION_END: u16 = 28;
    pub(super) const PROJID_END: u16 = 32;

    /// Decodes the fields at the start of `bytes`; fields beyond the end of `bytes` are zero.
    #[inline]
    pub(super) fn from_front(bytes: &[u8]) -> RawExtra {
        // The usual case is separate, because a copy of fixed length needs no function call.
        if let Ok((extra, _)) = RawExtra::read_from_prefix(bytes) {
            return extra;
        }
        let mut extra = RawExtra::new_zeroed();
        let len = bytes.len().min(size_of::<RawExtra>());
        extra.as_mut_bytes()[..len].copy_from_slice(&bytes[..len]);
        extra
    }

    /// Writes back the fields within `extra_isize`, and always the field `i_extra_isize`.
    pub(super) fn put_front(&self, bytes: &mut [u8], extra_isize: u16) {
        let len = usize::from(extra_isize.max(2)).min(size_of::<RawExtra>()).min(bytes.len());
        bytes[..len].copy_from_slice(&self.as_bytes()[..len]);
    }
}

/// Returns whether `i_extra_isize` is large enough for the field that ends `end` bytes after the
/// first 128.
pub(super) fn fits(extra_isize: u16, end: u16) -> bool {
    extra_isize >= end
}

pub(super) fn check_checksum(
    bytes: &[u8],
    ino: Ino,
    generation: u32,
    extra_isize: u16,
    checksums: Checksums,
) -> Result<(), Cause> {
    let Some(expected) = checksum(bytes, ino, generation, extra_isize, checksums) else {
        return Ok(());
    };
    let word = |at: usize| u32::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]));
    let (found, expected) = match fits(extra_isize, RawExtra::CHECKSUM_END) {
        true => (word(CHECKSUM_HI) << 16 | word(CHECKSUM_LO), expected),
        false => (word(CHECKSUM_LO), expected & 0xffff),
    };
    (found == expected).then_some(()).ok_or(Cause::Checksum { found, expected })
}

pub(super) fn set_checksum(
    bytes: &mut [u8],
    ino: Ino,
    generation: u32,
    extra_isize: u16,
    checksums: Checksums,
) {
    let Some(sum) = checksum(bytes, ino, generation, extra_isize, checksums) else { return };
    bytes[CHECKSUM_LO..CHECKSUM_LO + 2].copy_from_slice(&(sum as u16).to_le_bytes());
    if fits(extra_isize, RawExtra::CHECKSUM_END) {
        bytes[CHECKSUM_HI..CHECKSUM_HI + 2].copy_from_slice(&((sum >> 16) as u16).to_le_bytes());
    }
}

/// Computes the checksum over the whole inode, attributes included, with both halves of the
/// checksum field taken as zeros. If the inode's fields end before the upper half of the checksum,
/// the bytes at its position are not a checksum, and are included unchanged.
fn checksum(
    bytes: &[u8],
    ino: Ino,
    generation: u32,
    extra_isize: u16,
    checksums: Checksums,
) -> Option<u32> {
    let seed = checksums.seed()?;
    let has_upper_half = fits(extra_isize, RawExtra::CHECKSUM_END);
    if has_upper_half && let Ok(bytes) = <&[u8; USUAL_SIZE]>::try_from(bytes) {
        return Some(usual_checksum(seed, bytes, ino, generation));
    }
    let seed = seed.of_inode(ino, generation);
    let sum = seed.chain(&bytes[..CHECKSUM_LO]).chain(&[0; 2]);
    let sum = match has_upper_half {
        true => sum
            .chain(&bytes[CHECKSUM_LO + 2..CHECKSUM_HI])
            .chain(&[0; 2])
            .chain(&bytes[CHECKSUM_HI + 2..]),
        false => sum.chain(&bytes[CHECKSUM_LO + 2..]),
    };
    Some(sum.value())
}

/// Computes the checksum of an inode of the usual size that stores both halves of the checksum. The
/// computation runs once over a copy, with the bytes of the seed in front, because a computation in
/// parts takes several times as long.
fn usual_checksum(seed: Seed, bytes: &[u8; USUAL_SIZE], ino: Ino, generation: u32) -> u32 {
    let mut copy = [0; SEEDED + USUAL_SIZE];
    copy[..4].copy_from_slice(&ino.0.to_le_bytes());
    copy[4..SEEDED].copy_from_slice(&generation.to_le_bytes());
    copy[SEEDED..].copy_from_slice(bytes);
    copy[SEEDED + CHECKSUM_LO..SEEDED + CHECKSUM_LO + 2].fill(0);
    copy[SEEDED + CHECKSUM_HI..SEEDED + CHECKSUM_HI + 2].fill(0);
    seed.chain(&copy).value()
}
