//! Tests of `bad_blocks.rs`.

use super::*;
use lanefs_device::RamDevice;

fn one(range: Range<u64>) -> Vec<Range<u64>> {
    std::iter::once(range).collect()
}

fn device(most: u64, ranges: Vec<Range<u64>>) -> BadBlocksDevice {
    let below = Arc::new(RamDevice::create(8192).unwrap());
    let bad = BadBlocks {
        device: 0,
        most,
        any: AtomicBool::new(!ranges.is_empty()),
        changed: AtomicBool::new(false),
        ranges: Mutex::new(Rank::Bucket, Ranges { bad: ranges, ..Ranges::default() }),
    };
    BadBlocksDevice::new(below, Arc::new(bad))
}

#[test]
fn ranges_with_a_bad_sector_are_not_read() {
    let device = device(1, one(1024..1536));
    let mut buf = [0; 512];
    device.read_at(512, &mut buf).unwrap();
    device.read_at(1536, &mut buf).unwrap();
    device.read_at(513, &mut buf).unwrap_err();
    device.read_at(1535, &mut buf).unwrap_err();
    device.read_at(0, &mut [0; 8192]).unwrap_err();
}

#[test]
fn a_write_makes_only_whole_sectors_good() {
    let device = device(1, one(1024..2560));
    device.write_at(1536, &[7; 600]).unwrap();
    assert_eq!(device.bad.ranges.lock().bad, [1024..1536, 2048..2560]);
    device.write_at(1025, &[7; 511]).unwrap();
    assert_eq!(device.bad.ranges.lock().bad, [1024..1536, 2048..2560]);
    device.write_zeros(0, 8192).unwrap();
    assert!(device.bad.ranges.lock().bad.is_empty() && device.bad.is_changed());
    assert_eq!(device.bad.ranges.lock().cached.len(), 3, "the log names them still");
    device.flush().unwrap();
    assert!(device.bad.ranges.lock().cached.is_empty());
}

#[test]
fn no_more_is_marked_than_the_log_can_name() {
    let device = device(2, Vec::new());
    assert!(device.bad.mark(512, 512) && device.bad.mark(4096, 4096));
    assert!(!device.bad.mark(2048, 512), "a third entry");
    assert!(device.bad.mark(1024, 3072), "all join to one");
    assert_eq!(device.bad.ranges.lock().bad, one(512..8192));
}
