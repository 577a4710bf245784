//! The properties in a superblock of an array.

use super::super::features::Features;
use super::super::units::SECTOR;
use super::super::uuid::Uuid;
use super::{Area, CLEAN, ROLE_SPARE, Recovery, Role, SUPER_SECTOR, Superblock};

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

    /// Returns the time of the last write in microseconds since 1970. If the writer stored no
    /// microseconds, the time is a whole number of seconds. When a change of the array is written
    /// to the superblocks of the active members, all these superblocks get the same time.
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

    /// Returns the number of sectors used on each member.
    pub fn size(&self) -> u64 {
        self.raw.size.get()
    }

    /// Returns the number of sectors of a chunk.
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

    /// Returns the bitmap's area on a member of `len` bytes. The area ends at the data area, at the
    /// bad-block log or at the end of the member, whichever is the first after the start of the
    /// bitmap.
    pub fn bitmap(&self, len: u64) -> Option<Area> {
        let offset = self.bitmap_offset()?;
        let data = self.data().offset;
        let log = self.bad_block_log().map(|log| log.offset);
        let ends = [Some(data), log, Some(len)];
        let end = ends.into_iter().flatten().filter(|end| *end > offset).min()?;
        Some(Area { offset, len: end - offset })
    }

    pub(super) fn signed_bitmap_offset(&self) -> i32 {
        self.raw.bitmap_offset.get() as i32
    }

    pub(super) fn ppl_words(&self) -> (i16, u16) {
        let word = self.raw.bitmap_offset.get();
        (word as u16 as i16, (word >> 16) as u16)
    }

    /// Returns the area of the partial parity log, in bytes of the member.
    pub fn ppl(&self) -> Option<Area> {
        if !self.features().intersects(Features::ANY_PPL) {
            return None;
        }
        let (offset, sectors) = self.ppl_words();
        let sector = SUPER_SECTOR.checked_add_signed(offset.into())?;
        Some(Area { offset: sector * SECTOR, len: u64::from(sectors) * SECTOR })
    }

    /// Returns the area of the bad-block log, in bytes of the member, whether the log has entries
    /// or not.
    pub fn bad_block_log(&self) -> Option<Area> {
        let (offset, sectors) = (self.raw.bblog_offset.get(), self.raw.bblog_size.get());
        if offset == 0 || sectors == 0 {
            return None;
        }
        let sector = SUPER_SECTOR.checked_add_signed(offset.into())?;
        Some(Area { offset: sector * SECTOR, len: u64::from(sectors) * SECTOR })
    }

    /// Returns the shift of the units in the bad-block log: a unit has `512 << shift` bytes.
    pub fn bad_block_shift(&self) -> u8 {
        self.raw.bblog_shift
    }

    /// Returns how much of this member's data area has valid contents.
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

    /// Returns the roles by device number, up to the last device that is not a spare.
    pub fn roles(&self) -> Vec<Role> {
        let used = self.roles.iter().rposition(|role| *role != ROLE_SPARE).map_or(0, |at| at + 1);
        self.roles.iter().take(used).map(|role| Role::from_number(*role)).collect()
    }

    /// Returns the number of roles in the superblock, one for each device number.
    pub fn numbers(&self) -> u32 {
        self.raw.max_dev.get()
    }

    /// Returns the event count, which grows with each change of the array's state. The member with
    /// the highest count is the newest.
    pub fn events(&self) -> u64 {
        self.raw.events.get()
    }

    /// Returns the first sector of the data areas where parity may be wrong; `None` if parity is
    /// right everywhere.
    pub fn resync_from(&self) -> Option<u64> {
        let sector = self.raw.resync_offset.get();
        (sector != CLEAN).then_some(sector)
    }

    /// Returns the checksum that [`Superblock::encode`] sets.
    pub fn sum(&self) -> u32 {
        self.checksum()
    }
}
