//! Claims blocks.

use crate::alloc::bitmaps::damage;
use crate::alloc::choose::{Ask, Asks, Attempt, Candidates, Goal, Wait, choose};
use crate::alloc::group::{GroupImage, RawImage};
use crate::alloc::groups::{
    Changes, Claim, Found, Groups, InodeClaim, Request, Visit, Worker, cell,
};
use crate::alloc::regions::{Caller, WorkPlace};
use crate::alloc::runs::Rows;
use crate::alloc::space::{Alone, Count, Draw, Drawn, Privilege};
use crate::alloc::{regions, runs};
use crate::volume::BlockReader;
use lanefs_journal::Tid;
use lanefs_lanes::sync::atomic::AtomicU64;
use lanefs_ondisk::bitmap::Cause;
use lanefs_ondisk::group_desc::GroupDesc;
use lanefs_ondisk::superblock::Geometry;
use lanefs_ondisk::{FileType, Group, Ino};
use lanefs_plan::Error;
use lanefs_plan::Expected;
use std::ops::Range;

/// The largest number of times that a claim searches all groups. If none of these searches finds a
/// run, the claim fails.
const ROUNDS: u32 = 8;

impl Groups {
    /// Claims one run of blocks. May sleep.
    ///
    /// # Errors
    /// [`Error::NoSpace`]. Only with `alone` does this mean that the space is used up: without
    /// `alone`, other threads may have drawn blocks that they will give back unused. Damage or an
    /// I/O error in a bitmap is an error, too. A damaged group is reported once, and searches skip
    /// it from then on.
    pub(crate) fn claim_blocks(
        &self,
        read: &dyn BlockReader,
        request: &Request,
        alone: Option<&Alone<'_>>,
    ) -> Result<Found<'_>, Error> {
        let shared = &*self.shared;
        let geometry = shared.format.geometry();
        let (clusters, most) = (geometry.clusters(), geometry.clusters_per_group());
        let want = clusters.holding(request.want).clamp(1, most);
        let ahead = clusters.holding(request.ahead).min(most - want);
        let draw = Draw { want, ahead, privilege: request.privilege };
        let mut drawn = shared.space.draw(&draw, alone).ok_or(Error::NoSpace)?;
        self.count(Count::BlockSearches, 1);
        let caller = Caller::current();
        let start = self.region_of(caller).start;
        let place = geometry.group_of(request.goal);
        let (group, bit) = place.map_or((start, 0), |(group, bit)| (group.0, bit));
        let stream =
            request.stream.and_then(|ino| self.allocation.stream_goal(&shared.summaries, ino));
        let goal = Goal { group, if_busy: start, if_lacking: stream.unwrap_or(group + 1) };
        let by = request.owner.and_then(|owner| self.worker(caller, owner, group));
        let groups = BlockSearch { groups: self, read, by: by.as_ref() };
        let Run { group, bit, len } = self.search(&groups, request, goal, bit, drawn.blocks())?;
        drawn.use_up(len);
        // The file system may have grown since the start, while this claim waited.
        let start = shared.format.geometry().block_at(Group(group), bit).expected()?;
        let len = len << clusters.bits();
        let elsewhere = by.and_then(|by| self.escape(&by));
        Ok(Found { claim: Claim::new(self.shared.clone(), start, len), drawn, elsewhere })
    }

    fn search(
        &self,
        groups: &BlockSearch<'_>,
        request: &Request,
        goal: Goal,
        bit: u32,
        drawn: u32,
    ) -> Result<Run, Error> {
        let at_least = self.shared.format.geometry().clusters().holding(request.at_least);
        for _ in 0..ROUNDS {
            let asks = Ask::in_turn(bit, drawn, at_least.min(drawn));
            if let Some(run) = choose(groups, goal, asks, self.allocation.busy_group())? {
                if let Some(ino) = request.stream {
                    self.allocation.note_stream(ino, run.group);
                }
                return Ok(run);
            }
            // The draw guarantees that free blocks exist. Other threads must have freed them in
            // groups that this search had already passed.
        }
        Err(Error::NoSpace)
    }
}

/// A claimed run within a group, in bits of its bitmap.
struct Run {
    group: u32,
    bit: u32,
    len: u32,
}

