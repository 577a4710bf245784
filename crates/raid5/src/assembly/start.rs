//! Starts an array: chooses the members to use, applies the partial parity log, and restores parity
//! that a crash left in doubt.

use crate::array::Array;
use crate::array::setup::{
    ArrayOptions, Consistency, DirtyAndDegraded, MetadataStore, Setup, Upkeep,
};
use crate::assembly::error::{AssembleError, LeftOut, Outside};
use crate::assembly::metadata::{Bitmap, Known, Metadata, Writes};
use crate::assembly::{Assembly, Candidate};
use crate::base::is_full;
use crate::base::layout::{BLOCK, Geometry, Layout, Slots};
use crate::log::recovery::{self, LogOutcome, Logs, SlotError};
use crate::members::Member;
use crate::members::bad_blocks::{BadBlocks, BadBlocksDevice};
use lanefs_device::{Access, OverlayDevice};
use lanefs_lanes::sync::Arc;
use lanefs_ondisk::md::{Features, Recovery, Role, SECTOR, Superblock, bitmap, ppl};

/// The number of bytes that recovery may change in memory while an array is open read-only. It
/// exceeds the size of the parity that all logs of the array can restore.
const OVERLAY: u64 = 1 << 30;

/// An array that was started.
pub(crate) struct Started {
    pub array: Arc<Array>,
    pub metadata: Arc<Metadata>,
    /// The devices that were given but are not used.
    pub left_out: Vec<LeftOut>,
    /// The result of applying the partial parity log, if that was needed.
    pub log: Option<LogOutcome>,
}

/// The input for starting an array.
struct Start {
    plan: Assembly,
    fresh: Superblock,
    candidates: Vec<Candidate>,
    options: ArrayOptions,
}

/// Assembles an array and starts it, without background work. `absent` is the number of members
/// that the caller knows to be missing.
pub(crate) fn start(
    candidates: Vec<Candidate>,
    absent: usize,
    options: &ArrayOptions,
) -> Result<Started, AssembleError> {
    let mut plan = Assembly::plan(&candidates)?;
    leave_out_behind_bits(&mut plan, &candidates);
    let takes_spares = options.upkeep == Upkeep::Background && options.access == Access::ReadWrite;
    if !plan.degraded().is_empty() && !takes_spares {
        let name = |at: &usize| candidates[*at].name.clone();
        let spare = |at| LeftOut { name: name(at), why: Outside::Spare };
        plan.left_out.extend(plan.spares.iter().map(spare));
    }
    let fresh = candidates[plan.freshest].superblock.clone();
    let start = Start { plan, fresh, candidates, options: *options };
    let geometry = start.geometry()?;
    start.check(absent)?;
    let mut members = start.members(&geometry)?;
    let signature = ppl::signature(start.fresh.set());
    let outcome = start.apply_log(&geometry, &mut members, signature)?;
    start.run(geometry, members, outcome, signature)
}

impl Start {
    fn geometry(&self) -> Result<Geometry, AssembleError> {
        let fresh = &self.fresh;
        // The default is never used: the layout number in the superblock was checked to be one of
        // the six that level 5 has.
        let layout = Layout::from_md(fresh.layout()).unwrap_or(Layout::LeftSymmetric);
        let chunk = u64::from(fresh.chunk()) * SECTOR;
        let members = fresh.members() as usize;
        Geometry::new(layout, members, chunk, fresh.size().saturating_mul(SECTOR)).map_err(
            |error| AssembleError::member(&self.candidates[self.plan.freshest].name, error),
        )
    }

    fn has_log(&self) -> bool {
        self.fresh.features().intersects(Features::ANY_PPL)
    }

    /// Returns the offset in the data areas, in bytes, from which on parity may be wrong; `None` if
    /// all parity is right.
    fn doubtful_from(&self) -> Option<u64> {
        let from = self.fresh.resync_from().filter(|from| *from < self.fresh.size())?;
        Some(from * SECTOR)
    }

