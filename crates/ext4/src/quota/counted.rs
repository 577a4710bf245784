//! The usage that an inode adds to its owners.

use crate::clock::now;
use lanefs_ondisk::inode as disk;
use lanefs_ondisk::quota::{Limits, Quota, QuotaFile, Usage};

/// The ids of an inode's owners, in the order of [`Kind`]; `None` for a kind of owner that does not
/// matter to the caller.
pub(crate) type Owners = [Option<u32>; 3];

/// The usage that an inode adds to its owners.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Counted {
    pub(crate) owners: Owners,
    pub(super) usage: Usage,
}

impl Counted {
    /// Returns the usage of an inode.
    pub(crate) fn of(disk: &disk::Inode) -> Counted {
        let usage = Usage { bytes: disk.sectors.saturating_mul(512), inodes: 1 };
        Counted { owners: owners(disk), usage }
    }

    /// Returns a usage of zero for these owners. This is the usage of an inode that does not exist.
    pub(crate) fn nothing(self) -> Counted {
        Counted { usage: Usage::default(), ..self }
    }
}

/// The inodes and the space that an operation will use.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted {
    pub(crate) inodes: u64,
    /// The bytes of one unit of space.
    pub(crate) unit: u64,
    pub(crate) units: u64,
}

/// Returns the owners of an inode.
pub(crate) fn owners(disk: &disk::Inode) -> Owners {
    [Some(disk.uid), Some(disk.gid), Some(disk.projid)]
}

/// Returns the time in seconds since 1970.
pub(super) fn seconds() -> u64 {
    now().secs.try_into().unwrap_or(0)
}

/// Returns the entry with new limits. If the usage no longer exceeds a limit, the grace time of
/// that limit is cleared.
pub(crate) fn limited(mut quota: Quota, limits: Limits) -> Quota {
    quota.limits = limits;
    if quota.usage.bytes <= limits.kib_soft.saturating_mul(1024) || limits.kib_soft == 0 {
        quota.bytes_until = 0;
    }
    if quota.usage.inodes <= limits.inodes_soft || limits.inodes_soft == 0 {
        quota.inodes_until = 0;
    }
    quota
}

/// The entries of a quota file.
pub(crate) fn entries(file: &QuotaFile) -> Vec<(u32, Quota)> {
    file.ids().into_iter().filter_map(|id| Some((id, file.get(id)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_above_the_usage_ends_the_grace_time() {
        let mut quota = Quota { bytes_until: 9, inodes_until: 9, ..Quota::default() };
        quota.usage.bytes = 2048;
        quota.usage.inodes = 3;
        let limits = Limits { kib_soft: 1, inodes_soft: 3, ..Limits::default() };
        let after = limited(quota, limits);
        assert_eq!((after.bytes_until, after.inodes_until), (9, 0));
    }
}
