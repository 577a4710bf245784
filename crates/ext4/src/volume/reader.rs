//! The one way to a metadata block.

use crate::error::Error;
use lanefs_ondisk::Block;
use std::sync::Arc;

/// Reads metadata blocks as the newest committed or captured transaction left them: the journal's
/// image if it is not home yet, else the device.
pub(crate) trait BlockReader: Send + Sync {
    /// The contents of `block`, one block long. Sleeps.
    fn read_block(&self, block: Block) -> Result<Arc<[u8]>, Error>;

    /// What was read is damaged in this way: told once.
    fn damaged(&self, _error: &Error) {}

    /// More is in memory than should be, and a commit would make some of it clean.
    fn crowded(&self) {}
}