    fn check(&self, absent: usize) -> Result<(), AssembleError> {
        let (plan, members) = (&self.plan, self.fresh.members() as usize);
        let missing = plan.degraded();
        // A spare stands for a member that failed. One that only is not here may come: it is named,
        // or said to be missing.
        let is_awaited = |missing: &usize| {
            let mut roles = (0..self.fresh.numbers()).map(|number| self.fresh.role_of(number));
            roles.any(|role| matches!(role, Role::Active(slot) if usize::from(slot) == *missing))
        };
        // Also one that is left out, since another has its number.
        let is_spare = |(at, candidate): &(usize, &Candidate)| {
            let is_member = plan.slots.iter().flatten().any(|(member, _)| member == at);
            let says_so = candidate.superblock.role() == Role::Spare;
            !is_member && (says_so || plan.spares.contains(at))
        };
        let spares = match missing.iter().any(is_awaited) {
            true => self.candidates.iter().enumerate().filter(is_spare).count(),
            false => 0,
        };
        let given = self.candidates.len() - spares + absent;
        if missing.len() > 1 && given >= members {
            let left_out = plan.left_out.clone();
            return Err(AssembleError::TooManyMissing { members, missing, left_out });
        }
        if given < members {
            return Err(AssembleError::Absent { given, members });
        }
        if let Some(&slot) = missing.first()
            && self.doubtful_from().is_some_and(|from| from > 0 || !self.has_log())
            && self.options.dirty_and_degraded == DirtyAndDegraded::Refuse
        {
            let left_out = plan.left_out.clone();
            return Err(AssembleError::DirtyAndDegraded { slot, left_out, logs: Vec::new() });
        }
        Ok(())
    }

    fn members(&self, geometry: &Geometry) -> Result<Vec<Option<Member>>, AssembleError> {
        let in_memory = self.options.access == Access::ReadOnly
            && self.has_log()
            && self.doubtful_from().is_some();
        let member = |assigned: &Option<(usize, Recovery)>| {
            let Some((at, recovery)) = *assigned else { return Ok(None) };
            let candidate = &self.candidates[at];
            let mut device = candidate.device.clone();
            let bad = candidate.bad_blocks()?;
            let bad = Arc::new(BadBlocks::new(&candidate.device, &candidate.superblock, bad));
            if in_memory {
                device = Arc::new(OverlayDevice::new(device, OVERLAY));
            }
            let device = Arc::new(BadBlocksDevice::new(device, bad.clone()));
            let recovered = match recovery {
                Recovery::InSync => u64::MAX,
                Recovery::Below(sector) => sector.saturating_mul(SECTOR).min(geometry.member_len()),
            };
            Ok(Some(Member {
                device,
                data_offset: candidate.superblock.data().offset,
                log: candidate.superblock.ppl(),
                recovered,
                bad_blocks: Some(bad),
            }))
        };
        self.plan.slots.iter().map(member).collect()
    }

    /// Applies the partial parity logs of the members. Returns `None` if the array has no such logs
    /// or was closed cleanly.
    fn apply_log(
        &self,
        geometry: &Geometry,
        members: &mut [Option<Member>],
        signature: u32,
    ) -> Result<Option<LogOutcome>, AssembleError> {
        if !self.has_log() || self.doubtful_from().is_none() {
            return Ok(None);
        }
        let read = Logs::read(members, signature).map_err(|failed| self.named(failed))?;
        if let Some(&slot) = self.plan.degraded().first()
            && self.options.dirty_and_degraded == DirtyAndDegraded::Refuse
            && let logs = read.unbelievable()
            && !logs.is_empty()
        {
            let left_out = self.plan.left_out.clone();
            return Err(AssembleError::DirtyAndDegraded { slot, left_out, logs });
        }
        let outcome = recovery::recover(geometry, members, &read);
        outcome.map(Some).map_err(|failed| self.named(failed))
    }

    fn named(&self, failed: SlotError) -> AssembleError {
        let SlotError { slot, error } = failed;
        let (at, _) = self.plan.slots[slot].unwrap_or((self.plan.freshest, Recovery::InSync));
        AssembleError::member(&self.candidates[at].name, error)
    }

