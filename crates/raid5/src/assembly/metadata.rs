//! An array's superblocks and bitmaps, in memory and on its members.
//!
//! *Invariants*
//! - Every change that the array depends on is durable on all live members when the call returns.
//! - Each change is written to all members twice, and raises the event count by two: the first
//!   write announces the change, the second makes it. So if a member is one event behind, a crash
//!   came between the two writes, and the member has missed nothing. A member that missed a change
//!   is two events behind. Linux makes the same distinction.
//! - If a change cannot be written to a member, a further change records that member as failed on
//!   the other members.
//! - If the array cannot work without the member that failed, the change ends with an error. All
//!   live members are then at most one event behind the freshest one, so a start accepts all of
//!   them. The next change first writes the last superblocks again. So no live member is further
//!   behind, however many changes fail.
//!
//! *Locking*: one lock, [`Rank::ArrayRecord`], held while members are written.

use crate::array::setup::{MetadataStore, RecordError};
use crate::base::is_full;
use crate::base::layout::Slots;
use crate::members::bad_blocks::{BadBlocks, address};
use lanefs_device::{Device, DeviceError, Operation};
use lanefs_lanes::sync::Arc;
use lanefs_lanes::{Mutex, Rank};
use lanefs_ondisk::md::{Features, Recovery, Role, SECTOR, SUPERBLOCK_OFFSET, Superblock, bitmap};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// One device with a superblock of the array.
#[derive(Clone)]
pub(crate) struct Known {
    pub(crate) name: PathBuf,
    pub(crate) device: Arc<dyn Device>,
    pub(crate) superblock: Superblock,
    /// The device's slot; `None` for a spare.
    pub(crate) slot: Option<usize>,
    /// Whether changes are written to the device.
    pub(crate) live: bool,
    /// The device's bad blocks, as for [`Member`](crate::members::Member).
    pub(crate) bad_blocks: Option<Arc<BadBlocks>>,
}

impl Known {
    /// Returns whether the device is the member of a slot.
    fn has_slot(&self) -> bool {
        self.live && self.slot.is_some()
    }

    fn is_spare(&self) -> bool {
        self.live && self.slot.is_none()
    }

    /// Returns whether these are the same device, whose name may have been written differently.
    fn is_same(&self, other: &Known) -> bool {
        self.name == other.name || address(&self.device) == address(&other.device)
    }

    fn write(&mut self, array: &Superblock) -> Result<(), DeviceError> {
        self.superblock.adopt(array);
        if let Some(bad) = &self.bad_blocks {
            bad.store(&*self.device, &mut self.superblock)?;
        }
        self.device.write_durable_at(SUPERBLOCK_OFFSET, &self.superblock.encode())
    }
}

/// The write-intent bitmap as stored on the members.
#[derive(Debug, Clone)]
pub(crate) struct Bitmap {
    pub(crate) header: bitmap::Header,
    /// The offset of the header on each member.
    pub(crate) offset: u64,
    pub(crate) bits: Vec<u8>,
}

/// A device of an array, as recorded in the metadata.
#[derive(Debug, Clone)]
pub struct KnownMember {
    /// The device's name in messages.
    pub name: PathBuf,
    /// The device's slot, if it has one.
    pub slot: Option<usize>,
    /// The device's superblock as it was last written.
    pub superblock: Superblock,
}

/// The metadata of a running array.
pub struct Metadata {
    known: Mutex<Superblocks>,
    writes: Writes,
}

/// Where changes are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Writes {
    /// To all live members.
    Members,
    /// Nowhere: the array is open read-only.
    Nothing,
}

/// Why a device did not get a slot.
#[derive(Debug)]
pub(crate) enum AssignError {
    /// The new device failed; nothing was changed.
    Unchanged(DeviceError),
    /// A write failed, and it is unknown which contents the members have now.
    Unsettled(RecordError),
}

