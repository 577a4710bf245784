//! The members of a running array: which are present, and which rows of each are valid.
//!
//! Reads and writes find a member without a lock or a reference count: a slot's standing is one
//! word, and all devices that were ever in a slot stay open until the array is closed.
//!
//! The member of a slot can change while operations are under way. So an operation keeps the
//! identity of the member ([`MemberId`]), not the slot: a late error of a removed member does not
//! concern the present member.
//!
//! A slot can also have a *shadow*: a device that gets the slot once it has the same contents as
//! the member. A shadow is not a member: it is not read, and its failure does not degrade the
//! array. The shadow has its own index among the slot's devices, and keeps this index when it
//! becomes the member. A write looks up the shadow before it looks up the member. If the shadow
//! becomes the member between these look-ups, both return the new device. So the write never goes
//! to the old device only.
//!
//! Also here: a failure of a member in one operation ([`Lost`]), and what a device must have to be
//! a member. `bad_blocks.rs` has the blocks that a member's bad-block log names; `flushing.rs`
//! flushes members that may hang, and orders flushes.

pub(crate) mod bad_blocks;
pub(crate) mod flushing;

use crate::base::ArrayError;
use crate::base::layout::{Geometry, Slots};
use crate::members::bad_blocks::BadBlocks;
use crate::members::flushing::Flusher;
use lanefs_device::{Device, DeviceError};
use lanefs_lanes::Padded;
use lanefs_lanes::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use lanefs_lanes::sync::{Arc, OnceLock};
use lanefs_ondisk::md::Area;
use lanefs_ondisk::md::ppl::HEADER_SIZE;
use std::ops::Deref;

/// A device that holds a slot's part of the array.
#[derive(Clone)]
pub struct Member {
    /// The whole device.
    pub device: Arc<dyn Device>,
    /// Start of the data area, in bytes from the start of the device.
    pub data_offset: u64,
    /// The area of the partial parity log, if the array has one.
    pub log: Option<Area>,
    /// The byte of the data area up to which the device is rebuilt; `u64::MAX` means that it is in
    /// sync.
    pub recovered: u64,
    /// The known bad blocks, which `device` refuses to read; `None` if no block can be recorded as
    /// bad.
    pub bad_blocks: Option<Arc<BadBlocks>>,
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

impl Member {
    /// Records that these bytes of the data area are bad. Returns `false` if there is no room in the
    /// member's bad-block log.
    #[must_use]
    pub(crate) fn mark_bad(&self, at: u64, len: u64) -> bool {
        let bad = self.bad_blocks.as_ref();
        bad.is_some_and(|bad| bad.mark(self.data_offset.saturating_add(at), len))
    }
}

/// The standing of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// The slot has no member, or its member failed.
    Missing,
    /// The rows below `row` are valid on the member.
    Rebuilding {
        /// The first row that is not valid.
        row: u64,
    },
    /// All rows are valid on the member.
    InSync,
}

/// Identifies a member of a running array. A device that was removed and added again has two
/// different identities.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MemberId {
    /// The slot that the member has or had.
    pub(crate) slot: usize,
    /// The member's index among the slot's devices.
    device: usize,
}

/// A member at one moment, with its identity.
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
    /// Returns the thread that flushes the member's device.
    pub(crate) fn flusher(&self) -> &Flusher {
        self.occupant.flusher.get_or_init(|| Flusher::start(self.device.clone()))
    }

    /// Counts one more correction of the member, that is, a rewrite of a range that could not be
    /// read. Returns the number of earlier corrections.
    pub(crate) fn count_correction(&self) -> u32 {
        self.occupant.corrections.fetch_add(1, Ordering::Relaxed)
    }
}

/// The largest number of devices that a slot can have while the array is open.
const PER_SLOT: usize = 64;

#[derive(Debug)]
pub(crate) struct Members {
    slots: Box<[Slot]>,
    /// The standings, adjacent because they are read together and rarely written.
    words: Padded<Box<[AtomicU64]>>,
    /// The standings of the shadows.
    shadows: Padded<Box<[AtomicU64]>>,
}

#[derive(Debug)]
struct Slot {
    members: [OnceLock<Occupant>; PER_SLOT],
}

#[derive(Debug)]
struct Occupant {
    member: Member,
    /// Number of unreadable ranges that were rewritten.
    corrections: AtomicU32,
    flusher: OnceLock<Flusher>,
    /// The error because of which the device was dropped as a shadow.
    given_up: OnceLock<DeviceError>,
}

