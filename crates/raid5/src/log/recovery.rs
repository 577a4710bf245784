//! Recovery of parity from the partial parity log after a crash.
//!
//! A member's log has entries for the rows whose parity is on this member. Only the newest header
//! is used: all writes before that header were durable when it was written. An entry restores the
//! parity of a row, whichever part of the logged write reached the members. So data that the write
//! did *not* touch can still be computed from parity. If a written member is missing now, the data
//! written to it is lost: no log has this data.
//!
//! Source: "Partial Parity Log" in Linux's md documentation. The results equal the results of
//! kernels 6.1 and 7.2 on the same members, byte for byte.

use crate::base::layout::{BLOCK, Geometry};
use crate::members::Member;
use lanefs_device::{Device, DeviceError};
use lanefs_ondisk::md::{Area, Cause, SECTOR, ppl};
use std::collections::BTreeSet;

/// The result of recovery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LogOutcome {
    /// Entries whose parity was recomputed.
    pub entries: u64,
    /// Damaged entries, and logs without a first header. All of these are ignored.
    pub damaged: u64,
    /// Blocks of 4 KiB whose parity could not be computed, and that were named in a bad-block log.
    pub unreadable: u64,
}

/// A member that cannot be read or written.
#[derive(Debug)]
pub struct SlotError {
    /// The member's slot.
    pub slot: usize,
    /// The error.
    pub error: DeviceError,
}

impl SlotError {
    fn on(slot: usize) -> impl Fn(DeviceError) -> SlotError {
        move |error| SlotError { slot, error }
    }
}

/// The newest header of each log, by slot.
pub struct Logs(Vec<Newest>);

/// The state of a member's log.
enum Newest {
    /// The member has no log, or no valid row whose parity could be in the log.
    NotThere,
    /// The newest header, and its byte offset.
    Header(u64, ppl::Header),
    /// The first header is damaged, as after a crash during its write. No entry was unfinished when
    /// the header was written, since a log starts again only when no entry is unfinished.
    Damaged,
    /// The first header is missing, although every log has had a first header since the array was
    /// created.
    Lost,
}

impl Logs {
    /// Finds the newest header of each member; writes nothing. A member that is being rebuilt is
    /// included, because it has the parity of its valid rows and the log of writes to these rows.
    ///
    /// # Errors
    /// The error of the first member that cannot be read.
    pub fn read(members: &[Option<Member>], signature: u32) -> Result<Logs, SlotError> {
        let newest = |(slot, member): (usize, &Option<Member>)| match member {
            Some(member) if member.recovered > 0 => {
                newest_header(member, signature).map_err(SlotError::on(slot))
            }
            _ => Ok(Newest::NotThere),
        };
        members.iter().enumerate().map(newest).collect::<Result<_, _>>().map(Logs)
    }

    /// Returns the slots whose logs are unreadable, if a crash is unlikely to be the cause. A crash
    /// can tear a header but cannot remove one. One crash rarely tears two headers, since both logs
    /// would have to start again at the same time.
    pub fn unbelievable(&self) -> Vec<usize> {
        let logs = self.0.iter().enumerate();
        let silent = logs.filter(|(_, log)| matches!(log, Newest::Damaged | Newest::Lost));
        let silent: Vec<usize> = silent.map(|(slot, _)| slot).collect();
        let lost = self.0.iter().any(|log| matches!(log, Newest::Lost));
        if lost || silent.len() > 1 { silent } else { Vec::new() }
    }
}

/// Applies the logs.
///
/// # Errors
/// The error of the first member that cannot be read or written.
pub fn recover(
    shape: &Geometry,
    members: &[Option<Member>],
    logs: &Logs,
) -> Result<LogOutcome, SlotError> {
    let mut outcome = LogOutcome::default();
    for (slot, log) in logs.0.iter().enumerate() {
        let (at, header) = match log {
            Newest::NotThere => continue,
            Newest::Damaged | Newest::Lost => {
                outcome.damaged += 1;
                continue;
            }
            Newest::Header(at, header) => (*at, header),
        };
        let mut parity_at = at + ppl::HEADER_SIZE as u64;
        for entry in &header.entries {
            let log = LoggedEntry { slot, entry, at: parity_at };
            match log.apply(shape, members)? {
                Applied::Done { unreadable } => {
                    outcome.entries += 1;
                    outcome.unreadable += unreadable;
                }
                Applied::Damaged => outcome.damaged += 1,
            }
            parity_at = parity_at.saturating_add(entry.pp_size.into());
        }
    }
    for (slot, member) in there(members) {
        member.device.flush().map_err(SlotError::on(slot))?;
    }
    Ok(outcome)
}