struct Superblocks {
    members: Vec<Known>,
    /// The fields that are equal in all superblocks.
    array: Superblock,
    /// The same fields as they were last written to the members.
    recorded: Superblock,
    /// Whether a live member may lack `recorded`, because a crash or an error ended a change.
    unfinished: bool,
    /// The sector from which parity may be wrong. Rows that are being written are not taken into
    /// account.
    unsynced_from: Option<u64>,
    active: bool,
    intents: Option<Bitmap>,
    /// The addresses of devices that a change of the members is about to write.
    claimed: Vec<usize>,
}

/// The right to write a device that is to become a member. It ends when this is dropped.
pub(crate) struct Claim<'a> {
    metadata: &'a Metadata,
    address: usize,
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.metadata.known.lock().claimed.retain(|claimed| *claimed != self.address);
    }
}

impl std::fmt::Debug for Metadata {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Metadata").field("writes", &self.writes).finish_non_exhaustive()
    }
}

impl Metadata {
    /// Creates the metadata; `array` is the freshest superblock.
    pub(crate) fn new(
        mut array: Superblock,
        members: Vec<Known>,
        intents: Option<Bitmap>,
        writes: Writes,
    ) -> Metadata {
        let recorded = array.clone();
        // A member that has no live entry in `members` receives no writes from now on, so it is
        // recorded as faulty.
        for number in 0..array.numbers() {
            let here = |known: &Known| known.live && known.superblock.number() == number;
            if matches!(array.role_of(number), Role::Active(_)) && !members.iter().any(here) {
                array.set_role_of(number, Role::Faulty);
            }
        }
        let unsynced_from = array.resync_from();
        let is_behind = |known: &Known| known.superblock.events() != recorded.events();
        let unfinished = members.iter().any(|known| known.slot.is_some() && is_behind(known));
        let state = Superblocks {
            members,
            array,
            recorded,
            unfinished,
            unsynced_from,
            active: false,
            intents,
            claimed: Vec::new(),
        };
        Metadata { known: Mutex::new(Rank::ArrayRecord, state), writes }
    }

    /// Returns the fields that all superblocks share. In the result, fields of a single member have
    /// no meaning.
    pub fn array(&self) -> Superblock {
        self.known.lock().array.clone()
    }

    /// Returns the fields that all superblocks share, as they are on the members. Until the first
    /// change is written, these fields still list members whose devices were not given when the
    /// array was assembled.
    pub fn recorded(&self) -> Superblock {
        self.known.lock().recorded.clone()
    }

    /// Returns whether an unused device with this superblock has all data of the array. The device
    /// has all data if its superblock was written with the last change of the array's metadata, the
    /// array was clean at that time, and nothing was written since. Before the first write to a
    /// clean array, a change is recorded, which raises the event count by two. So if the event
    /// counts and times are equal, nothing was written after the last change.
    ///
    /// # Locking
    /// A caller that acts on the result holds the lock of the array's state, so that no write
    /// starts meanwhile.
    pub(crate) fn is_in_step(&self, own: &Superblock) -> bool {
        let state = self.known.lock();
        let recorded = &state.recorded;
        !state.active
            && own.events() == recorded.events()
            && own.written() == recorded.written()
            && own.resync_from().is_none()
            && recorded.resync_from().is_none()
            && own.role() == recorded.role_of(own.number())
            && matches!(own.role(), Role::Active(_))
            && own.recovery() == Recovery::InSync
            && !state.members.iter().any(|k| k.live && k.superblock.number() == own.number())
    }

    /// Returns all devices to which changes are written.
    pub fn members(&self) -> Vec<KnownMember> {
        let state = self.known.lock();
        let live = state.members.iter().filter(|known| known.live);
        let member = |known: &Known| KnownMember {
            name: known.name.clone(),
            slot: known.slot,
            superblock: known.superblock.clone(),
        };
        live.map(member).collect()
    }

