//! Implements fallocate(2): allocates space, punches holes, zeroes, collapses and inserts ranges.
//! Defragments files.

use crate::alloc::{Claim, Privilege, Request};
use crate::attr::{Fallocate, SyncMode, now};
use crate::data::FileData;
use crate::data::holes::{Covered, Overlap};
use crate::data::mapping::EXTENTS_A_STEP;
use crate::flags;
use crate::object::dirty::Credits;
use crate::object::fs::Fs;
use crate::object::inode::{Inode, InodeRef};
use crate::object::state::{Concerns, InodeState};
use lanefs_lanes::sync::Arc;
use lanefs_ondisk::{Block, FileBlock};
use lanefs_plan::extent::{END, Extent, Layout, State, overlapping};
use lanefs_plan::mapping::Form;
use lanefs_plan::{Error, InvalidArgument};
use std::ops::Range;

/// The largest number of blocks that one step allocates.
const STEP: u32 = 1 << 16;

/// Whether [`Fs::allocate_range`] has applied the change `then` to the inode.
enum Last {
    /// The handle that mapped the end of the range has applied the change.
    Applied,
    /// No handle mapped the end of the range, so the change was not applied.
    HadNoHole,
}

/// Returns a change that sets new times, and sets the size to `size` if the file is shorter.
fn grown(size: u64) -> impl Fn(&mut InodeState) {
    let now = now();
    move |state| {
        state.disk.size = state.disk.size.max(size);
        state.disk.mtime = now;
        state.disk.ctime = now;
    }
}

impl Fs {
    /// Performs fallocate(2) on `offset..offset + len`. Allocated space reads as zeros, and a write
    /// into it never fails for lack of space.
    ///
    /// # Errors
    /// [`Error::NotSupported`] for a file with a block map, except for [`Fallocate::PunchHole`].
    pub fn fallocate(
        &self,
        inode: &InodeRef,
        how: Fallocate,
        offset: u64,
        len: u64,
        by: Privilege,
    ) -> Result<(), Error> {
        inode.check_regular()?;
        self.check_writable()?;
        if len == 0 {
            return Err(InvalidArgument::ZeroLength.into());
        }
        let end = offset.checked_add(len).ok_or(Error::FileTooLarge)?;
        // As in the kernel (6.18), a hole may lie beyond the last block that a block map can reach,
        // so the size limit of extent trees applies to every file.
        self.volume.check_size(Form::Extents, end)?;
        if self.data(inode).form() == Form::BlockMap && how != Fallocate::PunchHole {
            // A block map cannot record that blocks are unwritten.
            return Err(Error::NotSupported);
        }
        let exclusive = inode.op.exclusive();
        flags::check_allocation(&inode.rights(), how)?;
        let moves = matches!(how, Fallocate::CollapseRange | Fallocate::InsertRange);
        if self.data(inode).contents()?.is_some() && moves {
            // The encryption of a block depends on its number in the file, so data cannot be moved
            // to another offset.
            return Err(Error::NotSupported);
        }
        self.data(inode).leave_inode(u64::MAX)?;
        let size = inode.attr().size;
        if end > size && matches!(how, Fallocate::Allocate | Fallocate::ZeroRange) {
            self.data(inode).prepare_growth(size, end)?;
        }
        match how {
            Fallocate::Allocate => self.reserve(inode, offset, end, end, by)?,
            Fallocate::AllocateKeepSize => self.reserve(inode, offset, end, 0, by)?,
            Fallocate::PunchHole => self.punch(inode, offset, end)?,
            Fallocate::ZeroRange => {
                self.zero_range(inode, offset, end, by)?;
                self.grow_to(inode, end)?;
            }
            Fallocate::ZeroRangeKeepSize => {
                self.zero_range(inode, offset, end, by)?;
                self.grow_to(inode, 0)?;
            }
            Fallocate::CollapseRange => self.collapse_range(inode, offset, end)?,
            Fallocate::InsertRange => self.insert_range(inode, offset, end)?,
        }
        drop(exclusive);
        self.obey_sync(inode, SyncMode::Data)
    }

