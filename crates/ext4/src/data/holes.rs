//! Claims blocks for the holes of a file, from its preallocation window or the groups.

use crate::alloc::{Claim, Count, Found, Privilege, Request};
use crate::data::FileData;
use crate::data::mapping::{EXTENTS_A_STEP, MapChange};
use crate::object::dirty::Credits;
use crate::object::orphan::Orphans;
use crate::object::state::{Concerns, InodeState};
use crate::quota::Held;
use crate::volume::MetaKind;
use lanefs_journal::Tid;
use lanefs_lanes::sync::Arc;
use lanefs_lanes::sync::atomic::Ordering;
use lanefs_ondisk::superblock::Clusters;
use lanefs_ondisk::{Block, FileBlock, FileType};
use lanefs_plan::Expected;
use lanefs_plan::cluster::Filling;
use lanefs_plan::extent::{Extent, Layout, Map, Mapping, State};
use lanefs_plan::mapping::Form;
use lanefs_plan::{Error, cluster, extent};
use std::ops::Range;

/// A range whose holes have claims.
#[derive(Default)]
pub(crate) struct Covered {
    /// The claims, in whole clusters, each with its first file block.
    pub(crate) claims: Vec<(u32, Claim)>,
    /// The extents of the claims and of the existing mappings together, in order.
    pub(crate) extents: Vec<Extent>,
    /// The reservations that count the claims against the owners' limits.
    pub(crate) held: Vec<Held>,
}

/// In which part of its range a step may cover blocks that were written before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Overlap {
    Anywhere,
    /// Only at the start, before all blocks that the step itself maps as written. So if the tree
    /// has no room for the new mappings, the write has not yet overwritten any data behind the
    /// blocks that it could not map.
    AtStart,
}

impl Covered {
    /// Returns whether a step ends before a block that is mapped as written.
    fn ends_before(&self, overlap: Overlap) -> bool {
        let unwritten = |last: &Extent| last.state != State::Written;
        overlap == Overlap::AtStart && self.extents.last().is_some_and(unwritten)
    }
}

fn unwritten(start: u32, len: u32, block: Block) -> Extent {
    Extent { start: FileBlock(start), len, block, state: State::Unwritten }
}

/// A file with more blocks than this counts as large when goals are chosen, as in mballoc
/// (`mb_stream_req`).
const STREAM: u32 = 16;
/// The largest number of blocks that an extent of written blocks can have.
const LONGEST: u32 = 32768;
/// The largest size of a window in bytes; up to this size, a new window is as large as the file.
const WINDOW: u64 = 8 << 20;

