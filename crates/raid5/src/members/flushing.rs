//! Flushes one member on its own thread, so that the array can fail a device that hangs
//! ([`Flusher`]), and orders flushes of the whole array ([`FlushGate`]).
//!
//! A call that hangs in the kernel cannot be cancelled, and its thread hangs with it. So the
//! array's flush sends a request to each member's thread and waits with a time limit. All members
//! flush in parallel, and a device that never completes a flush blocks only its own thread.
//!
//! Threads that request a flush of the array while another one is under way share the next flush.

use lanefs_device::{Device, DeviceError};
use lanefs_lanes::sync::atomic::{AtomicU64, Ordering};
use lanefs_lanes::sync::{Arc, thread};
use lanefs_lanes::{Condvar, Mutex, Padded, Rank};
use std::time::Duration;

/// The thread that flushes one member. The thread terminates when this value is dropped; a hanging
/// thread is left running with its device.
pub(crate) struct Flusher {
    shared: Arc<FlushThread>,
    thread: Option<thread::JoinHandle<()>>,
}

struct FlushThread {
    state: Mutex<FlushState>,
    changed: Condvar,
}

enum FlushState {
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
        let state = Mutex::new(Rank::Bucket, FlushState::Idle);
        let shared = Arc::new(FlushThread { state, changed: Condvar::new() });
        let of_thread = shared.clone();
        let thread = thread::spawn(move || of_thread.serve(&*device));
        Flusher { shared, thread: Some(thread) }
    }

    /// Starts a flush. The caller must know that the previous flush is over, or that no thread
    /// waits for it.
    pub(crate) fn ask(&self) {
        *self.shared.state.lock() = FlushState::Asked;
        self.shared.changed.notify_all();
    }

    /// Waits until the flush is complete; `None` if it takes longer than the time limit.
    pub(crate) fn wait(&self, most: Duration) -> Option<Result<(), DeviceError>> {
        let mut state = self.shared.state.lock();
        let mut in_time = true;
        loop {
            if let FlushState::Done(_) = &*state
                && let FlushState::Done(result) = std::mem::replace(&mut *state, FlushState::Idle)
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
        let before = std::mem::replace(&mut *self.shared.state.lock(), FlushState::Ends);
        self.shared.changed.notify_all();
        let hangs = matches!(before, FlushState::Asked | FlushState::Flushing);
        if let Some(thread) = self.thread.take().filter(|_| !hangs) {
            // The thread closes the device when it terminates. If it panicked, the panic hook has
            // reported it.
            let _ = thread.join();
        }
    }
}

impl FlushThread {
    fn serve(&self, device: &dyn Device) {
        let mut state = self.state.lock();
        loop {
            match &*state {
                FlushState::Ends => return,
                FlushState::Asked => {
                    *state = FlushState::Flushing;
                    drop(state);
                    let result = device.flush();
                    state = self.state.lock();
                    if let FlushState::Flushing = &*state {
                        *state = FlushState::Done(result);
                        self.changed.notify_all();
                    }
                }
                FlushState::Idle | FlushState::Flushing | FlushState::Done(_) => {
                    self.changed.wait(&mut state)
                }
            }
        }
    }
}

/// Counts flushes. Flush `n` covers every write that returned before `begun` became `n`.
#[derive(Debug)]
pub(crate) struct FlushGate {
    /// The number of flushes started. The flushing thread writes this number, and every logged
    /// write reads it.
    begun: Padded<AtomicU64>,
    state: Mutex<GateState>,
    changed: Condvar,
}

#[derive(Debug)]
struct GateState {
    running: bool,
    /// The number of the last flush that ended, whether or not it succeeded.
    ended: u64,
    /// The number of the last flush that failed.
    failed: u64,
}

/// The action that a caller of [`FlushGate::enter`] has to take.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FlushTurn {
    /// Run the flush with this number, then call [`FlushGate::leave`].
    Run(u64),
    /// Another thread's flush, started after the call, succeeded.
    Covered,
    /// Another thread's flush, started after the call, failed.
    Failed,
}

impl FlushGate {
    pub(crate) fn new() -> FlushGate {
        FlushGate {
            begun: Padded(AtomicU64::new(0)),
            state: Mutex::new(Rank::ArrayState, GateState { running: false, ended: 0, failed: 0 }),
            changed: Condvar::new(),
        }
    }

    /// Returns the number of flushes started so far. Every flush with a higher number covers the
    /// writes that returned before this call.
    pub(crate) fn begun(&self) -> u64 {
        self.begun.load(Ordering::SeqCst)
    }

    /// Waits until a flush that started after this call is over, or until this thread must run that
    /// flush itself. Also returns whether the thread had to wait.
    pub(crate) fn enter(&self) -> (FlushTurn, bool) {
        let mut state = self.state.lock();
        let wanted = self.begun() + 1;
        let mut waited = false;
        loop {
            if state.ended >= wanted {
                let turn =
                    if state.failed >= wanted { FlushTurn::Failed } else { FlushTurn::Covered };
                return (turn, waited);
            }
            if !state.running {
                state.running = true;
                return (FlushTurn::Run(self.begun.fetch_add(1, Ordering::SeqCst) + 1), waited);
            }
            waited = true;
            self.changed.wait(&mut state);
        }
    }

    /// Ends the flush `number`.
    pub(crate) fn leave<E>(&self, number: u64, result: &Result<(), E>) {
        let mut state = self.state.lock();
        state.running = false;
        state.ended = number;
        if result.is_err() {
            state.failed = number;
        }
        drop(state);
        self.changed.notify_all();
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use lanefs_lanes::sync::atomic::AtomicUsize;

    #[test]
    fn threads_that_ask_during_a_flush_share_the_next() {
        let (gate, runs) = (FlushGate::new(), AtomicUsize::new(0));
        assert_eq!(gate.enter(), (FlushTurn::Run(1), false));
        std::thread::scope(|s| {
            for _ in 0..8 {
                s.spawn(|| {
                    if let (FlushTurn::Run(n), _) = gate.enter() {
                        runs.fetch_add(1, Ordering::SeqCst);
                        gate.leave(n, &Ok::<(), ()>(()));
                    }
                });
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
            gate.leave(1, &Ok::<(), ()>(()));
        });
        // Usually one flush serves all threads, but a thread that comes late runs another one.
        assert!((1..=8).contains(&runs.load(Ordering::SeqCst)));
        assert_eq!(gate.begun() as usize, 1 + runs.load(Ordering::SeqCst));
    }
}