    /// Sets the times, and the size if it is below `end`.
    fn grow_to(&self, inode: &Arc<Inode>, end: u64) -> Result<(), Error> {
        let mut handle = self.join(Credits::INODE)?;
        inode.change(&mut handle, Concerns::Data, grown(end));
        Ok(())
    }

    /// Allocates the holes of the range, and sets the file's size to `size` if the file is smaller.
    fn reserve(
        &self,
        inode: &Arc<Inode>,
        offset: u64,
        end: u64,
        size: u64,
        by: Privilege,
    ) -> Result<(), Error> {
        match self.allocate_range(inode, offset, end, by, grown(size))? {
            Last::Applied => Ok(()),
            Last::HadNoHole => self.grow_to(inode, size),
        }
    }

    /// Maps the holes of the range to unwritten blocks, in steps. If the last step has a hole, the
    /// handle that maps the end of the range also applies the change `then` to the inode.
    fn allocate_range(
        &self,
        inode: &Arc<Inode>,
        offset: u64,
        end: u64,
        by: Privilege,
        then: impl Fn(&mut InodeState),
    ) -> Result<Last, Error> {
        let block_size = self.volume.block_size() as u64;
        let (mut at, last) = ((offset / block_size) as u32, end.div_ceil(block_size) as u32);
        let mut applied = Last::HadNoHole;
        while at < last {
            let stop = last.min(at.saturating_add(STEP));
            let Covered { mut claims, mut extents, held: _held } =
                self.data(inode).claim_holes(at..stop, by, Overlap::Anywhere)?;
            let covered = extents.last().map_or(stop, Extent::end);
            // Without claims there may be holes too, in clusters that are in use.
            if claims.is_empty()
                && self.data(inode).with_map(|map| overlapping(map, at..covered))? == extents
            {
                at = covered;
                continue;
            }
            while at < covered {
                let change = self.data(inode).plan_mapping(at..covered, &extents)?;
                at = change.covered.end.min(covered);
                extents.retain_mut(|e| e.clip(&(at..covered)).map(|rest| *e = rest).is_some());
                self.data(inode).publish(&mut claims, at, change, |state| {
                    if at == last {
                        then(state);
                        applied = Last::Applied;
                    }
                })?;
            }
        }
        Ok(applied)
    }

    /// Frees the whole blocks of a range, and zeroes the parts of blocks at its edges.
    fn punch(&self, inode: &Arc<Inode>, offset: u64, end: u64) -> Result<(), Error> {
        let block_size = self.volume.block_size() as u64;
        // A damaged size may be so large that it cannot be rounded up.
        let size = inode.attr().size.checked_next_multiple_of(block_size).unwrap_or(u64::MAX);
        let end = end.min(size);
        if offset >= end {
            return self.grow_to(inode, 0);
        }
        let (first, last) = self.zero_edges(inode, offset, end)?;
        if first < last {
            self.data(inode).unmap(first..last)?;
        }
        self.grow_to(inode, 0)
    }

    /// Zeroes the start and the end of the range where they cover only a part of a written block.
    /// Returns the remaining whole blocks as `first..last`.
    fn zero_edges(&self, inode: &Arc<Inode>, offset: u64, end: u64) -> Result<(u32, u32), Error> {
        let block_size = self.volume.block_size() as u64;
        let (head, tail) = (offset.next_multiple_of(block_size), end / block_size * block_size);
        let edges = match head > tail {
            // The range lies inside one block.
            true => [(offset, end), (0, 0)],
            false => [(offset, head), (tail, end)],
        };
        for (from, to) in edges.into_iter().filter(|(from, to)| from < to) {
            self.data(inode).zero_written(from, to)?;
        }
        Ok(((head / block_size) as u32, (tail / block_size) as u32))
    }

