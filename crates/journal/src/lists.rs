//! What the handles of a transaction collect, lane by lane.

use lanefs_lanes::{Lane, Mutex, PerLane, Rank};
use lanefs_ondisk::Block;

/// What one transaction, or one lane's part of it, changes.
pub(crate) struct Lists<O, D> {
    pub(crate) objects: Vec<O>,
    pub(crate) deferred: Vec<D>,
    pub(crate) revokes: Vec<Block>,
}

impl<O, D> Lists<O, D> {
    fn new() -> Lists<O, D> {
        Lists { objects: Vec::new(), deferred: Vec::new(), revokes: Vec::new() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.objects.is_empty() && self.deferred.is_empty() && self.revokes.is_empty()
    }

    fn append(&mut self, mut other: Lists<O, D>) {
        self.objects.append(&mut other.objects);
        self.deferred.append(&mut other.deferred);
        self.revokes.append(&mut other.revokes);
    }
}

/// The lists of the running transaction, each on its lane's own lines.
pub(crate) struct LaneLists<O, D> {
    /// [rank LaneList]
    lanes: PerLane<Mutex<Lists<O, D>>>,
}

impl<O, D> LaneLists<O, D> {
    pub(crate) fn new() -> LaneLists<O, D> {
        LaneLists { lanes: PerLane::new(|_| Mutex::new(Rank::LaneList, Lists::new())) }
    }

    pub(crate) fn of(&self, lane: Lane) -> &Mutex<Lists<O, D>> {
        self.lanes.of(lane)
    }

    /// True if nothing is on any list. What a member put there before the caller learned of it is
    /// seen; what members do meanwhile may be missed.
    pub(crate) fn are_empty(&self) -> bool {
        self.lanes.iter().all(|lane| lane.lock().is_empty())
    }

    /// Takes all lists, in lane order.
    ///
    /// # Locking
    /// Called while nobody is a member.
    pub(crate) fn take(&self) -> Vec<Lists<O, D>> {
        self.lanes
            .iter()
            .map(|lane| std::mem::replace(&mut *lane.lock(), Lists::new()))
            .filter(|lists| !lists.is_empty())
            .collect()
    }
}

/// All lanes' lists as one.
pub(crate) fn joined<O, D>(parts: Vec<Lists<O, D>>) -> Lists<O, D> {
    let mut all = Lists::new();
    parts.into_iter().for_each(|part| all.append(part));
    all
}
