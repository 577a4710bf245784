//! The limbo list of a lane: retired values, ordered by the epoch of their retirement.

use crate::lane::Lane;
use crate::world;
use std::cell::Cell;
use std::collections::VecDeque;

/// The largest number of values that are taken out to be freed each time the list's lock is held.
const BATCH: usize = if cfg!(any(loom, shuttle)) { 2 } else { 16 };

/// How many values a lane retires between two attempts to free values of its list.
pub(crate) const STEP: usize = if cfg!(any(loom, shuttle)) { 2 } else { 8 };

/// The limits of [`usual`].
const SHORTEST: usize = if cfg!(any(loom, shuttle)) { 0 } else { 8 };
const LONGEST: usize = if cfg!(any(loom, shuttle)) { 0 } else { 1024 };

/// The largest number of bytes that a lane's limbo list keeps. Copies of directory blocks have some
/// kilobytes each, so [`LONGEST`] of them would take too much memory.
const MOST_BYTES: usize = 2 << 20;

/// If a lane's list has more than [`MOST_BYTES`], the lane tries to free values each time it has
/// retired this many bytes.
const STEP_BYTES: usize = MOST_BYTES / 8;

/// Returns the number of values that a lane's limbo list keeps. A lane frees the oldest values
/// beyond this number, a few at a time, and advances the epoch (twice) only if these values cannot
/// be freed. So a lane advances the epoch twice each time it has retired about this many values. An
/// advance moves some cache lines of every lane, so the list is longer if there are more lanes.
/// With few lanes the list is short, so that new objects get memory that is still in the
/// processor's caches.
pub(crate) fn usual() -> usize {
    usual_with(Lane::given().len())
}

fn usual_with(lanes: usize) -> usize {
    lanes.saturating_pow(3).clamp(SHORTEST, LONGEST)
}

/// A value to be dropped later: a `Box` whose type is erased.
pub(crate) struct Retired {
    value: *mut (),
    /// The memory that the drop frees, in bytes.
    bytes: usize,
    /// Drops `value`; called once.
    drop: unsafe fn(*mut ()),
}

// SAFETY: `Retired::new` accepts only owning pointers, to values that may be sent to other threads.
unsafe impl Send for Retired {}

impl Retired {
    /// # Safety
    /// The same as for [`Retired::with_bytes`].
    pub(crate) unsafe fn new<T: Send + 'static>(value: *mut T) -> Retired {
        // SAFETY: the caller's promise.
        unsafe { Retired::with_bytes(value, 0) }
    }

    /// Creates the record of a value that owns `owned` bytes in addition to its own size.
    ///
    /// # Safety
    /// `value` comes from `Box::into_raw`, no other code frees it, and only pins that are older
    /// than its retirement can reach it.
    pub(crate) unsafe fn with_bytes<T: Send + 'static>(value: *mut T, owned: usize) -> Retired {
        /// # Safety
        /// `value` was a `Box<T>` and is dropped only here.
        unsafe fn drop_box<T>(value: *mut ()) {
            // SAFETY: the caller's promise.
            drop(unsafe { Box::from_raw(value.cast::<T>()) });
        }
        Retired { value: value.cast(), bytes: size_of::<T>() + owned, drop: drop_box::<T> }
    }
}

impl Drop for Retired {
    fn drop(&mut self) {
        // SAFETY: the caller of `new` promised an owned box, and a value is dropped once.
        unsafe { (self.drop)(self.value) }
    }
}

/// The values that one lane retired. No other lock is taken under the list's lock, and no
/// destructor runs under it.
pub(crate) struct Limbo {
    waiting: world::Mutex<Waiting>,
}

struct Waiting {
    /// The values with their epochs, ascending.
    values: VecDeque<(u64, Retired)>,
    /// The memory that all values together occupy, in bytes.
    bytes: usize,
    /// The next attempt to free values is due when the list reaches this length or this number of
    /// bytes.
    due: (usize, usize),
}

// Destructors may retire values. Only the outermost collection frees values, because nested
// collections would recurse deeply on a long list.
world::constant_local! { static COLLECTING: Cell<bool> = Cell::new(false) }

/// Completes a collection, also when a destructor panics.
struct Outermost;

impl Drop for Outermost {
    fn drop(&mut self) {
        COLLECTING.with(|collecting| collecting.set(false));
    }
}

impl Limbo {
    pub(crate) fn new() -> Limbo {
        let due = (STEP, MOST_BYTES);
        Limbo { waiting: world::Mutex::new(Waiting { values: VecDeque::new(), bytes: 0, due }) }
    }

    /// Adds a value with the epoch that `epoch` returns. `epoch` is called under the lock, so that
    /// the epochs in the list ascend. Returns `true` if it is time to free some values.
    pub(crate) fn push(&self, value: Retired, epoch: impl FnOnce() -> u64) -> bool {
        let mut waiting = self.waiting.lock();
        waiting.bytes += value.bytes;
        waiting.values.push_back((epoch(), value));
        let (len, bytes) = (waiting.values.len(), waiting.bytes);
        let is_due = len >= waiting.due.0 || bytes >= waiting.due.1;
        if is_due {
            // If a pin prevents freeing, the next attempt is made only after several more values
            // were added, not after each value.
            waiting.due = (len + (len / 4).clamp(STEP, 16 * BATCH), bytes + STEP_BYTES);
        }
        is_due
    }

    /// Frees values that were retired in epoch `last` or before, the oldest first, until the list
    /// has at most `keep` values and at most [`MOST_BYTES`] bytes. Returns whether the list has
    /// become that short.
    pub(crate) fn collect(&self, last: u64, keep: usize) -> bool {
        if COLLECTING.with(|collecting| collecting.replace(true)) {
            // The outermost collection frees the values.
            return true;
        }
        let _outermost = Outermost;
        loop {
            // The batch is on the stack, so that nothing is allocated where values are retired.
            let mut batch = [const { None }; BATCH];
            let (taken, is_short) = self.take(last, keep, &mut batch);
            if taken < BATCH || is_short {
                return is_short;
            }
        }
    }

    /// Moves values that were retired in epoch `last` or before from the list to `batch`. Leaves
    /// `keep` values in the list if they have at most [`MOST_BYTES`] bytes together. Returns the
    /// number of moved values, and whether only the values to keep are left.
    fn take(&self, last: u64, keep: usize, batch: &mut [Option<Retired>; BATCH]) -> (usize, bool) {
        let mut waiting = self.waiting.lock();
        let mut taken = 0;
        for place in batch.iter_mut() {
            if waiting.is_short(keep) {
                break;
            }
            let is_due = waiting.values.front().is_some_and(|(epoch, _)| *epoch <= last);
            let Some((_, value)) = is_due.then(|| waiting.values.pop_front()).flatten() else {
                break;
            };
            waiting.bytes -= value.bytes;
            *place = Some(value);
            taken += 1;
        }
        let is_short = waiting.is_short(keep);
        if taken > 0 || is_short {
            let (len, bytes) = (waiting.values.len(), waiting.bytes);
            waiting.due = (len.max(keep) + STEP, bytes.max(MOST_BYTES) + STEP_BYTES);
        }
        (taken, is_short)
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting.lock().values.len()
    }
}

impl Waiting {
    /// Returns whether the list has at most `keep` values and at most [`MOST_BYTES`] bytes.
    fn is_short(&self, keep: usize) -> bool {
        self.values.len() <= keep && self.bytes <= MOST_BYTES
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
