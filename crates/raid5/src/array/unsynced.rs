//! Which rows are in doubt, and which are written: tables in memory.
//!
//! - [`Unsynced`]: the rows whose parity may be wrong, for example after a crash without a log,
//!   until they are resynchronised.
//! - [`RightBlocks`]: the blocks whose parity is right although their row waits for a resync: after
//!   the array was started, their parity was computed from all data of the block and written. After
//!   the next start, the whole row is in doubt again.
//! - [`Unflushed`]: the rows that a degraded array has written since its last flush. After a failed
//!   flush, a member may have old data where another member has new parity. So missing data of
//!   these rows must not be computed. A healthy array lists nothing: when a member is lost, all
//!   rows count as unflushed until the next flush.
//! - [`Intents`]: the write-intent bitmap. A bit is set, durably, before its region of the array is
//!   written (`upkeep/flush.rs`).
//!
//! After a crash only regions whose bits are set are resynchronised. A write that finds its bits
//! set loads one byte per bit and writes no shared memory. Bits are cleared late, so that the bits
//! of busy regions stay set.
//!
//! *Clearing without a lock for writers.* Each periodic scan marks the set bits as *idle*. The next
//! write to a bit's region marks the bit as set again. A bit that is still idle at the next scan is
//! cleared, in this order:
//!
//! 1. Lock and release each row that the bit covers. This waits for all writers that may have seen
//!    the bit set. Then flush.
//! 2. Exchange idle for clear. The exchange fails if there was a write meanwhile.
//! 3. Clear the bit on the members.
//!
//! A writer that finds the bit clear waits for the lock of the array's state, which the scan holds,
//! and then sets the bit on the members again. While a member is missing, no bit is cleared,
//! because the bits mark the data that the member misses.

use crate::array::setup::Consistency;
use crate::base::layout::{BLOCK, Geometry};
use lanefs_lanes::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use lanefs_lanes::{Mutex, Padded, Rank};
use std::collections::{BTreeSet, HashMap};
use std::ops::Range;

/// The remaining work of a resync: rows from `next` on, in the regions that need a resync.
#[derive(Debug)]
pub(crate) struct Unsynced {
    next: Padded<AtomicU64>,
    rows: u64,
    /// The number of rows in a region, and for each region whether it needs a resync. `None` means
    /// that all rows need a resync.
    regions: Option<(u64, Box<[bool]>)>,
    /// `None` if all parity was right at the start.
    right: Option<RightBlocks>,
    torn: Torn,
    pub(crate) unflushed: Unflushed,
}

/// Ranges in which a write failed halfway, after which the array's writes stopped.
#[derive(Debug)]
struct Torn {
    any: AtomicBool,
    /// The row, and the offsets of the range's first byte and of the byte after its last.
    ranges: Mutex<Vec<(u64, u64, u64)>>,
}

impl Torn {
    fn new() -> Torn {
        Torn { any: AtomicBool::new(false), ranges: Mutex::new(Rank::Bucket, Vec::new()) }
    }

    fn contains(&self, row: u64, from: u64, to: u64) -> bool {
        let overlaps = |range: &(u64, u64, u64)| range.0 == row && range.1 < to && from < range.2;
        self.any.load(Ordering::Acquire) && self.ranges.lock().iter().any(overlaps)
    }
}

impl Unsynced {
    pub(crate) fn new(shape: &Geometry, consistency: &Consistency, from: u64) -> Unsynced {
        let rows = shape.rows();
        let (next, regions) = match consistency {
            // If all parity is right, the bits are ignored, because bits also stay set when a
            // degraded array is stopped cleanly.
            Consistency::Bitmap { chunk, bits } if from != u64::MAX => {
                let rows_of = (chunk / shape.chunk()).max(1);
                let region = |r: u64| {
                    let (first, last) = bits_of(shape, *chunk, r * rows_of, rows_of);
                    (first..=last).any(|bit| bit_is_set(bits, bit))
                };
                let regions: Box<[bool]> = (0..rows.div_ceil(rows_of)).map(region).collect();
                (if regions.contains(&true) { 0 } else { rows }, Some((rows_of, regions)))
            }
            _ => ((from / shape.chunk()).min(rows), None),
        };
        Unsynced {
            next: Padded(AtomicU64::new(next)),
            rows,
            regions,
            right: (next < rows).then(|| RightBlocks::new(shape)),
            torn: Torn::new(),
            unflushed: Unflushed::new(),
        }
    }

