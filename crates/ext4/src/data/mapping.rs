//! Keeps the mappings of an inode. They are published for readers. One handle at a time changes
//! them, together with the extent tree or the block map.

use crate::alloc::{Claim, GroupHold, Request};
use crate::data::FileData;
use crate::object::dirty::{Credits, Handle};
use crate::object::fs::Fs;
use crate::object::meta::MetaRef;
use crate::object::state::{Concerns, FastPart, InodeState};
use crate::volume::MetaKind;
use lanefs_lanes::sync::Arc;
use lanefs_ondisk::block_map::BLOCKS_END;
use lanefs_ondisk::extent::Cause;
use lanefs_ondisk::inode::{BlockField, InodeFlags};
use lanefs_ondisk::{Block, Corruption, FileBlock, FileType, Unsupported};
use lanefs_plan::cluster::{Usage, total};
use lanefs_plan::extent::{END, Extent, Map, Mapping, Nodes, Placed, ROOT_BYTES, State};
use lanefs_plan::mapping::Form;
use lanefs_plan::{Error, cluster, extent};
use std::cell::RefCell;
use std::ops::Range;

/// The largest number of extents that one handle maps or frees; it limits the handle's credits,
/// because each extent may be in a different group.
pub(crate) const EXTENTS_A_STEP: usize = 16;

/// The largest number of nodes that are claimed at once.
const MOST_AT_ONCE: u32 = 2048;

/// A change of mappings that is ready for Apply: everything is read, claimed and pinned.
pub(crate) struct MapChange<'f> {
    form: Form,
    placed: Placed,
    node_claims: Vec<Claim>,
    /// The nodes that the plan read, so that Apply finds them in memory.
    pinned: Vec<MetaRef>,
    map: Map,
    /// The effect on the space of the file. The caller allocates the added clusters in the same
    /// handle.
    usage: Usage,
    /// The groups in which the change frees blocks.
    holds: Vec<GroupHold<'f>>,
    /// The file blocks that this change covers. The next change covers the rest of the requested
    /// range.
    pub(crate) covered: Range<u32>,
    /// The credits of the change, apart from those of the claims that the caller allocates.
    pub(crate) credits: Credits,
}

/// Reads the nodes of one inode's mappings and keeps them pinned.
pub(crate) struct NodeReader<'f> {
    fs: &'f Fs,
    kind: MetaKind,
    pinned: RefCell<Vec<MetaRef>>,
}

impl Nodes for NodeReader<'_> {
    fn node(&self, block: Block) -> Result<Arc<[u8]>, Error> {
        let node = self.fs.meta.get(self.fs, block, self.kind)?;
        let data = node.data();
        self.pinned.borrow_mut().push(node);
        Ok(data)
    }
}

impl<'m> FileData<'m> {
    /// Runs `f` on the mappings of `inode`, loading them if they are not in memory. The caller
    /// holds the operation lock, shared or exclusively.
    pub(crate) fn with_map<R>(&self, f: impl Fn(&Map) -> R) -> Result<R, Error> {
        let FileData { fs, inode } = *self;
        // Eviction drops large mappings of open files too, so each use is noted.
        inode.note_use();
        let published = || {
            let pin = lanefs_lanes::pin();
            inode.map.get(&pin).map(&f)
        };
        if let Some(result) = published() {
            return Ok(result);
        }
        let _loader = inode.loading.lock();
        if let Some(result) = published() {
            return Ok(result);
        }
        let map = self.load_map().inspect_err(|error| fs.note_error(error))?;
        let result = f(&map);
        inode.map.store(map, &fs.mount.totals);
        Ok(result)
    }

    /// Returns a copy of the mappings. The caller holds the operation lock.
    pub(crate) fn map(&self) -> Result<Map, Error> {
        self.with_map(Map::clone)
    }

