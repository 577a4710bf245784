//! The properties in a superblock of an array.

use crate::md::superblock::{Area, CLEAN, ROLE_SPARE, Recovery, Role, SUPER_SECTOR, Superblock};
use crate::md::terms::{Cause, Features, SECTOR, SUPERBLOCK_SIZE, Uuid};

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
        area_of(offset.into(), sectors)
    }

    /// Returns the area of the bad-block log, in bytes of the member, whether the log has entries
    /// or not.
    pub fn bad_block_log(&self) -> Option<Area> {
        let (offset, sectors) = (self.raw.bblog_offset.get(), self.raw.bblog_size.get());
        if offset == 0 || sectors == 0 {
            return None;
        }
        area_of(offset.into(), sectors)
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

/// Returns the area of `sectors` sectors that is `offset` sectors behind the superblock.
fn area_of(offset: i64, sectors: u16) -> Option<Area> {
    let sector = SUPER_SECTOR.checked_add_signed(offset)?;
    Some(Area { offset: sector * SECTOR, len: u64::from(sectors) * SECTOR })
}

impl Superblock {
    pub(super) fn check(&self, len: u64) -> Result<(), Cause> {
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
        // The kernel, too, refuses a chunk that is smaller than a page or not a power of two.
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

    /// Checks that each role has one holder, or two while md replaces a member: then the
    /// superblocks of all members list both devices, and only the new device has the replacement
    /// feature.
    fn check_roles(&self, count: u32) -> Result<(), Cause> {
        let mut holders = vec![[None; 2]; count as usize];
        for (device, &role) in self.roles.iter().enumerate() {
            if !matches!(Role::from_number(role), Role::Active(_)) {
                continue;
            }
            let of_role = holders.get_mut(usize::from(role));
            match of_role.ok_or(Cause::RoleNumber { role, count })? {
                [first @ None, _] => *first = Some(device),
                [_, second @ None] => *second = Some(device),
                [_, Some(first)] => {
                    return Err(Cause::RoleTwice { role, first: *first, second: device });
                }
            }
        }
        Ok(())
    }

    /// Checks that the bitmap and the logs overlap neither the superblock nor the data area, and
    /// end within the member.
    fn check_areas(&self, len: u64) -> Result<(), Cause> {
        let raw = &self.raw;
        if self.features().contains(Features::BITMAP_OFFSET) {
            self.check_area("a bitmap", self.signed_bitmap_offset().into(), 1, len)?;
        }
        if self.features().intersects(Features::ANY_PPL) {
            let (offset, sectors) = self.ppl_words();
            let least = crate::md::ppl::HEADER_SIZE as u64 / SECTOR;
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
}
