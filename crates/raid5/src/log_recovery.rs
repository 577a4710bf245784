//! What the partial parity log says after a crash.
//!
//! Each log has entries for the rows whose parity its member has. The newest header alone counts:
//! all writes before it were durable when it was written. An entry gives parity again from the
//! data that the writes of its moment left, whichever part of them that is, and so the data that
//! they did *not* touch stays readable through parity. A member that was written to and is now
//! missing cannot be helped: what was on its way there is not in any log.
//!
//! Source: "Partial Parity Log" in Linux's md documentation; the results are those of kernels 6.1
//! and 7.2 on the same members, byte for byte.

use crate::layout::Geometry;
use crate::standing::Member;
use lanefs_device::{Device, DeviceError};
use lanefs_ondisk::md::{Cause, SECTOR, ppl};

/// What was found and done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LogOutcome {
    /// Entries whose parity was made again.
    pub entries: u64,
    /// Entries that were damaged, and logs without a first header; they tell nothing.
    pub damaged: u64,
}

/// A member that cannot be read or written.
#[derive(Debug)]
pub struct Failed {
    /// Its slot.
    pub slot: usize,
    /// What it said.
    pub error: DeviceError,
}

impl Failed {
    fn of(slot: usize) -> impl Fn(DeviceError) -> Failed {
        move |error| Failed { slot, error }
    }
}

/// The newest header of each log, by slot.
pub struct Logs(Vec<Newest>);

/// What was found in a member's log.
enum Newest {
    /// The member has none, or no row yet whose parity it could be about.
    NotThere,
    /// The last header, and its byte.
    Header(u64, ppl::Header),
    /// The first header is damaged, as one may be that a crash came into. Nothing was unfinished
    /// when it was written, for the log began again there.
    Damaged,
    /// There is no header where every log has one since the array was made.
    Lost,
}

impl Logs {
    /// Looks for the newest header of each member; nothing is written. One that is being rebuilt has
    /// the parity of the rows that it was given, and the log of their writes.
    ///
    /// # Errors
    /// The first member that cannot be read.
    pub fn read(members: &[Option<Member>], signature: u32) -> Result<Logs, Failed> {
        let newest = |(slot, member): (usize, &Option<Member>)| match member {
            Some(member) if member.recovered > 0 => {
                newest_header(member, signature).map_err(Failed::of(slot))
            }
            _ => Ok(Newest::NotThere),
        };
        members.iter().enumerate().map(newest).collect::<Result<_, _>>().map(Logs)
    }

    /// The slots whose logs say nothing, if that is hardly the work of a crash: one header may be
    /// torn by it, but none disappears, and that two logs begin again at once is rare enough to ask.
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
/// The first member that cannot be read or written.
pub fn recover(
    shape: &Geometry,
    members: &[Option<Member>],
    logs: &Logs,
) -> Result<LogOutcome, Failed> {
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
            let log = Logged { slot, entry, at: parity_at };
            match log.apply(shape, members)? {
                Applied::Done => outcome.entries += 1,
                Applied::Damaged => outcome.damaged += 1,
            }
            parity_at = parity_at.saturating_add(entry.pp_size.into());
        }
    }
    for (slot, member) in there(members) {
        member.device.flush().map_err(Failed::of(slot))?;
    }
    Ok(outcome)
}

/// Empties the log of every member: what is in it must not be applied to what is written next.
///
/// # Errors
/// The first member that cannot be written.
pub fn clear(members: &[Option<Member>], signature: u32) -> Result<(), Failed> {
    there(members)
        .try_for_each(|(slot, member)| clear_one(member, signature).map_err(Failed::of(slot)))
}

fn clear_one(member: &Member, signature: u32) -> Result<(), DeviceError> {
    let Some(log) = member.log else { return Ok(()) };
    member.device.write_zeros(log.offset, log.len)?;
    let mut block = [0; ppl::HEADER_SIZE];
    ppl::Header::empty(signature).encode_into(&mut block);
    member.device.write_at(log.offset, &block)?;
    member.device.flush()
}

fn there(members: &[Option<Member>]) -> impl Iterator<Item = (usize, &Member)> {
    let all = members.iter().enumerate();
    all.filter_map(|(slot, member)| Some((slot, member.as_ref()?)))
}

