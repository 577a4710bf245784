//! The terms that all structures of md share: units, identities, features, and causes of faults.

use bitflags::bitflags;
use std::fmt;
use thiserror::Error;

/// The size in bytes of a sector, the unit in which md counts.
pub const SECTOR: u64 = 512;

/// The offset of a superblock of version 1.2 in a member, in bytes.
pub const SUPERBLOCK_OFFSET: u64 = 4096;

/// The largest size of a superblock of version 1, in bytes.
pub const SUPERBLOCK_SIZE: usize = 4096;

/// The identity of an array or member. It is printed as mdadm prints it.
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

/// Returns mdadm's name for a level number.
pub fn level_name(level: i32) -> String {
    match level {
        -1 => "linear".into(),
        -4 => "multipath".into(),
        -5 => "faulty".into(),
        -2 => "container".into(),
        level => format!("raid{level}"),
    }
}

bitflags! {
    /// The flags of the field `feature_map`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct Features: u32 {
        /// There is an internal write-intent bitmap.
        const BITMAP_OFFSET = 1;
        /// So far only a part of this member has been rebuilt.
        const RECOVERY_OFFSET = 2;
        /// The array is changing its shape.
        const RESHAPE_ACTIVE = 4;
        /// The bad-block log has entries.
        const BAD_BLOCKS = 8;
        /// This member will replace another member with the same role. The contents of the other
        /// member are being copied to this member.
        const REPLACEMENT = 16;
        /// A reshape proceeds from the end to the start.
        const RESHAPE_BACKWARDS = 32;
        /// A reshape moves the data area.
        const NEW_OFFSET = 64;
        /// This member is being updated from the bitmap.
        const RECOVERY_BITMAP = 128;
        /// Several machines use the array.
        const CLUSTERED = 256;
        /// There is a journal device.
        const JOURNAL = 512;
        /// There is a partial parity log with one header.
        const PPL = 1024;
        /// There is a partial parity log with several headers.
        const MULTIPLE_PPLS = 2048;
        /// The superblock contains the layout of a raid0 whose members differ in size.
        const RAID0_LAYOUT = 4096;
        const _ = !0;
    }
}

impl Features {
    /// The supported features.
    pub(super) const SUPPORTED: Features = Features::BITMAP_OFFSET
        .union(Features::RECOVERY_OFFSET)
        .union(Features::BAD_BLOCKS)
        .union(Features::RECOVERY_BITMAP)
        .union(Features::PPL)
        .union(Features::MULTIPLE_PPLS);

    /// The feature bits of both forms of the partial parity log.
    pub const ANY_PPL: Features = Features::PPL.union(Features::MULTIPLE_PPLS);

    /// Returns a name for each feature. The name of an unknown feature is the value of its flag.
    pub fn names(self) -> Vec<String> {
        let name = |bit: u32| match Features::from_bits_retain(bit) {
            Features::BITMAP_OFFSET => "a bitmap".into(),
            Features::RECOVERY_OFFSET => "a recovery offset".into(),
            Features::BAD_BLOCKS => "bad blocks".into(),
            Features::RECOVERY_BITMAP => "recovery by bitmap".into(),
            Features::PPL => "a partial parity log".into(),
            Features::MULTIPLE_PPLS => "a partial parity log of several headers".into(),
            Features::RESHAPE_ACTIVE => "an active reshape".into(),
            Features::REPLACEMENT => "a replacement under way".into(),
            Features::RESHAPE_BACKWARDS => "a backwards reshape".into(),
            Features::NEW_OFFSET => "a moving data area".into(),
            Features::CLUSTERED => "a clustered array".into(),
            Features::JOURNAL => "a journal device".into(),
            Features::RAID0_LAYOUT => "a raid0 layout".into(),
            other => format!("unknown feature {:#x}", other.bits()),
        };
        let bits = (0..32).map(|shift| 1 << shift).filter(|bit| self.bits() & bit != 0);
        bits.map(name).collect()
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