    /// Returns whether all file blocks of `claims` are still holes. The caller holds the lock of
    /// the mappings, as for [`FileData::plan_mapping`].
    pub(crate) fn are_holes(&self, claims: &[(u32, Claim)]) -> Result<bool, Error> {
        self.with_map(|map| {
            let is_hole = |start, len| extent::overlapping(map, start..start + len).is_empty();
            claims.iter().all(|(start, claim)| is_hole(*start, claim.len()))
        })
    }

    /// Returns `range` without those blocks at its start and at its end that are mapped as written.
    pub(crate) fn not_written(&self, range: Range<u32>) -> Result<Range<u32>, Error> {
        self.with_map(|map| {
            let Range { mut start, mut end } = range.clone();
            let mut written = extent::overlapping(map, range.clone());
            written.retain(|e| e.state == State::Written);
            for extent in &written {
                if extent.start.0 <= start {
                    start = extent.end().min(end);
                }
            }
            for extent in written.iter().rev() {
                if extent.end() >= end {
                    end = extent.start.0.max(start);
                }
            }
            start..end
        })
    }

    /// Returns whether the bytes `offset..end` cover a part of an unwritten block or, with
    /// `bigalloc`, of a hole. If the cluster of such a hole is in use, the hole already has its
    /// place on the device, so concurrent writes to the hole would write to the same block.
    pub(crate) fn cover_part_of_unwritten(&self, offset: u64, end: u64) -> Result<bool, Error> {
        let block_size = self.fs.volume.block_size() as u64;
        let is_inside = |edge: &u64| !edge.is_multiple_of(block_size);
        if !is_inside(&offset) && !is_inside(&end) {
            return Ok(false);
        }
        let clusters_are_blocks = self.fs.volume.clusters().are_blocks();
        self.with_map(|map| {
            [offset, end].into_iter().filter(is_inside).any(|edge| {
                match map.find(FileBlock((edge / block_size) as u32)) {
                    Mapping::Mapped { state, .. } => state == State::Unwritten,
                    Mapping::Hole { .. } => !clusters_are_blocks,
                }
            })
        })
    }

    fn load_map(&self) -> Result<Map, Error> {
        let (volume, ino) = (&self.fs.volume, self.inode.ino);
        let (form, root) = self.root()?;
        let map = form.load(&root, &self.node_reader(form), &volume.limits_of(ino))?;
        for extent in map.iter() {
            volume.check_place(ino, extent.block, extent.len)?;
        }
        match cluster::misplaced(&map, volume.clusters()) {
            Some(Extent { start, block, .. }) => {
                let cause = Cause::Cluster { start, block };
                Err(Corruption::ExtentNode { ino, block: None, cause }.into())
            }
            None => Ok(map),
        }
    }

