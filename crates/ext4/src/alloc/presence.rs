//! Whether a group has its bitmaps in memory, and what keeps them there.

use lanefs_lanes::sync::atomic::{AtomicU32, Ordering};

/// The bit of [`Presence`] that says that the bitmaps are in memory.
const READY: u32 = 1 << 31;

/// Whether a group's bitmaps are in memory, and how many operations need that to stay so.
#[derive(Debug, Default)]
pub(super) struct Presence(AtomicU32);

impl Presence {
    /// Counts an operation; false if the bitmaps are not in memory.
    fn hold(&self) -> bool {
        // Acquire: with the bit come the bitmaps.
        let ready = self.0.fetch_add(1, Ordering::Acquire) & READY != 0;
        if !ready {
            self.let_go();
        }
        ready
    }

    /// Holds a group whose bitmaps are in memory, as its guard, which is held, says.
    pub(super) fn hold_resident(&self) -> GroupHold<'_> {
        let ready = self.hold();
        assert!(ready, "under the guard, presence and bitmaps agree");
        GroupHold { presence: self }
    }

    fn let_go(&self) {
        let before = self.0.fetch_sub(1, Ordering::Release);
        debug_assert!(before & !READY > 0, "let go once for each hold");
    }

    /// The bitmaps are in memory. The guard is held.
    pub(super) fn arrive(&self) {
        self.0.fetch_or(READY, Ordering::Release);
    }

    /// Takes the bit away, unless an operation needs them. The guard is held.
    pub(super) fn leave(&self) -> bool {
        self.0.compare_exchange(READY, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}

/// The bitmaps of a group stay in memory while this lives.
#[derive(Debug)]
#[must_use = "the bitmaps may go when it is dropped"]
pub(crate) struct GroupHold<'g> {
    presence: &'g Presence,
}

impl GroupHold<'_> {
    /// Holds a group whose bitmaps are in memory; `None` if they are not.
    pub(super) fn of(presence: &Presence) -> Option<GroupHold<'_>> {
        presence.hold().then(|| GroupHold { presence })
    }
}

impl Drop for GroupHold<'_> {
    fn drop(&mut self) {
        self.presence.let_go();
    }
}
