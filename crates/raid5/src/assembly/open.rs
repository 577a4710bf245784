//! An open array: a device, with the background work that belongs to it.

use crate::array::Array;
use crate::array::setup::{ArrayOptions, Upkeep};
use crate::assembly::Candidate;
use crate::assembly::error::{AssembleError, LeftOut};
use crate::assembly::metadata::{Known, Metadata};
use crate::assembly::start::{Started, start};
use crate::log::recovery::LogOutcome;
use crate::members::Standing;
use crate::upkeep::{Background, CatchUp};
use lanefs_device::{Access, Device, DeviceError, Operation, ReadKind, WriteKind};
use lanefs_device::{forward, total_len};
use lanefs_lanes::Process;
use lanefs_lanes::sync::Arc;
use std::io;
use std::ops::Range;
use std::path::PathBuf;

/// Ranges of a device, in bytes.
pub type Places = Vec<Range<u64>>;

/// An open array. Dropping the array marks it clean and ignores errors; [`OpenArray::close`]
/// returns them.
pub struct OpenArray {
    array: Arc<Array>,
    metadata: Arc<Metadata>,
    background: Option<Background>,
    left_out: Vec<LeftOut>,
    log: Option<LogOutcome>,
    access: Access,
    /// The process that has the background thread.
    opener: Process,
}

impl std::fmt::Debug for OpenArray {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenArray").field("array", &self.array).finish_non_exhaustive()
    }
}

impl OpenArray {
    /// Assembles an array. `absent` is the number of members that the caller knows to be missing.
    ///
    /// Writes only for recovery, that is, to apply and empty the partial parity log, or to clear an
    /// outdated bitmap.
    ///
    /// # Errors
    /// See [`AssembleError`].
    pub fn assemble(
        candidates: Vec<Candidate>,
        absent: usize,
        options: ArrayOptions,
    ) -> Result<OpenArray, AssembleError> {
        let wanted = options.upkeep == Upkeep::Background && options.access == Access::ReadWrite;
        let Started { array, metadata, left_out, log } = start(candidates, absent, &options)?;
        Ok(OpenArray {
            background: wanted.then(|| Background::start(array.clone(), metadata.clone())),
            array,
            metadata,
            left_out,
            log,
            access: options.access,
            opener: Process::this(),
        })
    }

    /// Returns the array.
    pub fn array(&self) -> &Array {
        &self.array
    }

    /// Returns the array's superblocks.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// Returns the devices that were given but are not used.
    pub fn left_out(&self) -> &[LeftOut] {
        &self.left_out
    }

    /// Returns the result of applying the partial parity log, if that was needed.
    pub fn log(&self) -> Option<LogOutcome> {
        self.log
    }

    /// Returns what the rebuilds and the resync in the background have come to; `None` if the
    /// caller does this work.
    pub fn caught_up(&self) -> Option<CatchUp> {
        let status = self.array.status();
        let is_whole = status.members.iter().all(|member| *member == Standing::InSync);
        match self.background.as_ref().map(Background::caught_up) {
            // A later change of the members has done the work.
            Some(CatchUp::Failed(_)) if is_whole && status.unsynced_rows == 0 => {
                Some(CatchUp::Done)
            }
            caught_up => caught_up,
        }
    }

    /// Returns the number of blocks of 4 KiB that could not be computed since the array was opened,
    /// and so were named in bad-block logs.
    pub fn unreadable_blocks(&self) -> u64 {
        let at_the_start = self.log.map_or(0, |log| log.unreadable);
        at_the_start + self.array.statistics().blocks_unreadable
    }

    /// Returns the name of each member that has a bad-block log, with the bad ranges of its device
    /// in bytes.
    ///
    /// # Errors
    /// If a log cannot be read or is not valid.
    pub fn bad_blocks(&self) -> Result<Vec<(PathBuf, Places)>, AssembleError> {
        let of = |known: Known| {
            let Known { name, device, superblock, .. } = known;
            let member = Candidate { name, device, superblock };
            member.bad_blocks().map(|places| (member.name, places))
        };
        self.metadata.devices().into_iter().map(of).collect()
    }

    /// Stops background work, and marks the array clean if all parity is right.
    ///
    /// # Errors
    /// An error of a member, or the error that stopped writes.
    pub fn close(mut self) -> Result<(), DeviceError> {
        self.end()
    }

    fn end(&mut self) -> Result<(), DeviceError> {
        if let Err(error) = self.check(Operation::Flush, 0, 0) {
            // The parent process uses the array.
            std::mem::forget((self.background.take(), self.array.clone()));
            return Err(error);
        }
        self.without_upkeep();
        match self.access {
            Access::ReadOnly => Ok(()),
            Access::ReadWrite => self.array.stop(),
        }
    }

    /// Stops the background thread, so that the caller can do the thread's work.
    pub fn without_upkeep(&mut self) {
        if let Some(background) = self.background.take() {
            background.end();
        }
    }

    /// Fails if the array was opened only for reading and this is a change, and always in a child of
    /// fork(2). The child lacks the threads whose work on the array it might wait for.
    fn check(&self, operation: Operation, offset: u64, len: u64) -> Result<(), DeviceError> {
        if !self.opener.is_this() {
            return Err(DeviceError::forked(operation, offset, len));
        }
        match (self.access, operation) {
            (Access::ReadOnly, Operation::Write | Operation::Discard) => {
                let refused = io::ErrorKind::ReadOnlyFilesystem;
                Err(DeviceError::new(operation, offset, len, refused))
            }
            _ => Ok(()),
        }
    }
}

impl Drop for OpenArray {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

impl Device for OpenArray {
    forward!(array: len, alignment, row_len);
    fn is_read_only(&self) -> bool {
        self.access == Access::ReadOnly || self.array.is_read_only()
    }
    fn read(&self, offset: u64, buf: &mut [u8], kind: ReadKind) -> Result<(), DeviceError> {
        self.check(Operation::Read, offset, buf.len() as u64)?;
        self.array.read(offset, buf, kind)
    }
    fn write(&self, offset: u64, bufs: &[&[u8]], kind: WriteKind) -> Result<(), DeviceError> {
        self.check(Operation::Write, offset, total_len(bufs))?;
        self.array.write(offset, bufs, kind)
    }
    fn flush(&self) -> Result<(), DeviceError> {
        self.check(Operation::Flush, 0, 0)?;
        match self.access {
            Access::ReadOnly => Ok(()),
            Access::ReadWrite => self.array.flush(),
        }
    }
    fn write_zeros(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        self.check(Operation::Write, offset, len)?;
        self.array.write_zeros(offset, len)
    }
    fn discard(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        self.check(Operation::Discard, offset, len)?;
        self.array.discard(offset, len)
    }
}
