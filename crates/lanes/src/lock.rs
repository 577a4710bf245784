//! Locks with a rank.

use crate::Rank;

/// A mutual-exclusion lock with a [`Rank`]; it does not poison.
#[derive(Debug)]
pub struct Mutex<T> {
    rank: Rank,
    inner: parking_lot::Mutex<T>,
}
/// Unlocks on drop.
pub type MutexGuard<'a, T> = parking_lot::MutexGuard<'a, T>;

impl<T> Mutex<T> {
    /// A lock around `value`, at `rank`.
    pub fn new(rank: Rank, value: T) -> Mutex<T> {
        Mutex { rank, inner: parking_lot::Mutex::new(value) }
    }
    /// Waits for the lock.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.inner.lock()
    }
    /// The lock if it is free.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.inner.try_lock()
    }
    /// Without locking: the caller has the only reference.
    pub fn get_mut(&mut self) -> &mut T {
        self.inner.get_mut()
    }
    /// The rank.
    pub fn rank(&self) -> Rank {
        self.rank
    }
}

/// A readers-writer lock with a [`Rank`].
#[derive(Debug)]
pub struct RwLock<T> {
    inner: parking_lot::RwLock<T>,
}
/// Shared access.
pub type RwReadGuard<'a, T> = parking_lot::RwLockReadGuard<'a, T>;
/// Exclusive access.
pub type RwWriteGuard<'a, T> = parking_lot::RwLockWriteGuard<'a, T>;

impl<T> RwLock<T> {
    /// A lock around `value`, at `rank`.
    pub fn new(_rank: Rank, value: T) -> RwLock<T> {
        RwLock { inner: parking_lot::RwLock::new(value) }
    }
    /// Waits for shared access.
    pub fn read(&self) -> RwReadGuard<'_, T> {
        self.inner.read()
    }
    /// Waits for exclusive access.
    pub fn write(&self) -> RwWriteGuard<'_, T> {
        self.inner.write()
    }
}

/// A condition variable for [`Mutex`].
#[derive(Debug, Default)]
pub struct Condvar {
    inner: parking_lot::Condvar,
}

impl Condvar {
    /// Nobody waits yet.
    pub fn new() -> Condvar {
        Condvar::default()
    }
    /// Lets the lock go, waits to be notified, takes it again.
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        self.inner.wait(guard)
    }
    /// As [`Condvar::wait`], for at most `timeout`; true if it was notified.
    pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, timeout: std::time::Duration) -> bool {
        !self.inner.wait_for(guard, timeout).timed_out()
    }
    /// Wakes one waiter.
    pub fn notify_one(&self) {
        self.inner.notify_one();
    }
    /// Wakes all waiters.
    pub fn notify_all(&self) {
        self.inner.notify_all();
    }
}
