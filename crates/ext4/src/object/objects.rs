//! The objects of a mount: what every operation works on.

use crate::alloc::{Claim, Found, Groups, Privilege, Request};
use crate::clock::now;
use crate::error::{Error, Fault};
use crate::object::dirty::{Deferred, Dirty, Handle};
use crate::object::inode::Inode;
use crate::object::inodes::Inodes;
use crate::object::meta::MetaCache;
use crate::object::mount_ref::MountRef;
use crate::object::name_cache::Names;
use crate::object::orphan::Orphans;
use crate::object::pressure::Pressure;
use crate::object::superblock::SuperState;
use crate::object::table::Tables;
use crate::policy::{Access, OnError};
use crate::volume::Volume;
use crate::volume::reader::BlockReader;
use lanefs_journal::{FlushMark, Journal};
use lanefs_lanes::LaneArc;
use lanefs_lanes::sync::Arc;
use lanefs_lanes::sync::atomic::{AtomicBool, Ordering};
use lanefs_ondisk::superblock::{ErrorCode, ErrorRecord};
use lanefs_ondisk::{Block, Ino};

/// Commits that a claim waits for before it is refused: what they freed, others may take first.
const MOST_COMMITS: u32 = 3;

/// Everything that is in memory of a mounted file system.
///
/// `load.rs` brings objects into memory, `reclaim.rs` evicts them, `commit.rs` captures them.
pub(crate) struct Objects {
    /// The first reference, which keeps all lanes' counts.
    pub(crate) mount: LaneArc<MountRef<Inode>>,
    pub(crate) volume: Volume,
    pub(crate) journal: Journal<Dirty, Deferred>,
    pub(crate) groups: Groups,
    pub(crate) inodes: Inodes,
    pub(crate) tables: Tables,
    pub(crate) meta: MetaCache,
    pub(crate) orphans: Orphans,
    pub(crate) superblock: SuperState,
    /// Bounds the caches.
    pub(crate) pressure: Pressure,
    /// The name cache.
    pub(crate) names: Arc<dyn Names>,
    /// As mounted: only with [`Access::ReadWrite`] is there a committer.
    pub(crate) access: Access,
    pub(crate) on_error: OnError,
    pub(crate) read_only: AtomicBool,
    /// While a mount deletes the orphans of the last one, inodes without links can be loaded.
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

    fn crowded(&self) {
        if self.access == Access::ReadWrite {
            self.journal.request_commit();
        }
    }
}

impl Objects {
    /// True if nothing can be changed: mounted so, or because of an error.
    pub(crate) fn is_read_only(&self) -> bool {
        // The committer sets `read_only` a moment after the abort. A caller that saw the abort must
        // not see this later.
        self.read_only.load(Ordering::Acquire) || self.journal.cause().is_some()
    }

    pub(crate) fn check_writable(&self) -> Result<(), Error> {
        if self.is_read_only() { Err(Error::ReadOnly) } else { Ok(()) }
    }

    pub(crate) fn become_read_only(&self) {
        self.read_only.store(true, Ordering::Release);
    }

    /// A handle with credits for the worst case.
    pub(crate) fn join(&self, credits: u32) -> Result<Handle<'_>, Error> {
        self.check_writable()?;
        Ok(self.journal.join(credits)?)
    }

    /// Damage that no caller is told of: remembered in the superblock, and the end of writing if the
    /// mount says so.
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

    /// Data of the inode was written to the device, in place or where a handle maps it later.
    pub(crate) fn note_data(&self, inode: &Inode) {
        let FlushMark(mark) = self.journal.note_write();
        // Read first: writers of one file share the word, and it changes once a flush.
        if inode.flush_mark.load(Ordering::Relaxed) < mark {
            inode.flush_mark.fetch_max(mark, Ordering::Release);
        }
    }

    /// A claim. Before it is refused it runs alone: claims under way have ended, and windows are
    /// given back. If blocks wait for a commit, it waits too, with others claiming meanwhile, and
    /// tries again. Holds no handle.
    pub(crate) fn claim_blocks(&self, request: &Request) -> Result<Found<'_>, Error> {
        match self.groups.claim_blocks(self, request, None) {
            Err(Error::NoSpace) => {}
            other => return other,
        }
        let mut commits = 0;
        loop {
            let alone = self.groups.alone();
            self.drop_windows();
            // Looked at first: what becomes durable after the claim was refused is not pending.
            let pending = self.groups.pending() > 0;
            match self.groups.claim_blocks(self, request, Some(&alone)) {
                Err(Error::NoSpace) if pending && commits < MOST_COMMITS => commits += 1,
                other => return other,
            }
            drop(alone);
            self.journal.settle(self.journal.running())?;
        }
    }

    /// One block near an inode, for what it cannot be without.
    pub(crate) fn claim_first_block(&self, ino: Ino) -> Result<Claim, Error> {
        let group = self.volume.inode_place(ino)?.group;
        let goal = self.volume.geometry.group_first_block(group).unwrap_or_default();
        let privilege = Privilege::Root;
        let request = Request { goal, want: 1, ahead: 0, at_least: 1, privilege, stream: None };
        Ok(self.claim_blocks(&request)?.into_claim())
    }

    /// Gives every preallocation window back; looks at inodes that have one, and says at how many.
    pub(crate) fn drop_windows(&self) -> usize {
        let listed = self.mount.totals.windows.listed();
        for ino in &listed {
            if let Some(inode) = self.inodes.get(*ino) {
                inode.window.give_back();
            }
        }
        listed.len()
    }

    /// Apply: frees blocks. What the bitmaps say against it is damage that was there before: noted,
    /// since the operation is past the point where it could fail.
    pub(crate) fn free_run(&self, handle: &mut Handle<'_>, start: Block, len: u32) {
        if let Err(error) = self.groups.free_blocks(handle, start, len) {
            self.note_error(&error);
        }
    }
}
