//! The format of Linux md's array members: superblock 1.2, bad-block log, write-intent bitmap,
//! partial parity log. Everything is little endian.
//!
//! Functions here return a bare [`Cause`], since only the caller knows which member it read. They
//! check a single member; the code that assembles an array checks that the members agree. Offsets
//! in superblocks are in sectors of 512 bytes, even if the device has larger sectors.
//!
//! Sources: `linux/raid/md_p.h` of Linux's interface headers, md(4), and members that Linux's md
//! wrote.

pub mod bad_blocks;
pub mod bitmap;
mod level;
pub mod ppl;
mod superblock;

pub use level::level_name;
pub use superblock::{Area, BadBlocks, Device, Features, NewArray, Recovery, Role, Superblock};

use std::fmt;
use thiserror::Error;

/// Size of a sector in md's units, in bytes.
pub const SECTOR: u64 = 512;

/// The offset of a superblock of version 1.2 in a member, in bytes.
pub const SUPERBLOCK_OFFSET: u64 = 4096;

/// The largest size of a superblock of version 1, in bytes.
pub const SUPERBLOCK_SIZE: usize = 4096;

/// The identity of an array or member. Printed as mdadm prints it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Uuid(pub [u8; 16]);

impl Uuid {
    /// Parses `text`: 32 hexadecimal digits, with `:` or `-` anywhere between them.
    pub fn parse(text: &str) -> Option<Uuid> {
        let mut digits = text.chars().filter(|c| !matches!(c, ':' | '-'));
        let mut bytes = [0; 16];
        for byte in &mut bytes {
            let (high, low) = (digits.next()?.to_digit(16)?, digits.next()?.to_digit(16)?);
            *byte = u8::try_from(high << 4 | low).ok()?;
        }
        digits.next().is_none().then_some(Uuid(bytes))
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, byte) in self.0.iter().enumerate() {
            let colon = if at > 0 && at.is_multiple_of(4) { ":" } else { "" };
            write!(f, "{colon}{byte:02x}")?;
        }
        Ok(())
    }
}

/// The possible faults of md's structures.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are the values found
pub enum Cause {
    #[error("{len} bytes are too few")]
    Length { len: usize },
    #[error("no md superblock")]
    NotASuperblock,
    #[error("version of the metadata is {major}, not 1")]
    Version { major: u32 },
    #[error("the superblock says that it is at sector {found}, but it is at {expected}")]
    SuperOffset { found: u64, expected: u64 },
    #[error("room for {found} members, of at most 1920")]
    MaxDev { found: u32 },
    #[error("checksum is {found:#010x} where {expected:#010x} is right")]
    Checksum { found: u32, expected: u32 },
    #[error("{field} is not zero")]
    NotZero { field: &'static str },
    #[error("data area of {sectors} sectors from sector {start} on a member of {len} bytes")]
    DataArea { start: u64, sectors: u64, len: u64 },
    #[error("{used} of {sectors} sectors of the data area are used")]
    Used { used: u64, sectors: u64 },
    #[error("chunks of {sectors} sectors")]
    Chunk { sectors: u32 },
    #[error("{count} members")]
    RaidDisks { count: u32 },
    #[error("layout {layout} of level {level}")]
    Layout { level: i32, layout: u32 },
    #[error("device number {number} of {max}")]
    DeviceNumber { number: u32, max: u32 },
    #[error("role {role} among {count} members")]
    RoleNumber { role: u16, count: u32 },
    #[error("devices {first} and {second} both have role {role}")]
    RoleTwice { role: u16, first: usize, second: usize },
    #[error("{features:?} exclude each other")]
    Features { features: Features },
    #[error("{what} of {sectors} sectors is {offset} sectors behind the superblock")]
    Area { what: &'static str, offset: i64, sectors: u64 },
    #[error("logical blocks of {bytes} bytes")]
    LogicalBlock { bytes: u32 },
    #[error("{shift} is the shift of bad-block lengths")]
    BadBlockShift { shift: u8 },
    #[error("not a write-intent bitmap")]
    NotABitmap,
    #[error("version of the bitmap is {version}")]
    BitmapVersion { version: u32 },
    #[error("belongs to array {found}, not {expected}")]
    Uuid { found: Uuid, expected: Uuid },
    #[error("bitmap chunks of {bytes} bytes")]
    BitmapChunk { bytes: u32 },
    #[error("bitmap covers {found} sectors of {expected}")]
    SyncSize { found: u64, expected: u64 },
    #[error("{bits} bits do not fit into {bytes} bytes")]
    BitmapSpace { bits: u64, bytes: u64 },
    #[error("not a partial parity log")]
    NotALog,
    #[error("{count} entries in a log header, of at most 148")]
    EntryCount { count: u32 },
}
