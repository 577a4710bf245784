//! Who reads requests: one thread at a time, so that a quick request is read, answered and
//! followed by the next on one processor, without waking anybody.
//!
//! The reader keeps the baton while it answers quick requests itself. Before a slow one it passes
//! the baton on and then works in its own buffers, so that nothing is copied or queued. A request
//! that was taken for quick and is not loses the baton to a watchdog after [`PATIENCE`].
//! Whoever waited last is next: its buffers and its processor are still warm.
//!
//! *Locking*: `state` is a leaf, never held while a request is served.

use crate::seat::Client;
use lanefs_lanes::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use lanefs_lanes::{Condvar, Mutex, Rank};
use std::time::Duration;

/// How long a request may keep the baton.
const PATIENCE: Duration = Duration::from_millis(5);
/// Looks without any request after which the watchdog sleeps until the next one.
const QUIET_LOOKS: u32 = 20;

/// The right to read, and who waits for it.
pub struct Baton {
    state: Mutex<State>,
    /// One for each thread.
    turns: Vec<Condvar>,
    wake_watchdog: Condvar,
    /// Number of the request that the reader serves, odd while it does; the watchdog takes the baton
    /// away by changing an odd one.
    serving: AtomicU64,
    watchdog_sleeps: AtomicBool,
}

struct State {
    free: bool,
    ended: bool,
    /// What the last reader knew.
    client: Client,
    /// Threads that wait and were not woken yet, the last to come at the end.
    waiting: Vec<usize>,
}

/// What a reader does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// Reads on.
    Mine,
    /// Waits for its next turn.
    Lost,
}

impl Baton {
    /// For `threads` threads; nobody reads yet.
    pub fn new(threads: usize) -> Baton {
        let state = State {
            free: true,
            ended: false,
            client: Client::default(),
            waiting: Vec::with_capacity(threads),
        };
        Baton {
            // Rank: a leaf, like a bucket of a wait queue, and taken with nothing held.
            state: Mutex::new(Rank::Bucket, state),
            turns: (0..threads).map(|_| Condvar::new()).collect(),
            wake_watchdog: Condvar::new(),
            serving: AtomicU64::new(0),
            watchdog_sleeps: AtomicBool::new(false),
        }
    }

    /// Thread `me`, below the number of threads, waits for the baton, and gets what the last reader
    /// knew of the client; `None` once there is nothing more to read.
    pub fn take(&self, me: usize) -> Option<Client> {
        let mut state = self.state.lock();
        while !state.free && !state.ended {
            // Woken in vain, it is no longer on the list.
            if !state.waiting.contains(&me) {
                state.waiting.push(me);
            }
            self.turns[me].wait(&mut state);
        }
        state.waiting.retain(|&waits| waits != me);
        state.free = false;
        (!state.ended).then_some(state.client)
    }

    /// Gives the baton to the next.
    pub fn pass(&self, client: Client) {
        let mut state = self.state.lock();
        state.client = client;
        self.free(&mut state);
    }

    /// Whoever is woken finds the baton free, or somebody was quicker, who then has it.
    fn free(&self, state: &mut State) {
        state.free = true;
        if let Some(next) = state.waiting.pop() {
            self.turns[next].notify_one();
        }
    }

    /// The connection is over: nobody reads any more.
    pub fn end(&self) {
        self.state.lock().ended = true;
        self.turns.iter().for_each(|turn| {
            turn.notify_one();
        });
        self.wake_watchdog.notify_all();
    }

    /// The reader begins a request that should be quick; gives what [`Baton::done`] wants back.
    pub fn begin(&self) -> u64 {
        let serving = self.serving.load(Ordering::Relaxed) + 1;
        self.serving.store(serving, Ordering::Relaxed);
        // Against the watchdog's: either it sees this request, or we see that it sleeps.
        fence(Ordering::SeqCst);
        if self.watchdog_sleeps.load(Ordering::Relaxed) {
            let _state = self.state.lock();
            self.wake_watchdog.notify_one();
        }
        serving
    }

    /// The request is answered: whether the baton is still there.
    pub fn done(&self, serving: u64) -> Turn {
        let kept = self.serving.compare_exchange(
            serving,
            serving + 1,
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
        if kept.is_ok() { Turn::Mine } else { Turn::Lost }
    }

    /// The watchdog's life, until the end.
    pub fn watch(&self) {
        let mut seen = 0;
        let mut quiet = 0;
        let mut state = self.state.lock();
        while !state.ended {
            let now = self.serving.load(Ordering::Relaxed);
            if now != seen {
                (seen, quiet) = (now, 0);
            } else if now % 2 == 1 {
                // Even again, but a number that the reader does not expect.
                let taken = self.serving.compare_exchange(
                    now,
                    now + 3,
                    Ordering::Relaxed,
                    Ordering::Relaxed,
                );
                if taken.is_ok() {
                    self.free(&mut state);
                }
                continue;
            } else if quiet < QUIET_LOOKS {
                quiet += 1;
            } else {
                self.watchdog_sleeps.store(true, Ordering::Relaxed);
                fence(Ordering::SeqCst);
                if self.serving.load(Ordering::Relaxed) == seen {
                    self.wake_watchdog.wait(&mut state);
                }
                self.watchdog_sleeps.store(false, Ordering::Relaxed);
                continue;
            }
            self.wake_watchdog.wait_for(&mut state, PATIENCE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lanefs_lanes::sync::Arc;
    use std::time::Instant;

    #[test]
    fn a_quick_request_keeps_the_baton() {
        let baton = Baton::new(2);
        assert!(baton.take(0).is_some());
        for _ in 0..3 {
            let serving = baton.begin();
            assert_eq!(baton.done(serving), Turn::Mine);
        }
    }

    #[test]
    fn a_request_that_is_not_quick_loses_the_baton_to_the_watchdog() {
        let baton = Arc::new(Baton::new(2));
        assert!(baton.take(0).is_some());
        let watchdog = std::thread::spawn({
            let baton = baton.clone();
            move || baton.watch()
        });
        for pause in [0, 300] {
            // Also after the watchdog fell asleep.
            std::thread::sleep(Duration::from_millis(pause));
            let serving = baton.begin();
            let begun = Instant::now();
            assert!(baton.take(1).is_some(), "another thread gets it");
            assert!(begun.elapsed() < Duration::from_secs(2));
            assert_eq!(baton.done(serving), Turn::Lost);
            let serving = baton.begin();
            assert_eq!(baton.done(serving), Turn::Mine);
        }
        baton.end();
        watchdog.join().unwrap();
        assert!(baton.take(0).is_none());
    }
}
