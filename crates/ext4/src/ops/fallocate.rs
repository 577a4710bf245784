//! Implements fallocate(2): allocates space, punches holes and zeroes ranges. The modes that
//! collapse and insert ranges are in `shift.rs`.

use crate::alloc::Privilege;
use crate::attr::{Fallocate, SyncMode};
use crate::clock::now;
use crate::data::holes::{Overlap, take_front};
use crate::flags;
use crate::fs::Fs;
use crate::object::inode::{Inode, InodeRef};
use crate::object::state::{Concerns, InodeState};
use lanefs_lanes::sync::Arc;
use lanefs_plan::extent::{Extent, State, overlapping};
use lanefs_plan::mapping::Form;
use lanefs_plan::{Error, InvalidArgument};

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
        self.objects.check_writable()?;
        if len == 0 {
            return Err(InvalidArgument::ZeroLength.into());
        }
        let end = offset.checked_add(len).ok_or(Error::FileTooLarge)?;
        // As in the kernel (6.18), a hole may lie beyond the last block that a block map can reach,
        // so the size limit of extent trees applies to every file.
        self.objects.volume.check_size(Form::Extents, end)?;
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
        let mut handle = self.objects.join(2)?;
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
        let block_size = self.objects.volume.block_size() as u64;
        let (mut at, last) = ((offset / block_size) as u32, end.div_ceil(block_size) as u32);
        let mut applied = Last::HadNoHole;
        while at < last {
            let stop = last.min(at.saturating_add(STEP));
            let (mut claims, mut extents, _held) =
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
                let used = take_front(&mut claims, at, self.objects.volume.clusters());
                let mut handle = self.objects.join(change.credits + 3 * used.len() as u32 + 1)?;
                for claim in used {
                    self.objects.groups.allocate(&mut handle, claim);
                }
                self.data(inode).apply_mapping(&mut handle, change, |state| {
                    if at == last {
                        then(state);
                        applied = Last::Applied;
                    }
                });
            }
        }
        Ok(applied)
    }

    /// Frees the whole blocks of a range, and zeroes the parts of blocks at its edges.
    fn punch(&self, inode: &Arc<Inode>, offset: u64, end: u64) -> Result<(), Error> {
        let block_size = self.objects.volume.block_size() as u64;
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
        let block_size = self.objects.volume.block_size() as u64;
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
            let mut handle = self.objects.join(change.credits + 1)?;
            self.data(inode).apply_mapping(&mut handle, change, |_| ());
        }
        Ok(())
    }
}