    /// Returns the names of the members that have failed or were replaced since the array was
    /// assembled.
    pub fn former_members(&self) -> Vec<PathBuf> {
        let state = self.known.lock();
        let former = state.members.iter().filter(|known| !known.live && known.slot.is_some());
        former.map(|known| known.name.clone()).collect()
    }

    /// Returns the live members with their devices.
    pub(crate) fn devices(&self) -> Vec<Known> {
        let state = self.known.lock();
        state.members.iter().filter(|known| known.has_slot()).cloned().collect()
    }

    /// Returns the device at `path` if it has no slot: a spare, or a member that has failed since
    /// the array was assembled. The device is still open and locked, so it can be used only through
    /// this handle.
    pub fn unused(&self, path: &Path) -> Option<Arc<dyn Device>> {
        let state = self.known.lock();
        let unused = |known: &&Known| !known.has_slot() && known.device.is_at(path);
        state.members.iter().find(unused).map(|known| known.device.clone())
    }

    /// Claims a device for a change. Two changes must not write the same device, and none a member.
    /// Returns `None` if the device is a member or claimed.
    pub(crate) fn claim(&self, device: &Arc<dyn Device>) -> Option<Claim<'_>> {
        self.known.lock().claim(address(device))?;
        Some(Claim { metadata: self, address: address(device) })
    }

    /// Claims a spare whose device has none of these addresses.
    pub(crate) fn claim_spare(&self, not: &[usize]) -> Option<(Known, Claim<'_>)> {
        let mut state = self.known.lock();
        let is_in = |known: &Known| not.contains(&address(&known.device));
        let is_spare = |known: &&Known| known.is_spare() && !is_in(known);
        let spares: Vec<Known> = state.members.iter().filter(is_spare).cloned().collect();
        let spare = spares.into_iter().find(|k| state.claim(address(&k.device)).is_some())?;
        let address = address(&spare.device);
        Some((spare, Claim { metadata: self, address }))
    }

    /// Writes the bitmap and a superblock to a device that is to become a spare. No lock is held
    /// meanwhile, since the device may hang.
    ///
    /// # Errors
    /// If no number is free, or the device cannot be written.
    pub(crate) fn prepare_spare(&self, new: &mut Known) -> Result<(), DeviceError> {
        let (intents, recorded) = {
            let state = self.known.lock();
            state.number(new)?;
            (state.intents.clone(), state.recorded.clone())
        };
        write_intents(intents.as_ref(), &*new.device)?;
        new.superblock.set_recovery(Recovery::InSync);
        new.write(&recorded)
    }

    /// Makes a prepared device a spare, and records this on all members.
    ///
    /// # Errors
    /// If no number is free, or the change cannot be recorded.
    pub(crate) fn admit_spare(&self, mut new: Known) -> Result<Slots, AssignError> {
        let mut state = self.known.lock();
        // Another device may have got the number meanwhile.
        let number = state.number(&mut new).map_err(AssignError::Unchanged)?;
        state.array.set_role_of(number, Role::Spare);
        state.put(new);
        state.commit(self.writes).map_err(AssignError::Unsettled)
    }

    /// Returns whether a device is a spare, to which changes are written.
    pub(crate) fn has_spare(&self, device: &Arc<dyn Device>) -> bool {
        let state = self.known.lock();
        let is_it = |known: &Known| known.is_spare() && address(&known.device) == address(device);
        state.members.iter().any(is_it)
    }

    /// Writes the superblock of a device again if it is a spare: it was erased for a member that
    /// the device did not become.
    pub(crate) fn renew_spare(&self, device: &Arc<dyn Device>) -> Result<(), DeviceError> {
        let mut state = self.known.lock();
        let recorded = state.recorded.clone();
        let is_it = |known: &&mut Known| address(&known.device) == address(device);
        let spare = state.members.iter_mut().filter(|known| known.is_spare()).find(is_it);
        spare.map_or(Ok(()), |spare| spare.write(&recorded))
    }

    /// Replaces each device name that messages use with the name that `name` returns for it. A
    /// relative path would be wrong after the working directory changes.
    pub fn rename_members(&self, name: impl Fn(&Path) -> Option<PathBuf>) {
        for known in &mut self.known.lock().members {
            known.name = name(&known.name).unwrap_or_else(|| std::mem::take(&mut known.name));
        }
    }

    /// Returns the event count at which regions with cleared bits were last known to be in sync on
    /// all members, and the bits; `None` without a bitmap.
    pub(crate) fn bits(&self) -> Option<(u64, Vec<u8>)> {
        let state = self.known.lock();
        let intents = state.intents.as_ref()?;
        Some((intents.header.events_cleared(), intents.bits.clone()))
    }

    /// Gives the slot to a new device, whose data is valid up to `recovery`, and records this on
    /// all members. The device gets the bitmap of the other members, and keeps its device number if
    /// no other device has it. If the slot still has a member, that member is recorded as failed.
    ///
    /// # Errors
    /// If no number is free, or the change cannot be recorded.
    pub(crate) fn assign_slot(
        &self,
        mut new: Known,
        slot: usize,
        recovery: Recovery,
    ) -> Result<Slots, AssignError> {
        let mut state = self.known.lock();
        write_intents(state.intents.as_ref(), &*new.device).map_err(AssignError::Unchanged)?;
        let number = state.number(&mut new).map_err(AssignError::Unchanged)?;
        let had = |known: &&Known| known.live && known.slot == Some(slot);
        if let Some(before) = state.members.iter().find(had).map(|k| k.superblock.number()) {
            state.fail(before);
        }
        state.array.set_role_of(number, Role::Active(slot as u16));
        new.superblock.set_recovery(recovery);
        new.slot = Some(slot);
        new.live = true;
        state.put(new);
        state.commit(self.writes).map_err(AssignError::Unsettled)
    }

    /// Forgets failed devices, which frees their device numbers. Returns how many devices were
    /// forgotten, and the slots of members that failed meanwhile.
    pub(crate) fn forget_failed(&self) -> Result<(usize, Slots), RecordError> {
        let mut state = self.known.lock();
        let is_faulty = |number: &u32| state.array.role_of(*number) == Role::Faulty;
        let faulty: Vec<u32> = (0..state.array.numbers()).filter(is_faulty).collect();
        if faulty.is_empty() {
            return Ok((0, Slots::NONE));
        }
        for number in &faulty {
            state.array.set_role_of(*number, Role::Spare);
        }
        Ok((faulty.len(), state.commit(self.writes)?))
    }
}