    /// Zeroes a range: makes whole blocks unwritten, zeroes parts of blocks, allocates holes.
    fn zero_range(
        &self,
        inode: &Arc<Inode>,
        offset: u64,
        end: u64,
        by: Privilege,
    ) -> Result<(), Error> {
        self.allocate_range(inode, offset, end, by, |_| ())?;
        let (mut at, last) = self.zero_edges(inode, offset, end)?;
        while at < last {
            let unwritten = self.data(inode).with_map(|map| {
                let pieces = overlapping(map, at..last);
                let step = pieces.into_iter().take(crate::data::mapping::EXTENTS_A_STEP);
                step.map(|e| Extent { state: State::Unwritten, ..e }).collect::<Vec<_>>()
            })?;
            let stop = unwritten.last().map_or(last, Extent::end);
            let change = self.data(inode).plan_mapping(at..stop, &unwritten)?;
            at = change.covered.end.min(stop);
            self.data(inode).publish(&mut Vec::new(), at, change, |_| ())?;
        }
        Ok(())
    }
}

// Collapses and inserts ranges: the modes of fallocate(2) that move the rest of a file.

impl Fs {
    /// Removes the bytes `offset..end` of a file; the bytes after them move to `offset`.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] unless the range consists of whole clusters and ends before the
    /// end of the file.
    pub(crate) fn collapse_range(
        &self,
        inode: &Arc<Inode>,
        offset: u64,
        end: u64,
    ) -> Result<(), Error> {
        let range = self.whole_clusters(offset, end)?;
        let size = inode.attr().size;
        if end >= size {
            return Err(InvalidArgument::CollapseToEnd.into());
        }
        inode.window.give_back();
        let data = self.data(inode);
        let (layout, removed) = data.with_map(|map| {
            (Layout::without(map, range.clone()), overlapping(map, range.clone()))
        })?;
        let size = size - (end - offset);
        data.rearrange(layout?, &removed, size, resized(size))
    }

    /// Inserts a hole of the bytes `offset..end`; the bytes from `offset` on move to `end`.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] unless the range consists of whole clusters and starts inside the
    /// file; [`Error::FileTooLarge`] if the file would be too large.
    pub(crate) fn insert_range(
        &self,
        inode: &Arc<Inode>,
        offset: u64,
        end: u64,
    ) -> Result<(), Error> {
        let range = self.whole_clusters(offset, end)?;
        let size = inode.attr().size;
        if offset >= size {
            return Err(InvalidArgument::InsertAfterEnd.into());
        }
        let size = size.checked_add(end - offset).ok_or(Error::FileTooLarge)?;
        self.volume.check_size(self.data(inode).form(), size)?;
        inode.window.give_back();
        let data = self.data(inode);
        let len = range.end - range.start;
        let layout = data.with_map(|map| Layout::with_hole(map, range.start, len))??;
        data.rearrange(layout, &[], size, resized(size))
    }

    /// Returns the blocks of the bytes `offset..end`. The range must consist of whole clusters,
    /// because otherwise the blocks after it could not keep their positions within their clusters.
    fn whole_clusters(&self, offset: u64, end: u64) -> Result<Range<u32>, Error> {
        let block_size = self.volume.block_size() as u64;
        let cluster = self.volume.cluster_bytes();
        if !offset.is_multiple_of(cluster) || !end.is_multiple_of(cluster) {
            return Err(InvalidArgument::PartialCluster.into());
        }
        let block = |at| u32::try_from(at / block_size).map_err(|_| Error::FileTooLarge);
        Ok(block(offset)?..block(end)?)
    }
}

/// Returns a change that sets the size and new times.
fn resized(size: u64) -> impl FnOnce(&mut InodeState) {
    let now = now();
    move |state| {
        state.disk.size = size;
        state.disk.mtime = now;
        state.disk.ctime = now;
    }
}

