//! Writes parts of a row, on the calling thread.
//!
//! The steps: read the blocks that the plan needs; compute the new parity; log the partial parity;
//! write data and parity. If a member fails before the first write, the write is planned again.
//! After the first write nothing is read. If a member fails then, the write continues without it,
//! because the data and parity on the other members determine the new data.

use crate::array::Array;
use crate::base::layout::{Location, Slots};
use crate::base::resources::Buffer;
use crate::base::{ArrayError, Count, is_full};
use crate::log::{LogPart, ParityLog};
use crate::members::{Lost, Present, ReadError, Stretch};
use crate::rows::plan::{
    Content, Method, Missing, Plan, Prepared, RowWrite, StripShape, Trust, plan, sum,
};
use crate::rows::strip::{Bytes, RowPart, Strip, loads, strips};
use crate::rows::{RowHold, Taken};
use crate::write::gather::{Group, Join};
use crate::write::logging::Logging;
use lanefs_device::{DeviceError, Operation};
use lanefs_lanes::sync::atomic::{Ordering, fence};
use lanefs_lanes::xor;

/// The unit, in bytes, of array positions in log entries.
const SECTOR: u64 = 512;

/// The result of [`Array::write_group`].
pub(crate) enum Attempt {
    /// All parts are written.
    Written,
    /// Nothing is written. These writes arrived meanwhile; together with the group's own parts they
    /// complete the strips.
    Joined(Vec<Taken>),
}

impl Array {
    /// Writes the group's parts. If writes of other threads arrived during the reads and complete
    /// the written strips, writes nothing and returns these writes.
    ///
    /// # Locking
    /// The caller holds the range of the group exclusively.
    pub(crate) fn write_group(
        &self,
        group: &Group<'_>,
        hold: &RowHold<'_>,
    ) -> Result<Attempt, DeviceError> {
        let RowPart { row, first, len, .. } = group.own;
        let _unit = self.budget.take(row, &self.counters);
        // Because of the fence, the unit of the row budget is taken before the array's state is
        // read. `RowBudget::none_taken` relies on this order.
        fence(Ordering::SeqCst);
        self.refuse_if_stopped(row * self.shape.row_len() + first, len)?;
        self.begin()?;
        self.intend(&hold.span)?;
        let log = self.log_of(row);
        let (pieces, buffers) = group.contents(&self.shape);
        let (source, how) = (&Bytes::new(&buffers), group.how);
        let all = Slots::below(self.shape.data());
        let loads = loads(strips(&pieces), all, log.map_or(u64::MAX, ParityLog::per_write));
        for (at, strips) in loads.iter().enumerate() {
            let write = RowWrite { row, pieces: &pieces, strips, source, how };
            let (missing, prepared) = self.prepare(&write)?;
            if at == 0 && prepared.iter().any(Prepared::has_read) {
                let more = group.waiting(&self.shape, hold, Join::Completing);
                if !more.is_empty() {
                    return Ok(Attempt::Joined(more));
                }
            }
            self.carry_out(&write, missing, &prepared, log)?;
        }
        Ok(Attempt::Written)
    }

