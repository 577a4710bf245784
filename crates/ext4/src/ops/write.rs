//! Writes file data. Overwrites hold the operation lock shared. All other writes hold it
//! exclusively: they claim blocks, write the data to them, and then map them.

use crate::alloc::Privilege;
use crate::attr::SyncMode;
use crate::clock::now;
use crate::data::holes::take_front;
use crate::error::Error;
use crate::flags;
use crate::fs::Fs;
use crate::object::inode::{Inode, InodeRef};
use crate::object::state::Concerns;
use crate::plan::extent::{Extent, State};
use crate::policy::Overwrite;
use lanefs_lanes::sync::Arc;
use lanefs_ondisk::FileType;

/// Selects the place of a write.
#[derive(Debug, Clone, Copy)]
pub(super) enum At {
    Offset(u64),
    End,
}

/// Selects whether a write sets the times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stamp {
    Now,
    /// Keeps the times, for pages of a kernel's writeback cache: that kernel manages the times, and
    /// a late write would undo a utimensat(2).
    Keep,
}

/// A write: its position, data, times and privilege.
#[derive(Debug, Clone, Copy)]
pub(super) struct Write<'a> {
    pub at: At,
    pub data: &'a [u8],
    pub stamp: Stamp,
    pub by: Privilege,
}

/// The largest number of bytes that are written and mapped in one step.
const CHUNK: usize = 4 << 20;

impl Fs {
    /// Writes `data` at `offset`. Returns the number of bytes written, less than the length of
    /// `data` only if space ran out.
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

    /// Does the same as [`Fs::write_at`] at the end of the file at that time, and also returns the
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

    /// Does the same as [`Fs::write`], but ignores the inode's flags about durability.
    fn write_unsynced(&self, inode: &Arc<Inode>, write: &Write<'_>) -> Result<(u64, usize), Error> {
        self.check_writable_data(inode)?;
        if let At::Offset(offset) = write.at {
            self.objects.volume.check_size(offset.saturating_add(write.data.len() as u64))?;
            if write.data.is_empty() {
                return Ok((offset, 0));
            }
        }
        match self.overwrite {
            Overwrite::Shared => {
                if let Some(written) = self.overwrite_shared(inode, write)? {
                    return Ok(written);
                }
                let _exclusive = inode.op.exclusive();
                self.write_locked(inode, write)
            }
            Overwrite::Exclusive => self.write_exclusively(inode, write),
        }
    }

    /// Overwrites with the operation lock shared (S3), if the device can write exactly these bytes.
    /// Otherwise the device would read and merge a block, and two threads that write to one block
    /// would lose data. `None` if the write allocates or extends the file.
    fn overwrite_shared(
        &self,
        inode: &Arc<Inode>,
        write: &Write<'_>,
    ) -> Result<Option<(u64, usize)>, Error> {
        let At::Offset(offset) = write.at else { return Ok(None) };
        let align = u64::from(self.objects.volume.device.alignment());
        if !offset.is_multiple_of(align) || !(write.data.len() as u64).is_multiple_of(align) {
            return Ok(None);
        }
        let shared = inode.op.shared();
        if !self.overwrite_locked(inode, offset, write.data)? {
            return Ok(None);
        }
        drop(shared);
        self.stamp_overwrite(inode, write.stamp)?;
        Ok(Some((offset, write.data.len())))
    }

    /// Overwrites the bytes if all of them are mapped, written and inside the file; otherwise
    /// returns false.
    ///
    /// # Locking
    /// The operation lock is held, shared or exclusively.
    pub(super) fn overwrite_locked(
        &self,
        inode: &Arc<Inode>,
        offset: u64,
        data: &[u8],
    ) -> Result<bool, Error> {
        if offset + data.len() as u64 > inode.attr().size {
            return Ok(false);
        }
        let pieces = self.data(inode).pieces(offset, data.len())?;
        if pieces.iter().any(|piece| piece.device.is_none()) {
            return Ok(false);
        }
        for piece in pieces {
            let from = (piece.offset - offset) as usize;
            let Some(at) = piece.device else { continue };
            self.objects.volume.device.write_at(at, &data[from..from + piece.len])?;
        }
        self.objects.note_data(inode);
        Ok(true)
    }

