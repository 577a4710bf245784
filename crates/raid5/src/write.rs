//! Writing a row, on the thread that asked for it.
//!
//! Read what the plan asks for; find the new parity; log what the row would need if it were left
//! half written; write data and parity. Up to the first write a failed member only means another
//! plan. From there on nothing is read again: what is to be written is known, and whoever fails is
//! done without, since the new data is whole in what the others get.

use crate::array::{Array, Durability, Lost};
use crate::band::{Piece, RowPart, Source, Strip, pieces, strips};
use crate::counters::Count;
use crate::parity_log::{LogOutcome, LogPart, ParityLog};
use crate::read::{ReadError, Stretch};
use crate::rows::{Mode, Span};
use crate::scratch::Buffer;
use crate::standing::Member;
use crate::{ArrayError, Band, Method, Missing, Place, Plan, Slots, Trust, plan};
use lanefs_device::{Device, DeviceError, Operation};
use lanefs_lanes::sync::atomic::{Ordering, fence};
use lanefs_lanes::xor;

/// Strips of a row that are carried out together, and what they write.
pub(crate) struct RowWrite<'w> {
    pub(crate) row: u64,
    pieces: &'w [Piece],
    strips: &'w [Strip],
    source: &'w Source<'w>,
    how: Durability,
}

/// A strip with all that was read for it.
struct Prepared<'a> {
    strip: Strip,
    plan: Plan,
    /// Old content by data chunk, as long as the strip.
    old: Vec<(usize, Buffer<'a>)>,
    old_parity: Option<Buffer<'a>>,
    /// New content of chunks that are written in part.
    merged: Vec<(usize, Buffer<'a>)>,
}

/// Bytes that go into a sum.
#[derive(Clone, Copy)]
enum Content<'a> {
    /// As long as the strip.
    Buffer(&'a [u8]),
    /// From the request, where it may lie in several buffers.
    Given { source: &'a Source<'a>, at: u64 },
}

impl<'a> Content<'a> {
    /// What lies in one piece from byte `at` of the strip on.
    fn rest(self, at: usize) -> &'a [u8] {
        match self {
            Content::Buffer(bytes) => &bytes[at..],
            Content::Given { source, at: start } => source.rest(start + at as u64),
        }
    }
}