// Defragments a file: moves its data to fewer runs of blocks.
//
// The data is first copied to claimed blocks. Then handles map the copies in place of the old
// blocks, a few extents per handle. The old and the new blocks have the same bytes, so a crash
// between two handles changes nothing for readers.

/// The largest number of blocks that are moved at once. Moving them needs at most the same number
/// of free blocks.
const PIECE: u32 = 1 << 18;
/// The length in blocks of the longest extent of written blocks.
const LONGEST: u32 = 32768;
/// The number of bytes that are copied at once.
const COPY: usize = 1 << 20;

/// The new positions of the blocks of a piece.
struct Moved {
    /// The claims, each with its first file block; one claim for each extent.
    claims: Vec<(u32, Claim)>,
    extents: Vec<Extent>,
}

impl Fs {
    /// Moves the data of a file to fewer runs of blocks, where free space permits that. Keeps the
    /// times. A crash loses no data.
    ///
    /// # Errors
    /// [`Error::NotSupported`] if the file has a block map, or the file system has `bigalloc`, as
    /// in the kernel; [`Error::NotPermitted`] for an immutable, append-only or verity file;
    /// [`Error::NoSpace`] if there are too few free blocks for a copy.
    pub fn defragment(&self, inode: &InodeRef, by: Privilege) -> Result<(), Error> {
        inode.check_regular()?;
        self.check_writable()?;
        let _exclusive = inode.op.exclusive();
        let rights = inode.rights();
        flags::check_data_changes(&rights)?;
        if flags::is_append_only(&rights) {
            return Err(Error::NotPermitted);
        }
        let data = self.data(inode);
        if data.is_inline() {
            return Ok(());
        }
        if data.form() == Form::BlockMap || !self.volume.clusters().are_blocks() {
            return Err(Error::NotSupported);
        }
        inode.window.give_back();
        // The bytes after the end of the file must be zeros in the copy too.
        let size = inode.attr().size;
        data.prepare_growth(size, size)?;
        let (mut at, mut goal) = (0, None);
        loop {
            let piece = data.piece(at)?;
            let Some(last) = piece.last() else { return Ok(()) };
            at = last.end();
            let placed = data.place_elsewhere(&piece, goal, by)?;
            let placed = placed.map(|moved| data.move_to(&piece, moved)).transpose()?;
            goal = Some(placed.unwrap_or(Block(last.block.0 + u64::from(last.len))));
        }
    }
}

