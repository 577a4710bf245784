//! Reads the bitmaps of groups, and keeps them while operations need them.

use crate::alloc::group::{GroupState, Maps};
use crate::alloc::runs;
use crate::alloc::space::{Space, Tally};
use crate::alloc::summary::Summaries;
use crate::volume::BlockReader;
use lanefs_journal::Tid;
use lanefs_lanes::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use lanefs_lanes::{Growing, LaneArc, Latest, Mutex, MutexGuard, NumberSet, Padded, Rank};
use lanefs_ondisk::bitmap::{Bitmap, Cause};
use lanefs_ondisk::checksum::Checksums;
use lanefs_ondisk::group_desc::{GroupDesc, GroupFlags};
use lanefs_ondisk::superblock::Geometry;
use lanefs_ondisk::{Block, Corruption, Group};
use lanefs_plan::Error;
use lanefs_plan::system::SystemBlocks;
use std::ops::Range;
use std::sync::Arc;

/// The number of locks for reading bitmaps. Several groups share a lock, so their bitmaps are not
/// read at the same time.
const LOADERS: usize = 64;

/// The bitmaps of all groups.
#[derive(Debug)]
pub(crate) struct Bitmaps {
    pub(crate) shared: LaneArc<Shared>,
    /// Serialises readers of a group's bitmaps. [rank Load]
    loaders: Box<[Mutex<()>]>,
    pub(crate) residents: Residents,
}

impl Bitmaps {
    /// Creates the set, with no bitmap in memory. As long as all bitmaps in memory together take
    /// more than `bytes`, evictable bitmaps are dropped.
    pub(crate) fn new(shared: LaneArc<Shared>, bytes: u64) -> Bitmaps {
        let residents = Residents::new(shared.summaries.groups(), bytes, shared.bitmap_bytes());
        let loaders = (0..LOADERS).map(|_| Mutex::new(Rank::Load, ())).collect();
        Bitmaps { shared, loaders, residents }
    }

