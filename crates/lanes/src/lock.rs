//! Locks with a rank: a mutex, a readers-writer lock and a condition variable.

use crate::contention::taken;
use crate::held::{Held, LockKey, may_sleep};
use crate::rank::Rank;
use crate::world;
use std::ops::{Deref, DerefMut};

/// A mutual-exclusion lock with a [`Rank`]; a panic does not poison it.
#[derive(Debug)]
pub struct Mutex<T> {
    rank: Rank,
    inner: world::Mutex<T>,
}

/// Unlocks on drop.
#[derive(Debug)]
pub struct MutexGuard<'a, T> {
    // The order of these fields matters, because they are dropped in this order: the lock first,
    // then its record.
    inner: world::MutexGuard<'a, T>,
    rank: Rank,
    _held: Held,
}

impl<T> Mutex<T> {
    /// Creates a lock around `value`, with `rank`.
    pub fn new(rank: Rank, value: T) -> Mutex<T> {
        Mutex { rank, inner: world::Mutex::new(value) }
    }

    /// Waits for the lock.
    ///
    /// # Panics
    /// In debug builds, if the thread holds a lock of the same rank as this one or of a higher
    /// rank.
    #[track_caller]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.lock_as(None)
    }

    /// Works like [`Mutex::lock`], but a thread may hold several locks of this rank if it takes
    /// them in ascending `order`.
    ///
    /// # Panics
    /// In debug builds, if the thread holds a lock of a higher rank, or one of the same rank that
    /// was not taken with a lower `order`.
    #[track_caller]
    pub fn lock_in_order(&self, order: u64) -> MutexGuard<'_, T> {
        self.lock_as(Some(order))
    }

    #[inline]
    #[track_caller]
    fn lock_as(&self, order: Option<u64>) -> MutexGuard<'_, T> {
        let held = Held::in_order(LockKey { rank: self.rank, order });
        let inner = taken(self.rank, || self.inner.try_lock(), || self.inner.lock());
        MutexGuard { inner, rank: self.rank, _held: held }
    }

    /// Takes the lock if it is free. The lock order does not apply, since the call does not wait.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let inner = self.inner.try_lock()?;
        let held = Held::tried(LockKey { rank: self.rank, order: None });
        Some(MutexGuard { inner, rank: self.rank, _held: held })
    }

    /// Returns the value without locking: the caller has the only reference.
    pub fn get_mut(&mut self) -> &mut T {
        self.inner.get_mut()
    }

    /// Returns the value of a lock that no other thread can reach.
    pub fn into_inner(self) -> T {
        self.inner.into_inner()
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

/// A readers-writer lock with a [`Rank`].
#[derive(Debug)]
pub struct RwLock<T> {
    rank: Rank,
    inner: world::RwLock<T>,
}

/// Shared access.
#[derive(Debug)]
pub struct RwReadGuard<'a, T> {
    inner: world::RwReadGuard<'a, T>,
    _held: Held,
}

/// Exclusive access.
#[derive(Debug)]
pub struct RwWriteGuard<'a, T> {
    inner: world::RwWriteGuard<'a, T>,
    _held: Held,
}

impl<T> RwLock<T> {
    /// Creates a lock around `value`, with `rank`.
    pub fn new(rank: Rank, value: T) -> RwLock<T> {
        RwLock { rank, inner: world::RwLock::new(value) }
    }

    /// Waits for shared access. A thread that already holds this lock must not call this.
    ///
    /// # Panics
    /// In debug builds, if the thread holds a lock of the same rank as this one or of a higher
    /// rank.
    #[track_caller]
    pub fn read(&self) -> RwReadGuard<'_, T> {
        let held = Held::in_order(LockKey { rank: self.rank, order: None });
        let inner = taken(self.rank, || self.inner.try_read(), || self.inner.read());
        RwReadGuard { inner, _held: held }
    }

    /// Waits for exclusive access.
    ///
    /// # Panics
    /// In debug builds, if the thread holds a lock of the same rank as this one or of a higher
    /// rank.
    #[track_caller]
    pub fn write(&self) -> RwWriteGuard<'_, T> {
        let held = Held::in_order(LockKey { rank: self.rank, order: None });
        let inner = taken(self.rank, || self.inner.try_write(), || self.inner.write());
        RwWriteGuard { inner, _held: held }
    }

    /// Takes exclusive access if the lock is free. The lock order does not apply, since the call
    /// does not wait.
    pub fn try_write(&self) -> Option<RwWriteGuard<'_, T>> {
        let inner = self.inner.try_write()?;
        Some(RwWriteGuard { inner, _held: Held::tried(LockKey { rank: self.rank, order: None }) })
    }

    /// Returns the value without locking: the caller has the only reference.
    pub fn get_mut(&mut self) -> &mut T {
        self.inner.get_mut()
    }
}

impl<T> Deref for RwReadGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> Deref for RwWriteGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> DerefMut for RwWriteGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

/// A condition variable for [`Mutex`].
#[derive(Debug, Default)]
pub struct Condvar {
    inner: world::Condvar,
}

impl Condvar {
    /// Creates a condition variable without waiters.
    pub fn new() -> Condvar {
        Condvar::default()
    }

    /// Releases the lock, waits for a notification, and takes the lock again. May return without a
    /// notification.
    ///
    /// # Panics
    /// In debug builds, if the thread holds a lock of [`Rank::Guard`] or of a higher rank, because
    /// such locks are never held across a wait. Locks of the same rank as `guard` are allowed.
    #[track_caller]
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        may_sleep(Some(guard.rank));
        self.inner.wait(&mut guard.inner);
    }

    /// Works like [`Condvar::wait`], for at most `timeout`; returns `true` if the thread was
    /// notified. The checkers have no clock, so under the checkers the wait ends as soon as every
    /// other thread has had a chance to run.
    ///
    /// # Panics
    /// The same as for [`Condvar::wait`].
    #[track_caller]
    pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, timeout: std::time::Duration) -> bool {
        may_sleep(Some(guard.rank));
        self.inner.wait_for(&mut guard.inner, timeout)
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

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
