//! Runs requests that are expected to be slow on other threads, so that they never block a ring.
//!
//! *Locking*: the state is a leaf, held only to put in a job or take one out.

use lanefs_lanes::{Condvar, Mutex, Rank};
use std::collections::VecDeque;

/// The most threads, and so the most requests that may wait for the device at once. Further ones
/// wait here.
const MOST: usize = 64;
/// The fewest threads: with fewer, a request that waits for another could block all others.
pub const FEWEST: usize = 2;

/// The queue of jobs, and the threads that run them.
pub struct Workers<J> {
    state: Mutex<State<J>>,
    wake: Condvar,
}

struct State<J> {
    jobs: VecDeque<J>,
    /// The number of threads that wait for a job.
    idle: usize,
    threads: usize,
    ended: bool,
}

/// Whether the caller must start another thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Threads {
    /// There are enough threads.
    Enough,
    /// One more is needed. It must call [`Workers::next`]; if it cannot start, the caller calls
    /// [`Workers::not_started`].
    OneMore,
}

impl<J> Workers<J> {
    /// Creates an empty queue without threads.
    pub fn new() -> Workers<J> {
        let state = State { jobs: VecDeque::new(), idle: 0, threads: FEWEST, ended: false };
        Workers { state: Mutex::new(Rank::Bucket, state), wake: Condvar::new() }
    }

    /// Queues a job for a thread that is idle now or will be.
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

    /// Records that the host cannot start another thread: the job waits for an existing one.
    pub fn not_started(&self) {
        self.state.lock().threads -= 1;
        self.wake.notify_one();
    }

    /// Waits for a job; `None` when the queue is closed and empty.
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

    /// Closes the queue: jobs that are in it are still done.
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
