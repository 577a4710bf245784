//! Keeps inode-table blocks, which many inodes share and only the committer changes.
//!
//! # Locking
//!
//! The `base` of a table block is the newest image of the block that a commit has captured, or the
//! contents on the device. A lock protects `base` (rank Load). A loading thread holds this lock
//! while it reads the block; the committer takes it to replace `base`. An inode in memory pins its
//! table block, so loading an inode always sees the result of the last capture.

use crate::cache::{Cache, Cached, Counted, Evicted, Held, Used};
use crate::volume::BlockReader;
use lanefs_journal::Tid;
use lanefs_lanes::sync::Arc;
use lanefs_lanes::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use lanefs_lanes::{Growing, Holds, LaneCounter, Mutex, Rank};
use lanefs_ondisk::group_desc::{GroupDesc, GroupFlags};
use lanefs_ondisk::superblock::Geometry;
use lanefs_ondisk::{Block, Group};
use lanefs_plan::Error;

/// A block of an inode table.
pub(crate) struct TableBlock {
    pub(crate) block: Block,
    /// The block's group; `index` is the number of the block in the group's table.
    pub(crate) group: Group,
    pub(crate) index: u32,
    /// Counts the holds, and is marked as dead when the block is evicted, so that no block ever has
    /// two objects with different bases.
    holds: Holds,
    /// The last transaction that was charged for the block. A block costs a transaction one credit,
    /// however many inodes in the block change.
    charged: AtomicU64,
    base: Mutex<Option<Arc<[u8]>>>,
    /// The number of blocks, over all tables, whose contents are in memory.
    loaded: Arc<LaneCounter>,
    used: Used,
}

impl TableBlock {
    /// Apply: returns whether `tid` must be charged for the block: true only at the first call for
    /// `tid`.
    pub(crate) fn is_charged_now(&self, tid: Tid) -> bool {
        // `charged` is read before the swap, so that its cache line, which all inodes of the block
        // share, is written only once per transaction.
        self.charged.load(Ordering::Relaxed) != tid.0
            && self.charged.swap(tid.0, Ordering::Relaxed) != tid.0
    }

    /// Committer: sets the image that later loads see.
    pub(crate) fn set_base(&self, bytes: Arc<[u8]>) {
        if self.base.lock().replace(bytes).is_none() {
            self.loaded.add(1);
        }
    }

    /// Drops the contents, which are also in an image or on the device. Returns whether there were
    /// contents to drop.
    fn forget_base(&self) -> bool {
        // This does not wait for the lock, because a loader may hold the lock while it reads.
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
        let is_dead = self.holds.evict(0);
        match (is_dead, self.forget_base()) {
            (true, _) => Evicted::Object,
            (false, true) => Evicted::Contents,
            (false, false) => Evicted::Nothing,
        }
    }
}

/// A hold on an inode-table block.
pub(crate) type TableRef = Held<TableBlock>;

impl Counted for TableBlock {
    fn holds(&self) -> &Holds {
        &self.holds
    }
}

/// Keeps inode-table blocks in memory, and records how much of each table was ever written.
pub(crate) struct Tables {
    pub(crate) blocks: Cache<TableBlock>,
    /// The number of blocks whose contents are in memory.
    loaded: Arc<LaneCounter>,
    /// The number of blocks of each group's table that are on the device or in an image. Later
    /// blocks were never initialised and count as zeros, whatever the device holds there. [written
    /// by the committer]
    initialised: Growing<AtomicU32>,
    block_size: usize,
}

impl Tables {
    /// Creates an empty set, and reads from the descriptors how far each table was written.
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

    /// Adds the tables of new groups. Must not be called on two threads at once.
    pub(crate) fn grow(&self, geometry: &Geometry, descriptors: &[GroupDesc]) {
        let written = |desc| AtomicU32::new(initialised(geometry, desc));
        self.initialised.extend(descriptors.iter().map(written));
    }

    /// Returns a hold on block `index` of the table of `group`. `block` is the position of this
    /// block on the device. The contents of the block need not be loaded yet.
    pub(crate) fn get(&self, group: Group, index: u32, block: Block) -> Result<TableRef, Error> {
        let cached = || Ok(self.blocks.hold(block.0, TableRef::take));
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
            Ok(TableRef::first(made))
        };
        self.blocks.hold_or_load(block.0, cached, make)
    }

    /// Returns the contents of a block, and loads them if they are not in memory. A block that was
    /// never initialised reads as zeros, whatever the device holds there.
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

    /// Returns whether the block was ever written.
    fn is_initialised(&self, table: &TableBlock) -> bool {
        self.initialised
            .get(table.group.0 as usize)
            .is_some_and(|blocks| table.index < blocks.load(Ordering::Acquire))
    }

    /// Committer: returns the indexes of the table's blocks that must be written now. They are the
    /// blocks that are in use according to `desc`, but were never written.
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

    /// Committer: notes that the table's first `blocks` blocks have images.
    pub(crate) fn set_initialised(&self, group: Group, blocks: u32) {
        if let Some(kept) = self.initialised.get(group.0 as usize) {
            kept.fetch_max(blocks, Ordering::Release);
        }
    }

    /// Returns the number of blocks whose contents are in memory.
    pub(crate) fn loaded(&self) -> usize {
        usize::try_from(self.loaded.sum()).unwrap_or(0)
    }
}

/// Returns the number of blocks of a table that were written, according to the descriptor.
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
