//! The state that the threads of one of the kernel's queues share.

use lanefs_lanes::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Returns how many threads of a queue should wait for requests. A request that finds no waiting
/// thread stays in the kernel's queue until a busy thread of the queue replies, even if a new
/// thread is started meanwhile. So some threads wait in reserve; on machines with many processors
/// the reserve is smaller, since each ring takes a descriptor.
pub fn reserve(processors: usize) -> usize {
    (512 / processors.max(1)).clamp(2, 8)
}

/// Whether a thread that has a request must start others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waiting {
    /// Enough threads wait for the next request.
    Enough,
    /// Some threads wait, but fewer than the queue keeps in reserve.
    Few,
    /// No other thread waits.
    None,
}

/// The threads of one queue.
pub struct Queue {
    /// The kernel's number of the queue, which is also the number of its processor.
    pub number: u16,
    /// The number of threads that wait for a request, or are being started.
    free: AtomicUsize,
    threads: AtomicUsize,
    most: usize,
    reserve: usize,
    /// The number of requests so far. It may be too low, because two threads that count at the same
    /// time may add only 1 in total. The watch only compares it with the number that it saw last.
    served: AtomicU64,
}

/// The state of a queue when the watch last looked at it.
#[derive(Default, Clone, Copy)]
pub struct Seen {
    served: u64,
    had_none: bool,
}

impl Queue {
    /// Creates the state of a queue whose `threads` threads are being started. `threads` is also
    /// the number of threads that the queue keeps in reserve. The queue may have at most `most`
    /// threads.
    pub fn new(number: u16, threads: usize, most: usize) -> Queue {
        Queue {
            number,
            free: AtomicUsize::new(threads),
            threads: AtomicUsize::new(threads),
            most,
            reserve: threads,
            served: AtomicU64::new(0),
        }
    }

    /// Records that a thread has a request. Returns whether other threads wait for the next
    /// request.
    pub fn takes(&self) -> Waiting {
        let served = self.served.load(Ordering::Relaxed) + 1;
        self.served.store(served, Ordering::Relaxed);
        match self.free.fetch_sub(1, Ordering::AcqRel) {
            0 | 1 => Waiting::None,
            free if free <= self.reserve => Waiting::Few,
            _ => Waiting::Enough,
        }
    }

    /// Records that the thread is about to wait for the next request.
    pub fn waits(&self) {
        self.free.fetch_add(1, Ordering::AcqRel);
    }

    /// Counts one more thread, which the caller starts; returns false if the queue has as many
    /// threads as allowed.
    pub fn add_thread(&self) -> bool {
        let more = |threads| (threads < self.most).then_some(threads + 1);
        let added = self.threads.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).is_ok();
        if added {
            self.waits();
        }
        added
    }

    /// Records that the thread could not be started.
    pub fn not_started(&self) {
        self.threads.fetch_sub(1, Ordering::AcqRel);
        self.free.fetch_sub(1, Ordering::AcqRel);
    }

    /// Returns whether requests came since the previous call, and the number of threads to start.
    /// If no thread waited at two successive calls, and no thread got a request between them, the
    /// queue's number of threads is to be doubled.
    pub fn look(&self, seen: &mut Seen) -> (bool, usize) {
        let now = Seen {
            served: self.served.load(Ordering::Relaxed),
            had_none: self.free.load(Ordering::Acquire) == 0,
        };
        let before = std::mem::replace(seen, now);
        let busy = now.served != before.served;
        let stands_still = !busy && now.had_none && before.had_none;
        (busy, if stands_still { self.threads.load(Ordering::Acquire) } else { 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stalled_queue_gets_more_threads_up_to_the_limit() {
        let queue = Queue::new(0, 2, 5);
        let mut seen = Seen::default();
        assert_eq!(queue.takes(), Waiting::Few);
        assert_eq!((queue.look(&mut seen), queue.look(&mut seen)), ((true, 0), (false, 0)));
        assert_eq!(queue.takes(), Waiting::None);
        assert_eq!((queue.look(&mut seen), queue.look(&mut seen)), ((true, 0), (false, 2)));
        assert_eq!((0..4).filter(|_| queue.add_thread()).count(), 3);
        queue.not_started();
        assert!(queue.add_thread() && !queue.add_thread());
        assert_eq!(queue.look(&mut seen), (false, 0), "threads wait");
    }

    #[test]
    fn threads_are_kept_in_reserve() {
        assert_eq!([0, 2, 100, 1000].map(reserve), [8, 8, 5, 2]);
        let queue = Queue::new(0, 8, 64);
        let started = (0..40).filter(|_| queue.takes() == Waiting::Few && queue.add_thread());
        assert_eq!(started.count(), 40);
        (0..40).for_each(|_| queue.waits());
        assert_eq!(queue.takes(), Waiting::Enough);
    }
}
