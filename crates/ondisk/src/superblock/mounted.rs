//! The fields that a mounted file system changes.

use super::{ErrorRecord, OrphanEntries, Recovery, State, Superblock, split_time};
use crate::features::{Compat, Incompat, RoCompat};
use crate::types::Ino;

impl Superblock {
    /// Sets the number of free blocks, limited to the number of all blocks. With `bigalloc`, only
    /// the blocks of free clusters count.
    pub fn set_free_blocks(&mut self, blocks: u64) {
        let blocks = blocks.min(self.geometry.block_count());
        self.raw.s_free_blocks_count_lo.set(blocks as u32);
        if self.features().incompat.contains(Incompat::BIT64) {
            self.raw.s_free_blocks_count_hi.set((blocks >> 32) as u32);
        }
    }

    /// Sets the number of free inodes, limited to the number of all inodes.
    pub fn set_free_inodes(&mut self, inodes: u32) {
        self.raw.s_free_inodes_count.set(inodes.min(self.geometry.inode_count()));
    }

    /// Sets the state flags, one of which says whether the file system is clean.
    pub fn set_state(&mut self, state: State) {
        self.raw.s_state.set(state.bits());
    }

    /// Sets the time of the last mount, in seconds since 1970.
    pub fn set_mount_time(&mut self, secs: u64) {
        (self.raw.s_mtime, self.raw.s_mtime_hi) = split_time(secs);
    }

    /// Sets the time of the last write, in seconds since 1970.
    pub fn set_write_time(&mut self, secs: u64) {
        (self.raw.s_wtime, self.raw.s_wtime_hi) = split_time(secs);
    }

    /// Sets the number of mounts since the last check.
    pub fn set_mount_count(&mut self, count: u16) {
        self.raw.s_mnt_count.set(count);
    }

    /// Sets features that need nothing except their bits.
    pub fn add_features(&mut self, compat: Compat, ro_compat: RoCompat) {
        let mut features = self.features();
        features.compat |= compat;
        features.ro_compat |= ro_compat;
        self.raw.s_feature_compat.set(features.compat.bits());
        self.raw.s_feature_ro_compat.set(features.ro_compat.bits());
        self.geometry.features = features;
    }

    /// Sets the head of the orphan list that is chained through the inodes.
    pub fn set_last_orphan(&mut self, ino: Option<Ino>) {
        self.raw.s_last_orphan.set(ino.map_or(0, |ino| ino.0));
    }

    /// Sets the number of KiB that were written since the file system was created.
    pub fn set_kbytes_written(&mut self, kbytes: u64) {
        self.raw.s_kbytes_written.set(kbytes);
    }

    /// Sets or clears the features that change while the file system is mounted: `needs_recovery`
    /// and `orphan_present`. Keeps the other features, on which the geometry depends.
    pub fn set_dirty_features(&mut self, recover: Recovery, orphans: OrphanEntries) {
        let features = &mut self.geometry.features;
        features.incompat.set(Incompat::RECOVER, recover == Recovery::Needed);
        features.ro_compat.set(RoCompat::ORPHAN_PRESENT, orphans == OrphanEntries::Present);
        self.raw.s_feature_incompat.set(features.incompat.bits());
        self.raw.s_feature_ro_compat.set(features.ro_compat.bits());
    }

    /// Counts an error, and stores it as the last error. If no first error is stored, also stores
    /// it as the first error. Marks the file system so that e2fsck checks it completely.
    pub fn record_error(&mut self, error: &ErrorRecord) {
        let raw = &mut self.raw;
        raw.s_state.set(raw.s_state.get() | State::ERROR.bits());
        if raw.s_first_error_time.get() == 0 && raw.s_first_error_time_hi == 0 {
            (raw.s_first_error_time, raw.s_first_error_time_hi) = split_time(error.time);
            raw.s_first_error_ino.set(error.ino);
            raw.s_first_error_block.set(error.block);
            fill(&mut raw.s_first_error_func, error.function.as_bytes());
            raw.s_first_error_line.set(error.line);
            raw.s_first_error_errcode = error.code as u8;
        }
        (raw.s_last_error_time, raw.s_last_error_time_hi) = split_time(error.time);
        raw.s_last_error_ino.set(error.ino);
        raw.s_last_error_block.set(error.block);
        fill(&mut raw.s_last_error_func, error.function.as_bytes());
        raw.s_last_error_line.set(error.line);
        raw.s_last_error_errcode = error.code as u8;
        raw.s_error_count.set(raw.s_error_count.get().saturating_add(1));
    }
}

fn fill(field: &mut [u8], value: &[u8]) {
    let len = value.len().min(field.len());
    field.fill(0);
    field[..len].copy_from_slice(&value[..len]);
}
