//! The number of nested pins of the calling thread. Other threads see only the outermost pin.

use crate::world;
use std::cell::Cell;

world::constant_local! { static DEPTH: Cell<u32> = Cell::new(0) }

#[inline]
pub(crate) fn get() -> u32 {
    DEPTH.with(Cell::get)
}

#[inline]
pub(crate) fn set(depth: u32) {
    DEPTH.with(|mine| mine.set(depth));
}

/// Returns whether the calling thread has a pin.
pub(crate) fn is_pinned() -> bool {
    DEPTH.try_with(|depth| depth.get() != 0).unwrap_or(false)
}
