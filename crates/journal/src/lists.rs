//! The lists of a transaction's handles, lane by lane.

use lanefs_lanes::{Lane, Mutex, PerLane, Rank};
use lanefs_ondisk::Block;

/// The position of an object on a list: takes it off again within the same transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listed {
    pub(crate) lane: Lane,
    pub(crate) slot: u32,
}

/// Objects, each in a slot that is used again once its object was taken off: an object made and
/// deleted over and over in one transaction takes no more room than once.
pub(crate) struct Objects<O> {
    slots: Vec<Option<O>>,
    vacant: Vec<u32>,
}

impl<O> Objects<O> {
    pub(crate) fn put(&mut self, object: O) -> u32 {
        if let Some(slot) = self.vacant.pop()
            && let Some(place) = self.slots.get_mut(slot as usize)
        {
            *place = Some(object);
            return slot;
        }
        self.slots.push(Some(object));
        // Each slot has an object in memory, and 2^32 of them do not fit.
        (self.slots.len() - 1) as u32
    }

    pub(crate) fn take_off(&mut self, slot: u32) -> Option<O> {
        let object = self.slots.get_mut(slot as usize)?.take()?;
        self.vacant.push(slot);
        Some(object)
    }

    fn is_empty(&self) -> bool {
        self.slots.len() == self.vacant.len()
    }
}

/// The changes of one transaction, or of one lane's part of it.
pub(crate) struct Lists<O, D> {
    pub(crate) objects: Objects<O>,
    pub(crate) deferred: Vec<D>,
    pub(crate) revokes: Vec<Block>,
}

impl<O, D> Lists<O, D> {
    fn new() -> Lists<O, D> {
        let objects = Objects { slots: Vec::new(), vacant: Vec::new() };
        Lists { objects, deferred: Vec::new(), revokes: Vec::new() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.objects.is_empty() && self.deferred.is_empty() && self.revokes.is_empty()
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

    /// True if all lists are empty. Entries that a member made before the caller learned of it are
    /// seen; entries made meanwhile may be missed.
    pub(crate) fn are_empty(&self) -> bool {
        self.lanes.iter().all(|lane| lane.lock().is_empty())
    }

    /// Takes all lists, in lane order.
    ///
    /// # Locking
    /// Called while there are no members.
    pub(crate) fn take(&self) -> Vec<Lists<O, D>> {
        self.lanes
            .iter()
            .map(|lane| std::mem::replace(&mut *lane.lock(), Lists::new()))
            .filter(|lists| !lists.is_empty())
            .collect()
    }
}

/// All lanes' lists as one.
pub(crate) struct Gathered<O, D> {
    pub(crate) objects: Vec<O>,
    pub(crate) deferred: Vec<D>,
    pub(crate) revokes: Vec<Block>,
}

impl<O, D> Gathered<O, D> {
    pub(crate) fn of(parts: Vec<Lists<O, D>>) -> Gathered<O, D> {
        let mut all = Gathered { objects: Vec::new(), deferred: Vec::new(), revokes: Vec::new() };
        for mut part in parts {
            all.objects.extend(part.objects.slots.into_iter().flatten());
            all.deferred.append(&mut part.deferred);
            all.revokes.append(&mut part.revokes);
        }
        all
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.objects.is_empty() && self.deferred.is_empty() && self.revokes.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_used_again_once_its_object_was_taken_off() {
        let mut lists: Lists<u8, ()> = Lists::new();
        let first = lists.objects.put(1);
        let second = lists.objects.put(2);
        assert_eq!(lists.objects.take_off(first), Some(1));
        assert_eq!(lists.objects.take_off(first), None);
        assert_eq!(lists.objects.put(3), first);
        assert_eq!(lists.objects.take_off(second), Some(2));
        assert!(!lists.is_empty());
        assert_eq!(lists.objects.take_off(first), Some(3));
        assert!(lists.is_empty());
        lists.objects.put(4);
        assert_eq!(Gathered::of(vec![lists]).objects, [4]);
    }
}
