//! Writes file data: chooses the locks of a write, overwrites written blocks, and writes to holes
//! and unwritten space.

use crate::alloc::{Claim, Privilege};
use crate::attr::{SyncMode, now};
use crate::data::holes::{Covered, Overlap};
use crate::flags;
use crate::object::dirty::Credits;
use crate::object::fs::Fs;
use crate::object::inode::{Inode, InodeRef};
use crate::object::state::{Concerns, FastPart};
use crate::options::{Access, Synchronous};
use lanefs_journal::{FlushMark, Tid};
use lanefs_lanes::sync::Arc;
use lanefs_lanes::sync::atomic::Ordering;
use lanefs_lanes::{ExclusiveHold, SharedHold};
use lanefs_ondisk::Time;
use lanefs_plan::Error;
use lanefs_plan::extent::{Extent, State};

/// Selects the position of a write.
#[derive(Debug, Clone, Copy)]
pub(crate) enum At {
    Offset(u64),
    End,
}

/// Selects whether a write sets the times, and whether a write beyond the size sets the size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stamp {
    Now,
    /// Keeps the times, for pages of a kernel's writeback cache. That kernel manages the times
    /// itself, and a late write would otherwise undo a utimensat(2).
    Keep,
    /// Keeps the times and the size, for the metadata after the end of a verity file.
    BeyondEnd,
}

/// A write: its position, data, times and privilege.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Write<'a> {
    pub at: At,
    pub data: &'a [u8],
    pub stamp: Stamp,
    pub by: Privilege,
}

impl Fs {
    /// Writes `data` at `offset`. Returns the number of bytes written, which is less than the
    /// length of `data` only if space ran out or an owner's limit was reached.
    pub fn write_at(
        &self,
        inode: &InodeRef,
        offset: u64,
        data: &[u8],
        by: Privilege,
    ) -> Result<usize, Error> {
        let write = Write { at: At::Offset(offset), data, stamp: Stamp::Now, by };
        self.write(inode, &write).map(|(_, n)| n)
    }

    /// Does the same as [`Fs::write_at`] at the current end of the file, and also returns the
    /// offset.
    pub fn append(
        &self,
        inode: &InodeRef,
        data: &[u8],
        by: Privilege,
    ) -> Result<(u64, usize), Error> {
        self.write(inode, &Write { at: At::End, data, stamp: Stamp::Now, by })
    }

    /// Does the same as [`Fs::write_at`] for pages from a kernel's writeback cache, without setting
    /// times.
    pub fn write_back(
        &self,
        inode: &InodeRef,
        offset: u64,
        data: &[u8],
        by: Privilege,
    ) -> Result<usize, Error> {
        let write = Write { at: At::Offset(offset), data, stamp: Stamp::Keep, by };
        self.write(inode, &write).map(|(_, n)| n)
    }

    fn write(&self, inode: &InodeRef, write: &Write<'_>) -> Result<(u64, usize), Error> {
        let written = self.write_unsynced(inode, write)?;
        self.obey_sync(inode, SyncMode::Data)?;
        Ok(written)
    }

    /// Does the same as [`Fs::write`], but does not make the write durable, even if the inode's
    /// flag or the mount requires that.
    fn write_unsynced(&self, inode: &Arc<Inode>, write: &Write<'_>) -> Result<(u64, usize), Error> {
        self.check_writable_data(inode)?;
        if let At::Offset(offset) = write.at {
            let end = offset.saturating_add(write.data.len() as u64);
            self.volume.check_size(self.data(inode).form(), end)?;
            if write.data.is_empty() {
                return Ok((offset, 0));
            }
        }
        match self.write_shared(inode, write)? {
            Some((offset, n)) => Ok((offset, self.write_rest(inode, offset, n, write)?)),
            None => {
                let _exclusive = inode.op.exclusive();
                self.write_locked(inode, write)
            }
        }
    }

    /// Writes while holding the operation lock shared (S3 in `docs/seeds.md`). Returns `None` if
    /// the write needs the lock exclusively, for one of these reasons:
    /// - it covers only a part of one of these: a device block (the device reads and merges the
    ///   rest), an encrypted block, an unwritten block, or with `bigalloc` a hole (the write zeroes
    ///   the rest). Two such writes to one block at once would lose data;
    /// - the file's data is in the inode;
    /// - there are too few free blocks, or an owner's limit is reached.
    ///
    /// For the last reason, the write may also end early.
    fn write_shared(
        &self,
        inode: &Arc<Inode>,
        write: &Write<'_>,
    ) -> Result<Option<(u64, usize)>, Error> {
        if let At::Offset(offset) = write.at
            && !self.is_aligned(inode, offset, write.data.len())
        {
            return Ok(None);
        }
        let shared = inode.op.shared();
        flags::check_data_changes(&inode.rights())?;
        if self.data(inode).is_inline() {
            return Ok(None);
        }
        if let At::Offset(offset) = write.at
            && self.overwrite_locked(inode, offset, write.data)?
        {
            drop(shared);
            self.stamp_overwrite(inode, write.stamp)?;
            return Ok(Some((offset, write.data.len())));
        }
        let (offset, _growth) = self.begin_growth(inode, write)?;
        let end = offset + write.data.len() as u64;
        if !self.is_aligned(inode, offset, write.data.len())
            || self.data(inode).cover_part_of_unwritten(offset, end)?
        {
            return Ok(None);
        }
        match self.write_chunks(inode, offset, write) {
            // Another write may have claimed blocks for the same holes, so that too few free blocks
            // are left until it maps them or gives them back.
            Err(Error::NoSpace | Error::OverQuota) => Ok(None),
            written => written.map(|n| Some((offset, n))),
        }
    }

