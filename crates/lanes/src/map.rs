//! A concurrent hash map with numbers as keys: look-ups write nothing, and a change takes one
//! bucket's lock.
//!
//! *Reading.* A look-up walks a bucket's chain under a pin. The only field of a node that changes
//! is `next`. A node that is replaced or removed is first unlinked, and is freed only when no pin
//! can see it, so a reader at this node still reaches the end of the chain.
//!
//! *Growing.* A table that is too full gets a successor of twice the size. Each later change moves
//! some buckets. Under the bucket's lock, the nodes are *copied* to the successor, since readers
//! may be walking the old nodes. Then the bucket's head becomes the mark MOVED. Readers and writers
//! that find the mark continue in the successor. The thread that moves the last bucket makes the
//! successor the root. Before a bucket is marked, no thread can reach the two buckets to which its
//! entries move.
//!
//! *Locking*: a thread takes one lock of [`Rank::Bucket`](crate::Rank::Bucket) at a time. The
//! closures of `get_or_insert_with`, `update`, `remove_if` and `retain` run under this lock.

mod table;

use crate::counter::LaneCounter;
use crate::epoch::{Pin, pin, retire};
use crate::hash::NumberKey;
use crate::limbo::Retired;
use crate::sync::atomic::{AtomicPtr, Ordering};
use std::hash::Hash;
use std::marker::PhantomData;
use std::ops::Range;
use table::{Bucket, Locked, Node, Table};

/// A map from `K`, a number, to `V`. Both types must be cheap to clone (for `V` use an `Arc`),
/// because a growing map clones its keys and values. A clone of a removed value may exist until no
/// pin can see it.
pub struct Map<K, V> {
    root: AtomicPtr<Table<K, V>>,
    key: NumberKey,
    /// The number of entries.
    entries: LaneCounter,
    _owns: PhantomData<(K, V)>,
}

/// A change of an entry by [`Map::update`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change<V> {
    /// The entry stays as it is, or stays absent.
    Keep,
    /// The key gets this value.
    Put(V),
    /// The key is removed.
    Remove,
}