    /// For an array that was not closed cleanly: returns whether all parity is right nevertheless,
    /// and the offset in the data areas from which parity may be wrong. For other arrays returns
    /// false and `u64::MAX`.
    fn parity_after(&self, log: Option<LogOutcome>) -> (bool, u64) {
        let degraded = !self.plan.degraded().is_empty();
        let Some(from) = self.doubtful_from() else { return (false, u64::MAX) };
        let is_right = match log {
            // As in the kernel: after a log without damage was applied, no resync is needed. An
            // empty log does not prove that parity is right, because it may also mean that the
            // array was never in sync.
            Some(log) => log.damaged == 0 && (degraded || from == 0 && log.entries > 0),
            None => degraded,
        };
        let unsynced_from = match log {
            _ if is_right || degraded => u64::MAX,
            // If entries of the log are damaged, parity may be wrong even in rows in which it was
            // right before the crash.
            Some(log) if log.damaged > 0 => 0,
            _ => from,
        };
        (is_right, unsynced_from)
    }

    /// Returns how the running array restores parity after a crash.
    fn consistency(&self, intents: Option<&Bitmap>, signature: u32) -> Consistency {
        let Some(intents) = intents else {
            return match self.has_log() {
                true => Consistency::PartialParity { signature },
                false => Consistency::Resync,
            };
        };
        let is_clean = self.doubtful_from().is_none() && self.plan.degraded().is_empty();
        let bits = match is_clean {
            // The array was stopped cleanly, so all regions are in sync, including those whose bits
            // have not been cleared yet.
            true => vec![0; intents.bits.len()],
            false => intents.bits.clone(),
        };
        Consistency::Bitmap { chunk: intents.header.chunk(), bits }
    }

    /// Records that the parity of all rows may be wrong. Returns the byte of the data areas from
    /// which parity may be wrong.
    ///
    /// With a log, offset 0 in a superblock says that only the logged rows are in doubt. So the
    /// first block is restored at once, and the offset of the second block is recorded. If offset 0
    /// were recorded and a member were missing at the next start, the array would be started with
    /// wrong parity. If the first block cannot be restored, all rows stay in doubt: a resync works
    /// on whole rows, and the recorded offset lies in the first row. If a chunk is a single block,
    /// this offset lies in the second row, so this function fails instead.
    fn record_doubt(
        &self,
        geometry: &Geometry,
        metadata: &Metadata,
        members: &mut [Option<Member>],
    ) -> Result<u64, AssembleError> {
        let restored = recovery::restore_first_block(geometry, members);
        let from = if BLOCK < geometry.member_len() { BLOCK } else { u64::MAX };
        let is_restored = restored.is_ok();
        if BLOCK >= geometry.chunk().min(geometry.member_len()) {
            restored.map_err(|failed| self.named(failed))?;
        }
        metadata.set_resynced(from)?.iter().for_each(|lost| members[lost] = None);
        Ok(if is_restored { from } else { 0 })
    }

    /// Empties the partial parity logs. If a member cannot be written and the array works without
    /// it, the member is recorded as failed and left out of `members`.
    fn clear_logs(
        &self,
        metadata: &Metadata,
        members: &mut [Option<Member>],
        signature: u32,
    ) -> Result<(), AssembleError> {
        let is_partial = |m: &Option<Member>| m.as_ref().is_none_or(|m| m.recovered != u64::MAX);
        while self.has_log()
            && let Err(failed) = recovery::clear(members, signature)
        {
            if members.iter().any(is_partial) || is_full(&failed.error) {
                return Err(self.named(failed));
            }
            let slot = Slots::one(failed.slot);
            (slot | metadata.fail_members(slot)?).iter().for_each(|lost| members[lost] = None);
        }
        Ok(())
    }

    fn run(
        self,
        geometry: Geometry,
        mut members: Vec<Option<Member>>,
        log: Option<LogOutcome>,
        signature: u32,
    ) -> Result<Started, AssembleError> {
        let (is_right, mut unsynced_from) = self.parity_after(log);
        let writes = match self.options.access {
            Access::ReadWrite => Writes::Members,
            Access::ReadOnly => Writes::Nothing,
        };
        let intents = self.intents()?;
        let metadata =
            Metadata::new(self.fresh.clone(), self.known(&members), intents.clone(), writes);
        let metadata = Arc::new(metadata);
        let consistency = self.consistency(intents.as_ref(), signature);
        if writes == Writes::Members {
            // A member that cannot be written here is recorded as failed, and the array starts
            // without it.
            let mut without = |lost: Slots| lost.iter().for_each(|slot| members[slot] = None);
            if is_right {
                without(metadata.mark_clean()?);
            }
            if let Consistency::Bitmap { bits, .. } = &consistency
                && intents.is_some_and(|intents| intents.bits != *bits)
            {
                without(metadata.write_bits(0, bits)?);
            }
            if unsynced_from == 0 && self.has_log() {
                unsynced_from = self.record_doubt(&geometry, &metadata, &mut members)?;
            }
            // The logs would name the blocks again that their recovery has marked as bad, so these
            // are recorded before the logs are emptied.
            metadata.store_bad_blocks()?.iter().for_each(|lost| members[lost] = None);
            self.clear_logs(&metadata, &mut members, signature)?;
        }
        let array = Arc::new(Array::start(Setup {
            geometry,
            members,
            record: metadata.clone(),
            consistency,
            // The array becomes active at the first write. Until then parity may be wrong only from
            // byte `unsynced_from` of the data areas on.
            active: false,
            unsynced_from,
            policies: self.options.policies,
        })?);
        Ok(Started { array, metadata, left_out: self.plan.left_out, log })
    }