    /// Returns whether any row still needs a resync.
    pub(crate) fn any(&self) -> bool {
        self.next.load(Ordering::Acquire) < self.rows
    }

    /// Returns whether the parity of `row` may be wrong in any block with bytes in this range of
    /// offsets.
    ///
    /// # Locking
    /// The caller holds these blocks.
    pub(crate) fn contains(&self, row: u64, from: u64, to: u64) -> bool {
        let is_right = |right: &RightBlocks| right.contain(row, from, to);
        self.torn.contains(row, from, to)
            || self.unflushed.is_lost(row)
            || self.waits(row) && !self.right.as_ref().is_some_and(is_right)
    }

    /// Records that a write failed halfway in this range. Parity is in doubt there until the next
    /// start.
    ///
    /// # Locking
    /// The caller holds the range exclusively.
    pub(crate) fn tear(&self, row: u64, from: u64, to: u64) {
        self.torn.ranges.lock().push((row, from, to));
        self.torn.any.store(true, Ordering::Release);
    }

    /// Records that right parity was written in the blocks with bytes in this range of offsets: it
    /// was computed without any old parity that may be wrong.
    ///
    /// # Locking
    /// The caller holds these blocks exclusively.
    pub(crate) fn written(&self, row: u64, from: u64, to: u64) {
        if let Some(right) = self.right.as_ref().filter(|_| self.waits(row)) {
            right.add(row, from, to);
        }
    }

    /// Returns whether `row` still needs a resync.
    fn waits(&self, row: u64) -> bool {
        self.next.load(Ordering::Acquire) <= row && self.needs(row)
    }

    fn needs(&self, row: u64) -> bool {
        match &self.regions {
            Some((rows, regions)) => regions.get((row / rows) as usize).copied().unwrap_or(false),
            None => row < self.rows,
        }
    }

    /// Returns the next row that needs resync, at or after `from`.
    pub(crate) fn next_from(&self, from: u64) -> Option<u64> {
        let from = from.max(self.next.load(Ordering::Acquire));
        self.waiting(from).next().map(|rows| rows.start)
    }

    /// Returns the rows from `from` on that need a resync, in runs. There may be billions of rows,
    /// too many to look at one by one.
    fn waiting(&self, from: u64) -> impl Iterator<Item = Range<u64>> {
        let (rows_of, count) = match &self.regions {
            Some((rows_of, regions)) => (*rows_of, regions.len() as u64),
            None => (self.rows.max(1), 1),
        };
        let rows = move |region: u64| {
            (region * rows_of).max(from)
                ..region.saturating_add(1).saturating_mul(rows_of).min(self.rows)
        };
        (from / rows_of..count).map(rows).filter(|rows| !rows.is_empty() && self.needs(rows.start))
    }

    /// Records that parity is right in all rows below `row`.
    ///
    /// # Locking
    /// The caller holds these rows, so that no writer relies on the corrected parity before the
    /// correction is written.
    pub(crate) fn advance(&self, row: u64) {
        self.next.fetch_max(row, Ordering::AcqRel);
        if let (Some(right), Some(done)) = (&self.right, row.checked_sub(1)) {
            right.forget(done);
        }
    }

    /// Returns the number of rows that need a resync.
    pub(crate) fn rows_left(&self) -> u64 {
        let runs = self.waiting(self.next.load(Ordering::Acquire));
        runs.map(|rows| rows.end - rows.start).sum()
    }
}

