//! Holds the objects of a mount. Every operation works on them.

use crate::alloc::{Claim, Found, Groups, Request};
use crate::clock::now;
use crate::names::Names;
use crate::object::dirty::{Deferred, Dirty, Handle};
use crate::object::fast_commits::FastCommits;
use crate::object::inode::Inode;
use crate::object::inodes::Inodes;
use crate::object::meta::MetaCache;
use crate::object::mount_ref::MountRef;
use crate::object::orphan::Orphans;
use crate::object::pressure::Pressure;
use crate::object::superblock::SuperState;
use crate::object::table::Tables;
use crate::policy::{Access, OnError};
use crate::quota;
use crate::verity::VerifiedBlocks;
use crate::volume::Volume;
use crate::volume::reader::BlockReader;
use lanefs_journal::{FlushMark, Journal};
use lanefs_lanes::LaneArc;
use lanefs_lanes::sync::Arc;
use lanefs_lanes::sync::atomic::{AtomicBool, Ordering};
use lanefs_ondisk::superblock::{ErrorCode, ErrorRecord};
use lanefs_ondisk::{Block, Ino};
use lanefs_plan::{Error, Fault};

/// How many commits a claim waits for before it fails. A commit makes freed blocks available, but
/// other claims may take them first, so one commit may not suffice.
const MOST_COMMITS: u32 = 3;

/// Holds the objects of a mounted file system in memory.
///
/// `load.rs` loads objects into memory, `reclaim.rs` evicts them, `commit.rs` captures them.
pub(crate) struct Objects {
    /// The handle that [`LaneArc::new`] returned; this handle keeps the reference counts of all
    /// lanes in memory.
    pub(crate) mount: LaneArc<MountRef<Inode>>,
    pub(crate) volume: Volume,
    pub(crate) journal: Journal<Dirty, Deferred>,
    pub(crate) groups: Groups,
    pub(crate) inodes: Inodes,
    pub(crate) tables: Tables,
    pub(crate) meta: MetaCache,
    pub(crate) orphans: Orphans,
    pub(crate) superblock: SuperState,
    /// `None` if the mount writes no fast commits.
    pub(crate) fast: Option<FastCommits>,
    /// Limits the caches.
    pub(crate) pressure: Pressure,
    /// The verified blocks of the hash trees of verity files.
    pub(crate) verified: VerifiedBlocks,
    /// The name cache.
    pub(crate) names: Arc<dyn Names>,
    /// The access given at mount: there is a committer only with [`Access::ReadWrite`].
    pub(crate) access: Access,
    pub(crate) on_error: OnError,
    pub(crate) read_only: AtomicBool,
    /// Whether freed blocks are discarded.
    pub(crate) discard: bool,
    /// Is set while the mount deletes the orphans that the previous mount left. Only then can
    /// inodes without links be loaded.
    pub(crate) finishing_orphans: AtomicBool,
}

impl BlockReader for Objects {
    fn read_block(&self, block: Block) -> Result<Arc<[u8]>, Error> {
        if let Some(image) = self.journal.image(block)? {
            return Ok(image);
        }
        self.volume.read(block)
    }

    fn damaged(&self, error: &Error) {
        self.note_error(error);
    }

    fn over_limit(&self) {
        if self.access == Access::ReadWrite {
            self.journal.request_commit();
        }
    }
}

impl Objects {
    /// Returns whether changes are refused, because the mount is read-only or the journal was
    /// aborted.
    pub(crate) fn is_read_only(&self) -> bool {
        // The committer sets `read_only` a moment after the abort. This function must return true
        // to a caller that saw the abort, so it checks the journal too.
        self.read_only.load(Ordering::Acquire)
            || self.journal.is_aborted()
            || self.check_process().is_err()
    }

    /// Fails in a child of fork(2). Called before a lock is taken that another thread may hold for
    /// longer, because the child lacks that thread.
    #[inline]
    pub(crate) fn check_process(&self) -> Result<(), Error> {
        self.journal.check_process().map_err(|_| Error::Forked)
    }

    pub(crate) fn check_writable(&self) -> Result<(), Error> {
        self.check_process()?;
        if self.is_read_only() { Err(Error::ReadOnly) } else { Ok(()) }
    }

    pub(crate) fn become_read_only(&self) {
        self.read_only.store(true, Ordering::Release);
    }