    fn known(&self, members: &[Option<Member>]) -> Vec<Known> {
        let slots = self.plan.slots.iter().enumerate();
        let assigned =
            slots.filter_map(|(slot, assigned)| assigned.map(|(at, _)| (at, Some(slot))));
        let spares = self.plan.spares.iter().map(|at| (*at, None));
        let known = |(at, slot): (usize, Option<usize>)| Known {
            name: self.candidates[at].name.clone(),
            device: self.candidates[at].device.clone(),
            superblock: self.candidates[at].superblock.clone(),
            slot,
            live: true,
            bad_blocks: slot.and_then(|slot| members.get(slot)?.as_ref()?.bad_blocks.clone()),
        };
        assigned.chain(spares).map(known).collect()
    }

    /// Returns the bitmap of the freshest member. All bits are set if the bitmap cannot be trusted.
    fn intents(&self) -> Result<Option<Bitmap>, AssembleError> {
        read_intents(&self.candidates[self.plan.freshest])
    }
}

/// Leaves out each member whose event count is below that of the freshest member, and whose bitmap
/// lacks a bit that is set in the freshest member's bitmap: the bit was set for a write that the
/// member missed.
fn leave_out_behind_bits(plan: &mut Assembly, candidates: &[Candidate]) {
    let fresh = &candidates[plan.freshest];
    let believed = |intents: &Bitmap, of: &Candidate| {
        !intents.header.is_stale() && intents.header.events() >= of.superblock.events()
    };
    let Ok(Some(newest)) = read_intents(fresh) else { return };
    if !believed(&newest, fresh) {
        return;
    }
    for assigned in &mut plan.slots {
        let Some((at, _)) = *assigned else { continue };
        let candidate = &candidates[at];
        if candidate.superblock.events() >= fresh.superblock.events() {
            continue;
        }
        let Ok(Some(own)) = read_intents(candidate) else { continue };
        if newest.bits.iter().zip(&own.bits).any(|(newest, own)| newest & !own != 0) {
            plan.left_out.push(LeftOut { name: candidate.name.clone(), why: Outside::Behind });
            *assigned = None;
        }
    }
}

/// Reads a member's bitmap, if it has one.
pub(crate) fn read_intents(fresh: &Candidate) -> Result<Option<Bitmap>, AssembleError> {
    let Some(area) = fresh.superblock.bitmap(fresh.device.len()) else { return Ok(None) };
    let (offset, space) = (area.offset, area.len);
    let failed = |error| AssembleError::member(&fresh.name, error);
    let mut head = [0; bitmap::HEADER_SIZE];
    fresh.device.read_at(offset, &mut head).map_err(failed)?;
    let superblock = &fresh.superblock;
    let expected = bitmap::Expected { set: superblock.set(), sync_size: superblock.size(), space };
    let header = bitmap::Header::decode(&head, &expected)
        .map_err(|cause| AssembleError::member(&fresh.name, cause))?;
    // The bitmap was checked to be inside its area, and the area inside the device.
    let mut bits = vec![0; header.bit_bytes() as usize];
    fresh.device.read_at(offset + bitmap::HEADER_SIZE as u64, &mut bits).map_err(failed)?;
    if header.is_stale() || header.events() < superblock.events() {
        bits.fill(0xff);
    }
    Ok(Some(Bitmap { header, offset, bits }))
}
