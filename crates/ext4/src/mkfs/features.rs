//! The features of a new file system: the sets of mke2fs.conf, and the rules between features.

use super::MkfsError;
use lanefs_ondisk::features::{Compat, Features, Incompat, RoCompat, Support};

/// The features that mke2fs sets for every kind of file system.
const BASE: Features = Features {
    compat: Compat::EXT_ATTR.union(Compat::RESIZE_INODE).union(Compat::DIR_INDEX),
    incompat: Incompat::FILETYPE,
    ro_compat: RoCompat::SPARSE_SUPER.union(RoCompat::LARGE_FILE),
};

/// The features that a new file system can have. `check` also requires that Lanefs can write them.
const MAKEABLE: Features = Features {
    compat: BASE
        .compat
        .union(Compat::HAS_JOURNAL)
        .union(Compat::FAST_COMMIT)
        .union(Compat::ORPHAN_FILE)
        .union(Compat::SPARSE_SUPER2)
        .union(Compat::STABLE_INODES),
    incompat: BASE
        .incompat
        .union(Incompat::EXTENTS)
        .union(Incompat::BIT64)
        .union(Incompat::MMP)
        .union(Incompat::FLEX_BG)
        .union(Incompat::META_BG)
        .union(Incompat::CSUM_SEED)
        .union(Incompat::EA_INODE)
        .union(Incompat::LARGE_DIR)
        .union(Incompat::ENCRYPT)
        .union(Incompat::CASEFOLD),
    ro_compat: BASE
        .ro_compat
        .union(RoCompat::HUGE_FILE)
        .union(RoCompat::DIR_NLINK)
        .union(RoCompat::EXTRA_ISIZE)
        .union(RoCompat::METADATA_CSUM)
        .union(RoCompat::GDT_CSUM)
        .union(RoCompat::BIGALLOC)
        .union(RoCompat::PROJECT)
        .union(RoCompat::VERITY),
};

/// A kind of file system, as in `mke2fs -t`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Kind {
    /// Without journal and extents.
    Ext2,
    /// With a journal, without extents.
    Ext3,
    /// The features that `mke2fs -t ext4` of e2fsprogs 1.47 sets by default.
    #[default]
    Ext4,
}

impl Kind {
    /// Returns the features that a new file system of this kind has by default.
    pub fn features(self) -> Features {
        let mut features = BASE;
        if self != Kind::Ext2 {
            features.compat |= Compat::HAS_JOURNAL;
        }
        if self == Kind::Ext4 {
            features.compat |= Compat::ORPHAN_FILE;
            features.incompat |=
                Incompat::EXTENTS | Incompat::BIT64 | Incompat::FLEX_BG | Incompat::CSUM_SEED;
            features.ro_compat |= RoCompat::HUGE_FILE
                | RoCompat::DIR_NLINK
                | RoCompat::EXTRA_ISIZE
                | RoCompat::METADATA_CSUM;
        }
        features
    }
}

/// Returns the features without those that depend on a missing feature, and without `GDT_CSUM` if
/// `METADATA_CSUM` replaces it. mke2fs drops the same features silently.
pub(super) fn settled(mut features: Features) -> Features {
    if features.ro_compat.contains(RoCompat::METADATA_CSUM) {
        features.ro_compat -= RoCompat::GDT_CSUM;
    } else {
        features.incompat -= Incompat::CSUM_SEED;
    }
    if !features.compat.contains(Compat::HAS_JOURNAL) {
        features.compat -= Compat::ORPHAN_FILE;
    }
    features
}

/// Checks that a file system with these features can be made, and that Lanefs can write it.
pub(super) fn check(features: Features) -> Result<(), MkfsError> {
    let beyond = Features {
        compat: features.compat - MAKEABLE.compat,
        incompat: features.incompat - MAKEABLE.incompat,
        ro_compat: features.ro_compat - MAKEABLE.ro_compat,
    };
    let names = match features.support() {
        _ if beyond != Features::default() => beyond.names(),
        Support::ReadWrite => return check_pairs(features),
        Support::ReadOnly(names) | Support::Refused(names) => names,
    };
    Err(MkfsError::Feature { names: names.join(", ") })
}

fn check_pairs(features: Features) -> Result<(), MkfsError> {
    let Features { compat, incompat, ro_compat } = features;
    let has_extents = incompat.contains(Incompat::EXTENTS);
    let is_sparse = ro_compat.contains(RoCompat::SPARSE_SUPER);
    let grows = compat.contains(Compat::RESIZE_INODE);
    let has_clusters = ro_compat.contains(RoCompat::BIGALLOC);
    let wrong = [
        (has_clusters && !has_extents, "bigalloc needs extent"),
        (incompat.contains(Incompat::BIT64) && !has_extents, "64bit needs extent"),
        (grows && !is_sparse, "resize_inode needs sparse_super"),
        (
            grows && incompat.contains(Incompat::META_BG),
            "resize_inode and meta_bg exclude each other",
        ),
    ];
    match wrong.into_iter().find(|(is_wrong, _)| *is_wrong) {
        Some((_, rule)) => Err(MkfsError::FeatureRule { rule }),
        None => Ok(()),
    }
}
