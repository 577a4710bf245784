//! One table of a map: buckets, their chains, and the link to its successor.

use crate::epoch::{Pin, retire};
use crate::limbo::Retired;
use crate::lock::{Mutex, MutexGuard};
use crate::rank::Rank;
use crate::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};
use std::ptr;

/// The number of buckets in the smallest table.
pub(super) const SMALLEST: usize = if cfg!(any(loom, shuttle)) { 2 } else { 64 };

/// The number of buckets that one change moves while its table grows.
const MOVED_AT_ONCE: usize = if cfg!(any(loom, shuttle)) { 1 } else { 16 };

/// An entry in a chain. Only the field `next` changes. Readers that look for other keys read the
/// entry too. So each entry is on its own line; otherwise readers would share a line with other
/// data of the thread that allocated the entry.
#[repr(align(64))]
pub(super) struct Node<K, V> {
    hash: u64,
    key: K,
    pub(super) value: V,
    next: AtomicPtr<Node<K, V>>,
}

/// A chain. Each bucket is on a line of its own, so changing one chain does not disturb readers of
/// others.
#[repr(align(64))]
pub(super) struct Bucket<K, V> {
    lock: Mutex<()>,
    /// The number of nodes in the chain. Changed under `lock`, and read without it for sums.
    len: AtomicU32,
    /// The first node, null, or MOVED. Changed under `lock`.
    head: AtomicPtr<Node<K, V>>,
}

/// The error for an access to a bucket whose entries were moved to the successor.
#[derive(Debug)]
pub(super) struct Moved;

pub(super) struct Table<K, V> {
    /// The number of buckets is a power of two. The hash's highest bits choose the bucket. In the
    /// successor, the same bits choose a pair of adjacent buckets, and one more bit chooses between
    /// the two.
    buckets: Box<[Bucket<K, V>]>,
    /// By how many bits a hash is shifted right to get the bucket number.
    shift: u32,
    /// Null until the table grows. The map, not this table, owns the successor.
    successor: AtomicPtr<Table<K, V>>,
    /// The first bucket whose move has not started.
    cursor: AtomicUsize,
    moved: AtomicUsize,
}

/// A node that was unlinked and waits to be retired.
pub(super) struct Gone<K, V>(*mut Node<K, V>);

/// Returns the head of a bucket whose nodes were moved; no node has this address.
fn moved_mark<T>() -> *mut T {
    ptr::without_provenance_mut(1)
}

impl<K, V> Node<K, V> {
    pub(super) fn new(hash: u64, key: K, value: V) -> Box<Node<K, V>> {
        Box::new(Node { hash, key, value, next: AtomicPtr::new(ptr::null_mut()) })
    }
}

impl<K, V> Table<K, V> {
    /// Creates an empty table of `len` buckets, a power of two; the caller owns it.
    pub(super) fn allocate(len: usize) -> *mut Table<K, V> {
        let bucket = || Bucket {
            lock: Mutex::new(Rank::Bucket, ()),
            len: AtomicU32::new(0),
            head: AtomicPtr::new(ptr::null_mut()),
        };
        Box::into_raw(Box::new(Table {
            buckets: (0..len).map(|_| bucket()).collect(),
            shift: u64::BITS - len.ilog2(),
            successor: AtomicPtr::new(ptr::null_mut()),
            cursor: AtomicUsize::new(0),
            moved: AtomicUsize::new(0),
        }))
    }

    pub(super) fn len(&self) -> usize {
        self.buckets.len()
    }

    pub(super) fn at(&self, index: usize) -> &Bucket<K, V> {
        &self.buckets[index]
    }

    pub(super) fn bucket(&self, hash: u64) -> &Bucket<K, V> {
        &self.buckets[(hash >> self.shift) as usize]
    }

    /// Returns the successor, which has the entries of the moved buckets.
    pub(super) fn successor<'p>(&'p self, _pin: &'p Pin) -> &'p Table<K, V> {
        // SAFETY: a bucket was moved, so there is a successor, which is the root or becomes the
        // root after `self`. Once another table has replaced the successor as the root, new pins
        // reach neither `self` nor the successor.
        unsafe { &*self.successor.load(Ordering::Acquire) }
    }

    pub(super) fn successor_or_null(&self) -> *mut Table<K, V> {
        self.successor.load(Ordering::Acquire)
    }

    pub(super) fn grows(&self) -> bool {
        !self.successor.load(Ordering::Relaxed).is_null()
    }

    /// Creates a successor of twice the length, unless there is one.
    pub(super) fn begin_growth(&self) {
        if self.grows() {
            return;
        }
        let successor = Table::allocate(self.len() * 2);
        let (acq_rel, relaxed) = (Ordering::AcqRel, Ordering::Relaxed);
        let none = ptr::null_mut();
        if self.successor.compare_exchange(none, successor, acq_rel, relaxed).is_err() {
            // SAFETY: another thread was faster, so this table was never published.
            drop(unsafe { Box::from_raw(successor) });
        }
    }