/// A standing in one word: the number of valid rows, and in the upper bits the index of the slot's
/// device plus one. Both are in one word, so that a row of a new device is never read with the
/// standing of the old device.
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

    /// Returns the member in `slot`, if `row` is valid on it.
    ///
    /// A thread that holds a range of the row always gets the same member, or `None` once that
    /// member is removed: a row becomes valid on another member only while that row is held
    /// exclusively.
    pub(crate) fn of_row(&self, slot: usize, row: u64) -> Option<Present<'_>> {
        let word = self.word(slot)?;
        if word.rows() > row { self.device(slot, word) } else { None }
    }

    /// Returns the member in `slot`, in sync or not.
    pub(crate) fn present(&self, slot: usize) -> Option<Present<'_>> {
        self.device(slot, self.word(slot)?)
    }

    /// Returns the member with this identity, if it still has its slot.
    pub(crate) fn still(&self, id: MemberId) -> Option<Present<'_>> {
        self.present(id.slot).filter(|present| present.id == id)
    }

    /// Returns whether this device is still a member, or a member's shadow.
    pub(crate) fn is_in_use(&self, id: MemberId) -> bool {
        let is_it = |present: Option<Present<'_>>| present.is_some_and(|p| p.id == id);
        // The shadow is looked up first, because it may become the member between the two look-ups.
        is_it(self.shadow(id.slot)) || is_it(self.present(id.slot))
    }

    /// Returns all devices that a flush of the array includes: the members and their shadows.
    pub(crate) fn to_flush(&self) -> impl Iterator<Item = Present<'_>> {
        (0..self.count()).flat_map(|slot| {
            // The shadow is looked up first, because it may become the member between the two
            // look-ups.
            let shadow = self.shadow(slot);
            let member = self.present(slot);
            let shadow = shadow.filter(|shadow| member.is_none_or(|m| m.id != shadow.id));
            shadow.into_iter().chain(member)
        })
    }

    /// Returns the slots in which `row` is not valid.
    pub(crate) fn missing(&self, row: u64) -> Slots {
        (0..self.count()).filter(|slot| self.of_row(*slot, row).is_none()).collect()
    }

    /// Returns the slots whose member is missing or not fully rebuilt.
    pub(crate) fn not_in_sync(&self) -> Slots {
        self.missing(ROWS - 1)
    }

    pub(crate) fn standing(&self, slot: usize) -> Standing {
        self.present_standing(slot).map_or(Standing::Missing, |(_, standing)| standing)
    }

    /// Returns the member in `slot` and its standing.
    pub(crate) fn present_standing(&self, slot: usize) -> Option<(Present<'_>, Standing)> {
        let word = self.word(slot)?;
        let standing = match word.rows() {
            ROWS => Standing::InSync,
            row => Standing::Rebuilding { row },
        };
        Some((self.device(slot, word)?, standing))
    }

    /// Checks that a member may be put into `slot`.
    pub(crate) fn check_vacant(&self, slot: usize) -> Result<(), ArrayError> {
        match self.standing(slot) {
            Standing::Missing => self.check_place(slot),
            Standing::Rebuilding { .. } | Standing::InSync => Err(ArrayError::SlotTaken { slot }),
        }
    }

    /// Returns whether this device has or had `slot`.
    pub(crate) fn had(&self, slot: usize, device: &Arc<dyn Device>) -> bool {
        let all = self.slots.get(slot).into_iter().flat_map(|slot| &slot.members);
        let is_it = |o: &Occupant| {
            std::ptr::addr_eq(Arc::as_ptr(&o.member.device), Arc::as_ptr(device))
                || o.member.bad_blocks.as_ref().is_some_and(|bad| bad.are_of(device))
        };
        all.filter_map(OnceLock::get).any(is_it)
    }

    /// Checks that `slot` has room for another device.
    pub(crate) fn check_place(&self, slot: usize) -> Result<(), ArrayError> {
        self.free_place(slot).map(drop)
    }

    fn free_place(&self, slot: usize) -> Result<usize, ArrayError> {
        let place = self.slots.get(slot).ok_or(ArrayError::NoSuchSlot { slot })?;
        let free = place.members.iter().position(|m| m.get().is_none());
        free.ok_or(ArrayError::SlotTaken { slot })
    }

    /// Puts a member into a slot; its rows below `rows` are valid. The previous member is removed.
    ///
    /// # Locking
    /// The caller holds the lock of the array's state, as for all changes except
    /// [`Members::advance`] and [`Members::advance_shadow`].
    pub(crate) fn put(&self, slot: usize, member: Member, rows: u64) -> Result<(), ArrayError> {
        let place = self.occupy(slot, member)?;
        self.words.0[slot].store(Word::new(place, rows).0, Ordering::Release);
        Ok(())
    }

    /// Adds a shadow to a member; no row is valid on the shadow yet.
    ///
    /// # Locking
    /// The same as for [`Members::put`].
    pub(crate) fn put_shadow(&self, slot: usize, member: Member) -> Result<MemberId, ArrayError> {
        if self.shadow(slot).is_some() {
            return Err(ArrayError::SlotTaken { slot });
        }
        let device = self.occupy(slot, member)?;
        self.shadows.0[slot].store(Word::new(device, 0).0, Ordering::Release);
        Ok(MemberId { slot, device })
    }

    /// Returns the shadow of the member in `slot`.
    pub(crate) fn shadow(&self, slot: usize) -> Option<Present<'_>> {
        self.device(slot, self.shadow_word(slot)?)
    }

    /// Returns the shadow if `row` is valid on it, so that writes must go to it too.
    ///
    /// # Locking
    /// The caller holds a range of the row, and looks up the member only after this call.
    pub(crate) fn shadow_of_row(&self, slot: usize, row: u64) -> Option<Present<'_>> {
        let word = self.shadow_word(slot)?;
        if word.rows() > row { self.device(slot, word) } else { None }
    }

    /// Marks the rows below `rows` as valid on the shadow. Returns `false` if the device is no
    /// longer a shadow.
    pub(crate) fn advance_shadow(&self, id: MemberId, rows: u64) -> bool {
        advance(self.shadows.0.get(id.slot), id, rows)
    }

    /// Turns the shadow into the member of its slot. Returns `false` if the device is no longer a
    /// shadow.
    ///
    /// # Locking
    /// The same as for [`Members::put`].
    pub(crate) fn promote(&self, id: MemberId) -> bool {
        if self.shadow(id.slot).is_none_or(|shadow| shadow.id != id) {
            return false;
        }
        // The member is stored first: an operation that does not find the shadow then finds the new
        // member.
        self.words.0[id.slot].store(Word::new(id.device, u64::MAX).0, Ordering::Release);
        self.shadows.0[id.slot].store(Word::MISSING.0, Ordering::Release);
        true
    }

    /// Drops the shadow. `why` is the error that caused this, if there was one.
    ///
    /// # Locking
    /// The same as for [`Members::put`].
    pub(crate) fn drop_shadow(&self, id: MemberId, why: Option<&DeviceError>) {
        if let Some(shadow) = self.shadow(id.slot).filter(|shadow| shadow.id == id) {
            if let Some(why) = why {
                let _ = shadow.occupant.given_up.set(why.clone());
            }
            self.shadows.0[id.slot].store(Word::MISSING.0, Ordering::Release);
        }
    }

    /// If an error ended the role of device `id` as a shadow, returns this error.
    pub(crate) fn given_up(&self, id: MemberId) -> Option<DeviceError> {
        let place = self.slots.get(id.slot)?.members.get(id.device)?;
        place.get()?.given_up.get().cloned()
    }

    fn occupy(&self, slot: usize, member: Member) -> Result<usize, ArrayError> {
        let free = self.free_place(slot)?;
        // The place is still free: the caller holds the lock of the array's state, so no other
        // thread adds a device.
        let occupant = Occupant {
            member,
            corrections: AtomicU32::new(0),
            flusher: OnceLock::new(),
            given_up: OnceLock::new(),
        };
        let _ = self.slots[slot].members[free].set(occupant);
        Ok(free)
    }

    /// Marks the rows below `rows` as valid on the member. Returns `false` if the member was
    /// removed.
    ///
    /// Uses compare-exchange, because members are added and removed concurrently. Never decreases
    /// the number of valid rows: two threads may rebuild one member, and the rows that either of
    /// them rebuilt are valid.
    pub(crate) fn advance(&self, id: MemberId, rows: u64) -> bool {
        advance(self.words.0.get(id.slot), id, rows)
    }

    /// Removes the member, and also its shadow, which cannot be completed without the member's
    /// contents.
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

