//! A superblock of version 1.2. It describes the array, and the role and state of the member on
//! which it is stored.

mod fields;

use crate::error::Unsupported;
use crate::md::terms::{
    Cause, Features, SECTOR, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Uuid, level_name,
};
use zerocopy::little_endian::{I32, U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

const MAGIC: u32 = 0xa92b_4efc;
const HEAD: usize = 256;
/// The largest number of roles that fit into 4096 bytes after the fixed fields.
const MAX_DEVICES: u32 = 1920;
/// The number of roles for which a new superblock has room, as in superblocks that mdadm creates.
const NEW_DEVICES: usize = 128;
const SUPER_SECTOR: u64 = SUPERBLOCK_OFFSET / SECTOR;
/// The value of `resync_offset` if parity is right everywhere.
const CLEAN: u64 = u64::MAX;

const ROLE_SPARE: u16 = 0xffff;
const ROLE_FAULTY: u16 = 0xfffe;
const ROLE_JOURNAL: u16 = 0xfffd;

/// The role of a device in an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// A member in this slot.
    Active(u16),
    /// A device without a role: not yet in use, or removed without a fault.
    Spare,
    /// A failed device.
    Faulty,
    /// The device with the journal.
    Journal,
}

impl Role {
    fn from_number(number: u16) -> Role {
        match number {
            ROLE_SPARE => Role::Spare,
            ROLE_FAULTY => Role::Faulty,
            ROLE_JOURNAL => Role::Journal,
            slot => Role::Active(slot),
        }
    }

    fn number(self) -> u16 {
        match self {
            Role::Active(slot) => slot,
            Role::Spare => ROLE_SPARE,
            Role::Faulty => ROLE_FAULTY,
            Role::Journal => ROLE_JOURNAL,
        }
    }
}

/// A byte range of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Area {
    /// First byte.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
}

/// How much of a member's data area has valid contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recovery {
    /// All of the data area is valid.
    InSync,
    /// The part below this sector of the data area is valid.
    Below(u64),
}

/// The fixed fields of the superblock, under the names that the format gives them. The roles follow
/// these fields.
#[derive(Debug, Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawSuperblock {
    magic: U32,
    major_version: U32,
    feature_map: U32,
    pad0: U32,
    set_uuid: [u8; 16],
    set_name: [u8; 32],
    ctime: U64,
    level: I32,
    layout: U32,
    size: U64,
    chunksize: U32,
    raid_disks: U32,
    /// If the array has a partial parity log, this field holds `ppl.offset` (i16) and `ppl.size`
    /// (u16).
    bitmap_offset: U32,
    new_level: U32,
    reshape_position: U64,
    delta_disks: U32,
    new_layout: U32,
    new_chunk: U32,
    new_offset: U32,
    data_offset: U64,
    data_size: U64,
    super_offset: U64,
    /// With [`Features::RECOVERY_OFFSET`], the sector of the data area below which this member is
    /// valid.
    recovery_offset: U64,
    dev_number: U32,
    cnt_corrected_read: U32,
    device_uuid: [u8; 16],
    devflags: u8,
    bblog_shift: u8,
    bblog_size: U16,
    bblog_offset: I32,
    utime: U64,
    events: U64,
    /// 0: the array is active; all ones: clean; otherwise the sector below which parity is right.
    resync_offset: U64,
    sb_csum: U32,
    max_dev: U32,
    /// Kernels that do not know this field, such as Linux 6.1, assemble an array only if it is 0.
    logical_block_size: U32,
    pad3: [u8; 28],
}

const _: () = assert!(size_of::<RawSuperblock>() == HEAD);

/// The checked superblock of one member.
///
/// Fields that this crate does not interpret (device flags, counts of read errors, old reshape
/// fields) are kept unchanged.
#[derive(Debug, Clone)]
pub struct Superblock {
    raw: RawSuperblock,
    /// The roles by device number.
    roles: Vec<u16>,
}

