//! The rows that a degraded array has written since its last flush.
//!
//! After a failed flush, a member may have old data where another member has new parity. So missing
//! data of these rows must not be computed. A healthy array lists nothing: when a member is lost,
//! all rows count as unflushed until the next flush.

use lanefs_lanes::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// The number of words of a list. Rows share a bit if there are more rows than bits; then a row can
/// count as unflushed although it is not.
const WORDS: usize = 1024;

#[derive(Debug)]
struct List {
    all: AtomicBool,
    rows: Box<[AtomicU64]>,
}

impl List {
    fn new() -> List {
        let rows = (0..WORDS).map(|_| AtomicU64::new(0)).collect();
        List { all: AtomicBool::new(false), rows }
    }

    fn contains(&self, row: u64) -> bool {
        let word = self.rows.get(word_of(row)).map_or(0, |word| word.load(Ordering::SeqCst));
        self.all.load(Ordering::SeqCst) || word & bit_of(row) != 0
    }

    fn clear(&self) {
        self.all.store(false, Ordering::SeqCst);
        self.rows.iter().for_each(|word| word.store(0, Ordering::SeqCst));
    }
}

/// Two lists: a flush empties one, while writes that it may not cover are added to the other.
#[derive(Debug)]
pub(crate) struct Unflushed {
    lists: [List; 2],
    current: AtomicUsize,
    failed: AtomicBool,
}

impl Unflushed {
    pub(crate) fn new() -> Unflushed {
        Unflushed {
            lists: [List::new(), List::new()],
            current: AtomicUsize::new(0),
            failed: AtomicBool::new(false),
        }
    }

    fn current(&self) -> &List {
        &self.lists[self.current.load(Ordering::SeqCst) % 2]
    }

    /// Adds a row of a degraded array.
    ///
    /// # Locking
    /// The caller has written the row's members, and still holds the written range. So a flush that
    /// empties the list which was current at the call covers the write.
    pub(crate) fn add(&self, row: u64) {
        if let Some(word) = self.current().rows.get(word_of(row)) {
            word.fetch_or(bit_of(row), Ordering::SeqCst);
        }
    }

    /// Adds all rows, when a member is lost.
    ///
    /// A flush may be under way that began before the loss, and does not cover all writes before
    /// the loss. It empties only one list.
    pub(crate) fn add_all(&self) {
        self.lists.iter().for_each(|list| list.all.store(true, Ordering::SeqCst));
    }

    /// Runs a flush of all members. Flushes do not overlap.
    pub(crate) fn flush<E>(&self, flush: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
        let before = self.current.fetch_add(1, Ordering::SeqCst) % 2;
        let done = flush();
        match done {
            // After a failure nothing is forgotten: a device reports a failed flush only once.
            Ok(()) if self.failed.load(Ordering::SeqCst) => {}
            Ok(()) => self.lists[before].clear(),
            Err(_) => self.failed.store(true, Ordering::SeqCst),
        }
        done
    }

    /// Returns whether a flush has failed that the row needed.
    pub(crate) fn is_lost(&self, row: u64) -> bool {
        self.failed.load(Ordering::Acquire) && self.lists.iter().any(|list| list.contains(row))
    }
}

fn word_of(row: u64) -> usize {
    (row / 64 % WORDS as u64) as usize
}

fn bit_of(row: u64) -> u64 {
    1 << (row % 64)
}
