//! The configuration of a journal.

use crate::log_map::LogMap;
use lanefs_device::Device;
use lanefs_lanes::sync::Arc;
use lanefs_ondisk::BlockSize;
use lanefs_ondisk::jbd2::{JournalIncompat, JournalSuperblock};
use std::time::Duration;

/// How a journal is started.
#[derive(Clone)]
pub struct Config {
    /// The device of the file system, and of its log if the log has no device of its own.
    pub device: Arc<dyn Device>,
    /// Size of a block of the file system.
    pub block_size: BlockSize,
    /// The log; `None` for a file system without a journal. Without a log, transactions work in the
    /// same way, but a crash during a commit may leave only a part of the transaction on the
    /// device.
    pub log: Option<Log>,
    /// The longest time from a change to its commit.
    pub commit_interval: Duration,
    /// The limit for images in memory, in bytes; above it, images are written in place early.
    pub image_cap: u64,
}

impl Config {
    /// The commit interval of the kernel's ext4.
    pub const COMMIT_INTERVAL: Duration = Duration::from_secs(5);

    /// The default of [`Config::image_cap`].
    pub const IMAGE_CAP: u64 = 64 << 20;

    /// Creates a configuration with the defaults and no log.
    pub fn new(device: Arc<dyn Device>, block_size: BlockSize) -> Config {
        Config {
            device,
            block_size,
            log: None,
            commit_interval: Config::COMMIT_INTERVAL,
            image_cap: Config::IMAGE_CAP,
        }
    }
}

/// An empty log: mkfs created it, or it was closed cleanly or recovered.
#[derive(Clone)]
pub struct Log {
    /// The device of the log; `None` if it is the device of the file system.
    pub device: Option<Arc<dyn Device>>,
    /// The device blocks of the log.
    pub map: LogMap,
    /// The log's superblock as stored on the device.
    pub superblock: JournalSuperblock,
    /// The features of the log, chosen as the kernel chooses them: [`JournalIncompat::BIT64`] if
    /// the file system is 64-bit, and [`JournalIncompat::CSUM_V3`] if its metadata has checksums.
    pub features: JournalIncompat,
}

impl Log {
    /// Returns the device of the log. This is `shared`, the device of the file system, if the log
    /// has no device of its own.
    pub fn device_or<'a>(&'a self, shared: &'a dyn Device) -> &'a dyn Device {
        self.device.as_deref().unwrap_or(shared)
    }
}
