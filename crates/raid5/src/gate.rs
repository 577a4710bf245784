//! Orders flushes of the whole array. Threads that request a flush while another one is under way
//! share the next flush.

use lanefs_lanes::sync::atomic::{AtomicU64, Ordering};
use lanefs_lanes::{Condvar, Mutex, Padded, Rank};

/// Counts flushes. Flush `n` covers every write that returned before `begun` became `n`.
#[derive(Debug)]
pub(crate) struct FlushGate {
    /// The number of flushes started. The flushing thread writes this number, and every logged
    /// write reads it.
    begun: Padded<AtomicU64>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    running: bool,
    /// The number of the last flush that ended, whether or not it succeeded.
    ended: u64,
    /// The number of the last flush that failed.
    failed: u64,
}

/// The action that a caller of [`FlushGate::enter`] has to take.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Turn {
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
            state: Mutex::new(Rank::ArrayState, State { running: false, ended: 0, failed: 0 }),
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
    pub(crate) fn enter(&self) -> (Turn, bool) {
        let mut state = self.state.lock();
        let wanted = self.begun() + 1;
        let mut waited = false;
        loop {
            if state.ended >= wanted {
                let turn = if state.failed >= wanted { Turn::Failed } else { Turn::Covered };
                return (turn, waited);
            }
            if !state.running {
                state.running = true;
                return (Turn::Run(self.begun.fetch_add(1, Ordering::SeqCst) + 1), waited);
            }
            waited = true;
            self.changed.wait(&mut state);
        }
    }

    /// Ends the flush `number`, which succeeded if `well` is true.
    pub(crate) fn leave(&self, number: u64, well: bool) {
        let mut state = self.state.lock();
        state.running = false;
        state.ended = number;
        if !well {
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
        assert_eq!(gate.enter(), (Turn::Run(1), false));
        std::thread::scope(|s| {
            for _ in 0..8 {
                s.spawn(|| {
                    if let (Turn::Run(n), _) = gate.enter() {
                        runs.fetch_add(1, Ordering::SeqCst);
                        gate.leave(n, true);
                    }
                });
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
            gate.leave(1, true);
        });
        // Usually one flush serves all threads, but a thread that comes late runs another one.
        assert!((1..=8).contains(&runs.load(Ordering::SeqCst)));
        assert_eq!(gate.begun() as usize, 1 + runs.load(Ordering::SeqCst));
    }
}
