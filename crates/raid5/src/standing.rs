//! The members of a running array: which are there, and up to where each can be relied upon.
//!
//! Reading and writing ask without a lock or a shared count: a slot's standing is one word, and the
//! devices that ever were in a slot stay open until the array goes.

use crate::{ArrayError, Slots};
use lanefs_device::Device;
use lanefs_lanes::Padded;
use lanefs_lanes::sync::atomic::{AtomicU64, Ordering};
use lanefs_lanes::sync::{Arc, OnceLock};

/// A device that has a slot's share of the array.
#[derive(Clone)]
pub struct Member {
    /// The whole device.
    pub device: Arc<dyn Device>,
    /// Where its share begins, in bytes.
    pub data_offset: u64,
    /// Where its part of the partial parity log is, if the array has one.
    pub log: Option<LogArea>,
    /// Up to where in its share it is rebuilt, in bytes; `u64::MAX`: it is in sync.
    pub recovered: u64,
}

impl std::fmt::Debug for Member {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Member")
            .field("data_offset", &self.data_offset)
            .field("log", &self.log)
            .field("recovered", &self.recovered)
            .finish_non_exhaustive()
    }
}

/// The space of a member's partial parity log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogArea {
    /// Byte on the member's device.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
}

/// How a member stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// There is none, or it failed.
    Missing,
    /// It has its share of the rows below this one.
    Rebuilding {
        /// The first row that is not there yet.
        row: u64,
    },
    /// It has all of its share.
    InSync,
}

/// Devices that a slot can have had in an array's life.
const PER_SLOT: usize = 64;

#[derive(Debug)]
pub(crate) struct Members {
    slots: Box<[Slot]>,
    /// The standings side by side, for they are read together and seldom written.
    words: Padded<Box<[AtomicU64]>>,
}

#[derive(Debug)]
struct Slot {
    members: [OnceLock<Member>; PER_SLOT],
}

/// A standing in one word: the number of valid rows, above it which of the slot's devices, plus one.
/// Both in one, so that nobody reads a row of a new device by an old one's standing.
#[derive(Clone, Copy)]
struct Word(u64);

const ROWS: u64 = (1 << 56) - 1;

impl Word {
    const MISSING: Word = Word(0);

    fn new(device: usize, rows: u64) -> Word {
        Word((device as u64 + 1) << 56 | rows.min(ROWS))
    }
    fn device(self) -> Option<usize> {
        ((self.0 >> 56) as usize).checked_sub(1)
    }
    fn rows(self) -> u64 {
        self.0 & ROWS
    }
}

impl Members {
    pub(crate) fn new(count: usize) -> Members {
        let slot = |_| Slot { members: std::array::from_fn(|_| OnceLock::new()) };
        Members {
            slots: (0..count).map(slot).collect(),
            words: Padded((0..count).map(|_| AtomicU64::new(Word::MISSING.0)).collect()),
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.slots.len()
    }

    /// The member in `slot`, if it has its share of `row`.
    pub(crate) fn of_row(&self, slot: usize, row: u64) -> Option<&Member> {
        let word = self.word(slot)?;
        if word.rows() > row { self.device(slot, word) } else { None }
    }

    /// The member in `slot`, in sync or not.
    pub(crate) fn present(&self, slot: usize) -> Option<&Member> {
        self.device(slot, self.word(slot)?)
    }

    /// Those whose share of `row` is not there.
    pub(crate) fn missing(&self, row: u64) -> Slots {
        (0..self.count()).filter(|slot| self.of_row(*slot, row).is_none()).collect()
    }

    /// Those that have not all of their share.
    pub(crate) fn not_in_sync(&self) -> Slots {
        self.missing(ROWS - 1)
    }

    pub(crate) fn standing(&self, slot: usize) -> Standing {
        match self.word(slot) {
            Some(word) if word.device().is_some() => match word.rows() {
                ROWS => Standing::InSync,
                row => Standing::Rebuilding { row },
            },
            _ => Standing::Missing,
        }
    }

    /// Puts a member that has its share of the rows below `rows` into an empty slot.
    ///
    /// # Locking
    /// The caller holds the lock of the array's state, as for all changes.
    pub(crate) fn put(&self, slot: usize, member: Member, rows: u64) -> Result<(), ArrayError> {
        let taken = ArrayError::SlotTaken { slot };
        let place = self.slots.get(slot).ok_or(ArrayError::NoSuchSlot { slot })?;
        if self.standing(slot) != Standing::Missing {
            return Err(taken);
        }
        let free = place.members.iter().position(|m| m.get().is_none()).ok_or(taken)?;
        // Nobody else puts: the caller holds the lock.
        let _ = place.members[free].set(member);
        self.words.0[slot].store(Word::new(free, rows).0, Ordering::Release);
        Ok(())
    }

    /// Says that the member in `slot` has its share of the rows below `rows`.
    pub(crate) fn advance(&self, slot: usize, rows: u64) {
        if let Some(device) = self.word(slot).and_then(Word::device) {
            self.words.0[slot].store(Word::new(device, rows).0, Ordering::Release);
        }
    }

    pub(crate) fn remove(&self, slot: usize) {
        if let Some(word) = self.words.0.get(slot) {
            word.store(Word::MISSING.0, Ordering::Release);
        }
    }

    fn word(&self, slot: usize) -> Option<Word> {
        Some(Word(self.words.0.get(slot)?.load(Ordering::Acquire)))
    }

    fn device(&self, slot: usize, word: Word) -> Option<&Member> {
        self.slots[slot].members[word.device()?].get()
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use lanefs_device::RamDevice;

    fn member(len: u64) -> Member {
        let device = Arc::new(RamDevice::create(len).unwrap());
        Member { device, data_offset: 0, log: None, recovered: u64::MAX }
    }

    #[test]
    fn a_member_counts_for_the_rows_that_it_has() {
        let members = Members::new(3);
        assert_eq!(members.not_in_sync(), Slots::below(3));
        members.put(0, member(4096), u64::MAX).unwrap();
        members.put(1, member(8192), 5).unwrap();
        assert_eq!(members.missing(4), Slots::one(2));
        assert_eq!(members.missing(5), [1, 2].into_iter().collect());
        assert_eq!(members.standing(0), Standing::InSync);
        assert_eq!(members.standing(1), Standing::Rebuilding { row: 5 });
        assert!(matches!(members.put(1, member(1), 0), Err(ArrayError::SlotTaken { slot: 1 })));
        members.advance(1, 6);
        assert!(members.of_row(1, 5).is_some());
        members.remove(1);
        assert!(members.present(1).is_none());
        members.put(1, member(1), 0).unwrap();
        assert!(members.of_row(1, 0).is_none());
        assert_eq!(members.present(1).unwrap().device.len(), 1);
        assert!(matches!(members.put(3, member(1), 0), Err(ArrayError::NoSuchSlot { slot: 3 })));
    }
}
