//! The interface for reading metadata blocks.

use lanefs_ondisk::Block;
use lanefs_plan::Error;
use std::sync::Arc;

/// Reads metadata blocks with the changes of all transactions whose block images the journal has,
/// even if they are not committed yet. A block is read from the journal's image if that image is
/// not written to its final location yet, otherwise from the device.
pub(crate) trait BlockReader: Send + Sync {
    /// Returns the contents of `block`, which are one block long. May sleep.
    fn read_block(&self, block: Block) -> Result<Arc<[u8]>, Error>;

    /// Reports that contents read through this reader are damaged. The caller reports each damage
    /// once.
    fn damaged(&self, _error: &Error) {}

    /// Reports that the caches exceed their memory limit, and that a commit would make some of that
    /// memory clean.
    fn over_limit(&self) {}
}