/// The properties of a new array, for [`Superblock::new`]. Sizes and offsets are in sectors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewArray<'a> {
    /// The array's uuid.
    pub set: Uuid,
    /// The name, in the form `HOST:NAME`. A name of more than 32 bytes is truncated.
    pub name: &'a str,
    /// The present time, in microseconds since 1970.
    pub time: u64,
    /// The layout's number, from 0 to 5.
    pub layout: u32,
    /// The number of sectors used on each member: a multiple of the chunk size.
    pub size: u64,
    /// Chunk size: a power of two.
    pub chunk: u32,
    /// Number of members.
    pub members: u32,
    /// [`Features::BITMAP_OFFSET`], [`Features::MULTIPLE_PPLS`] or empty.
    pub features: Features,
    /// The first sector of the data areas where parity is unknown; `None` if parity is right
    /// everywhere.
    pub resync_from: Option<u64>,
}

/// One device of a new array, for [`Superblock::new`]. Offsets are in sectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Device {
    /// The device's uuid.
    pub uuid: Uuid,
    /// The device's number, which is also its role.
    pub number: u16,
    /// Start of the data area.
    pub data_offset: u64,
    /// Sectors of the data area.
    pub data_size: u64,
    /// Start of the bad-block log, relative to the superblock. The log is 8 sectors long.
    pub bad_blocks: u16,
    /// Length of the partial parity log, if there is one. The log starts 8 sectors after the
    /// superblock. In an array with a bitmap instead of a log, the bitmap starts there.
    pub ppl: u16,
}

impl Superblock {
    /// Creates the superblock of one device of a new array.
    pub fn new(array: &NewArray<'_>, device: &Device) -> Superblock {
        let mut raw = RawSuperblock::new_zeroed();
        raw.magic.set(MAGIC);
        raw.major_version.set(1);
        raw.feature_map.set(array.features.bits());
        raw.set_uuid = array.set.0;
        for (to, from) in raw.set_name.iter_mut().zip(array.name.bytes()) {
            *to = from;
        }
        raw.level.set(5);
        raw.layout.set(array.layout);
        raw.size.set(array.size);
        raw.chunksize.set(array.chunk);
        raw.raid_disks.set(array.members);
        if array.features.contains(Features::BITMAP_OFFSET) {
            raw.bitmap_offset.set(8);
        } else if array.features.intersects(Features::ANY_PPL) {
            raw.bitmap_offset.set(8 | u32::from(device.ppl) << 16);
        }
        raw.data_offset.set(device.data_offset);
        raw.data_size.set(device.data_size);
        raw.super_offset.set(SUPER_SECTOR);
        raw.dev_number.set(device.number.into());
        raw.device_uuid = device.uuid.0;
        raw.bblog_size.set(8);
        raw.bblog_offset.set(device.bad_blocks.into());
        raw.resync_offset.set(array.resync_from.unwrap_or(CLEAN));
        raw.max_dev.set(NEW_DEVICES as u32);
        let roles = (0..NEW_DEVICES as u32)
            .map(|number| if number < array.members { number as u16 } else { ROLE_SPARE });
        let mut superblock = Superblock { raw, roles: roles.collect() };
        superblock.raw.ctime = md_time(array.time);
        superblock.set_time(array.time);
        superblock
    }

