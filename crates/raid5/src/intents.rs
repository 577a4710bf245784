//! The write-intent bitmap: a bit is set, durably, before anything is written where it stands for.
//!
//! After a crash only the parts of the array whose bits are set are resynchronised. A write that
//! finds its bits set loads one byte each and shares nothing; bits are cleared late, so that those
//! of busy places stay set.
//!
//! *Clearing without a lock of writers.* A bit that is set turns *idle* when it is looked at, and
//! back to set by the next write. One that is still idle at the next look is cleared: first whoever
//! may have seen it set is waited for, by passing through the locks of its rows, and everything is
//! flushed; then idle is exchanged for clear, which fails if somebody wrote meanwhile; only then the
//! bit is cleared on the members. Who finds it clear from there on waits for the lock under which
//! that happens, and sets it again on the members. While a member is missing nothing is cleared:
//! the bits tell what it misses.

use crate::layout::Geometry;
use crate::setup::Consistency;
use crate::unsynced::bit_is_set;
use lanefs_lanes::sync::atomic::{AtomicU8, Ordering};
use lanefs_lanes::{Mutex, Rank};
use std::collections::BTreeSet;

pub(crate) const CLEAR: u8 = 0;
pub(crate) const SET: u8 = 1;
pub(crate) const IDLE: u8 = 2;

/// Bytes of bits that are written together: members write no less.
const SECTOR: usize = 512;

#[derive(Debug)]
pub(crate) struct Intents {
    /// Bytes of a member's share that one bit stands for.
    pub(crate) chunk: u64,
    states: Box<[AtomicU8]>,
    /// Bits that writers wait for; whoever has the array's state writes all of them at once.
    pub(crate) wanted: Mutex<Vec<u64>>,
    /// [the array's state] The bits as the members have them.
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

    /// Whether the bit is set on the members, and stays so.
    pub(crate) fn is_set(&self, bit: u64) -> bool {
        match self.state(bit).load(Ordering::Acquire) {
            SET => true,
            IDLE => exchange(self.state(bit), IDLE, SET) || self.is_set(bit),
            _ => false,
        }
    }

    /// Changes bits in the image and gives the sectors to be written.
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

    /// Turns what is set idle; gives what was idle already.
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
