//! Compares two superblocks: a torn superblock with a backup, or the superblock on the device with
//! the superblock in the log.

use super::{Cause, RawSuperblock, Superblock, check};
use crate::checksum::Checksums;
use crate::error::Corruption;
use crate::features::{Compat, Incompat, RoCompat};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

/// Features that are set or cleared while the file system is mounted.
const COMPAT_IN_USE: Compat = Compat::EXT_ATTR.union(Compat::DIR_INDEX);
const RO_COMPAT_IN_USE: RoCompat = RoCompat::LARGE_FILE
    .union(RoCompat::DIR_NLINK)
    .union(RoCompat::HUGE_FILE)
    .union(RoCompat::ORPHAN_PRESENT);

impl Superblock {
    /// Decodes like [`Superblock::decode`], but does not check the checksum. This is for a torn
    /// superblock, in which a crash left some sectors old and some new. The result may be trusted
    /// only if it [agrees](Superblock::agrees_with) with a copy whose checksum is right.
    ///
    /// # Errors
    /// [`Corruption::Superblock`].
    pub fn decode_torn(bytes: &[u8]) -> Result<Superblock, Corruption> {
        let (raw, _) = RawSuperblock::read_from_prefix(bytes)
            .map_err(|_| Corruption::Superblock { cause: Cause::Length { len: bytes.len() } })?;
        match raw.s_magic.get() {
            check::MAGIC => Superblock::from_raw(raw),
            found => Err(Corruption::Superblock { cause: Cause::Magic { found } }),
        }
    }

    /// Returns whether both superblocks agree in every field that changes only when the layout of
    /// the file system changes. Other fields may differ, because a backup may be as old as the last
    /// change of the layout. None of the compared fields crosses a sector boundary, so in a torn
    /// superblock each of them is entirely old or entirely new.
    pub fn agrees_with(&self, copy: &Superblock) -> bool {
        lasting(&self.raw).as_bytes() == lasting(&copy.raw).as_bytes()
    }

    /// Fails unless `next`, the superblock in the log, agrees with this superblock in the fields
    /// that were used to find the log. These are the sizes, the kind of checksums, the width of
    /// block numbers, and the journal's location. `next` may have more blocks, since a file system
    /// can grow, but not fewer.
    ///
    /// # Errors
    /// [`Cause::ChangedInLog`].
    pub fn check_next(&self, next: &Superblock) -> Result<(), Corruption> {
        let (old, new) = (self.geometry, next.geometry);
        let wide = |features: Incompat| features & (Incompat::BIT64 | Incompat::EXTENTS);
        let changed = [
            ("block size", old.block_size != new.block_size),
            ("first data block", old.first_data_block != new.first_data_block),
            ("number of blocks to fewer", new.block_count < old.block_count),
            ("size of groups", old.blocks_per_group != new.blocks_per_group),
            ("size of clusters", old.cluster_bits != new.cluster_bits || bigalloc(self, next)),
            ("number of inodes per group", old.inodes_per_group != new.inodes_per_group),
            ("size of inodes", old.inode_size != new.inode_size),
            ("size of descriptors", old.desc_size != new.desc_size),
            ("width of block numbers", wide(old.features.incompat) != wide(new.features.incompat)),
            ("checksums", !are_alike(self.checksums(), next.checksums())),
            ("place of the journal", self.journal() != next.journal()),
        ];
        match changed.into_iter().find(|(_, changed)| *changed) {
            Some((what, _)) => Err(Corruption::Superblock { cause: Cause::ChangedInLog { what } }),
            None => Ok(()),
        }
    }
}

/// Returns whether the checksums of a file system are computed in the same way according to both
/// superblocks. The uuid, from which the checksums of `gdt_csum` start, may differ, because it is
/// not needed to find the log.
fn are_alike(old: Checksums, new: Checksums) -> bool {
    match (old, new) {
        (Checksums::Descriptors { .. }, Checksums::Descriptors { .. }) => true,
        (old, new) => old == new,
    }
}

fn bigalloc(old: &Superblock, new: &Superblock) -> bool {
    let has = |s: &Superblock| s.features().ro_compat.contains(RoCompat::BIGALLOC);
    has(old) != has(new)
}

/// Returns a copy in which all fields are zeroed except those that change only when the layout of
/// the file system changes.
fn lasting(raw: &RawSuperblock) -> RawSuperblock {
    let blank = RawSuperblock::new_zeroed();
    let mut kept = raw.clone();
    let features = check::features(raw);
    if !features.incompat.contains(Incompat::CSUM_SEED) {
        // Without `metadata_csum_seed` the field has no meaning. A program writes the field before
        // it sets the feature, so the field may differ between copies.
        kept.s_checksum_seed = blank.s_checksum_seed;
    }
    if !features.incompat.contains(Incompat::ENCRYPT) {
        // Without `encrypt` the field has no meaning. A program writes this field, too,
        // before it sets the feature.
        kept.s_encrypt_algos = blank.s_encrypt_algos;
    }
    kept.s_feature_compat.set((features.compat - COMPAT_IN_USE).bits());
    kept.s_feature_incompat.set((features.incompat - Incompat::RECOVER).bits());
    kept.s_feature_ro_compat.set((features.ro_compat - RO_COMPAT_IN_USE).bits());
    macro_rules! blank {
        ($($field:ident)*) => { $(kept.$field = blank.$field;)* };
    }
    // Each copy of the superblock has its own values of these fields.
    blank!(s_block_group_nr s_checksum);
    // These fields are counts, times and states of use.
    blank!(
        s_free_blocks_count_lo s_free_blocks_count_hi s_free_inodes_count s_overhead_clusters
        s_mtime s_mtime_hi s_wtime s_wtime_hi s_lastcheck s_lastcheck_hi s_mnt_count s_state
        s_last_mounted s_last_orphan s_kbytes_written s_lpf_ino
    );
    blank!(
        s_error_count s_first_error_time s_first_error_time_hi s_first_error_ino
        s_first_error_block s_first_error_func s_first_error_line s_first_error_errcode
        s_last_error_time s_last_error_time_hi s_last_error_ino s_last_error_block
        s_last_error_func s_last_error_line s_last_error_errcode
    );
    // These fields are settings.
    blank!(
        s_max_mnt_count s_checkinterval s_errors s_volume_name s_default_mount_opts s_mount_opts
        s_r_blocks_count_lo s_r_blocks_count_hi s_def_resuid s_def_resgid
    );
    kept
}