    pub(crate) fn node_reader(&self, form: Form) -> NodeReader<'m> {
        let FileData { fs, inode } = *self;
        let kind = MetaKind::node(form, inode.ino, inode.generation);
        NodeReader { fs, kind, pinned: RefCell::new(Vec::new()) }
    }

    /// Returns the form of a file's or directory's mappings: extents or a block map. If the data is
    /// in the inode, returns the form of new files, which the mappings get when the data leaves the
    /// inode.
    pub(crate) fn form(&self) -> Form {
        let flags = InodeFlags::from_bits_retain(self.inode.rights().flags);
        match flags {
            _ if flags.contains(InodeFlags::EXTENTS) => Form::Extents,
            _ if flags.contains(InodeFlags::INLINE_DATA) => self.fs.volume.new_form,
            _ => Form::BlockMap,
        }
    }

    /// Returns the form of the mappings, and their root in the inode.
    pub(crate) fn root(&self) -> Result<(Form, [u8; ROOT_BYTES]), Error> {
        let state = self.inode.state.lock();
        let form = match state.disk.block_field(self.fs.volume.geometry()) {
            BlockField::ExtentTree => Form::Extents,
            BlockField::BlockMap if !self.fs.volume.clusters().are_blocks() => {
                let what = format!("{}: a block map together with bigalloc", self.inode.ino);
                return Err(Unsupported { what }.into());
            }
            BlockField::BlockMap => Form::BlockMap,
            BlockField::InlineData => {
                // Nothing is mapped until the data leaves the inode.
                let form = self.fs.volume.new_form;
                return Ok((form, form.empty_root()));
            }
            BlockField::NoMapping => {
                let what = format!("{}: a file without a mapping of blocks", self.inode.ino);
                return Err(Unsupported { what }.into());
            }
        };
        Ok((form, state.disk.block))
    }

    /// Plans to replace the mappings of `range` by `with`, and claims the tree nodes that the
    /// change needs. May sleep.
    ///
    /// # Locking
    /// From this call until the change is applied, the caller holds the operation lock exclusively,
    /// or holds it shared together with `Inode::mapping`.
    pub(crate) fn plan_mapping(
        &self,
        range: Range<u32>,
        with: &[Extent],
    ) -> Result<MapChange<'m>, Error> {
        let FileData { fs, inode } = *self;
        let map = self.map()?;
        let (form, root) = self.root()?;
        check_reach(form, with)?;
        let reader = self.node_reader(form);
        let limits = fs.volume.limits_of(inode.ino);
        let plan = form.plan_replace(&root, &reader, &limits, range.clone(), with)?;
        let covered = plan.covered();
        let clipped: Vec<Extent>;
        let with = match covered == range {
            true => with,
            false => {
                clipped = with.iter().filter_map(|e| e.clip(&covered)).collect();
                &clipped
            }
        };
        let usage = cluster::usage(&map, &covered, with, fs.volume.clusters());

        let clusters = u64::from(usage.added) + plan.nodes_needed() as u64;
        let freed = total(&usage.freed) >> fs.volume.clusters().bits();
        let freed = u64::from(freed) + plan.freed().len() as u64;
        self.check_space(fs.volume.sectors(clusters), fs.volume.sectors(freed))?;
        let node_claims = self.claim_nodes(form, map.last(), plan.nodes_needed())?;
        let mut holds = Vec::new();
        for extent in &usage.freed {
            fs.groups.bitmaps.load_run(fs, extent.block, extent.len, &mut holds)?;
        }
        for node in plan.freed() {
            fs.groups.bitmaps.load_run(fs, *node, 1, &mut holds)?;
        }
        let nodes = (node_claims.len(), plan.nodes_written(), plan.freed().len());
        let groups = usage.freed.iter().map(|e| fs.volume.groups_of(e.block, e.len)).sum::<u32>();
        // A directory's blocks are revoked one by one.
        let blocks = match inode.file_type {
            FileType::Directory => total(&usage.unmapped) as usize,
            _ => 0,
        };
        let credits = Credits::INODE
            .and(Credits::blocks(1).times(nodes.1))
            .and(Credits::RUN.times(nodes.0 + nodes.2 + groups as usize))
            .and(Credits::revokes(nodes.2 + blocks));
        let places: Vec<Block> = node_claims.iter().flat_map(Claim::first_blocks).collect();
        Ok(MapChange {
            form,
            placed: plan.place(&places),
            node_claims,
            pinned: reader.pinned.into_inner(),
            map: map.replace(covered.clone(), with),
            usage,
            holds,
            covered,
            credits,
        })
    }

    /// Fails if the inode's record cannot count `more` sectors without `less`. The count on disk
    /// may be damaged, so it may be near the limit in a small file too. The commit would fail, and
    /// abort the journal.
    ///
    /// # Errors
    /// [`Error::FileTooLarge`]
    pub(crate) fn check_space(&self, more: u64, less: u64) -> Result<(), Error> {
        let sectors = self.inode.snapshot().sectors.saturating_add(more).saturating_sub(less);
        match more > less && sectors > self.fs.volume.most_sectors {
            true => Err(Error::FileTooLarge),
            false => Ok(()),
        }
    }

    /// Claims a cluster for each of `count` nodes, in few runs after the file's last extent. The
    /// claim has root's privilege, because writes into allocated space must succeed even if only
    /// reserved blocks are left for the nodes.
    pub(crate) fn claim_nodes(
        &self,
        form: Form,
        last: Option<Extent>,
        count: usize,
    ) -> Result<Vec<Claim>, Error> {
        let mut left = u32::try_from(count).map_err(|_| Error::FileTooLarge)?;
        let mut claims = Vec::new();
        let goal = last.map_or(self.goal(), |last| Block(last.block.0 + u64::from(last.len)));
        while left > 0 {
            let want = left.min(MOST_AT_ONCE) << self.fs.volume.clusters().bits();
            let request = Request::for_metadata(goal, want);
            let claim = self.fs.claim_blocks(&request)?.into_claim();
            claim.first_blocks().try_for_each(|block| check_block_reach(form, block))?;
            left -= claim.clusters().min(left);
            claims.push(claim);
        }
        Ok(claims)
    }

    /// Apply: changes the tree, the inode and the published map, and frees unused clusters. In the
    /// same handle, the caller allocates the claims of the data blocks that the change maps.
    pub(crate) fn apply_mapping(
        &self,
        handle: &mut Handle<'_>,
        change: MapChange<'_>,
        also: impl FnOnce(&mut InodeState),
    ) {
        let FileData { fs, inode } = *self;
        let MapChange { form, placed, node_claims, pinned, map, usage, holds, covered, .. } =
            change;
        let kind = MetaKind::node(form, inode.ino, inode.generation);
        let new: Vec<Block> = node_claims.iter().flat_map(Claim::first_blocks).collect();
        for claim in node_claims {
            fs.groups.allocate(handle, claim);
        }
        for (block, data) in placed.writes {
            match pinned.iter().find(|node| node.block == block) {
                Some(node) if !new.contains(&block) => node.replace(handle, data),
                _ => fs.meta.create(handle, block, kind, data),
            }
        }
        for block in &placed.freed {
            fs.meta.free(handle, *block);
            fs.free_run(handle, *block, 1);
        }
        if inode.file_type == FileType::Directory {
            for extent in &usage.unmapped {
                for n in 0..u64::from(extent.len) {
                    fs.meta.free(handle, Block(extent.block.0 + n));
                }
            }
        }
        for extent in &usage.freed {
            fs.free_run(handle, extent.block, extent.len);
        }
        drop(holds);
        let freed = total(&usage.freed) >> fs.volume.clusters().bits();
        let sectors =
            |clusters: u32, nodes: usize| fs.volume.sectors(u64::from(clusters) + nodes as u64);
        let gained = sectors(usage.added, new.len());
        let lost = sectors(freed, placed.freed.len());
        let tid = handle.tid();
        let is_plain = inode.file_type == FileType::Regular && form == Form::Extents;
        let part = match usage.freed.is_empty() && is_plain {
            true => FastPart::Mappings(covered),
            false => FastPart::None,
        };
        inode.change_part(handle, Concerns::Data, part, |state| {
            state.disk.block = placed.root;
            state.disk.sectors = (state.disk.sectors + gained).saturating_sub(lost);
            if usage.keeps_unmapped {
                state.unmapped_in = Some(tid);
            }
            also(state);
            // The map is published here, under the inode's state guard, for two reasons. A reader
            // that finds the new size must also find the mappings of the part that the file gained.
            // And an fsync after an overwrite of that part must find the transaction that mapped
            // it.
            inode.map.store(map, &fs.mount.totals);
        });
    }

    /// Returns the best position for a file's first block: in the inode's group, or in the group to
    /// which the file was moved because several callers claimed in the inode's group at the same
    /// time.
    pub(crate) fn goal(&self) -> Block {
        let FileData { fs, inode } = *self;
        let geometry = fs.volume.geometry();
        let own = || geometry.inode_place(inode.ino).map(|place| place.group);
        let group = inode.place.moved().or_else(own);
        group.and_then(|group| geometry.group_first_block(group)).unwrap_or_default()
    }

    /// Returns the best position for block `at` of the file: directly after the file's previous
    /// block, if that block is mapped. Otherwise, if `at` is behind the file's last extent, the
    /// position is as far behind that extent on the device as `at` is in the file; else it is
    /// [`FileData::goal`].
    pub(crate) fn goal_at(&self, map: &Map, at: u32) -> Block {
        if let Some(before) = at.checked_sub(1)
            && let Mapping::Mapped { block, .. } = map.find(FileBlock(before))
        {
            return Block(block.0 + 1);
        }
        match map.last() {
            Some(last) if last.start.0 < at => {
                Block(last.block.0 + u64::from(last.len) + u64::from(at - last.end()))
            }
            _ => self.goal(),
        }
    }
}

