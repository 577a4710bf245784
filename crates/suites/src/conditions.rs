//! The conditions of a run, derived from its seed.
//!
//! Three of seven seeds are *forgetful*. Their runs have a cache of 96 to 300 KiB and a commit
//! every millisecond. Their flushes are slow, or are held back until some operations are done. In
//! three quarters of these runs, no file stays open. Under these conditions, inodes leave memory
//! and are loaded again before the commit with their changes is durable.

use crate::home;
use lanefs_device::{Device, GatedDevice, Pace};
use lanefs_ext4::MountOptions;
use lanefs_ext4::allocation::{Allocation, Wait};
use std::sync::Arc;
use std::time::Duration;

/// The conditions of a run.
pub struct Conditions {
    /// The allocation, the memory and the commit interval. If the run is not forgetful, the suite
    /// can choose the commit interval.
    pub mount: MountOptions,
    /// How flushes are slowed or held back; `None` if they are not.
    pub pace: Option<Pace>,
    /// Whether files stay open from one operation to another.
    pub handles: Handles,
}

/// Whether files stay open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Handles {
    /// Some files stay open.
    Kept,
    /// Each operation finds its inodes by name and releases them.
    None,
}

/// A flush that is held back is released if no operation completes within this time. Every
/// operation that does not wait for a flush takes less time.
const PATIENCE: Duration = Duration::from_millis(2);

/// A cache size in bytes that is so small that caches hold hardly anything except referenced and
/// dirty objects.
const LITTLE: u64 = 96 << 10;

/// Threads meet in the same groups, and wait for each other there.
#[derive(Debug)]
struct Together;

impl Allocation for Together {
    fn busy_group(&self) -> Wait {
        Wait::Wait
    }
    fn spreads(&self) -> bool {
        false
    }
}

/// Returns the mount options of a run with `seed`. In one seed in five, threads meet in the same
/// groups. Two seeds in seven have hardly any memory. Other functions make choices from the seed's
/// remainders modulo three and four. Five and seven have no factor in common with three and four,
/// so allocation and memory sizes occur in every combination with these choices.
fn mount_options(seed: u64) -> MountOptions {
    let mut options = home::options();
    if seed % 5 == 2 {
        options.allocation = Arc::new(Together);
    }
    if matches!(seed % 7, 2 | 4) {
        options.cache_bytes = LITTLE;
    }
    options
}

/// Returns the conditions for `seed`. `interval` is the commit interval, if the suite chooses one.
pub fn of_seed(seed: u64, interval: Option<Duration>) -> Conditions {
    let mut mount = mount_options(seed);
    if let Some(interval) = interval {
        mount.commit_interval = interval;
    }
    if !is_forgetful(seed) {
        return Conditions { mount, pace: None, handles: Handles::Kept };
    }
    let mut rng = fastrand::Rng::with_seed(seed);
    mount.cache_bytes = [96 << 10, 150 << 10, 300 << 10][rng.usize(..3)];
    mount.commit_interval = Duration::from_millis(1);
    let pace = match rng.u32(..3) {
        0 => Pace::Time(Duration::from_millis(3)),
        _ => Pace::Steps { steps: rng.u64(20..200), patience: PATIENCE },
    };
    let handles = if rng.u32(..4) == 0 { Handles::Kept } else { Handles::None };
    Conditions { mount, pace: Some(pace), handles }
}

/// Returns whether a run with `seed` has little memory and slow flushes.
pub fn is_forgetful(seed: u64) -> bool {
    matches!(seed % 7, 1 | 3 | 5)
}

/// A device with slow flushes. If flushes are held back, the gate counts the operations of the run
/// and releases a flush after some of them.
pub struct Paced {
    /// The device.
    pub device: Arc<dyn Device>,
    gate: Option<Arc<GatedDevice>>,
}

impl Paced {
    /// Slows the flushes of `device` according to `pace`.
    pub fn new(device: Arc<dyn Device>, pace: Option<Pace>) -> Paced {
        match pace.map(|pace| Arc::new(GatedDevice::new(device.clone(), pace))) {
            Some(gate) => Paced { device: gate.clone(), gate: Some(gate) },
            None => Paced { device, gate: None },
        }
    }

    /// Returns whether a flush is held back now.
    pub fn is_holding(&self) -> bool {
        self.gate.as_ref().is_some_and(|gate| gate.is_holding())
    }

    /// Counts an operation. This may release a flush that is held back.
    pub fn op(&self) {
        if let Some(gate) = &self.gate {
            gate.step();
        }
    }
}