/// The [`Candidates`] of a search for blocks.
struct BlockSearch<'a> {
    groups: &'a Groups,
    read: &'a dyn BlockReader,
    by: Option<&'a Worker>,
}

impl Candidates for BlockSearch<'_> {
    type Ask = Ask;
    type Claim = Run;
    type Error = Error;

    fn groups(&self) -> u32 {
        self.groups.shared.summaries.groups()
    }

    fn has_any(&self, group: u32) -> bool {
        self.groups.shared.summaries.has_blocks(group)
    }

    fn next(&self, ask: &Ask, from: u32) -> Option<u32> {
        self.groups.allocation.next_with_order(&self.groups.shared.summaries, ask.order, from)
    }

    fn attempt(&self, group: u32, ask: &Ask, wait: Wait) -> Result<Attempt<Run>, Error> {
        if !self.has_any(group) {
            return Ok(Attempt::Lacking);
        }
        let shared = &*self.groups.shared;
        let geometry = shared.format.geometry();
        let first = geometry.group_first_block(Group(group)).map_or(0, |block| block.0);
        let rows = Rows::in_group(shared.row, first >> geometry.cluster_bits());
        self.groups.count(Count::GroupsTried, 1);
        let visit =
            Visit { bitmaps: &self.groups.bitmaps, read: self.read, group, wait, by: self.by };
        visit.enter(|ready| match ready.claim_run(ask, shared.summaries.bound(group), rows) {
            Ok(run) => {
                let open = ready.blocks.open;
                shared.summaries.set_open_blocks(group, open);
                if open == 0 {
                    shared.summaries.set_longest(group, 0);
                }
                Some(Run { group, bit: run.start, len: run.end - run.start })
            }
            Err(longest) => {
                shared.summaries.set_longest(group, longest);
                None
            }
        })
    }
}

// Claims free blocks for a moment, so that they can be discarded.

/// The largest number of clusters that one claim takes. The number is limited because other threads
/// cannot use these clusters until the claim ends.
const MOST: u32 = 8192;

/// A run of free blocks, and a claim on its first clusters: as many as possible, up to `MOST`.
///
/// The claim is under way until this value is dropped. So a writer that finds no free block waits
/// for the blocks to come back, instead of being refused.
pub(crate) struct FreeRun<'g> {
    /// `None` if claims of other threads take up all free blocks of the file system, or if another
    /// thread has claimed the start of the run since the run was found.
    pub(crate) claim: Option<Claim>,
    /// This field is declared after `claim`, so that the blocks come back before the claim ends.
    _drawn: Option<Drawn<'g>>,
    /// The bit at which the next search starts: the end of the run, but at most `MOST` bits after
    /// its start.
    pub(crate) next: u32,
    /// The first bit after the run.
    pub(crate) end: u32,
}

impl Groups {
    /// Finds the first free run of at least `least` clusters within the bits `range` of a group,
    /// and claims its start. Returns `None` if there is no such run. May sleep.
    ///
    /// # Errors
    /// Damage or an I/O error in a bitmap.
    pub(crate) fn claim_free_run(
        &self,
        read: &dyn BlockReader,
        group: Group,
        range: Range<u32>,
        least: u32,
    ) -> Result<Option<FreeRun<'_>>, Error> {
        let _hold = self.bitmaps.load(read, group)?;
        let shared = &self.shared;
        let Some(found) = self.free_run(group, range, least) else { return Ok(None) };
        let want = (found.end - found.start).min(MOST);
        let next = found.start + want;
        let draw = Draw { want, ahead: 0, privilege: Privilege::Root };
        let Some(mut drawn) = shared.space.draw(&draw, None) else {
            return Ok(Some(FreeRun { claim: None, _drawn: None, next, end: found.end }));
        };
        let mut state = shared.state(group);
        let blocks = &mut state.ready().blocks;
        // Other threads may have claimed some blocks of the run since `free_run` returned it.
        let len = runs::clear_at(&blocks.taken, found.start, drawn.blocks());
        if len > 0 {
            blocks.take(found.start..found.start + len);
            let open = blocks.open;
            shared.summaries.set_open_blocks(group.0, open);
        }
        drop(state);
        drawn.use_up(len);
        let start = shared.block(group, found.start);
        let len = len << shared.format.geometry().cluster_bits();
        let claim = (len > 0).then(|| Claim::new(self.shared.clone(), start, len));
        Ok(Some(FreeRun { claim, _drawn: Some(drawn), next, end: found.end }))
    }

    fn free_run(&self, group: Group, range: Range<u32>, least: u32) -> Option<Range<u32>> {
        let mut state = self.shared.state(group);
        let taken = &state.ready().blocks.taken;
        let mut at = range.start;
        while let Some(start) = taken.next_clear(at..range.end) {
            let end = taken.next_set(start..range.end).unwrap_or(range.end);
            if end - start >= least {
                return Some(start..end);
            }
            at = end;
        }
        None
    }
}

