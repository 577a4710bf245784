//! Writes that allocate blocks, convert unwritten space, or extend the file.
//!
//! Each of these writes claims blocks for the holes (only in memory), writes its data to the
//! claimed and the unwritten blocks, and then maps them as written. If the operation lock is held
//! shared, several writes can do this at once. But only one write at a time changes the mappings,
//! under `Inode::mapping` and without data I/O. If another write has mapped blocks for one of the
//! holes meanwhile, the claimed blocks are given back, and the data is written to the mapped ones.

use crate::alloc::{Claim, Privilege};
use crate::clock::now;
use crate::data::holes::{Overlap, take_front};
use crate::flags;
use crate::fs::Fs;
use crate::object::fast_track::FastPart;
use crate::object::inode::Inode;
use crate::object::state::Concerns;
use crate::ops::write::{At, Stamp, Write};
use lanefs_lanes::sync::Arc;
use lanefs_lanes::{ExclusiveHold, SharedHold};
use lanefs_plan::Error;
use lanefs_plan::extent::{Extent, State};

/// The largest number of bytes that are written and mapped in one step. Steps end at multiples of
/// this number, so a write does not split a block between two steps.
const CHUNK: u64 = 4 << 20;

/// How a write holds the growth lock of its file.
pub(super) enum Growth<'a> {
    /// Not held: the write ends inside the file.
    None,
    /// Held shared: other writes may extend the file at the same time.
    Beside { _others: SharedHold<'a> },
    /// Held exclusively: no other write extends the file.
    Alone { _hold: ExclusiveHold<'a> },
}

/// Data that is on the device, but is not mapped yet.
struct Written {
    offset: u64,
    len: u64,
    /// The claims for holes, each with its first file block.
    claims: Vec<(u32, Claim)>,
    /// The future extents of the file blocks, in ascending order and without gaps.
    extents: Vec<Extent>,
}

impl Fs {
    /// Prepares the file to grow if the write extends it. Returns the offset of the write.
    ///
    /// An append excludes other writes that extend the file, because its offset is the end of the
    /// file.
    ///
    /// # Locking
    /// The operation lock is held shared.
    pub(super) fn begin_growth<'i>(
        &self,
        inode: &'i Arc<Inode>,
        write: &Write<'_>,
    ) -> Result<(u64, Growth<'i>), Error> {
        let len = write.data.len() as u64;
        if let At::Offset(offset) = write.at {
            if offset + len <= inode.size() {
                return Ok((offset, Growth::None));
            }
            let others = inode.growth.shared();
            if self.data(inode).is_ready_to_grow(inode.size(), offset)? {
                return Ok((offset, Growth::Beside { _others: others }));
            }
        }
        let alone = inode.growth.exclusive();
        let size = inode.size();
        let offset = match write.at {
            At::Offset(offset) => offset,
            At::End => size,
        };
        self.objects.volume.check_size(self.data(inode).form(), offset.saturating_add(len))?;
        if offset + len > size {
            self.data(inode).prepare_growth(size, offset)?;
        }
        Ok((offset, Growth::Alone { _hold: alone }))
    }

    /// Performs a write that may allocate blocks, convert unwritten blocks, or extend the file. The
    /// caller holds the operation lock exclusively.
    pub(super) fn write_locked(
        &self,
        inode: &Arc<Inode>,
        write: &Write<'_>,
    ) -> Result<(u64, usize), Error> {
        flags::check_data_changes(&inode.rights())?;
        self.data(inode).leave_inode(u64::MAX)?;
        let size = inode.size();
        let offset = match write.at {
            At::Offset(offset) => offset,
            At::End => size,
        };
        let end = offset.saturating_add(write.data.len() as u64);
        self.objects.volume.check_size(self.data(inode).form(), end)?;
        if end > size {
            self.data(inode).prepare_growth(size, offset)?;
        }
        Ok((offset, self.write_chunks(inode, offset, write)?))
    }

    /// Writes the data at `offset` in chunks. Returns the number of bytes written, which is less
    /// than the length of the data if space runs out or an owner's limit is reached.
    ///
    /// # Locking
    /// The caller holds the operation lock exclusively. A shared hold is sufficient on two
    /// conditions. First, the write covers only whole blocks of the device or, if the file is
    /// encrypted, whole blocks of the file system. Second, no unwritten block and, with `bigalloc`,
    /// no hole is covered only partly. If a write under a shared hold extends the file, the caller
    /// holds the growth lock too.
    pub(super) fn write_chunks(
        &self,
        inode: &Arc<Inode>,
        offset: u64,
        &Write { data, stamp, by, .. }: &Write<'_>,
    ) -> Result<usize, Error> {
        let mut done = 0;
        while done < data.len() {
            let at = offset + done as u64;
            let end = data.len().min(done + (CHUNK - at % CHUNK) as usize);
            match self.write_chunk(inode, at, &data[done..end], stamp, by) {
                Ok(n) => done += n,
                Err(Error::NoSpace | Error::OverQuota) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    fn write_chunk(
        &self,
        inode: &Arc<Inode>,
        offset: u64,
        data: &[u8],
        stamp: Stamp,
        by: Privilege,
    ) -> Result<usize, Error> {
        let block_size = self.objects.volume.block_size() as u64;
        let first = (offset / block_size) as u32;
        let last = ((offset + data.len() as u64 - 1) / block_size) as u32;
        loop {
            let (claims, extents, _held) =
                self.data(inode).claim_holes(first..last + 1, by, Overlap::AtStart)?;
            let covered = extents.last().map_or(first, Extent::end);
            if claims.len() < extents.len() {
                self.data(inode).await_move()?;
            }
            // If fewer blocks are covered than requested, only the data that fits is written.
            let len = (data.len() as u64).min(u64::from(covered) * block_size - offset);
            self.data(inode).write_blocks(offset, &data[..len as usize], &extents)?;
            self.objects.note_data(inode);
            let written = Written { offset, len, claims, extents };
            if let Some(mapped) = self.map_written(inode, written, stamp)? {
                return Ok(mapped as usize);
            }
        }
    }

    /// Changes the mappings so that all blocks that got data are mapped as written: the blocks that
    /// were claimed, and the blocks that were mapped as unwritten. Returns the number of bytes
    /// mapped, or `None` if another write mapped blocks for one of the holes.
    fn map_written(
        &self,
        inode: &Arc<Inode>,
        Written { offset, len, mut claims, extents }: Written,
        stamp: Stamp,
    ) -> Result<Option<u64>, Error> {
        let (file, block_size) = (self.data(inode), self.objects.volume.block_size() as u64);
        let mapping = inode.mapping.lock();
        if !file.are_holes(&claims)? {
            return Ok(None);
        }
        let range = (offset / block_size) as u32..extents.last().map_or(0, Extent::end);
        let missing = file.not_written(range)?;
        let (mut at, end) = (missing.start, offset + len);
        while at < missing.end {
            let with: Vec<Extent> = extents
                .iter()
                .filter_map(|e| e.clip(&(at..missing.end)))
                .map(|e| Extent { state: State::Written, ..e })
                .collect();
            let change = match file.plan_mapping(at..missing.end, &with) {
                // The part that is already mapped contains its data, so the lack of space is
                // reported as a short write.
                Err(Error::NoSpace) if u64::from(at) * block_size > offset => {
                    let reached = u64::from(at) * block_size;
                    if at == missing.start {
                        drop(mapping);
                        self.note_overwritten(inode, reached, stamp)?;
                    }
                    return Ok(Some(reached - offset));
                }
                other => other?,
            };
            at = change.covered.end.min(missing.end);
            let reached = if at == missing.end { end } else { u64::from(at) * block_size };
            let used = take_front(&mut claims, at, self.objects.volume.clusters());
            let mut handle = self.objects.join(change.credits + 3 * used.len() as u32 + 1)?;
            for claim in used {
                self.objects.groups.allocate(&mut handle, claim);
            }
            let now = now();
            file.apply_mapping(&mut handle, change, |state| {
                if stamp != Stamp::BeyondEnd {
                    state.disk.size = state.disk.size.max(reached);
                }
                if stamp == Stamp::Now {
                    state.disk.mtime = now;
                    state.disk.ctime = now;
                }
            });
        }
        drop(mapping);
        if missing.is_empty() {
            self.note_overwritten(inode, end, stamp)?;
        }
        Ok(Some(len))
    }

    /// Sets the size and the times after a write that ends at `end` and changed no mapping.
    fn note_overwritten(&self, inode: &Arc<Inode>, end: u64, stamp: Stamp) -> Result<(), Error> {
        if end <= inode.size() || stamp == Stamp::BeyondEnd {
            return self.stamp_overwrite(inode, stamp);
        }
        let now = now();
        let mut handle = self.objects.join(2)?;
        inode.change_part(&mut handle, Concerns::Data, FastPart::Record, |state| {
            state.disk.size = state.disk.size.max(end);
            if stamp == Stamp::Now {
                state.disk.mtime = now;
                state.disk.ctime = now;
            }
        });
        Ok(())
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