impl FileData<'_> {
    /// Claims blocks for the holes of `range`. The result covers only the start of the range if
    /// space runs out, the limit of one step is reached, or `overlap` ends the step.
    pub(crate) fn claim_holes(
        &self,
        range: Range<u32>,
        by: Privilege,
        overlap: Overlap,
    ) -> Result<Covered, Error> {
        let map = self.map()?;
        let mut covered = Covered::default();
        let mut at = range.start;
        while at < range.end && covered.extents.len() < EXTENTS_A_STEP {
            match map.find(FileBlock(at)) {
                Mapping::Mapped { state: State::Written, .. } if covered.ends_before(overlap) => {
                    break;
                }
                Mapping::Mapped { block, len, state } => {
                    let len = len.min(range.end - at);
                    covered.extents.push(Extent { start: FileBlock(at), len, block, state });
                }
                Mapping::Hole { len } => {
                    let hole = at..at + len.min(range.end - at);
                    match self.cover(&map, &hole, by, &mut covered) {
                        Err(Error::NoSpace | Error::OverQuota) if at > range.start => break,
                        filled => filled?,
                    }
                }
            }
            at = covered.extents.last().map_or(range.end, Extent::end);
        }
        Ok(covered)
    }

    /// Adds an extent for the start of `hole`: in a cluster that is in use, or in a new claim.
    fn cover(
        &self,
        map: &Map,
        hole: &Range<u32>,
        by: Privilege,
        covered: &mut Covered,
    ) -> Result<(), Error> {
        let clusters = self.fs.volume.clusters();
        let (start, wanted) = match cluster::fill(map, hole, clusters) {
            Filling::New { start, clusters } => (start, clusters),
            Filling::InUse { block, len } => {
                self.await_unmapping()?;
                covered.extents.push(unwritten(hole.start, len, block));
                return Ok(());
            }
        };
        let (mut held, permitted) = self.hold_clusters(wanted, by)?;
        let claim = self.claim_for(map, start, permitted << clusters.bits(), by)?;
        let unit = self.fs.volume.cluster_bytes();
        held.iter_mut().for_each(|held| held.keep(claim.clusters().into(), unit));
        covered.held.extend(held);
        // The hole may start and end inside of a cluster.
        let whole = unwritten(start, claim.len(), claim.start());
        covered.extents.push(whole.clip(hole).expected()?);
        covered.claims.push((start, claim));
        Ok(())
    }

    /// A transaction may unmap some blocks of a cluster but leave the cluster in use. Waits until
    /// all transactions that did this are durable. Until then a crash could map the blocks again,
    /// so their contents must not be overwritten.
    fn await_unmapping(&self) -> Result<(), Error> {
        let pending = self.inode.state.lock().unmapped_in;
        pending.map_or(Ok(()), |tid| Ok(self.fs.journal.settle(tid)?))
    }

    /// Claims whole clusters for file blocks from `at` on. Takes them from the inode's window if
    /// the window continues at `at`, else from the groups. In the second case, the inode also gets
    /// a new window after these blocks if it is a regular file, no block is mapped from `at` on,
    /// and `at` is not 0.
    fn claim_for(&self, map: &Map, at: u32, len: u32, by: Privilege) -> Result<Claim, Error> {
        let FileData { fs, inode } = *self;
        if let Some(claim) = inode.window.claim(at, len) {
            fs.groups.count(Count::WindowHits, 1);
            return Ok(claim);
        }
        let growing = map.last().is_none_or(|last| last.end() <= at);
        let block_size = fs.volume.block_size() as u64;
        let ahead = match growing && inode.file_type == FileType::Regular && at > 0 {
            // The window has only as many blocks as the file, so that small files claim few blocks.
            true => ((map.blocks() * block_size).min(WINDOW) / block_size) as u32,
            false => 0,
        };
        let goal = self.goal_at(map, at);
        // `drawn` is dropped only after the window is listed. Until then, a thread that lacks space
        // waits for this claim. When it then takes back the blocks of all listed windows, it finds
        // this window too.
        let Found { mut claim, drawn, elsewhere } = fs.claim_blocks(&Request {
            goal,
            want: len.min(LONGEST),
            ahead: ahead.min(LONGEST.saturating_sub(len)),
            at_least: len.min(2048),
            privilege: by,
            stream: (at + len > STREAM).then_some(inode.ino),
            owner: Some(inode.ino),
        })?;
        if let Some(group) = elsewhere {
            inode.place.move_to(group);
        }
        if claim.len() > len {
            let front = claim.split_front(len);
            fs.groups.count(Count::Windows, 1);
            fs.groups.count(Count::WindowBlocks, claim.len());
            let windows = &fs.mount.totals.windows;
            inode.window.put(windows, inode.ino, at + len, claim);
            claim = front;
        }
        drop(drawn);
        Ok(claim)
    }

    /// Joins a transaction, allocates the claims of the file blocks below `end`, and applies
    /// `change`, which maps them. `also` changes the inode in the same handle.
    pub(crate) fn publish(
        &self,
        claims: &mut Vec<(u32, Claim)>,
        end: u32,
        change: MapChange<'_>,
        also: impl FnOnce(&mut InodeState),
    ) -> Result<(), Error> {
        let used = take_front(claims, end, self.fs.volume.clusters());
        let mut handle = self.fs.join(change.credits.and(Credits::RUN.times(used.len())))?;
        for claim in used {
            self.fs.groups.allocate(&mut handle, claim);
        }
        self.apply_mapping(&mut handle, change, also);
        Ok(())
    }
}

/// Removes from `claims` all claims for clusters that contain file blocks below `end`, and returns
/// them. Splits a claim that reaches beyond the last of these clusters. `claims` is in the order of
/// the file blocks.
fn take_front(claims: &mut Vec<(u32, Claim)>, end: u32, clusters: Clusters) -> Vec<Claim> {
    debug_assert!(claims.is_sorted_by_key(|(start, _)| *start));
    let end = clusters.ceil(end);
    let whole = claims.partition_point(|(start, claim)| start + claim.len() <= end);
    let mut taken: Vec<Claim> = claims.drain(..whole).map(|(_, claim)| claim).collect();
    if let Some((start, claim)) = claims.first_mut()
        && *start < end
    {
        taken.push(claim.split_front(end - *start));
        *start = end;
    }
    taken
}

// Moves all mappings of a file at once: the data stays in place on the device, but gets other
// offsets in the file.
//
// A file may have more nodes than one transaction can hold, so no node of the old tree is changed.
// The new tree is written to free blocks, like data. A handle then makes the inode refer to the
// new tree. In the same handle the inode is recorded as an orphan, and the blocks that the file
// loses (removed data, and the nodes of the old tree) are mapped after the end of the file. Later
// handles free these blocks in steps. After a crash, a mount or e2fsck truncates the orphan to its
// size, which also frees these blocks. So a crash leaves the file either unchanged or changed
// completely. Until the handle's transaction is durable, a crash can bring back the old tree, in
// which the blocks belong to other offsets. So writes in place wait for that transaction.