    /// Loads the bitmaps of `group` to prepare a change, and keeps them in memory while the
    /// returned hold lives. May sleep.
    ///
    /// # Errors
    /// Damage, or an I/O error.
    pub(crate) fn load(
        &self,
        read: &dyn BlockReader,
        group: Group,
    ) -> Result<GroupHold<'_>, Error> {
        if let Some(hold) = self.hold_ready(group) {
            return Ok(hold);
        }
        let hold = self.read_bitmaps(read, group)?;
        self.residents.make_room(&self.shared, read);
        Ok(hold)
    }

    /// Prepare: loads and holds the bitmaps of each group that contains a part of a run of blocks.
    pub(crate) fn load_run<'g>(
        &'g self,
        read: &dyn BlockReader,
        start: Block,
        len: u32,
        holds: &mut Vec<GroupHold<'g>>,
    ) -> Result<(), Error> {
        let geometry = self.shared.format.geometry();
        let (mut at, end) = (start.0, start.0 + u64::from(len));
        while at < end {
            let outside = Error::OutsideFileSystem { block: Block(at) };
            let Some((group, _)) = geometry.group_of(Block(at)) else { return Err(outside) };
            let Some(last) = geometry.group_last_block(group) else { return Err(outside) };
            holds.push(self.load(read, group)?);
            at = last.0 + 1;
        }
        Ok(())
    }

    /// Prepare: loads and holds the bitmaps of a block's group.
    pub(crate) fn load_group_of(
        &self,
        read: &dyn BlockReader,
        block: Block,
    ) -> Result<GroupHold<'_>, Error> {
        match self.shared.format.geometry().group_of(block) {
            Some((group, _)) => self.load(read, group),
            None => Err(Error::OutsideFileSystem { block }),
        }
    }

    /// Holds a group if its bitmaps are in memory.
    fn hold_ready(&self, group: Group) -> Option<GroupHold<'_>> {
        GroupHold::of(&self.shared.cells.get(group.0 as usize)?.presence)
    }

    /// Reads the bitmaps of `group`, unless another thread has read them meanwhile. The bitmaps are
    /// held before the guard is released, so that eviction does not drop them right after the read.
    fn read_bitmaps(&self, read: &dyn BlockReader, group: Group) -> Result<GroupHold<'_>, Error> {
        let Some(cell) = self.shared.cells.get(group.0 as usize) else {
            return Err(damage(group, Cause::NoSuchGroup));
        };
        let is_there = |state: &GroupState| match &state.maps {
            Maps::Ready(_) => Some(Ok(cell.presence.hold_resident())),
            Maps::Damaged(cause) => Some(Err(Error::Corruption(cause.as_ref().clone()))),
            Maps::Unread => None,
        };
        if let Some(known) = is_there(&cell.state.lock()) {
            return known;
        }
        let _loader = self.loaders[group.0 as usize % LOADERS].lock();
        let desc = {
            let state = cell.state.lock();
            if let Some(known) = is_there(&state) {
                return known;
            }
            state.desc
        };
        let format = &self.shared.format;
        let bitmaps = format
            .read_blocks(read, group, &desc)
            .and_then(|blocks| Ok((blocks, format.read_inodes(read, group, &desc)?)));
        match bitmaps {
            Ok((blocks, inodes)) => {
                let geometry = format.geometry();
                // Reserved inodes are in group 0.
                let reserved = if group.0 == 0 { geometry.first_ino().0 - 1 } else { 0 };
                let mut state = cell.state.lock();
                state.make_ready(blocks, inodes, reserved);
                self.shared.set_hints(group, &mut state);
                self.residents.note_arrival(&self.shared, group.0);
                Ok(cell.presence.hold_resident())
            }
            Err(error) => {
                if let Error::Corruption(cause) = &error {
                    self.give_up(group, cause.clone());
                    read.damaged(&error);
                }
                Err(error)
            }
        }
    }

    /// Marks a group as damaged: nothing is allocated in it any more.
    fn give_up(&self, group: Group, cause: Corruption) {
        let mut state = self.shared.state(group);
        state.maps = Maps::Damaged(Box::new(cause));
        let summaries = &self.shared.summaries;
        summaries.set_open_blocks(group.0, 0);
        summaries.set_open_inodes(group.0, 0);
        summaries.set_longest(group.0, 0);
        let lost = state.desc.free_blocks;
        drop(state);
        self.shared.space.lose(lost);
    }

    /// Committer: notes that `tid` is durable and that the blocks freed in it are released.
    pub(crate) fn committed(&self, tid: Tid) {
        self.residents.committed(&self.shared, tid);
    }

    /// Returns how many bytes the bitmaps in memory take.
    pub(crate) fn bytes(&self) -> u64 {
        self.residents.count() as u64 * self.shared.bitmap_bytes()
    }
}

// Reads a group's bitmaps from their blocks, or computes those that were never written.

/// The properties that all groups share.
#[derive(Debug)]
pub(crate) struct Format {
    /// Replaced when the file system grows.
    pub geometry: Latest<Geometry>,
    pub checksums: Checksums,
    pub system: Arc<SystemBlocks>,
}

impl Format {
    /// Returns the present geometry of the file system.
    #[inline]
    pub(crate) fn geometry(&self) -> &Geometry {
        self.geometry.get()
    }

    /// Reads the block bitmap of `group` and checks that all metadata in the group is marked as in
    /// use, including metadata there that belongs to other groups.
    pub(crate) fn read_blocks(
        &self,
        read: &dyn BlockReader,
        group: Group,
        desc: &GroupDesc,
    ) -> Result<Bitmap, Error> {
        let Format { checksums, system, .. } = self;
        let geometry = self.geometry();
        let first = geometry.group_first_block(group).unwrap_or_default().0;
        let len = geometry.clusters_in_group(group).unwrap_or(0);
        let bit = |block: u64| ((block - first) >> geometry.cluster_bits()) as u32;
        let metadata = system
            .within(first..first + (u64::from(len) << geometry.cluster_bits()))
            .map(|run| bit(run.start)..bit(run.end));
        if desc.flags.contains(GroupFlags::BLOCK_UNINIT) {
            let mut bitmap = Bitmap::new(len);
            metadata.for_each(|range| bitmap.fill(range));
            let (clear, free) = (bitmap.count_clear(), desc.free_blocks);
            return match clear == free {
                true => Ok(bitmap),
                false => Err(damage(group, Cause::FreeCount { clear, free })),
            };
        }
        let bytes = read.read_block(desc.block_bitmap)?;
        let bitmap = Bitmap::decode_blocks(&bytes, group, desc, geometry, *checksums)?;
        for range in metadata {
            if let Some(bit) = bitmap.next_clear(range) {
                return Err(damage(group, Cause::MetadataClear { bit }));
            }
        }
        Ok(bitmap)
    }

