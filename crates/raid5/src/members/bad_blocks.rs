//! The bad blocks of a member: ranges that its bad-block log names, since their contents are wrong.
//!
//! The ranges are in memory while the array is open. A read of such a range fails, so the array
//! computes the data from the other members, as after a read error of the device. A successful
//! write makes the range good again. The log on the member is written with the next change of the
//! superblock, at the latest by the next flush. It names a range that was written until the device
//! has flushed the write: after a power cut the device may have the old contents.

use lanefs_device::{Device, DeviceError, Operation, ReadKind, WriteKind, forward, total_len};
use lanefs_lanes::sync::Arc;
use lanefs_lanes::sync::atomic::{AtomicBool, Ordering};
use lanefs_lanes::{Mutex, Rank};
use lanefs_ondisk::md::{self, BadBlocks as HasEntries, SECTOR, Superblock};
use std::io;
use std::ops::Range;

/// The largest number of bytes that one entry of a log covers.
const PER_ENTRY: u64 = 512 * SECTOR;
/// The size of an entry in bytes.
const ENTRY: u64 = 8;

/// The known bad ranges of a member.
#[derive(Debug)]
pub struct BadBlocks {
    /// The address of the device below.
    device: usize,
    /// The number of entries that fit into the log on the member.
    most: u64,
    /// Whether there are any ranges.
    any: AtomicBool,
    /// Whether the log on the member lacks a change.
    changed: AtomicBool,
    ranges: Mutex<Ranges>,
}

/// Byte ranges of a device, in whole sectors.
#[derive(Debug, Default)]
struct Ranges {
    /// The bad ranges, sorted and without overlaps.
    bad: Vec<Range<u64>>,
    /// Ranges that were bad and have been written since the last flush, each with its number.
    cached: Vec<(u64, Range<u64>)>,
    /// The number of the next written range.
    next: u64,
    /// The ranges that the log on the member names.
    stored: Vec<Range<u64>>,
}

impl BadBlocks {
    /// Creates the list of a member; `ranges` are byte ranges of its device that its log names.
    pub(crate) fn new(
        device: &Arc<dyn Device>,
        superblock: &Superblock,
        ranges: Vec<Range<u64>>,
    ) -> BadBlocks {
        let log = superblock.bad_block_log().filter(|_| superblock.bad_block_shift() == 0);
        let all = merged(ranges);
        BadBlocks {
            device: address(device),
            most: log.map_or(0, |log| log.len / ENTRY),
            any: AtomicBool::new(!all.is_empty()),
            changed: AtomicBool::new(false),
            ranges: Mutex::new(
                Rank::Bucket,
                Ranges { stored: all.clone(), bad: all, ..Ranges::default() },
            ),
        }
    }

    /// Returns whether these are the bad blocks of `device`.
    pub(crate) fn are_of(&self, device: &Arc<dyn Device>) -> bool {
        self.device == address(device)
    }

    /// Returns whether a bad sector is in this range.
    pub(crate) fn overlaps(&self, at: u64, len: u64) -> bool {
        let end = at.saturating_add(len);
        let overlaps = |bad: &Range<u64>| bad.start < end && at < bad.end;
        self.any.load(Ordering::Acquire) && self.ranges.lock().bad.iter().any(overlaps)
    }

    /// Adds the sectors of this range. Returns `false` if the log has no room for them.
    #[must_use]
    pub(crate) fn mark(&self, at: u64, len: u64) -> bool {
        let mut ranges = self.ranges.lock();
        let end = at.saturating_add(len).next_multiple_of(SECTOR);
        let mut with = ranges.bad.clone();
        with.push(at / SECTOR * SECTOR..end);
        let with = merged(with);
        let entries = |range: &Range<u64>| (range.end - range.start).div_ceil(PER_ENTRY);
        if with.iter().map(entries).sum::<u64>() > self.most {
            return false;
        }
        ranges.bad = with;
        self.any.store(true, Ordering::Release);
        self.changed.store(true, Ordering::Release);
        true
    }

    /// Removes the sectors that are wholly in this range, which was written.
    fn clear(&self, at: u64, len: u64, how: WriteKind) {
        if !self.any.load(Ordering::Acquire) {
            return;
        }
        let (from, to) = (at.next_multiple_of(SECTOR), at.saturating_add(len) / SECTOR * SECTOR);
        let mut ranges = self.ranges.lock();
        let rest = |bad: &Range<u64>| {
            let before = bad.start..bad.end.min(from);
            let after = bad.start.max(to)..bad.end;
            if from < to { [before, after] } else { [bad.clone(), 0..0] }
        };
        let left: Vec<_> =
            ranges.bad.iter().flat_map(rest).filter(|range| !range.is_empty()).collect();
        if left != ranges.bad {
            if !how.is_durable() && self.most > 0 {
                let Ranges { bad, cached, next, .. } = &mut *ranges;
                let gone = bad.iter().map(|bad| bad.start.max(from)..bad.end.min(to));
                for range in gone.filter(|range| !range.is_empty()) {
                    cached.push((*next, range));
                    *next += 1;
                }
            }
            self.any.store(!left.is_empty(), Ordering::Release);
            ranges.bad = left;
            self.changed.store(self.most > 0, Ordering::Release);
        }
    }

