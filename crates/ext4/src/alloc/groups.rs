//! All groups of a mounted file system. Claims, allocates and frees blocks.

use crate::alloc::bitmaps::{Bitmaps, Format, Presence, Shared, damage};
use crate::alloc::choose::{Attempt, Wait};
use crate::alloc::group::{Changed, Dirtied, GroupState, Maps, Ready};
use crate::alloc::regions::Caller;
use crate::alloc::space::{Alone, Count, Drawn, Privilege, Space, Tally};
use crate::alloc::summary::Summaries;
use crate::alloc::{bitmaps, regions};
use crate::volume::BlockReader;
use lanefs_journal::Tid;
use lanefs_lanes::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use lanefs_lanes::{Growing, LaneArc, LaneCounter, Latest, Mutex, Padded, PerLane, Rank};
use lanefs_ondisk::bitmap::Cause;
use lanefs_ondisk::checksum::Checksums;
use lanefs_ondisk::group_desc::GroupDesc;
use lanefs_ondisk::superblock::Geometry;
use lanefs_ondisk::{Block, Group, Ino};
use lanefs_plan::Error;
use lanefs_plan::system::SystemBlocks;
use std::cell::Cell;
use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

/// A request for blocks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request {
    /// The preferred first block of the run. A block outside of the file system means no
    /// preference.
    pub goal: Block,
    /// The number of wanted blocks. The result is one run of 1 to `want` blocks, which may continue
    /// into some of the `ahead` blocks. With `bigalloc` all numbers are rounded up to whole
    /// clusters.
    pub want: u32,
    /// The number of further blocks wanted after the first `want` blocks of the same run.
    pub ahead: u32,
    /// A run shorter than this is returned only if no group has a run of this length. Usually 1.
    pub at_least: u32,
    /// Whether the reserved blocks may be used.
    pub privilege: Privilege,
    /// The inode of the file, if the file is large.
    pub stream: Option<Ino>,
    /// The file that gets the blocks. `None` if the caller cannot place further blocks in another
    /// group, and so does not use [`Found::elsewhere`].
    pub owner: Option<Ino>,
}

impl Request {
    /// Requests up to `want` blocks for structures of the file system, with root's privilege.
    pub fn for_metadata(goal: Block, want: u32) -> Request {
        let privilege = Privilege::Root;
        Request { goal, want, ahead: 0, at_least: 1, privilege, stream: None, owner: None }
    }
}

/// A claim, with the blocks that it drew. The claim counts as under way until `drawn` is dropped. A
/// caller that puts blocks of the claim into a preallocation window drops `drawn` only after the
/// window is listed, so that a search for space finds the window.
pub(crate) struct Found<'g> {
    pub claim: Claim,
    pub drawn: Drawn<'g>,
    /// The group where the owner should place its next blocks, if other callers work in the goal's
    /// group too.
    pub elsewhere: Option<Group>,
}

impl Found<'_> {
    /// Returns the claim, which is then no longer under way.
    pub(crate) fn into_claim(self) -> Claim {
        self.claim
    }
}

/// The functions of a journal handle that are called when a group changes.
pub(crate) trait Changes {
    /// Returns the transaction's id.
    fn tid(&self) -> Tid;
    /// Notes that the group's image must be captured.
    fn group_changed(&mut self, group: Group);
    /// Notes that a block is changed: the one of this kind with this number.
    fn changes(&mut self, _what: &str, _number: u32) {}
    /// Uses credits of the handle for `blocks` blocks that became part of the transaction.
    fn charge_blocks(&mut self, blocks: u32);
    /// Requests a call of [`Groups::release`] once the transaction is durable.
    fn release_later(&mut self, start: Block, len: u32);
}

/// The settings of a file system's groups.
#[derive(Debug, Clone)]
pub(crate) struct Setup {
    /// Number of clusters reserved for privileged callers: only they can claim the last free
    /// clusters.
    pub reserved: u64,
    pub allocation: Arc<dyn Allocation>,
    /// Data clusters in a whole row of the underlying RAID, see
    /// `stripe_of`; 0 without a RAID.
    pub row: u32,
    /// The number of bytes that the bitmaps in memory may take.
    pub bitmap_bytes: u64,
    /// Tells when blocks can be claimed again, if one transaction both allocated and freed them.
    pub reuse: Reuse,
}