impl<K, V> Map<K, V>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    /// Creates an empty map of a few kilobytes.
    #[expect(clippy::new_without_default, reason = "an empty map is made on purpose")]
    pub fn new() -> Map<K, V> {
        Map::with_capacity(0)
    }

    /// Creates an empty map that grows only after about `entries` entries were added. The larger
    /// `entries` is, the fewer entries share a bucket.
    pub fn with_capacity(entries: usize) -> Map<K, V> {
        let table = Table::allocate((entries / 2).max(table::SMALLEST).next_power_of_two());
        Map {
            root: AtomicPtr::new(table),
            key: NumberKey::of_process(),
            entries: LaneCounter::new(0),
            _owns: PhantomData,
        }
    }

    /// Runs `f` on the value of `key`, without cloning it.
    #[inline]
    pub fn with<R>(&self, pin: &Pin, key: &K, f: impl FnOnce(&V) -> R) -> Option<R> {
        self.find(pin, key).map(f)
    }

    /// Returns the value of `key`; it does not change while the pin exists.
    #[inline]
    pub fn find<'p>(&'p self, pin: &'p Pin, key: &K) -> Option<&'p V> {
        let hash = self.key.hash(key);
        let mut table = self.root(pin);
        loop {
            match table.bucket(hash).find(pin, hash, key) {
                Ok(found) => return found.map(|node| &node.value),
                Err(table::Moved) => table = table.successor(pin),
            }
        }
    }

    /// Returns a clone of the value.
    pub fn get(&self, key: &K) -> Option<V> {
        self.with(&pin(), key, V::clone)
    }

    /// Returns the value of `key`; if it is absent, creates and inserts it under the bucket's lock.
    pub fn get_or_insert_with(&self, key: &K, make: impl FnOnce() -> V) -> V {
        if let Some(value) = self.get(key) {
            return value;
        }
        let mut result = None;
        self.update(key, |now| match now {
            Some(value) => {
                result = Some(value.clone());
                Change::Keep
            }
            None => {
                let value = make();
                result = Some(value.clone());
                Change::Put(value)
            }
        });
        result.expect("the closure ran")
    }

    /// Sets the value; returns the previous one.
    pub fn insert(&self, key: K, value: V) -> Option<V> {
        self.update(&key, |_| Change::Put(value))
    }

    /// Sets the value, and runs `look` on the previous one under a pin, without a lock. Unlike
    /// [`Map::insert`], this function makes no clone of the previous value.
    pub fn replace<R>(&self, key: K, value: V, look: impl FnOnce(&V) -> R) -> Option<R> {
        self.change(&key, |_| Change::Put(value), look)
    }

    /// If `condition` is true for the value of `key`, removes `key` and returns the value.
    /// `condition` runs under the bucket's lock.
    pub fn remove_if(&self, key: &K, condition: impl FnOnce(&V) -> bool) -> Option<V> {
        self.update(key, |now| match now {
            Some(value) if condition(value) => Change::Remove,
            _ => Change::Keep,
        })
    }

    /// Changes the entry of `key`. `decide` gets the present value and returns the change; it runs
    /// under the bucket's lock. Returns the value that was replaced or removed.
    pub fn update(&self, key: &K, decide: impl FnOnce(Option<&V>) -> Change<V>) -> Option<V> {
        self.change(key, decide, V::clone)
    }

    /// Works like [`Map::update`]; returns the result of `look` on the value that was replaced or
    /// removed.
    fn change<R>(
        &self,
        key: &K,
        decide: impl FnOnce(Option<&V>) -> Change<V>,
        look: impl FnOnce(&V) -> R,
    ) -> Option<R> {
        let pin = pin();
        let hash = self.key.hash(key);
        let (table, locked) = self.lock(&pin, hash);
        let found = locked.find(hash, key);
        let (gone, full) = match decide(found.map(|node| &node.value)) {
            Change::Keep => (None, false),
            Change::Put(value) => {
                let old = locked.put(found, Node::new(hash, key.clone(), value));
                self.count(i64::from(found.is_none()));
                (old, found.is_none() && table.is_full(locked.len()))
            }
            Change::Remove => {
                self.count(-i64::from(found.is_some()));
                (found.map(|node| locked.remove(node)), false)
            }
        };
        // Values must not be dropped, nor tables created, under the lock.
        drop(locked);
        let seen = gone.map(|gone| {
            let seen = look(gone.value());
            retire(gone.into_retired());
            seen
        });
        if full {
            self.grow(table);
        }
        seen
    }

    /// Returns the number of entries. It is exact only if no thread inserts or removes entries
    /// concurrently.
    pub fn len(&self) -> usize {
        // The sum can be negative: while the counts are added up, a lane whose count was already
        // read may insert an entry, and a lane whose count is read later may remove that entry.
        usize::try_from(self.entries.sum()).unwrap_or(0)
    }

    fn count(&self, delta: i64) {
        if delta != 0 {
            self.entries.add(delta);
        }
    }

    /// Returns whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Runs `visit` on the entries, without a lock. Entries that are inserted or removed
    /// concurrently may be missed.
    pub fn for_each(&self, mut visit: impl FnMut(&K, &V)) {
        let pin = pin();
        self.each_bucket(&pin, 0..usize::MAX, |bucket| bucket.for_each(&pin, &mut visit).is_err());
    }

    /// Runs `visit` on the entries of `count` buckets, starting at bucket `from`, without a lock.
    /// Returns the bucket at which to continue. Bucket numbers wrap around.
    pub fn sweep(&self, from: usize, count: usize, mut visit: impl FnMut(&K, &V)) -> usize {
        let pin = pin();
        let all = self.root(&pin).len();
        let from = from % all;
        let mut each = |range| {
            self.each_bucket(&pin, range, |bucket| bucket.for_each(&pin, &mut visit).is_err());
        };
        let end = from + count.min(all);
        each(from..end.min(all));
        each(0..end.saturating_sub(all));
        end % all
    }

    /// Returns the number of buckets.
    pub fn buckets(&self) -> usize {
        self.root(&pin()).len()
    }

    /// Removes the entries for which `keep` returns false, one bucket after another.
    pub fn retain(&self, mut keep: impl FnMut(&K, &V) -> bool) {
        let pin = pin();
        self.each_bucket(&pin, 0..usize::MAX, |bucket| {
            let Some(locked) = bucket.lock(&pin) else { return true };
            let gone = locked.retain(&mut keep);
            drop(locked);
            self.count(-(gone.len() as i64));
            gone.into_iter().for_each(|gone| retire(gone.into_retired()));
            false
        });
    }

    fn root<'p>(&'p self, _pin: &'p Pin) -> &'p Table<K, V> {
        // SAFETY: `drop` frees the present root, and the epochs free a replaced root. Neither
        // happens while `self` is borrowed and the pin exists.
        unsafe { &*self.root.load(Ordering::Acquire) }
    }

    /// Locks the bucket for `hash`, in the table that has the entries now.
    fn lock<'p>(&'p self, pin: &'p Pin, hash: u64) -> (&'p Table<K, V>, Locked<'p, K, V>) {
        let mut table = self.root(pin);
        self.help(pin, table);
        loop {
            if let Some(locked) = table.bucket(hash).lock(pin) {
                return (table, locked);
            }
            table = table.successor(pin);
        }
    }

    /// Visits the buckets with numbers in `range`. If `visit` reports that a bucket was moved,
    /// visits the two buckets of the successor to which the bucket's entries were moved.
    fn each_bucket<'p>(
        &'p self,
        pin: &'p Pin,
        range: Range<usize>,
        mut visit: impl FnMut(&'p Bucket<K, V>) -> bool,
    ) {
        let root = self.root(pin);
        let mut left: Vec<(&Table<K, V>, usize)> = Vec::new();
        for index in range.start..range.end.min(root.len()) {
            left.push((root, index));
            while let Some((table, index)) = left.pop() {
                if visit(table.at(index)) {
                    let successor = table.successor(pin);
                    left.extend([(successor, 2 * index), (successor, 2 * index + 1)]);
                }
            }
        }
    }

    /// Creates a successor of `table`, if it is the root and has none.
    #[cold]
    fn grow(&self, table: &Table<K, V>) {
        if std::ptr::eq(self.root.load(Ordering::Relaxed), table) {
            table.begin_growth();
        }
    }

    /// Moves some buckets of a root that has a successor.
    fn help(&self, pin: &Pin, table: &Table<K, V>) {
        if !table.grows() {
            return;
        }
        if let Some(successor) = table.move_some(pin) {
            let old = self.root.swap(successor, Ordering::AcqRel);
            // SAFETY: the field `root` owned the table until the swap, and only one thread moves
            // the last bucket. A later pin finds the successor.
            retire(unsafe { Retired::new(old) });
        }
    }
}

impl<K, V> Drop for Map<K, V> {
    fn drop(&mut self) {
        let mut table = self.root.load(Ordering::Acquire);
        while !table.is_null() {
            // SAFETY: `self` is not borrowed; the root and its successors are owned boxes, and
            // previous roots do not own their successors.
            let owned = unsafe { Box::from_raw(table) };
            table = owned.successor_or_null();
        }
    }
}

impl<K, V> std::fmt::Debug for Map<K, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Map").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