    /// Sets the times after an overwrite, if the clock has ticked since the last change.
    pub(super) fn stamp_overwrite(&self, inode: &Arc<Inode>, stamp: Stamp) -> Result<(), Error> {
        if stamp == Stamp::Keep {
            return Ok(());
        }
        let attr = inode.attr();
        let now = now();
        if attr.mtime == now && attr.ctime == now {
            return Ok(());
        }
        let mut handle = self.objects.join(2)?;
        inode.change(&mut handle, Concerns::Attributes, |state| {
            state.disk.mtime = now;
            state.disk.ctime = now;
        });
        Ok(())
    }

    /// Does a write that may allocate, convert or grow. The caller holds the operation lock
    /// exclusively.
    pub(super) fn write_locked(
        &self,
        inode: &Arc<Inode>,
        &Write { at, data, stamp, by }: &Write<'_>,
    ) -> Result<(u64, usize), Error> {
        let start = match at {
            At::Offset(offset) => offset,
            At::End => inode.attr().size,
        };
        self.objects.volume.check_size(start.saturating_add(data.len() as u64))?;
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

    /// Writes one chunk. The caller holds the operation lock exclusively.
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
            self.data(inode).prepare_growth(size, offset)?;
        }
        let block_size = self.objects.volume.block_size() as u64;
        let first = (offset / block_size) as u32;
        let last = ((offset + data.len() as u64 - 1) / block_size) as u32;
        let (mut claims, extents) = self.data(inode).claim_holes(first..last + 1, by)?;
        let covered = extents.last().map_or(first, Extent::end);
        // With fewer blocks than requested, only the data that fits is written.
        let len = (data.len() as u64).min(u64::from(covered) * block_size - offset) as usize;
        let data = &data[..len];
        self.data(inode).write_blocks(offset, data, &extents)?;
        self.objects.note_data(inode);

        let now = now();
        let mut at = first;
        while at < covered {
            // All blocks with data are mapped as written, including claimed and unwritten ones.
            let written: Vec<Extent> = extents
                .iter()
                .filter_map(|e| e.clip(&(at..covered)))
                .map(|e| Extent { state: State::Written, ..e })
                .collect();
            let change = match self.data(inode).plan_mapping(at..covered, &written) {
                // The part that is already mapped was written, so this is a short write.
                Err(Error::NoSpace) if at > first => {
                    let mapped = u64::from(at) * block_size - offset;
                    return Ok(mapped.min(len as u64) as usize);
                }
                other => other?,
            };
            at = change.covered.end.min(covered);
            let reached = (u64::from(at) * block_size).min(offset + len as u64);
            let used = take_front(&mut claims, at);
            let mut handle = self.objects.join(change.credits + 3 * used.len() as u32 + 1)?;
            for claim in used {
                self.objects.groups.allocate(&mut handle, claim);
            }
            self.data(inode).apply_mapping(&mut handle, change, |state| {
                state.disk.size = state.disk.size.max(reached);
                if stamp == Stamp::Now {
                    state.disk.mtime = now;
                    state.disk.ctime = now;
                }
            });
        }
        Ok(len)
    }

    /// Gives back the blocks claimed ahead. Called when the last writer closes a file.
    pub fn release(&self, inode: &InodeRef) {
        inode.window.give_back();
    }

    fn check_writable_data(&self, inode: &Inode) -> Result<(), Error> {
        match inode.file_type {
            FileType::Regular => {}
            FileType::Directory => return Err(Error::IsDirectory),
            _ => return Err(Error::InvalidArgument { what: "not a regular file" }),
        }
        self.objects.check_writable()?;
        flags::check_not_immutable(&inode.rights())
    }
}
