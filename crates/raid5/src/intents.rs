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

use crate::array::Array;
use crate::counters::Count;
use crate::rows::Span;
use crate::unsynced::{bit_is_set, bits_of};
use crate::{Consistency, Geometry};
use lanefs_device::DeviceError;
use lanefs_lanes::sync::atomic::{AtomicU8, Ordering};
use lanefs_lanes::{Mutex, Rank};
use std::collections::BTreeSet;

const CLEAR: u8 = 0;
const SET: u8 = 1;
const IDLE: u8 = 2;

/// Bytes of bits that are written together: members write no less.
const SECTOR: usize = 512;

#[derive(Debug)]
pub(crate) struct Intents {
    /// Bytes of a member's share that one bit stands for.
    chunk: u64,
    states: Box<[AtomicU8]>,
    /// Bits that writers wait for; whoever has the array's state writes all of them at once.
    wanted: Mutex<Vec<u64>>,
    /// [the array's state] The bits as the members have them.
    bytes: Mutex<Vec<u8>>,
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

    fn state(&self, bit: u64) -> &AtomicU8 {
        &self.states[bit as usize]
    }

    /// Whether the bit is set on the members, and stays so.
    fn is_set(&self, bit: u64) -> bool {
        match self.state(bit).load(Ordering::Acquire) {
            SET => true,
            IDLE => exchange(self.state(bit), IDLE, SET) || self.is_set(bit),
            _ => false,
        }
    }

    /// Changes bits in the image and gives the sectors to be written.
    fn change(&self, bits: &[u64], to: Bit) -> Vec<(usize, Vec<u8>)> {
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
    fn age(&self) -> Vec<u64> {
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
enum Bit {
    Set,
    Clear,
}

fn exchange(state: &AtomicU8, from: u8, to: u8) -> bool {
    state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
}

impl Array {
    /// Sets the bits that stand for a range of a row, before it is written.
    ///
    /// # Locking
    /// The caller holds the range exclusively.
    pub(crate) fn intend(&self, span: &Span) -> Result<(), DeviceError> {
        let Some(intents) = &self.intents else { return Ok(()) };
        let base = span.row * self.shape.chunk();
        let (first, last) =
            ((base + span.from) / intents.chunk, (base + span.to - 1) / intents.chunk);
        let missing: Vec<u64> = (first..=last).filter(|bit| !intents.is_set(*bit)).collect();
        if missing.is_empty() {
            return Ok(());
        }
        intents.wanted.lock().extend(&missing);
        let _state = self.state();
        let mut wanted = std::mem::take(&mut *intents.wanted.lock());
        wanted.retain(|bit| !intents.is_set(*bit));
        if !wanted.is_empty() {
            self.write_bits(intents, &wanted, Bit::Set).inspect_err(|e| self.stop_writes(e))?;
            wanted.iter().for_each(|bit| intents.state(*bit).store(SET, Ordering::Release));
        }
        // Another thread may have taken the bits and failed.
        self.refuse_if_stopped(span.row * self.shape.row_len(), 0)
    }

    /// # Locking
    /// The caller holds the array's state.
    fn write_bits(&self, intents: &Intents, bits: &[u64], to: Bit) -> Result<(), DeviceError> {
        for (at, bytes) in intents.change(bits, to) {
            self.counters.add(Count::BitWrite, 1);
            let lost = self.record.write_bits(at, &bytes)?;
            self.note(lost)?;
        }
        Ok(())
    }

    /// Clears the bits of places that nobody wrote to since the last call.
    pub(crate) fn clear_idle_bits(&self) -> Result<(), DeviceError> {
        let Some(intents) = &self.intents else { return Ok(()) };
        if self.unsynced.any() || !self.members.not_in_sync().is_empty() {
            return Ok(());
        }
        let idle = intents.age();
        if idle.is_empty() {
            return Ok(());
        }
        for bit in &idle {
            let rows = (bit * intents.chunk) / self.shape.chunk()
                ..((bit + 1) * intents.chunk).div_ceil(self.shape.chunk()).min(self.shape.rows());
            rows.for_each(|row| self.rows.pass_through(row));
        }
        self.flush_members()?;
        let _state = self.state();
        if !self.members.not_in_sync().is_empty() {
            return Ok(());
        }
        let clear: Vec<u64> =
            idle.into_iter().filter(|bit| exchange(intents.state(*bit), IDLE, CLEAR)).collect();
        self.write_bits(intents, &clear, Bit::Clear)
    }

    /// The bits that are set now, as on disk; `None` without a bitmap.
    pub fn bitmap(&self) -> Option<Vec<u8>> {
        self.intents.as_ref().map(|intents| intents.bytes.lock().clone())
    }

    /// Whether the bitmap has a bit set for `row`; true without a bitmap.
    pub(crate) fn row_is_intended(&self, row: u64) -> bool {
        let Some(intents) = &self.intents else { return true };
        let (first, last) = bits_of(&self.shape, intents.chunk, row, 1);
        (first..=last).any(|bit| intents.state(bit).load(Ordering::Acquire) != CLEAR)
    }
}
