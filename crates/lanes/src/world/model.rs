//! The model-checked worlds: the types of `loom` and `shuttle`, with the interface of production.

#[cfg(loom)]
use loom as checker;
#[cfg(shuttle)]
use shuttle as checker;

use super::atomic;
use std::ops::{Deref, DerefMut};
use std::sync::{PoisonError, TryLockError};
use std::time::Duration;

pub use checker::thread;

#[cfg(loom)]
pub use checker::sync::Arc;
#[cfg(shuttle)]
pub use std::sync::{Arc, Weak};

/// The number of lanes: the smallest with which two lanes can affect each other.
#[cfg(loom)]
pub(crate) const LANES: usize = 2;
/// The number of lanes: few, so that some threads share one.
#[cfg(shuttle)]
pub(crate) const LANES: usize = 4;

/// Under the checkers, waits are not counted. To count them, `lock` would first call `try_lock`,
/// which would only double the number of schedules to explore.
pub(crate) const COUNTS_WAITS: bool = false;

/// A mutex of this world, without poisoning.
#[derive(Debug)]
pub(crate) struct Mutex<T>(checker::sync::Mutex<T>);

/// The guard is an `Option` because the checkers' condition variables take guards by value.
#[derive(Debug)]
pub(crate) struct MutexGuard<'a, T> {
    lock: &'a Mutex<T>,
    inner: Option<checker::sync::MutexGuard<'a, T>>,
}

/// The panic message for an empty guard, which would be a broken invariant of this file.
const HELD: &str = "a guard is empty only while it waits";

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Mutex<T> {
        Mutex(checker::sync::Mutex::new(value))
    }
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        let inner = Some(self.0.lock().unwrap_or_else(PoisonError::into_inner));
        MutexGuard { lock: self, inner }
    }
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        unpoisoned(self.0.try_lock()).map(|inner| MutexGuard { lock: self, inner: Some(inner) })
    }
    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
    pub(crate) fn into_inner(self) -> T {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

fn unpoisoned<G>(tried: Result<G, TryLockError<G>>) -> Option<G> {
    match tried {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.inner.as_ref().expect(HELD)
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.inner.as_mut().expect(HELD)
    }
}

/// A readers-writer lock of this world, without poisoning.
#[derive(Debug)]
pub(crate) struct RwLock<T>(checker::sync::RwLock<T>);
pub(crate) type RwReadGuard<'a, T> = checker::sync::RwLockReadGuard<'a, T>;
pub(crate) type RwWriteGuard<'a, T> = checker::sync::RwLockWriteGuard<'a, T>;

impl<T> RwLock<T> {
    pub(crate) fn new(value: T) -> RwLock<T> {
        RwLock(checker::sync::RwLock::new(value))
    }
    pub(crate) fn read(&self) -> RwReadGuard<'_, T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }
    pub(crate) fn write(&self) -> RwWriteGuard<'_, T> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
    pub(crate) fn try_read(&self) -> Option<RwReadGuard<'_, T>> {
        unpoisoned(self.0.try_read())
    }
    pub(crate) fn try_write(&self) -> Option<RwWriteGuard<'_, T>> {
        unpoisoned(self.0.try_write())
    }
    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A condition variable of this world.
#[derive(Debug, Default)]
pub(crate) struct Condvar(checker::sync::Condvar);

impl Condvar {
    pub(crate) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        let inner = guard.inner.take().expect(HELD);
        guard.inner = Some(self.0.wait(inner).unwrap_or_else(PoisonError::into_inner));
    }
    /// Returns at once, as if the time had run out, because the checkers have no clock and would
    /// report an endless wait as a deadlock.
    pub(crate) fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, _timeout: Duration) -> bool {
        drop(guard.inner.take());
        thread::yield_now();
        guard.inner = guard.lock.lock().inner;
        false
    }
    pub(crate) fn notify_one(&self) {
        self.0.notify_one();
    }
    pub(crate) fn notify_all(&self) {
        self.0.notify_all();
    }
}

/// Lets another thread run. Called in loops that wait for another thread.
pub(crate) fn relax(_round: u32) {
    thread::yield_now();
}

/// A sequentially consistent fence that directly follows an atomic read-modify-write.
pub(crate) fn fence_after_update() {
    atomic::fence(atomic::Ordering::SeqCst);
}

macro_rules! local {
    ($(#[$meta:meta])* static $name:ident: $type:ty = $init:expr) => {
        $crate::world::checker_local! { $(#[$meta])* static $name: $type = $init }
    };
}
macro_rules! global {
    ($(#[$meta:meta])* static $name:ident: $type:ty = $init:expr) => {
        $crate::world::checker_global! { $(#[$meta])* static ref $name: $type = $init; }
    };
}
macro_rules! each_lane {
    ($init:expr) => {
        std::array::from_fn(|_| $init)
    };
}
pub(crate) use checker::{lazy_static as checker_global, thread_local as checker_local};
pub(crate) use {each_lane, global, local};
pub(crate) use {global as constant_global, local as constant_local};
