//! Checks that the memory of a mount's caches is returned to the system after the unmount.

use lanefs::device::RamDevice;
use lanefs::{FileSystem, FormatOptions, LineHeap, OpenOptions};
use std::sync::Arc;

#[global_allocator]
static HEAP: LineHeap = LineHeap;

const DIRECTORIES: usize = 200;
const FILES: usize = 100;

#[test]
fn memory_of_a_mount_goes_back_to_the_system_at_its_end() {
    let device = Arc::new(RamDevice::create(2 << 30).unwrap());
    FileSystem::format(&*device, &FormatOptions::default()).unwrap();
    let options = OpenOptions::new().cache_bytes(256 << 20);
    let fs = FileSystem::open_device(device, &options).unwrap();
    for d in 0..DIRECTORIES {
        fs.create_dir(format!("/{d}")).unwrap();
        for f in 0..FILES {
            drop(fs.create_file(format!("/{d}/{f}")).unwrap());
        }
    }
    fs.sync().unwrap();
    let (full, in_use) = (anonymous_bytes(), LineHeap::in_use());
    assert!(in_use > 16 << 20, "{in_use} bytes");
    fs.close().unwrap();
    let (after, left) = (anonymous_bytes(), LineHeap::in_use());
    println!("{full} bytes of memory, {in_use} in use; {after} and {left} after the end");
    assert!(after + in_use / 4 * 3 < full, "{full} bytes, {after} after the end of {in_use}");
}

/// Returns the process's anonymous memory in bytes.
fn anonymous_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    number.map(|kib: usize| kib << 10).unwrap()
}
