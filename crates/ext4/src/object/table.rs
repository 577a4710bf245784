//! Inode-table blocks: shared by many inodes, changed by the committer alone.
//!
//! # Locking
//!
//! `base` is the newest image that a commit has captured, or what the device has. It is loaded once
//! under its lock (rank Load, held across that one read) and replaced by the committer. An inode in
//! memory pins its block, so loading an inode always sees what the last capture left.

use crate::Error;
use crate::fs::Fs;
use crate::object::commit::Handle;
use lanefs_journal::Tid;
use lanefs_lanes::sync::Arc;
use lanefs_lanes::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use lanefs_lanes::{Holds, LaneCounter, Map, Mutex, PerLane, Pin, Rank};
use lanefs_ondisk::group_desc::{GroupDesc, GroupFlags};
use lanefs_ondisk::superblock::Geometry;
use lanefs_ondisk::{Block, Group};
use std::collections::VecDeque;

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
    base: Mutex<Base>,
    /// Set by who reads records, cleared by reclaim: a second chance.
    used: AtomicBool,
}

#[derive(Default)]
struct Base {
    bytes: Option<Arc<[u8]>>,
    /// A bit for each record that somebody looked at without loading its inode.
    seen: u64,
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
        if let Some(bytes) = &base.bytes {
            return Ok(bytes.clone());
        }
        let bytes = fs.read_table_block(self)?;
        base.bytes = Some(bytes.clone());
        fs.tables.loaded.add(1);
        Ok(bytes)
    }

    /// Committer: the image that later loads see.
    pub(crate) fn set_base(&self, tables: &Tables, bytes: Arc<[u8]>) {
        if self.base.lock().bytes.replace(bytes).is_none() {
            tables.loaded.add(1);
        }
    }

    /// Runs `look` on the contents, for the record of the inode with this number in its group, and
    /// says whether somebody looked at that before. `None` if they are not in memory, or somebody is
    /// at them.
    pub(crate) fn look<R>(
        &self,
        index: u32,
        look: impl FnOnce(&[u8]) -> R,
    ) -> Option<(R, WasSeen)> {
        // Not waited for: who has the lock may be reading the device.
        let mut base = self.base.try_lock()?;
        let result = look(base.bytes.as_deref()?);
        // Of one block the lower bits of the numbers differ, whatever they begin with.
        let bit = 1 << (index % u64::BITS);
        let was_seen = if base.seen & bit != 0 { WasSeen::Yes } else { WasSeen::No };
        base.seen |= bit;
        drop(base);
        self.note_use();
        Some((result, was_seen))
    }

    /// Whether nobody holds it, no inode in memory either, and it was not evicted.
    pub(crate) fn is_idle(&self) -> bool {
        self.holds.is_idle()
    }

    /// Whether its contents are in memory, or about to be.
    fn is_loaded(&self) -> bool {
        self.base.try_lock().is_none_or(|base| base.bytes.is_some())
    }

    /// Whether all but a few of its `records` were looked at: those of directories are not, which are
    /// loaded, nor what lies there of other directories.
    fn is_walked_over(&self, records: u32) -> bool {
        let all = if cfg!(shuttle) { 1 } else { records.min(u64::BITS) };
        self.base.try_lock().is_some_and(|base| base.seen.count_ones() >= all - all / 8)
    }

    /// Whether somebody used it since this was asked last. All are asked, and most were not: read first.
    fn forget_use(&self) -> bool {
        self.used.load(Ordering::Relaxed) && self.used.swap(false, Ordering::Relaxed)
    }

    fn note_use(&self) {
        if !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
    }

    /// Forgets the contents: an image or the device has them.
    fn forget_base(&self, tables: &Tables) {
        if self.base.lock().bytes.take().is_some() {
            tables.loaded.add(-1);
        }
    }
}

/// Whether somebody looked at a record before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WasSeen {
    Yes,
    No,
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

const MAKERS: usize = 64;

/// Blocks that a lane remembers that it read for glances: few, so that those of a walk are still in
/// the processor's caches when they go, and what is read next comes to lie where they were.
const RECENT: usize = 96;