    /// Completes a write that ended early, after `done` bytes, under a shared hold: tries again
    /// under an exclusive hold, because another write may meanwhile have mapped the holes for which
    /// this one got no blocks. Returns the number of bytes written in total. An append is not
    /// completed, because its rest might not follow its start.
    fn write_rest(
        &self,
        inode: &Arc<Inode>,
        offset: u64,
        done: usize,
        write: &Write<'_>,
    ) -> Result<usize, Error> {
        let rest = write.data.get(done..).unwrap_or_default();
        if rest.is_empty() || matches!(write.at, At::End) {
            return Ok(done);
        }
        let rest = Write { at: At::Offset(offset + done as u64), data: rest, ..*write };
        let _exclusive = inode.op.exclusive();
        match self.write_locked(inode, &rest) {
            Ok((_, n)) => Ok(done + n),
            Err(Error::NoSpace | Error::OverQuota) => Ok(done),
            Err(error) => Err(error),
        }
    }

    /// Returns whether a write covers only whole blocks: blocks of the file system if the file is
    /// encrypted, otherwise blocks of the device.
    fn is_aligned(&self, inode: &Arc<Inode>, offset: u64, len: usize) -> bool {
        let volume = &self.volume;
        let unit = match self.data(inode).is_encrypted() {
            true => volume.block_size() as u64,
            false => u64::from(volume.device.alignment()),
        };
        offset.is_multiple_of(unit) && (len as u64).is_multiple_of(unit)
    }

    /// Overwrites the bytes if all of them are inside the file and mapped to written blocks, and
    /// the file is not encrypted. Otherwise returns false.
    ///
    /// # Locking
    /// The operation lock is held, shared or exclusively.
    #[inline(never)] // inlined, it takes 76 instructions more: smaller functions are then called
    fn overwrite_locked(
        &self,
        inode: &Arc<Inode>,
        offset: u64,
        data: &[u8],
    ) -> Result<bool, Error> {
        if offset + data.len() as u64 > inode.attr().size || self.data(inode).is_encrypted() {
            return Ok(false);
        }
        let pieces = self.data(inode).pieces(offset, data.len())?;
        if pieces.iter().any(|piece| piece.device.is_none()) {
            return Ok(false);
        }
        self.data(inode).await_move()?;
        for piece in pieces {
            let from = (piece.offset - offset) as usize;
            let Some(at) = piece.device else { continue };
            self.volume.device.write_data_at(at, &data[from..from + piece.len])?;
        }
        self.note_data(inode);
        Ok(true)
    }

    /// Sets the times after an overwrite, unless the file already has the present time of the clock
    /// as its mtime and ctime.
    pub(crate) fn stamp_overwrite(&self, inode: &Arc<Inode>, stamp: Stamp) -> Result<(), Error> {
        if stamp != Stamp::Now {
            return Ok(());
        }
        let attr = inode.attr();
        // An inode of 128 bytes stores whole seconds only.
        let stores_fine_times = self.volume.geometry().inode_size() > 128;
        let now = if stores_fine_times { now() } else { Time { nanos: 0, ..now() } };
        if attr.mtime == now && attr.ctime == now {
            return Ok(());
        }
        let mut handle = self.join(Credits::INODE)?;
        inode.change_part(&mut handle, Concerns::Attributes, FastPart::Record, |state| {
            state.disk.mtime = now;
            state.disk.ctime = now;
        });
        Ok(())
    }

    /// Gives back the blocks that were claimed in advance. Called when the last writer closes a
    /// file.
    pub fn release(&self, inode: &InodeRef) {
        if self.check_process().is_ok() {
            inode.window.give_back();
        }
    }

    fn check_writable_data(&self, inode: &Inode) -> Result<(), Error> {
        inode.check_regular()?;
        self.check_writable()?;
        // A FUSE kernel may open files without sending a request, so the checks for opening a file
        // are made here too.
        inode.check_not_foreign()?;
        flags::check_data_changes(&inode.rights())
    }
}

// Writes that allocate blocks, convert unwritten space, or extend the file.
//
// Each of these writes claims blocks for the holes (only in memory), writes its data to the
// claimed and the unwritten blocks, and then maps them as written. If the operation lock is held
// shared, several writes can do this at once. But only one write at a time changes the mappings,
// under `Inode::mapping` and without data I/O. If another write has mapped blocks for one of the
// holes meanwhile, the claimed blocks are given back, and the data is written to the mapped ones.