/// The last header that follows from the first without falling generations.
fn newest_header(member: &Member, signature: u32) -> Result<Newest, DeviceError> {
    let Some(log) = member.log else { return Ok(Newest::NotThere) };
    let end = log.offset.saturating_add(log.len).min(member.device.len());
    let mut newest = Newest::Lost;
    let mut at = log.offset;
    let mut block = [0; ppl::HEADER_SIZE];
    // A header spans at least its own block, so this ends.
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
    Done,
    Damaged,
}

/// An entry, and where it was found.
struct Logged<'a> {
    /// The member whose log it is in.
    slot: usize,
    entry: &'a ppl::Entry,
    /// The byte of its partial parity.
    at: u64,
}

/// An entry's bytes of the array: `disks` strips of `strip` bytes, a chunk apart.
struct Extent {
    first: u64,
    last: u64,
    strip: u64,
    disks: u64,
}

impl Logged<'_> {
    fn apply(&self, shape: &Geometry, members: &[Option<Member>]) -> Result<Applied, Failed> {
        let Some(parity) = members.get(self.slot).and_then(Option::as_ref) else {
            return Ok(Applied::Damaged);
        };
        let Some(extent) = self.extent(shape) else { return Ok(Applied::Damaged) };
        let partial = self.partial_parity(parity).map_err(Failed::of(self.slot))?;
        let Some(partial) = partial else { return Ok(Applied::Damaged) };
        let block = block_of(&extent);
        let mut at = 0;
        while at < extent.strip {
            if let Some(mut bytes) = xor_of_data(shape, members, &extent, at, block)? {
                if let Some(partial) = partial.get(at as usize..(at + block) as usize) {
                    bytes.iter_mut().zip(partial).for_each(|(byte, partial)| *byte ^= partial);
                }
                let place = shape.place(extent.first + at);
                let to = parity.data_offset + place.row * shape.chunk() + place.offset;
                parity.device.write_at(to, &bytes).map_err(Failed::of(self.slot))?;
            }
            at += block;
        }
        Ok(Applied::Done)
    }

    /// The bytes that the entry is about; `None` if there are no such, on this member's rows.
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
        // All of it is on one row, whose parity this member has.
        let (start, end) = (shape.place(first), shape.place(last.checked_sub(1)?));
        let on_one_row = start.row == end.row && start.offset + strip <= chunk;
        (on_one_row && shape.parity_slot(start.row) == self.slot).then_some(Extent {
            first,
            last,
            strip,
            disks,
        })
    }

    /// The partial parity; `None` if it is damaged.
    fn partial_parity(&self, member: &Member) -> Result<Option<Vec<u8>>, DeviceError> {
        let within = member.log.is_some_and(|log| {
            let end = self.at.checked_add(self.entry.pp_size.into());
            end.is_some_and(|end| end <= log.offset.saturating_add(log.len))
        });
        if !within {
            return Ok(None);
        }
        // No longer than the log, which is below 32 MiB.
        let mut bytes = vec![0; self.entry.pp_size as usize];
        if bytes.is_empty() {
            return Ok(Some(bytes));
        }
        member.device.read_at(self.at, &mut bytes)?;
        Ok((ppl::checksum(&bytes) == self.entry.checksum).then_some(bytes))
    }
}

/// The size that parity is made in: blocks of 4 KiB, or sectors if the entry is not of whole ones.
fn block_of(extent: &Extent) -> u64 {
    let whole = extent.first.is_multiple_of(4096) && extent.strip.is_multiple_of(4096);
    if whole { 4096 } else { SECTOR }
}

/// The data of one block of all strips; `None` if one of them cannot be had.
fn xor_of_data(
    shape: &Geometry,
    members: &[Option<Member>],
    extent: &Extent,
    at: u64,
    block: u64,
) -> Result<Option<Vec<u8>>, Failed> {
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
        read.map_err(Failed::of(slot))?;
        sum.iter_mut().zip(&piece).for_each(|(sum, byte)| *sum ^= byte);
        any = true;
    }
    Ok(any.then_some(sum))
}