/// Of so many blocks that were walked over one stays for longer. So what is walked again and again
/// comes to be in memory, and one walk does not throw out all that others use.
const STAYS: u64 = 16;

/// What a lane read for glances of late.
#[derive(Default)]
struct Recent {
    blocks: VecDeque<Arc<TableBlock>>,
    /// Blocks that were walked over.
    walked: u64,
}

/// The inode-table blocks in memory, and how much of each table was ever written.
pub(crate) struct Tables {
    blocks: Map<u64, Arc<TableBlock>>,
    makers: Box<[Mutex<()>]>,
    /// Blocks whose contents are in memory.
    loaded: LaneCounter,
    /// Blocks that the last reclaim left: those without contents were in use.
    left: AtomicUsize,
    recent: PerLane<Mutex<Recent>>,
    /// Records of a block.
    records: u32,
    /// Blocks of each group's table that are on the device or in an image: those beyond were never
    /// initialised and count as zeros, whatever lies there. [written by the committer]
    initialised: Vec<AtomicU32>,
}

impl Tables {
    /// Learns from the descriptors how far each table was written.
    pub(crate) fn new(geometry: &Geometry, descriptors: &[GroupDesc]) -> Tables {
        let initialised =
            descriptors.iter().map(|d| AtomicU32::new(initialised(geometry, d))).collect();
        let makers = (0..MAKERS).map(|_| Mutex::new(Rank::Load, ())).collect();
        Tables {
            blocks: Map::new(),
            makers,
            loaded: LaneCounter::new(0),
            left: AtomicUsize::new(0),
            recent: PerLane::new(|_| Mutex::new(Rank::LaneList, Recent::default())),
            records: geometry.inodes_per_block(),
            initialised,
        }
    }

    /// A hold on block `index` of the table of `group`, at `block`; not necessarily loaded.
    pub(crate) fn get(&self, group: Group, index: u32, block: Block) -> TableRef {
        if let Some(found) = self.cached(block) {
            return found;
        }
        // One maker at a time, so that a dead block is replaced once.
        let _maker = self.makers[block.0 as usize % MAKERS].lock();
        if let Some(found) = self.cached(block) {
            return found;
        }
        let made = Arc::new(TableBlock {
            block,
            group,
            index,
            holds: Holds::new(1),
            charged: AtomicU64::new(0),
            base: Mutex::new(Rank::Load, Base::default()),
            used: AtomicBool::new(true),
        });
        self.blocks.insert(block.0, made.clone());
        TableRef(made)
    }

    fn cached(&self, block: Block) -> Option<TableRef> {
        let pin = lanefs_lanes::pin();
        self.blocks.with(&pin, &block.0, TableRef::new).flatten()
    }

