//! Checks a decoded superblock of an array.

use super::super::cause::Cause;
use super::super::features::Features;
use super::super::units::{SECTOR, SUPERBLOCK_SIZE};
use super::{Role, SUPER_SECTOR, Superblock};

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

    /// Checks that each role has one holder, or two while md replaces a member: then the superblocks
    /// of all members list both devices, and only the new device has the replacement feature.
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
