//! Shared ownership without a shared reference count.

use crate::lane::{Lane, PerLane};
use std::ops::Deref;
// The reference counts are those of `std` in every world, because `loom` has no `Weak`.
use crate::sync::unscheduled::OnceLock;
use std::sync::{Arc, Weak};

/// A shared value with one reference count per lane: clones on different lanes write different
/// lines.
///
/// The counts of each value take some kilobytes, so this type is meant only for the few values that
/// all threads clone often, such as a mount. The handle that [`LaneArc::new`] returns keeps the
/// counts of all lanes in memory. After this handle is dropped, the clones still work, but a lane
/// that has no clone uses the count of another lane.
///
/// ```
/// let shared = lanefs_lanes::LaneArc::new(7);
/// let clone = shared.clone();
/// assert_eq!(*clone, 7);
/// ```
pub struct LaneArc<T> {
    count: Arc<Count<T>>,
    /// The counts of all lanes. Only the first handle has them.
    all: Option<PerLane<Arc<Count<T>>>>,
}

/// A lane's reference count, on its own lines.
#[repr(align(128))]
struct Count<T> {
    body: Arc<Body<T>>,
}

struct Body<T> {
    value: T,
    /// The counts of all lanes, for clones on other lanes. The references are weak, since strong
    /// references would keep the value in memory for ever.
    counts: OnceLock<PerLane<Weak<Count<T>>>>,
}

impl<T> LaneArc<T> {
    /// Creates the first handle of `value`.
    pub fn new(value: T) -> LaneArc<T> {
        let body = Arc::new(Body { value, counts: OnceLock::new() });
        let all = PerLane::new(|_| Arc::new(Count { body: body.clone() }));
        let ways = PerLane::new(|lane| Arc::downgrade(all.of(lane)));
        assert!(body.counts.set(ways).is_ok(), "nobody else has the body yet");
        LaneArc { count: all.of(Lane::current()).clone(), all: Some(all) }
    }

    /// Returns whether both handles refer to the same value.
    pub fn ptr_eq(this: &LaneArc<T>, other: &LaneArc<T>) -> bool {
        Arc::ptr_eq(&this.count.body, &other.count.body)
    }

    /// Returns the value if `this` is its last handle, otherwise a handle of it.
    pub fn try_unwrap(this: LaneArc<T>) -> Result<T, LaneArc<T>> {
        let body = this.count.body.clone();
        drop(this);
        let other = |body| LaneArc { count: Arc::new(Count { body }), all: None };
        Arc::try_unwrap(body).map(|body| body.value).map_err(other)
    }
}

impl<T> Clone for LaneArc<T> {
    #[inline]
    fn clone(&self) -> LaneArc<T> {
        let count = match &self.all {
            Some(all) => all.mine().clone(),
            None => {
                let counts = self.count.body.counts.get();
                let mine = counts.and_then(|counts| counts.mine().upgrade());
                mine.unwrap_or_else(|| self.count.clone())
            }
        };
        LaneArc { count, all: None }
    }
}

impl<T> Deref for LaneArc<T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.count.body.value
    }
}

impl<T: std::fmt::Debug> std::fmt::Debug for LaneArc<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("LaneArc").field(&**self).finish()
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
