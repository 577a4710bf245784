//! The hostile suite opens, walks and writes to damaged images. Errors must name the damage; no
//! operation may panic, hang, use memory without bound, or write outside the file system.

pub mod exercise;
pub mod extremes;
pub mod guard;
pub mod kernel;
pub mod kinds;
pub mod target;
pub mod words;

use crate::image::Image;
use exercise::{Outcome, exercise};
use guard::Guarded;
use kinds::Kind;
use lanefs_device::{Device, OverlayDevice};
use lanefs_lanes::sync::unscheduled::mpsc;
use std::sync::Arc;
use std::time::Duration;
use target::{Left, Target};

/// The number of device operations after which a run counts as endless. A run on an undamaged image
/// takes a few thousand.
const PATIENCE: u64 = 400_000;
/// The time after which a run counts as hung. It catches a loop that makes no device operations.
const TIME: Duration = Duration::from_secs(60);
/// The largest amount of memory that the process may use, in KiB.
const MEMORY: u64 = 3 << 20;

/// Sums over many images.
#[derive(Debug, Default)]
pub struct Totals {
    /// The number of images.
    pub images: u64,
    /// The number of images that could be mounted.
    pub mounted: u64,
    /// The number of images on which some operation returned an error.
    pub with_errors: u64,
}

impl Totals {
    /// Adds the outcome for one image.
    pub fn add(&mut self, outcome: &Outcome) {
        self.images += 1;
        self.mounted += u64::from(outcome.mounted);
        self.with_errors += u64::from(!outcome.errors.is_empty());
    }
}

/// Runs all operations on a damaged image.
pub fn check(target: &Target, what: &str) -> Result<Outcome, String> {
    let device = Arc::new(Guarded::new(target.device(), PATIENCE));
    let outcome = in_time(device.clone(), what)?;
    // If the damaged superblock states a different file system size, the bytes after the file
    // system are not checked.
    let mut end = [0; 4];
    let read = device.read_at(target::SUPER + 4, &mut end);
    let end = u64::from(u32::from_le_bytes(end)) * target.block_size();
    if read.is_ok() && end == target.len() && !device.is_untouched_from(end) {
        return Err("it wrote behind the file system".into());
    }
    Ok(outcome)
}

/// Runs all operations on a copy of an image.
pub fn check_image(image: &Image, what: &str) -> Result<Outcome, String> {
    check_device(OverlayDevice::new(image.device(), u64::MAX), what)
}

/// Runs all operations on a device.
pub fn check_device(device: OverlayDevice, what: &str) -> Result<Outcome, String> {
    in_time(Arc::new(Guarded::new(device, PATIENCE)), what)
}

fn in_time(device: Arc<Guarded>, what: &str) -> Result<Outcome, String> {
    let (tell, told) = mpsc::channel();
    let used = device.clone();
    let worker = std::thread::Builder::new()
        .name(what.to_string())
        .spawn(move || {
            let _ = tell.send(exercise(used));
        })
        .map_err(|e| e.to_string())?;
    let outcome = match told.recv_timeout(TIME) {
        Ok(outcome) => outcome,
        Err(mpsc::RecvTimeoutError::Timeout) => return Err("it hangs".into()),
        Err(mpsc::RecvTimeoutError::Disconnected) => return Err("it panicked".into()),
    };
    if worker.join().is_err() {
        return Err("it panicked".into());
    }
    if device.is_exhausted() {
        return Err(format!("more than {PATIENCE} device operations"));
    }
    if !outcome.given_twice.is_empty() {
        return Err(format!("two objects under one number: {:?}", outcome.given_twice));
    }
    match peak_memory() {
        Some(kib) if kib > MEMORY => Err(format!("the process has taken {kib} KiB")),
        _ => Ok(outcome),
    }
}

fn peak_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Options for mke2fs. The image has no checksums, so that no checksum detects the damage.
pub const PLAIN: &str = "-b 1024 -J size=1 -O ^metadata_csum,^metadata_csum_seed";

/// Options for mke2fs. The image has no checksums, and its files have block maps.
pub const BLOCK_MAPS: &str = "-t ext3 -b 1024 -J size=1";

/// Options for mke2fs. The image has no checksums, and has the feature `verity`.
pub const VERITY: &str = "-b 1024 -J size=1 -O ^metadata_csum,^metadata_csum_seed,verity";

/// Checks one image for each kind of damage. At least one error must contain the words that are
/// expected for this kind. Returns the number of kinds, or a description of each failure.
pub fn each_kind(options: &str, left: Left, kinds: &[Kind]) -> Result<usize, String> {
    let Some(base) = Target::make(options, 16, left) else { return Ok(0) };
    let mut wrong = Vec::new();
    for kind in kinds {
        let target = base.fork();
        (kind.damage)(&target);
        match check(&target, kind.name) {
            Err(why) => wrong.push(format!("{}: {why}", kind.name)),
            Ok(outcome) if kind.says.is_empty() || outcome.says(kind.says) => {}
            Ok(outcome) => {
                let few: Vec<_> = outcome.errors.iter().take(5).collect();
                wrong.push(format!("{}: nothing says {:?}: {few:?}", kind.name, kind.says));
            }
        }
    }
    if wrong.is_empty() { Ok(kinds.len()) } else { Err(wrong.join("\n")) }
}

/// Checks `count` images, in each of which a few bytes of metadata are changed at random.
pub fn random_images(seed: u64, count: u64) -> Result<Totals, String> {
    let (options, left) = match seed % 5 {
        0 => (PLAIN, Left::Crashed),
        1 => ("-b 1024 -J size=1", Left::Crashed),
        2 => ("-b 4096 -J size=4 -O ^metadata_csum,^metadata_csum_seed", Left::Clean),
        3 => (BLOCK_MAPS, Left::Crashed),
        _ => (PLAIN, Left::Clean),
    };
    random_images_on((options, 24), left, seed, count)
}

/// Works like [`random_images`], with these options for mke2fs and this size in MiB.
pub fn random_images_on(
    (options, megabytes): (&str, u64),
    left: Left,
    seed: u64,
    count: u64,
) -> Result<Totals, String> {
    let mut totals = Totals::default();
    let Some(base) = Target::make(options, megabytes, left) else { return Ok(totals) };
    for n in 0..count {
        let target = base.fork();
        let what = random_damage(&target, seed << 32 | n);
        let what = format!("seed {seed}, image {n} ({options}, {left:?}), {what}");
        let outcome = check(&target, &what).map_err(|why| format!("{what}: {why}"))?;
        totals.add(&outcome);
    }
    Ok(totals)
}

/// Changes some bytes of metadata; returns a description of the changes.
pub fn random_damage(target: &Target, seed: u64) -> String {
    let mut rng = fastrand::Rng::with_seed(seed);
    let ranges = target.metadata();
    let mut changed = Vec::new();
    for _ in 0..rng.u32(1..6) {
        // The first range is the superblock, which is chosen more often than any other range.
        let range = if rng.u32(..6) == 0 { 0 } else { rng.usize(..ranges.len()) };
        let (start, len) = ranges[range];
        let at = start + rng.u64(..len);
        let old = target.read(at, 1)[0];
        let new = match rng.u32(..6) {
            0 => 0,
            1 => 0xff,
            2 => old.wrapping_add(1),
            3 => old.wrapping_sub(1),
            4 => old ^ (1 << rng.u32(..8)),
            _ => rng.u8(..),
        };
        target.put(at, &[new]);
        changed.push(format!("{at:#x}: {old:#x} to {new:#x}"));
    }
    changed.join(", ")
}
