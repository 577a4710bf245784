//! Block devices: a file, RAM, an overlay in memory, and for tests one that records and one that fails.

mod device;

pub use device::{Device, DeviceError, Operation};
