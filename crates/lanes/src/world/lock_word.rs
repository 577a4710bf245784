//! The word of a [`crate::Mutex`]: a thread that finds the lock taken spins briefly, then sleeps.
//!
//! A lock is usually held for about a microsecond, but putting a thread to sleep and waking it
//! takes several microseconds. So as few threads as possible sleep. The lock is not kept free for a
//! thread that still has to wake up; the only exception is a reservation:
//!
//! - An unlock frees the lock for any thread. A woken thread does not own the lock yet, but has to
//!   try to take it.
//! - At any time, at most one woken thread is about to try to take the lock ([`WOKEN`]). Until it
//!   has tried, the others stay asleep. So the running threads can continue to work even if there
//!   are more threads than processors. Without this rule, each unlock would wake the next thread,
//!   which would find the lock taken again.
//! - A thread that was woken in vain [`PATIENCE`] times reserves the lock ([`RESERVED`]). No other
//!   thread may then take the lock, so no thread is overtaken for ever.
//!
//! *Invariant*: a thread sleeps only while the lock is held, or reserved for another thread. The
//! thread that releases the lock sees the number of sleepers, and wakes one of them unless a woken
//! thread is already about to try.

use super::atomic::Ordering;
use super::futex::FutexWord;

const HELD: u32 = 1;
/// Set while a woken thread is about to try to take the lock. That thread clears the mark.
const WOKEN: u32 = 2;
/// Set if a thread that was woken in vain too often must get the lock next. That thread clears the
/// mark.
const RESERVED: u32 = 4;
/// The word's remaining bits count the threads that sleep, or were woken and do not have the lock
/// yet. This is the unit of that count.
const SLEEPER: u32 = 8;

/// The futex bit on which all sleepers wait, except the one that has reserved the lock.
const ANY: u32 = 1;
const WHO_RESERVED: u32 = 2;

/// How often a waiter tries before it sleeps. All tries together take some microseconds, about as
/// long as a sleep.
const SPINS: u32 = if cfg!(loom) { 0 } else { 100 };
/// How often a thread is woken in vain before it reserves the lock.
#[cfg(not(loom))]
const PATIENCE: u32 = 8;

/// A lock without data.
#[derive(Debug)]
pub(crate) struct LockWord {
    word: FutexWord,
    /// The number of vain wake-ups before a reservation. It replaces `PATIENCE`, since loom cannot
    /// explore as many as eight.
    #[cfg(loom)]
    patience: u32,
}

/// The state of a thread that waits.
#[derive(Debug, Default)]
struct Waiter {
    /// [`SLEEPER`] if the thread is counted in the word, otherwise 0.
    counted: u32,
    /// The marks in the word that this thread has to clear.
    marks: u32,
    /// How often the thread was woken.
    woken: u32,
}

impl Waiter {
    fn may_take(&self, word: u32) -> bool {
        word & HELD == 0 && (word & RESERVED == 0 || self.marks & RESERVED != 0)
    }

    /// Returns the value to which this thread changes the word when it takes the lock.
    fn taking(&self, word: u32) -> u32 {
        ((word | HELD) & !self.marks).wrapping_sub(self.counted)
    }

    /// Returns the value to which this thread changes the word before it sleeps, and the marks in
    /// the word that this thread then has to clear.
    fn sleeping(&self, word: u32, patience: u32) -> (u32, u32) {
        let word = word + (SLEEPER - self.counted);
        if self.marks & RESERVED != 0 {
            (word, self.marks)
        } else if self.woken >= patience && word & RESERVED == 0 {
            (word | RESERVED, self.marks | RESERVED)
        } else {
            // If `WOKEN` stayed set while this thread sleeps, no sleeper would be woken any more.
            (word & !self.marks, 0)
        }
    }

    /// Returns the bits of the wake-ups for which this thread waits.
    fn hears(&self) -> u32 {
        if self.marks & RESERVED != 0 { WHO_RESERVED } else { ANY }
    }
}

impl LockWord {
    #[cfg(not(loom))]
    pub(crate) const fn new() -> LockWord {
        LockWord { word: FutexWord::new(0) }
    }

    #[cfg(not(loom))]
    fn patience(&self) -> u32 {
        PATIENCE
    }

    #[cfg(loom)]
    fn patience(&self) -> u32 {
        self.patience
    }

    #[inline]
    pub(crate) fn lock(&self) {
        if self.change(0, HELD, Ordering::Acquire).is_err() {
            self.wait();
        }
    }

    /// Takes the lock; returns `false` if it is taken or reserved.
    #[inline]
    pub(crate) fn try_lock(&self) -> bool {
        let mut word = 0;
        while word & (HELD | RESERVED) == 0 {
            match self.change(word, word | HELD, Ordering::Acquire) {
                Ok(()) => return true,
                Err(now) => word = now,
            }
        }
        false
    }

    /// Releases the lock, which the caller holds.
    #[inline]
    pub(crate) fn unlock(&self) {
        if self.change(HELD, 0, Ordering::Release).is_err() {
            self.unlock_waking();
        }
    }

