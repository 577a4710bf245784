//! The interface between the runner and one thread of a workload.

use crate::error::Result;
use crate::scale::Scale;
use crate::stop::Stop;
use crate::target_tree::TargetTree;
use std::time::Instant;

/// The directories of a worker, and the amount of its work.
pub(crate) struct Assignment<'a> {
    pub place: &'a dyn TargetTree,
    /// The directory that all threads of this workload share.
    pub shared: String,
    /// The worker's own directory.
    pub own: String,
    /// The number of the thread, from 0.
    pub thread: u32,
    pub scale: &'a Scale,
    /// The largest number of files that this worker creates in one slice.
    pub new_files: u32,
    /// A flag that the worker checks during long work.
    pub stop: &'a Stop,
}

/// One thread's part of a workload.
pub(crate) trait Worker: Send {
    /// Prepares a slice. The preparation is not timed, and must be finished by `end`.
    fn prepare(&mut self, _end: Instant) -> Result<()> {
        Ok(())
    }
    /// Does one operation.
    fn operation(&mut self) -> Result<Operation>;
    /// Cleans up after a slice. The clean-up is not timed.
    fn clean(&mut self) -> Result<()> {
        Ok(())
    }
}

/// The outcome of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    /// The operation was done.
    Done,
    /// No operation is left in this slice.
    NoneLeft,
}
