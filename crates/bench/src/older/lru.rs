//! Implements a hash table whose entries also form a list in order of use; every operation takes
//! constant time.
//!
//! Entries are in one vector and are chained by index, so that neither finding nor moving an entry
//! allocates memory.

/// An index into the vector, or [`NONE`].
type Link = u32;
const NONE: Link = Link::MAX;
/// The number of buckets of an empty list; a power of two.
const SMALLEST: usize = 64;

/// Holds entries that are found by hash and listed in order of use.
pub(super) struct LruList<T> {
    slots: Vec<Slot<T>>,
    /// The first entry of each bucket. The number of buckets is a power of two, and at least the
    /// number of entries.
    buckets: Vec<Link>,
    /// The first unused slot. Its `next` is the next unused slot.
    unused: Link,
    newest: Link,
    oldest: Link,
    len: usize,
}

struct Slot<T> {
    hash: u64,
    /// `None` in an unused slot.
    value: Option<T>,
    /// The next entry of the bucket, or the next unused slot.
    next: Link,
    newer: Link,
    older: Link,
}

impl<T> LruList<T> {
    pub(super) fn new() -> LruList<T> {
        LruList {
            slots: Vec::new(),
            buckets: vec![NONE; SMALLEST],
            unused: NONE,
            newest: NONE,
            oldest: NONE,
            len: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    fn slot(&self, at: Link) -> &Slot<T> {
        &self.slots[at as usize]
    }

    fn slot_mut(&mut self, at: Link) -> &mut Slot<T> {
        &mut self.slots[at as usize]
    }

    fn bucket(&self, hash: u64) -> usize {
        hash as usize & (self.buckets.len() - 1)
    }

    /// Returns the entry with this hash for which `is` returns true, and makes it the newest.
    pub(super) fn find(&mut self, hash: u64, is: impl Fn(&T) -> bool) -> Option<&mut T> {
        let mut at = self.buckets[self.bucket(hash)];
        while at != NONE {
            let slot = self.slot(at);
            if slot.hash == hash && slot.value.as_ref().is_some_and(&is) {
                self.use_now(at);
                return self.slot_mut(at).value.as_mut();
            }
            at = slot.next;
        }
        None
    }

    /// Adds an entry, and makes it the newest. The entry must not be in the list yet.
    pub(super) fn insert(&mut self, hash: u64, value: T) {
        if self.len == self.buckets.len() {
            self.grow();
        }
        let bucket = self.bucket(hash);
        let slot =
            Slot { hash, value: Some(value), next: self.buckets[bucket], newer: NONE, older: NONE };
        let at = match self.unused {
            NONE => {
                self.slots.push(slot);
                (self.slots.len() - 1) as Link
            }
            at => {
                self.unused = self.slot(at).next;
                *self.slot_mut(at) = slot;
                at
            }
        };
        self.buckets[bucket] = at;
        self.push_newest(at);
        self.len += 1;
    }

    /// Removes and returns the entry with this hash for which `is` returns true.
    pub(super) fn remove(&mut self, hash: u64, is: impl Fn(&T) -> bool) -> Option<T> {
        let bucket = self.bucket(hash);
        let (mut before, mut at) = (NONE, self.buckets[bucket]);
        while at != NONE {
            let slot = self.slot(at);
            if slot.hash == hash && slot.value.as_ref().is_some_and(&is) {
                return self.take(bucket, before, at);
            }
            (before, at) = (at, slot.next);
        }
        None
    }

    /// Removes and returns the least recently used entry.
    pub(super) fn remove_oldest(&mut self) -> Option<T> {
        if self.oldest == NONE {
            return None;
        }
        let bucket = self.bucket(self.slot(self.oldest).hash);
        let (mut before, mut at) = (NONE, self.buckets[bucket]);
        while at != self.oldest {
            (before, at) = (at, self.slot(at).next);
        }
        self.take(bucket, before, at)
    }

    fn take(&mut self, bucket: usize, before: Link, at: Link) -> Option<T> {
        self.leave_list(at);
        let next = self.slot(at).next;
        match before {
            NONE => self.buckets[bucket] = next,
            before => self.slot_mut(before).next = next,
        }
        let unused = self.unused;
        let slot = self.slot_mut(at);
        slot.next = unused;
        let value = slot.value.take();
        self.unused = at;
        self.len -= 1;
        value
    }

    fn grow(&mut self) {
        self.buckets = vec![NONE; self.buckets.len() * 2];
        for at in 0..self.slots.len() as Link {
            if self.slot(at).value.is_some() {
                let bucket = self.bucket(self.slot(at).hash);
                self.slot_mut(at).next = self.buckets[bucket];
                self.buckets[bucket] = at;
            }
        }
    }

    fn use_now(&mut self, at: Link) {
        if self.newest != at {
            self.leave_list(at);
            self.push_newest(at);
        }
    }

    fn leave_list(&mut self, at: Link) {
        let (newer, older) = (self.slot(at).newer, self.slot(at).older);
        match newer {
            NONE => self.newest = older,
            newer => self.slot_mut(newer).older = older,
        }
        match older {
            NONE => self.oldest = newer,
            older => self.slot_mut(older).newer = newer,
        }
    }

    fn push_newest(&mut self, at: Link) {
        let second = self.newest;
        let slot = self.slot_mut(at);
        (slot.newer, slot.older) = (NONE, second);
        match second {
            NONE => self.oldest = at,
            second => self.slot_mut(second).newer = at,
        }
        self.newest = at;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_a_map_and_a_list_in_order_of_use() {
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        let mut lru = LruList::new();
        // Oldest first: (key, value). Keys share hashes on purpose.
        let mut list: Vec<(u32, u32)> = Vec::new();
        for step in 0..20_000 {
            let key = random.u32(..200);
            let (hash, is) = (u64::from(key % 50), |found: &(u32, u32)| found.0 == key);
            let place = list.iter().position(|(k, _)| *k == key);
            match random.u8(..8) {
                0..4 => {
                    let found = lru.find(hash, is).copied();
                    assert_eq!(found, place.map(|at| list[at]), "step {step}");
                    if let Some(at) = place {
                        let used = list.remove(at);
                        list.push(used);
                    }
                }
                4 | 5 if place.is_none() => {
                    lru.insert(hash, (key, step));
                    list.push((key, step));
                }
                4 | 5 => {
                    let gone = lru.remove(hash, is);
                    assert_eq!(gone, place.map(|at| list.remove(at)), "step {step}");
                }
                _ => {
                    let oldest = (!list.is_empty()).then(|| list.remove(0));
                    assert_eq!(lru.remove_oldest(), oldest, "step {step}");
                }
            }
            assert_eq!(lru.len(), list.len());
        }
    }
}
