//! The reference from an inode to its mount, and the lanes' counts of references to inodes.
//!
//! Every inode refers to its mount, and dropping the last reference to a nameless inode calls the
//! mount. Neither the reference nor the call may write a cache line that lanes share. So each lane
//! has its own reference to the mount, and its own counts of the references to inodes.

use crate::object::totals::Totals;
use crate::quota::Quotas;
use lanefs_lanes::sync::{Arc, OnceLock, Weak};
use lanefs_lanes::{Holdable, LaneArc, PerLane, Shares};

/// Called when the last reference to a nameless object is dropped.
pub(crate) trait LastReference<T>: Send + Sync {
    /// Handles an object that has lost its last reference and has no name. The caller holds no
    /// operation lock.
    fn last_reference_dropped(&self, object: &Arc<T>);
}

/// An inode's view of its mount. `T` is the type of the inodes.
pub(crate) struct MountRef<T: Holdable> {
    /// The lanes' references to the mount, set as soon as the mount exists.
    lanes: OnceLock<PerLane<Weak<LaneRef<T>>>>,
    /// The lanes' counts of references to inodes.
    pub(crate) shares: Shares<T>,
    pub(crate) totals: LaneArc<Totals>,
    /// The quotas, set at mount if the file system keeps them.
    quotas: OnceLock<Quotas>,
    /// Set at mount if the mount writes fast commits.
    fast_commits: OnceLock<()>,
}

/// A lane's reference to the mount, on cache lines that contain nothing else.
#[repr(align(128))]
struct LaneRef<T>(Arc<dyn LastReference<T>>);

/// Owns the lanes' references on behalf of the mount. After this value is dropped, inodes no longer
/// refer to the mount.
pub(crate) struct LaneRefs<T: Holdable> {
    _lanes: PerLane<Arc<LaneRef<T>>>,
    mount: LaneArc<MountRef<T>>,
}

impl<T: Holdable> MountRef<T> {
    pub(crate) fn new() -> LaneArc<MountRef<T>> {
        let shares = Shares::new();
        let (lanes, quotas, fast_commits) = (OnceLock::new(), OnceLock::new(), OnceLock::new());
        LaneArc::new(MountRef { lanes, shares, totals: Totals::new(), quotas, fast_commits })
    }

    /// Returns the quotas, if the file system keeps them and can be written.
    #[inline]
    pub(crate) fn quotas(&self) -> Option<&Quotas> {
        self.quotas.get()
    }

    /// Keeps `quotas` from now on.
    pub(crate) fn keep(&self, quotas: Quotas) {
        let kept = self.quotas.set(quotas);
        debug_assert!(kept.is_ok(), "quotas are read once");
    }

    /// Returns whether changes of inodes are noted for fast commits.
    #[inline]
    pub(crate) fn has_fast_commits(&self) -> bool {
        self.fast_commits.get().is_some()
    }

    /// From this call on, changes of inodes are noted for fast commits.
    pub(crate) fn note_fast_commits(&self) {
        let noted = self.fast_commits.set(());
        debug_assert!(noted.is_ok(), "a mount decides once");
    }

    /// Tells the mount that the last reference to the nameless `object` was dropped. Does nothing
    /// if the mount is gone.
    pub(crate) fn last_reference_dropped(&self, object: &Arc<T>) {
        let mount = self.lanes.get().and_then(|lanes| lanes.mine().upgrade());
        if let Some(mount) = mount {
            mount.0.last_reference_dropped(object);
        }
    }
}

impl<T: Holdable> LaneRefs<T> {
    /// Creates each lane's reference to the mount `to`, and enters these references in `mount`.
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
        // The lanes' counts keep inodes in memory, these inodes keep the `MountRef` in memory, and
        // the `MountRef` contains the counts. Without this call, none of them would ever be freed.
        self.mount.shares.clear();
    }
}
