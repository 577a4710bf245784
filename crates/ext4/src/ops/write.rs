//! Writing file data: overwrites shared, everything else exclusive; claimed, written, then mapped.

use crate::Error;
use crate::alloc::{Claim, Found, Overwrite, Privilege, Request};
use crate::data::mapping::EXTENTS_A_STEP;
use crate::fs::Fs;
use crate::object::inode::{Concerns, Inode, InodeRef};
use crate::object::window::Window;
use crate::ops::read::now;
use crate::plan::extent::{Extent, Map, Mapping, State};
use crate::plant::{Step, left_out};
use lanefs_lanes::sync::Arc;
use lanefs_ondisk::{FileBlock, FileType};

/// Where a write goes.
#[derive(Debug, Clone, Copy)]
enum At {
    Offset(u64),
    End,
}

/// Whether a write sets the times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stamp {
    Now,
    /// Pages of a kernel's writeback cache: that kernel keeps the times, and a late write would
    /// undo a utimensat(2).
    Keep,
}

/// Claims by file block, and the extents that they and what was mapped make together.
pub(crate) type Covered = (Vec<(u32, Claim)>, Vec<Extent>);

/// The most that is written and mapped in one go.
const CHUNK: usize = 4 << 20;
/// A file of more blocks is large, for the policies of goals, as for mballoc (`mb_stream_req`).
const STREAM: u32 = 16;
/// Blocks of the longest extent whose blocks are written.
const LONGEST: u32 = 32768;
/// Commits that a claim waits for before it is refused: what they freed, others may take first.
const MOST_COMMITS: u32 = 3;
/// The largest window, in bytes; it starts at what the file holds already.
const WINDOW: u64 = 8 << 20;

impl Fs {
    /// Writes `data` at `offset`. Bytes written: fewer than given only if space ran out after some.
    pub fn write_at(
        &self,
        inode: &InodeRef,
        offset: u64,
        data: &[u8],
        by: Privilege,
    ) -> Result<usize, Error> {
        self.write(inode, At::Offset(offset), data, Stamp::Now, by).map(|(_, n)| n)
    }

    /// As [`Fs::write_at`] at the end of the file as it is then; gives the offset too.
    pub fn append(
        &self,
        inode: &InodeRef,
        data: &[u8],
        by: Privilege,
    ) -> Result<(u64, usize), Error> {
        self.write(inode, At::End, data, Stamp::Now, by)
    }

    /// As [`Fs::write_at`] for pages from a kernel's writeback cache: no times are set.
    pub fn write_back(
        &self,
        inode: &InodeRef,
        offset: u64,
        data: &[u8],
        by: Privilege,
    ) -> Result<usize, Error> {
        self.write(inode, At::Offset(offset), data, Stamp::Keep, by).map(|(_, n)| n)
    }

    fn write(
        &self,
        inode: &InodeRef,
        at: At,
        data: &[u8],
        stamp: Stamp,
        by: Privilege,
    ) -> Result<(u64, usize), Error> {
        let written = self.write_unsynced(inode, at, data, stamp, by)?;
        self.obey_sync(inode)?;
        Ok(written)
    }

