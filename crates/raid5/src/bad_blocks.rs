//! A member with sectors that are known to be bad.

use lanefs_device::{Device, DeviceError, Operation, forward};
use lanefs_lanes::sync::Arc;
use std::io;
use std::ops::Range;

/// A device that refuses to read the sectors in its bad-block log, since their contents are wrong.
/// The array handles the refusal as a read error and computes the data from the other members.
pub(crate) struct BadBlocksDevice {
    below: Arc<dyn Device>,
    bad: Vec<Range<u64>>,
}

impl BadBlocksDevice {
    /// Creates the device; `bad` are byte ranges of `below`.
    pub(crate) fn new(below: Arc<dyn Device>, bad: Vec<Range<u64>>) -> BadBlocksDevice {
        BadBlocksDevice { below, bad }
    }
}

impl Device for BadBlocksDevice {
    forward!(
        below: len, alignment, is_read_only, write_at, write_vectored_at, flush, write_durable_at,
            write_zeros, discard
    );
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        let (len, end) = (buf.len() as u64, offset.saturating_add(buf.len() as u64));
        if self.bad.iter().any(|bad| bad.start < end && offset < bad.end) {
            let error = io::Error::other("the bad-block log names these sectors");
            return Err(DeviceError::new(Operation::Read, offset, len, error));
        }
        self.below.read_at(offset, buf)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use lanefs_device::RamDevice;

    #[test]
    fn ranges_with_a_bad_sector_are_not_read() {
        let below = Arc::new(RamDevice::create(8192).unwrap());
        let device = BadBlocksDevice { below, bad: Vec::from([1024..1536, 4096..4096]) };
        device.write_at(0, &[7; 8192]).unwrap();
        let mut buf = [0; 512];
        device.read_at(512, &mut buf).unwrap();
        device.read_at(1536, &mut buf).unwrap();
        device.read_at(513, &mut buf).unwrap_err();
        device.read_at(1535, &mut buf).unwrap_err();
        device.read_at(0, &mut [0; 8192]).unwrap_err();
    }
}