/// Sets `into` to the sum of `contents`, taking each stretch that lies whole in all of them.
fn sum(into: &mut [u8], contents: &[Content<'_>]) {
    let mut at = 0;
    while at < into.len() {
        let rests: Vec<&[u8]> = contents.iter().map(|c| c.rest(at)).collect();
        let len = rests.iter().map(|r| r.len()).min().unwrap_or(usize::MAX).min(into.len() - at);
        assert!(len > 0, "a request's bytes end before its strips");
        let parts: Vec<&[u8]> = rests.iter().map(|r| &r[..len]).collect();
        xor(&mut into[at..at + len], &parts);
        at += len;
    }
}

/// Entries of one write in a log header: half of what a header has, so that others fit in.
const PARTS: usize = lanefs_ondisk::md::ppl::MAX_ENTRIES / 2;

/// Bytes of data of one entry: it has 32 bits to count them.
const PER_ENTRY: u64 = 1 << 31;

/// md counts the array in units of this many bytes.
const SECTOR: u64 = 512;

/// Strips put together so that the partial parity of each load is at most `most` bytes. Strips
/// that write `all` chunks have none.
fn loads(strips: Vec<Strip>, all: Slots, most: u64) -> Vec<Vec<Strip>> {
    let mut loads: Vec<Vec<Strip>> = vec![Vec::new()];
    let mut bytes = 0;
    let cut = |strip: Strip| match strip.written == all {
        true => strip.cut(PER_ENTRY / all.count() as u64),
        false => strip.cut(most),
    };
    for strip in strips.into_iter().flat_map(cut) {
        let more = if strip.written == all { 0 } else { strip.len() };
        let full = loads.last().is_some_and(|l| bytes + more > most || l.len() >= PARTS);
        if full {
            loads.push(Vec::new());
            bytes = 0;
        }
        bytes += more;
        if let Some(load) = loads.last_mut() {
            load.push(strip);
        }
    }
    loads
}

impl Array {
    pub(crate) fn write_row(
        &self,
        part: RowPart,
        source: &Source<'_>,
        how: Durability,
    ) -> Result<(), DeviceError> {
        let pieces = pieces(&self.shape, part);
        let strips = strips(&pieces);
        let (Some(first), Some(last)) = (strips.first(), strips.last()) else { return Ok(()) };
        let span = Span { row: part.row, from: first.from, to: last.to, mode: Mode::Exclusive };
        let hold = self.rows.lock(span);
        self.counters.add(Count::RowWait, u64::from(hold.waited));
        let _unit = self.budget.take(part.row, &self.counters);
        // The unit is taken before what it protects is looked at: see `RowBudget::all_at_home`.
        fence(Ordering::SeqCst);
        self.refuse_if_stopped(part.row * self.shape.row_len() + part.first, part.len)?;
        self.begin()?;
        self.intend(&span)?;
        let log = self.log_of(part.row);
        let all = Slots::below(self.shape.data());
        for strips in loads(strips, all, log.map_or(u64::MAX, ParityLog::per_write)) {
            let (row, pieces, strips) = (part.row, &pieces[..], &strips[..]);
            self.carry_out(&RowWrite { row, pieces, strips, source, how }, log)?;
        }
        Ok(())
    }

    /// # Locking
    /// The caller holds the strips' range exclusively, and a unit of the budget.
    fn carry_out(&self, write: &RowWrite<'_>, log: Option<&ParityLog>) -> Result<(), DeviceError> {
        let (missing, prepared) = self.prepare(write)?;
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
                LogOutcome::Durable(ticket) => Some((log, ticket)),
                LogOutcome::NoMember => None,
            },
            _ => None,
        };
        let mut failed = Failed::default();
        self.write_data(write, missing, &mut failed);
        if !missing.contains(self.shape.parity_slot(write.row)) && failed.allows_more(missing) {
            self.write_parity(write, base, &parity, &mut failed);
        }
        self.settle_failures(write, &prepared, missing, failed)?;
        match (logged, write.how) {
            (Some((log, ticket)), Durability::Cached) => log.written(ticket, self.gate.begun()),
            (Some((log, ticket)), Durability::Durable) => log.finished(ticket),
            (None, _) => {}
        }
        Ok(())
    }

    /// Finds the new parity by way of the partial one, which goes into the log.
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
        let place = Place { row: write.row, index: written.first().unwrap_or(0), offset: from };
        LogPart {
            from,
            to,
            data_sector: self.shape.array_byte(place) / SECTOR,
            data_size: (to - from) * written.count() as u64,
            partial,
        }
    }

    /// Reads what the plans of all strips ask for. Gives the members that the row does without.
    fn prepare(&self, write: &RowWrite<'_>) -> Result<(Slots, Vec<Prepared<'_>>), DeviceError> {
        loop {
            let missing = self.members.missing(write.row);
            if missing.count() > 1 {
                let error = ArrayError::TooManyMissing { slots: missing };
                return Err(error.of(Operation::Write, write.row * self.shape.row_len(), 0));
            }
            let all = write.strips.iter().map(|strip| self.prepare_strip(write, *strip, missing));
            match all.collect() {
                Ok(prepared) => return Ok((missing, prepared)),
                // Without who is gone there is another plan. None comes into a row that is held, so
                // this ends.
                Err(ReadError::Gone) => {}
                Err(ReadError::Lost(lost)) if self.correct(&lost)? => {}
                Err(ReadError::Lost(lost)) => self.lose(lost)?,
                Err(ReadError::Final(error)) => return Err(error),
            }
        }
    }

    fn prepare_strip(
        &self,
        write: &RowWrite<'_>,
        strip: Strip,
        missing: Slots,
    ) -> Result<Prepared<'_>, ReadError> {
        let plan = self.plan_strip(write.row, strip, missing).map_err(ReadError::Final)?;
        self.counters.add(
            match plan.method {
                Method::NoParity => Count::NoParity,
                Method::FullRow => Count::FullRow,
                Method::Reconstruct => Count::Reconstruct,
                Method::Modify => Count::Modify,
            },
            1,
        );
        let place = Stretch { row: write.row, from: strip.from };
        let read = |slot: usize, what: Count| -> Result<Buffer<'_>, ReadError> {
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

    fn plan_strip(&self, row: u64, strip: Strip, missing: Slots) -> Result<Plan, DeviceError> {
        let lost = match missing.first() {
            None => Missing::Nothing,
            Some(slot) => match self.shape.index_of(row, slot) {
                None => Missing::Parity,
                Some(index) => Missing::Data(index),
            },
        };
        // Of a row that misses a member, the parity is all there is.
        let unknown = lost == Missing::Nothing && self.unsynced.contains(row);
        let band = Band {
            data: self.shape.data(),
            written: strip.written,
            partial: strip.partial,
            missing: lost,
            parity: if unknown { Trust::Unknown } else { Trust::Right },
        };
        plan(band).ok_or_else(|| {
            ArrayError::Unknown { row }.of(Operation::Write, row * self.shape.row_len(), 0)
        })
    }

    /// The new content of a chunk that is written in part: the old one, less what is given.
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

    /// Writes each stretch of parity that is without a gap.
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
        // A member that was taken out since is done without, as if it failed now.
        let Some(member) = self.members.of_row(slot, write.row) else {
            failed.slots |= Slots::one(slot);
            return;
        };
        let at = member.data_offset + write.row * self.shape.chunk() + from;
        match put_slices(&member, at, slices, write.how) {
            Ok(()) => failed.written |= Slots::one(slot),
            Err(error) => {
                failed.slots |= Slots::one(slot);
                failed.first.get_or_insert(Lost::new(member.id, error));
            }
        }
    }

    /// Writes old content back where new was written already, after a failure that stops writes.
    ///
    /// The row misses another member, and what that one had is known by the old parity and the old
    /// data alone: half a write would lose what was acknowledged long ago. Of chunks that were
    /// reconstructed rather than modified nothing is known, and nothing else depends on them. Strips
    /// whose parity was written are whole: theirs is the new data.
    fn undo(&self, write: &RowWrite<'_>, prepared: &[Prepared<'_>], failed: &Failed) {
        let half = |done: &&Prepared<'_>| {
            done.plan.method == Method::Modify && done.strip.from >= failed.parity_below
        };
        for done in prepared.iter().filter(half) {
            for (index, old) in &done.old {
                let slot = self.shape.data_slot(write.row, *index);
                let Some(member) = self.members.of_row(slot, write.row) else { continue };
                if failed.written.contains(slot) {
                    let at = member.data_offset + write.row * self.shape.chunk() + done.strip.from;
                    // Its error would say no more than the one that made this necessary.
                    let _ = member.device.write_at(at, old);
                }
            }
        }
    }

    /// Records who failed, and makes sure that the row is whole without them.
    fn settle_failures(
        &self,
        write: &RowWrite<'_>,
        prepared: &[Prepared<'_>],
        missing: Slots,
        mut failed: Failed,
    ) -> Result<(), DeviceError> {
        if failed.slots.is_empty() {
            return Ok(());
        }
        let gone = |failed: &Failed| missing | failed.slots | self.members.missing(write.row);
        if gone(&failed).count() > 1 {
            self.undo(write, prepared, &failed);
        }
        let first = failed.first.take();
        let error = match &first {
            Some(lost) => lost.error.clone(),
            None => {
                let error = ArrayError::TooManyMissing { slots: gone(&failed) };
                error.of(Operation::Write, write.row * self.shape.row_len(), 0)
            }
        };
        if let Some(lost) = first.filter(|_| failed.slots.count() == 1) {
            self.lose(lost)?;
        }
        if gone(&failed).count() > 1 {
            self.stop_writes(&error);
            return Err(error);
        }
        Ok(())
    }
}

