//! The superblock of version 1.2: it describes the array of a member, and the member's role and
//! state.

use super::cause::Cause;
use super::features::Features;
use super::level_name;
use super::units::{SECTOR, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE};
use super::uuid::Uuid;
use crate::error::Unsupported;
use zerocopy::little_endian::{I32, U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

const MAGIC: u32 = 0xa92b_4efc;
const HEAD: usize = 256;
/// The most roles that fit after the head into 4096 bytes.
const MAX_DEVICES: u32 = 1920;
/// Number of roles for which mdadm leaves room.
const NEW_DEVICES: usize = 128;
const SUPER_SECTOR: u64 = SUPERBLOCK_OFFSET / SECTOR;
/// The sector number that means that parity is right everywhere.
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

/// A part of a member, in bytes of the member.
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

/// The bytes of the superblock, with the format's names; the roles follow these bytes.
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
    /// The field is also `ppl.offset` (i16) and `ppl.size` (u16).
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
    resync_offset: U64,
    sb_csum: U32,
    max_dev: U32,
    /// The value is 0 in arrays that older kernels can assemble.
    logical_block_size: U32,
    pad3: [u8; 28],
}

const _: () = assert!(size_of::<RawSuperblock>() == HEAD);

/// The superblock of one member, checked.
///
/// Fields that this crate does not interpret (device flags, counts of read errors, old reshape
/// fields) are kept as found.
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
    /// `HOST:NAME`; cut off after 32 bytes.
    pub name: &'a str,
    /// The present time, in microseconds since 1970.
    pub time: u64,
    /// The number of one of the six layouts.
    pub layout: u32,
    /// Sectors used on each member: whole chunks.
    pub size: u64,
    /// Chunk size: a power of two.
    pub chunk: u32,
    /// Number of members.
    pub members: u32,
    /// [`Features::BITMAP_OFFSET`], [`Features::MULTIPLE_PPLS`] or empty.
    pub features: Features,
    /// The sector of the data areas from which parity is unknown; `None` if it is right everywhere.
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
    /// Start of the bad-block log, relative to the superblock; 8 sectors long.
    pub bad_blocks: u16,
    /// Length of the partial parity log, if there is one. The log or the bitmap is 8 sectors after
    /// the superblock.
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

    /// Decodes a superblock with every check that is possible on a single member. `bytes` are at
    /// least 4096 bytes from [`SUPERBLOCK_OFFSET`] on; `len` is the member's length in bytes.
    ///
    /// [`Superblock::support`] decides whether Lanefs can use the array. Other levels have other
    /// rules, so checks that depend on the level are made only for level 5.
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

    fn check(&self, len: u64) -> Result<(), Cause> {
        let raw = &self.raw;
        let (found, expected) = (raw.sb_csum.get(), self.checksum());
        if found != expected {
            return Err(Cause::Checksum { found, expected });
        }
        if raw.pad0.get() != 0 {
            return Err(Cause::NotZero { field: "pad0" });
        }
        if raw.pad3 != [0; 28] {
            return Err(Cause::NotZero { field: "pad3" });
        }
        let bytes = raw.logical_block_size.get();
        if bytes != 0 && !(bytes.is_power_of_two() && (512..=65536).contains(&bytes)) {
            return Err(Cause::LogicalBlock { bytes });
        }
        self.check_features()?;
        self.check_data_area(len)?;
        if raw.dev_number.get() >= raw.max_dev.get() {
            let (number, max) = (raw.dev_number.get(), raw.max_dev.get());
            return Err(Cause::DeviceNumber { number, max });
        }
        if raw.bblog_shift > 32 {
            return Err(Cause::BadBlockShift { shift: raw.bblog_shift });
        }
        if raw.level.get() == 5 && !self.features().intersects(Features::RESHAPE_ACTIVE) {
            self.check_shape()?;
        }
        self.check_areas(len)
    }

    fn check_features(&self) -> Result<(), Cause> {
        let features = self.features();
        let one_of = features
            & (Features::BITMAP_OFFSET
                | Features::JOURNAL
                | Features::PPL
                | Features::MULTIPLE_PPLS);
        let ppl = features.intersects(Features::ANY_PPL);
        if ppl && one_of.bits().count_ones() > 1 {
            return Err(Cause::Features { features: one_of });
        }
        Ok(())
    }

    fn check_data_area(&self, len: u64) -> Result<(), Cause> {
        let (start, sectors) = (self.raw.data_offset.get(), self.raw.data_size.get());
        let end = start.checked_add(sectors).and_then(|end| end.checked_mul(SECTOR));
        let behind = start >= SUPER_SECTOR + SUPERBLOCK_SIZE as u64 / SECTOR;
        if sectors < 10 || !behind || end.is_none_or(|end| end > len) {
            return Err(Cause::DataArea { start, sectors, len });
        }
        let used = self.raw.size.get();
        if self.raw.level.get() > 0 && used > sectors {
            return Err(Cause::Used { used, sectors });
        }
        Ok(())
    }

    fn check_shape(&self) -> Result<(), Cause> {
        let raw = &self.raw;
        let sectors = raw.chunksize.get();
        // The kernel also refuses a chunk below a page, or one that is not a power of two.
        if !sectors.is_power_of_two() || sectors < 8 || u64::from(sectors) > raw.size.get() {
            return Err(Cause::Chunk { sectors });
        }
        if raw.layout.get() > 5 {
            return Err(Cause::Layout { level: 5, layout: raw.layout.get() });
        }
        let count = raw.raid_disks.get();
        if count < 2 || count > raw.max_dev.get() {
            return Err(Cause::RaidDisks { count });
        }
        self.check_roles(count)
    }

    fn check_roles(&self, count: u32) -> Result<(), Cause> {
        let mut holders = vec![None; count as usize];
        for (second, &role) in self.roles.iter().enumerate() {
            if !matches!(Role::from_number(role), Role::Active(_)) {
                continue;
            }
            let holder = holders.get_mut(usize::from(role));
            let holder = holder.ok_or(Cause::RoleNumber { role, count })?;
            if let Some(first) = *holder
                && !self.features().contains(Features::REPLACEMENT)
            {
                return Err(Cause::RoleTwice { role, first, second });
            }
            *holder = Some(second);
        }
        Ok(())
    }

    /// Checks that bitmap and logs do not overlap the superblock or the data.
    fn check_areas(&self, len: u64) -> Result<(), Cause> {
        let raw = &self.raw;
        if self.features().contains(Features::BITMAP_OFFSET) {
            self.check_area("a bitmap", self.signed_bitmap_offset().into(), 1, len)?;
        }
        if self.features().intersects(Features::ANY_PPL) {
            let (offset, sectors) = self.ppl_words();
            let least = super::ppl::HEADER_SIZE as u64 / SECTOR;
            if u64::from(sectors) < least {
                let (offset, sectors) = (offset.into(), sectors.into());
                return Err(Cause::Area { what: "a partial parity log", offset, sectors });
            }
            self.check_area("a partial parity log", offset.into(), sectors.into(), len)?;
        }
        if raw.bblog_offset.get() != 0 && raw.bblog_size.get() != 0 {
            let (offset, sectors) = (raw.bblog_offset.get(), raw.bblog_size.get());
            self.check_area("a bad-block log", offset.into(), sectors.into(), len)?;
        }
        Ok(())
    }

    fn check_area(
        &self,
        what: &'static str,
        offset: i64,
        sectors: u64,
        len: u64,
    ) -> Result<(), Cause> {
        let wrong = Cause::Area { what, offset, sectors };
        let start = SUPER_SECTOR.checked_add_signed(offset).ok_or(wrong.clone())?;
        let end = start + sectors;
        let own_end = SUPER_SECTOR + SUPERBLOCK_SIZE as u64 / SECTOR;
        let data =
            self.raw.data_offset.get()..self.raw.data_offset.get() + self.raw.data_size.get();
        let on_data = start < data.end && end > data.start;
        let on_superblock = start < own_end && end > SUPER_SECTOR;
        if on_data || on_superblock || end > len / SECTOR {
            return Err(wrong);
        }
        Ok(())
    }

    /// Fails if Lanefs cannot use the array.
    ///
    /// # Errors
    /// [`Unsupported`], with a name, for other levels and for unknown features.
    pub fn support(&self) -> Result<(), Unsupported> {
        let level = self.raw.level.get();
        if level != 5 {
            return Err(Unsupported {
                what: format!("level {} (only raid5 is)", level_name(level)),
            });
        }
        let unknown = self.features().difference(Features::SUPPORTED);
        if !unknown.is_empty() {
            return Err(Unsupported { what: unknown.names().join(", ") });
        }
        Ok(())
    }

    /// Returns the bytes with the checksum set, to be written at [`SUPERBLOCK_OFFSET`].
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

    /// Computes the folded sum of all words, with the checksum taken as zero.
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