/// A failure of a member in one operation; the array can work without the member.
#[derive(Debug)]
pub(crate) struct Lost {
    pub(crate) member: MemberId,
    pub(crate) error: DeviceError,
    /// The range that could not be read, if a read failed.
    pub(crate) unread: Option<Unread>,
}

impl Lost {
    pub(crate) fn new(member: MemberId, error: DeviceError) -> Lost {
        Lost { member, error, unread: None }
    }
}

/// A range that a member could not read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Unread {
    pub(crate) place: Stretch,
    /// Length in bytes.
    pub(crate) len: u64,
}

/// The reason why a read of a member did not succeed.
pub(crate) enum ReadError {
    /// The member failed, and the array can work without it.
    Lost(Lost),
    /// The members changed since the read was planned. A change of members is not a failure: the
    /// read is planned again. Only changes of members cause a retry, so the number of retries is
    /// limited.
    Gone,
    /// The operation that needs the read fails with this error.
    Final(DeviceError),
}

/// A position in a row, the same on each member.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stretch {
    pub(crate) row: u64,
    /// Offset of the first byte within the chunk.
    pub(crate) from: u64,
}

/// Checks that a log has room for a header and the partial parity of one write, so that every write
/// can be logged.
pub(crate) fn check_log(slot: usize, log: Option<Area>, per_write: u64) -> Result<(), ArrayError> {
    let needed = HEADER_SIZE as u64 + per_write;
    match log {
        Some(log) if log.len >= needed => Ok(()),
        _ => Err(ArrayError::TooSmall { slot, len: log.map_or(0, |l| l.len), needed }),
    }
}

/// Checks that the data area and the log fit on the device.
pub(crate) fn check_size(shape: &Geometry, slot: usize, member: &Member) -> Result<(), ArrayError> {
    let len = member.device.len();
    let log = member.log.map_or(0, |log| log.offset.saturating_add(log.len));
    let needed = member.data_offset.saturating_add(shape.member_len()).max(log);
    if needed > len { Err(ArrayError::TooSmall { slot, len, needed }) } else { Ok(()) }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