    /// Joins the running transaction with `credits`, which must cover the worst case.
    pub(crate) fn join(&self, credits: u32) -> Result<Handle<'_>, Error> {
        self.check_writable()?;
        let quotas = if self.mount.quotas().is_some() { quota::CREDITS } else { 0 };
        match self.journal.join(credits + quotas) {
            // The file system became read-only after the check above.
            Err(lanefs_journal::Error::Stopped) => Err(Error::ReadOnly),
            joined => Ok(joined?),
        }
    }

    /// Handles an error that no caller receives. If the error reports damage, records it in the
    /// superblock, and makes the mount read-only if its options require it.
    pub(crate) fn note_error(&self, error: &Error) {
        let Fault::Image { ino, block } = error.fault() else { return };
        self.superblock.note_error(ErrorRecord {
            time: now().secs.try_into().unwrap_or(0),
            ino: ino.map_or(0, |ino| ino.0),
            block: block.map_or(0, |block| block.0),
            function: "lanefs".into(),
            line: 0,
            code: ErrorCode::Damage,
        });
        if self.on_error == OnError::ReadOnly {
            self.become_read_only();
        }
    }

    /// Notes that data of the inode was written to the device: to mapped blocks, or to blocks that
    /// a handle maps later.
    pub(crate) fn note_data(&self, inode: &Inode) {
        let FlushMark(mark) = self.journal.note_write();
        // The mark is written only if it must increase, which happens once per flush. So most calls
        // do not write its cache line, which all writers of the file share.
        if inode.flush_mark.load(Ordering::Relaxed) < mark {
            inode.flush_mark.fetch_max(mark, Ordering::Release);
        }
    }

    /// Claims blocks. If the claim fails, waits until the other claims under way have finished,
    /// gives all windows back, and tries again while new claims are held back. If that fails too,
    /// and freed blocks wait for a commit, waits for the commit and tries again. During the commit,
    /// new claims are not held back. The caller holds no handle.
    pub(crate) fn claim_blocks(&self, request: &Request) -> Result<Found<'_>, Error> {
        match self.groups.claim_blocks(self, request, None) {
            Err(Error::NoSpace) => {}
            other => return other,
        }
        let mut commits = 0;
        loop {
            let alone = self.groups.alone();
            self.drop_windows();
            // The number of pending blocks is read before the claim. If it were read after a failed
            // claim, blocks that have just become available would no longer count as pending, and
            // the claim would not be repeated.
            let pending = self.groups.pending() > 0;
            match self.groups.claim_blocks(self, request, Some(&alone)) {
                Err(Error::NoSpace) if pending && commits < MOST_COMMITS => commits += 1,
                other => return other,
            }
            drop(alone);
            self.journal.settle(self.journal.running())?;
        }
    }

    /// Claims one block near an inode. The claim may use the reserve for root, because the inode
    /// needs the block in any case.
    pub(crate) fn claim_first_block(&self, ino: Ino) -> Result<Claim, Error> {
        let group = self.volume.inode_place(ino)?.group;
        let goal = self.volume.geometry().group_first_block(group).unwrap_or_default();
        Ok(self.claim_blocks(&Request::for_metadata(goal, 1))?.into_claim())
    }

    /// Claims the block of an inode's attributes.
    ///
    /// # Errors
    /// [`Error::NotSupported`] in revision 0, whose superblock cannot have the feature `ext_attr`:
    /// e2fsck then ignores such blocks.
    pub(crate) fn claim_xattr_block(&self, ino: Ino) -> Result<Claim, Error> {
        match self.volume.can_add_features {
            true => self.claim_first_block(ino),
            false => Err(Error::NotSupported),
        }
    }

    /// Gives every preallocation window back. Looks only at inodes that have one, and returns their
    /// number.
    pub(crate) fn drop_windows(&self) -> usize {
        let listed = self.mount.totals.windows.listed();
        for ino in &listed {
            if let Some(inode) = self.inodes.get(*ino) {
                inode.window.give_back();
            }
        }
        listed.len()
    }

    /// Apply: frees blocks. If the bitmaps show that some of the blocks are free already, the file
    /// system on disk was damaged before. The damage is only noted, because the operation can no
    /// longer fail.
    pub(crate) fn free_run(&self, handle: &mut Handle<'_>, start: Block, len: u32) {
        if let Err(error) = self.groups.free_blocks(handle, start, len) {
            self.note_error(&error);
        }
    }
}