/// Reads the fields.
impl Superblock {
    /// Returns the array's features.
    pub fn features(&self) -> Features {
        Features::from_bits_retain(self.raw.feature_map.get())
    }

    /// Returns the array's uuid.
    pub fn set(&self) -> Uuid {
        Uuid(self.raw.set_uuid)
    }

    /// Returns the array's name, usually `HOST:NAME`; bytes that are not UTF-8 are replaced.
    pub fn name(&self) -> String {
        let name = self.raw.set_name.split(|byte| *byte == 0).next().unwrap_or_default();
        String::from_utf8_lossy(name).into_owned()
    }

    /// Returns the time when the array was created, in seconds since 1970.
    pub fn created(&self) -> u64 {
        self.raw.ctime.get() & 0xff_ffff_ffff
    }

    /// Returns the time of the last write of this superblock, in seconds since 1970.
    pub fn updated(&self) -> u64 {
        self.raw.utime.get() & 0xff_ffff_ffff
    }

    /// Returns the time of the last write in microseconds, if the writer stored microseconds. The
    /// superblocks that one change of the array wrote to its active members all have the same time.
    pub fn written(&self) -> u64 {
        self.updated().saturating_mul(1_000_000).saturating_add(self.raw.utime.get() >> 40)
    }

    /// Returns the RAID level; 5 in supported arrays.
    pub fn level(&self) -> i32 {
        self.raw.level.get()
    }

