//! The background thread of an open array, which rebuilds and resynchronises the array, and marks
//! it clean.

use crate::array::Array;
use crate::maintenance::Rebuild;
use crate::standing::Standing;
use lanefs_lanes::sync::atomic::{AtomicBool, Ordering};
use lanefs_lanes::sync::{Arc, thread};
use lanefs_lanes::{Condvar, Mutex, Rank};
use std::ops::ControlFlow;
use std::time::Duration;

/// Time without a write after which the array is marked clean. The kernel waits 0.2 s. Waiting
/// longer saves superblock writes (four per member for each burst of writes: two to mark the array
/// active, two to mark it clean), but makes a resync after a crash more likely.
const REST: Duration = Duration::from_millis(500);

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
}

impl Shared {
    fn ends(&self) -> bool {
        self.ends.load(Ordering::Acquire)
    }
}

impl Background {
    pub(crate) fn start(array: Arc<Array>) -> Background {
        let shared = Arc::new(Shared {
            ends: AtomicBool::new(false),
            sleep: Mutex::new(Rank::Bucket, ()),
            wake: Condvar::new(),
        });
        let of_thread = shared.clone();
        let thread = thread::spawn(move || keep(&array, &of_thread));
        Background { shared, thread }
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

fn keep(array: &Array, shared: &Shared) {
    // An error is ignored, because the array's state records its effect: writes are stopped, a
    // member has failed, or the data of a missing member is unknown.
    let _ = catch_up(array, shared);
    let mut guard = shared.sleep.lock();
    while !shared.ends() {
        shared.wake.wait_for(&mut guard, REST);
        if shared.ends() {
            return;
        }
        drop(guard);
        let _ = array.settle();
        guard = shared.sleep.lock();
    }
}

fn catch_up(array: &Array, shared: &Shared) -> Result<(), lanefs_device::DeviceError> {
    let mut go_on = |_| match shared.ends() {
        true => ControlFlow::Break(()),
        false => ControlFlow::Continue(()),
    };
    let status = array.status();
    for (slot, standing) in status.members.iter().enumerate() {
        if matches!(standing, Standing::Rebuilding { .. }) {
            array.rebuild(slot, Rebuild::Whole, &mut go_on)?;
        }
    }
    if status.unsynced_rows > 0 && !shared.ends() {
        array.resync(&mut go_on)?;
    }
    Ok(())
}
