//! The members of a running array: which are there, and up to where each can be relied upon.
//!
//! Reading and writing ask without a lock or a shared count: a slot's standing is one word, and the
//! devices that ever were in a slot stay open until the array goes.
//!
//! Slots change hands while operations are under way, so what an operation learns is about a member
//! ([`MemberId`]), never about a slot: an error that comes late from one that was taken out says
//! nothing about the one that has the slot now.
//!
//! A slot can also have a *shadow*: a device that gets the slot when it has the same share. It is no
//! member, so no read goes there and its failure costs nothing. It has a place of its own among the
//! slot's devices, which it keeps when it becomes the member. An operation that writes looks for the
//! shadow before the member: an exchange in between then makes it write to one device twice, and never
//! to the old member alone.

use crate::error::ArrayError;
use crate::flusher::Flusher;
use crate::slots::Slots;
use lanefs_device::{Device, DeviceError};
use lanefs_lanes::Padded;
use lanefs_lanes::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use lanefs_lanes::sync::{Arc, OnceLock};
use std::ops::Deref;

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

/// Which of all the members that a running array ever had: no two are the same, not even one device
/// that was taken out and put back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MemberId {
    /// The slot that it has or had.
    pub(crate) slot: usize,
    /// Which of the slot's devices it is.
    device: usize,
}

/// A member that was there when it was asked for, and who it is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Present<'m> {
    pub(crate) id: MemberId,
    occupant: &'m Occupant,
}

impl Deref for Present<'_> {
    type Target = Member;
    fn deref(&self) -> &Member {
        &self.occupant.member
    }
}

impl Present<'_> {
    /// The thread that flushes its device.
    pub(crate) fn flusher(&self) -> &Flusher {
        self.occupant.flusher.get_or_init(|| Flusher::start(self.device.clone()))
    }

    /// Counts a correction of the member; gives how many there were before.
    pub(crate) fn count_correction(&self) -> u32 {
        self.occupant.corrections.fetch_add(1, Ordering::Relaxed)
    }
}

/// Devices that a slot can have had in an array's life.
const PER_SLOT: usize = 64;

#[derive(Debug)]
pub(crate) struct Members {
    slots: Box<[Slot]>,
    /// The standings side by side, for they are read together and seldom written.
    words: Padded<Box<[AtomicU64]>>,
    /// Those of the shadows, likewise.
    shadows: Padded<Box<[AtomicU64]>>,
}

#[derive(Debug)]
struct Slot {
    members: [OnceLock<Occupant>; PER_SLOT],
}

