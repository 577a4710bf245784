//! Records the locks that a thread holds, so that a wrong order panics in tests instead of causing
//! a rare deadlock.
//!
//! A release build checks nothing. It only counts the held locks of [`Rank::Guard`] and of higher
//! ranks, because destructors of retired values have to wait for the release of these locks.

use crate::rank::Rank;
use std::cell::Cell;
use std::marker::PhantomData;

/// A lock's position in the lock order: its rank, and its order among the locks of that rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LockKey {
    pub(crate) rank: Rank,
    /// `Some` if a thread may hold several locks of this rank. The thread takes them in ascending
    /// order of this number.
    pub(crate) order: Option<u64>,
}

/// The record of one held lock, removed when dropped. It stays on the thread that created it.
#[derive(Debug)]
pub(crate) struct Held {
    /// Whether the lock is counted in [`LEAVES`].
    leaf: bool,
    #[cfg(debug_assertions)]
    key: LockKey,
    _not_send: PhantomData<*const ()>,
}

crate::world::constant_local! { static LEAVES: Cell<u32> = Cell::new(0) }

/// Returns whether the thread holds a lock of [`Rank::Guard`] or of a higher rank.
pub(crate) fn holds_leaf() -> bool {
    LEAVES.try_with(Cell::get).unwrap_or(0) > 0
}

#[cfg(debug_assertions)]
crate::world::local! { static HELD: std::cell::RefCell<Vec<LockKey>> = std::cell::RefCell::new(Vec::new()) }

impl Held {
    /// Checks that the thread may wait for the lock at `key` now, and records the lock.
    ///
    /// # Panics
    /// In debug builds, when the thread holds a lock that must be taken after `key`.
    #[inline]
    #[track_caller]
    pub(crate) fn in_order(key: LockKey) -> Held {
        #[cfg(debug_assertions)]
        check(key);
        Held::tried(key)
    }

    /// Records a lock that was taken without waiting. The order is not checked, since a thread that
    /// does not wait cannot deadlock.
    #[inline]
    pub(crate) fn tried(key: LockKey) -> Held {
        let leaf = key.rank >= Rank::Guard;
        if leaf {
            let _ = LEAVES.try_with(|leaves| leaves.set(leaves.get() + 1));
        }
        // The list of a terminating thread may already be destroyed. The thread's locks are then
        // not recorded.
        #[cfg(debug_assertions)]
        let _ = HELD.try_with(|held| held.borrow_mut().push(key));
        Held {
            leaf,
            #[cfg(debug_assertions)]
            key,
            _not_send: PhantomData,
        }
    }
}

#[cfg(debug_assertions)]
#[track_caller]
fn check(key: LockKey) {
    let offending = HELD.try_with(|held| held.borrow().iter().copied().find(|h| !before(*h, key)));
    if let Ok(Some(held)) = offending {
        // A second panic while the thread unwinds would abort the process, and the first panic is
        // reported anyway.
        if !std::thread::panicking() {
            panic!("lock order: taking {key} while holding {held}");
        }
    }
}

/// Checks that the thread may sleep for a long time: it must hold no lock of [`Rank::Guard`] or of
/// a higher rank. The exception is the lock of rank `own`, because the sleep releases it.
///
/// # Panics
/// In debug builds, if the thread holds such a lock.
#[inline]
#[track_caller]
pub(crate) fn may_sleep(own: Option<Rank>) {
    #[cfg(not(debug_assertions))]
    let _ = own;
    #[cfg(debug_assertions)]
    {
        let leaf = |h: &LockKey| h.rank >= Rank::Guard && Some(h.rank) != own;
        let offending = HELD.try_with(|held| held.borrow().iter().copied().find(leaf));
        if let Ok(Some(held)) = offending
            && !std::thread::panicking()
        {
            panic!("lock order: waiting for a condition while holding {held}");
        }
    }
}

#[cfg(debug_assertions)]
fn before(held: LockKey, wanted: LockKey) -> bool {
    match held.rank.cmp(&wanted.rank) {
        std::cmp::Ordering::Less => true,
        std::cmp::Ordering::Greater => false,
        std::cmp::Ordering::Equal => {
            matches!((held.order, wanted.order), (Some(h), Some(w)) if h < w)
        }
    }
}

impl std::fmt::Display for LockKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.order {
            Some(order) => write!(f, "{:?} {order}", self.rank),
            None => write!(f, "{:?}", self.rank),
        }
    }
}

impl Drop for Held {
    #[inline]
    fn drop(&mut self) {
        if self.leaf {
            let _ = LEAVES.try_with(|leaves| leaves.set(leaves.get().saturating_sub(1)));
        }
        #[cfg(debug_assertions)]
        let _ = HELD.try_with(|held| {
            let mut held = held.borrow_mut();
            if let Some(at) = held.iter().rposition(|h| *h == self.key) {
                held.remove(at);
            }
        });
    }
}
