//! Inode-table blocks: shared by many inodes, changed by the committer alone.
//!
//! # Locking
//!
//! `base` is the newest image that a commit has captured, or what the device has. It is loaded once
//! under its lock (rank Load, held across that one read) and replaced by the committer. An inode in
//! memory pins its block, so loading an inode always sees what the last capture left.

use crate::cache::{Cache, Cached, Evicted, Used};
use crate::error::Error;
use crate::volume::reader::BlockReader;
use lanefs_journal::Tid;
use lanefs_lanes::sync::Arc;
use lanefs_lanes::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use lanefs_lanes::{Holds, LaneCounter, Mutex, Rank};
use lanefs_ondisk::group_desc::{GroupDesc, GroupFlags};
use lanefs_ondisk::superblock::Geometry;
use lanefs_ondisk::{Block, Group};

/// One block of an inode table.
pub(crate) struct TableBlock {
    pub(crate) block: Block,
    /// Its group, and its number in the group's table.
    pub(crate) group: Group,
    pub(crate) index: u32,
    /// Who uses it; dead once evicted, so that no block ever has two objects with bases of their own.
    holds: Holds,
    /// The transaction that was charged for it last: a block costs a transaction one credit,
    /// however many of its inodes change.
    charged: AtomicU64,
    base: Mutex<Option<Arc<[u8]>>>,
    /// Counts the blocks of all tables whose contents are in memory.
    loaded: Arc<LaneCounter>,
    used: Used,
}

impl TableBlock {
    /// Apply: whether the block is to be charged to `tid`, which it is once.
    pub(crate) fn is_charged_now(&self, tid: Tid) -> bool {
        // Read first: the word is shared by neighbours and written once a transaction.
        self.charged.load(Ordering::Relaxed) != tid.0
            && self.charged.swap(tid.0, Ordering::Relaxed) != tid.0
    }

    /// Committer: the image that later loads see.
    pub(crate) fn set_base(&self, bytes: Arc<[u8]>) {
        if self.base.lock().replace(bytes).is_none() {
            self.loaded.add(1);
        }
    }

    /// Forgets the contents: an image or the device has them. True if there were any.
    fn forget_base(&self) -> bool {
        // Not waited for: a loader may hold it while it reads.
        let forgotten = self.base.try_lock().and_then(|mut base| base.take());
        if forgotten.is_some() {
            self.loaded.add(-1);
        }
        forgotten.is_some()
    }
}

impl Cached for TableBlock {
    fn number(&self) -> u64 {
        self.block.0
    }

    fn used(&self) -> &Used {
        &self.used
    }

    fn evict(self: &Arc<Self>, settled: Tid) -> Evicted {
        if self.charged.load(Ordering::Relaxed) > settled.0 {
            return Evicted::Nothing;
        }
        let is_dead = self.holds.evict();
        match (is_dead, self.forget_base()) {
            (true, _) => Evicted::Object,
            (false, true) => Evicted::Contents,
            (false, false) => Evicted::Nothing,
        }
    }
}

/// A hold on an inode-table block: while it lives the block stays the one object of its number.
pub(crate) struct TableRef(Arc<TableBlock>);

impl TableRef {
    fn new(block: &Arc<TableBlock>) -> Option<TableRef> {
        block.holds.add(1).then(|| TableRef(block.clone()))
    }
}

impl std::ops::Deref for TableRef {
    type Target = TableBlock;
    fn deref(&self) -> &TableBlock {
        &self.0
    }
}

impl Clone for TableRef {
    fn clone(&self) -> TableRef {
        let held = self.0.holds.add(1);
        debug_assert!(held, "a held block is not dead");
        TableRef(self.0.clone())
    }
}

impl Drop for TableRef {
    fn drop(&mut self) {
        let ended = self.0.holds.subtract(1);
        debug_assert!(!ended, "table blocks have no names to lose");
    }
}