#[derive(Debug)]
struct Occupant {
    member: Member,
    /// Places that were written anew because they could not be read.
    corrections: AtomicU32,
    flusher: OnceLock<Flusher>,
    /// Why it was given up as a shadow.
    given_up: OnceLock<DeviceError>,
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
            shadows: Padded((0..count).map(|_| AtomicU64::new(Word::MISSING.0)).collect()),
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.slots.len()
    }

    /// The member in `slot`, if it has its share of `row`.
    ///
    /// Who holds a range of the row finds the same member each time, or none from some moment on:
    /// nobody gets a share of the row meanwhile, for that takes the row exclusively.
    pub(crate) fn of_row(&self, slot: usize, row: u64) -> Option<Present<'_>> {
        let word = self.word(slot)?;
        if word.rows() > row { self.device(slot, word) } else { None }
    }

    /// The member in `slot`, in sync or not.
    pub(crate) fn present(&self, slot: usize) -> Option<Present<'_>> {
        self.device(slot, self.word(slot)?)
    }

    /// The member, if it still has its slot.
    pub(crate) fn still(&self, id: MemberId) -> Option<Present<'_>> {
        self.present(id.slot).filter(|present| present.id == id)
    }

    /// Whether this is still a member, or a member's shadow.
    pub(crate) fn is_in_use(&self, id: MemberId) -> bool {
        let is_it = |present: Option<Present<'_>>| present.is_some_and(|p| p.id == id);
        // In this order: a shadow may become the member in between.
        is_it(self.shadow(id.slot)) || is_it(self.present(id.slot))
    }

    /// All devices of which a flush is one of the array: the members, and their shadows.
    pub(crate) fn to_flush(&self) -> impl Iterator<Item = Present<'_>> {
        (0..self.count()).flat_map(|slot| {
            // In this order: a shadow may become the member in between.
            let shadow = self.shadow(slot);
            let member = self.present(slot);
            let shadow = shadow.filter(|shadow| member.is_none_or(|m| m.id != shadow.id));
            shadow.into_iter().chain(member)
        })
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
        self.present_standing(slot).map_or(Standing::Missing, |(_, standing)| standing)
    }

    /// The member in `slot`, and how it stands.
    pub(crate) fn present_standing(&self, slot: usize) -> Option<(Present<'_>, Standing)> {
        let word = self.word(slot)?;
        let standing = match word.rows() {
            ROWS => Standing::InSync,
            row => Standing::Rebuilding { row },
        };
        Some((self.device(slot, word)?, standing))
    }

    /// Whether a member may be put into `slot`.
    pub(crate) fn check_vacant(&self, slot: usize) -> Result<(), ArrayError> {
        match self.standing(slot) {
            Standing::Missing => self.check_place(slot),
            Standing::Rebuilding { .. } | Standing::InSync => Err(ArrayError::SlotTaken { slot }),
        }
    }

    /// Whether this device had `slot`, or has it.
    pub(crate) fn had(&self, slot: usize, device: &Arc<dyn Device>) -> bool {
        let all = self.slots.get(slot).into_iter().flat_map(|slot| &slot.members);
        let is_it =
            |o: &Occupant| std::ptr::addr_eq(Arc::as_ptr(&o.member.device), Arc::as_ptr(device));
        all.filter_map(OnceLock::get).any(is_it)
    }

    /// Whether `slot` can have one device more, whoever has it.
    pub(crate) fn check_place(&self, slot: usize) -> Result<(), ArrayError> {
        self.free_place(slot).map(drop)
    }

    fn free_place(&self, slot: usize) -> Result<usize, ArrayError> {
        let place = self.slots.get(slot).ok_or(ArrayError::NoSuchSlot { slot })?;
        let free = place.members.iter().position(|m| m.get().is_none());
        free.ok_or(ArrayError::SlotTaken { slot })
    }

    /// Puts a member that has its share of the rows below `rows` into a slot; who had it is out.
    ///
    /// # Locking
    /// The caller holds the lock of the array's state, as for all changes but [`Members::advance`].
    pub(crate) fn put(&self, slot: usize, member: Member, rows: u64) -> Result<(), ArrayError> {
        let place = self.occupy(slot, member)?;
        self.words.0[slot].store(Word::new(place, rows).0, Ordering::Release);
        Ok(())
    }

    /// Gives a member its shadow, which has nothing yet.
    ///
    /// # Locking
    /// As [`Members::put`].
    pub(crate) fn put_shadow(&self, slot: usize, member: Member) -> Result<MemberId, ArrayError> {
        if self.shadow(slot).is_some() {
            return Err(ArrayError::SlotTaken { slot });
        }
        let device = self.occupy(slot, member)?;
        self.shadows.0[slot].store(Word::new(device, 0).0, Ordering::Release);
        Ok(MemberId { slot, device })
    }

    /// The member's shadow in `slot`.
    pub(crate) fn shadow(&self, slot: usize) -> Option<Present<'_>> {
        self.device(slot, self.shadow_word(slot)?)
    }

    /// The same, if it has its share of `row`, and so gets what is written there.
    ///
    /// # Locking
    /// The caller holds a range of the row, and asks for the member only after this.
    pub(crate) fn shadow_of_row(&self, slot: usize, row: u64) -> Option<Present<'_>> {
        let word = self.shadow_word(slot)?;
        if word.rows() > row { self.device(slot, word) } else { None }
    }

    /// Says that the shadow has its share of the rows below `rows`. `false` if it is none any more.
    pub(crate) fn advance_shadow(&self, id: MemberId, rows: u64) -> bool {
        advance(self.shadows.0.get(id.slot), id, rows)
    }

    /// The shadow becomes the member. `false` if it is none any more.
    ///
    /// # Locking
    /// As [`Members::put`].
    pub(crate) fn promote(&self, id: MemberId) -> bool {
        if self.shadow(id.slot).is_none_or(|shadow| shadow.id != id) {
            return false;
        }
        // In this order: an operation that finds no shadow any more finds the new member.
        self.words.0[id.slot].store(Word::new(id.device, u64::MAX).0, Ordering::Release);
        self.shadows.0[id.slot].store(Word::MISSING.0, Ordering::Release);
        true
    }

    /// The shadow is none any more, because of an error if there is one.
    ///
    /// # Locking
    /// As [`Members::put`].
    pub(crate) fn drop_shadow(&self, id: MemberId, why: Option<&DeviceError>) {
        if let Some(shadow) = self.shadow(id.slot).filter(|shadow| shadow.id == id) {
            if let Some(why) = why {
                let _ = shadow.occupant.given_up.set(why.clone());
            }
            self.shadows.0[id.slot].store(Word::MISSING.0, Ordering::Release);
        }
    }

    /// Why this device was given up as a shadow, if an error of its own was the reason.
    pub(crate) fn given_up(&self, id: MemberId) -> Option<DeviceError> {
        let place = self.slots.get(id.slot)?.members.get(id.device)?;
        place.get()?.given_up.get().cloned()
    }

    fn occupy(&self, slot: usize, member: Member) -> Result<usize, ArrayError> {
        let free = self.free_place(slot)?;
        // Nobody else puts: the caller holds the lock.
        let occupant = Occupant {
            member,
            corrections: AtomicU32::new(0),
            flusher: OnceLock::new(),
            given_up: OnceLock::new(),
        };
        let _ = self.slots[slot].members[free].set(occupant);
        Ok(free)
    }

    /// Says that the member has its share of the rows below `rows`. `false` if it was taken out: what
    /// it has concerns nobody any more.
    ///
    /// By exchange, for others take members out and put them in meanwhile; and never back, for two
    /// may rebuild one member, and what either has done is done.
    pub(crate) fn advance(&self, id: MemberId, rows: u64) -> bool {
        advance(self.words.0.get(id.slot), id, rows)
    }

    /// Takes the member out, and its shadow, which can copy nothing any more.
    pub(crate) fn remove(&self, slot: usize) {
        for words in [&self.words, &self.shadows] {
            if let Some(word) = words.0.get(slot) {
                word.store(Word::MISSING.0, Ordering::Release);
            }
        }
    }

    fn word(&self, slot: usize) -> Option<Word> {
        Some(Word(self.words.0.get(slot)?.load(Ordering::Acquire)))
    }

    fn shadow_word(&self, slot: usize) -> Option<Word> {
        Some(Word(self.shadows.0.get(slot)?.load(Ordering::Acquire)))
    }

    fn device(&self, slot: usize, word: Word) -> Option<Present<'_>> {
        let device = word.device()?;
        let occupant = self.slots[slot].members[device].get()?;
        Some(Present { id: MemberId { slot, device }, occupant })
    }
}

