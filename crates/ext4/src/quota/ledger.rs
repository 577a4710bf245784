//! One quota file of a mount.

use super::counted::{entries, limited};
use super::fold::Fold;
use super::limits::{Grace, Limited};
use lanefs_journal::Tid;
use lanefs_lanes::sync::Arc;
use lanefs_lanes::sync::atomic::{AtomicU64, Ordering};
use lanefs_lanes::{Map, Mutex, Pin, Rank};
use lanefs_ondisk::quota::{BLOCK, BLOCKS_OF_AN_ID, Kind, Limits, QuotaFile};
use lanefs_ondisk::{Block, Ino};
use std::collections::{BTreeMap, BTreeSet};

/// A quota file, which the committer writes.
pub(crate) struct Ledger {
    pub(crate) kind: Kind,
    /// The inode of the file.
    pub(crate) ino: Ino,
    block_size: usize,
    /// The ids that have an entry, and the ids for which the running transaction adds an entry.
    known: Map<u64, Arc<Owner>>,
    /// Whether the mount obeys the limits in this file.
    obeys: bool,
    /// [rank Load, inside handles too; never held across I/O]
    stored: Mutex<Stored>,
}

/// An id in a quota file.
#[derive(Default)]
struct Owner {
    /// The last transaction that was charged a credit for the entry's block.
    charged: AtomicU64,
    /// The limits of the id, if the mount obeys them.
    limits: Option<Arc<Limited>>,
}

struct Stored {
    file: QuotaFile,
    /// The blocks of the file system in which the file is stored.
    blocks: Vec<Block>,
    /// The number of spare blocks of 1 KiB that are promised to new ids, until the committer adds
    /// these ids.
    promised: u32,
}

impl Ledger {
    /// Creates the ledger of a file that is stored in `blocks`.
    pub(crate) fn new(
        (kind, ino): (Kind, Ino),
        file: QuotaFile,
        blocks: Vec<Block>,
        block_size: usize,
    ) -> Ledger {
        let known = Map::with_capacity(64);
        for id in file.ids() {
            known.insert(u64::from(id), Arc::default());
        }
        let stored = Mutex::new(Rank::Load, Stored { file, blocks, promised: 0 });
        Ledger { kind, ino, block_size, known, obeys: false, stored }
    }

    /// Called at mount. From then on, the mount obeys the limits in the file.
    pub(crate) fn obey_limits(&mut self) {
        self.obeys = true;
        let stored = self.stored.lock();
        let (bytes, inodes) = stored.file.grace();
        let grace = Grace { bytes: bytes.into(), inodes: inodes.into() };
        for (id, quota) in entries(&stored.file) {
            if quota.limits != Limits::default() {
                let limits = Some(Arc::new(Limited::new(quota, grace)));
                let owner = Owner { charged: AtomicU64::new(0), limits };
                self.known.insert(u64::from(id), Arc::new(owner));
            }
        }
    }

    /// Returns the limits of an id, if the mount obeys limits and the id has limits.
    pub(super) fn limits_of(&self, id: u32) -> Option<Arc<Limited>> {
        if !self.obeys {
            return None;
        }
        let pin = lanefs_lanes::pin();
        self.known.find(&pin, &u64::from(id)).and_then(|owner| owner.limits.clone())
    }

    /// Sets the limits of an id in the file. The caller has a handle in which it listed the id as
    /// [`Dirty::NewOwner`](crate::object::dirty::Dirty). A mount that obeys limits obeys the new
    /// limits immediately if the id had limits at mount; otherwise only the next mount obeys them.
    pub(crate) fn set_limits(&self, id: u32, limits: Limits) {
        let mut stored = self.stored.lock();
        let mut quota = limited(stored.file.get(id).unwrap_or_default(), limits);
        if let Some(live) = self.limits_of(id) {
            live.set(limits);
            (quota.bytes_until, quota.inodes_until) = live.ends();
        }
        stored.file.set(id, &quota);
    }