impl MetadataStore for Metadata {
    fn mark_active(&self) -> Result<Slots, RecordError> {
        let mut state = self.known.lock();
        if state.active {
            return Ok(Slots::NONE);
        }
        state.active = true;
        let doubtful = state.doubtful_from();
        state.array.set_resync_from(doubtful);
        state.commit(self.writes)
    }

    fn mark_clean(&self) -> Result<Slots, RecordError> {
        let mut state = self.known.lock();
        state.active = false;
        state.unsynced_from = None;
        state.array.set_resync_from(None);
        state.commit(self.writes)
    }

    fn fail_members(&self, failed: Slots) -> Result<Slots, RecordError> {
        let mut state = self.known.lock();
        let live =
            |known: &Known| known.live && known.slot.is_some_and(|slot| failed.contains(slot));
        let failing = state.members.iter().filter(|known| live(known));
        let numbers: Vec<u32> = failing.map(|known| known.superblock.number()).collect();
        if numbers.is_empty() {
            return Ok(Slots::NONE);
        }
        if (state.degraded() | failed).count() > 1 {
            return Err(refused("a second failure is not recorded").into());
        }
        numbers.into_iter().for_each(|number| state.fail(number));
        state.commit(self.writes)
    }

    fn set_recovered(&self, slot: usize, bytes: u64) -> Result<Slots, RecordError> {
        let mut state = self.known.lock();
        let recovery = match bytes {
            u64::MAX => Recovery::InSync,
            bytes => Recovery::Below(bytes / SECTOR),
        };
        let member = state.members.iter_mut().find(|known| known.live && known.slot == Some(slot));
        match member {
            Some(member) => member.superblock.set_recovery(recovery),
            None => return Err(refused("a slot without a member cannot be rebuilt").into()),
        }
        state.commit(self.writes)
    }

