//! Puts the effect of fast commits into the log, as a transaction.
//!
//! Fast commits have the number that follows the number of the last transaction. As soon as the log
//! has a transaction with that number or a later one, the fast commits have no effect. So a single
//! write of the journal superblock replaces the fast commits. The following list has the writes in
//! order, with the reason for each:
//! - *all copies in the log are written in place*, by [`super::Replay::write`], so that the new
//!   transaction may use the whole ring;
//! - *the block after the last transaction is zeroed, then the start of the log is set to this
//!   block*: the log has no transaction now, and the fast commits are still valid. If the block
//!   were not zeroed, it could be a damaged part of a transaction that was not committed. Recovery
//!   after a crash would then take the commit block of the new transaction as proof of corruption;
//! - *the new transaction is written, with a number one higher than that of the fast commits, then
//!   the start of the log is set to this transaction*, so that the log never starts at an
//!   incomplete transaction;
//! - *the same write of the start clears the feature of fast commits*, because e2fsck (1.47.0)
//!   drops the whole log, and with it the new transaction, if it finds fast commits with an older
//!   number. Without the feature, e2fsck does not look at fast commits. But without the feature the
//!   ring of the log includes the area of the fast commits and wraps only at the end of this area,
//!   so the new transaction must not wrap.

use crate::config::Log;
use crate::error::Error;
use crate::flusher::Flusher;
use crate::log::{LogWriter, superblock_offset};
use lanefs_device::Device;
use lanefs_lanes::sync::Arc;
use lanefs_ondisk::jbd2::{JournalIncompat, Sequence};
use lanefs_ondisk::{Block, BlockSize};

/// The effect of the fast commits of a log.
pub struct FastImages {
    /// The number after the last transaction: [`super::Replay::end`].
    pub end: Sequence,
    /// The log block after the last transaction: [`super::Replay::head`].
    pub head: u32,
    /// The blocks that the fast commits change, in order, with their new contents.
    pub images: Vec<(Block, Arc<[u8]>)>,
}

/// Returns an error if `fast` does not fit into the log.
///
/// # Errors
/// [`Error::TooBig`] if `fast` does not fit, and other errors if this log cannot be written at all.
pub fn check_fits(
    device: &dyn Device,
    block_size: BlockSize,
    log: &Log,
    fast: &FastImages,
) -> Result<(), Error> {
    writer(device, block_size, log, fast).map(drop)
}

/// Durably replaces the fast commits of `log` by a transaction with their effect. Before the call,
/// the copies of all transactions must have been written in place and flushed. During the call, no
/// other thread may write the log. After an error or a crash the log has either the fast commits or
/// the transaction.
///
/// # Errors
/// [`Error::TooBig`] if the transaction does not fit into the log; nothing was written in this
/// case. [`Error::Device`] if the device fails.
pub fn put(
    device: Arc<dyn Device>,
    block_size: BlockSize,
    log: &Log,
    fast: &FastImages,
) -> Result<(), Error> {
    let mut writer = writer(&*device, block_size, log, fast)?;
    let on = log.device_or(&*device);
    let zeros = vec![0; block_size.bytes()];
    let place = log.map.place(fast.head).ok_or(Error::BadLogMap { log_block: fast.head })?;
    on.write_durable_at(place.0.0 << block_size.bits(), &zeros)?;
    let mut superblock = log.superblock.clone();
    superblock.set_start(Some(fast.head));
    superblock.set_sequence(fast.end);
    on.write_durable_at(superblock_offset(&log.map, block_size), &superblock.encode())?;
    let (flusher, tid) = (Flusher::new(device.clone()), writer.first());
    let written = writer.write_blocks(&*device, tid, &fast.images, &[])?;
    flusher.flush()?;
    writer.flush()?;
    writer.commit(&flusher, tid, written)?;
    writer.start_without_fast_commits(&flusher, tid)
}

/// Returns a writer whose head is far enough from the end of the log for the transaction to fit.
/// The head is after block `fast.head`, which [`put`] zeroes, if the transaction fits there.
/// Otherwise the head is at the first block of the ring.
///
/// If the head is at the first block of the ring, the transaction may overwrite the zeroed block.
/// Until the transaction is valid, a recovery begins at that block. The overwriting does no harm,
/// because no block of the transaction has the transaction number that recovery expects there.
fn writer(
    device: &dyn Device,
    block_size: BlockSize,
    log: &Log,
    fast: &FastImages,
) -> Result<LogWriter, Error> {
    let area = log.superblock.log_area();
    let at = |head| {
        let mut log = log.clone();
        // The feature stays set here, so that the transaction does not reach into the area of the
        // fast commits.
        log.features |= log.superblock.incompat() & JournalIncompat::FAST_COMMIT;
        log.superblock.set_start(None);
        log.superblock.set_sequence(fast.end);
        log.superblock.set_head(head);
        LogWriter::new(device, block_size, log)
    };
    let first = at(area.start)?;
    let size = first.size(fast.images.len(), 0)?;
    let after = fast.head.saturating_add(1);
    match area.contains(&after) && size <= area.end - after {
        true => at(after),
        false => Ok(first),
    }
}
