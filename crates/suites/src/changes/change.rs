//! One random change of a part.

use super::parts::{Kind, Part, Parts};
use fastrand::Rng;
use lanefs_device::Device;
use std::fmt;
use std::os::unix::fs::FileExt;

/// The number of changes that one worker makes on one image before it takes the next image.
pub const TOGETHER: u64 = 50;
/// The largest number of differences that are printed in full.
pub const MOST_SHOWN: usize = 20;

/// How a part is changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum How {
    /// One bit is flipped.
    Bit {
        /// The number of the bit in the part.
        bit: usize,
    },
    /// A field of 1, 2 or 4 bytes gets another value.
    Field {
        /// The offset in the part.
        at: usize,
        /// The new bytes of the field.
        bytes: Vec<u8>,
    },
    /// The part becomes zeros.
    Zeros,
    /// The part becomes random bytes.
    Noise,
    /// The part becomes a copy of another part of its kind.
    Copy {
        /// The offset of the other part in the image.
        from: u64,
    },
}

/// Whether the part's checksum is corrected after the change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sum {
    /// The checksum is corrected, so that the two judges check more than the checksum.
    Mended,
    /// The checksum is left as it was.
    Left,
}

/// A change: the bytes to write, and their offsets in the image.
#[derive(Debug, Clone)]
pub struct Change {
    /// The changed part.
    pub part: Part,
    /// The kind of the change.
    pub how: How,
    /// Whether the part's checksum is corrected.
    pub sum: Sum,
    /// The bytes to write, each piece after its offset in the image.
    pub writes: Vec<(u64, Vec<u8>)>,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} at {:#x}: ", self.part.kind, self.part.at)?;
        match &self.how {
            How::Bit { bit } => write!(f, "bit {} of byte {:#x}", bit % 8, bit / 8)?,
            How::Field { at, bytes } => write!(f, "bytes {bytes:02x?} at {at:#x}")?,
            How::Zeros => write!(f, "zeros")?,
            How::Noise => write!(f, "noise")?,
            How::Copy { from } => write!(f, "copied from {from:#x}")?,
        }
        write!(f, ", checksum {:?}", self.sum)
    }
}

/// Returns the random number generator for one change. `n` must be below 2^16 and `job` below 2^24,
/// so that each combination of seed, job and `n` has a different generator.
pub fn rng_of(seed: u64, job: u64, n: u64) -> Rng {
    Rng::with_seed(seed.wrapping_mul(1 << 40) ^ job << 16 ^ n)
}

/// Writes each of `writes` at its offset.
pub fn put(file: &std::fs::File, writes: impl Iterator<Item = (u64, Vec<u8>)>) {
    for (at, bytes) in writes {
        file.write_all_at(&bytes, at).expect("the copy is written");
    }
}

/// Chooses a change. The kind of part is chosen first, so that the few superblocks are changed as
/// often as the many inodes.
pub fn choose(rng: &mut Rng, device: &dyn Device, parts: &Parts) -> Change {
    let kind = loop {
        let any = rng.choice(&parts.all).expect("parts").kind;
        // If the image has no part of the wanted kind, the loop chooses again.
        let wanted = rng.usize(..KINDS);
        if rank(any) == wanted {
            break any;
        }
        if let Some(part) = parts.all.iter().find(|part| rank(part.kind) == wanted) {
            break part.kind;
        }
    };
    let same: Vec<&Part> = parts.all.iter().filter(|part| rank(part.kind) == rank(kind)).collect();
    let part = **rng.choice(&same).expect("parts of the kind");
    let mut bytes = read(device, &part);
    let how = choose_how(rng, &part, &bytes, &same);
    match &how {
        How::Bit { bit } => bytes[bit / 8] ^= 1 << (bit % 8),
        How::Field { at, bytes: field } => bytes[*at..at + field.len()].copy_from_slice(field),
        How::Zeros => bytes.fill(0),
        How::Noise => rng.fill(&mut bytes),
        How::Copy { from } => {
            device.read_at(*from, &mut bytes).expect("a part");
        }
    }
    let sum = if rng.u8(..4) == 0 { Sum::Left } else { Sum::Mended };
    let mut writes = Vec::new();
    if sum == Sum::Mended {
        writes.extend(parts.seal(device, &part, &mut bytes));
    }
    writes.push((part.at, bytes));
    Change { part, how, sum, writes }
}

/// The number of kinds of parts.
const KINDS: usize = 13;

fn rank(kind: Kind) -> usize {
    match kind {
        Kind::Superblock => 0,
        Kind::Descriptor { .. } => 1,
        Kind::BlockBitmap { .. } => 2,
        Kind::InodeBitmap { .. } => 3,
        Kind::Inode { .. } => 4,
        Kind::Node { .. } => 5,
        Kind::Pointers => 6,
        Kind::Leaf { .. } => 7,
        Kind::Index { .. } => 8,
        Kind::Attributes { .. } => 9,
        Kind::Orphans { .. } => 10,
        Kind::Log => 11,
        Kind::Quotas => 12,
    }
}

fn read(device: &dyn Device, part: &Part) -> Vec<u8> {
    let mut bytes = vec![0; part.len];
    device.read_at(part.at, &mut bytes).expect("a part");
    bytes
}

fn choose_how(rng: &mut Rng, part: &Part, bytes: &[u8], same: &[&Part]) -> How {
    match rng.u8(..40) {
        0 => How::Zeros,
        1 => How::Noise,
        2 | 3 => {
            let from = rng.choice(same).map_or(part.at, |other| other.at);
            How::Copy { from }
        }
        4..15 => How::Bit { bit: place(rng, part, bytes, 1) * 8 + rng.usize(..8) },
        _ => {
            let width = 1 << rng.usize(..3);
            let at = place(rng, part, bytes, width);
            How::Field { at, bytes: value(rng, &bytes[at..at + width]) }
        }
    }
}

/// Chooses an offset, most often at or near a byte that is not zero.
fn place(rng: &mut Rng, part: &Part, bytes: &[u8], width: usize) -> usize {
    let most = match part.kind {
        Kind::Inode { .. } if rng.u8(..4) > 0 => 160.min(part.len),
        Kind::Log => 0x60,
        _ => part.len,
    };
    let mut at = rng.usize(..most);
    if rng.bool() {
        let used = (0..most).filter(|at| bytes[*at] != 0).collect::<Vec<_>>();
        at = rng.choice(&used).copied().unwrap_or(at);
    }
    (at / width * width).min(part.len - width)
}

/// Chooses another value for a field.
fn value(rng: &mut Rng, before: &[u8]) -> Vec<u8> {
    let mut bytes = [0; 8];
    bytes[..before.len()].copy_from_slice(before);
    let old = u64::from_le_bytes(bytes);
    let new = match rng.u8(..8) {
        0 => 0,
        1 => u64::MAX,
        2 => old.wrapping_add(1),
        3 => old.wrapping_sub(1),
        4 => rng.u64(..64),
        5 => 1 << rng.u32(..32),
        6 => old ^ 1 << rng.usize(..before.len() * 8),
        _ => rng.u64(..),
    };
    new.to_le_bytes()[..before.len()].to_vec()
}