    /// Returns the layout's number.
    pub fn layout(&self) -> u32 {
        self.raw.layout.get()
    }

    /// Returns the sectors used on each member.
    pub fn size(&self) -> u64 {
        self.raw.size.get()
    }

    /// Returns the sectors of a chunk.
    pub fn chunk(&self) -> u32 {
        self.raw.chunksize.get()
    }

    /// Returns the number of members of a complete array.
    pub fn members(&self) -> u32 {
        self.raw.raid_disks.get()
    }

    /// Returns the data area, in bytes of the member.
    pub fn data(&self) -> Area {
        let (offset, len) = (self.raw.data_offset.get(), self.raw.data_size.get());
        Area { offset: offset.saturating_mul(SECTOR), len: len.saturating_mul(SECTOR) }
    }

    /// Returns the offset of the bitmap's header in the member, in bytes.
    pub fn bitmap_offset(&self) -> Option<u64> {
        if !self.features().contains(Features::BITMAP_OFFSET) {
            return None;
        }
        let sector = SUPER_SECTOR.checked_add_signed(self.signed_bitmap_offset().into())?;
        Some(sector * SECTOR)
    }

    /// Returns the bitmap's area. The area ends at the data area, the bad-block log or the end of a
    /// member of `len` bytes, whichever comes first.
    pub fn bitmap(&self, len: u64) -> Option<Area> {
        let offset = self.bitmap_offset()?;
        let data = self.data().offset;
        let log = self.bad_block_log().map(|log| log.offset);
        let ends = [Some(data), log, Some(len)];
        let end = ends.into_iter().flatten().filter(|end| *end > offset).min()?;
        Some(Area { offset, len: end - offset })
    }

    fn signed_bitmap_offset(&self) -> i32 {
        self.raw.bitmap_offset.get() as i32
    }

    fn ppl_words(&self) -> (i16, u16) {
        let word = self.raw.bitmap_offset.get();
        (word as u16 as i16, (word >> 16) as u16)
    }

    /// Returns the partial parity log, in bytes of the member.
    pub fn ppl(&self) -> Option<Area> {
        if !self.features().intersects(Features::ANY_PPL) {
            return None;
        }
        let (offset, sectors) = self.ppl_words();
        let sector = SUPER_SECTOR.checked_add_signed(offset.into())?;
        Some(Area { offset: sector * SECTOR, len: u64::from(sectors) * SECTOR })
    }

