//! Recovers the crash states of a workload, and then the crash states of such a recovery.

use lanefs_device::{Device, Kept, RamDevice, RecordingDevice};
use lanefs_ext4::{Atime, Mount, MountOptions};
use lanefs_offline::{look, recover};
use lanefs_suites::cuts::{at_every_cut, dumpe2fs, in_memory};
use lanefs_suites::fill::{Scale, change, fill};
use lanefs_suites::image::{Image, Scratch};
use lanefs_suites::library::Library;
use lanefs_suites::op::Tree;
use std::sync::Arc;

const OPTIONS: &str = "-b 1024 -J size=1 -N 600";

/// Returns a recording of a workload that ended without an unmount.
fn interrupted() -> Option<lanefs_device::Recording> {
    let image = Image::make(OPTIONS, "14M")?;
    let device = Arc::new(RecordingDevice::new(in_memory(&image)).expect("a recording"));
    let options = MountOptions { atime: Atime::Noatime, ..MountOptions::default() };
    let mount = Mount::open(device.clone(), options).expect("Lanefs mounts it");
    let mut library = Library::new(mount.fs());
    let mut scale = Scale::of_image(2, 1024);
    scale.depth = 4;
    for op in fill(scale).iter().chain(&change(scale)) {
        library.apply(op).unwrap_or_else(|errno| panic!("{op:?}: error {errno}"));
    }
    mount.fs().sync().expect("a commit");
    let recording = device.recording();
    drop(library);
    drop(mount);
    Some(recording)
}

#[test]
fn a_clean_image_is_not_written() {
    let Some(image) = Image::make(OPTIONS, "14M") else { return };
    let device = Arc::new(RecordingDevice::new(in_memory(&image)).expect("a recording"));
    let shared: Arc<dyn Device> = device.clone();
    let found = recover(&shared).expect("a recovery");
    assert!(!found.before.needs_recovery() && !found.after.needs_check());
    assert_eq!(device.mark(), 0);
}

#[test]
fn a_dry_run_reports_what_a_recovery_does_and_writes_nothing() {
    let Some(recording) = interrupted() else { return };
    let state = Arc::new(recording.image_at(recording.events().len()));
    let held = state.held();
    let shared: Arc<dyn Device> = state.clone();
    let seen = look(&shared).expect("a look");
    assert!(seen.needs_replay && seen.transactions > 0 && seen.blocks > 0, "{seen:?}");
    assert_eq!(state.held(), held);
    let found = recover(&shared).expect("a recovery");
    assert_eq!(found.before, seen);
    assert_eq!(found.after, lanefs_offline::Condition::default());
    let scratch = Scratch::new(recording.base()).expect("a scratch file");
    let image = scratch.put(&state).expect("a scratch file");
    image.assert_clean("recovered");
    assert_eq!(dumpe2fs(image)["Mount count"], "1", "a recovery is not a mount");
    assert!(!dumpe2fs(image)["Filesystem features"].contains("needs_recovery"));
}

#[test]
fn a_recovery_that_is_cut_anywhere_is_finished_by_the_next() {
    let Some(recording) = interrupted() else { return };
    let events = recording.events().len();
    for cut in [events / 2, events * 3 / 4, events] {
        let state = recording.replay().state(cut, Kept::Torn { seed: cut as u64 });
        let base: Arc<dyn Device> = Arc::new(RamDevice::copy_of(&state).expect("memory"));
        let checked = at_every_cut(base, &|device| recover(&device).map(|_| ()), &|_| {});
        println!("cut {cut} of {events}: {checked:?}");
    }
}

#[test]
fn errors_stay_for_a_check() {
    let Some(image) = Image::make(OPTIONS, "14M") else { return };
    let marked = std::process::Command::new("debugfs")
        .args(["-w", "-R", "ssv state 3"])
        .arg(image.path())
        .output()
        .expect("debugfs");
    assert!(marked.status.success());
    let device = in_memory(&image);
    let found = recover(&device).expect("a recovery");
    assert!(found.after.has_errors && found.after.needs_check());
    assert!(lanefs_offline::Image::open(device).is_err());
}

/// The superblock lost only the feature. It must not keep the number of an inode that is cleared,
/// and the blocks of the journal must not stay in use.
#[test]
fn a_journal_without_its_feature_is_removed_whole() {
    let Some(image) = Image::make(OPTIONS, "14M") else { return };
    image.debugfs("feature -has_journal");
    assert!(image.check().text.contains("a journal is present"));
    let device = image.device();
    let found = recover(&device).expect("a recovery");
    assert!(found.before.half_journal && found.after == lanefs_offline::Condition::default());
    image.assert_clean("recovered");
    assert!(!dumpe2fs(&image).contains_key("Journal inode"));
    // A log that may have to be replayed is left to a check.
    let Some(image) = Image::make(OPTIONS, "14M") else { return };
    image.debugfs("feature -has_journal needs_recovery");
    let refused = recover(&image.device()).expect_err("a refusal").to_string();
    assert!(refused.contains("journal"), "{refused}");
}
