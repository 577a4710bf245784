//! From an inode to its mount, and where lanes count their references to inodes.
//!
//! Every inode leads to its mount, and dropping the last reference of a nameless inode goes there. So
//! neither may write a line that lanes share: each lane has a reference to the mount of its own, and
//! counts on that.

use crate::object::totals::Totals;
use lanefs_lanes::sync::{Arc, OnceLock, Weak};
use lanefs_lanes::{Holdable, LaneArc, PerLane, Shares};

/// What the last reference to a nameless object runs when it is dropped.
pub(crate) trait LastReference<T>: Send + Sync {
    /// No reference is left, and the object has no name. No operation lock is held.
    fn last_reference_dropped(&self, object: &Arc<T>);
}

/// Leads from objects of type `T`, which are inodes, to their mount.
pub(crate) struct MountRef<T: Holdable> {
    /// Set once the mount is there.
    lanes: OnceLock<PerLane<Weak<LaneRef<T>>>>,
    /// Not with inodes behind one lock, under which they are counted: that lock orders all anyway.
    shares: Option<Shares<T>>,
    pub(crate) totals: LaneArc<Totals>,
}

/// A lane's reference to the mount, on lines of its own.
#[repr(align(128))]
struct LaneRef<T>(Arc<dyn LastReference<T>>);

/// The lanes' references, which the mount has: when they are dropped, inodes lead nowhere.
pub(crate) struct LaneRefs<T: Holdable> {
    _lanes: PerLane<Arc<LaneRef<T>>>,
    mount: LaneArc<MountRef<T>>,
}

/// Whether lanes count their references apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Counting {
    ByLane,
    InOneWord,
}

impl<T: Holdable> MountRef<T> {
    pub(crate) fn new(counting: Counting) -> LaneArc<MountRef<T>> {
        let shares = (counting == Counting::ByLane).then(Shares::new);
        LaneArc::new(MountRef { lanes: OnceLock::new(), shares, totals: Totals::new() })
    }

    pub(crate) fn shares(&self) -> Option<&Shares<T>> {
        self.shares.as_ref()
    }

    /// The last reference to `object`, which has no name, was dropped. If the mount is gone, nothing
    /// happens.
    pub(crate) fn last_reference_dropped(&self, object: &Arc<T>) {
        let mount = self.lanes.get().and_then(|lanes| lanes.mine().upgrade());
        if let Some(mount) = mount {
            mount.0.last_reference_dropped(object);
        }
    }
}

impl<T: Holdable> LaneRefs<T> {
    /// Lets `mount` lead to `to`.
    pub(crate) fn new(
        mount: &LaneArc<MountRef<T>>,
        to: &Arc<impl LastReference<T> + 'static>,
    ) -> LaneRefs<T> {
        let lanes = PerLane::new(|_| Arc::new(LaneRef(to.clone())));
        let weak = PerLane::new(|lane| Arc::downgrade(lanes.of(lane)));
        let opened = mount.lanes.set(weak);
        debug_assert!(opened.is_ok(), "a mount has one set of lane references");
        LaneRefs { _lanes: lanes, mount: mount.clone() }
    }
}

impl<T: Holdable> Drop for LaneRefs<T> {
    fn drop(&mut self) {
        // Shares keep inodes, and those this, in memory.
        if let Some(shares) = self.mount.shares() {
            shares.clear();
        }
    }
}