/// Returns the first and the last bit that stand for the `count` rows starting at `row`, in a
/// bitmap that has one bit for each `chunk` bytes of a member.
pub(crate) fn bits_of(shape: &Geometry, chunk: u64, row: u64, count: u64) -> (u64, u64) {
    let from = row * shape.chunk();
    let to = (row + count).min(shape.rows()) * shape.chunk();
    (from / chunk, to.saturating_sub(1) / chunk)
}

/// Returns whether `bit` is set in a bitmap that has its on-disk form. Bits after the end of the
/// bitmap count as set.
pub(crate) fn bit_is_set(bits: &[u8], bit: u64) -> bool {
    bits.get((bit / 8) as usize).is_none_or(|byte| byte >> (bit % 8) & 1 == 1)
}

/// The number of words of a list. Rows share a bit if there are more rows than bits; then a row can
/// count as unflushed although it is not.
const WORDS: usize = 1024;

#[derive(Debug)]
struct List {
    all: AtomicBool,
    /// Whether a row was added since the list was emptied. The rows of a healthy array are not
    /// listed, and to look at each word at each flush would cost more than the rest of the flush.
    any: AtomicBool,
    rows: Box<[AtomicU64]>,
}

impl List {
    fn new() -> List {
        let rows = (0..WORDS).map(|_| AtomicU64::new(0)).collect();
        List { all: AtomicBool::new(false), any: AtomicBool::new(false), rows }
    }

    fn contains(&self, row: u64) -> bool {
        let word = self.rows.get(word_of(row)).map_or(0, |word| word.load(Ordering::SeqCst));
        self.all.load(Ordering::SeqCst) || word & bit_of(row) != 0
    }