    /// Reads the inode bitmap of `group`.
    pub(crate) fn read_inodes(
        &self,
        read: &dyn BlockReader,
        group: Group,
        desc: &GroupDesc,
    ) -> Result<Bitmap, Error> {
        let (geometry, checksums) = (self.geometry(), self.checksums);
        let bits = geometry.inodes_per_group();
        if !desc.flags.contains(GroupFlags::INODE_UNINIT) {
            let bytes = read.read_block(desc.inode_bitmap)?;
            let bitmap = Bitmap::decode_inodes(&bytes, group, desc, geometry, checksums)?;
            // The allocation of an inode initialises the inode table up to that inode. If bits in
            // the unused part were set, the next allocation would skip their inodes, and the
            // initialisation could take more blocks than a transaction can have. So a bitmap with a
            // set bit in the unused part counts as damaged.
            let unused = bits.saturating_sub(desc.itable_unused)..bits;
            if geometry.features().has_descriptor_checksums()
                && let Some(bit) = bitmap.next_set(unused)
            {
                return Err(damage(group, Cause::NeverUsed { bit }));
            }
            return Ok(bitmap);
        }
        match desc.free_inodes == bits {
            true => Ok(Bitmap::new(bits)),
            false => {
                let free = desc.free_inodes;
                Err(damage(group, Cause::FreeCount { clear: bits, free }))
            }
        }
    }
}

pub(crate) fn damage(group: Group, cause: Cause) -> Error {
    Corruption::Bitmap { group, cause }.into()
}

// Tracks whether the bitmaps of a group are in memory, and the number of operations that need
// them.

/// The bit of [`Presence`] that is set while the bitmaps are in memory.
const READY: u32 = 1 << 31;

/// Whether a group's bitmaps are in memory, and the number of operations that need them to stay
/// there.
#[derive(Debug, Default)]
pub(crate) struct Presence(AtomicU32);

impl Presence {
    /// Counts an operation that needs the bitmaps. If they are not in memory, counts nothing and
    /// returns false.
    fn hold(&self) -> bool {
        // Acquire: a thread that sees the bit also sees the bitmaps.
        let ready = self.0.fetch_add(1, Ordering::Acquire) & READY != 0;
        if !ready {
            self.let_go();
        }
        ready
    }

    /// Holds a group. The caller holds the guard, and has seen in the group's state that the
    /// bitmaps are in memory.
    pub(crate) fn hold_resident(&self) -> GroupHold<'_> {
        let ready = self.hold();
        assert!(ready, "under the guard, presence and bitmaps agree");
        GroupHold { presence: self }
    }

    fn let_go(&self) {
        let before = self.0.fetch_sub(1, Ordering::Release);
        debug_assert!(before & !READY > 0, "let go once for each hold");
    }

    /// Notes that the bitmaps are in memory. The caller holds the guard.
    pub(crate) fn arrive(&self) {
        self.0.fetch_or(READY, Ordering::Release);
    }

    /// Clears [`READY`], unless an operation needs the bitmaps. Returns whether the bit was
    /// cleared. The caller holds the guard.
    pub(crate) fn leave(&self) -> bool {
        self.0.compare_exchange(READY, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}

/// Until this value is dropped, the bitmaps of the group stay in memory.
#[derive(Debug)]
#[must_use = "the bitmaps may be evicted when it is dropped"]
pub(crate) struct GroupHold<'g> {
    presence: &'g Presence,
}

impl GroupHold<'_> {
    /// Holds a group if its bitmaps are in memory; else returns `None`.
    pub(crate) fn of(presence: &Presence) -> Option<GroupHold<'_>> {
        presence.hold().then(|| GroupHold { presence })
    }
}

impl Drop for GroupHold<'_> {
    fn drop(&mut self) {
        self.presence.let_go();
    }
}

