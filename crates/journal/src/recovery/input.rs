//! The input of a recovery.

use crate::log_map::LogMap;
use lanefs_device::Device;
use lanefs_ondisk::jbd2::JournalSuperblock;

/// A log to be replayed, and its file system.
#[derive(Clone, Copy)]
pub struct Input<'a> {
    /// The device of the log; read only.
    pub device: &'a dyn Device,
    /// The device blocks of the log.
    pub map: &'a LogMap,
    /// The checked journal superblock.
    pub superblock: &'a JournalSuperblock,
    /// The number of blocks in the file system; nothing is written beyond its last block.
    pub blocks: u64,
}