impl FileData<'_> {
    /// Returns the extents from file block `from` on, up to a total of [`PIECE`] blocks.
    fn piece(&self, from: u32) -> Result<Vec<Extent>, Error> {
        self.with_map(|map| {
            let mut left = PIECE;
            let mut piece = Vec::new();
            for extent in map.iter_from(FileBlock(from)) {
                let Some(extent) = extent.clip(&(from..END)) else { continue };
                let end = extent.start.0 + extent.len.min(left);
                left -= extent.len.min(left);
                piece.extend(extent.clip(&(extent.start.0..end)));
                if left == 0 {
                    break;
                }
            }
            piece
        })
    }

    /// Claims other blocks for `piece`, in fewer runs than it has now; `None` if free space does
    /// not permit that.
    fn place_elsewhere(
        &self,
        piece: &[Extent],
        goal: Option<Block>,
        by: Privilege,
    ) -> Result<Option<Moved>, Error> {
        let most = runs(piece, goal);
        let mut left: u32 = piece.iter().map(|extent| extent.len).sum();
        if most <= left.div_ceil(LONGEST) as usize {
            return Ok(None);
        }
        // Every new run must be longer than the average old run, so that there are fewer new runs.
        let longer = left / u32::try_from(most).unwrap_or(u32::MAX) + 1;
        let mut found: Vec<Claim> = Vec::new();
        while left > 0 {
            if found.len() + 1 >= most {
                return Ok(None);
            }
            let after = found.last().map(|claim| Block(claim.start().0 + u64::from(claim.len())));
            let want = left.min(LONGEST);
            let request = Request {
                goal: after.or(goal).unwrap_or(self.goal()),
                want,
                ahead: 0,
                at_least: longer.min(want),
                privilege: by,
                stream: None,
                owner: None,
            };
            let claim = self.fs.claim_blocks(&request)?.into_claim();
            left -= claim.len().min(left);
            found.push(claim);
        }
        Ok(Some(distribute(piece, found)))
    }

    /// Copies the data of `piece`, and maps the copies. Returns the device block after the last
    /// copy.
    fn move_to(&self, piece: &[Extent], moved: Moved) -> Result<Block, Error> {
        let Moved { mut claims, extents } = moved;
        for extent in extents.iter().filter(|extent| extent.state == State::Written) {
            self.copy_to(extent)?;
        }
        self.fs.note_data(self.inode);
        let end = piece.last().map_or(0, Extent::end);
        let mut at = piece.first().map_or(0, |first| first.start.0);
        while at < end {
            let stop = self.step_end(at..end)?.unwrap_or(end);
            let with = extents.iter().filter_map(|extent| extent.clip(&(at..stop)));
            let with: Vec<Extent> = with.take(EXTENTS_A_STEP).collect();
            let stop = if with.len() < EXTENTS_A_STEP {
                stop
            } else {
                with.last().map_or(stop, Extent::end)
            };
            let change = self.plan_mapping(at..stop, &with)?;
            at = change.covered.end.min(stop);
            self.publish(&mut claims, at, change, |_| ())?;
        }
        Ok(extents.last().map_or(Block(0), |last| Block(last.block.0 + u64::from(last.len))))
    }

    /// Copies the file's bytes in the range of `extent` to the blocks of `extent`, which are not
    /// mapped yet.
    fn copy_to(&self, extent: &Extent) -> Result<(), Error> {
        let device = &self.fs.volume.device;
        let (from, to) = (
            u64::from(extent.start.0) * self.block_size(),
            u64::from(extent.end()) * self.block_size(),
        );
        let mut buf = vec![0; COPY.min((to - from) as usize)];
        let mut at = from;
        while at < to {
            let len = buf.len().min((to - at) as usize);
            let Some(part) = buf.get_mut(..len) else { break };
            self.read_stored(at, part)?;
            device.write_data_at(extent.block.0 * self.block_size() + (at - from), part)?;
            at += len as u64;
        }
        Ok(())
    }
}

/// Returns the number of runs of device blocks that `piece` consists of. The first run does not
/// count if it starts at block `before`, because it then continues the run that ends there.
fn runs(piece: &[Extent], before: Option<Block>) -> usize {
    let mut next = before;
    let mut count = 0;
    for extent in piece {
        count += usize::from(next != Some(extent.block));
        next = Some(Block(extent.block.0 + u64::from(extent.len)));
    }
    count
}

/// Distributes the blocks of the claims to the extents of `piece`. In total, the claims have as
/// many blocks as the extents.
fn distribute(piece: &[Extent], found: Vec<Claim>) -> Moved {
    let mut moved = Moved { claims: Vec::new(), extents: Vec::new() };
    let mut found = found.into_iter();
    let mut claim = found.next();
    for extent in piece {
        let (mut start, end) = (extent.start.0, extent.end());
        while start < end {
            let Some(rest) = claim.as_mut() else { return moved };
            if rest.len() == 0 {
                claim = found.next();
                continue;
            }
            let len = rest.len().min(end - start);
            let part = rest.split_front(len);
            let block = part.start();
            moved.extents.push(Extent { start: FileBlock(start), len, block, state: extent.state });
            moved.claims.push((start, part));
            start += len;
        }
    }
    moved
}
