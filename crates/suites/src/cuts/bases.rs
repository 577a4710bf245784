//! The images that commands change, and the contents of images.

use crate::crash::checker::has_torn_superblock;
use crate::fill::{Scale, WideTimes, change, fill};
use crate::image::{Image, Mappings};
use crate::library::Library;
use crate::listing::{self, Listing};
use crate::op::{Tree, show};
use lanefs_device::{Device, Kept, RamDevice, RecordingDevice};
use lanefs_ext4::{Access, Atime, Mount, MountOptions};
use std::collections::BTreeMap;
use std::process::Command;
use std::sync::Arc;

fn scale(options: &str, megabytes: u64) -> Scale {
    let block = if options.contains("-b 4096") { 4096 } else { 1024 };
    let mut scale = Scale::of_image(megabytes, block).with(Mappings::of(options));
    scale.depth = 6;
    if options.contains("-I 128") {
        scale.wide_times = WideTimes::No;
    }
    scale
}

fn noatime() -> MountOptions {
    MountOptions { atime: Atime::Noatime, ..MountOptions::default() }
}

/// Creates an image with mke2fs and fills it with Lanefs; returns `None` and prints the reason if
/// mke2fs is missing.
pub fn filled(options: &str, size: &str, megabytes: u64) -> Option<Image> {
    filled_by_seed(options, size, megabytes, 0)
}

/// Works like [`filled`]. The tree depends on the seed.
pub(super) fn filled_by_seed(
    options: &str,
    size: &str,
    megabytes: u64,
    seed: u64,
) -> Option<Image> {
    let image = Image::make(options, size)?;
    let mut scale = scale(options, megabytes);
    scale.files += (seed % 7) as u32;
    scale.pieces += seed % 5 * 3;
    let mount = Mount::open(image.device(), noatime()).expect("Lanefs mounts it");
    let mut library = Library::new(mount.fs());
    for op in fill(scale) {
        library.apply(&op).unwrap_or_else(|errno| panic!("{op:?}: error {errno}"));
    }
    drop(library);
    mount.close().expect("Lanefs unmounts it");
    Some(image)
}

/// Returns an image in memory, in the state after a power cut that happened while programs were
/// writing. The device is `device` megabytes long.
pub(super) fn torn(
    options: &str,
    megabytes: u64,
    device: u64,
    seed: u64,
) -> Option<Arc<dyn Device>> {
    let image = Image::make(options, &format!("{megabytes}M"))?;
    lengthen(&image, device);
    let device = Arc::new(RecordingDevice::new(in_memory(&image)).expect("a recording"));
    let mount = Mount::open(device.clone(), noatime()).expect("Lanefs mounts it");
    let mut library = Library::new(mount.fs());
    let scale = scale(options, 2);
    for op in fill(scale).iter().chain(&change(scale)) {
        library.apply(op).unwrap_or_else(|errno| panic!("{op:?}: error {errno}"));
    }
    mount.fs().sync().expect("a commit");
    let recording = device.recording();
    drop(library);
    drop(mount);
    let events = recording.events().len();
    let mut rng = fastrand::Rng::with_seed(seed);
    loop {
        let (cut, seed) = (rng.usize(events / 2..=events), rng.u64(..));
        let state = recording.replay().state(cut, Kept::Torn { seed });
        if !has_torn_superblock(&state) {
            return Some(Arc::new(RamDevice::copy_of(&state).expect("memory")));
        }
    }
}

/// Makes the file of an image longer; a hole fills the new part.
pub(super) fn lengthen(image: &Image, megabytes: u64) {
    let file = std::fs::File::options().write(true).open(image.path()).expect("the image");
    file.set_len(megabytes << 20).expect("a longer file");
}

/// Returns a copy of the image in memory.
pub fn in_memory(image: &Image) -> Arc<dyn Device> {
    Arc::new(RamDevice::copy_of(&image.device()).expect("memory"))
}

/// Returns everything visible in the file system, without writing to the device.
///
/// # Panics
/// If the image cannot be mounted or read.
pub fn seen(device: Arc<dyn Device>) -> Listing {
    try_seen(device).unwrap_or_else(|why| panic!("{why}"))
}

/// Works like [`seen`], but returns the reason if the image cannot be mounted or read.
pub(super) fn try_seen(device: Arc<dyn Device>) -> Result<Listing, String> {
    let options = MountOptions { access: Access::ReadOnly, ..noatime() };
    let mount = Mount::open(device, options).map_err(|error| format!("no mount: {error}"))?;
    listing::of_library(mount.fs()).map_err(|(path, error)| format!("{}: {error}", show(&path)))
}

/// Returns the values in the output of dumpe2fs -h, keyed by field name.
pub fn dumpe2fs(image: &Image) -> BTreeMap<String, String> {
    let output = Command::new("dumpe2fs").arg("-h").arg(image.path()).output().expect("dumpe2fs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let fields = text.lines().filter_map(|line| line.split_once(':'));
    fields.map(|(name, value)| (name.trim().into(), value.trim().into())).collect()
}

/// Compares contents, except for properties that change when blocks move.
#[track_caller]
pub fn same(before: &Listing, after: &Listing, context: &str) {
    let differences = contents(before.clone()).differences(&contents(after.clone()));
    assert!(differences.is_empty(), "{context}:\n  {}", differences.join("\n  "));
}

/// Returns a listing without properties that change when blocks move.
pub(super) fn contents(mut listing: Listing) -> Listing {
    for entry in listing.entries.values_mut() {
        (entry.ino, entry.sectors) = (None, None);
    }
    listing
}