// Adds groups to a file system in use.

impl Groups {
    /// Prepare: makes room in memory for new groups. No claim can find them before
    /// [`Groups::open_new`]. Two threads must not call this function at once.
    pub(crate) fn add_new(&self, geometry: &Geometry, descriptors: &[GroupDesc]) {
        let shared = &self.shared;
        let groups = geometry.group_count();
        let charged = self.descriptors_charged.len()..geometry.desc_blocks() as usize;
        self.descriptors_charged.extend(charged.map(|_| AtomicU64::new(0)));
        self.bitmaps.residents.grow(groups);
        shared.summaries.grow(groups);
        let first = Group(shared.summaries.groups());
        shared.format.system.grow(geometry, first, descriptors);
        shared.cells.extend(descriptors.iter().copied().map(cell));
    }

    /// Apply: makes the file system as large as `geometry`. From now on the new groups, and the
    /// blocks that are added to the last old group, can be claimed. So every change that uses them
    /// belongs to this transaction or a later one.
    ///
    /// # Panics
    /// If the last old group gets more blocks and its bitmaps are not in memory.
    pub(crate) fn open_new(
        &self,
        handle: &mut impl Changes,
        geometry: Geometry,
        descriptors: &[GroupDesc],
    ) {
        let shared = &self.shared;
        let old = *shared.format.geometry();
        let first = old.group_count();
        // The geometry is replaced before the blocks can be claimed, because a claim computes block
        // positions from the geometry.
        shared.format.geometry.set(geometry);
        let last = Group(first - 1);
        if let Some(bits) = geometry.blocks_in_group(last)
            && old.blocks_in_group(last) != Some(bits)
        {
            let mut state = shared.state(last);
            let (dirtied, added) = state.extend(handle.tid(), bits);
            let run = runs::around(&state.ready().blocks.taken, bits - added);
            shared.summaries.set_open_blocks(last.0, state.ready().blocks.open);
            shared.summaries.raise(last.0, run.end - run.start);
            drop(state);
            self.note(handle, last, dirtied);
            self.free_clusters.add(added.into());
            shared.space.put_back(added);
        }
        for (group, desc) in (first..).zip(descriptors) {
            {
                let _guard = shared.state(Group(group));
                shared.summaries.set_open_blocks(group, desc.free_blocks);
                shared.summaries.set_open_inodes(group, desc.free_inodes);
                shared.summaries.set_longest(group, desc.free_blocks);
            }
            self.free_clusters.add(desc.free_blocks.into());
            self.free_inodes.add(desc.free_inodes.into());
            shared.space.put_back(desc.free_blocks);
        }
        shared.summaries.show(geometry.group_count());
    }

    /// Committer: notes that the captured transaction contains the new groups. Later captures of
    /// these groups count only later changes.
    pub(crate) fn captured_new(&self, descriptors: &[GroupDesc]) {
        let mut captured = self.captured.lock();
        for desc in descriptors {
            captured.0 += i64::from(desc.free_blocks);
            captured.1 += i64::from(desc.free_inodes);
        }
    }
}

// Captures groups for a commit.