    /// Decodes a superblock with every check that is possible on a single member. `bytes` begins at
    /// [`SUPERBLOCK_OFFSET`] of the member, and is at least 4096 bytes long. `len` is the member's
    /// length in bytes.
    ///
    /// Rules that depend on the RAID level are checked only for level 5. Whether Lanefs can use the
    /// array is decided by [`Superblock::support`].
    ///
    /// # Errors
    /// Any [`Cause`].
    pub fn decode(bytes: &[u8], len: u64) -> Result<Superblock, Cause> {
        let short = || Cause::Length { len: bytes.len() };
        let bytes = bytes.get(..SUPERBLOCK_SIZE).ok_or_else(short)?;
        let (raw, roles) = RawSuperblock::read_from_prefix(bytes).map_err(|_| short())?;
        if raw.magic.get() != MAGIC {
            return Err(Cause::NotASuperblock);
        }
        if raw.major_version.get() != 1 {
            return Err(Cause::Version { major: raw.major_version.get() });
        }
        let found = raw.super_offset.get();
        if found != SUPER_SECTOR {
            return Err(Cause::SuperOffset { found, expected: SUPER_SECTOR });
        }
        let found = raw.max_dev.get();
        if found == 0 || found > MAX_DEVICES {
            return Err(Cause::MaxDev { found });
        }
        let (roles, _) = roles.as_chunks::<2>();
        let roles = roles.iter().take(found as usize).map(|role| u16::from_le_bytes(*role));
        let superblock = Superblock { raw, roles: roles.collect() };
        superblock.check(len).map(|()| superblock)
    }

    /// Fails if Lanefs cannot use the array.
    ///
    /// # Errors
    /// [`Unsupported`], which names the level if it is not 5, or the unsupported features.
    pub fn support(&self) -> Result<(), Unsupported> {
        let level = self.raw.level.get();
        if level != 5 {
            return Err(Unsupported {
                what: format!("level {} (only raid5 is)", level_name(level)),
            });
        }
        let mut unknown = self.features().difference(Features::SUPPORTED);
        if self.has_role_twice() {
            unknown |= Features::REPLACEMENT;
        }
        if !unknown.is_empty() {
            return Err(Unsupported { what: unknown.names().join(", ") });
        }
        Ok(())
    }

    /// Returns whether two devices have the same role, as while md replaces a member.
    fn has_role_twice(&self) -> bool {
        let active = |role: &&u16| matches!(Role::from_number(**role), Role::Active(_));
        let mut roles: Vec<u16> = self.roles.iter().filter(active).copied().collect();
        roles.sort_unstable();
        roles.windows(2).any(|pair| pair.first() == pair.last())
    }

    /// Returns the bytes to write at [`SUPERBLOCK_OFFSET`], with the checksum set.
    pub fn encode(&self) -> [u8; SUPERBLOCK_SIZE] {
        let mut bytes = [0; SUPERBLOCK_SIZE];
        let mut raw = self.raw.clone();
        raw.sb_csum.set(self.checksum());
        let (head, tail) = bytes.split_at_mut(HEAD);
        head.copy_from_slice(raw.as_bytes());
        let (places, _) = tail.as_chunks_mut::<2>();
        for (place, role) in places.iter_mut().zip(&self.roles) {
            *place = role.to_le_bytes();
        }
        bytes
    }

    /// Computes the sum of all 32-bit words, the roles included, with the checksum field taken as
    /// zero. The upper half of the 64-bit sum is added to the lower half.
    fn checksum(&self) -> u32 {
        let mut raw = self.raw.clone();
        raw.sb_csum.set(0);
        let (words, _) = raw.as_bytes().as_chunks::<4>();
        let head = words.iter().map(|word| u64::from(u32::from_le_bytes(*word)));
        let (pairs, odd) = self.roles.as_chunks::<2>();
        let roles = pairs.iter().map(|[low, high]| u64::from(*low) | u64::from(*high) << 16);
        let odd = odd.iter().map(|role| u64::from(*role));
        let sum: u64 = head.chain(roles).chain(odd).sum();
        (sum as u32).wrapping_add((sum >> 32) as u32)
    }
}

/// Whether a bad-block log has entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BadBlocks {
    /// The log has no entries.
    None,
    /// The log has entries.
    Some,
}

