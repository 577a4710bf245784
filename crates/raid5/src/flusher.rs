//! Flushes one member on its own thread, so that the array can fail a device that hangs.
//!
//! A call that hangs in the kernel cannot be cancelled, and its thread hangs with it. So the
//! array's flush sends a request to each member's thread and waits with a time limit. All members
//! flush in parallel, and a device that never completes a flush blocks only its own thread.

use lanefs_device::{Device, DeviceError};
use lanefs_lanes::sync::{Arc, thread};
use lanefs_lanes::{Condvar, Mutex, Rank};
use std::time::Duration;

/// The thread that flushes one member. The thread terminates when this value is dropped; a hanging
/// thread is left running with its device.
pub(crate) struct Flusher {
    shared: Arc<Shared>,
    thread: Option<thread::JoinHandle<()>>,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

enum State {
    Idle,
    Asked,
    Flushing,
    Done(Result<(), DeviceError>),
    Ends,
}

impl std::fmt::Debug for Flusher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Flusher").finish_non_exhaustive()
    }
}

impl Flusher {
    pub(crate) fn start(device: Arc<dyn Device>) -> Flusher {
        let state = Mutex::new(Rank::Bucket, State::Idle);
        let shared = Arc::new(Shared { state, changed: Condvar::new() });
        let of_thread = shared.clone();
        let thread = thread::spawn(move || of_thread.serve(&*device));
        Flusher { shared, thread: Some(thread) }
    }

    /// Starts a flush. The caller must know that the previous flush is over, or that no thread
    /// waits for it.
    pub(crate) fn ask(&self) {
        *self.shared.state.lock() = State::Asked;
        self.shared.changed.notify_all();
    }

    /// Waits until the flush is complete; `None` if it takes longer than the time limit.
    pub(crate) fn wait(&self, most: Duration) -> Option<Result<(), DeviceError>> {
        let mut state = self.shared.state.lock();
        let mut in_time = true;
        loop {
            if let State::Done(_) = &*state
                && let State::Done(result) = std::mem::replace(&mut *state, State::Idle)
            {
                return Some(result);
            }
            if !in_time {
                return None;
            }
            in_time = self.shared.changed.wait_for(&mut state, most);
        }
    }
}

impl Drop for Flusher {
    fn drop(&mut self) {
        let before = std::mem::replace(&mut *self.shared.state.lock(), State::Ends);
        self.shared.changed.notify_all();
        let hangs = matches!(before, State::Asked | State::Flushing);
        if let Some(thread) = self.thread.take().filter(|_| !hangs) {
            // The thread closes the device when it terminates. If it panicked, the panic hook has
            // reported it.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn serve(&self, device: &dyn Device) {
        let mut state = self.state.lock();
        loop {
            match &*state {
                State::Ends => return,
                State::Asked => {
                    *state = State::Flushing;
                    drop(state);
                    let result = device.flush();
                    state = self.state.lock();
                    if let State::Flushing = &*state {
                        *state = State::Done(result);
                        self.changed.notify_all();
                    }
                }
                State::Idle | State::Flushing | State::Done(_) => self.changed.wait(&mut state),
            }
        }
    }
}