    /// Returns the bad-block log, in bytes of the member, whether it has entries or not.
    pub fn bad_block_log(&self) -> Option<Area> {
        let (offset, sectors) = (self.raw.bblog_offset.get(), self.raw.bblog_size.get());
        if offset == 0 || sectors == 0 {
            return None;
        }
        let sector = SUPER_SECTOR.checked_add_signed(offset.into())?;
        Some(Area { offset: sector * SECTOR, len: u64::from(sectors) * SECTOR })
    }

    /// Returns the shift of lengths in the bad-block log.
    pub fn bad_block_shift(&self) -> u8 {
        self.raw.bblog_shift
    }

    /// Returns how much of this member has valid contents for its role.
    pub fn recovery(&self) -> Recovery {
        match self.features().contains(Features::RECOVERY_OFFSET) {
            true => Recovery::Below(self.raw.recovery_offset.get()),
            false => Recovery::InSync,
        }
    }

    /// Returns this device's number.
    pub fn number(&self) -> u32 {
        self.raw.dev_number.get()
    }

    /// Returns this device's uuid.
    pub fn device(&self) -> Uuid {
        Uuid(self.raw.device_uuid)
    }

    /// Returns the role of device `number` according to this superblock.
    pub fn role_of(&self, number: u32) -> Role {
        let role = usize::try_from(number).ok().and_then(|number| self.roles.get(number));
        role.map_or(Role::Spare, |role| Role::from_number(*role))
    }

    /// Returns the role of this device.
    pub fn role(&self) -> Role {
        self.role_of(self.number())
    }

    /// Returns the roles by device number, up to the last that is not a spare.
    pub fn roles(&self) -> Vec<Role> {
        let used = self.roles.iter().rposition(|role| *role != ROLE_SPARE).map_or(0, |at| at + 1);
        self.roles.iter().take(used).map(|role| Role::from_number(*role)).collect()
    }

    /// Returns how many device numbers there are.
    pub fn numbers(&self) -> u32 {
        self.raw.max_dev.get()
    }

    /// Returns how often the array's state changed: the member with the highest count is the
    /// newest.
    pub fn events(&self) -> u64 {
        self.raw.events.get()
    }

    /// Returns the sector of the data areas from which parity may be wrong; `None` if it is right.
    pub fn resync_from(&self) -> Option<u64> {
        let sector = self.raw.resync_offset.get();
        (sector != CLEAN).then_some(sector)
    }

    /// Returns the checksum that [`Superblock::encode`] sets.
    pub fn sum(&self) -> u32 {
        self.checksum()
    }
}

/// Changes properties, one with each call. A change is durable once the bytes of
/// [`Superblock::encode`] are written.
impl Superblock {
    /// Copies the properties of the array from `fresh`, and keeps the properties of this device. So
    /// a member with outdated properties is updated.
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
        // Bitmap and log have the same position relative to the superblock on all members, so the
        // position in `fresh` stays.
    }

    /// Sets the role of device `number`; returns `false` if the number does not exist.
    pub fn set_role_of(&mut self, number: u32, role: Role) -> bool {
        let place = usize::try_from(number).ok().and_then(|number| self.roles.get_mut(number));
        place.map(|place| *place = role.number()).is_some()
    }

    /// Sets another number and uuid of this device: the number and uuid of a new member.
    pub fn set_device(&mut self, number: u32, device: Uuid) {
        self.raw.dev_number.set(number);
        self.raw.device_uuid = device.0;
        self.raw.cnt_corrected_read.set(0);
        self.raw.devflags = 0;
    }

    /// Sets another data area of this device, in sectors.
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

    /// See [`Superblock::updated`]; `time` in microseconds since 1970.
    pub fn set_time(&mut self, time: u64) {
        self.raw.utime = md_time(time);
    }

    fn set_features(&mut self, features: Features) {
        self.raw.feature_map.set(features.bits());
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

/// Encodes seconds in the low 40 bits, microseconds above them.
fn md_time(micros: u64) -> U64 {
    let (seconds, micros) = (micros / 1_000_000, micros % 1_000_000);
    U64::new(seconds & 0xff_ffff_ffff | micros << 40)
}

#[cfg(test)]
mod tests;
