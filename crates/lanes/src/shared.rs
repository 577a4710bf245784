//! The operation lock: shared by readers without a shared line, exclusive for changes.

use crate::Rank;

/// A lock held shared or exclusive, with no data of its own.
#[derive(Debug)]
pub struct SharedLock {
    inner: parking_lot::RwLock<()>,
}
/// Held shared until dropped.
pub struct SharedHold<'a>(#[allow(dead_code)] parking_lot::RwLockReadGuard<'a, ()>);
/// Held exclusively until dropped.
pub struct ExclusiveHold<'a>(#[allow(dead_code)] parking_lot::RwLockWriteGuard<'a, ()>);

impl SharedLock {
    /// `order` tells locks of one rank apart: they are taken in ascending order.
    pub fn new(_rank: Rank, _order: u64) -> SharedLock {
        SharedLock { inner: parking_lot::RwLock::new(()) }
    }
    /// Waits for a shared hold. Not recursive.
    pub fn shared(&self) -> SharedHold<'_> {
        SharedHold(self.inner.read())
    }
    /// Waits for the exclusive hold.
    pub fn exclusive(&self) -> ExclusiveHold<'_> {
        ExclusiveHold(self.inner.write())
    }
    /// The exclusive hold if it is free.
    pub fn try_exclusive(&self) -> Option<ExclusiveHold<'_>> {
        self.inner.try_write().map(ExclusiveHold)
    }
}