/// The largest number of bytes that are written and mapped in one step. Steps end at multiples of
/// this number, so a write does not split a block between two steps.
const CHUNK: u64 = 4 << 20;

/// How a write holds the growth lock of its file.
pub(crate) enum Growth<'a> {
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
    pub(crate) fn begin_growth<'i>(
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
        self.volume.check_size(self.data(inode).form(), offset.saturating_add(len))?;
        if offset + len > size {
            self.data(inode).prepare_growth(size, offset)?;
        }
        Ok((offset, Growth::Alone { _hold: alone }))
    }

    /// Performs a write that may allocate blocks, convert unwritten blocks, or extend the file. The
    /// caller holds the operation lock exclusively.
    pub(crate) fn write_locked(
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
        self.volume.check_size(self.data(inode).form(), end)?;
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
    pub(crate) fn write_chunks(
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
        let block_size = self.volume.block_size() as u64;
        let first = (offset / block_size) as u32;
        let last = ((offset + data.len() as u64 - 1) / block_size) as u32;
        loop {
            let Covered { claims, extents, held: _held } =
                self.data(inode).claim_holes(first..last + 1, by, Overlap::AtStart)?;
            let covered = extents.last().map_or(first, Extent::end);
            if claims.len() < extents.len() {
                self.data(inode).await_move()?;
            }
            // If fewer blocks are covered than requested, only the data that fits is written.
            let len = (data.len() as u64).min(u64::from(covered) * block_size - offset);
            self.data(inode).write_blocks(offset, &data[..len as usize], &extents)?;
            self.note_data(inode);
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
        let (file, block_size) = (self.data(inode), self.volume.block_size() as u64);
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
            file.publish(&mut claims, at, change, |state| {
                if stamp != Stamp::BeyondEnd {
                    state.disk.size = state.disk.size.max(reached);
                }
                if stamp == Stamp::Now {
                    let now = now();
                    state.disk.mtime = now;
                    state.disk.ctime = now;
                }
            })?;
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
        let mut handle = self.join(Credits::INODE)?;
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

// Implements fsync, fdatasync and sync.

impl Fs {
    /// Makes the inode durable: its data and its attributes. If the inode got a new name, the name
    /// becomes durable too, since programs rely on that. An error is permanent: after a failed
    /// flush every later call fails.
    pub fn fsync(&self, inode: &InodeRef, mode: SyncMode) -> Result<(), Error> {
        self.check_process()?;
        if let Some(cause) = self.journal.cause() {
            return Err(cause.into());
        }
        // After damage has made the mount read-only, fsync is still permitted, because the changes
        // that were made before must become durable.
        let word = match mode {
            SyncMode::Full => &inode.synced_by,
            SyncMode::Data => &inode.data_synced_by,
        };
        let tid = Tid(word.load(Ordering::Acquire));
        let is_dirty = tid.0 != 0 && tid > self.journal.durable();
        if is_dirty && !self.fast_commit(inode, tid)? {
            self.journal.commit_here(tid, self)?;
        }
        let mark = FlushMark(inode.flush_mark.load(Ordering::Acquire));
        Ok(self.journal.flush_if_needed(mark)?)
    }

    /// Makes a change of an inode durable if the inode's flag (chattr +S) or the mount requires
    /// that. `mode` is [`SyncMode::Data`] if only the data and the size changed.
    ///
    /// # Errors
    /// After an error the change has been made, but it is unknown whether it would survive a crash.
    pub(crate) fn obey_sync(&self, inode: &InodeRef, mode: SyncMode) -> Result<(), Error> {
        match self.options.synchronous == Synchronous::All || flags::is_synchronous(&inode.rights())
        {
            true => self.fsync(inode, mode),
            false => Ok(()),
        }
    }

    /// Makes a change of names in `dirs` durable if one of these directories has the flag of chattr
    /// +D or +S, or if the mount requires that.
    ///
    /// # Errors
    /// The errors are those of [`Fs::obey_sync`].
    pub(crate) fn obey_dirsync(&self, dirs: &[&InodeRef]) -> Result<(), Error> {
        let is_marked = |dir: &&InodeRef| flags::has_synchronous_names(&dir.rights());
        match self.options.synchronous != Synchronous::Marked || dirs.iter().any(is_marked) {
            true => self.sync(),
            false => Ok(()),
        }
    }

    /// Makes durable all changes that were made before the call.
    pub fn sync(&self) -> Result<(), Error> {
        self.check_process()?;
        if let Some(cause) = self.journal.cause() {
            return Err(cause.into());
        }
        if self.options.access == Access::ReadOnly {
            return Ok(());
        }
        match self.journal.commit_here(self.journal.running(), self) {
            // The journal was closed meanwhile, which committed everything.
            Err(lanefs_journal::Error::Stopped) => return Ok(()),
            committed => committed?,
        }
        Ok(self.journal.flush_if_needed(self.journal.last_write())?)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