fn advance(word: Option<&AtomicU64>, id: MemberId, rows: u64) -> bool {
    let Some(word) = word else { return false };
    let advanced = word.fetch_update(Ordering::AcqRel, Ordering::Acquire, |now| {
        let now = Word(now);
        let is_it = now.device() == Some(id.device);
        is_it.then(|| Word::new(id.device, rows.max(now.rows())).0)
    });
    advanced.is_ok()
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
        let taken = members.check_vacant(1);
        assert!(matches!(taken, Err(ArrayError::SlotTaken { slot: 1 })));
        let id = members.present(1).unwrap().id;
        assert!(members.advance(id, 6));
        assert!(members.of_row(1, 5).is_some());
        assert!(members.advance(id, 3), "another rebuild of the same member is behind");
        assert_eq!(members.standing(1), Standing::Rebuilding { row: 6 });
        members.remove(1);
        assert!(members.present(1).is_none());
        members.put(1, member(1), 0).unwrap();
        assert!(members.of_row(1, 0).is_none());
        assert_eq!(members.present(1).unwrap().device.len(), 1);
        assert!(matches!(members.put(3, member(1), 0), Err(ArrayError::NoSuchSlot { slot: 3 })));
    }

    #[test]
    fn a_member_that_was_taken_out_is_neither_brought_back_nor_taken_for_the_next() {
        let members = Members::new(3);
        members.put(1, member(8192), 5).unwrap();
        let old = members.present(1).unwrap().id;
        members.remove(1);
        assert!(!members.advance(old, 6));
        assert_eq!(members.standing(1), Standing::Missing);
        members.put(1, member(8192), 0).unwrap();
        assert!(!members.advance(old, u64::MAX));
        assert_eq!(members.standing(1), Standing::Rebuilding { row: 0 });
        assert!(members.still(old).is_none());
        let new = members.present(1).unwrap().id;
        assert!(members.still(new).is_some());
    }
}