    /// As [`Fs::write`], whatever the flags of the inode say about durability.
    fn write_unsynced(
        &self,
        inode: &Arc<Inode>,
        at: At,
        data: &[u8],
        stamp: Stamp,
        by: Privilege,
    ) -> Result<(u64, usize), Error> {
        self.check_writable_data(inode)?;
        if let At::Offset(offset) = at {
            self.check_size(offset.saturating_add(data.len() as u64))?;
            if data.is_empty() {
                return Ok((offset, 0));
            }
            if self.overwrite == Overwrite::Shared && self.overwrite_shared(inode, offset, data)? {
                if stamp == Stamp::Now {
                    self.stamp_change(inode)?;
                }
                return Ok((offset, data.len()));
            }
        }
        let _exclusive = inode.op.exclusive();
        if let (At::Offset(offset), Overwrite::Exclusive) = (at, self.overwrite)
            && self.overwrite_locked(inode, offset, data)?
        {
            if stamp == Stamp::Now {
                self.stamp_change(inode)?;
            }
            return Ok((offset, data.len()));
        }
        let start = match at {
            At::Offset(offset) => offset,
            At::End => inode.attr().size,
        };
        self.check_size(start.saturating_add(data.len() as u64))?;
        let mut done = 0;
        while done < data.len() {
            let end = data.len().min(done + CHUNK);
            match self.write_chunk(inode, start + done as u64, &data[done..end], stamp, by) {
                Ok(n) => done += n,
                Err(Error::NoSpace) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok((start, done))
    }

    /// [`Fs::overwrite_locked`] with the operation lock shared (S3), if the device can write just
    /// these bytes: those of one block by two threads at once would be read, merged and lost.
    fn overwrite_shared(
        &self,
        inode: &Arc<Inode>,
        offset: u64,
        data: &[u8],
    ) -> Result<bool, Error> {
        let align = u64::from(self.device.alignment());
        if !offset.is_multiple_of(align) || !(data.len() as u64).is_multiple_of(align) {
            return Ok(false);
        }
        let shared = inode.op.shared();
        let _shared = (!left_out(Step::OverwriteHolds)).then_some(shared);
        self.overwrite_locked(inode, offset, data)
    }

    /// Overwrites bytes that are all mapped, written and inside the file. False if they are not.
    ///
    /// # Locking
    /// The operation lock is held, shared or exclusively.
    fn overwrite_locked(
        &self,
        inode: &Arc<Inode>,
        offset: u64,
        data: &[u8],
    ) -> Result<bool, Error> {
        if offset + data.len() as u64 > inode.attr().size {
            return Ok(false);
        }
        let pieces = self.pieces(inode, offset, data.len())?;
        if pieces.iter().any(|piece| piece.device.is_none()) {
            return Ok(false);
        }
        for piece in pieces {
            let from = (piece.offset - offset) as usize;
            let Some(at) = piece.device else { continue };
            self.device.write_at(at, &data[from..from + piece.len])?;
        }
        self.note_data(inode);
        Ok(true)
    }

    /// Sets the times of a change of data, if the clock has ticked since the last.
    fn stamp_change(&self, inode: &Arc<Inode>) -> Result<(), Error> {
        let attr = inode.attr();
        let now = now();
        if attr.mtime == now && attr.ctime == now {
            return Ok(());
        }
        let mut handle = self.join(2)?;
        inode.change(&mut handle, Concerns::Attributes, |state| {
            state.disk.mtime = now;
            state.disk.ctime = now;
        });
        Ok(())
    }

    /// Writes one chunk that may allocate, convert or grow; the operation lock is held exclusively.
    fn write_chunk(
        &self,
        inode: &Arc<Inode>,
        offset: u64,
        data: &[u8],
        stamp: Stamp,
        by: Privilege,
    ) -> Result<usize, Error> {
        let size = inode.attr().size;
        if offset + data.len() as u64 > size {
            self.prepare_growth(inode, size, offset)?;
        }
        let block_size = self.geometry.block_size().bytes() as u64;
        let first = (offset / block_size) as u32;
        let last = ((offset + data.len() as u64 - 1) / block_size) as u32;
        let (mut claims, extents) = self.claim_holes(inode, first..last + 1, by)?;
        let covered = extents.last().map_or(first, Extent::end);
        // Fewer blocks than asked: as much as fits into them.
        let len = (data.len() as u64).min(u64::from(covered) * block_size - offset) as usize;
        let data = &data[..len];
        self.write_blocks(offset, data, &extents)?;
        self.note_data(inode);

        let now = now();
        let mut at = first;
        while at < covered {
            // Written wherever the data went; claimed blocks and unwritten ones become so now.
            let written: Vec<Extent> = extents
                .iter()
                .filter_map(|e| e.clip(&(at..covered)))
                .map(|e| Extent { state: State::Written, ..e })
                .collect();
            let change = match self.plan_mapping(inode, at..covered, &written) {
                // What is mapped already was written: told as a short write.
                Err(Error::NoSpace) if at > first => {
                    let mapped = u64::from(at) * block_size - offset;
                    return Ok(mapped.min(len as u64) as usize);
                }
                other => other?,
            };
            at = change.covered.end.min(covered);
            let reached = (u64::from(at) * block_size).min(offset + len as u64);
            let used = take_front(&mut claims, at);
            let mut handle = self.join(change.credits + 3 * used.len() as u32 + 1)?;
            for claim in used {
                self.groups.allocate(&mut handle, claim);
            }
            self.apply_mapping(&mut handle, inode, change, |state| {
                state.disk.size = state.disk.size.max(reached);
                if stamp == Stamp::Now {
                    state.disk.mtime = now;
                    state.disk.ctime = now;
                }
            });
        }
        Ok(len)
    }

    /// Claims blocks for the holes of `range`: the claims by file block, and what the range will
    /// be mapped to, in order; it ends early where space or the step's limit does.
    pub(crate) fn claim_holes(
        &self,
        inode: &Arc<Inode>,
        range: std::ops::Range<u32>,
        by: Privilege,
    ) -> Result<Covered, Error> {
        let map = self.map_of(inode)?;
        let mut claims = Vec::new();
        let mut extents: Vec<Extent> = Vec::new();
        let mut at = range.start;
        while at < range.end && extents.len() < EXTENTS_A_STEP {
            match map.find(FileBlock(at)) {
                Mapping::Mapped { block, len, state } => {
                    let len = len.min(range.end - at);
                    extents.push(Extent { start: FileBlock(at), len, block, state });
                    at += len;
                }
                Mapping::Hole { len } => {
                    let len = len.min(range.end - at);
                    let claim = match self.claim_for(inode, &map, at, len, by) {
                        Ok(claim) => claim,
                        Err(Error::NoSpace) if !extents.is_empty() => break,
                        Err(error) => return Err(error),
                    };
                    extents.push(Extent {
                        start: FileBlock(at),
                        len: claim.len(),
                        block: claim.start(),
                        state: State::Unwritten,
                    });
                    let start = at;
                    at += claim.len();
                    claims.push((start, claim));
                }
            }
        }
        Ok((claims, extents))
    }

    /// Blocks for file blocks from `at` on: from the inode's window if it continues there, else a
    /// new claim, with a new window behind it if the file grows.
    fn claim_for(
        &self,
        inode: &Arc<Inode>,
        map: &Map,
        at: u32,
        len: u32,
        by: Privilege,
    ) -> Result<Claim, Error> {
        if let Some(claim) = inode.window.claim(at, len) {
            return Ok(claim);
        }
        let growing = map.last().is_none_or(|last| last.end() <= at);
        let block_size = self.geometry.block_size().bytes() as u64;
        let ahead = match growing && inode.file_type == FileType::Regular && at > 0 {
            // As much again as the file has, so that small files claim little.
            true => ((map.blocks() * block_size).min(WINDOW) / block_size) as u32,
            false => 0,
        };
        let goal = self.goal_at(inode, map, at);
        // The claim is under way until its window is where it is found when space is short.
        let Found { mut claim, drawn } = self.claim_or_reclaim(&Request {
            goal,
            want: len.min(LONGEST),
            ahead: ahead.min(LONGEST.saturating_sub(len)),
            at_least: len.min(2048),
            privilege: by,
            stream: (at + len > STREAM).then_some(inode.ino),
        })?;
        if claim.len() > len {
            let front = claim.split_front(len);
            inode.window.put(Window::new(inode, at + len, claim));
            claim = front;
        }
        drop(drawn);
        Ok(claim)
    }

    /// A claim. Before it is refused it runs alone: claims under way have ended, and windows are
    /// given back. If blocks wait for a commit, it waits too, with others claiming meanwhile, and
    /// tries again. Holds no handle.
    pub(crate) fn claim_or_reclaim(&self, request: &Request) -> Result<Found<'_>, Error> {
        match self.groups.claim_blocks(self, request, None) {
            Err(Error::NoSpace) => {}
            other => return other,
        }
        let mut commits = 0;
        loop {
            let alone = self.groups.alone();
            self.drop_windows();
            // Looked at first: what becomes durable after the claim was refused is not pending.
            let pending = self.groups.pending() > 0;
            match self.groups.claim_blocks(self, request, Some(&alone)) {
                Err(Error::NoSpace) if pending && commits < MOST_COMMITS => commits += 1,
                other => return other,
            }
            drop(alone);
            self.journal.settle(self.journal.running())?;
        }
    }

    /// Gives every window back; looks at inodes that have one, and says at how many.
    pub(crate) fn drop_windows(&self) -> usize {
        let listed = self.home.windows.listed();
        for ino in &listed {
            if let Some(inode) = self.inodes.get(*ino) {
                inode.window.give_back();
            }
        }
        listed.len()
    }

    /// Writes `data` to the device, by the extents that cover it; blocks that were not written
    /// before are written whole, with zeros around the data.
    fn write_blocks(&self, offset: u64, data: &[u8], extents: &[Extent]) -> Result<(), Error> {
        let block_size = self.geometry.block_size().bytes() as u64;
        let end = offset + data.len() as u64;
        for extent in extents {
            let (from, to) =
                (u64::from(extent.start.0) * block_size, u64::from(extent.end()) * block_size);
            let (start, stop) = (from.max(offset), to.min(end));
            if start >= stop {
                continue;
            }
            let part = &data[(start - offset) as usize..(stop - offset) as usize];
            let device = extent.block.0 * block_size + (start - from);
            // The blocks that the part touches, whole.
            let head = (start % block_size) as usize;
            let tail = (stop.next_multiple_of(block_size) - stop) as usize;
            if extent.state == State::Written || (head == 0 && tail == 0) {
                self.device.write_at(device, part)?;
                continue;
            }
            let zeros = vec![0; head.max(tail)];
            let whole: [&[u8]; 3] = [&zeros[..head], part, &zeros[..tail]];
            self.device.write_vectored_at(device - head as u64, &whole)?;
        }
        Ok(())
    }

    /// Before the file grows from `size`, with data from `offset` on: what was beyond the end and
    /// now comes inside reads as zeros. An uncommitted truncation is waited for.
    pub(crate) fn prepare_growth(
        &self,
        inode: &Arc<Inode>,
        size: u64,
        offset: u64,
    ) -> Result<(), Error> {
        let pending = inode.state.lock().tail_pending.take();
        if let Some(tid) = pending
            && !left_out(Step::GrowthSettles)
        {
            // Until then the tail belongs to the longer file that a crash would bring back, and
            // the committer has yet to zero it.
            self.journal.settle(tid)?;
        }
        if offset <= size {
            return Ok(());
        }
        let mut zeroed = false;
        for piece in self.written_extents(inode, size, offset)? {
            self.device.write_zeros(piece.0, piece.1)?;
            zeroed = true;
        }
        if zeroed {
            self.note_data(inode);
        }
        Ok(())
    }

    /// The device ranges (offset, length in bytes) of what is written in `from..to` of the file.
    fn written_extents(
        &self,
        inode: &Arc<Inode>,
        from: u64,
        to: u64,
    ) -> Result<Vec<(u64, u64)>, Error> {
        let block_size = self.geometry.block_size().bytes() as u64;
        let (first, last) = ((from / block_size) as u32, to.div_ceil(block_size) as u32);
        self.with_map(inode, |map| {
            crate::plan::extent::overlapping(map, first..last)
                .into_iter()
                .filter(|e| e.state == State::Written)
                .map(|e| {
                    let start = (u64::from(e.start.0) * block_size).max(from);
                    let stop = (u64::from(e.end()) * block_size).min(to);
                    let device =
                        e.block.0 * block_size + (start - u64::from(e.start.0) * block_size);
                    (device, stop - start)
                })
                .collect()
        })
    }

    /// Called when the last writer closes a file: gives back what was claimed ahead.
    pub fn release(&self, inode: &InodeRef) {
        inode.window.give_back();
    }

    fn check_writable_data(&self, inode: &Inode) -> Result<(), Error> {
        match inode.file_type {
            FileType::Regular => {}
            FileType::Directory => return Err(Error::IsDirectory),
            _ => return Err(Error::InvalidArgument { what: "not a regular file" }),
        }
        self.check_writable()?;
        self.check_not_immutable(inode)
    }

    /// No file is larger than its format can say.
    pub(crate) fn check_size(&self, size: u64) -> Result<(), Error> {
        if size > self.max_size { Err(Error::FileTooLarge) } else { Ok(()) }
    }
}

/// The claims for file blocks below `end`, taken off the front; one that reaches beyond is split.
pub(crate) fn take_front(claims: &mut Vec<(u32, Claim)>, end: u32) -> Vec<Claim> {
    let mut taken = Vec::new();
    let mut left = Vec::new();
    for (start, mut claim) in claims.drain(..) {
        if start >= end {
            left.push((start, claim));
        } else if start + claim.len() > end {
            taken.push(claim.split_front(end - start));
            left.push((end, claim));
        } else {
            taken.push(claim);
        }
    }
    *claims = left;
    taken
}