    fn clear(&self) {
        self.all.store(false, Ordering::SeqCst);
        if !self.any.swap(false, Ordering::SeqCst) {
            return;
        }
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
        let list = self.current();
        if let Some(word) = list.rows.get(word_of(row)) {
            word.fetch_or(bit_of(row), Ordering::SeqCst);
            list.any.store(true, Ordering::SeqCst);
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

/// The number of shards of the table. Each shard has cache lines of its own, like the shards of the
/// row locks.
const SHARDS: u64 = 64;
/// The approximate number of bytes that the table may use. Blocks that do not fit stay in doubt.
const MOST: u64 = 16 << 20;
/// The approximate overhead of a row in the table, in bytes.
const OVERHEAD: u64 = 64;

/// For each row in the table, a bit for each block; a set bit means that the block's parity is
/// right.
type RightRows = Mutex<HashMap<u64, Box<[u64]>>>;

#[derive(Debug)]
pub(crate) struct RightBlocks {
    shards: Box<[Padded<RightRows>]>,
    /// The number of words with the bits of a row.
    words: usize,
    /// The number of rows that a shard may have.
    most: usize,
}

impl RightBlocks {
    /// Creates an empty table.
    pub(crate) fn new(shape: &Geometry) -> RightBlocks {
        let words = (shape.chunk() / BLOCK).div_ceil(64);
        let most = MOST / SHARDS / (words.saturating_mul(8) + OVERHEAD);
        RightBlocks {
            shards: (0..SHARDS).map(|_| Padded(Mutex::new(Rank::Bucket, HashMap::new()))).collect(),
            words: words as usize,
            most: most as usize,
        }
    }

    /// Returns whether parity is right in all blocks of `row` that have bytes in this range of
    /// offsets.
    pub(crate) fn contain(&self, row: u64, from: u64, to: u64) -> bool {
        let rows = self.shard(row).lock();
        let Some(bits) = rows.get(&row) else { return false };
        blocks(from, to).all(|(word, bit)| bits.get(word).is_some_and(|word| word & bit != 0))
    }

    /// Adds the blocks of `row` that have bytes in this range of offsets.
    ///
    /// # Locking
    /// The caller holds the blocks exclusively, and has written their parity.
    pub(crate) fn add(&self, row: u64, from: u64, to: u64) {
        let mut rows = self.shard(row).lock();
        if rows.len() >= self.most && !rows.contains_key(&row) {
            return;
        }
        let bits = rows.entry(row).or_insert_with(|| vec![0; self.words].into());
        for (word, bit) in blocks(from, to) {
            if let Some(word) = bits.get_mut(word) {
                *word |= bit;
            }
        }
    }

    /// Forgets a row, which was resynchronised.
    pub(crate) fn forget(&self, row: u64) {
        self.shard(row).lock().remove(&row);
    }

    fn shard(&self, row: u64) -> &RightRows {
        &self.shards[(row % SHARDS) as usize].0
    }
}

/// Returns the word and the bit of each block in a range of offsets.
fn blocks(from: u64, to: u64) -> impl Iterator<Item = (usize, u64)> {
    (from / BLOCK..to.div_ceil(BLOCK)).map(|block| ((block / 64) as usize, 1 << (block % 64)))
}

pub(crate) const CLEAR: u8 = 0;
pub(crate) const SET: u8 = 1;
pub(crate) const IDLE: u8 = 2;

/// The unit in which bits are written, in bytes: the smallest write that a member takes.
const SECTOR: usize = 512;

#[derive(Debug)]
pub(crate) struct Intents {
    /// Bytes of a member's data area that one bit covers.
    pub(crate) chunk: u64,
    states: Box<[AtomicU8]>,
    /// Bits that must be set before the waiting writers can continue. The thread that holds the
    /// lock of the array's state writes all of these bits at once.
    pub(crate) wanted: Mutex<Vec<u64>>,
    /// The bits as they are written on the members. Only a thread that holds the lock of the
    /// array's state changes these bits.
    pub(crate) bytes: Mutex<Vec<u8>>,
}

impl Intents {
    pub(crate) fn new(shape: &Geometry, consistency: &Consistency) -> Option<Intents> {
        let Consistency::Bitmap { chunk, bits } = consistency else { return None };
        let count = shape.member_len().div_ceil(*chunk);
        let mut bytes = bits.clone();
        bytes.resize((count.div_ceil(8) as usize).next_multiple_of(SECTOR), 0);
        let state = |bit| AtomicU8::new(if bit_is_set(bits, bit) { SET } else { CLEAR });
        Some(Intents {
            chunk: *chunk,
            states: (0..count).map(state).collect(),
            wanted: Mutex::new(Rank::LaneList, Vec::new()),
            bytes: Mutex::new(Rank::LaneList, bytes),
        })
    }

    pub(crate) fn state(&self, bit: u64) -> &AtomicU8 {
        &self.states[bit as usize]
    }

    /// Returns whether the bit is set on the members and stays set. Changes the state of an idle
    /// bit to `SET`, and then returns true.
    pub(crate) fn is_set(&self, bit: u64) -> bool {
        match self.state(bit).load(Ordering::Acquire) {
            SET => true,
            IDLE => exchange(self.state(bit), IDLE, SET) || self.is_set(bit),
            _ => false,
        }
    }

    /// Changes bits in memory and returns the sectors to write.
    pub(crate) fn change(&self, bits: &[u64], to: Bit) -> Vec<(usize, Vec<u8>)> {
        let mut bytes = self.bytes.lock();
        let mut sectors = BTreeSet::new();
        for bit in bits {
            let (at, mask) = ((bit / 8) as usize, 1 << (bit % 8));
            match to {
                Bit::Set => bytes[at] |= mask,
                Bit::Clear => bytes[at] &= !mask,
            }
            sectors.insert(at / SECTOR * SECTOR);
        }
        sectors.into_iter().map(|at| (at, bytes[at..at + SECTOR].to_vec())).collect()
    }

    /// Makes each set bit idle, and returns the bits that were idle already.
    pub(crate) fn age(&self) -> Vec<u64> {
        let bits = 0..self.states.len() as u64;
        bits.filter(|bit| {
            let idle = self.state(*bit).load(Ordering::Relaxed) == IDLE;
            if !idle {
                exchange(self.state(*bit), SET, IDLE);
            }
            idle
        })
        .collect()
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bit {
    Set,
    Clear,
}

pub(crate) fn exchange(state: &AtomicU8, from: u8, to: u8) -> bool {
    state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