    /// Runs a flush of the device. The log need not name the ranges that were written before it.
    fn flush(&self, flush: impl FnOnce() -> Result<(), DeviceError>) -> Result<(), DeviceError> {
        if !self.is_changed() {
            return flush();
        }
        let next = self.ranges.lock().next;
        flush()?;
        self.ranges.lock().cached.retain(|(number, _)| *number >= next);
        Ok(())
    }

    /// Returns whether the log on the member lacks a change.
    pub(crate) fn is_changed(&self) -> bool {
        self.changed.load(Ordering::Acquire)
    }

    /// Writes the log if it lacks a change, and sets the superblock's feature bit, which the caller
    /// writes afterwards. Without room in the log for the remaining ranges, the log stays as it is
    /// if it names all of them.
    ///
    /// # Errors
    /// If the log cannot be written, or has no room for a range that it does not name.
    pub(crate) fn store(
        &self,
        device: &dyn Device,
        superblock: &mut Superblock,
    ) -> Result<(), DeviceError> {
        let log = superblock.bad_block_log().filter(|_| self.most > 0);
        let Some(area) = log.filter(|_| self.changed.swap(false, Ordering::AcqRel)) else {
            return Ok(());
        };
        let (all, is_named) = {
            let ranges = self.ranges.lock();
            if !ranges.cached.is_empty() {
                // The log changes again after the next flush.
                self.changed.store(true, Ordering::Release);
            }
            let cached = ranges.cached.iter().map(|(_, range)| range.clone());
            let is_in = |part: &Range<u64>, whole: &Range<u64>| {
                whole.start <= part.start && part.end <= whole.end
            };
            let is_named = |bad: &Range<u64>| ranges.stored.iter().any(|stored| is_in(bad, stored));
            let all: Vec<_> = merged(ranges.bad.iter().cloned().chain(cached).collect());
            if all == ranges.stored {
                return Ok(());
            }
            (all, ranges.bad.iter().all(is_named))
        };
        let sectors = |bytes: &Range<u64>| bytes.start / SECTOR..bytes.end / SECTOR;
        let ranges: Vec<_> = all.iter().map(sectors).collect();
        // The log has at most 65,535 sectors, because its length field has 16 bits.
        let mut log = vec![0; area.len as usize];
        if !md::bad_blocks::encode_into(&ranges, &mut log) {
            if is_named {
                return Ok(());
            }
            self.changed.store(true, Ordering::Release);
            let full = io::Error::other("the bad-block log has no room");
            return Err(DeviceError::new(Operation::Write, area.offset, area.len, full));
        }
        // After an error it is not known what the log names.
        self.ranges.lock().stored.clear();
        let written = device.write_durable_at(area.offset, &log);
        written.inspect_err(|_| self.changed.store(true, Ordering::Release))?;
        self.ranges.lock().stored = all;
        superblock.set_bad_blocks(match ranges.is_empty() {
            true => HasEntries::None,
            false => HasEntries::Some,
        });
        Ok(())
    }
}

/// Returns the address of a device, which tells devices apart.
pub(crate) fn address(device: &Arc<dyn Device>) -> usize {
    Arc::as_ptr(device).cast::<()>().addr()
}

/// Sorts ranges and joins those that touch.
fn merged(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.retain(|range| !range.is_empty());
    ranges.sort_by_key(|range| range.start);
    let mut all: Vec<Range<u64>> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match all.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => all.push(range),
        }
    }
    all
}

/// A member's device, which refuses to read the member's bad blocks.
pub(crate) struct BadBlocksDevice {
    below: Arc<dyn Device>,
    bad: Arc<BadBlocks>,
}

impl BadBlocksDevice {
    pub(crate) fn new(below: Arc<dyn Device>, bad: Arc<BadBlocks>) -> BadBlocksDevice {
        BadBlocksDevice { below, bad }
    }
}

impl Device for BadBlocksDevice {
    forward!(below: len, alignment, is_read_only, discard);
    fn flush(&self) -> Result<(), DeviceError> {
        self.bad.flush(|| self.below.flush())
    }
    fn read(&self, offset: u64, buf: &mut [u8], kind: ReadKind) -> Result<(), DeviceError> {
        let len = buf.len() as u64;
        if self.bad.overlaps(offset, len) {
            let error = io::Error::other("the bad-block log names these sectors");
            return Err(DeviceError::new(Operation::Read, offset, len, error));
        }
        self.below.read(offset, buf, kind)
    }
    fn write(&self, offset: u64, bufs: &[&[u8]], kind: WriteKind) -> Result<(), DeviceError> {
        self.below.write(offset, bufs, kind)?;
        self.bad.clear(offset, total_len(bufs), kind);
        Ok(())
    }
    fn write_zeros(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        self.below.write_zeros(offset, len)?;
        self.bad.clear(offset, len, WriteKind::Cached);
        Ok(())
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
