//! Tracks whether the bitmaps of a group are in memory, and the number of operations that need
//! them.

use lanefs_lanes::sync::atomic::{AtomicU32, Ordering};

/// The bit of [`Presence`] that is set while the bitmaps are in memory.
const READY: u32 = 1 << 31;

/// Whether a group's bitmaps are in memory, and the number of operations that need them to stay
/// there.
#[derive(Debug, Default)]
pub(super) struct Presence(AtomicU32);

impl Presence {
    /// Counts an operation that needs the bitmaps. If they are not in memory, counts nothing and
    /// returns false.
    fn hold(&self) -> bool {
        // Acquire: a thread that sees the bit also sees the bitmaps.
        let ready = self.0.fetch_add(1, Ordering::Acquire) & READY != 0;
        if !ready {
            self.let_go();
        }
        ready
    }

    /// Holds a group. The caller holds the guard, and has seen in the group's state that the
    /// bitmaps are in memory.
    pub(super) fn hold_resident(&self) -> GroupHold<'_> {
        let ready = self.hold();
        assert!(ready, "under the guard, presence and bitmaps agree");
        GroupHold { presence: self }
    }

    fn let_go(&self) {
        let before = self.0.fetch_sub(1, Ordering::Release);
        debug_assert!(before & !READY > 0, "let go once for each hold");
    }

    /// Notes that the bitmaps are in memory. The caller holds the guard.
    pub(super) fn arrive(&self) {
        self.0.fetch_or(READY, Ordering::Release);
    }

    /// Clears [`READY`], unless an operation needs the bitmaps. Returns whether the bit was
    /// cleared. The caller holds the guard.
    pub(super) fn leave(&self) -> bool {
        self.0.compare_exchange(READY, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}

/// Until this value is dropped, the bitmaps of the group stay in memory.
#[derive(Debug)]
#[must_use = "the bitmaps may be evicted when it is dropped"]
pub(crate) struct GroupHold<'g> {
    presence: &'g Presence,
}

impl GroupHold<'_> {
    /// Holds a group if its bitmaps are in memory; else returns `None`.
    pub(super) fn of(presence: &Presence) -> Option<GroupHold<'_>> {
        presence.hold().then(|| GroupHold { presence })
    }
}

impl Drop for GroupHold<'_> {
    fn drop(&mut self) {
        self.presence.let_go();
    }
}
