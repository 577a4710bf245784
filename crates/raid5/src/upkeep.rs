//! The background thread of an open array, which rebuilds and resynchronises the array, gives the
//! slot of a failed member to a spare, and marks the array clean.
//!
//! | work on an array in use | |
//! |---|---|
//! | flushes, bits of the bitmap, marking the array active or clean | `upkeep/flush.rs` |
//! | members fail, or get a slot | `upkeep/membership.rs` |
//! | rebuild, resync, scrub | `upkeep/maintenance.rs` |
//! | a device becomes a member | `upkeep/admission.rs` |
//! | a member is replaced by a copy of it | `upkeep/exchange.rs` |
//! | these on request | `upkeep/changes.rs` |

pub(crate) mod admission;
pub(crate) mod changes;
pub(crate) mod exchange;
pub(crate) mod flush;
pub(crate) mod maintenance;
pub(crate) mod membership;

use crate::array::Array;
use crate::assembly::metadata::Metadata;
use crate::members::Standing;
use crate::upkeep::admission::Admission;
use crate::upkeep::maintenance::{Ended, Rebuild};
use lanefs_device::DeviceError;
use lanefs_lanes::sync::atomic::{AtomicBool, Ordering};
use lanefs_lanes::sync::{Arc, thread};
use lanefs_lanes::{Condvar, Mutex, Rank};
use std::ops::ControlFlow;
use std::time::Duration;

/// Time without a write after which the array is marked clean. The kernel waits 0.2 s. Waiting
/// longer saves superblock writes (four per member for each burst of writes: two to mark the array
/// active, two to mark it clean), but makes a resync after a crash more likely.
const REST: Duration = Duration::from_millis(500);

/// What the rebuilds and the resync of an open array have come to in the background.
#[derive(Debug, Clone)]
pub enum CatchUp {
    /// They are under way.
    Working,
    /// They are done, or there was nothing to do.
    Done,
    /// The array is being closed. They continue at its next use.
    Stopped,
    /// They ended with this error.
    Failed(String),
}

/// The background thread. It terminates on request.
pub(crate) struct Background {
    shared: Arc<Shared>,
    thread: thread::JoinHandle<()>,
}

struct Shared {
    ends: AtomicBool,
    /// Used only to wait for `wake`.
    sleep: Mutex<()>,
    wake: Condvar,
    caught_up: Mutex<CatchUp>,
}

impl Shared {
    fn ends(&self) -> bool {
        self.ends.load(Ordering::Acquire)
    }
}

impl Background {
    pub(crate) fn start(array: Arc<Array>, metadata: Arc<Metadata>) -> Background {
        let shared = Arc::new(Shared {
            ends: AtomicBool::new(false),
            sleep: Mutex::new(Rank::Bucket, ()),
            wake: Condvar::new(),
            caught_up: Mutex::new(Rank::Bucket, CatchUp::Working),
        });
        let of_thread = shared.clone();
        let thread = thread::spawn(move || keep(&array, &metadata, &of_thread));
        Background { shared, thread }
    }

    pub(crate) fn caught_up(&self) -> CatchUp {
        self.shared.caught_up.lock().clone()
    }

    pub(crate) fn end(self) {
        let guard = self.shared.sleep.lock();
        self.shared.ends.store(true, Ordering::Release);
        self.shared.wake.notify_all();
        drop(guard);
        // If the thread panicked, the panic hook has reported it.
        let _ = self.thread.join();
    }
}

fn keep(array: &Array, metadata: &Metadata, shared: &Shared) {
    let admission = Admission { array, metadata };
    let mut failed = Vec::new();
    let mut is_done = false;
    // The last error of a spare that could not take over. It stays as long as a slot is empty.
    let mut not_taken = None;
    let mut guard = shared.sleep.lock();
    while !shared.ends() {
        drop(guard);
        let spare = admission.take_spare(&mut failed);
        if spare.is_some() || !is_done {
            is_done = !matches!(spare, Some(Err(_)));
            if let Some(Err(error)) = &spare {
                not_taken = Some(error.to_string());
            }
            not_taken = not_taken.filter(|_| admission.free_slot().is_some());
            *shared.caught_up.lock() = CatchUp::Working;
            // After an error the array stays in use. Its state has the effect of the error: writes
            // are stopped, a member has failed, or the data of a missing member is unknown.
            *shared.caught_up.lock() = match spare.transpose().map(|_| catch_up(array, shared)) {
                Ok(Ok(Ended::Done)) => not_taken.clone().map_or(CatchUp::Done, CatchUp::Failed),
                Ok(Ok(Ended::Stopped)) => CatchUp::Stopped,
                Ok(Err(error)) => CatchUp::Failed(error.to_string()),
                Err(error) => CatchUp::Failed(error.to_string()),
            };
        }
        guard = shared.sleep.lock();
        if !shared.ends() {
            shared.wake.wait_for(&mut guard, REST);
        }
        if !shared.ends() {
            drop(guard);
            let _ = array.settle();
            guard = shared.sleep.lock();
        }
    }
}

fn catch_up(array: &Array, shared: &Shared) -> Result<Ended, DeviceError> {
    let mut go_on = |_| match shared.ends() {
        true => ControlFlow::Break(()),
        false => ControlFlow::Continue(()),
    };
    let status = array.status();
    for (slot, standing) in status.members.iter().enumerate() {
        if matches!(standing, Standing::Rebuilding { .. })
            && array.rebuild(slot, Rebuild::Whole, &mut go_on)? == Ended::Stopped
        {
            return Ok(Ended::Stopped);
        }
    }
    match status.unsynced_rows {
        0 => Ok(Ended::Done),
        _ => array.resync(&mut go_on),
    }
}
