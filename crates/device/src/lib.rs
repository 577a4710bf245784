//! Block devices: a file, RAM, an overlay in memory, and for tests one that
//! records, one that fails and one whose flushes are held back.
//!
//! The crates above see a [`Device`]: bytes at offsets, a flush, and errors that say which
//! operation failed where. Crash tests need no hook in those crates: they mount a
//! [`RecordingDevice`], and then each state that a crash could leave according to its
//! [`Recording`].

mod device;
mod faulty;
mod file;
mod gated;
mod host_use;
mod overlay;
mod ram;
mod recording;
mod replay;

pub use device::{Device, DeviceError, Operation};
pub use faulty::{Duration, Fault, FaultyDevice};
pub use file::{Access, FileDevice, OpenError, OpenOptions};
pub use gated::{GatedDevice, Pace};
pub use host_use::User;
pub use overlay::OverlayDevice;
pub use ram::RamDevice;
pub use recording::{Event, Recording, RecordingDevice};
pub use replay::{Kept, Replay};
