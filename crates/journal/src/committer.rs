//! The state that the committer needs to write the log.

use crate::config::Log;
use crate::error::Error;
use crate::limits::Limits;
use crate::log::LogWriter;
use crate::tid::Tid;
use lanefs_device::Device;
use lanefs_ondisk::BlockSize;

/// The committer's state, owned by the thread that commits.
pub(crate) struct Committer {
    pub(crate) log: Option<LogWriter>,
}

impl Committer {
    pub(crate) fn new(
        device: &dyn Device,
        block_size: BlockSize,
        log: Option<Log>,
    ) -> Result<Committer, Error> {
        let log = log.map(|log| LogWriter::new(device, block_size, log)).transpose()?;
        Ok(Committer { log })
    }

    /// See [`LogWriter::record_abort`].
    pub(crate) fn record_abort(&mut self, device: &dyn Device) -> Result<(), Error> {
        self.log.as_mut().map_or(Ok(()), |log| log.record_abort(device))
    }

    /// See [`LogWriter::forget_abort`].
    pub(crate) fn forget_abort(&mut self, device: &dyn Device) -> Result<(), Error> {
        self.log.as_mut().map_or(Ok(()), |log| log.forget_abort(device))
    }

    /// Returns the number of the first transaction.
    pub(crate) fn first(&self) -> Tid {
        self.log.as_ref().map_or(Tid(1 << 32), LogWriter::first)
    }

    pub(crate) fn limits(&self, block_size: BlockSize, image_cap: u64) -> Result<Limits, Error> {
        let Some(log) = &self.log else {
            return Ok(Limits::without_log(block_size, image_cap));
        };
        Limits::with_log(log.ring.size(), log.density(), block_size, image_cap)
    }
}
