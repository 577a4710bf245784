//! A word on which threads sleep: Linux's futex, and its replacement under loom.

use super::atomic::{AtomicU32, Ordering};

/// A word and the threads that sleep on it.
#[derive(Debug)]
pub(crate) struct FutexWord {
    word: AtomicU32,
    #[cfg(loom)]
    queue: model::Queue,
}

impl FutexWord {
    #[cfg(not(loom))]
    pub(crate) const fn new(word: u32) -> FutexWord {
        FutexWord { word: AtomicU32::new(word) }
    }

    #[inline]
    pub(crate) fn load(&self, ordering: Ordering) -> u32 {
        self.word.load(ordering)
    }

    /// Replaces the value `from` by `to`. If the word has another value, returns that value as the
    /// error.
    #[inline]
    pub(crate) fn change(&self, from: u32, to: u32, ordering: Ordering) -> Result<(), u32> {
        self.word.compare_exchange(from, to, ordering, Ordering::Relaxed).map(drop)
    }

    /// Clears bits; returns the previous value.
    pub(crate) fn take_away(&self, bits: u32) -> u32 {
        self.word.fetch_and(!bits, Ordering::Relaxed)
    }
}

#[cfg(not(loom))]
mod linux {
    use super::FutexWord;
    use crate::world::atomic::Ordering;
    use rustix::io::Errno;
    use rustix::thread::futex::{self, Flags, Timespec};
    use std::num::NonZeroU32;
    use std::time::Duration;

    impl FutexWord {
        /// All bits: a wake-up for any sleeper.
        pub(crate) const ANY: u32 = u32::MAX;

        /// Sleeps if the word is `expected`, until a call wakes one of the bits in `hears`. Returns
        /// `false` if the word was not `expected`, or after a signal.
        pub(crate) fn sleep(&self, expected: u32, hears: u32) -> bool {
            let hears = NonZeroU32::new(hears).unwrap_or(NonZeroU32::MAX);
            futex::wait_bitset(&self.word, Flags::PRIVATE, expected, None, hears).is_ok()
        }

        /// Works like [`FutexWord::sleep`], for at most `timeout`; returns `true` after the
        /// timeout.
        pub(crate) fn sleep_for(&self, expected: u32, timeout: Duration) -> bool {
            let timeout = Timespec {
                tv_sec: timeout.as_secs().try_into().unwrap_or(i64::MAX),
                tv_nsec: timeout.subsec_nanos().into(),
            };
            let slept = futex::wait(&self.word, Flags::PRIVATE, expected, Some(&timeout));
            slept == Err(Errno::TIMEDOUT)
        }

        /// Wakes the first thread that sleeps for one of these bits; returns `false` if no thread
        /// does.
        pub(crate) fn wake_one(&self, bits: u32) -> bool {
            self.wake(1, bits)
        }

        /// Increments the word, and wakes the first `most` sleepers.
        pub(crate) fn bump(&self, most: u32) {
            self.word.fetch_add(1, Ordering::Release);
            self.wake(most, FutexWord::ANY);
        }

        fn wake(&self, most: u32, bits: u32) -> bool {
            let bits = NonZeroU32::new(bits).unwrap_or(NonZeroU32::MAX);
            futex::wake_bitset(&self.word, Flags::PRIVATE, most, bits).is_ok_and(|woken| woken > 0)
        }
    }
}

/// The kernel's behaviour as described in futex(2): reading the word and joining the queue are one
/// atomic step.
#[cfg(loom)]
mod model {
    use super::FutexWord;
    use loom::sync::atomic::{AtomicU32, Ordering};
    use loom::sync::{Condvar, Mutex};

    #[derive(Debug)]
    pub(super) struct Queue {
        sleepers: Mutex<Sleepers>,
        woken: Condvar,
    }

    #[derive(Debug, Default)]
    struct Sleepers {
        next: u32,
        waiting: Vec<(u32, u32)>,
    }

    impl FutexWord {
        pub(crate) fn new(word: u32) -> FutexWord {
            let queue = Queue { sleepers: Mutex::default(), woken: Condvar::new() };
            FutexWord { word: AtomicU32::new(word), queue }
        }

        pub(crate) fn sleep(&self, expected: u32, hears: u32) -> bool {
            let mut sleepers = self.queue.sleepers.lock().expect("no panic");
            if self.word.load(Ordering::Relaxed) != expected {
                return false;
            }
            let me = sleepers.next;
            sleepers.next += 1;
            sleepers.waiting.push((me, hears));
            while sleepers.waiting.iter().any(|(other, _)| *other == me) {
                sleepers = self.queue.woken.wait(sleepers).expect("no panic");
            }
            true
        }

        pub(crate) fn wake_one(&self, bits: u32) -> bool {
            let mut sleepers = self.queue.sleepers.lock().expect("no panic");
            let first = sleepers.waiting.iter().position(|(_, hears)| hears & bits != 0);
            if let Some(first) = first {
                sleepers.waiting.remove(first);
                self.queue.woken.notify_all();
            }
            first.is_some()
        }
    }
}