impl Groups {
    /// Committer: captures the group as of `tid`, or returns `None` if the group was captured
    /// already. Bitmaps that did not change are left out, but the descriptor has the checksums of
    /// both bitmaps.
    pub(crate) fn capture(&self, tid: Tid, group: Group) -> Option<GroupImage> {
        let (raw, blocks, inodes) = self.shared.state(group).take_image(tid)?;
        {
            let mut captured = self.captured.lock();
            captured.0 += blocks;
            captured.1 += inodes;
        }
        let RawImage { mut desc, blocks, inodes } = raw;
        let format = &self.shared.format;
        let block = || vec![0; format.geometry().block_size().bytes()];
        let block_bitmap = blocks.map(|bitmap| {
            let mut bytes = block();
            bitmap.encode_blocks_into(&mut bytes, &mut desc, format.geometry(), format.checksums);
            bytes.into()
        });
        let inode_bitmap = inodes.map(|bitmap| {
            let mut bytes = block();
            bitmap.encode_inodes_into(&mut bytes, &mut desc, format.geometry(), format.checksums);
            bytes.into()
        });
        // A descriptor has the checksums of both bitmaps. If a later transaction changes only one
        // bitmap, it takes the other bitmap's checksum from `state.desc`, so both are stored there.
        // The group cannot have been captured again since `take_image` released the guard, because
        // commits run one at a time.
        let mut state = self.shared.state(group);
        state.desc.block_bitmap_csum = desc.block_bitmap_csum;
        state.desc.inode_bitmap_csum = desc.inode_bitmap_csum;
        Some(GroupImage { desc, block_bitmap, inode_bitmap })
    }

    /// Committer: returns the total numbers of free blocks and inodes, as of each group's last
    /// capture.
    pub(crate) fn captured_counts(&self) -> (u64, u64) {
        let (blocks, inodes) = *self.captured.lock();
        let bits = self.shared.format.geometry().cluster_bits();
        ((blocks.max(0) as u64) << bits, inodes.max(0) as u64)
    }
}

// Claims, allocates and frees inodes.

/// A directory in which an inode is created.
pub(crate) struct Parent<'a> {
    pub ino: Ino,
    pub place: &'a WorkPlace,
    /// A number that determines the group of a new subdirectory. It differs for each subdirectory.
    pub before: u32,
    /// Whether the subdirectories of this directory are the tops of unrelated trees: true for the
    /// root, and for directories with the flag `T` of chattr(1).
    pub is_top: bool,
}