    /// # Locking
    /// The caller holds the strips' range exclusively, and a unit of the row budget.
    fn carry_out(
        &self,
        write: &RowWrite<'_>,
        missing: Slots,
        prepared: &[Prepared<'_>],
        log: Option<&ParityLog>,
    ) -> Result<(), DeviceError> {
        prepared.iter().for_each(|done| self.count_method(done.plan.method));
        let base = write.strips.first().map_or(0, |s| s.from);
        let end = write.strips.last().map_or(0, |s| s.to);
        let mut parity = self.scratch.take(end - base);
        let mut parts = Vec::new();
        for done in prepared.iter().filter(|p| p.plan.method != Method::NoParity) {
            let into =
                &mut parity[(done.strip.from - base) as usize..(done.strip.to - base) as usize];
            match log {
                Some(_) => parts.push(self.logged_parity(write, done, into)),
                None => done.new_parity(write, into),
            }
        }
        let logged = match log {
            Some(log) if !parts.is_empty() => match self.log(log, write.row, parts)? {
                Logging::Durable(ticket) => Some((log, ticket)),
                Logging::NoMember => None,
            },
            _ => None,
        };
        let mut failed = Failed::default();
        self.write_data(write, missing, &mut failed);
        let slot = self.shape.parity_slot(write.row);
        if !missing.contains(slot) && failed.allows_more(missing) {
            self.write_parity(write, base, &parity, &mut failed);
        }
        if !(missing | failed.slots | self.members.missing(write.row)).is_empty() {
            self.unsynced.unflushed.add(write.row);
        }
        let has_parity = !(missing | failed.slots).contains(slot);
        self.settle_failures(write, prepared, missing, failed)?;
        if has_parity {
            self.note_right(write.row, prepared);
        }
        match (logged, write.how.is_durable()) {
            (Some((log, ticket)), true) => log.finished(ticket),
            (Some((log, ticket)), false) => log.written(ticket, self.gate.begun()),
            (None, _) => {}
        }
        Ok(())
    }

    /// Records where parity in doubt was replaced by right parity.
    fn note_right(&self, row: u64, prepared: &[Prepared<'_>]) {
        for Prepared { strip, plan, .. } in prepared {
            if matches!(plan.method, Method::FullRow | Method::Reconstruct) {
                self.unsynced.written(row, strip.from, strip.to);
            }
        }
    }

    fn count_method(&self, method: Method) {
        let count = match method {
            Method::NoParity => Count::NoParity,
            Method::FullRow => Count::FullRow,
            Method::Reconstruct => Count::Reconstruct,
            Method::Modify => Count::Modify,
        };
        self.counters.add(count, 1);
    }

    /// Computes the partial parity, and from it the new parity, which is stored in `into`. Returns
    /// the partial parity, to be logged.
    fn logged_parity(&self, write: &RowWrite<'_>, done: &Prepared<'_>, into: &mut [u8]) -> LogPart {
        let Strip { from, to, written, .. } = done.strip;
        let kept = done.kept();
        let mut partial = vec![0; if kept.is_empty() { 0 } else { into.len() }];
        if kept.is_empty() {
            done.new_parity(write, into);
        } else {
            sum(&mut partial, &kept);
            let mut contents = vec![Content::Buffer(&partial)];
            contents.extend(done.given(write));
            sum(into, &contents);
        }
        let place = Location { row: write.row, index: written.first().unwrap_or(0), offset: from };
        LogPart {
            from,
            to,
            data_sector: self.shape.array_byte(place) / SECTOR,
            data_size: (to - from) * written.count() as u64,
            partial,
        }
    }

    /// Reads the blocks that the plans of all strips need. Returns the missing members of the row.
    fn prepare(&self, write: &RowWrite<'_>) -> Result<(Slots, Vec<Prepared<'_>>), DeviceError> {
        let mut trust = Trust::Right;
        loop {
            let missing = self.members.missing(write.row);
            if missing.count() > 1 {
                let error = ArrayError::TooManyMissing { slots: missing };
                return Err(error.during(Operation::Write, write.row * self.shape.row_len(), 0));
            }
            let all =
                write.strips.iter().map(|strip| self.prepare_strip(write, *strip, missing, trust));
            match all.collect() {
                Ok(prepared) => return Ok((missing, prepared)),
                // Plan again without the failed member. No member becomes valid in a row that is
                // held, so this loop terminates.
                Err(ReadError::Gone) => {}
                Err(ReadError::Lost(lost)) => match self.correct(&lost) {
                    Ok(true) => {}
                    Ok(false) => self.lose(lost)?,
                    // The block cannot be computed. The write does not need it if it replaces the
                    // whole block, and if parity can be computed from the other data.
                    Err(_) if trust == Trust::Right => trust = Trust::Unknown,
                    Err(error) => return Err(error),
                },
                Err(ReadError::Final(error)) => return Err(error),
            }
        }
    }

    fn prepare_strip(
        &self,
        write: &RowWrite<'_>,
        strip: Strip,
        missing: Slots,
        trust: Trust,
    ) -> Result<Prepared<'_>, ReadError> {
        let plan = self.plan_strip(write.row, strip, missing, trust).map_err(ReadError::Final)?;
        let place = Stretch { row: write.row, from: strip.from };
        let read = |slot: usize, what: Count| -> Result<Buffer<'_>, ReadError> {
            self.counters.add(Count::OldRead, 1);
            let mut buffer = self.scratch.take(strip.len());
            let member = self.members.of_row(slot, write.row).ok_or(ReadError::Gone)?;
            self.read_member(member, place, what, &mut buffer)?;
            Ok(buffer)
        };
        let mut old = Vec::new();
        for index in plan.read.iter() {
            let slot = self.shape.data_slot(write.row, index);
            old.push((index, read(slot, Count::DataRead)?));
        }
        let parity = self.shape.parity_slot(write.row);
        let old_parity = match plan.read_parity {
            true => Some(read(parity, Count::ParityRead)?),
            false => None,
        };
        if let Some(lost) = plan.rebuild {
            let mut rebuilt = self.scratch.take(strip.len());
            let all = old.iter().map(|(_, b)| &b[..]).chain(old_parity.as_deref());
            xor(&mut rebuilt, &all.collect::<Vec<_>>());
            old.push((lost, rebuilt));
        }
        let merged = strip.partial.iter().map(|index| self.merge(write, strip, index, &old));
        let merged = merged.collect();
        Ok(Prepared { strip, plan, old, old_parity, merged })
    }

