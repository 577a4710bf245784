//! Threads that serve what is expected to be slow, so that no ring stands still meanwhile.
//!
//! *Locking*: the state is a leaf, held to put a job in or take one out.

use lanefs_lanes::{Condvar, Mutex, Rank};
use std::collections::VecDeque;

/// The most threads: as many requests may wait for the device at once. Further ones wait here.
const MOST: usize = 64;
/// With fewer, a request that waits for another could hold up all others.
pub const FEWEST: usize = 2;

/// Jobs, and the threads that do them.
pub struct Workers<J> {
    state: Mutex<State<J>>,
    wake: Condvar,
}

struct State<J> {
    jobs: VecDeque<J>,
    /// Threads that wait for a job.
    idle: usize,
    threads: usize,
    ended: bool,
}

/// Whether another thread is to be started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Threads {
    /// There are enough.
    Enough,
    /// One more, which calls [`Workers::next`]; if it cannot start, [`Workers::not_started`].
    OneMore,
}

impl<J> Workers<J> {
    /// None yet, and nothing to do.
    pub fn new() -> Workers<J> {
        let state = State { jobs: VecDeque::new(), idle: 0, threads: FEWEST, ended: false };
        Workers { state: Mutex::new(Rank::Bucket, state), wake: Condvar::new() }
    }

    /// Leaves a job to a thread that has nothing to do, now or soon.
    pub fn give(&self, job: J) -> Threads {
        let mut state = self.state.lock();
        state.jobs.push_back(job);
        if state.jobs.len() > state.idle && state.threads < MOST {
            state.threads += 1;
            return Threads::OneMore;
        }
        drop(state);
        self.wake.notify_one();
        Threads::Enough
    }

    /// The host has no room for another thread: the job waits for one of those that there are.
    pub fn not_started(&self) {
        self.state.lock().threads -= 1;
        self.wake.notify_one();
    }

    /// Waits for a job; `None` at the end.
    pub fn next(&self) -> Option<J> {
        let mut state = self.state.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                return Some(job);
            }
            if state.ended {
                return None;
            }
            state.idle += 1;
            self.wake.wait(&mut state);
            state.idle -= 1;
        }
    }

    /// Nothing more is to come; what is there is still done.
    pub fn end(&self) {
        self.state.lock().ended = true;
        self.wake.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lanefs_lanes::sync::Arc;

    #[test]
    fn a_thread_is_started_only_if_none_is_idle() {
        let workers = Arc::new(Workers::new());
        assert_eq!(workers.give(1), Threads::OneMore);
        let thread = std::thread::spawn({
            let workers = workers.clone();
            move || {
                let mut sum = 0;
                while let Some(job) = workers.next() {
                    sum += job;
                }
                sum
            }
        });
        while workers.state.lock().idle == 0 {
            std::thread::yield_now();
        }
        assert_eq!(workers.give(2), Threads::Enough);
        workers.end();
        assert_eq!(thread.join().unwrap(), 3, "what was given before the end is done");
    }

    #[test]
    fn there_is_a_most() {
        let workers = Workers::new();
        let started = (0..2 * MOST).filter(|job| workers.give(*job) == Threads::OneMore).count();
        assert_eq!(started, MOST - FEWEST);
        workers.not_started();
        assert_eq!(workers.give(0), Threads::OneMore);
    }
}