/// Tells when blocks can be claimed again, if one transaction both allocated and freed them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reuse {
    /// At once.
    AtOnce,
    /// After the transaction has become durable. Until then a fast commit may refer to the blocks.
    OnceDurable,
}

/// The groups of a mounted file system. `claim_*` and `load` may wait for I/O; all other calls wait
/// for guards only.
#[derive(Debug)]
pub(crate) struct Groups {
    /// A [`LaneArc`], because every lane creates claims, and each claim refers to this value.
    pub(crate) shared: LaneArc<Shared>,
    pub(crate) bitmaps: Bitmaps,
    pub(crate) allocation: Arc<dyn Allocation>,
    reuse: Reuse,
    /// Clusters that are not allocated; some of them may be claimed.
    pub(crate) free_clusters: LaneCounter,
    pub(crate) free_inodes: LaneCounter,
    /// Clusters that are freed, but not durably yet.
    pending: LaneCounter,
    /// For each block of descriptors, the last transaction that changed it.
    pub(crate) descriptors_charged: Growing<AtomicU64>,
    /// How often each lane has called [`Groups::next_in_region`].
    pub(crate) placed: PerLane<AtomicU32>,
    /// Numbers of free clusters and inodes as of the last captures. [rank Guard]
    pub(crate) captured: Mutex<(i64, i64)>,
}

impl Groups {
    /// Creates the groups from decoded descriptors, one for each group of `geometry`.
    pub(crate) fn new(
        geometry: Geometry,
        checksums: Checksums,
        descriptors: Vec<GroupDesc>,
        system: Arc<SystemBlocks>,
        setup: Setup,
    ) -> Groups {
        let Setup { reserved, allocation, row, bitmap_bytes, reuse } = setup;
        assert_eq!(descriptors.len(), geometry.group_count() as usize, "a descriptor a group");
        let summaries = Summaries::new(geometry.group_count());
        let (mut blocks, mut inodes) = (0u64, 0u64);
        for (group, desc) in (0..).zip(&descriptors) {
            blocks += u64::from(desc.free_blocks);
            inodes += u64::from(desc.free_inodes);
            summaries.set_open_blocks(group, desc.free_blocks);
            summaries.set_open_inodes(group, desc.free_inodes);
            // The longest run possible; the first search finds the actual length.
            summaries.set_longest(group, desc.free_blocks);
            // The first group always contains the root and lost+found, so these two directories do
            // not count.
            if desc.used_dirs > if group == 0 { 2 } else { 0 } {
                summaries.set_directory(group);
            }
        }
        let shared = LaneArc::new(Shared {
            format: Format { geometry: Latest::new(geometry), checksums, system },
            cells: descriptors.into_iter().map(cell).collect(),
            summaries,
            space: Space::new(blocks, reserved),
            tally: Tally::default(),
            row,
        });
        Groups {
            reuse,
            bitmaps: Bitmaps::new(shared.clone(), bitmap_bytes),
            shared,
            allocation,
            free_clusters: LaneCounter::new(blocks as i64),
            free_inodes: LaneCounter::new(inodes as i64),
            pending: LaneCounter::new(0),
            descriptors_charged: (0..geometry.desc_blocks()).map(|_| AtomicU64::new(0)).collect(),
            placed: PerLane::new(|_| AtomicU32::new(0)),
            captured: Mutex::new(Rank::Guard, (blocks as i64, inodes as i64)),
        }
    }

    /// Returns the region of the caller, or of the calling thread if the caller is unknown. If
    /// there are enough groups, the regions of different callers do not overlap.
    pub(crate) fn region_of(&self, caller: Option<Caller>) -> Range<u32> {
        regions::of(caller.unwrap_or_else(Caller::of_thread), self.shared.summaries.groups())
    }

    /// Returns a group of the caller's region: `group` itself if the region contains it.
    pub(crate) fn near(&self, group: Group) -> Group {
        let region = self.region_of(Caller::current());
        if region.contains(&group.0) {
            return group;
        }
        Group(region.start + group.0 % (region.end - region.start))
    }

    /// Returns a group of the caller's region, without directories if possible. Each call by the
    /// same lane begins one group later.
    pub(crate) fn next_in_region(&self, caller: Option<Caller>) -> Group {
        let region = self.region_of(caller);
        let placed = self.placed.mine().fetch_add(1, Ordering::Relaxed);
        Group(self.empty_from(region.start + placed % (region.end - region.start), region))
    }