    fn set_resynced(&self, bytes: u64) -> Result<Slots, RecordError> {
        let mut state = self.known.lock();
        state.unsynced_from = (bytes != u64::MAX).then_some(bytes / SECTOR);
        let doubtful = state.doubtful_from();
        if state.active && doubtful == state.array.resync_from() {
            return Ok(Slots::NONE);
        }
        state.array.set_resync_from(doubtful);
        state.commit(self.writes)
    }

    fn write_bits(&self, at: usize, bits: &[u8]) -> Result<Slots, RecordError> {
        self.known.lock().write_bits(self.writes, at, bits)
    }

    fn store_bad_blocks(&self) -> Result<Slots, RecordError> {
        let mut state = self.known.lock();
        let is_changed = |known: &Known| {
            known.live && known.bad_blocks.as_ref().is_some_and(|bad| bad.is_changed())
        };
        match state.members.iter().any(is_changed) {
            true => state.commit(self.writes),
            false => Ok(Slots::NONE),
        }
    }
}

impl Superblocks {
    /// Returns the sector from which parity may be wrong if a crash happens now; `None` if all
    /// parity is right.
    ///
    /// - If the array is not active, the result is `unsynced_from`.
    /// - If it is active and has no log, any row may be being written, so the result is sector 0.
    /// - If it is active and has a log, recovery restores the parity of the rows that were being
    ///   written, so the result is `unsynced_from`. If that is `None`, the result is sector 0,
    ///   because the superblocks must record that the array is active.
    fn doubtful_from(&self) -> Option<u64> {
        let has_log = self.array.features().intersects(Features::ANY_PPL);
        match self.unsynced_from {
            Some(from) if has_log || !self.active => Some(from),
            _ => self.active.then_some(0),
        }
    }

    /// Adds a device, which may have been a spare, or a member that has failed. It keeps the name
    /// that it has by now.
    fn put(&mut self, mut new: Known) {
        let same = |known: &&Known| address(&known.device) == address(&new.device);
        if let Some(known) = self.members.iter().find(same) {
            new.name.clone_from(&known.name);
        }
        self.members.retain(|known| known.has_slot() || !known.is_same(&new));
        self.members.push(new);
    }

    /// Gives a new device a number, which is set in its superblock in memory. The device is not yet
    /// a member. Returns the number.
    fn number(&self, new: &mut Known) -> Result<u32, DeviceError> {
        let number = self.number_for(new).ok_or_else(|| refused("no device number is left"))?;
        let device = new.superblock.device();
        new.superblock.set_device(number, device);
        Ok(number)
    }

    fn claim(&mut self, claimed: usize) -> Option<()> {
        let is_member = |known: &Known| known.has_slot() && address(&known.device) == claimed;
        if self.claimed.contains(&claimed) || self.members.iter().any(is_member) {
            return None;
        }
        self.claimed.push(claimed);
        Some(())
    }

