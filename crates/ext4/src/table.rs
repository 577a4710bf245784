//! Inode-table blocks: shared by many inodes, changed by the committer alone.
//!
//! # Locking
//!
//! `base` is the newest image that a commit has captured, or what the device has. It is loaded once
//! under its lock (rank Load, held across that one read) and replaced by the committer. An inode in
//! memory pins its block, so loading an inode always sees what the last capture left.

use crate::Error;
use crate::commit::Handle;
use crate::fs::Fs;
use lanefs_lanes::sync::Arc;
use lanefs_lanes::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use lanefs_lanes::{Map, Mutex, Rank};
use lanefs_ondisk::group_desc::{GroupDesc, GroupFlags};
use lanefs_ondisk::superblock::Geometry;
use lanefs_ondisk::{Block, Group};

/// One block of an inode table.
pub(crate) struct TableBlock {
    pub(crate) block: Block,
    /// Its group, and its number in the group's table.
    pub(crate) group: Group,
    pub(crate) index: u32,
    /// The transaction that was charged for it last: a block costs a transaction one credit,
    /// however many of its inodes change.
    charged: AtomicU64,
    base: Mutex<Option<Arc<[u8]>>>,
}

impl TableBlock {
    /// Apply: charges the block to the handle's transaction, once.
    pub(crate) fn charge(&self, handle: &mut Handle<'_>) {
        let tid = handle.tid().0;
        // Read first: the word is shared by neighbours and written once a transaction.
        if self.charged.load(Ordering::Relaxed) != tid
            && self.charged.swap(tid, Ordering::Relaxed) != tid
        {
            handle.charge(1);
        }
    }

    /// The contents: loaded at the first call.
    pub(crate) fn base(&self, fs: &Fs) -> Result<Arc<[u8]>, Error> {
        let mut base = self.base.lock();
        if let Some(bytes) = &*base {
            return Ok(bytes.clone());
        }
        let bytes = fs.read_table_block(self)?;
        *base = Some(bytes.clone());
        Ok(bytes)
    }

    /// Committer: the image that later loads see.
    pub(crate) fn set_base(&self, bytes: Arc<[u8]>) {
        *self.base.lock() = Some(bytes);
    }
}

/// The inode-table blocks in memory, and how much of each table was ever written.
pub(crate) struct Tables {
    blocks: Map<u64, Arc<TableBlock>>,
    /// Blocks of each group's table that are on the device or in an image: those beyond were never
    /// initialised and count as zeros, whatever lies there. [written by the committer]
    initialised: Vec<AtomicU32>,
}

impl Tables {
    /// Learns from the descriptors how far each table was written.
    pub(crate) fn new(geometry: &Geometry, descriptors: &[GroupDesc]) -> Tables {
        let initialised =
            descriptors.iter().map(|d| AtomicU32::new(initialised(geometry, d))).collect();
        Tables { blocks: Map::new(), initialised }
    }

    /// Block `index` of the table of `group`, at `block`; not necessarily loaded.
    pub(crate) fn get(&self, group: Group, index: u32, block: Block) -> Arc<TableBlock> {
        self.blocks.get_or_insert_with(&block.0, || {
            Arc::new(TableBlock {
                block,
                group,
                index,
                charged: AtomicU64::new(0),
                base: Mutex::new(Rank::Load, None),
            })
        })
    }

    /// Whether the block was ever written.
    pub(crate) fn is_initialised(&self, table: &TableBlock) -> bool {
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

    /// Committer: forgets blocks that no inode in memory lies in.
    pub(crate) fn reclaim(&self) {
        self.blocks.retain(|_, block| Arc::strong_count(block) > 1);
    }

    /// How many blocks are in memory.
    pub(crate) fn len(&self) -> usize {
        self.blocks.len()
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
