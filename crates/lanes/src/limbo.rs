//! The limbo list of a lane: retired values, ordered by the epoch of their retirement.

use crate::lane::Lane;
use crate::world;
use std::cell::Cell;
use std::collections::VecDeque;

/// The number of values that are freed at once.
pub(crate) const MOST: usize = if cfg!(any(loom, shuttle)) { 2 } else { 16 };

/// The limits of [`crowded`].
const SHORTEST: usize = if cfg!(any(loom, shuttle)) { 2 } else { 8 };
const LONGEST: usize = if cfg!(any(loom, shuttle)) { 2 } else { 256 };

/// Returns the length of a lane's limbo list at which the lane tries to free values. With a small
/// length, new objects more often get memory that is still in the processor's caches. But each try
/// moves a line of every lane there and back, so the more lanes there are, the more values a try
/// frees.
pub(crate) fn crowded() -> usize {
    crowded_with(Lane::given().len())
}

fn crowded_with(lanes: usize) -> usize {
    (lanes * lanes).clamp(SHORTEST, LONGEST)
}

/// A value to be dropped later: a `Box` without its type.
pub(crate) struct Retired {
    value: *mut (),
    /// Drops `value`; called once.
    drop: unsafe fn(*mut ()),
}

// SAFETY: `Retired::new` accepts only values that may be sent, by their owning pointer.
unsafe impl Send for Retired {}

impl Retired {
    /// # Safety
    /// `value` comes from `Box::into_raw`, no other code frees it, and only pins that are older
    /// than its retirement can reach it.
    pub(crate) unsafe fn new<T: Send + 'static>(value: *mut T) -> Retired {
        /// # Safety
        /// `value` was a `Box<T>` and is dropped only here.
        unsafe fn drop_box<T>(value: *mut ()) {
            // SAFETY: the caller's promise.
            drop(unsafe { Box::from_raw(value.cast::<T>()) });
        }
        Retired { value: value.cast(), drop: drop_box::<T> }
    }
}

impl Drop for Retired {
    fn drop(&mut self) {
        // SAFETY: the caller of `new` promised an owned box, and a value is dropped once.
        unsafe { (self.drop)(self.value) }
    }
}

/// The values that one lane retired. The list's lock is the innermost, and no destructor runs under
/// this lock.
pub(crate) struct Limbo {
    waiting: world::Mutex<Waiting>,
}

struct Waiting {
    /// The values with their epochs, ascending.
    values: VecDeque<(u64, Retired)>,
    /// The length at which the next attempt to free is due.
    due: usize,
}

// Destructors may retire values. Only the outermost collection frees values: nested collections
// would recurse deeply on a long list.
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
        Limbo { waiting: world::Mutex::new(Waiting { values: VecDeque::new(), due: crowded() }) }
    }

    /// Adds a value with the epoch that `epoch` reads under the lock, so that epochs ascend.
    /// Returns `true` if it is time to free some values.
    pub(crate) fn push(&self, value: Retired, epoch: impl FnOnce() -> u64) -> bool {
        let mut waiting = self.waiting.lock();
        waiting.values.push_back((epoch(), value));
        let len = waiting.values.len();
        let due = len >= waiting.due;
        if due {
            // If a pin prevents freeing, the next attempt comes after more values, not after each
            // value.
            waiting.due = len + (len / 4).clamp(crowded() / 2, 16 * MOST);
        }
        due
    }

    /// Frees the values that were retired in epoch `last` or before; returns their number.
    pub(crate) fn collect(&self, last: u64) -> usize {
        if COLLECTING.with(|collecting| collecting.replace(true)) {
            return 0;
        }
        let _outermost = Outermost;
        let mut freed = 0;
        loop {
            // Allocates nothing, since this runs where values are retired.
            let mut batch = [const { None }; MOST];
            let taken = self.take(last, &mut batch);
            freed += taken;
            if taken < MOST {
                return freed;
            }
        }
    }

    /// Moves values that were retired in epoch `last` or before to `batch`; returns their number.
    fn take(&self, last: u64, batch: &mut [Option<Retired>; MOST]) -> usize {
        let mut waiting = self.waiting.lock();
        let mut taken = 0;
        for place in batch {
            let Some((_, value)) = waiting.values.pop_front_if(|(epoch, _)| *epoch <= last) else {
                break;
            };
            *place = Some(value);
            taken += 1;
        }
        if taken > 0 {
            waiting.due = waiting.values.len() + crowded();
        }
        taken
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting.lock().values.len()
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::lane::MAX_LANES;

    #[test]
    fn a_try_to_free_reads_few_lanes_for_each_value() {
        for lanes in 1..=MAX_LANES {
            let values = crowded_with(lanes);
            assert!(values >= 4 * lanes || lanes < 4 && values <= 9, "{values} for {lanes} lanes");
        }
        assert_eq!(crowded_with(8), 64);
    }
}
