//! Sets file sizes: grows files, and truncates them in steps.

use crate::alloc::{Claim, Request};
use crate::attr::now;
use crate::data::FileData;
use crate::data::xattrs::{RELEASE_BLOCK, release_xattr_block};
use crate::flags;
use crate::name::{END_INODE, end_inode};
use crate::object::dirty::{Credits, Deferred, Handle};
use crate::object::fs::Fs;
use crate::object::inode::{Inode, InodeRef};
use crate::object::mount_ref::LastReference;
use crate::object::orphan::Orphans;
use crate::object::state::{Concerns, InodeState};
use lanefs_journal::Tid;
use lanefs_lanes::sync::Arc;
use lanefs_ondisk::{Block, FileBlock, FileType, Ino, Time};
use lanefs_plan::Error;
use lanefs_plan::extent::{END, Extent, Mapping, State};

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

impl Tail {
    fn credits(&self) -> Credits {
        match self {
            Tail::Copy { .. } => Credits::RUN,
            Tail::Whole | Tail::Zero { .. } => Credits::blocks(0),
        }
    }
}

impl Fs {
    /// Sets the size. The caller holds the operation lock exclusively.
    pub(crate) fn set_size(&self, inode: &Arc<Inode>, size: u64) -> Result<(), Error> {
        flags::check_data_changes(&inode.rights())?;
        // As in the kernel, changing the size of an encrypted file needs its key.
        self.data(inode).contents()?;
        self.data(inode).leave_inode(size)?;
        self.volume.check_size(self.data(inode).form(), size)?;
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
        let mut handle = self.join(Credits::INODE)?;
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
        let block_size = self.volume.block_size() as u64;
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
        let keep = size.div_ceil(self.volume.block_size() as u64) as u32;
        let (copy, rest) = match &tail {
            Tail::Copy { extent, .. } => (std::slice::from_ref(extent), keep - 1..END),
            Tail::Zero { .. } | Tail::Whole => (&[][..], keep..END),
        };
        let is_one_step = self.data(inode).step_end(keep..END)?.is_none_or(|end| end == END);
        if is_one_step {
            // If all mappings that must be freed are in one leaf, one handle frees them.
            let change = self.data(inode).plan_mapping(rest.clone(), copy)?;
            if change.covered.end == END {
                let mut handle = self.join(change.credits.and(tail.credits()))?;
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
        let credits = copied.as_ref().map_or(Credits::INODE, |change| change.credits);
        let mut handle = self.join(credits.and(Orphans::RECORD).and(tail.credits()))?;
        self.orphans.add(&mut handle, inode);
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
                self.groups.allocate(handle, claim);
                return None;
            }
        };
        let size = self.volume.block_size();
        let offset = block.0 * size as u64 + from as u64;
        // If the block is freed in the same transaction, no other file may claim it before it is
        // zeroed.
        self.groups.keep_until_durable(handle.tid(), block);
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
        let fs = self.fs;
        if !fs.volume.clusters().are_blocks() {
            return Err(Error::NoSpace);
        }
        let Some(cipher) = self.contents()? else { return Ok(Tail::Whole) };
        let claim = fs.claim_blocks(&Request::for_metadata(goal, 1))?.into_claim();
        let block_size = self.block_size();
        let last = FileBlock((size / block_size) as u32);
        let extent = Extent { start: last, len: 1, block: claim.start(), state: State::Unwritten };
        let start = u64::from(last.0) * block_size;
        let mut kept = vec![0; (size - start) as usize];
        self.read_encrypted(cipher, start, &mut kept)?;
        self.write_encrypted(cipher, start, &kept, &extent)?;
        fs.note_data(self.inode);
        Ok(Tail::Copy { claim, extent: Extent { state: State::Written, ..extent } })
    }
}

fn shrink(state: &mut InodeState, size: u64, now: Time, tail: Option<Tid>) {
    state.disk.size = size;
    state.disk.mtime = now;
    state.disk.ctime = now;
    state.tail_pending = tail.or(state.tail_pending);
}

// Counts the references that a FUSE kernel has to inodes, and deletes inodes without names.

impl LastReference<Inode> for Fs {
    fn last_reference_dropped(&self, inode: &Arc<Inode>) {
        self.delete_inode(inode);
    }

    fn dropped_over_cap(&self) {
        // In a child of fork(2), another thread may have held a lock of the caches.
        if self.check_process().is_ok() {
            self.note_drop();
        }
    }
}

impl Fs {
    /// Adds `n` references without an [`InodeRef`], for look-ups that a FUSE kernel counts. They
    /// keep an inode without names. An inode that has a name can be evicted meanwhile.
    #[inline]
    pub fn hold(&self, inode: &InodeRef, n: u64) {
        inode.know(n);
    }

    /// Removes `n` references that [`Fs::hold`] added. If the last reference is removed, an inode
    /// without names is deleted.
    pub fn forget(&self, ino: Ino, n: u64) {
        if let Some(inode) = self.inodes.forget(ino, n, &self.mount.known) {
            self.delete_inode(&inode);
        }
    }

    /// Called when the FUSE connection has ended, because the kernel does not remove all references
    /// of [`Fs::hold`] at an unmount. Deletes the inodes without names that still have such
    /// references. No other operation may run in this file system meanwhile.
    pub fn forget_all(&self) {
        let mut ended = Vec::new();
        self.inodes.for_each(|inode| {
            if inode.holds.end_nameless() {
                ended.push(inode.clone());
            }
        });
        ended.iter().for_each(|inode| self.delete_inode(inode));
    }

    /// Deletes an inode that has no names and no holds: frees its blocks, its attributes and its
    /// number. Called by the thread that dropped the last hold, with no lock held. After an error
    /// the inode stays on the orphan list for the next mount.
    fn delete_inode(&self, inode: &Arc<Inode>) {
        if let Err(error) = self.try_delete(inode) {
            self.note_error(&error);
        }
    }

    fn try_delete(&self, inode: &Arc<Inode>) -> Result<(), Error> {
        if self.is_read_only() {
            return Ok(());
        }
        // Declared before the lock so that the values are dropped after its release, because
        // dropping them may delete inodes of attribute values.
        let _values;
        let _exclusive = inode.op.exclusive();
        inode.window.give_back();
        let has_mappings = inode.state.lock().has_mappings(self.volume.geometry());
        if has_mappings {
            self.data(inode).free_from(0)?;
        }
        _values = self.data(inode).remove_values()?;
        let xattrs = self.data(inode).prepare_xattr_release()?;
        let group = self.volume.inode_place(inode.ino)?.group;
        let _hold = self.groups.bitmaps.load(self, group)?;
        let block = xattrs.as_ref().map_or(Credits::blocks(0), |_| RELEASE_BLOCK);
        let mut handle = self.join(block.and(Orphans::RECORD).and(END_INODE))?;
        if let Some((block, _hold)) = xattrs {
            release_xattr_block(self, &mut handle, block);
        }
        self.orphans.remove(&mut handle, inode);
        end_inode(self, &mut handle, inode);
        drop(handle);
        if inode.file_type == FileType::Directory {
            self.options.names.forget(inode.dir_id());
        }
        Ok(())
    }
}
