//! Epochs: what is published can be read under a pin without a shared write.

use crate::sync::Arc;
use std::marker::PhantomData;

/// While it lives, nothing published that this thread could see is freed. Not held across I/O
/// or a wait for an operation lock.
pub struct Pin {
    _not_send: PhantomData<*const ()>,
}

/// Pins the calling thread's lane.
pub fn pin() -> Pin {
    Pin { _not_send: PhantomData }
}

/// A value replaced as a whole and read under a [`Pin`].
#[derive(Debug)]
pub struct Published<T> {
    value: parking_lot::RwLock<Arc<T>>,
}

impl<T: Send + Sync> Published<T> {
    /// Publishes `value`.
    pub fn new(value: T) -> Published<T> {
        Published { value: parking_lot::RwLock::new(Arc::new(value)) }
    }
    /// Runs `f` on the value as it is now.
    pub fn with<R>(&self, _pin: &Pin, f: impl FnOnce(&T) -> R) -> R {
        let value = self.value.read().clone();
        f(&value)
    }
    /// Replaces the value; writers are ordered by the caller's lock.
    pub fn store(&self, value: T) {
        *self.value.write() = Arc::new(value);
    }
}