    /// Returns whether a table in which a chain has `chain` nodes is full enough to grow.
    ///
    /// Consecutive numbers fill buckets evenly, so a chain of `RARE` nodes is rare as long as the
    /// buckets have fewer than two or three nodes on average. Only when a chain has this length are
    /// the nodes of other buckets counted. Because of that count, keys that were chosen to collide
    /// do not make the table grow without need.
    pub(super) fn is_full(&self, chain: u32) -> bool {
        const RARE: u32 = if cfg!(any(loom, shuttle)) { 2 } else { 4 };
        if chain < RARE {
            return false;
        }
        let sample = self.buckets.len().min(64);
        // Keys that collide are all in one bucket, so they hardly change the sum over the sampled
        // buckets.
        let mean_times_sample: usize =
            self.buckets.iter().take(sample).map(|bucket| bucket.len().min(4)).sum();
        mean_times_sample >= sample
    }
}

impl<K, V> Drop for Table<K, V> {
    fn drop(&mut self) {
        for bucket in &self.buckets {
            let mut node = bucket.head.load(Ordering::Acquire);
            if node == moved_mark() {
                continue;
            }
            while !node.is_null() {
                // SAFETY: the table owns the chains that were not moved, and no thread reads them.
                let owned = unsafe { Box::from_raw(node) };
                node = owned.next.load(Ordering::Acquire);
            }
        }
    }
}

impl<K, V> Bucket<K, V> {
    pub(super) fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed) as usize
    }

    pub(super) fn is_moved(&self) -> bool {
        self.head.load(Ordering::Relaxed) == moved_mark()
    }
}

impl<K: Eq, V> Bucket<K, V> {
    /// Returns the node of `key`, without a lock.
    pub(super) fn find<'p>(
        &'p self,
        pin: &'p Pin,
        hash: u64,
        key: &K,
    ) -> Result<Option<&'p Node<K, V>>, Moved> {
        let mut node = self.first(pin)?;
        while let Some(at) = node {
            if at.hash == hash && at.key == *key {
                break;
            }
            node = at.next(pin);
        }
        Ok(node)
    }

    pub(super) fn for_each(&self, pin: &Pin, f: &mut impl FnMut(&K, &V)) -> Result<(), Moved> {
        let mut node = self.first(pin)?;
        while let Some(at) = node {
            f(&at.key, &at.value);
            node = at.next(pin);
        }
        Ok(())
    }

    fn first<'p>(&'p self, _pin: &'p Pin) -> Result<Option<&'p Node<K, V>>, Moved> {
        let head = self.head.load(Ordering::Acquire);
        if head == moved_mark() {
            return Err(Moved);
        }
        // SAFETY: null or a node. The Acquire makes its contents visible. An unlinked node is freed
        // only after the pin has ended. Any other node is freed with the table, which `self`
        // borrows.
        Ok(unsafe { head.as_ref() })
    }

    /// Locks the bucket, unless it was moved.
    pub(super) fn lock<'p>(&'p self, pin: &'p Pin) -> Option<Locked<'p, K, V>> {
        let guard = self.lock.lock();
        (!self.is_moved()).then(|| Locked { bucket: self, pin, _guard: guard })
    }
}

impl<K, V> Node<K, V> {
    fn next<'p>(&'p self, _pin: &'p Pin) -> Option<&'p Node<K, V>> {
        // SAFETY: as in `Bucket::first`; an unlinked node still points to nodes that were reachable
        // when it was unlinked, which was after the pin started.
        unsafe { self.next.load(Ordering::Acquire).as_ref() }
    }
}

/// A bucket that was not moved; its lock is held.
pub(super) struct Locked<'p, K, V> {
    bucket: &'p Bucket<K, V>,
    pin: &'p Pin,
    _guard: MutexGuard<'p, ()>,
}

