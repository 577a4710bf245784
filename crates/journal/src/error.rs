//! The reasons why the journal stops.

use crate::tid::Tid;
use lanefs_device::DeviceError;
use lanefs_lanes::sync::Arc;
use lanefs_ondisk::{Block, Corruption, Unsupported};
use thiserror::Error;

/// A failure of the journal. It can be cloned, because the first failure is kept and returned to
/// every later caller.
#[derive(Debug, Clone, Error)]
#[non_exhaustive]
pub enum Error {
    /// The journal was aborted earlier; nothing more becomes durable.
    #[error("the journal was aborted: {cause}")]
    Aborted {
        /// The first failure.
        cause: Arc<Error>,
    },
    /// The process is a child of fork(2), and its parent uses the journal.
    #[error("opened by the parent process, before fork(2)")]
    Forked,
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The log on disk breaks the format.
    #[error(transparent)]
    Corruption(#[from] Corruption),
    /// The log uses a feature that is not supported.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    /// The file system failed to capture objects, or failed in its work after a commit.
    #[error("{source}")]
    Client {
        /// The file system's error.
        source: Arc<dyn std::error::Error + Send + Sync>,
    },
    /// The caller requested more credits than one transaction of this journal can ever have.
    #[error("{credits} credits are more than the {max} that a transaction can have")]
    TooBig {
        /// The requested number of blocks.
        credits: u32,
        /// The limit of [`crate::Journal::join`].
        max: u32,
    },
    /// A thread panicked while it had a handle, so its transaction is half done.
    #[error("an operation panicked inside {tid}")]
    Panicked {
        /// The transaction.
        tid: Tid,
    },
    /// The journal was stopped; no thread can join any more.
    #[error("the journal is stopped")]
    Stopped,
    /// The log has transactions that were not replayed.
    #[error("the log needs recovery")]
    NeedsRecovery,
    /// The log is too small for a transaction.
    #[error("a log of {blocks} blocks is too small")]
    LogTooSmall {
        /// The number of blocks that the log can use.
        blocks: u32,
    },
    /// The journal inode does not map the whole log, because the image is damaged.
    /// [`crate::LogMap`] detects this.
    #[error("log block {log_block} is not mapped, or to a block that the log cannot have")]
    BadLogMap {
        /// The first wrong block, counted from the start of the log.
        log_block: u32,
    },
    /// The journal inode has a hole, because the image is damaged.
    #[error("the journal's inode has a hole at log block {log_block}")]
    LogHole {
        /// The first block of the hole, counted from the start of the log.
        log_block: u32,
    },
    /// The journal inode has blocks beyond its size, because the image is damaged.
    #[error("the journal's inode has log block {log_block}, but a size of {blocks} blocks")]
    LogBeyondSize {
        /// The last block, counted from the start of the log.
        log_block: u32,
        /// The size of the inode in blocks.
        blocks: u32,
    },
    /// A logged block is outside the file system or inside the log.
    #[error("a logged {block} lies outside the file system or inside the log")]
    WildBlock {
        /// The block.
        block: Block,
    },
}

impl Error {
    /// Wraps a failure of the file system.
    pub fn client(source: impl std::error::Error + Send + Sync + 'static) -> Error {
        Error::Client { source: Arc::new(source) }
    }
}