/// Computes the parity of the first block of row 0 from the data of this block, and writes the
/// parity durably. Does nothing if a member of the first row is missing.
///
/// # Errors
/// The error of the first member that cannot be read or written.
pub fn restore_first_block(shape: &Geometry, members: &[Option<Member>]) -> Result<(), SlotError> {
    let (slot, disks) = (shape.parity_slot(0), shape.data() as u64);
    let Some(parity) = members.get(slot).and_then(Option::as_ref) else { return Ok(()) };
    let extent = Extent { first: 0, last: shape.row_len(), strip: BLOCK, disks };
    if let Some(bytes) = xor_of_data(shape, members, &extent, 0, BLOCK)? {
        let written = parity.device.write_durable_at(parity.data_offset, &bytes);
        written.map_err(SlotError::on(slot))?;
    }
    Ok(())
}

/// Empties the log of every member: old entries must not be applied after later writes.
///
/// # Errors
/// The error of the first member that cannot be written.
pub fn clear(members: &[Option<Member>], signature: u32) -> Result<(), SlotError> {
    there(members)
        .try_for_each(|(slot, member)| clear_one(member, signature).map_err(SlotError::on(slot)))
}

fn clear_one(member: &Member, signature: u32) -> Result<(), DeviceError> {
    let Some(log) = member.log else { return Ok(()) };
    write_empty(&*member.device, log, signature)?;
    member.device.flush()
}

/// Writes a log without entries.
pub fn write_empty(device: &dyn Device, log: Area, signature: u32) -> Result<(), DeviceError> {
    device.write_zeros(log.offset, log.len)?;
    let mut block = [0; ppl::HEADER_SIZE];
    ppl::Header::empty(signature).encode_into(&mut block);
    device.write_at(log.offset, &block)
}

fn there(members: &[Option<Member>]) -> impl Iterator<Item = (usize, &Member)> {
    let all = members.iter().enumerate();
    all.filter_map(|(slot, member)| Some((slot, member.as_ref()?)))
}

/// Finds the last header of the chain. The chain starts at the first header, and generations do not
/// decrease along the chain.
fn newest_header(member: &Member, signature: u32) -> Result<Newest, DeviceError> {
    let Some(log) = member.log else { return Ok(Newest::NotThere) };
    let end = log.offset.saturating_add(log.len).min(member.device.len());
    let mut newest = Newest::Lost;
    let mut at = log.offset;
    let mut block = [0; ppl::HEADER_SIZE];
    // A header and its partial parity are at least one block, so this loop terminates.
    while at.saturating_add(ppl::HEADER_SIZE as u64) <= end {
        member.device.read_at(at, &mut block)?;
        let header = match (ppl::Header::decode(&block, signature), &newest) {
            (Ok(header), _) => header,
            (Err(Cause::NotALog), _) | (Err(_), Newest::Header(..)) => break,
            (Err(_), _) => {
                newest = Newest::Damaged;
                break;
            }
        };
        if matches!(&newest, Newest::Header(_, before) if before.generation > header.generation) {
            break;
        }
        let next = at.saturating_add(header.span());
        newest = Newest::Header(at, header);
        at = next;
    }
    Ok(newest)
}

enum Applied {
    Done { unreadable: u64 },
    Damaged,
}

/// An entry, and the log that contains it.
struct LoggedEntry<'a> {
    /// The slot of the member with this log.
    slot: usize,
    entry: &'a ppl::Entry,
    /// The offset of the entry's partial parity.
    at: u64,
}

/// The bytes of the array that an entry covers: `disks` pieces of `strip` bytes each. Each piece
/// starts one chunk after the start of the previous piece.
struct Extent {
    first: u64,
    last: u64,
    strip: u64,
    disks: u64,
}