    /// Returns the first group from `first` on, in the cyclic order of `range`, that has room and
    /// no directory. If there is no such group, or if none is found within a limited number of
    /// tries, returns `first`.
    pub(crate) fn empty_from(&self, first: u32, range: Range<u32>) -> u32 {
        const TRIES: usize = 128;
        let summaries = &self.shared.summaries;
        let is_empty = |group: &u32| !summaries.has_directory(*group) && summaries.has_room(*group);
        (first..range.end).chain(range.start..first).take(TRIES).find(is_empty).unwrap_or(first)
    }

    /// Returns the worker to be noted in `group`: the caller, working for the inode `owner`.
    /// Returns `None` if the caller is unknown or callers are not separated.
    pub(crate) fn worker(&self, caller: Option<Caller>, owner: Ino, group: u32) -> Option<Worker> {
        let caller = caller.filter(|_| self.allocation.spreads())?;
        Some(Worker { caller, owner, group, met: Cell::new(false) })
    }

    /// If other callers work in the goal's group too, returns a group of the caller's region, in
    /// which the worker's `owner` should place its next inodes or blocks.
    pub(crate) fn escape(&self, by: &Worker) -> Option<Group> {
        let region = self.region_of(Some(by.caller));
        if !by.met.get() || region.contains(&by.group) && region.len() == 1 {
            return None;
        }
        if let Maps::Ready(ready) = &self.shared.state(Group(by.group)).maps {
            ready.meetings.forget();
        }
        let group = self.next_in_region(Some(by.caller));
        if group.0 == by.group {
            return None;
        }
        self.count(Count::Moves, 1);
        Some(group)
    }

    /// Counts `n` events.
    pub(crate) fn count(&self, count: Count, n: u32) {
        self.shared.tally.add(count, n);
    }

    /// Returns counts of the work that the allocators have done since the mount, with names.
    pub(crate) fn statistics(&self) -> Vec<(&'static str, u64)> {
        self.shared.tally.read()
    }

