//! The record of a workload: its operations, and what the file system promised.

use super::contents::Change;
use crate::listing::Listing;
use crate::op::Path;
use lanefs_device::Recording;
use std::collections::BTreeMap;

/// A promise: after a crash at event `mark` of the recording, or at a later event, the tree and the
/// data are at least as new as the other fields say.
#[derive(Debug, Clone, Copy)]
pub struct Promise {
    /// The first event at which the promise holds.
    pub mark: usize,
    /// The tree is at least as new as it was after the operation with this index.
    pub tree: usize,
    /// The data of this file (of all files if `None`) is at least as new as it was after the
    /// operation with this index.
    pub data: (Option<u64>, usize),
}

/// The record of a workload.
pub struct History {
    /// The options for mke2fs with which the image was made. They also name the image in digests.
    pub image: String,
    /// Whether the run had little memory and slow flushes.
    pub forgetful: bool,
    /// The device events.
    pub recording: Recording,
    /// Descriptions of the operations; number 0 is the mount.
    pub ops: Vec<String>,
    /// The number of events before each operation.
    pub begun: Vec<usize>,
    /// The tree after each operation.
    pub shapes: Vec<Listing>,
    /// The number of the file at each path, after each operation.
    pub ids: Vec<BTreeMap<Path, u64>>,
    /// For each file number, the changes to the data of the file.
    pub changes: BTreeMap<u64, Vec<Change>>,
    /// The promises.
    pub promises: Vec<Promise>,
}