impl<'p, K: Eq, V> Locked<'p, K, V> {
    pub(super) fn find(&self, hash: u64, key: &K) -> Option<&'p Node<K, V>> {
        self.bucket.find(self.pin, hash, key).expect("a locked bucket was not moved")
    }

    pub(super) fn len(&self) -> u32 {
        self.bucket.len.load(Ordering::Relaxed)
    }

    /// Replaces `old` by `node`, or adds `node` at the front.
    pub(super) fn put(
        &self,
        old: Option<&'p Node<K, V>>,
        node: Box<Node<K, V>>,
    ) -> Option<Gone<K, V>> {
        let (link, next) = match old {
            Some(old) => (self.link_to(old), old.next.load(Ordering::Relaxed)),
            None => (&self.bucket.head, self.bucket.head.load(Ordering::Relaxed)),
        };
        node.next.store(next, Ordering::Relaxed);
        // Release: a reader that finds the node sees its contents. One store removes the old node
        // and adds the new one, so a reader always finds one of them. The lock is held, so no other
        // thread stores here.
        let before = link.load(Ordering::Acquire);
        link.store(Box::into_raw(node), Ordering::Release);
        match old {
            Some(_) => Some(Gone(before)),
            None => {
                self.set_len(self.len() + 1);
                None
            }
        }
    }

    /// Removes `node` from the chain.
    pub(super) fn remove(&self, node: &'p Node<K, V>) -> Gone<K, V> {
        let next = node.next.load(Ordering::Relaxed);
        let link = self.link_to(node);
        let gone = link.load(Ordering::Acquire);
        link.store(next, Ordering::Release);
        self.set_len(self.len() - 1);
        Gone(gone)
    }

    /// Removes the nodes for which `keep` returns false.
    pub(super) fn retain(&self, keep: &mut impl FnMut(&K, &V) -> bool) -> Vec<Gone<K, V>> {
        let mut gone = Vec::new();
        let mut node = self.bucket.first(self.pin).expect("a locked bucket was not moved");
        while let Some(at) = node {
            node = at.next(self.pin);
            if !keep(&at.key, &at.value) {
                gone.push(self.remove(at));
            }
        }
        gone
    }

    /// Returns the link of the chain that points to `node`: the bucket's `head`, or the `next` of
    /// another node. `node` is in the chain.
    fn link_to(&self, node: &Node<K, V>) -> &'p AtomicPtr<Node<K, V>> {
        let mut link = &self.bucket.head;
        loop {
            let to = link.load(Ordering::Acquire);
            if ptr::eq(to, node) {
                return link;
            }
            // SAFETY: the node is in this chain, so the chain does not end before it; no thread
            // unlinks nodes while the lock is held.
            link = unsafe { &(*to).next };
        }
    }

    fn set_len(&self, len: u32) {
        self.bucket.len.store(len, Ordering::Relaxed);
    }
}

impl<K: Clone + Eq + Send + 'static, V: Clone + Send + 'static> Table<K, V> {
    /// Moves some buckets to the successor. Returns the successor if these were the last buckets.
    pub(super) fn move_some(&self, pin: &Pin) -> Option<*mut Table<K, V>> {
        if self.cursor.load(Ordering::Relaxed) >= self.len() {
            return None;
        }
        let first = self.cursor.fetch_add(MOVED_AT_ONCE, Ordering::Relaxed);
        let last = (first + MOVED_AT_ONCE).min(self.len());
        let successor = self.successor(pin);
        for index in first..last {
            self.at(index).move_to(successor, pin);
        }
        let mine = last.saturating_sub(first);
        // AcqRel: all threads that moved buckets did their work before one thread makes the
        // successor the root, and that thread sees this work.
        let before = self.moved.fetch_add(mine, Ordering::AcqRel);
        (mine > 0 && before + mine == self.len()).then(|| self.successor_or_null())
    }
}

impl<K: Clone + Eq + Send + 'static, V: Clone + Send + 'static> Bucket<K, V> {
    /// Copies the chain to `successor`. No thread reaches the two buckets of the successor before
    /// this bucket is marked.
    fn move_to(&self, successor: &Table<K, V>, pin: &Pin) {
        let Some(locked) = self.lock(pin) else { return };
        let mut node = self.first(pin).expect("a locked bucket was not moved");
        while let Some(at) = node {
            let copy = Node::new(at.hash, at.key.clone(), at.value.clone());
            let to = successor.bucket(at.hash);
            copy.next.store(to.head.load(Ordering::Relaxed), Ordering::Relaxed);
            to.head.store(Box::into_raw(copy), Ordering::Relaxed);
            to.len.store(to.len.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            node = at.next(pin);
        }
        // Release: a thread that sees the mark also sees the copies, through the successor's heads.
        let mut old = self.head.swap(moved_mark(), Ordering::AcqRel);
        locked.set_len(0);
        drop(locked);
        while !old.is_null() {
            // SAFETY: the pin keeps every node that was reachable when the pin started, including
            // the nodes of this chain.
            let next = unsafe { (*old).next.load(Ordering::Relaxed) };
            // SAFETY: the swap unlinked the chain, and only this thread did it.
            retire(unsafe { Retired::new(old) });
            old = next;
        }
    }
}

impl<K: Send + 'static, V: Send + 'static> Gone<K, V> {
    /// Returns the removed value, which readers may still use.
    pub(super) fn value(&self) -> &V {
        // SAFETY: the node was in a chain under the caller's pin, and only a call that consumes
        // `self` retires it.
        unsafe { &(*self.0).value }
    }

    pub(super) fn into_retired(self) -> Retired {
        // SAFETY: after the unlinking this is the only owner of the node's box.
        unsafe { Retired::new(self.0) }
    }
}
