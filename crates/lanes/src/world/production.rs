//! Production: `parking_lot` locks, `std` atomics and threads.

use std::time::Duration;

pub(crate) use parking_lot::{
    Mutex, MutexGuard, RwLock, RwLockReadGuard as RwReadGuard, RwLockWriteGuard as RwWriteGuard,
};
pub(crate) use std::sync::atomic;
pub use std::sync::{Arc, Weak};
pub use std::thread;

/// How many lanes there are at most.
pub(crate) const LANES: usize = 64;

/// Whether a lock first tries, so that only a contended wait reads the clock.
pub(crate) const COUNTS_WAITS: bool = true;

/// A condition variable of this world.
#[derive(Debug, Default)]
pub(crate) struct Condvar(parking_lot::Condvar);

impl Condvar {
    pub(crate) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        self.0.wait(guard);
    }
    /// True if notified, false if the time was over first.
    pub(crate) fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, timeout: Duration) -> bool {
        !self.0.wait_for(guard, timeout).timed_out()
    }
    pub(crate) fn notify_one(&self) {
        self.0.notify_one();
    }
    pub(crate) fn notify_all(&self) {
        self.0.notify_all();
    }
}

/// Lets another thread run, from a loop that waits for one.
pub(crate) fn relax(round: u32) {
    // A short wait is for a writer that runs; a long one is for a writer that was preempted.
    if round < 32 { std::hint::spin_loop() } else { std::thread::yield_now() }
}

/// A sequentially consistent fence that directly follows an atomic read-modify-write.
#[inline(always)]
pub(crate) fn fence_after_update() {
    // On x86 the locked instruction before it is a full barrier already (Intel SDM volume 3,
    // "Memory Ordering": no load or store passes one), so only the compiler is left to be told.
    // A second barrier would double the price of a pin or a shared hold.
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
macro_rules! global {
    ($(#[$meta:meta])* static $name:ident: $type:ty = $init:expr) => {
        $(#[$meta])* static $name: ::std::sync::LazyLock<$type> = ::std::sync::LazyLock::new(|| $init);
    };
}
pub(crate) use {global, local};