/// Fails if mappings of this form cannot refer to the blocks of `extents`.
pub(crate) fn check_reach(form: Form, extents: &[Extent]) -> Result<(), Error> {
    let last = |extent: &Extent| Block(extent.block.0 + u64::from(extent.len) - 1);
    extents.iter().try_for_each(|extent| check_block_reach(form, last(extent)))
}

/// Fails if mappings of this form cannot refer to `block`: a block map reaches 2^32 blocks. The
/// kernel's ext4 first looks for a block below 2^32, and fails only if there is none. Lanefs fails
/// at once.
fn check_block_reach(form: Form, block: Block) -> Result<(), Error> {
    match form {
        Form::BlockMap if block.0 >= BLOCKS_END => Err(Error::NoSpace),
        _ => Ok(()),
    }
}

// Frees mappings, in steps of one handle each.

/// The largest number of groups in which one handle frees blocks; it limits the handle's
/// credits.
const STEP: u32 = 16;
/// The largest number of directory blocks that one handle frees; each block is revoked.
const DIRECTORY_STEP: u32 = 1024;

impl FileData<'_> {
    /// Frees all mappings from file block `keep` on, in steps of one handle each. The caller holds
    /// the operation lock exclusively.
    pub(crate) fn free_from(&self, keep: u32) -> Result<(), Error> {
        self.unmap(keep..END)
    }

    /// Frees the mappings of `range`, in steps of one handle each. A step covers at most one leaf
    /// of the tree and at most [`STEP`] extents, whose blocks are in at most [`STEP`] groups. The
    /// caller holds the operation lock exclusively.
    pub(crate) fn unmap(&self, range: Range<u32>) -> Result<(), Error> {
        let mut at = range.start;
        while at < range.end {
            let end = match (self.step_end(at..range.end)?, self.form()) {
                (Some(end), _) => end,
                (None, Form::Extents) => return Ok(()),
                // A block map may have nodes that contain no mapping. This step frees these nodes.
                (None, Form::BlockMap) => range.end,
            };
            let change = self.plan_mapping(at..end, &[])?;
            at = change.covered.end.max(at + 1);
            self.publish(&mut Vec::new(), at, change, |_| ())?;
        }
        Ok(())
    }

    /// Returns the file block up to which one handle can free mappings of `range`, or `None` if
    /// there are no mappings.
    pub(crate) fn step_end(&self, range: Range<u32>) -> Result<Option<u32>, Error> {
        let most = match self.inode.file_type {
            FileType::Directory => DIRECTORY_STEP,
            _ => u32::MAX,
        };
        self.with_map(|map| {
            let (mut groups, mut blocks) = (0, 0);
            let mut found = false;
            for extent in map.iter_from(FileBlock(range.start)) {
                if extent.start.0 >= range.end {
                    break;
                }
                let from = extent.start.0.max(range.start);
                if extent.end() - from > most - blocks {
                    return Some((from + most - blocks).min(range.end));
                }
                blocks += extent.end() - from;
                groups += self.fs.volume.groups_of(extent.block, extent.len);
                if found && groups > STEP {
                    return Some(extent.start.0);
                }
                found = true;
            }
            found.then_some(range.end)
        })
    }
}
