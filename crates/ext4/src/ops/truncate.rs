//! Sets file sizes: grows files, and truncates them in steps.

use crate::clock::now;
use crate::error::Error;
use crate::flags;
use crate::fs::Fs;
use crate::object::dirty::{Deferred, Handle};
use crate::object::inode::Inode;
use crate::object::state::{Concerns, InodeState};
use crate::plan::extent::{END, Mapping, State};
use lanefs_journal::Tid;
use lanefs_lanes::sync::Arc;
use lanefs_lanes::sync::atomic::Ordering;
use lanefs_ondisk::{Block, FileBlock, Time};

impl Fs {
    /// Sets the size. The caller holds the operation lock exclusively.
    pub(crate) fn set_size(&self, inode: &Arc<Inode>, size: u64) -> Result<(), Error> {
        flags::check_data_changes(&inode.rights())?;
        if self.data(inode).contents()?.is_none() || size >= inode.size() {
            return self.resize(inode, size);
        }
        self.resize(inode, size)?;
        // The rest of the last block is encrypted together with the bytes before it, which may
        // change, so the committer cannot zero it.
        let block_size = self.objects.volume.block_size() as u64;
        if !size.is_multiple_of(block_size) {
            self.objects.journal.settle(Tid(inode.synced_by.load(Ordering::Acquire)))?;
            self.data(inode).zero_written(size, size.next_multiple_of(block_size))?;
        }
        Ok(())
    }

    fn resize(&self, inode: &Arc<Inode>, size: u64) -> Result<(), Error> {
        self.data(inode).leave_inode(size)?;
        self.objects.volume.check_size(inode.form(), size)?;
        let before = inode.attr().size;
        let now = now();
        if size >= before {
            if size > before {
                self.data(inode).prepare_growth(before, size)?;
            }
            let mut handle = self.objects.join(2)?;
            inode.change(&mut handle, Concerns::Data, |state| {
                state.disk.size = size;
                state.disk.mtime = now;
                state.disk.ctime = now;
            });
            return Ok(());
        }
        inode.window.give_back();
        let tail = self.tail_of(inode, size)?;
        let block_size = self.objects.volume.block_size() as u64;
        let keep = size.div_ceil(block_size) as u32;
        if self.data(inode).step_end(keep..END)?.is_none_or(|end| end == END) {
            // If all mappings to be freed are in one leaf, one handle frees them.
            let change = self.data(inode).plan_mapping(keep..END, &[])?;
            if change.covered.end == END {
                let mut handle = self.objects.join(change.credits + 2)?;
                let tail = self.zero_tail(&mut handle, tail);
                self.data(inode).apply_mapping(&mut handle, change, |state| {
                    shrink(state, size, now, tail);
                });
                return Ok(());
            }
        }
        // The inode is recorded as an orphan first, so that after a crash in the middle the next
        // mount finishes the truncation.
        let mut handle = self.objects.join(6)?;
        self.objects.orphans.add(&mut handle, inode);
        let tail = self.zero_tail(&mut handle, tail);
        inode.change(&mut handle, Concerns::Data, |state| shrink(state, size, now, tail));
        drop(handle);
        self.data(inode).free_from(keep)?;
        self.data(inode).leave_orphans()
    }

    /// Returns the written block in which a file of `size` bytes ends, and the offset in it; `None`
    /// if it ends at a block boundary, or is encrypted.
    fn tail_of(&self, inode: &Arc<Inode>, size: u64) -> Result<Option<(Block, usize)>, Error> {
        let block_size = self.objects.volume.block_size() as u64;
        let within = (size % block_size) as usize;
        if within == 0 || self.data(inode).is_encrypted() {
            return Ok(None);
        }
        let last = FileBlock((size / block_size) as u32);
        Ok(match self.data(inode).with_map(|map| map.find(last))? {
            Mapping::Mapped { block, state: State::Written, .. } => Some((block, within)),
            _ => None,
        })
    }

    /// Defers zeroing the rest of the last block until the handle that truncates the file is
    /// durable. Other systems rely on zeros there, and before that point a crash would bring the
    /// longer file back. Returns the transaction for which a growth of the file must wait.
    fn zero_tail(&self, handle: &mut Handle<'_>, tail: Option<(Block, usize)>) -> Option<Tid> {
        let (block, from) = tail?;
        let size = self.objects.volume.block_size();
        let offset = block.0 * size as u64 + from as u64;
        // If the block is freed in the same transaction, no other file may claim it before it is
        // zeroed.
        self.objects.groups.keep_until_durable(handle.tid(), block);
        handle.defer(Deferred::ZeroTail { offset, len: (size - from) as u32 });
        Some(handle.tid())
    }
}

fn shrink(state: &mut InodeState, size: u64, now: Time, tail: Option<Tid>) {
    state.disk.size = size;
    state.disk.mtime = now;
    state.disk.ctime = now;
    state.tail_pending = tail.or(state.tail_pending);
}