/// Members that failed in the writes of a row, or were taken out since it was planned.
#[derive(Default)]
struct Failed {
    slots: Slots,
    /// What the first of those that failed said.
    first: Option<Lost>,
    /// Members that got what they were to get.
    written: Slots,
    /// Below this byte of the chunks all parity was written.
    parity_below: u64,
}

impl Failed {
    /// Whether the row can still be written: it does without one member, and no more.
    fn allows_more(&self, missing: Slots) -> bool {
        (self.slots | missing).count() <= 1
    }
}

fn put_slices(
    member: &Member,
    at: u64,
    slices: &[&[u8]],
    how: Durability,
) -> Result<(), DeviceError> {
    match (how, slices) {
        (Durability::Cached, [one]) => member.device.write_at(at, one),
        (Durability::Cached, many) => member.device.write_vectored_at(at, many),
        (Durability::Durable, [one]) => member.device.write_durable_at(at, one),
        (Durability::Durable, many) => member.device.write_durable_at(at, &many.concat()),
    }
}

impl Prepared<'_> {
    /// What goes into the new parity besides what is written: the partial parity.
    fn kept(&self) -> Vec<Content<'_>> {
        let of = |which: Slots| {
            self.old
                .iter()
                .filter(move |(i, _)| which.contains(*i))
                .map(|(_, b)| Content::Buffer(b))
        };
        match self.plan.method {
            Method::NoParity | Method::FullRow => Vec::new(),
            Method::Reconstruct => of(self.rest()).collect(),
            Method::Modify => {
                let parity = self.old_parity.as_deref().map(Content::Buffer);
                of(self.strip.written).chain(parity).collect()
            }
        }
    }

    fn new_parity(&self, write: &RowWrite<'_>, into: &mut [u8]) {
        let mut contents = self.kept();
        contents.extend(self.given(write));
        sum(into, &contents);
    }

    fn rest(&self) -> Slots {
        self.old.iter().map(|(i, _)| *i).collect::<Slots>() - self.strip.written
    }

    /// What is written, whole blocks.
    fn given<'a>(&'a self, write: &'a RowWrite<'_>) -> impl Iterator<Item = Content<'a>> {
        let merged = self.merged.iter().map(|(_, b)| Content::Buffer(b));
        let whole = write.pieces.iter().filter_map(|piece| {
            let piece = piece.clip(self.strip.from, self.strip.to)?;
            let partial = self.strip.partial.contains(piece.index);
            (!partial).then_some(Content::Given { source: write.source, at: piece.at })
        });
        merged.chain(whole)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn entries_count_their_data_in_32_bits_whatever_is_written() {
        for (count, len) in [(2, 65536), (4, 1 << 30), (31, 1 << 30)] {
            let all = Slots::below(count);
            let whole = Strip { from: 0, to: len, written: all, partial: Slots::NONE };
            let loads = loads(vec![whole], all, 1 << 17);
            let strips: Vec<Strip> = loads.concat();
            assert_eq!(strips.iter().map(Strip::len).sum::<u64>(), len);
            assert!(strips.iter().all(|s| u32::try_from(s.len() * count as u64).is_ok()));
            assert_eq!(strips.len(), if len == 65536 { 1 } else { strips.len().max(2) });
        }
    }
}
