//! All groups of a mounted file system. Claims, allocates and frees blocks.

use crate::alloc::caller::Caller;
use crate::alloc::claim::Claim;
use crate::alloc::decisions::Allocation;
use crate::alloc::group::{Dirtied, GroupState, Maps};
use crate::alloc::load::Bitmaps;
use crate::alloc::presence::Presence;
use crate::alloc::read::{Format, damage};
use crate::alloc::shared::Shared;
use crate::alloc::space::{Alone, Drawn, Privilege, Space};
use crate::alloc::summary::Summaries;
use crate::alloc::tally::{AllocStatistics, Count, Tally};
use crate::alloc::visit::Worker;
use crate::alloc::{region, shared};
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
    /// [`stripe_of`](super::stripe::stripe_of); 0 without a RAID.
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
    pub(super) shared: LaneArc<Shared>,
    pub(crate) bitmaps: Bitmaps,
    pub(super) allocation: Arc<dyn Allocation>,
    reuse: Reuse,
    /// Clusters that are not allocated; some of them may be claimed.
    pub(super) free_clusters: LaneCounter,
    pub(super) free_inodes: LaneCounter,
    /// Clusters that are freed, but not durably yet.
    pending: LaneCounter,
    /// For each block of descriptors, the last transaction that changed it.
    pub(super) descriptors_charged: Growing<AtomicU64>,
    /// How often each lane has called [`Groups::next_in_region`].
    pub(super) placed: PerLane<AtomicU32>,
    /// Numbers of free clusters and inodes as of the last captures. [rank Guard]
    pub(super) captured: Mutex<(i64, i64)>,
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
    pub(super) fn region_of(&self, caller: Option<Caller>) -> Range<u32> {
        region::of(caller.unwrap_or_else(Caller::of_thread), self.shared.summaries.groups())
    }

    /// Returns a group of the caller's region: `group` itself if the region contains it.
    pub(super) fn near(&self, group: Group) -> Group {
        let region = self.region_of(Caller::current());
        if region.contains(&group.0) {
            return group;
        }
        Group(region.start + group.0 % (region.end - region.start))
    }

    /// Returns a group of the caller's region, without directories if possible. Each call by the
    /// same lane begins one group later.
    pub(super) fn next_in_region(&self, caller: Option<Caller>) -> Group {
        let region = self.region_of(caller);
        let placed = self.placed.mine().fetch_add(1, Ordering::Relaxed);
        Group(self.empty_from(region.start + placed % (region.end - region.start), region))
    }

    /// Returns the first group from `first` on, in the cyclic order of `range`, that has room and
    /// no directory. If there is no such group, or if none is found within a limited number of
    /// tries, returns `first`.
    pub(super) fn empty_from(&self, first: u32, range: Range<u32>) -> u32 {
        const TRIES: usize = 128;
        let summaries = &self.shared.summaries;
        let is_empty = |group: &u32| !summaries.has_directory(*group) && summaries.has_room(*group);
        (first..range.end).chain(range.start..first).take(TRIES).find(is_empty).unwrap_or(first)
    }

    /// Returns the worker to be noted in `group`: the caller, working for the inode `owner`.
    /// Returns `None` if the caller is unknown or callers are not separated.
    pub(super) fn worker(&self, caller: Option<Caller>, owner: Ino, group: u32) -> Option<Worker> {
        let caller = caller.filter(|_| self.allocation.spreads())?;
        Some(Worker { caller, owner, group, met: Cell::new(false) })
    }

    /// If other callers work in the goal's group too, returns a group of the caller's region, in
    /// which the worker's `owner` should place its next inodes or blocks.
    pub(super) fn escape(&self, by: &Worker) -> Option<Group> {
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

    /// Returns counts of the work that the allocators have done since the mount.
    pub(crate) fn statistics(&self) -> AllocStatistics {
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
    pub(super) fn note(&self, handle: &mut impl Changes, group: Group, dirtied: Dirtied) {
        let mut blocks = dirtied.bitmaps;
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
    pub(super) fn space(&self) -> &Space {
        &self.shared.space
    }
}

/// Creates the state of a group whose bitmaps are not read yet.
pub(super) fn cell(desc: GroupDesc) -> Padded<shared::Cell> {
    let state = Mutex::new(Rank::Guard, GroupState::new(desc));
    Padded(shared::Cell { presence: Presence::default(), state })
}