impl Groups {
    /// Claims an inode number. A file's number is in the group where its directory places files. If
    /// a directory [is a top](Parent::is_top), its subdirectories are placed far from each other.
    /// Otherwise they are placed in the groups after the directory's own group, each in the next
    /// group. If several callers work in the group or in the parent at the same time, each caller
    /// gets a group in its own region. May sleep.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if there is no free inode; damage or an I/O error in a bitmap.
    pub(crate) fn claim_inode(
        &self,
        read: &dyn BlockReader,
        kind: FileType,
        parent: &Parent<'_>,
    ) -> Result<InodeClaim<'_>, Error> {
        self.count(Count::InodeSearches, 1);
        let caller = Caller::current();
        let region = self.region_of(caller);
        let spreads = self.allocation.spreads();
        let start = match kind {
            FileType::Directory if spreads => self.group_of_directory(parent, caller),
            _ => self.group_of_file(parent, caller),
        };
        let if_busy = if spreads { region.start } else { start + 1 };
        let goal = Goal { group: start, if_busy, if_lacking: start + 1 };
        // A directory needs room for the files that will be created in it.
        let first = if kind == FileType::Directory { Room::ForFiles } else { Room::Any };
        let asks = Asks { at_goal: first, passes: std::iter::once(first), last: Room::Any };
        let by = match kind {
            FileType::Directory => None,
            _ => self.worker(caller, parent.ino, start),
        };
        let groups = InodeSearch { groups: self, read, by: by.as_ref() };
        let found = choose(&groups, goal, asks, self.allocation.busy_group())?;
        if let Some(group) = by.and_then(|by| self.escape(&by)) {
            parent.place.move_to(group);
        }
        let (group, index) = found.ok_or_else(|| Error::NoSpace)?;
        if kind == FileType::Directory {
            self.shared.summaries.set_directory(group.0);
        }
        let ino = self.shared.format.geometry().ino_at(group, index).expected()?;
        Ok(InodeClaim::new(&self.shared, ino, group, index))
    }

    fn group_of_file(&self, parent: &Parent<'_>, caller: Option<Caller>) -> u32 {
        let place = parent.place.moved().or_else(|| self.own_group(parent.ino));
        let spreads = self.allocation.spreads();
        match place {
            Some(group) if spreads && parent.place.is_shared(caller) => self.near(group).0,
            Some(group) => group.0,
            None => self.region_of(caller).start,
        }
    }

    fn group_of_directory(&self, parent: &Parent<'_>, caller: Option<Caller>) -> u32 {
        let groups = self.shared.summaries.groups();
        let own = match (parent.place.moved(), parent.place.is_shared(caller)) {
            (None, false) => self.own_group(parent.ino),
            _ => None,
        };
        match own {
            _ if parent.is_top && own.is_some() => {
                self.empty_from(regions::top(parent.before, groups), 0..groups)
            }
            Some(group) => regions::below(group.0, parent.before, groups),
            // If every group of the region has a directory, the groups outside of the region are
            // tried too. (If there are few groups, regions overlap, so another caller may have made
            // the directories in this region.)
            None => self.empty_from(self.next_in_region(caller).0, 0..groups),
        }
    }

    fn own_group(&self, ino: Ino) -> Option<Group> {
        self.shared.format.geometry().inode_place(ino).map(|place| place.group)
    }

    /// Apply: allocates the inode of a claim, and uses the claim up.
    pub(crate) fn allocate_inode(
        &self,
        handle: &mut impl Changes,
        claim: InodeClaim<'_>,
        kind: FileType,
    ) {
        let (group, index) = claim.into_place();
        let directories = u32::from(kind == FileType::Directory);
        let dirtied = self.shared.state(group).allocate_inode(handle.tid(), index, directories);
        self.note(handle, group, dirtied);
        self.free_inodes.add(-1);
    }

    /// Apply: frees an inode that has no references left. The inode can be claimed again at once.
    ///
    /// # Errors
    /// [`Error::Corruption`] if the inode is free already.
    ///
    /// # Panics
    /// If [`Bitmaps::load`] was not called before.
    pub(crate) fn free_inode(
        &self,
        handle: &mut impl Changes,
        ino: Ino,
        kind: FileType,
    ) -> Result<(), Error> {
        let place = self.shared.format.geometry().inode_place(ino);
        let Some(place) = place.filter(|_| ino >= self.shared.format.geometry().first_ino()) else {
            return Err(damage(Group(0), Cause::BeyondEnd { start: ino.0, len: 1 }));
        };
        let (group, index) = (place.group, place.index);
        let directories = u32::from(kind == FileType::Directory);
        let mut state = self.shared.state(group);
        let dirtied = state.free_inode(handle.tid(), index, directories);
        let open = state.ready().inodes.open;
        let Some(dirtied) = dirtied else {
            return Err(damage(group, Cause::AlreadyClear { bit: index }));
        };
        self.shared.summaries.set_open_inodes(group.0, open);
        drop(state);
        self.note(handle, group, dirtied);
        self.free_inodes.add(1);
        Ok(())
    }
}

/// The room that a group must have in addition to a free inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Room {
    Any,
    /// Free blocks.
    ForFiles,
}

/// The [`Candidates`] of a search for inode numbers.
struct InodeSearch<'a> {
    groups: &'a Groups,
    read: &'a dyn BlockReader,
    by: Option<&'a Worker>,
}

impl Candidates for InodeSearch<'_> {
    type Ask = Room;
    /// The group, and the inode's index in it.
    type Claim = (Group, u32);
    type Error = Error;

    fn groups(&self) -> u32 {
        self.groups.shared.summaries.groups()
    }

    fn has_any(&self, group: u32) -> bool {
        self.groups.shared.summaries.has_inodes(group)
    }

    fn next(&self, _: &Room, from: u32) -> Option<u32> {
        self.groups.allocation.next_with_inodes(&self.groups.shared.summaries, from)
    }

    fn attempt(&self, group: u32, room: &Room, wait: Wait) -> Result<Attempt<(Group, u32)>, Error> {
        let summaries = &self.groups.shared.summaries;
        let has_room = *room == Room::Any || summaries.has_blocks(group);
        if !has_room || !self.has_any(group) {
            return Ok(Attempt::Lacking);
        }
        self.groups.count(Count::GroupsTried, 1);
        let visit =
            Visit { bitmaps: &self.groups.bitmaps, read: self.read, group, wait, by: self.by };
        Ok(self.groups.allocation.claim_inode(&visit)?.map(|index| (Group(group), index)))
    }
}