    fn plan_strip(
        &self,
        row: u64,
        strip: Strip,
        missing: Slots,
        trust: Trust,
    ) -> Result<Plan, DeviceError> {
        let lost = match missing.first() {
            None => Missing::Nothing,
            Some(slot) => match self.shape.index_of(row, slot) {
                None => Missing::Parity,
                Some(index) => Missing::Data(index),
            },
        };
        let unknown = self.unsynced.contains(row, strip.from, strip.to);
        let strip = StripShape {
            data: self.shape.data(),
            written: strip.written,
            partial: strip.partial,
            missing: lost,
            parity: if unknown { Trust::Unknown } else { trust },
        };
        plan(strip).ok_or_else(|| self.unknown(row, Operation::Write))
    }

    /// Returns the new content of a chunk that is written only in part: the old content, in which
    /// the new bytes replace old ones.
    fn merge<'a>(
        &'a self,
        write: &RowWrite<'_>,
        strip: Strip,
        index: usize,
        old: &[(usize, Buffer<'_>)],
    ) -> (usize, Buffer<'a>) {
        let mut merged = self.scratch.take(strip.len());
        if let Some((_, bytes)) = old.iter().find(|(i, _)| *i == index) {
            merged.copy_from_slice(bytes);
        }
        for piece in write.pieces.iter().filter(|p| p.index == index) {
            let Some(piece) = piece.clip(strip.from, strip.to) else { continue };
            let mut at = (piece.from - strip.from) as usize;
            for slice in write.source.slices(piece.at, piece.to - piece.from) {
                merged[at..at + slice.len()].copy_from_slice(slice);
                at += slice.len();
            }
        }
        (index, merged)
    }

    fn write_data(&self, write: &RowWrite<'_>, missing: Slots, failed: &mut Failed) {
        let from = write.strips.first().map_or(0, |s| s.from);
        let to = write.strips.last().map_or(0, |s| s.to);
        for piece in write.pieces.iter().filter_map(|p| p.clip(from, to)) {
            let slot = self.shape.data_slot(write.row, piece.index);
            if missing.contains(slot) {
                continue;
            }
            if !failed.allows_more(missing) {
                return;
            }
            self.counters.add(Count::DataWrite, 1);
            let slices = write.source.slices(piece.at, piece.to - piece.from);
            self.put(write, slot, piece.from, &slices, failed);
        }
    }

    /// Writes each contiguous run of parity.
    fn write_parity(&self, write: &RowWrite<'_>, base: u64, parity: &[u8], failed: &mut Failed) {
        let slot = self.shape.parity_slot(write.row);
        for run in write.strips.chunk_by(|a, b| a.to == b.from) {
            let (Some(first), Some(last)) = (run.first(), run.last()) else { continue };
            let bytes = &parity[(first.from - base) as usize..(last.to - base) as usize];
            self.counters.add(Count::ParityWrite, 1);
            self.put(write, slot, first.from, &[bytes], failed);
            if failed.slots.contains(slot) {
                return;
            }
            failed.parity_below = last.to;
        }
    }

    fn put(
        &self,
        write: &RowWrite<'_>,
        slot: usize,
        from: u64,
        slices: &[&[u8]],
        failed: &mut Failed,
    ) {
        let offset = write.row * self.shape.chunk() + from;
        let put = |member: &Present<'_>| {
            let put = member.device.write(member.data_offset + offset, slices, write.how);
            put.map_err(|error| Lost::new(member.id, error))
        };
        let shadow = self.members.shadow_of_row(slot, write.row);
        // If the member was removed in the meantime, it counts as a member that has just failed.
        let Some(member) = self.members.of_row(slot, write.row) else {
            failed.slots |= Slots::one(slot);
            return;
        };
        let mut done = put(&member);
        if let Some(shadow) = shadow.filter(|shadow| shadow.id != member.id) {
            done = match (done, put(&shadow)) {
                (done, Err(lost)) if !self.lose_shadow(&lost) => done,
                (_, Err(lost)) => Err(lost),
                (Err(_), Ok(())) if self.promoted_or_dropped(shadow.id) => Ok(()),
                (done, Ok(())) => done,
            };
        }
        match done {
            Ok(()) => failed.written |= Slots::one(slot),
            Err(lost) => {
                failed.slots |= Slots::one(slot);
                failed.first.get_or_insert(lost);
            }
        }
    }