impl FileData<'_> {
    /// Replaces all mappings by `layout`, whose blocks are mapped already, and changes the inode
    /// with `also`, all in one handle. Then frees the blocks of `removed`, which are not part of
    /// the layout. `size` is the size after the change, in bytes.
    ///
    /// # Errors
    /// [`Error::FileTooLarge`] if there are too few file blocks after the end of the file to map
    /// the removed blocks.
    ///
    /// # Locking
    /// The caller holds the operation lock exclusively.
    pub(crate) fn rearrange(
        &self,
        layout: Layout,
        removed: &[Extent],
        size: u64,
        also: impl FnOnce(&mut InodeState),
    ) -> Result<(), Error> {
        let FileData { fs, inode } = *self;
        let (form, root) = self.root()?;
        let reader = self.node_reader(form);
        let limits = fs.volume.limits_of(inode.ino);
        let old_nodes = extent::node_blocks(&root, &reader, &limits)?;
        let mut layout = layout;
        let parked = self.park(&mut layout, removed, &old_nodes, size)?;

        let plan = layout.plan(&root, &reader, &limits)?;
        self.check_space(fs.volume.sectors(plan.nodes_needed() as u64), 0)?;
        let last = self.with_map(extent::Map::last)?;
        let claims = self.claim_nodes(form, last, plan.nodes_needed())?;
        let places: Vec<Block> = claims.iter().flat_map(Claim::first_blocks).collect();
        let placed = plan.place(&places);
        self.write_nodes(form, placed.writes)?;

        let map = layout.map();
        let credits = Credits::INODE
            .and(Orphans::RECORD)
            .and(Credits::RUN.times(claims.len()))
            .and(Credits::revokes(old_nodes.len()));
        let mut handle = fs.join(credits)?;
        for claim in claims {
            fs.groups.allocate(&mut handle, claim);
        }
        for block in &old_nodes {
            fs.meta.free(&mut handle, *block);
        }
        if parked.is_some() {
            fs.orphans.add(&mut handle, inode);
        }
        let sectors = fs.volume.sectors(places.len() as u64);
        inode.moved_in.store(handle.tid().0, Ordering::Relaxed);
        inode.change(&mut handle, Concerns::Data, |state| {
            state.disk.block = placed.root;
            state.disk.sectors += sectors;
            also(state);
            inode.map.store(map, &fs.mount.totals);
        });
        drop(handle);
        let Some(parked) = parked else { return Ok(()) };
        self.free_from(parked)?;
        self.leave_orphans()
    }

    /// Waits until the blocks of the file are durably at the offsets where they are now. Called
    /// before each write to a block that the file has already: after a crash, such a write must not
    /// be found at an offset from which the block had moved away.
    ///
    /// # Locking
    /// The caller holds the operation lock, shared or exclusively.
    pub(crate) fn await_move(&self) -> Result<(), Error> {
        // Relaxed: the move was made under the operation lock.
        let moved = Tid(self.inode.moved_in.load(Ordering::Relaxed));
        match moved.0 != 0 && moved > self.fs.journal.durable() {
            true => Ok(self.fs.journal.commit(moved)?),
            false => Ok(()),
        }
    }

    /// Takes the blocks that the file loses, and maps them behind the file's end, which is at
    /// `size` bytes. Returns the first file block there, or `None` if the file loses no blocks.
    fn park(
        &self,
        layout: &mut Layout,
        removed: &[Extent],
        old_nodes: &[Block],
        size: u64,
    ) -> Result<Option<u32>, Error> {
        let end = u32::try_from(size.div_ceil(self.block_size()));
        let clusters = self.fs.volume.clusters();
        let parked = clusters.ceil(layout.end().max(end.map_err(|_| Error::FileTooLarge)?));
        let (start, len, state) = (FileBlock(0), 1, State::Unwritten);
        let nodes = old_nodes.iter().map(|block| Extent { start, len, block: *block, state });
        let mut last = None;
        let mut end = parked;
        for extent in removed.iter().copied().chain(nodes) {
            let at = cluster::place_behind(last.as_ref(), end, &extent, clusters)
                .ok_or(Error::FileTooLarge)?;
            // The blocks are mapped as unwritten, so they read as zeros if the file grows over them
            // later.
            layout.add(at, Extent { state: State::Unwritten, ..extent })?;
            end = layout.end();
            last = Some(extent);
        }
        Ok((end > parked).then_some(parked))
    }

    /// Writes new nodes to claimed blocks. Nothing refers to the nodes yet. A later handle makes
    /// the inode refer to them. The commit of that handle's transaction flushes the nodes first.
    fn write_nodes(&self, form: Form, nodes: Vec<(Block, Arc<[u8]>)>) -> Result<(), Error> {
        let FileData { fs, inode } = *self;
        let kind = MetaKind::node(form, inode.ino, inode.generation);
        for (block, bytes) in nodes {
            let sealed = kind.seal(&fs.volume, block, bytes);
            fs.volume.device.write_at(block.0 * self.block_size(), &sealed)?;
            fs.note_data(inode);
        }
        Ok(())
    }

    /// Removes the orphan record of a truncation that is finished, see
    /// [`finish`](crate::object::orphan::Orphans::finish).
    pub(crate) fn leave_orphans(&self) -> Result<(), Error> {
        let mut handle = self.fs.join(Credits::INODE.and(Orphans::RECORD))?;
        self.fs.orphans.finish(&mut handle, self.inode);
        Ok(())
    }
}