    /// The block at `block` if it is in memory; what it has is the latest as long as it is found.
    pub(crate) fn peek<'p>(&'p self, pin: &'p Pin, block: Block) -> Option<&'p TableBlock> {
        self.blocks.find(pin, &block.0).map(|found| &**found)
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

    /// While nothing is captured: if more than `keep` are loaded, forgets blocks that no inode in
    /// memory lies in and nobody looked at since the last call, and, if that is not enough, the
    /// contents of those that no transaction after `durable` changes. What they were is in an image or
    /// on the device.
    pub(crate) fn reclaim(&self, keep: usize, durable: Tid) {
        let mut idle = Vec::new();
        let mut excess = self.loaded().saturating_sub(keep);
        let too_many = excess > 0;
        self.blocks.for_each(|_, block| {
            let unused = !block.forget_use();
            if unused && (excess > 0 || !block.is_loaded()) && block.holds.evict() {
                idle.push(block.clone());
                excess = excess.saturating_sub(1);
            }
        });
        idle.iter().for_each(|block| self.forget(block));
        self.left.store(self.len(), Ordering::Relaxed);
        if !too_many || self.loaded() <= keep {
            return;
        }
        let mut clean = Vec::new();
        self.blocks.for_each(|_, block| {
            if block.charged.load(Ordering::Relaxed) <= durable.0 {
                clean.push(block.clone());
            }
        });
        for block in clean {
            if self.loaded() <= keep {
                break;
            }
            block.forget_base(self);
        }
    }

    /// It was read for a glance.
    pub(crate) fn note_read(&self, table: &TableRef) {
        let mut recent = self.recent.mine().lock();
        recent.blocks.push_back(table.0.clone());
        let _forgotten = (recent.blocks.len() > RECENT).then(|| recent.blocks.pop_front());
        // No destructor under a lane's lock.
        drop(recent);
    }

    /// While nothing is captured: forgets most of the blocks that this lane read for glances of late
    /// and that were walked over since, until no more than `keep` are loaded.
    pub(crate) fn forget_walked(&self, keep: usize) {
        let recent = self.recent.mine();
        let mut excess = self.loaded().saturating_sub(keep);
        let Recent { mut blocks, mut walked } = std::mem::take(&mut *recent.lock());
        blocks.retain(|block| {
            if !block.is_walked_over(self.records) {
                return true;
            }
            walked += 1;
            if excess > 0 && !walked.is_multiple_of(STAYS) && block.holds.evict() {
                self.forget(block);
                excess -= 1;
            }
            false
        });
        let mut recent = recent.lock();
        recent.walked = walked;
        // Another thread of the lane may have noted some.
        blocks.append(&mut recent.blocks);
        let surplus = blocks.len().saturating_sub(RECENT);
        let forgotten: Vec<_> = blocks.drain(..surplus).collect();
        recent.blocks = blocks;
        // No destructor under a lane's lock.
        drop(recent);
        drop(forgotten);
    }

    /// It is dead.
    fn forget(&self, block: &Arc<TableBlock>) {
        block.forget_base(self);
        self.blocks.remove_if(&block.block.0, |found| Arc::ptr_eq(found, block));
    }

    /// How many blocks are in memory, with contents or without.
    pub(crate) fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Whether there are many without contents, and more than the last reclaim left.
    pub(crate) fn has_empty(&self) -> bool {
        let (len, left) = (self.len(), self.left.load(Ordering::Relaxed));
        len > 2 * self.loaded() + 64 && len > left + left / 4
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mkfs::{Contents, MkfsOptions, mkfs};
    use crate::{Mount, MountOptions};
    use lanefs_device::RamDevice;

    #[test]
    fn what_a_walk_is_over_with_goes_but_for_one_in_some() {
        let ram = RamDevice::create(64 << 20).expect("memory");
        let options = MkfsOptions { contents: Contents::Zeros, ..MkfsOptions::default() };
        mkfs(&ram, &options).expect("room for a file system");
        let mount = Mount::open(Arc::new(ram), MountOptions::default()).expect("a new file system");
        let fs = mount.fs();
        let (tables, records) = (&fs.tables, fs.geometry.inodes_per_block());
        let first = fs.geometry.itable_blocks() / 2;
        // Looks at so many records of so many blocks, of which nobody keeps any.
        let walk = |from: u32, blocks: u32, seen: u32| {
            for n in first + from..first + from + blocks {
                let table = fs.table_block(Group(0), n).expect("a table");
                table.base(fs).expect("no fault");
                tables.note_read(&table);
                (0..seen).for_each(|slot| {
                    let looked = table.look(n * records + slot, |_| ());
                    assert_eq!(looked, Some(((), WasSeen::No)));
                });
            }
        };
        let before = tables.loaded();
        walk(0, 8, records / 2);
        tables.forget_walked(0);
        assert_eq!(tables.loaded(), before + 8, "a walk may come back to them");
        let held = fs.table_block(Group(0), first + 8).expect("a table");
        walk(8, 1, records);
        tables.forget_walked(0);
        assert_eq!(tables.loaded(), before + 9, "somebody has an inode there");
        drop(held);
        walk(9, 2 * STAYS as u32, records);
        tables.forget_walked(before + 9 + STAYS as usize);
        assert_eq!(tables.loaded(), before + 9 + STAYS as usize, "there is room for some");
        walk(9 + 2 * STAYS as u32, 2 * STAYS as u32, records);
        tables.forget_walked(0);
        assert_eq!(tables.loaded(), before + 9 + STAYS as usize + 2);
        mount.close().expect("no fault");
    }
}