    /// Writes old content back over new content, after a failure that stops writes.
    ///
    /// The row now lacks two members: the one that failed during this write, and another one. The
    /// data of the other one can be computed only from old parity and old data. So a half-finished
    /// write would lose data that was acknowledged earlier. Chunks whose old content was not read
    /// keep the new content, since no other data is computed from their old content. Strips whose
    /// parity was written are complete and keep the new data.
    ///
    /// A failed write can have changed a part of its range. So parity is in doubt in each strip
    /// that has neither the old contents nor all of the new ones.
    fn undo(&self, write: &RowWrite<'_>, prepared: &[Prepared<'_>], failed: &Failed) {
        let row = write.row;
        for done in prepared {
            let mut written = done.strip.written.iter();
            let is_whole = match done.plan.method {
                Method::NoParity => true,
                _ if done.strip.from < failed.parity_below => {
                    !written.any(|i| failed.slots.contains(self.shape.data_slot(row, i)))
                }
                Method::FullRow | Method::Reconstruct if done.plan.rebuild.is_none() => false,
                Method::FullRow | Method::Reconstruct | Method::Modify => {
                    self.put_back(row, done, failed);
                    self.is_as_before(row, done)
                }
            };
            if !is_whole {
                self.unsynced.tear(row, done.strip.from, done.strip.to);
            }
        }
    }

    /// Writes the old content of a strip back to the members that have the new content.
    fn put_back(&self, row: u64, done: &Prepared<'_>, failed: &Failed) {
        for (index, old) in &done.old {
            let slot = self.shape.data_slot(row, *index);
            if !failed.written.contains(slot) {
                continue;
            }
            let shadow = self.members.shadow_of_row(slot, row);
            let member = self.members.of_row(slot, row);
            for member in shadow.into_iter().chain(member) {
                let at = member.data_offset + row * self.shape.chunk() + done.strip.from;
                // An error here is ignored: the first error, the reason for the undo, is returned.
                let _ = member.device.write_at(at, old);
            }
        }
    }

    /// Returns whether the members have the old data and parity of a strip.
    fn is_as_before(&self, row: u64, done: &Prepared<'_>) -> bool {
        let data = done.old.iter().map(|(index, old)| (self.shape.data_slot(row, *index), old));
        let parity = done.old_parity.iter().map(|old| (self.shape.parity_slot(row), old));
        data.chain(parity).all(|(slot, old)| {
            let Some(member) = self.members.of_row(slot, row) else { return true };
            let at = member.data_offset + row * self.shape.chunk() + done.strip.from;
            let mut found = self.scratch.take(done.strip.len());
            member.device.read_at(at, &mut found).is_ok() && found[..] == old[..]
        })
    }

    /// Records the failure of a member. If the row now lacks more than one member, undoes the
    /// half-finished write, stops all writes to the array and returns the error.
    fn settle_failures(
        &self,
        write: &RowWrite<'_>,
        prepared: &[Prepared<'_>],
        missing: Slots,
        mut failed: Failed,
    ) -> Result<(), DeviceError> {
        if failed.slots.is_empty() {
            return self.check_recorded(write.row, missing);
        }
        let gone = |failed: &Failed| missing | failed.slots | self.members.missing(write.row);
        let first = failed.first.take();
        let error = match &first {
            Some(lost) => lost.error.clone(),
            None => {
                let error = ArrayError::TooManyMissing { slots: gone(&failed) };
                error.during(Operation::Write, write.row * self.shape.row_len(), 0)
            }
        };
        let recorded = match first.filter(|_| failed.slots.count() == 1) {
            Some(lost) => self.lose(lost),
            None => Ok(()),
        };
        // This is decided after the failure is recorded, because a write to another row may have
        // lost a second member meanwhile. Readers of the row wait for this write.
        if gone(&failed).count() > 1 || is_full(&error) {
            self.undo(write, prepared, &failed);
            self.stop_writes(&error);
            recorded?;
            return Err(error);
        }
        recorded?;
        self.check_recorded(write.row, missing | failed.slots)
    }

    /// Checks that the failure of these members is recorded. Otherwise the next start could use
    /// these members again, and the data of a write that they missed would be lost.
    fn check_recorded(&self, row: u64, absent: Slots) -> Result<(), DeviceError> {
        if absent.is_empty() {
            return Ok(());
        }
        self.refuse_if_stopped(row * self.shape.row_len(), 0)
    }
}

/// Members that failed during the writes to a row, or were removed since these writes were planned.
#[derive(Default)]
struct Failed {
    slots: Slots,
    /// The error of the first failed member.
    first: Option<Lost>,
    /// Members on which at least one write succeeded.
    written: Slots,
    /// All parity below this byte of the chunks was written.
    parity_below: u64,
}

impl Failed {
    /// Returns whether the row can still be written, that is, whether at most one of its members is
    /// missing.
    fn allows_more(&self, missing: Slots) -> bool {
        (self.slots | missing).count() <= 1
    }
}
