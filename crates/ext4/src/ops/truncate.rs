//! Sets file sizes: grows files, and truncates them in steps.

use crate::alloc::{Claim, Request};
use crate::clock::now;
use crate::data::file_data::FileData;
use crate::flags;
use crate::fs::Fs;
use crate::object::dirty::{Deferred, Handle};
use crate::object::inode::Inode;
use crate::object::state::{Concerns, InodeState};
use lanefs_journal::Tid;
use lanefs_lanes::sync::Arc;
use lanefs_ondisk::{Block, FileBlock, Time};
use lanefs_plan::Error;
use lanefs_plan::extent::{END, Extent, Mapping, State};

/// The number of credits for allocating the copy of a file's last block.
const COPY_CREDITS: u32 = 3;

/// The bytes after the new end of a file, in its last block.
enum Tail {
    /// There are no such bytes, or they are zeros already.
    Whole,
    /// These bytes become zeros after the truncation is durable.
    Zero { block: Block, from: usize },
    /// The last block is replaced by a copy that has zeros in place of these bytes. The copy is
    /// already written, so after a crash the file has either its new size and zeros, or its old
    /// size and all bytes.
    Copy { claim: Claim, extent: Extent },
}

impl Fs {
    /// Sets the size. The caller holds the operation lock exclusively.
    pub(crate) fn set_size(&self, inode: &Arc<Inode>, size: u64) -> Result<(), Error> {
        flags::check_data_changes(&inode.rights())?;
        // As in the kernel, changing the size of an encrypted file needs its key.
        self.data(inode).contents()?;
        self.data(inode).leave_inode(size)?;
        self.objects.volume.check_size(self.data(inode).form(), size)?;
        let before = inode.attr().size;
        if size < before {
            return self.truncate(inode, size);
        }
        if size > before {
            self.data(inode).prepare_growth(before, size)?;
        } else if self.data(inode).maps_beyond(size)? {
            // As in the kernel, blocks beyond the end are freed even if the size stays. They were
            // allocated with `FALLOC_FL_KEEP_SIZE`.
            inode.window.give_back();
            return self.cut(inode, size, Tail::Whole);
        }
        let now = now();
        let mut handle = self.objects.join(2)?;
        inode.change(&mut handle, Concerns::Data, |state| {
            state.disk.size = size;
            state.disk.mtime = now;
            state.disk.ctime = now;
        });
        Ok(())
    }

    /// Sets a smaller size.
    fn truncate(&self, inode: &Arc<Inode>, size: u64) -> Result<(), Error> {
        inode.window.give_back();
        let block_size = self.objects.volume.block_size() as u64;
        let within = (size % block_size) as usize;
        let last = FileBlock((size / block_size) as u32);
        let old = match self.data(inode).with_map(|map| map.find(last))? {
            Mapping::Mapped { block, state: State::Written, .. } if within > 0 => block,
            _ => return self.cut(inode, size, Tail::Whole),
        };
        if !self.data(inode).is_encrypted() {
            return self.cut(inode, size, Tail::Zero { block: old, from: within });
        }
        // The committer cannot zero the rest of the block, because the rest is encrypted together
        // with the bytes before it, which may change.
        let copied = self.data(inode).copy_of_last(size, Block(old.0 + 1));
        match copied.and_then(|copy| self.cut(inode, size, copy)) {
            Err(Error::NoSpace) => {}
            result => return result,
        }
        // A truncation must succeed without free space, so here the rest is zeroed in place. A
        // crash may then leave the file with its old length and with these zeros.
        self.data(inode).zero_written(size, size.next_multiple_of(block_size))?;
        self.cut(inode, size, Tail::Whole)
    }

