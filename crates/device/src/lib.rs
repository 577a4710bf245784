//! No promise of stability: a part of Lanefs, for its other crates only.
//!
//! Block devices: a file, an export of an NBD server, RAM, and an overlay in memory. For tests: a device that records, a device
//! that fails on request, and a device with slow flushes.
//!
//! The other crates use a [`Device`], which reads and writes bytes at offsets, flushes, and returns
//! errors that name the failed operation and its offset. Crash tests need no hook in those crates:
//! they mount a [`RecordingDevice`], compute each possible state after a crash from its
//! [`Recording`], and mount these states too.

mod data;
mod device;
mod direct;
mod faulty;
mod file;
mod forward;
mod gated;
mod host_use;
mod image_lock;
mod nbd;
mod overlay;
mod partitions;
mod ram;
mod recording;
mod replay;
mod stdout;

pub use data::data_after;
pub use device::{Access, Device, DeviceError, Operation, ReadKind, WriteKind};
pub use device::{check_range, read_unaligned, total_len};
pub use faulty::{Duration, Fault, FaultyDevice};
pub use file::{FileDevice, OpenError, OpenOptions};
pub use gated::{GatedDevice, Pace};
pub use host_use::User;
pub use nbd::is_uri;
pub use overlay::OverlayDevice;
pub use partitions::{
    BadTable, Ext4, Partition, PartitionError, PartitionGrowth, PartitionTable, Pick, TableCopy,
    TableKind, file_of,
};
pub use ram::RamDevice;
pub use recording::{Event, Recording, RecordingDevice};
pub use replay::{Kept, Replay};
pub use stdout::stdout_was_closed;