    fn number_for(&self, new: &Known) -> Option<u32> {
        let taken = |number: u32| {
            let others = self.members.iter().filter(|known| known.live && !known.is_same(new));
            others.map(|known| known.superblock.number()).any(|other| other == number)
        };
        // A number that a superblock still shows as active would make the device a member in sync.
        // Only in its own slot may it be that.
        let shown = |number: u32, slot: Option<usize>| match self.recorded.role_of(number) {
            Role::Active(active) => Some(usize::from(active)) != slot,
            _ => false,
        };
        let free_for = |number: u32, slot: Option<usize>| {
            let is_active = matches!(self.array.role_of(number), Role::Active(_));
            !taken(number) && !is_active && !shown(number, slot)
        };
        let free = |number: &u32| free_for(*number, None);
        let spare = |number: &u32| free(number) && self.array.role_of(*number) == Role::Spare;
        let numbers = || 0..self.array.numbers();
        let own = Some(new.superblock.number());
        let own = own.filter(|own| *own < self.array.numbers() && free_for(*own, new.slot));
        own.or_else(|| numbers().find(spare)).or_else(|| numbers().find(free))
    }

    fn fail(&mut self, number: u32) {
        self.array.set_role_of(number, Role::Faulty);
        for known in &mut self.members {
            known.live &= known.superblock.number() != number;
        }
    }

    /// Returns the slots without a member in sync.
    fn degraded(&self) -> Slots {
        let whole = |slot: &usize| {
            self.members.iter().any(|known| {
                known.live
                    && known.slot == Some(*slot)
                    && known.superblock.recovery() == Recovery::InSync
            })
        };
        (0..self.array.members() as usize).filter(|slot| !whole(slot)).collect()
    }

    /// Writes changed metadata to all live members. Returns the slots of members that failed
    /// meanwhile; an error contains these slots too.
    fn commit(&mut self, writes: Writes) -> Result<Slots, RecordError> {
        let mut lost = Slots::NONE;
        if writes == Writes::Nothing {
            return Ok(lost);
        }
        loop {
            let failed = self.write_change();
            match self.lose(failed) {
                Ok(None) => return Ok(lost),
                Ok(Some(slots)) => lost |= slots,
                Err(error) => {
                    self.unfinished = true;
                    return Err(RecordError { error, lost });
                }
            }
        }
    }

    /// Announces a change and makes it. Returns the numbers of members that failed, with their
    /// errors. If there are any, the change is not made on all members.
    fn write_change(&mut self) -> Vec<(u32, DeviceError)> {
        if self.unfinished {
            let recorded = self.recorded.clone();
            let failed = self.write_everywhere(|known, _| known.write(&recorded));
            if !failed.is_empty() {
                return failed;
            }
            self.unfinished = false;
        }
        // The event count continues from the last superblocks that were written. So a member that
        // the array needs is never more than one event behind, even if changes fail.
        let (before, time) = (self.recorded.events(), now());
        let after = before.saturating_add(2);
        if let Some(intents) = &mut self.intents {
            // The kernel trusts a bitmap header with a higher event count than the member's
            // superblock, but not a header with a lower count.
            intents.header.set_events(after);
            intents.header.set_fresh();
        }
        for (superblock, events) in
            [(&mut self.recorded, before.saturating_add(1)), (&mut self.array, after)]
        {
            superblock.set_time(time);
            superblock.set_events(events);
        }
        let announced = self.recorded.clone();
        let failed = self.write_everywhere(|known, intents| {
            if let Some(intents) = intents {
                known.device.write_at(intents.offset, &intents.header.encode())?;
            }
            known.write(&announced)
        });
        if !failed.is_empty() {
            return failed;
        }
        self.recorded = self.array.clone();
        let array = self.array.clone();
        self.write_everywhere(|known, _| known.write(&array))
    }