    /// Returns whether the id has an entry, or the running transaction adds an entry for it.
    pub(crate) fn knows(&self, id: u32) -> bool {
        self.known.with(&lanefs_lanes::pin(), &u64::from(id), |_| ()).is_some()
    }

    /// Returns whether the caller must charge a credit to transaction `tid`, for the block that
    /// contains the id's entry. Of all calls for the same id and transaction, only the first
    /// returns true.
    pub(super) fn is_charged_now(&self, pin: &Pin, tid: Tid, id: u32) -> bool {
        let Some(owner) = self.known.find(pin, &u64::from(id)) else { return false };
        let charged = &owner.charged;
        charged.load(Ordering::Relaxed) != tid.0 && charged.swap(tid.0, Ordering::Relaxed) != tid.0
    }

    /// Returns whether there are spare blocks for one more id.
    pub(crate) fn has_room(&self) -> bool {
        let stored = self.stored.lock();
        stored.file.spare_blocks() >= stored.promised.saturating_add(BLOCKS_OF_AN_ID)
    }

    /// Returns the length of the file in bytes, and the number of unused bytes in its last block.
    pub(crate) fn len(&self) -> (usize, usize) {
        let stored = self.stored.lock();
        let len = stored.file.bytes().len();
        (len, stored.blocks.len() * self.block_size - len)
    }

    /// Apply: adds bytes at the end of the file, in a new block or in the rest of the last block.
    pub(crate) fn grow(&self, bytes: usize, block: Option<Block>) {
        let mut stored = self.stored.lock();
        stored.file.grow(bytes);
        stored.blocks.extend(block);
    }

    /// Apply: notes that the committer adds `id` in the running transaction. The caller makes sure
    /// that [`Ledger::has_room`] has returned true to this thread, and that no other thread has
    /// added an id since then.
    pub(crate) fn promise(&self, id: u32) {
        self.stored.lock().promised += BLOCKS_OF_AN_ID;
        self.known.insert(u64::from(id), Arc::default());
    }

    /// Runs `f` on the file as the last commit left it.
    pub(crate) fn with_file<R>(&self, f: impl FnOnce(&QuotaFile) -> R) -> R {
        f(&self.stored.lock().file)
    }

    /// Committer: changes the file, and adds the images of the changed blocks to `images`.
    pub(super) fn fold(&self, fold: &Fold, images: &mut BTreeMap<Block, Arc<[u8]>>) {
        let mut stored = self.stored.lock();
        let Stored { file, blocks, promised } = &mut *stored;
        for id in fold.new_owners(self.kind) {
            // `new_owners` also returns ids whose limits were set, which have an entry already.
            if file.get(id).is_none() {
                let added = file.add(id);
                debug_assert!(added, "room was made before the id was added");
                *promised = promised.saturating_sub(BLOCKS_OF_AN_ID);
            }
        }
        for (id, change) in fold.changes(self.kind) {
            // An inode that existed before the mount may have an owner without an entry, if the
            // quota file was wrong. Then the quota file stays wrong.
            if let Some(mut quota) = file.get(id) {
                quota.usage = change.of(quota.usage);
                quota = limited(quota, quota.limits);
                if let Some(limits) = self.limits_of(id) {
                    (quota.bytes_until, quota.inodes_until) = limits.ends();
                }
                file.set(id, &quota);
            }
        }
        let changed: BTreeSet<usize> =
            file.take_changed().iter().map(|n| *n as usize * BLOCK / self.block_size).collect();
        for n in changed {
            let Some(block) = blocks.get(n) else { continue };
            let start = n * self.block_size;
            let end = (start + self.block_size).min(file.bytes().len());
            let mut image = file.bytes().get(start..end).unwrap_or_default().to_vec();
            image.resize(self.block_size, 0);
            images.insert(*block, image.into());
        }
    }
}
