//! Changes an array's superblock.

use super::super::features::Features;
use super::super::uuid::Uuid;
use super::{BadBlocks, CLEAN, Recovery, Role, Superblock, md_time};

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

    pub(super) fn set_features(&mut self, features: Features) {
        self.raw.feature_map.set(features.bits());
    }
}
