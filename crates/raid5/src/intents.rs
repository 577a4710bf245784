//! The write-intent bitmap: a bit is set, durably, before its region of the array is written.
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

use crate::layout::Geometry;
use crate::setup::Consistency;
use crate::unsynced::bit_is_set;
use lanefs_lanes::sync::atomic::{AtomicU8, Ordering};
use lanefs_lanes::{Mutex, Rank};
use std::collections::BTreeSet;

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