    fn write_bits(&mut self, writes: Writes, at: usize, bits: &[u8]) -> Result<Slots, RecordError> {
        let events = self.array.events();
        let whole = self.degraded().is_empty();
        let Some(intents) = self.intents.as_mut().filter(|_| writes == Writes::Members) else {
            return Ok(Slots::NONE);
        };
        let old = intents.bits.get_mut(at..).ok_or_else(|| refused("bits beyond the bitmap"))?;
        // `bits` is a whole sector, which may reach past the end of the bitmap. The bytes past the
        // end may have another use on the members, so they are not written.
        let count = old.len().min(bits.len());
        let (old, bits) = (&mut old[..count], &bits[..count]);
        let clears = old.iter().zip(bits).any(|(old, new)| old & !new != 0);
        old.copy_from_slice(bits);
        // The regions whose bits are about to be cleared are in sync on all members that have this
        // event count. A member with an older event count must not trust the bits, so this count is
        // recorded before the first bit is cleared.
        let raise = clears && whole && intents.header.events_cleared() < events;
        if raise {
            intents.header.set_events_cleared(events);
        }
        let bits_at = intents.offset + bitmap::HEADER_SIZE as u64 + at as u64;
        let failed = self.write_everywhere(|known, intents| {
            if let Some(intents) = intents.filter(|_| raise) {
                known.device.write_durable_at(intents.offset, &intents.header.encode())?;
            }
            known.device.write_durable_at(bits_at, bits)
        });
        match self.lose(failed)? {
            None => Ok(Slots::NONE),
            Some(lost) => match self.commit(writes) {
                Ok(more) => Ok(lost | more),
                Err(error) => Err(RecordError { lost: lost | error.lost, ..error }),
            },
        }
    }

    /// Calls `write` for every live member; returns the numbers of failed members, with their
    /// errors.
    fn write_everywhere(
        &mut self,
        write: impl Fn(&mut Known, Option<&Bitmap>) -> Result<(), DeviceError>,
    ) -> Vec<(u32, DeviceError)> {
        let Superblocks { members, intents, .. } = self;
        let mut failed = Vec::new();
        for known in members.iter_mut().filter(|known| known.live) {
            // A spare has no data, so its bitmap does not matter.
            let intents = intents.as_ref().filter(|_| known.slot.is_some());
            if let Err(error) = write(known, intents) {
                failed.push((known.superblock.number(), error));
            }
        }
        failed
    }

    /// Marks the members in `failed`, which could not be written, as failed. Returns their slots.
    /// The failure is not yet recorded on the other members. Returns `None` if `failed` is empty.
    ///
    /// If the array cannot work without these members, or the host has no space for the write, none
    /// is recorded as failed. The array still needs each of them, so the metadata of the other
    /// members must stay sufficient to assemble the array.
    fn lose(&mut self, failed: Vec<(u32, DeviceError)>) -> Result<Option<Slots>, DeviceError> {
        let slot_of = |(number, _): &(u32, DeviceError)| {
            let known = self.members.iter().find(|k| k.live && k.superblock.number() == *number);
            known.and_then(|known| known.slot)
        };
        let slots: Slots = failed.iter().filter_map(slot_of).collect();
        let numbers: Vec<u32> = failed.iter().map(|(number, _)| *number).collect();
        // A spare has no data, so the array can do without it.
        let full = failed.iter().position(|lost| is_full(&lost.1) && slot_of(lost).is_some());
        let Some((_, error)) = failed.into_iter().nth(full.unwrap_or(0)) else { return Ok(None) };
        if full.is_some() || (self.degraded() | slots).count() > 1 {
            return Err(error);
        }
        numbers.into_iter().for_each(|number| self.fail(number));
        Ok(Some(slots))
    }
}

/// Writes the bitmap to a new device.
fn write_intents(intents: Option<&Bitmap>, device: &dyn Device) -> Result<(), DeviceError> {
    let Some(intents) = intents else { return Ok(()) };
    device.write_at(intents.offset, &intents.header.encode())?;
    device.write_durable_at(intents.offset + bitmap::HEADER_SIZE as u64, &intents.bits)
}

fn refused(why: &'static str) -> DeviceError {
    DeviceError::new(Operation::Write, 0, 0, io::Error::other(why))
}

/// Returns the microseconds since 1970.
pub(crate) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}