impl LoggedEntry<'_> {
    fn apply(&self, shape: &Geometry, members: &[Option<Member>]) -> Result<Applied, SlotError> {
        let Some(parity) = members.get(self.slot).and_then(Option::as_ref) else {
            return Ok(Applied::Damaged);
        };
        let Some(extent) = self.extent(shape) else { return Ok(Applied::Damaged) };
        let partial = self.partial_parity(parity).map_err(SlotError::on(self.slot))?;
        let Some(partial) = partial else { return Ok(Applied::Damaged) };
        let block = block_of(&extent);
        let (mut at, mut bad) = (0, BTreeSet::new());
        while at < extent.strip {
            let place = shape.place(extent.first + at);
            let on_member = place.row * shape.chunk() + place.offset;
            let sum = match xor_of_data(shape, members, &extent, at, block) {
                // Nothing must be computed from this parity, since it may be that of other data.
                Err(_) if parity.mark_bad(on_member, block) => {
                    bad.insert(on_member / BLOCK);
                    None
                }
                sum => sum?,
            };
            if let Some(mut bytes) = sum {
                if let Some(partial) = partial.get(at as usize..(at + block) as usize) {
                    bytes.iter_mut().zip(partial).for_each(|(byte, partial)| *byte ^= partial);
                }
                let to = parity.data_offset + on_member;
                parity.device.write_at(to, &bytes).map_err(SlotError::on(self.slot))?;
            }
            at += block;
        }
        Ok(Applied::Done { unreadable: bad.len() as u64 })
    }

    /// Returns the bytes of the array that the entry covers; `None` if the entry does not lie
    /// within one row whose parity this member has.
    fn extent(&self, shape: &Geometry) -> Option<Extent> {
        let entry = self.entry;
        let (pp, data) = (u64::from(entry.pp_size), u64::from(entry.data_size));
        let (chunk, data_disks) = (shape.chunk(), shape.data() as u64);
        let first = entry.data_sector.checked_mul(SECTOR)?;
        let (disks, strip) = match pp {
            0 if data < chunk * data_disks => (data_disks, data / data_disks),
            pp if 0 < pp && pp < chunk => (data / pp, pp),
            _ => (data_disks, chunk),
        };
        let last = match disks.checked_sub(1)? {
            _ if strip == chunk => first.checked_add(data)?,
            before => first.checked_add(before * chunk)?.checked_add(strip)?,
        };
        let in_sectors = strip % SECTOR == 0 && strip > 0 && pp % SECTOR == 0;
        let own = entry.parity_disk as usize == self.slot;
        if disks > data_disks || last > shape.len() || !in_sectors || !own || pp > strip {
            return None;
        }
        // The whole entry must be in one row, and this member must have the row's parity.
        let (start, end) = (shape.place(first), shape.place(last.checked_sub(1)?));
        let on_one_row = start.row == end.row && start.offset + strip <= chunk;
        (on_one_row && shape.parity_slot(start.row) == self.slot).then_some(Extent {
            first,
            last,
            strip,
            disks,
        })
    }

    /// Reads the partial parity; `None` if it is damaged.
    fn partial_parity(&self, member: &Member) -> Result<Option<Vec<u8>>, DeviceError> {
        let within = member.log.is_some_and(|log| {
            let end = self.at.checked_add(self.entry.pp_size.into());
            end.is_some_and(|end| end <= log.offset.saturating_add(log.len))
        });
        if !within {
            return Ok(None);
        }
        // The entry is not longer than the log, which is smaller than 32 MiB.
        let mut bytes = vec![0; self.entry.pp_size as usize];
        if bytes.is_empty() {
            return Ok(Some(bytes));
        }
        member.device.read_at(self.at, &mut bytes)?;
        Ok((ppl::checksum(&bytes) == self.entry.checksum).then_some(bytes))
    }
}

/// Returns the number of bytes for which parity is computed at once: a block of 4 KiB, or a sector
/// if the entry does not cover whole blocks.
fn block_of(extent: &Extent) -> u64 {
    let whole = extent.first.is_multiple_of(4096) && extent.strip.is_multiple_of(4096);
    if whole { 4096 } else { SECTOR }
}

/// Computes the XOR of the blocks at offset `at` of all pieces in `extent`. Returns `None` if the
/// member with one of these blocks is missing or not yet rebuilt in this row, or if no piece has a
/// block at this offset.
fn xor_of_data(
    shape: &Geometry,
    members: &[Option<Member>],
    extent: &Extent,
    at: u64,
    block: u64,
) -> Result<Option<Vec<u8>>, SlotError> {
    let mut sum = vec![0; block as usize];
    let mut piece = vec![0; block as usize];
    let mut any = false;
    for disk in 0..extent.disks {
        let from = extent.first + at + disk * shape.chunk();
        if from >= extent.last {
            continue;
        }
        let place = shape.place(from);
        let slot = shape.data_slot(place.row, place.index);
        let on_member = place.row * shape.chunk() + place.offset;
        let member = members.get(slot).and_then(Option::as_ref);
        let Some(member) = member.filter(|member| on_member + block <= member.recovered) else {
            return Ok(None);
        };
        let read = member.device.read_at(member.data_offset + on_member, &mut piece);
        read.map_err(SlotError::on(slot))?;
        sum.iter_mut().zip(&piece).for_each(|(sum, byte)| *sum ^= byte);
        any = true;
    }
    Ok(any.then_some(sum))
}