    #[cfg(not(loom))]
    pub(crate) fn is_locked(&self) -> bool {
        self.word.load(Ordering::Relaxed) & HELD != 0
    }

    #[cold]
    fn wait(&self) {
        let mut waiter = Waiter::default();
        let mut spins = SPINS;
        loop {
            let mut word = self.word.load(Ordering::Relaxed);
            while !waiter.may_take(word) && spins > 0 {
                std::hint::spin_loop();
                spins -= 1;
                word = self.word.load(Ordering::Relaxed);
            }
            if waiter.may_take(word) {
                if self.change(word, waiter.taking(word), Ordering::Acquire).is_ok() {
                    return;
                }
                continue;
            }
            let (asleep, marks) = waiter.sleeping(word, self.patience());
            if self.change(word, asleep, Ordering::Relaxed).is_err() {
                continue;
            }
            (waiter.counted, waiter.marks) = (SLEEPER, marks);
            if self.word.sleep(asleep, waiter.hears()) {
                waiter.woken += 1;
                waiter.marks |= WOKEN;
                spins = SPINS;
            }
        }
    }

    #[cold]
    fn unlock_waking(&self) {
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            let wakes = word & RESERVED == 0 && word >= SLEEPER && word & WOKEN == 0;
            let mark = if wakes { WOKEN } else { 0 };
            match self.change(word, (word & !HELD) | mark, Ordering::Release) {
                Err(now) => word = now,
                Ok(()) if word & RESERVED != 0 => {
                    self.word.wake_one(WHO_RESERVED);
                    return;
                }
                Ok(()) if wakes => return self.wake(),
                Ok(()) => return,
            }
        }
    }

    /// Wakes a sleeper, after the caller has set [`WOKEN`] in the word.
    fn wake(&self) {
        if self.word.wake_one(ANY) {
            return;
        }
        // None of the counted threads was asleep yet. These threads will not sleep, because they
        // now see a changed word. But other threads may have gone to sleep since `WOKEN` was set.
        // No unlock has woken them, because an unlock wakes none of them while the mark is set.
        let word = self.word.take_away(WOKEN);
        if word & HELD == 0 && word >= SLEEPER {
            self.word.wake_one(ANY);
        }
    }

    #[inline]
    fn change(&self, from: u32, to: u32, ordering: Ordering) -> Result<(), u32> {
        self.word.change(from, to, ordering)
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use loom::thread;

    struct Guarded {
        lock: LockWord,
        value: UnsafeCell<u32>,
    }

    impl Guarded {
        fn add(&self) {
            self.lock.lock();
            // SAFETY: loom's cell checks the exclusion that makes this sound.
            self.value.with_mut(|value| unsafe { *value += 1 });
            self.lock.unlock();
        }
    }

    /// Runs one thread for each number in `times`. Each thread calls `add` this number of times.
    /// The model's own thread takes the last number.
    fn run(preemptions: usize, patience: u32, times: &'static [u32]) {
        crate::schedules::check(preemptions, move || {
            let lock = LockWord { word: FutexWord::new(0), patience };
            let guarded = Arc::new(Guarded { lock, value: UnsafeCell::new(0) });
            let (mine, others) = times.split_last().expect("threads");
            let threads: Vec<_> = others
                .iter()
                .map(|&times| {
                    let guarded = guarded.clone();
                    thread::spawn(move || (0..times).for_each(|_| guarded.add()))
                })
                .collect();
            (0..*mine).for_each(|_| guarded.add());
            threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
            // SAFETY: all other threads have terminated.
            guarded.value.with(|value| unsafe { assert_eq!(*value, times.iter().sum::<u32>()) });
            assert_eq!(guarded.lock.word.load(Ordering::Relaxed), 0, "marks were left");
        });
    }

    #[test]
    fn loom_three_threads_exclude_each_other_and_none_is_left_asleep() {
        run(4, 9, &[1, 1, 1]);
    }

    #[test]
    fn loom_a_thread_that_locks_repeatedly_leaves_no_thread_asleep() {
        run(3, 9, &[1, 3]);
    }

    #[test]
    fn loom_a_thread_that_reserved_the_lock_gets_it_next_and_releases_it_whole() {
        run(3, 1, &[1, 3]);
        run(3, 1, &[1, 1, 2]);
    }

    #[test]
    fn loom_a_successful_try_excludes_the_others_and_leaves_no_thread_asleep() {
        crate::schedules::check(3, || {
            let lock = LockWord { word: FutexWord::new(0), patience: 1 };
            let guarded = Arc::new(Guarded { lock, value: UnsafeCell::new(0) });
            let tries = {
                let guarded = guarded.clone();
                thread::spawn(move || {
                    if guarded.lock.try_lock() {
                        // SAFETY: as in `add`.
                        guarded.value.with_mut(|value| unsafe { *value += 1 });
                        guarded.lock.unlock();
                    }
                })
            };
            let locks = {
                let guarded = guarded.clone();
                thread::spawn(move || guarded.add())
            };
            guarded.add();
            tries.join().expect("no panic");
            locks.join().expect("no panic");
            assert_eq!(guarded.lock.word.load(Ordering::Relaxed), 0, "marks were left");
        });
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
