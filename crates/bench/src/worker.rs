//! One thread's part of a workload, as the runner sees it.

use crate::error::Result;
use crate::place::Place;
use crate::scale::Scale;
use crate::stop::Stop;
use std::time::Instant;

/// What a worker gets: where it works, and how much it does.
pub(crate) struct Assignment<'a> {
    pub place: &'a dyn Place,
    /// A directory that all threads of this workload share.
    pub shared: String,
    /// A directory of its own.
    pub own: String,
    /// Which thread, from 0.
    pub thread: u32,
    pub scale: &'a Scale,
    /// New files that it makes in one slice at most.
    pub new_files: u32,
    /// Looked at by what takes long.
    pub stop: &'a Stop,
}

/// One thread's part of a workload.
pub(crate) trait Worker: Send {
    /// Before each slice, not timed, until `end` at the latest.
    fn prepare(&mut self, _end: Instant) -> Result<()> {
        Ok(())
    }
    /// One operation.
    fn operation(&mut self) -> Result<Operation>;
    /// After each slice, not timed.
    fn clean(&mut self) -> Result<()> {
        Ok(())
    }
}

/// What became of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    /// It was done.
    Done,
    /// None is left in this slice.
    NoneLeft,
}
