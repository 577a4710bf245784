//! Hashed wait queues with exclusive wake-up: one freed resource wakes one waiter, and no waiter is
//! forgotten.
//!
//! ```text
//! wait:  loop { try; join the queue; FENCE; try once more; sleep until picked }
//! wake:  (freed already) FENCE; if the queue is not empty { pick the first and wake it }
//! ```
//!
//! *Invariant*: a waiter whose second attempt fails joined the queue before that attempt, and stays
//! in the queue until it is picked. So a thread that frees a resource after that attempt picks this
//! waiter or an earlier one. If a waiter is picked although its second attempt succeeded, it passes
//! the wake-up on, since the resource that caused the wake-up may still be free. A picked waiter
//! that finds nothing, because another thread was faster, rejoins at the front.
//!
//! *Locking*: a thread that holds a queue's lock takes no other lock. A waiter holds no queue's
//! lock during its attempts.

use crate::hash::hash_of;
use crate::held::may_sleep;
use crate::lane::Padded;
use crate::sync::Arc;
use crate::sync::atomic::{AtomicUsize, Ordering, fence};
use crate::world;
use std::collections::VecDeque;

/// Wait queues. The hash of a waiter's key chooses its queue.
#[derive(Debug)]
pub struct WaitBuckets {
    /// The number of buckets is a power of two.
    buckets: Box<[Padded<Bucket>]>,
}

#[derive(Debug)]
struct Bucket {
    /// The length of the queue. Changed under the queue's lock, and read without this lock.
    waiting: AtomicUsize,
    queue: world::Mutex<VecDeque<Arc<Waiter>>>,
}

#[derive(Debug)]
struct Waiter {
    key: u64,
    picked: world::Mutex<Option<Picked>>,
    wake: world::Condvar,
}

/// Why a waiter was picked. The reason determines to which waiter a wake-up is passed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Picked {
    /// A resource of the waiter's key was freed.
    ForKey,
    /// A resource for any key was freed.
    ForAny,
    /// All waiters were picked.
    WithAll,
}

impl WaitBuckets {
    /// Creates empty queues. Their number is `count`, rounded up to a power of two.
    pub fn new(count: usize) -> WaitBuckets {
        let bucket = |_| {
            Padded(Bucket {
                waiting: AtomicUsize::new(0),
                queue: world::Mutex::new(VecDeque::new()),
            })
        };
        WaitBuckets { buckets: (0..count.max(1).next_power_of_two()).map(bucket).collect() }
    }

    /// Runs `attempt` until it returns a value, and returns this value. Waiters compete for the
    /// same resources if they have the same key, or if a resource fits any key. All waiters that
    /// compete must need the same amount, because a wake-up goes only to the first of them.
    ///
    /// # Panics
    /// In debug builds, if the thread sleeps while it holds a lock of
    /// [`Rank::Guard`](crate::Rank::Guard) or of a higher rank than that. Such locks are never held
    /// across a wait.
    #[track_caller]
    pub fn wait_until<R>(&self, key: u64, mut attempt: impl FnMut() -> Option<R>) -> R {
        if let Some(result) = attempt() {
            return result;
        }
        let mut waited_before = false;
        loop {
            let waiter = Arc::new(Waiter {
                key,
                picked: world::Mutex::new(None),
                wake: world::Condvar::default(),
            });
            let queued = self.join(waiter, waited_before);
            fence(Ordering::SeqCst);
            if let Some(result) = attempt() {
                return result;
            }
            may_sleep(None);
            queued.sleep();
            if let Some(result) = attempt() {
                return result;
            }
            waited_before = true;
        }
    }

    /// Wakes a waiter for `key`, after a resource of this key was freed; returns `false` if no
    /// thread waits for this key.
    pub fn wake_one(&self, key: u64) -> bool {
        fence(Ordering::SeqCst);
        self.pick(key, |waiter| waiter.key == key, Picked::ForKey)
    }

    /// Wakes one waiter, preferably one from the bucket of `key`, after a resource for any key was
    /// freed; returns `false` if no thread waits.
    pub fn wake_any(&self, key: u64) -> bool {
        fence(Ordering::SeqCst);
        (0..self.buckets.len() as u64).any(|next| {
            let bucket = &self.buckets[(self.index(key) + next as usize) % self.buckets.len()];
            bucket.pick(|_| true, Picked::ForAny)
        })
    }