// Decides which groups keep their bitmaps in memory.
//
// Bitmaps are read when a group is first needed. If the bitmaps in memory exceed the cap, each
// read evicts the bitmaps of some other groups. After a commit more bitmaps are clean, so the
// committer continues the eviction.
//
// *Groups that stay.* A group keeps its bitmaps while it is held, and while a transaction waits
// for the group's image or has not made that image durable. It also keeps them while a block or an
// inode of the group is claimed, or is freed but not durably free. Such claims and freed items are
// recorded only in the bitmaps' `taken` bits, which exist only in memory. A group that was used
// since the last pass gets a second chance.
//
// *Locking*: eviction skips a group whose guard is held, and takes no lock that the committer
// holds. The number of the last durable transaction shows whether a captured image can be read
// back already.

/// Number of groups that a thread examines to make room after it has read bitmaps.
const LOOKS: usize = 16;
/// The smallest cap, in groups. One operation needs several groups, because it holds some and
/// claims in others.
const FEWEST: usize = 16;

/// The groups with bitmaps in memory.
#[derive(Debug)]
pub(crate) struct Residents {
    set: NumberSet,
    /// On cache lines of their own; written only when bitmaps are read or evicted.
    counts: Padded<Counts>,
    most: usize,
    durable: AtomicU64,
}

#[derive(Debug)]
struct Counts {
    count: AtomicUsize,
    /// The group at which the next pass starts.
    hand: AtomicU32,
}

impl Residents {
    /// Creates the set for `groups` groups, without bitmaps in memory. `bytes` is the cap, and the
    /// bitmaps of one group take `each` bytes.
    pub(crate) fn new(groups: u32, bytes: u64, each: u64) -> Residents {
        let most = usize::try_from(bytes / each.max(1)).unwrap_or(usize::MAX).max(FEWEST);
        let counts = Counts { count: AtomicUsize::new(0), hand: AtomicU32::new(0) };
        Residents {
            set: NumberSet::new(groups),
            counts: Padded(counts),
            most,
            durable: AtomicU64::new(0),
        }
    }

    /// Makes room for `groups` groups. Two threads must not call this function at once.
    pub(crate) fn grow(&self, groups: u32) {
        self.set.grow(groups);
    }

    /// Returns the number of groups whose bitmaps are in memory.
    pub(crate) fn count(&self) -> usize {
        self.counts.0.count.load(Ordering::Relaxed)
    }

    fn next(&self) -> Option<u32> {
        let hand = &self.counts.0.hand;
        let group = self.set.next(hand.load(Ordering::Relaxed)).or_else(|| self.set.next(0))?;
        hand.store(group + 1, Ordering::Relaxed);
        Some(group)
    }

    /// Notes that the bitmaps of a group were read. The caller holds the group's guard.
    pub(crate) fn note_arrival(&self, shared: &Shared, group: u32) {
        shared.cells[group as usize].presence.arrive();
        self.set.insert(group);
        self.counts.0.count.fetch_add(1, Ordering::Relaxed);
    }

    /// Makes room after bitmaps were read. The caller holds no guard.
    pub(crate) fn make_room(&self, shared: &Shared, read: &dyn BlockReader) {
        if self.count() <= self.most {
            return;
        }
        self.evict(shared, LOOKS);
        // The remaining bitmaps are dirty, claimed or in use. If they are too many, a commit is
        // requested, because it makes the dirty ones clean.
        if self.count() > self.most + self.most / 4 {
            read.over_limit();
        }
    }

    /// Committer: notes that `tid` is durable and that the blocks freed in it are released.
    pub(crate) fn committed(&self, shared: &Shared, tid: Tid) {
        self.durable.fetch_max(tid.0, Ordering::Relaxed);
        self.evict(shared, 2 * self.count());
    }

    /// Examines groups, and evicts those that can be evicted, until the cap is met or `looks`
    /// groups were examined.
    fn evict(&self, shared: &Shared, looks: usize) {
        for _ in 0..looks {
            if self.count() <= self.most {
                return;
            }
            let Some(group) = self.next() else { return };
            self.evict_group(shared, group);
        }
    }

    fn evict_group(&self, shared: &Shared, group: u32) {
        let cell = &shared.cells[group as usize];
        let Some(mut state) = cell.state.try_lock() else { return };
        let durable = Tid(self.durable.load(Ordering::Relaxed));
        if !state.may_go(durable) || !cell.presence.leave() {
            return;
        }
        let gone = std::mem::replace(&mut state.maps, Maps::Unread);
        self.set.remove(group);
        self.counts.0.count.fetch_sub(1, Ordering::Relaxed);
        drop(state);
        drop(gone);
    }
}

