//! Sizes: growing, truncating in steps, and the end of an inode without names.

use crate::Error;
use crate::fs::Fs;
use crate::object::commit::{Deferred, Handle};
use crate::object::inode::{Concerns, Inode};
use crate::ops::read::now;
use crate::plan::extent::{END, Mapping, State};
use lanefs_journal::Tid;
use lanefs_lanes::sync::Arc;
use lanefs_ondisk::{Block, FileBlock, FileType, Time};
use std::ops::Range;

/// Groups whose blocks one handle frees at most: bounds its credits.
const STEP: u32 = 16;
/// Blocks of a directory that one handle frees at most: each is revoked.
const DIRECTORY_STEP: u32 = 1024;

impl Fs {
    /// Sets the size; the operation lock is held exclusively.
    pub(crate) fn set_size(&self, inode: &Arc<Inode>, size: u64) -> Result<(), Error> {
        self.check_size(size)?;
        let before = inode.attr().size;
        let now = now();
        if size >= before {
            if size > before {
                self.prepare_growth(inode, before, size)?;
            }
            let mut handle = self.join(2)?;
            inode.change(&mut handle, Concerns::Data, |state| {
                state.disk.size = size;
                state.disk.mtime = now;
                state.disk.ctime = now;
            });
            return Ok(());
        }
        inode.window.give_back();
        let tail = self.tail_of(inode, size)?;
        let block_size = self.geometry.block_size().bytes() as u64;
        let keep = size.div_ceil(block_size) as u32;
        if self.step_end(inode, keep..END)?.is_none_or(|end| end == END) {
            // One handle does it all, if the leaf allows.
            let change = self.plan_mapping(inode, keep..END, &[])?;
            if change.covered.end == END {
                let mut handle = self.join(change.credits + 2)?;
                let tail = self.zero_tail(&mut handle, tail);
                self.apply_mapping(&mut handle, inode, change, |state| {
                    shrink(state, size, now, tail);
                });
                return Ok(());
            }
        }
        // Recorded first, so that a crash in the middle is finished by the next mount.
        let mut handle = self.join(6)?;
        self.add_orphan(&mut handle, inode);
        let tail = self.zero_tail(&mut handle, tail);
        inode.change(&mut handle, Concerns::Data, |state| shrink(state, size, now, tail));
        drop(handle);
        self.free_from(inode, keep)?;
        let mut handle = self.join(6)?;
        self.remove_orphan(&mut handle, inode);
        Ok(())
    }

    /// Frees all mappings from file block `keep` on, in steps of one handle each. The operation lock
    /// is held exclusively.
    pub(crate) fn free_from(&self, inode: &Arc<Inode>, keep: u32) -> Result<(), Error> {
        self.unmap(inode, keep..END)
    }

    /// Frees the mappings of `range`, in steps of one handle for each leaf and at most
    /// [`STEP`] extents and groups. The operation lock is held exclusively.
    pub(crate) fn unmap(&self, inode: &Arc<Inode>, range: Range<u32>) -> Result<(), Error> {
        let mut at = range.start;
        while at < range.end {
            let Some(end) = self.step_end(inode, at..range.end)? else { return Ok(()) };
            let change = self.plan_mapping(inode, at..end, &[])?;
            at = change.covered.end.max(at + 1);
            let mut handle = self.join(change.credits + 1)?;
            self.apply_mapping(&mut handle, inode, change, |_| ());
        }
        Ok(())
    }

    /// How far one handle can free mappings of `range`: `None` if there are none.
    fn step_end(&self, inode: &Arc<Inode>, range: Range<u32>) -> Result<Option<u32>, Error> {
        let most = match inode.file_type {
            FileType::Directory => DIRECTORY_STEP,
            _ => u32::MAX,
        };
        self.with_map(inode, |map| {
            let (mut groups, mut blocks) = (0, 0);
            let mut found = false;
            for extent in map.iter_from(FileBlock(range.start)) {
                if extent.start.0 >= range.end {
                    break;
                }
                let from = extent.start.0.max(range.start);
                if extent.end() - from > most - blocks {
                    return Some((from + most - blocks).min(range.end));
                }
                blocks += extent.end() - from;
                groups += self.groups_of(extent.block, extent.len);
                if found && groups > STEP {
                    return Some(extent.start.0);
                }
                found = true;
            }
            found.then_some(range.end)
        })
    }

