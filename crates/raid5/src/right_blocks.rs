//! The blocks whose parity is right although their row waits for a resync: after the array was
//! started, their parity was computed from all data of the block and written.
//!
//! The table is in memory only. After the next start, the whole row is in doubt again.

use crate::layout::{BLOCK, Geometry};
use lanefs_lanes::{Mutex, Padded, Rank};
use std::collections::HashMap;

/// The number of shards of the table. Each shard has cache lines of its own, like the shards of the
/// row locks.
const SHARDS: u64 = 64;
/// The approximate number of bytes that the table may use. Blocks that do not fit stay in doubt.
const MOST: u64 = 16 << 20;
/// The approximate overhead of a row in the table, in bytes.
const OVERHEAD: u64 = 64;

/// For each row in the table, a bit for each block; a set bit means that the block's parity is
/// right.
type Shard = Mutex<HashMap<u64, Box<[u64]>>>;

#[derive(Debug)]
pub(crate) struct RightBlocks {
    shards: Box<[Padded<Shard>]>,
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

    fn shard(&self, row: u64) -> &Shard {
        &self.shards[(row % SHARDS) as usize].0
    }
}

/// Returns the word and the bit of each block in a range of offsets.
fn blocks(from: u64, to: u64) -> impl Iterator<Item = (usize, u64)> {
    (from / BLOCK..to.div_ceil(BLOCK)).map(|block| ((block / 64) as usize, 1 << (block % 64)))
}
