//! The largest size of a transaction, computed from the log's size by pure functions.

use crate::error::Error;
use lanefs_ondisk::BlockSize;

/// A transaction may take this many log blocks even if that is more than a quarter of the log, but
/// not more than three quarters of it. So even in the smallest log that mke2fs makes (1024 blocks),
/// a transaction has room for four handles of sixty credits, less what lanes keep in their stashes.
const SMALL_LOG: u32 = 256;

/// The limits of a transaction. Credits are counted in *grains*: a logged block costs
/// [`Limits::grains`], a revoke record costs one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    /// The number of grains that a logged block costs, which is the number of records in a revoke
    /// block.
    pub(crate) grains: u64,
    /// The largest number of blocks that one transaction can have. Images and revoke blocks count;
    /// descriptors and the commit block do not.
    pub(crate) capacity: u32,
    /// The largest number of unused credits in the stashes of all lanes together, with which a
    /// transaction may close.
    pub(crate) stashes: u32,
}

/// The numbers of tags and records that fit into a block in the log's format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Density {
    /// A full descriptor block lists at least this many blocks.
    pub(crate) tags: u32,
    /// The number of records in one revoke block.
    pub(crate) revokes: u32,
}

impl Limits {
    /// Computes the limits for a log of `usable` blocks. The limits keep the images of two
    /// transactions, one that is being captured and one that is not written in place yet, within
    /// `image_cap` bytes. (If `image_cap` is less than twice `SMALL_LOG` blocks, the images may
    /// take more.)
    ///
    /// # Errors
    /// [`Error::LogTooSmall`] if only a few blocks fit.
    pub(crate) fn with_log(
        usable: u32,
        density: Density,
        block_size: BlockSize,
        image_cap: u64,
    ) -> Result<Limits, Error> {
        let Density { tags, revokes } = density;
        // If each transaction takes at most a quarter of the log, the log has room for four: one
        // that is being written, one that runs, and two that wait for their checkpoint.
        let log_blocks = (usable / 4).max(SMALL_LOG.min(usable / 4 * 3));
        // Leaves room for a commit block, and for one descriptor and one revoke block that are only
        // partly filled.
        let rest = log_blocks.saturating_sub(3);
        let by_log = u64::from(rest) * u64::from(tags) / (u64::from(tags) + 1);
        let capacity = by_log.min(in_memory(block_size, image_cap).into()) as u32;
        if capacity < 8 {
            return Err(Error::LogTooSmall { blocks: usable });
        }
        Ok(Limits { grains: revokes.max(1).into(), capacity, stashes: capacity / 4 })
    }

    /// Computes the limits without a log, where only memory limits a transaction.
    pub(crate) fn without_log(block_size: BlockSize, image_cap: u64) -> Limits {
        let capacity = in_memory(block_size, image_cap);
        Limits { grains: 64, capacity, stashes: capacity / 4 }
    }
}

fn in_memory(block_size: BlockSize, image_cap: u64) -> u32 {
    let blocks = image_cap / 2 / block_size.bytes() as u64;
    u32::try_from(blocks).unwrap_or(u32::MAX).clamp(SMALL_LOG, 1 << 24)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u32 = 1024;

    fn limits(usable: u32, bytes: u32) -> Result<Limits, Error> {
        let density = Density { tags: (bytes - 32) / 16, revokes: (bytes - 20) / 8 };
        let size = BlockSize::new(bytes).unwrap();
        Limits::with_log(usable, density, size, 64 << 20)
    }

    #[test]
    fn the_smallest_log_takes_handles_of_sixty_credits() {
        assert!(limits(1023, KIB).unwrap().capacity >= 4 * 60);
        assert_eq!(limits(1023, KIB).unwrap().stashes, 62);
    }

    #[test]
    fn a_full_transaction_fits_beside_its_overhead() {
        for usable in (16..5000).step_by(7).chain([32767, 1 << 18, u32::MAX]) {
            for bytes in [KIB, 4 * KIB, 64 * KIB] {
                let Ok(limits) = limits(usable, bytes) else {
                    assert!(usable < 32);
                    continue;
                };
                let capacity = limits.capacity;
                let tags = (bytes - 32) / 16;
                let total = u64::from(capacity) + u64::from(capacity.div_ceil(tags)) + 2;
                assert!(total < u64::from(usable), "{capacity} in {usable}");
                assert!(limits.stashes * 4 <= capacity);
            }
        }
    }

    #[test]
    fn memory_bounds_what_a_huge_log_would_take() {
        assert_eq!(limits(1 << 18, 4 * KIB).unwrap().capacity, 8192);
    }
}