    /// The written block that a file of `size` bytes ends in the middle of, and where in it.
    fn tail_of(&self, inode: &Arc<Inode>, size: u64) -> Result<Option<(Block, usize)>, Error> {
        let block_size = self.geometry.block_size().bytes() as u64;
        let within = (size % block_size) as usize;
        if within == 0 {
            return Ok(None);
        }
        let last = FileBlock((size / block_size) as u32);
        Ok(match self.with_map(inode, |map| map.find(last))? {
            Mapping::Mapped { block, state: State::Written, .. } => Some((block, within)),
            _ => None,
        })
    }

    /// In the handle that cuts the file: once that is durable, the rest of the last block is zeroed,
    /// as other systems trust it to be. Not before: a crash would bring the longer file back.
    /// The transaction that growing the file must wait for.
    fn zero_tail(&self, handle: &mut Handle<'_>, tail: Option<(Block, usize)>) -> Option<Tid> {
        let (block, from) = tail?;
        let size = self.geometry.block_size().bytes();
        let offset = block.0 * size as u64 + from as u64;
        // Freed in the same transaction it must not become another's before it is zeroed.
        self.groups.keep_until_durable(handle.tid(), block);
        handle.defer(Deferred::ZeroTail { offset, len: (size - from) as u32 });
        Some(handle.tid())
    }

    /// Ends an inode that has no names and that nobody holds: its blocks, its attributes, its
    /// number. Called by whoever dropped the last hold, with no lock held. An error leaves it on
    /// the orphan list for the next mount.
    pub(crate) fn delete_inode(&self, inode: &Arc<Inode>) {
        if let Err(error) = self.try_delete(inode) {
            self.note_error(&error);
        }
    }

    fn try_delete(&self, inode: &Arc<Inode>) -> Result<(), Error> {
        if self.is_read_only() {
            return Ok(());
        }
        let _exclusive = inode.op.exclusive();
        inode.window.give_back();
        // An orphan of another system's that maps blocks in a way that is not ours to free.
        self.check_mapped_by_extents(inode)?;
        let has_tree = inode.state.lock().has_tree();
        if has_tree {
            self.free_from(inode, 0)?;
        }
        let xattrs = self.prepare_xattr_release(inode)?;
        let (group, _) = self.inode_group(inode.ino)?;
        let _hold = self.groups.load(self, group)?;
        let mut handle = self.join(16)?;
        if let Some((block, _hold)) = xattrs {
            self.release_xattr_block(&mut handle, block);
        }
        self.remove_orphan(&mut handle, inode);
        self.end_inode(&mut handle, inode);
        drop(handle);
        if inode.file_type == FileType::Directory {
            self.names.forget(inode.dir_id());
        }
        Ok(())
    }

    /// Apply: frees the number of an inode that has nothing else any more and that nobody can hold.
    /// Its group is loaded. At most 4 credits.
    pub(crate) fn end_inode(&self, handle: &mut Handle<'_>, inode: &Arc<Inode>) {
        let now = now();
        inode.change(handle, Concerns::Attributes, |state| {
            state.disk.file_acl = None;
            state.disk.links = 0;
            state.disk.size = 0;
            state.disk.dtime = u32::try_from(now.secs).unwrap_or(u32::MAX);
            state.freed = true;
        });
        if let Err(error) = self.groups.free_inode(handle, inode.ino, inode.file_type) {
            self.note_error(&error);
        }
    }
}

fn shrink(state: &mut crate::object::inode::InodeState, size: u64, now: Time, tail: Option<Tid>) {
    state.disk.size = size;
    state.disk.mtime = now;
    state.disk.ctime = now;
    state.tail_pending = tail.or(state.tail_pending);
}