// The groups' states and hints. Claims keep them alive.

/// One group: whether its bitmaps are in memory, and its guarded state.
#[derive(Debug)]
pub(crate) struct Cell {
    pub(crate) presence: Presence,
    /// [rank Guard]
    pub(crate) state: Mutex<GroupState>,
}

/// The part of [`super::Groups`] that every claim keeps in memory.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) format: Format,
    pub(crate) cells: Growing<Padded<Cell>>,
    pub(crate) summaries: Summaries,
    pub(crate) space: Space,
    pub(crate) tally: Tally,
    /// Data clusters in a whole row of the underlying RAID; 0 without a RAID.
    pub(crate) row: u32,
}

impl Shared {
    pub(crate) fn state(&self, group: Group) -> MutexGuard<'_, GroupState> {
        self.cells[group.0 as usize].state.lock()
    }

    /// Returns the block of `bit`, which must be a bit of the group's bitmap.
    pub(crate) fn block(&self, group: Group, bit: u32) -> Block {
        self.format.geometry().block_at(group, bit).unwrap_or_default()
    }

    /// Splits a run of blocks by group. Yields each group with the bits of the run's clusters in
    /// it.
    pub(crate) fn parts(
        &self,
        start: Block,
        len: u32,
    ) -> impl Iterator<Item = (Group, Range<u32>)> {
        let end = start.0 + u64::from(len);
        let mut at = start;
        std::iter::from_fn(move || {
            if at.0 >= end {
                return None;
            }
            let geometry = self.format.geometry();
            let (group, bit) = geometry.group_of(at)?;
            let last = geometry.group_last_block(group)?;
            let clusters = geometry.clusters();
            let blocks = ((last.0 + 1).min(end) - at.0) as u32;
            let len = clusters.holding(clusters.offset(at.0) + blocks);
            at = Block(at.0 + u64::from(blocks));
            Some((group, bit..bit + len))
        })
    }

    /// Makes blocks claimable again.
    pub(crate) fn give_back(&self, start: Block, len: u32) {
        for (group, range) in self.parts(start, len) {
            let mut state = self.state(group);
            state.ready().blocks.open(range.clone());
            self.opened(group, &mut state, &range);
        }
        self.space.put_back(len >> self.format.geometry().cluster_bits());
    }

    /// Updates the hints after the bits `range` became claimable. The caller holds the guard.
    pub(crate) fn opened(&self, group: Group, state: &mut GroupState, range: &Range<u32>) {
        let blocks = &state.ready().blocks;
        let run = runs::around(&blocks.taken, range.start);
        self.summaries.set_open_blocks(group.0, blocks.open);
        self.summaries.raise(group.0, run.end - run.start);
    }

    /// Sets the exact hints of a group whose bitmaps were read. The caller holds the guard.
    pub(crate) fn set_hints(&self, group: Group, state: &mut GroupState) {
        let ready = state.ready();
        let longest = ready.blocks.taken.longest_clear_run(0..ready.blocks.taken.bits());
        self.summaries.set_open_blocks(group.0, ready.blocks.open);
        self.summaries.set_open_inodes(group.0, ready.inodes.open);
        self.summaries.set_longest(group.0, longest.map_or(0, |run| run.end - run.start));
    }

    /// Makes an inode claimable again.
    pub(crate) fn give_back_inode(&self, group: Group, index: u32) {
        let mut state = self.state(group);
        let ready = state.ready();
        ready.open_inode(index);
        let open = ready.inodes.open;
        self.summaries.set_open_inodes(group.0, open);
    }

    /// Returns how many bytes the bitmaps of one group take in memory: two block bitmaps, two inode
    /// bitmaps, a bitmap of the blocks that the running transaction allocated, and the overhead.
    pub(crate) fn bitmap_bytes(&self) -> u64 {
        let geometry = self.format.geometry();
        let bits = 3 * u64::from(geometry.clusters_per_group())
            + 2 * u64::from(geometry.inodes_per_group());
        bits / 8 + 640
    }
}