    /// Waits until no claim is under way; new claims wait until the returned guard is dropped. The
    /// caller must have no claim under way and hold no handle.
    pub(crate) fn alone(&self) -> Alone<'_> {
        self.shared.space.alone()
    }

    /// Apply: allocates the blocks of a claim, and uses the claim up.
    pub(crate) fn allocate(&self, handle: &mut impl Changes, claim: Claim) {
        let (start, len) = claim.into_run();
        for (group, range) in self.shared.parts(start, len) {
            let mut state = self.shared.state(group);
            let dirtied = state.allocate(handle.tid(), range);
            drop(state);
            self.note(handle, group, dirtied);
        }
        self.free_clusters.add(-i64::from(len >> self.cluster_bits()));
    }

    fn cluster_bits(&self) -> u32 {
        self.shared.format.geometry().cluster_bits()
    }

    /// Apply: frees the clusters of these blocks. They can be claimed again once the transaction is
    /// durable, or at once if the same transaction allocated them. If the log may contain copies of
    /// the blocks, the caller revokes them.
    ///
    /// # Errors
    /// [`Error::Corruption`] if some blocks are free already, or are metadata of the file system,
    /// which an inode must not map. The remaining blocks have been freed nevertheless.
    ///
    /// # Panics
    /// If [`Bitmaps::load`] was not called before.
    pub(crate) fn free_blocks(
        &self,
        handle: &mut impl Changes,
        start: Block,
        len: u32,
    ) -> Result<(), Error> {
        let geometry = self.shared.format.geometry();
        let mut result = Ok(());
        if !geometry.contains_run(start, u64::from(len)) {
            let group = Group((start.0 / u64::from(geometry.blocks_per_group())) as u32);
            return Err(damage(group, Cause::BeyondEnd { start: 0, len }));
        }
        for (group, range) in self.shared.parts(start, len) {
            let first = self.shared.block(group, range.start);
            let bits = geometry.cluster_bits();
            if self.is_metadata(first, u64::from(range.end - range.start) << bits) {
                result = Err(damage(group, Cause::MetadataFreed { bit: range.start }));
                continue;
            }
            let mut state = self.shared.state(group);
            if self.reuse == Reuse::OnceDurable {
                state.forget_birth(handle.tid(), range.clone());
            }
            let (dirtied, freed) = state.free(handle.tid(), range);
            for run in &freed.at_once {
                self.shared.opened(group, &mut state, run);
            }
            drop(state);
            self.note(handle, group, dirtied);
            let count =
                |runs: &[Range<u32>]| runs.iter().map(|run| run.end - run.start).sum::<u32>();
            let (now, later) = (count(&freed.at_once), count(&freed.later));
            self.shared.space.put_back(now);
            self.free_clusters.add(i64::from(now + later));
            self.pending.add(later.into());
            for run in freed.later {
                let len = (run.end - run.start) << bits;
                handle.release_later(self.shared.block(group, run.start), len);
            }
            if let Some(bit) = freed.wrong {
                result = Err(damage(group, Cause::AlreadyClear { bit }));
            }
        }
        result
    }

    /// Apply: treats this block, which was allocated in `tid`, as if it had been allocated earlier.
    /// If `tid` also frees the block, the block can be claimed again only after `tid` has become
    /// durable.
    pub(crate) fn keep_until_durable(&self, tid: Tid, block: Block) {
        for (group, range) in self.shared.parts(block, 1) {
            self.shared.state(group).forget_birth(tid, range);
        }
    }

    /// Notes in the handle what a change to `group` added to the transaction. The caller holds no
    /// guard.
    pub(crate) fn note(&self, handle: &mut impl Changes, group: Group, dirtied: Dirtied) {
        let mut blocks = dirtied.bitmaps;
        if cfg!(debug_assertions) {
            let Changed { blocks, inodes } = dirtied.changed;
            let index = group.0 / self.shared.format.geometry().descs_per_block();
            handle.changes("descriptors", index);
            [("block bitmap", blocks), ("inode bitmap", inodes)]
                .into_iter()
                .filter(|(_, changes)| *changes)
                .for_each(|(what, _)| handle.changes(what, group.0));
        }
        if dirtied.newly {
            handle.group_changed(group);
            let per_block = self.shared.format.geometry().descs_per_block();
            let charged = &self.descriptors_charged[(group.0 / per_block) as usize];
            let tid = handle.tid().0;
            // The thread that stores `tid` charges the block. Other threads find `tid` stored, and
            // charge nothing.
            if charged.load(Ordering::Relaxed) != tid && charged.swap(tid, Ordering::Relaxed) != tid
            {
                blocks += 1;
            }
        }
        if blocks > 0 {
            handle.charge_blocks(blocks);
        }
    }

    /// Committer: makes blocks claimable, because their freeing is durable now.
    pub(crate) fn release(&self, start: Block, len: u32) {
        self.shared.give_back(start, len);
        self.pending.add(-i64::from(len >> self.cluster_bits()));
    }

    /// Returns the numbers of free blocks and inodes, including claimed ones, for statfs.
    pub(crate) fn free_counts(&self) -> (u64, u64) {
        let count = |counter: &LaneCounter| counter.sum().max(0) as u64;
        (count(&self.free_clusters) << self.cluster_bits(), count(&self.free_inodes))
    }

    /// Returns the number of clusters freed in transactions that are not durable yet.
    pub(crate) fn pending(&self) -> u64 {
        self.pending.sum().max(0) as u64
    }

    /// Returns whether some of the blocks hold the file system's own metadata, which no file may
    /// map.
    pub(crate) fn is_metadata(&self, start: Block, len: u64) -> bool {
        self.shared.format.system.first_in(start, len).is_some()
    }

    #[cfg(test)]
    pub(crate) fn space(&self) -> &Space {
        &self.shared.space
    }
}

/// Creates the state of a group whose bitmaps are not read yet.
pub(crate) fn cell(desc: GroupDesc) -> Padded<bitmaps::Cell> {
    let state = Mutex::new(Rank::Guard, GroupState::new(desc));
    Padded(bitmaps::Cell { presence: Presence::default(), state })
}

// Claims: blocks and inode numbers that are promised to one caller, only in memory.

/// A run of claimed blocks, in whole clusters. No other caller gets the run, and it is not yet
/// allocated on disk. Dropping the claim gives the blocks back.
pub(crate) struct Claim {
    groups: LaneArc<Shared>,
    start: Block,
    len: u32,
}

impl Claim {
    pub(crate) fn new(groups: LaneArc<Shared>, start: Block, len: u32) -> Claim {
        Claim { groups, start, len }
    }

