//! Resizes file systems without a journal on devices that fail one operation.

use lanefs_device::{Device, Duration, Fault, FaultyDevice, Operation, OverlayDevice};
use lanefs_offline::{Error, Image, recover};
use lanefs_suites::cuts::{dumpe2fs, filled, in_memory, same, seen};
use lanefs_suites::image::{Image as Disk, Scratch};
use std::sync::Arc;

const OPTIONS: &str = "-b 1024 -g 1024 -N 1600 -O ^has_journal,^flex_bg";
/// The most bytes that a resize writes.
const MOST: u64 = 64 << 20;

type Change = fn(Arc<dyn Device>) -> Result<u64, Error>;

/// For each `step`-th operation, makes the change on a fresh copy and lets this operation fail
/// once. After a recovery the file system must be intact, and have its old size or its new one.
fn at_faults(disk: &Disk, operation: Operation, step: usize, change: Change) {
    let base = in_memory(disk);
    let before = seen(base.clone());
    let view = || Arc::new(OverlayDevice::new(base.clone(), MOST));
    let counter = Arc::new(FaultyDevice::new(view(), None));
    let end = change(counter.clone()).expect("the change").to_string();
    let sizes = [dumpe2fs(disk)["Block count"].clone(), end];
    let scratch = Scratch::new(&*base).expect("a scratch file");
    let count = counter.count(operation);
    let mut kept = 0;
    for nth in (1..=count).step_by(step) {
        let state = view();
        let fault = Fault { operation, nth, duration: Duration::Once };
        let result = change(Arc::new(FaultyDevice::new(state.clone(), Some(fault))));
        let context = format!("{operation:?} {nth} of {count}");
        assert!(result.is_err(), "{context}");
        let shared: Arc<dyn Device> = state.clone();
        recover(&shared).unwrap_or_else(|error| panic!("{context}: {error}"));
        let image = scratch.put(&state).expect("a scratch file");
        image.assert_clean(&context);
        let size = &dumpe2fs(image)["Block count"];
        assert!(sizes.contains(size), "{context}: {size} blocks");
        same(&before, &seen(shared), &context);
        kept += u64::from(dumpe2fs(image)["Filesystem features"].contains("has_journal"));
    }
    println!("{count} of {operation:?}, {kept} left a journal");
}

fn grow(device: Arc<dyn Device>) -> Result<u64, Error> {
    Image::open(device)?.grow(11 << 10)
}

fn shrink(device: Arc<dyn Device>) -> Result<u64, Error> {
    Image::open(device)?.shrink(5 << 10)
}

fn to_grow() -> Option<Disk> {
    let disk = filled(OPTIONS, "8M", 1)?;
    let file = std::fs::File::options().write(true).open(disk.path()).expect("the image");
    file.set_len(11 << 20).expect("a longer file");
    Some(disk)
}

#[test]
fn growing_without_a_journal_survives_a_failed_write_or_flush() {
    let Some(disk) = to_grow() else { return };
    at_faults(&disk, Operation::Write, 3, grow);
    at_faults(&disk, Operation::Flush, 3, grow);
}

#[test]
fn shrinking_without_a_journal_survives_a_failed_write_or_flush() {
    let Some(disk) = filled(OPTIONS, "8M", 1) else { return };
    at_faults(&disk, Operation::Write, 10, shrink);
    at_faults(&disk, Operation::Flush, 3, shrink);
}

#[test]
#[ignore = "long: 1,500 failed operations"]
fn resizing_without_a_journal_survives_every_fault() {
    for operation in [Operation::Read, Operation::Write, Operation::Flush] {
        let Some(disk) = to_grow() else { return };
        at_faults(&disk, operation, 1, grow);
        let Some(disk) = filled(OPTIONS, "8M", 1) else { return };
        at_faults(&disk, operation, 1, shrink);
    }
}
