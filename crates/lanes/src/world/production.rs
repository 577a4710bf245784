//! Production: the mutex and the condition variable of this crate, the readers-writer lock of
//! `parking_lot`, and the atomics and threads of `std`.

use super::atomic::{self, AtomicU32, Ordering};
use super::futex::FutexWord;
use super::lock_word::LockWord;
use parking_lot::lock_api;
use std::time::Duration;

pub(crate) use parking_lot::{
    RwLock, RwLockReadGuard as RwReadGuard, RwLockWriteGuard as RwWriteGuard,
};
pub use std::sync::{Arc, Weak};
pub use std::thread;

/// The largest number of lanes.
pub(crate) const LANES: usize = 64;

/// Whether waits for locks are counted. If they are, taking a lock begins with a try, so that the
/// clock is read only if the lock is contended.
pub(crate) const COUNTS_WAITS: bool = true;

/// A mutex of this world.
pub(crate) type Mutex<T> = lock_api::Mutex<RawLock, T>;
pub(crate) type MutexGuard<'a, T> = lock_api::MutexGuard<'a, RawLock, T>;

/// A [`LockWord`] with the interface of `lock_api`.
#[derive(Debug)]
pub(crate) struct RawLock(LockWord);

// SAFETY: one thread at a time holds a `LockWord`. To take the lock, a thread atomically changes a
// word that says that the lock is free; this change has Acquire ordering. To release the lock, the
// thread changes the word with Release ordering.
unsafe impl lock_api::RawMutex for RawLock {
    #[allow(clippy::declare_interior_mutable_const)] // the way in which the trait creates a lock
    const INIT: RawLock = RawLock(LockWord::new());
    type GuardMarker = lock_api::GuardNoSend;

    #[inline]
    fn lock(&self) {
        self.0.lock();
    }

    #[inline]
    fn try_lock(&self) -> bool {
        self.0.try_lock()
    }

    #[inline]
    unsafe fn unlock(&self) {
        self.0.unlock();
    }

    fn is_locked(&self) -> bool {
        self.0.is_locked()
    }
}

/// A condition variable of this world.
#[derive(Debug)]
pub(crate) struct Condvar {
    /// Counts the notifications; waiters sleep on this word.
    wakes: FutexWord,
    /// The number of waiting threads. Incremented with the mutex held, so when a thread has changed
    /// the state under the mutex, the number includes every waiter that saw the previous state.
    waiting: AtomicU32,
}

impl Default for Condvar {
    fn default() -> Condvar {
        Condvar { wakes: FutexWord::new(0), waiting: AtomicU32::new(0) }
    }
}

impl Condvar {
    pub(crate) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        self.waiting(guard, |seen| self.wakes.sleep(seen, FutexWord::ANY));
    }
    /// Waits. Returns `true` after a notification, and `false` if the time ran out first.
    pub(crate) fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, timeout: Duration) -> bool {
        !self.waiting(guard, |seen| self.wakes.sleep_for(seen, timeout))
    }
    /// Releases the mutex while `sleep` runs. `sleep` gets the number of notifications, which was
    /// read while the mutex was held.
    fn waiting<T>(&self, guard: &mut MutexGuard<'_, T>, sleep: impl FnOnce(u32) -> bool) -> bool {
        let seen = self.wakes.load(Ordering::Relaxed);
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let result = MutexGuard::unlocked(guard, || sleep(seen));
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        result
    }
    pub(crate) fn notify_one(&self) {
        self.notify(1);
    }
    pub(crate) fn notify_all(&self) {
        self.notify(i32::MAX as u32);
    }
    fn notify(&self, most: u32) {
        if self.waiting.load(Ordering::Relaxed) > 0 {
            self.wakes.bump(most);
        }
    }
}

/// Lets another thread run. Called in loops that wait for another thread.
pub(crate) fn relax(round: u32) {
    // A short wait is enough if the other thread is running. A longer wait is for a thread that was
    // preempted.
    if round < 32 { std::hint::spin_loop() } else { std::thread::yield_now() }
}

/// A sequentially consistent fence that directly follows an atomic read-modify-write.
#[inline(always)]
pub(crate) fn fence_after_update() {
    // On x86 the locked instruction before the fence is a full barrier already (Intel SDM volume 3,
    // "Memory Ordering": no load or store passes a locked instruction), so only the compiler needs
    // a fence. A second barrier would double the cost, for example, of pinning an epoch.
    if cfg!(all(target_arch = "x86_64", not(miri))) {
        atomic::compiler_fence(atomic::Ordering::SeqCst);
    } else {
        atomic::fence(atomic::Ordering::SeqCst);
    }
}

macro_rules! local {
    ($(#[$meta:meta])* static $name:ident: $type:ty = $init:expr) => {
        ::std::thread_local! { $(#[$meta])* static $name: $type = $init }
    };
}
// Declares a thread-local with a constant initialiser. So no use has to check whether the
// thread-local is initialised.
macro_rules! constant_local {
    ($(#[$meta:meta])* static $name:ident: $type:ty = $init:expr) => {
        ::std::thread_local! { $(#[$meta])* static $name: $type = const { $init } }
    };
}
macro_rules! global {
    ($(#[$meta:meta])* static $name:ident: $type:ty = $init:expr) => {
        $(#[$meta])* static $name: ::std::sync::LazyLock<$type> = ::std::sync::LazyLock::new(|| $init);
    };
}
// Declares a static with a constant initialiser. So no use has to check whether the static is
// initialised.
macro_rules! constant_global {
    ($(#[$meta:meta])* static $name:ident: $type:ty = $init:expr) => {
        $(#[$meta])* static $name: $type = $init;
    };
}
// Creates one value for each lane, in a constant.
macro_rules! each_lane {
    ($init:expr) => {
        [const { $init }; $crate::world::LANES]
    };
}
pub(crate) use {constant_global, constant_local, each_lane, global, local};