/// The inode-table blocks in memory, and how much of each table was ever written.
pub(crate) struct Tables {
    pub(crate) blocks: Cache<TableBlock>,
    /// Blocks whose contents are in memory.
    loaded: Arc<LaneCounter>,
    /// Blocks of each group's table that are on the device or in an image: those beyond were never
    /// initialised and count as zeros, whatever lies there. [written by the committer]
    initialised: Vec<AtomicU32>,
    block_size: usize,
}

impl Tables {
    /// Learns from the descriptors how far each table was written.
    pub(crate) fn new(geometry: &Geometry, descriptors: &[GroupDesc]) -> Tables {
        let initialised =
            descriptors.iter().map(|d| AtomicU32::new(initialised(geometry, d))).collect();
        Tables {
            blocks: Cache::new(0, Rank::Load),
            loaded: Arc::new(LaneCounter::new(0)),
            initialised,
            block_size: geometry.block_size().bytes(),
        }
    }

    /// A hold on block `index` of the table of `group`, at `block`; not necessarily loaded.
    pub(crate) fn get(&self, group: Group, index: u32, block: Block) -> Result<TableRef, Error> {
        let cached = || Ok(self.blocks.hold(block.0, TableRef::new));
        let make = || {
            let made = Arc::new(TableBlock {
                block,
                group,
                index,
                holds: Holds::new(1),
                charged: AtomicU64::new(0),
                base: Mutex::new(Rank::Load, None),
                loaded: self.loaded.clone(),
                used: Used::new(),
            });
            self.blocks.insert(made.clone(), |_| ());
            Ok(TableRef(made))
        };
        self.blocks.hold_or_load(block.0, cached, make)
    }

    /// The contents of a block: loaded at the first call. What was never initialised reads as zeros,
    /// whatever lies there.
    pub(crate) fn base(
        &self,
        table: &TableBlock,
        read: &dyn BlockReader,
    ) -> Result<Arc<[u8]>, Error> {
        let mut base = table.base.lock();
        table.used.note();
        if let Some(bytes) = &*base {
            return Ok(bytes.clone());
        }
        let bytes = match self.is_initialised(table) {
            true => read.read_block(table.block)?,
            false => vec![0; self.block_size].into(),
        };
        *base = Some(bytes.clone());
        self.loaded.add(1);
        Ok(bytes)
    }

    /// Whether the block was ever written.
    fn is_initialised(&self, table: &TableBlock) -> bool {
        self.initialised
            .get(table.group.0 as usize)
            .is_some_and(|blocks| table.index < blocks.load(Ordering::Acquire))
    }

    /// Committer: with this descriptor the table is in use further than it was written: the blocks
    /// to write now, as numbers in the table.
    pub(crate) fn extend(
        &self,
        geometry: &Geometry,
        group: Group,
        desc: &GroupDesc,
    ) -> std::ops::Range<u32> {
        let Some(blocks) = self.initialised.get(group.0 as usize) else { return 0..0 };
        let before = blocks.load(Ordering::Relaxed);
        before..initialised(geometry, desc).max(before)
    }

    /// Committer: the table's first `blocks` blocks have images now.
    pub(crate) fn set_initialised(&self, group: Group, blocks: u32) {
        if let Some(kept) = self.initialised.get(group.0 as usize) {
            kept.fetch_max(blocks, Ordering::Release);
        }
    }

    /// How many have their contents in memory.
    pub(crate) fn loaded(&self) -> usize {
        usize::try_from(self.loaded.sum()).unwrap_or(0)
    }
}

/// The blocks of a table that were written, as the descriptor says.
fn initialised(geometry: &Geometry, desc: &GroupDesc) -> u32 {
    let lazy = geometry.features().has_descriptor_checksums()
        && !desc.flags.contains(GroupFlags::INODE_ZEROED);
    if !lazy {
        return geometry.itable_blocks();
    }
    if desc.flags.contains(GroupFlags::INODE_UNINIT) {
        return 0;
    }
    let used = geometry.inodes_per_group().saturating_sub(desc.itable_unused);
    used.div_ceil(geometry.inodes_per_block().max(1))
}
