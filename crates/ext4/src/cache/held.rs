//! Holds on the blocks of a cache, counted in each block's hold word.

use lanefs_lanes::Holds;
use lanefs_lanes::sync::Arc;
use std::ops::Deref;

/// A block whose holds are all counted in its word.
pub(crate) trait Counted {
    /// Returns the block's hold word.
    fn holds(&self) -> &Holds;
}

/// A hold on a block's object. While the hold lives, memory contains no second object for the same
/// block.
pub(crate) struct Held<T: Counted>(Arc<T>);

impl<T: Counted> Held<T> {
    /// Takes a hold on `block`; returns `None` if the block is dead.
    #[inline]
    pub(crate) fn take(block: &Arc<T>) -> Option<Held<T>> {
        block.holds().add(1).then(|| Held(block.clone()))
    }

    /// Takes over the hold with which a new block's word was created.
    pub(crate) fn first(block: Arc<T>) -> Held<T> {
        Held(block)
    }
}

impl<T: Counted> Deref for Held<T> {
    type Target = Arc<T>;
    #[inline]
    fn deref(&self) -> &Arc<T> {
        &self.0
    }
}

impl<T: Counted> Clone for Held<T> {
    #[inline]
    fn clone(&self) -> Held<T> {
        let held = self.0.holds().add(1);
        debug_assert!(held, "a held block is not dead");
        Held(self.0.clone())
    }
}

impl<T: Counted> Drop for Held<T> {
    #[inline]
    fn drop(&mut self) {
        let ended = self.0.holds().subtract(1);
        debug_assert!(!ended, "blocks have no names to lose");
    }
}
