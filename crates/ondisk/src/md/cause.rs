//! The faults of md's structures.

use super::features::Features;
use super::uuid::Uuid;
use thiserror::Error;

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
    #[error("checksum is {found:#010x}, expected {expected:#010x}")]
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