    /// Returns the first block.
    pub(crate) fn start(&self) -> Block {
        self.start
    }

    /// Returns the number of blocks, which are all in one group.
    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    /// Returns the number of clusters.
    pub(crate) fn clusters(&self) -> u32 {
        self.len >> self.cluster_bits()
    }

    /// Returns the first block of each cluster. Without `bigalloc` these are all blocks.
    pub(crate) fn first_blocks(&self) -> impl Iterator<Item = Block> + use<> {
        let (start, bits) = (self.start.0, self.cluster_bits());
        (0..u64::from(self.clusters())).map(move |n| Block(start + (n << bits)))
    }

    fn cluster_bits(&self) -> u32 {
        self.groups.format.geometry().cluster_bits()
    }

    /// Splits off the first `blocks` blocks as a separate claim, and keeps the rest. The first
    /// `blocks` blocks must fill whole clusters.
    ///
    /// # Panics
    /// If the claim has fewer than `blocks` blocks.
    pub(crate) fn split_front(&mut self, blocks: u32) -> Claim {
        assert!(blocks <= self.len, "{blocks} of {} claimed blocks", self.len);
        debug_assert_eq!(self.groups.format.geometry().clusters().offset(blocks.into()), 0);
        let front = Claim { groups: self.groups.clone(), start: self.start, len: blocks };
        self.start = Block(self.start.0 + u64::from(blocks));
        self.len -= blocks;
        front
    }

    /// Uses the claim up without giving its run back, and returns the run.
    pub(crate) fn into_run(mut self) -> (Block, u32) {
        (self.start, std::mem::take(&mut self.len))
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if self.len > 0 {
            self.groups.give_back(self.start, self.len);
        }
    }
}

/// A claimed inode number. Dropping the claim gives the number back.
pub(crate) struct InodeClaim<'a> {
    /// `None` after the claim was used up.
    groups: Option<&'a Shared>,
    ino: Ino,
    group: Group,
    index: u32,
}

impl<'a> InodeClaim<'a> {
    pub(crate) fn new(groups: &'a Shared, ino: Ino, group: Group, index: u32) -> InodeClaim<'a> {
        InodeClaim { groups: Some(groups), ino, group, index }
    }

    /// Returns the inode number.
    pub(crate) fn ino(&self) -> Ino {
        self.ino
    }

    /// Returns the group of the inode.
    #[cfg(test)]
    pub(crate) fn group(&self) -> Group {
        self.group
    }

    /// Uses the claim up without giving the number back, because an inode in use has this number.
    /// (The bitmap was wrong: it marked the number as free.)
    pub(crate) fn leave_taken(self) {
        self.into_place();
    }

    /// Uses the claim up without giving the number back, and returns the inode's group and bit.
    pub(crate) fn into_place(mut self) -> (Group, u32) {
        self.groups = None;
        (self.group, self.index)
    }
}

impl Drop for InodeClaim<'_> {
    fn drop(&mut self) {
        if let Some(groups) = self.groups.take() {
            groups.give_back_inode(self.group, self.index);
        }
    }
}

// A search's visit to one group.

/// A group that a search for an inode or for blocks tries.
pub struct Visit<'a> {
    pub(crate) bitmaps: &'a Bitmaps,
    pub(crate) read: &'a dyn BlockReader,
    pub(crate) group: u32,
    pub(crate) wait: Wait,
    /// The caller that claims, if the group is to note it (`regions.rs`).
    pub(crate) by: Option<&'a Worker>,
}

/// A caller that claims blocks or inodes for an inode. `met` is set if several callers claim in one
/// group at the same time (`regions.rs`).
pub(crate) struct Worker {
    pub caller: Caller,
    /// The directory of a new inode, or the file that gets blocks.
    pub owner: Ino,
    /// The group in which the search begins. Only this group notes the caller.
    pub group: u32,
    pub met: Cell<bool>,
}