/// Encodes a time. The low 40 bits are the whole seconds, and the bits above are the remaining
/// microseconds.
fn md_time(micros: u64) -> U64 {
    let (seconds, micros) = (micros / 1_000_000, micros % 1_000_000);
    U64::new(seconds & 0xff_ffff_ffff | micros << 40)
}

/// Changes properties in memory. A change is durable once the bytes that [`Superblock::encode`]
/// returns are durable on the device.
impl Superblock {
    /// Copies the properties of the array from `fresh`, and keeps the properties of this device.
    /// This updates the superblock of a member that missed changes of the array.
    pub fn adopt(&mut self, fresh: &Superblock) {
        let own = self.raw.clone();
        self.roles = fresh.roles.clone();
        self.raw = fresh.raw.clone();
        self.raw.dev_number = own.dev_number;
        self.raw.device_uuid = own.device_uuid;
        self.raw.devflags = own.devflags;
        self.raw.cnt_corrected_read = own.cnt_corrected_read;
        self.raw.data_offset = own.data_offset;
        self.raw.data_size = own.data_size;
        self.raw.recovery_offset = own.recovery_offset;
        self.raw.bblog_shift = own.bblog_shift;
        self.raw.bblog_size = own.bblog_size;
        self.raw.bblog_offset = own.bblog_offset;
        let mine = Features::BAD_BLOCKS | Features::RECOVERY_OFFSET | Features::RECOVERY_BITMAP;
        let own = Features::from_bits_retain(own.feature_map.get()) & mine;
        self.set_features((self.features() - mine) | own);
        // On all members the bitmap and the partial parity log have the same positions relative to
        // the superblock, so their positions are those of `fresh`.
    }

    /// Sets the role of device `number`; returns `false` if the number does not exist.
    pub fn set_role_of(&mut self, number: u32, role: Role) -> bool {
        let place = usize::try_from(number).ok().and_then(|number| self.roles.get_mut(number));
        place.map(|place| *place = role.number()).is_some()
    }

    /// Gives this device the number and uuid of a new member.
    pub fn set_device(&mut self, number: u32, device: Uuid) {
        self.raw.dev_number.set(number);
        self.raw.device_uuid = device.0;
        self.raw.cnt_corrected_read.set(0);
        self.raw.devflags = 0;
    }

    /// Sets the data area of this device, in sectors.
    pub fn set_data(&mut self, offset: u64, size: u64) {
        self.raw.data_offset.set(offset);
        self.raw.data_size.set(size);
    }

    /// See [`Superblock::events`].
    pub fn set_events(&mut self, events: u64) {
        self.raw.events.set(events);
    }

    /// See [`Superblock::resync_from`].
    pub fn set_resync_from(&mut self, sector: Option<u64>) {
        self.raw.resync_offset.set(sector.unwrap_or(CLEAN));
    }

    /// See [`Superblock::recovery`].
    pub fn set_recovery(&mut self, recovery: Recovery) {
        let both = Features::RECOVERY_OFFSET | Features::RECOVERY_BITMAP;
        let features = self.features() - both;
        match recovery {
            Recovery::InSync => {
                self.raw.recovery_offset.set(0);
                self.set_features(features);
            }
            Recovery::Below(sector) => {
                self.raw.recovery_offset.set(sector);
                self.set_features(features | Features::RECOVERY_OFFSET);
            }
        }
    }

    /// Sets whether the bad-block log has entries.
    pub fn set_bad_blocks(&mut self, log: BadBlocks) {
        let features = self.features() - Features::BAD_BLOCKS;
        self.set_features(match log {
            BadBlocks::None => features,
            BadBlocks::Some => features | Features::BAD_BLOCKS,
        });
    }

    /// See [`Superblock::updated`]; `time` is in microseconds since 1970.
    pub fn set_time(&mut self, time: u64) {
        self.raw.utime = md_time(time);
    }

    fn set_features(&mut self, features: Features) {
        self.raw.feature_map.set(features.bits());
    }
}

#[cfg(test)]
mod tests;