    /// Wakes the waiters that each queue has when this call visits it, and returns their number. A
    /// waiter that finds nothing and joins its queue again is not woken a second time.
    pub fn wake_all(&self) -> usize {
        fence(Ordering::SeqCst);
        self.buckets.iter().map(|bucket| bucket.pick_all()).sum()
    }

    /// Returns the number of waiters.
    pub fn waiting(&self) -> usize {
        self.buckets.iter().map(|bucket| bucket.waiting.load(Ordering::Relaxed)).sum()
    }

    fn index(&self, key: u64) -> usize {
        hash_of(&key) as usize & (self.buckets.len() - 1)
    }

    fn pick(&self, key: u64, wanted: impl Fn(&Waiter) -> bool, why: Picked) -> bool {
        self.buckets[self.index(key)].pick(wanted, why)
    }

    /// Joins the queue. `in_turn` is true if the waiter was picked before. Such a waiter joins at
    /// the front, since it came earlier than all others in the queue.
    fn join(&self, waiter: Arc<Waiter>, in_turn: bool) -> Queued<'_> {
        let bucket = &self.buckets[self.index(waiter.key)];
        let mut queue = bucket.queue.lock();
        if in_turn {
            queue.push_front(waiter.clone());
        } else {
            queue.push_back(waiter.clone());
        }
        bucket.waiting.store(queue.len(), Ordering::Relaxed);
        Queued { buckets: self, waiter, picked: false }
    }

    /// Removes a waiter that needs no wake-up any more. If it has already been picked, passes the
    /// wake-up on.
    fn leave(&self, waiter: &Arc<Waiter>) {
        let bucket = &self.buckets[self.index(waiter.key)];
        let mut queue = bucket.queue.lock();
        if let Some(at) = queue.iter().position(|other| Arc::ptr_eq(other, waiter)) {
            queue.remove(at);
            bucket.waiting.store(queue.len(), Ordering::Relaxed);
            return;
        }
        drop(queue);
        let why = waiter.sleep();
        match why {
            Picked::ForKey => self.wake_one(waiter.key),
            Picked::ForAny => self.wake_any(waiter.key),
            Picked::WithAll => false,
        };
    }
}

/// A waiter in its queue. Dropping this value removes the waiter from the queue.
struct Queued<'a> {
    buckets: &'a WaitBuckets,
    waiter: Arc<Waiter>,
    picked: bool,
}

impl Queued<'_> {
    /// Sleeps until the waiter is picked. The thread that picks the waiter removes it from the
    /// queue.
    fn sleep(mut self) {
        self.waiter.sleep();
        self.picked = true;
    }
}

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        if !self.picked {
            self.buckets.leave(&self.waiter);
        }
    }
}

impl Bucket {
    /// Removes from the queue the first waiter for which `wanted` is true, and wakes this waiter.
    fn pick(&self, wanted: impl Fn(&Waiter) -> bool, why: Picked) -> bool {
        if self.waiting.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let mut queue = self.queue.lock();
        let Some(at) = queue.iter().position(|waiter| wanted(waiter)) else { return false };
        let waiter = queue.remove(at).expect("the position is in the queue");
        self.waiting.store(queue.len(), Ordering::Relaxed);
        drop(queue);
        waiter.wake_up(why);
        true
    }

    /// Empties the queue, and wakes the waiters; returns their number.
    fn pick_all(&self) -> usize {
        if self.waiting.load(Ordering::Relaxed) == 0 {
            return 0;
        }
        let mut queue = self.queue.lock();
        let waiters = std::mem::take(&mut *queue);
        self.waiting.store(0, Ordering::Relaxed);
        drop(queue);
        waiters.iter().for_each(|waiter| waiter.wake_up(Picked::WithAll));
        waiters.len()
    }
}

impl Waiter {
    /// Wakes a waiter that was removed from its queue.
    fn wake_up(&self, why: Picked) {
        *self.picked.lock() = Some(why);
        self.wake.notify_one();
    }

    /// Sleeps until picked.
    fn sleep(&self) -> Picked {
        let mut picked = self.picked.lock();
        loop {
            if let Some(why) = *picked {
                return why;
            }
            self.wake.wait(&mut picked);
        }
    }
}

#[cfg(test)]
mod tests;