impl Visit<'_> {
    /// Reads the group's bitmaps if necessary, and calls `claim` with them, under the group's
    /// guard. Returns [`Attempt::Lacking`] if the group is damaged or `claim` returns `None`.
    ///
    /// # Errors
    /// Damage to the bitmaps, or an I/O error when they are read.
    pub(crate) fn enter<T>(
        &self,
        mut claim: impl FnMut(&mut Ready) -> Option<T>,
    ) -> Result<Attempt<T>, Error> {
        let cell = &self.bitmaps.shared.cells[self.group as usize];
        let mut _hold = None;
        loop {
            let guard = match self.wait {
                Wait::Wait => Some(cell.state.lock()),
                Wait::Skip => cell.state.try_lock(),
            };
            let Some(mut state) = guard else {
                self.bitmaps.shared.tally.add(Count::GroupsBusy, 1);
                return Ok(Attempt::Busy);
            };
            match &mut state.maps {
                Maps::Ready(ready) => {
                    self.note(ready);
                    return Ok(claim(ready).map_or(Attempt::Lacking, Attempt::Taken));
                }
                Maps::Damaged(_) => return Ok(Attempt::Lacking),
                Maps::Unread => drop(state),
            }
            _hold = Some(self.bitmaps.load(self.read, Group(self.group))?);
        }
    }

    /// Notes the caller in the group's `meetings`, if the caller's search began in this group.
    fn note(&self, ready: &Ready) {
        if let Some(by) = self.by.filter(|by| by.group == self.group)
            && ready.meetings.note(by.caller, by.owner)
        {
            by.met.set(true);
        }
    }

    /// Finds and claims a free inode under one hold of the group's guard (S1 in `docs/seeds.md`).
    pub(crate) fn claim_inode(&self) -> Result<Attempt<u32>, Error> {
        self.enter(|ready| {
            let index = ready.find_inode(0)?;
            self.take(ready, index)
        })
    }

    /// Finds a free inode with the index `from` or a higher one. Does not claim it.
    ///
    /// # Errors
    /// Damage to the group's bitmaps, or an I/O error when they are read.
    pub fn find_inode(&self, from: u32) -> Result<Attempt<u32>, Error> {
        self.enter(|ready| ready.find_inode(from))
    }

    /// Claims the inode with this index. [`Attempt::Lacking`] if it is taken.
    ///
    /// # Errors
    /// Damage to the group's bitmaps, or an I/O error when they are read.
    pub fn take_inode(&self, index: u32) -> Result<Attempt<u32>, Error> {
        self.enter(|ready| self.take(ready, index))
    }

    fn take(&self, ready: &mut Ready, index: u32) -> Option<u32> {
        ready.take_inode(index).then(|| {
            self.bitmaps.shared.summaries.set_open_inodes(self.group, ready.inodes.open);
            index
        })
    }
}

// The allocators' decisions that determine how long threads wait for each other.

/// The allocators' decisions that determine how long threads wait for each other. The default
/// methods are those of [`Scaling`]. Another implementation changes where data is placed and how
/// long threads wait, but not what is correct: the benchmark implements the decisions of older
/// kernels (`docs/seeds.md`).
pub trait Allocation: Debug + Send + Sync {
    /// Returns what a search does at a group whose guard is held. This applies to all passes except
    /// the last.
    fn busy_group(&self) -> Wait {
        Wait::Skip
    }

    /// Returns the next group at `from` or later that may have a run of `order` or longer.
    fn next_with_order(&self, groups: &Summaries, order: u32, from: u32) -> Option<u32> {
        groups.next_with_order(order, from)
    }

    /// Returns the next group at `from` or later that may have free inodes.
    fn next_with_inodes(&self, groups: &Summaries, from: u32) -> Option<u32> {
        groups.next_with_inodes(from)
    }

    /// Returns the group to try if the goal of the large file `ino` has no room; `None` means the
    /// group after the goal's group.
    fn stream_goal(&self, _groups: &Summaries, _ino: Ino) -> Option<u32> {
        None
    }

    /// Notes that blocks for the large file `ino` were found in `group`.
    fn note_stream(&self, _ino: Ino, _group: u32) {}

    /// Returns whether new directories are spread over the groups. If they are, callers that use
    /// the same group at the same time are separated too.
    fn spreads(&self) -> bool {
        true
    }

    /// Claims an inode in a group; returns the inode's index.
    ///
    /// # Errors
    /// Damage to the group's bitmaps, or an I/O error when they are read.
    fn claim_inode(&self, group: &Visit<'_>) -> Result<Attempt<u32>, Error> {
        group.claim_inode()
    }
}

/// The decisions that scale: searches skip busy groups, and callers are kept apart.
#[derive(Debug, Clone, Copy, Default)]
pub struct Scaling;

impl Allocation for Scaling {}
