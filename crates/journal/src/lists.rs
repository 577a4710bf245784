//! The lists in which the handles of a transaction record their changes, one set of lists for each
//! lane.

use lanefs_lanes::{Lane, Mutex, PerLane, Rank};
use lanefs_ondisk::Block;

/// The position of an object on a list, by which the object can be removed again within the same
/// transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listed {
    pub(crate) lane: Lane,
    pub(crate) slot: u32,
}

/// Objects in slots. The slot of a removed object is reused. So an object that is repeatedly
/// created and deleted in one transaction takes only one slot.
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
        // There is an object in memory for each slot, so there cannot be 2^32 slots.
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

/// The changes of one lane in one transaction.
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

/// The lists of the running transaction: one per lane, each on its own cache lines.
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

    /// Returns whether all lists are empty. Sees the entries that a thread added before it notified
    /// the caller, but may miss entries that are added concurrently.
    pub(crate) fn are_empty(&self) -> bool {
        self.lanes.iter().all(|lane| lane.lock().is_empty())
    }

    /// Takes all lists, in lane order.
    ///
    /// # Locking
    /// Called while no thread has a handle.
    pub(crate) fn take(&self) -> Vec<Lists<O, D>> {
        self.lanes
            .iter()
            .map(|lane| std::mem::replace(&mut *lane.lock(), Lists::new()))
            .filter(|lists| !lists.is_empty())
            .collect()
    }
}

/// The merged lists of all lanes.
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
