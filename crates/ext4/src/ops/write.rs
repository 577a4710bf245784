//! Writes file data: chooses the locks of a write, and overwrites written blocks. `allocate.rs`
//! writes to holes and unwritten space.

use crate::alloc::Privilege;
use crate::attr::SyncMode;
use crate::clock::now;
use crate::flags;
use crate::fs::Fs;
use crate::object::fast_track::FastPart;
use crate::object::inode::{Inode, InodeRef};
use crate::object::state::Concerns;
use lanefs_lanes::sync::Arc;
use lanefs_ondisk::Time;
use lanefs_plan::Error;

/// Selects the position of a write.
#[derive(Debug, Clone, Copy)]
pub(super) enum At {
    Offset(u64),
    End,
}

/// Selects whether a write sets the times, and whether a write beyond the size sets the size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stamp {
    Now,
    /// Keeps the times, for pages of a kernel's writeback cache. That kernel manages the times
    /// itself, and a late write would otherwise undo a utimensat(2).
    Keep,
    /// Keeps the times and the size, for the metadata after the end of a verity file.
    BeyondEnd,
}

/// A write: its position, data, times and privilege.
#[derive(Debug, Clone, Copy)]
pub(super) struct Write<'a> {
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
            self.objects.volume.check_size(self.data(inode).form(), end)?;
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
        let volume = &self.objects.volume;
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
            self.objects.volume.device.write_data_at(at, &data[from..from + piece.len])?;
        }
        self.objects.note_data(inode);
        Ok(true)
    }

    /// Sets the times after an overwrite, unless the file already has the present time of the clock
    /// as its mtime and ctime.
    pub(super) fn stamp_overwrite(&self, inode: &Arc<Inode>, stamp: Stamp) -> Result<(), Error> {
        if stamp != Stamp::Now {
            return Ok(());
        }
        let attr = inode.attr();
        // An inode of 128 bytes stores whole seconds only.
        let stores_fine_times = self.objects.volume.geometry().inode_size() > 128;
        let now = if stores_fine_times { now() } else { Time { nanos: 0, ..now() } };
        if attr.mtime == now && attr.ctime == now {
            return Ok(());
        }
        let mut handle = self.objects.join(2)?;
        inode.change_part(&mut handle, Concerns::Attributes, FastPart::Record, |state| {
            state.disk.mtime = now;
            state.disk.ctime = now;
        });
        Ok(())
    }

    /// Gives back the blocks that were claimed in advance. Called when the last writer closes a
    /// file.
    pub fn release(&self, inode: &InodeRef) {
        if self.objects.check_process().is_ok() {
            inode.window.give_back();
        }
    }

    fn check_writable_data(&self, inode: &Inode) -> Result<(), Error> {
        inode.check_regular()?;
        self.objects.check_writable()?;
        // A FUSE kernel may open files without sending a request, so the checks for opening a file
        // are made here too.
        inode.check_not_foreign()?;
        flags::check_data_changes(&inode.rights())
    }
}