    /// Sets a size that is not above the present one, and frees the blocks after the new end.
    fn cut(&self, inode: &Arc<Inode>, size: u64, tail: Tail) -> Result<(), Error> {
        let now = now();
        let keep = size.div_ceil(self.objects.volume.block_size() as u64) as u32;
        let (copy, rest) = match &tail {
            Tail::Copy { extent, .. } => (std::slice::from_ref(extent), keep - 1..END),
            Tail::Zero { .. } | Tail::Whole => (&[][..], keep..END),
        };
        let is_one_step = self.data(inode).step_end(keep..END)?.is_none_or(|end| end == END);
        if is_one_step {
            // If all mappings that must be freed are in one leaf, one handle frees them.
            let change = self.data(inode).plan_mapping(rest.clone(), copy)?;
            if change.covered.end == END {
                let mut handle = self.objects.join(change.credits + 2 + COPY_CREDITS)?;
                let tail = self.apply_tail(&mut handle, tail);
                self.data(inode).apply_mapping(&mut handle, change, |state| {
                    shrink(state, size, now, tail);
                });
                return Ok(());
            }
        }
        // The inode is recorded as an orphan first, so that after a crash in the middle the next
        // mount finishes the truncation.
        let copied = (!copy.is_empty())
            .then(|| self.data(inode).plan_mapping(rest.start..keep, copy))
            .transpose()?;
        let credits = copied.as_ref().map_or(0, |change| change.credits + COPY_CREDITS);
        let mut handle = self.objects.join(6 + credits)?;
        self.objects.orphans.add(&mut handle, inode);
        let tail = self.apply_tail(&mut handle, tail);
        if let Some(change) = copied {
            self.data(inode).apply_mapping(&mut handle, change, |_| ());
        }
        inode.change(&mut handle, Concerns::Data, |state| shrink(state, size, now, tail));
        drop(handle);
        self.data(inode).free_from(keep)?;
        self.data(inode).leave_orphans()
    }

    /// Allocates the copy of the last block, if there is one. Otherwise defers zeroing the rest of
    /// the last block until the transaction that truncates the file is durable. The rest must
    /// become zeros because other systems rely on that. It must not become zeros earlier, because a
    /// crash before the commit brings the longer file back. If zeroing was deferred, returns that
    /// transaction; an operation that grows the file must wait for the transaction's commit.
    fn apply_tail(&self, handle: &mut Handle<'_>, tail: Tail) -> Option<Tid> {
        let (block, from) = match tail {
            Tail::Whole => return None,
            Tail::Zero { block, from } => (block, from),
            Tail::Copy { claim, .. } => {
                self.objects.groups.allocate(handle, claim);
                return None;
            }
        };
        let size = self.objects.volume.block_size();
        let offset = block.0 * size as u64 + from as u64;
        // If the block is freed in the same transaction, no other file may claim it before it is
        // zeroed.
        self.objects.groups.keep_until_durable(handle.tid(), block);
        handle.defer(Deferred::ZeroTail { offset, len: (size - from) as u32 });
        Some(handle.tid())
    }
}

impl FileData<'_> {
    /// Returns whether a block after the last block of a file of `size` bytes is mapped.
    fn maps_beyond(&self, size: u64) -> Result<bool, Error> {
        let end = size.div_ceil(self.block_size());
        self.with_map(|map| map.last().is_some_and(|extent| u64::from(extent.end()) > end))
    }

    /// Copies the last block of an encrypted file of `size` bytes to another block near `goal`. The
    /// copy has zeros after the end of the file.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if no block is free, and always with `bigalloc`, because a block cannot
    /// move without the rest of its cluster.
    fn copy_of_last(&self, size: u64, goal: Block) -> Result<Tail, Error> {
        let objects = self.objects;
        if !objects.volume.clusters().are_blocks() {
            return Err(Error::NoSpace);
        }
        let Some(cipher) = self.contents()? else { return Ok(Tail::Whole) };
        let claim = objects.claim_blocks(&Request::for_metadata(goal, 1))?.into_claim();
        let block_size = self.block_size();
        let last = FileBlock((size / block_size) as u32);
        let extent = Extent { start: last, len: 1, block: claim.start(), state: State::Unwritten };
        let start = u64::from(last.0) * block_size;
        let mut kept = vec![0; (size - start) as usize];
        self.read_encrypted(cipher, start, &mut kept)?;
        self.write_encrypted(cipher, start, &kept, &extent)?;
        objects.note_data(self.inode);
        Ok(Tail::Copy { claim, extent: Extent { state: State::Written, ..extent } })
    }
}

fn shrink(state: &mut InodeState, size: u64, now: Time, tail: Option<Tid>) {
    state.disk.size = size;
    state.disk.mtime = now;
    state.disk.ctime = now;
    state.tail_pending = tail.or(state.tail_pending);
}
