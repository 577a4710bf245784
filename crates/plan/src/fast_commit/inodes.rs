//! The first part of a replay: fields and mappings of inodes.

use crate::error::Error;
use crate::error::Expected;
use crate::extent::{Extent, State, node_blocks, overlapping};
use crate::fast_commit::draft::Draft;
use crate::fast_commit::draft::refused;
use crate::fast_commit::node;
use crate::fast_commit::node::{DraftNodes, Node};
use crate::mapping::Form;
use crate::system::own_files;
use lanefs_ondisk::features::{Incompat, RoCompat};
use lanefs_ondisk::inode::{Cause, Inode, InodeFlags};
use lanefs_ondisk::jbd2::{FastCause, FastChange};
use lanefs_ondisk::orphan::{OrphanBlock, OrphanSeed};
use lanefs_ondisk::{Block, Corruption, FileBlock, FileType, Ino, xattr};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// The inodes that fast commits change.
pub(crate) struct Inodes<'a> {
    pub(crate) draft: Draft<'a>,
    pub(crate) nodes: BTreeMap<Ino, Node>,
    /// The inodes of the file system's own files, such as the journal. A fast commit that changes
    /// one of them is an error.
    own: Vec<Ino>,
}

impl<'a> Inodes<'a> {
    pub(crate) fn new(draft: Draft<'a>) -> Inodes<'a> {
        let own = own_files(&draft.superblock);
        Inodes { draft, nodes: BTreeMap::new(), own }
    }

    /// Returns the inode `ino`, which is loaded first if necessary.
    pub(crate) fn node(&mut self, ino: Ino) -> Result<&mut Node, Error> {
        if !self.nodes.contains_key(&ino) {
            let geometry = &self.draft.geometry;
            let is_file = geometry.has_inode(ino) && ino >= geometry.first_ino();
            if ino != Ino::ROOT && (!is_file || self.own.contains(&ino)) {
                let cause = FastCause::NoSuchInode;
                return Err(Corruption::FastCommit { ino, cause }.into());
            }
            self.draft.check_room(self.nodes.len(), geometry.inode_size())?;
            let node = Node::load(&mut self.draft, ino)?;
            self.nodes.insert(ino, node);
        }
        self.nodes.get_mut(&ino).expected()
    }

    /// Applies change `n` if it changes an inode's fields or mappings.
    pub(crate) fn apply(&mut self, n: usize, change: &FastChange) -> Result<(), Error> {
        match change {
            FastChange::Inode { ino, record } => {
                self.node(*ino)?;
                let node = self.nodes.get_mut(ino).expected()?;
                node.set_record(&self.draft, n, record)
            }
            FastChange::AddRange { ino, range, block, is_written } => {
                let state = if *is_written { State::Written } else { State::Unwritten };
                let len = range.end.saturating_sub(range.start);
                let extent = Extent { start: FileBlock(range.start), len, block: *block, state };
                self.draft.check_place(*ino, *block, len)?;
                self.map(*ino, range.clone(), &[extent])
            }
            FastChange::RemoveRange { ino, range } => self.map(*ino, range.clone(), &[]),
            _ => Ok(()),
        }
    }

    /// Replaces the mappings of a part of a file.
    fn map(&mut self, ino: Ino, range: Range<u32>, with: &[Extent]) -> Result<(), Error> {
        let node = self.node(ino)?;
        let inode = node.inode()?;
        match inode.file_type() {
            Some(FileType::Regular | FileType::Symlink) => {}
            Some(FileType::Directory) => return Err(refused("of a directory's blocks")),
            _ => return Err(node.fault(FastCause::NotAFile)),
        }
        if !inode.flags.contains(InodeFlags::EXTENTS) {
            return Err(refused("of blocks of a file without an extent tree"));
        }
        let node = self.nodes.get_mut(&ino).expected()?;
        let mappings = node.mappings(&self.draft)?;
        self.draft.count_extents(with.len() as u64)?;
        mappings.now = mappings.now.replace(range.clone(), with);
        mappings.changed.push(range);
        Ok(())
    }

    /// Frees the blocks that the changed files have lost, and takes the blocks that these files now
    /// have.
    pub(crate) fn update_bitmaps(&mut self) -> Result<(), Error> {
        let Inodes { draft, nodes, .. } = self;
        for node in nodes.values() {
            if node.replaces() {
                release(draft, node)?;
            }
            if let Some(mappings) = node.map.as_ref().filter(|map| !map.changed.is_empty()) {
                for extent in mappings.before.iter() {
                    draft.free(extent.block, extent.len)?;
                }
            }
        }
        for node in nodes.values() {
            if node.born.is_some() {
                draft.use_inode(node.ino)?;
            }
            if let Some(mappings) = node.map.as_ref().filter(|map| !map.changed.is_empty()) {
                for extent in mappings.now.iter() {
                    draft.take(extent.block, extent.len)?;
                }
            }
        }
        Ok(())
    }
}

/// Frees the blocks of an inode whose number another inode has now.
fn release(draft: &mut Draft<'_>, node: &Node) -> Result<(), Error> {
    let Some(before) = &node.before else { return Ok(()) };
    let (map, nodes) = super::node::load(draft, node.ino, before)?;
    for extent in map.iter() {
        draft.check_place(node.ino, extent.block, extent.len)?;
        draft.free(extent.block, extent.len)?;
    }
    for block in nodes {
        draft.check_place(node.ino, block, 1)?;
        draft.free(block, 1)?;
    }
    match before.file_acl {
        Some(block) => release_attributes(draft, node.ino, block),
        None => Ok(()),
    }
}

/// Drops a reference to an attribute block.
fn release_attributes(draft: &mut Draft<'_>, ino: Ino, place: Block) -> Result<(), Error> {
    let damaged = |cause| Corruption::Xattr { ino, block: Some(place), cause };
    if draft.superblock.features().incompat.contains(Incompat::EA_INODE) {
        return Err(refused("that use the number of an inode with attributes again (ea_inode)"));
    }
    draft.check_place(ino, place, 1)?;
    let mut bytes = draft.block(place)?.to_vec();
    if let Some(seed) = draft.checksums.seed() {
        xattr::verify(seed, place, &bytes).map_err(damaged)?;
    }
    let refcount = xattr::decode_block(&bytes).map_err(damaged)?.refcount;
    if refcount <= 1 {
        return draft.free(place, 1);
    }
    xattr::set_refcount(&mut bytes, refcount - 1);
    if let Some(seed) = draft.checksums.seed() {
        xattr::seal(seed, place, &mut bytes);
    }
    draft.put(place, bytes.into())
}

// The second part of a replay: extent trees get the new mappings.

impl Inodes<'_> {
    /// Updates the bitmaps and the extent trees of all changed files.
    pub(crate) fn update_trees(&mut self) -> Result<(), Error> {
        self.update_bitmaps()?;
        let Inodes { draft, nodes, .. } = self;
        for node in nodes.values_mut() {
            let Some(mappings) = &mut node.map else { continue };
            let changed = merged(std::mem::take(&mut mappings.changed));
            let now = mappings.now.clone();
            let is_changed = !changed.is_empty();
            for range in changed {
                node.change_tree(draft, range.clone(), &overlapping(&now, range))?;
            }
            if is_changed {
                node.count_sectors(draft)?;
            }
        }
        Ok(())
    }
}

impl Node {
    /// Replaces the mappings of `range` in the extent tree by `with`.
    pub(crate) fn change_tree(
        &mut self,
        draft: &mut Draft<'_>,
        mut range: Range<u32>,
        with: &[Extent],
    ) -> Result<(), Error> {
        let (ino, generation, limits) = (self.ino, self.inode()?.generation, self.limits(draft));
        let near = with.first().map_or(Block(0), |extent| extent.block);
        while !range.is_empty() {
            let part: Vec<Extent> = with.iter().filter_map(|extent| extent.clip(&range)).collect();
            let root = self.inode()?.block;
            let nodes = DraftNodes::new(draft, ino, generation, Form::Extents);
            let seed = nodes.seed;
            let plan = Form::Extents.plan_replace(&root, &nodes, &limits, range.clone(), &part)?;
            range.start = plan.covered().end;
            let places = (0..plan.nodes_needed())
                .map(|_| draft.allocate(near))
                .collect::<Result<Vec<Block>, Error>>()?;
            let placed = plan.place(&places);
            for (block, bytes) in placed.writes {
                draft.check_place(ino, block, 1)?;
                let mut bytes = bytes.to_vec();
                if let Some(seed) = seed {
                    lanefs_ondisk::extent::seal(&mut bytes, seed);
                }
                draft.put(block, bytes.into())?;
            }
            for block in placed.freed {
                draft.check_place(ino, block, 1)?;
                draft.free(block, 1)?;
            }
            self.inode_mut()?.block = placed.root;
        }
        Ok(())
    }

    /// Sets the inode's sector count to the sectors of all its blocks.
    pub(crate) fn count_sectors(&mut self, draft: &Draft<'_>) -> Result<(), Error> {
        let inode = self.inode()?;
        let nodes = DraftNodes::new(draft, self.ino, inode.generation, Form::Extents);
        let nodes = node_blocks(&inode.block, &nodes, &self.limits(draft))?.len() as u64;
        let attributes = u64::from(inode.file_acl.is_some());
        let blocks = self.map.as_ref().map_or(0, |map| map.now.blocks());
        let sectors = (draft.block_bytes() / 512) as u64;
        self.inode_mut()?.sectors = (blocks + nodes + attributes).saturating_mul(sectors);
        Ok(())
    }
}

/// Sorts ranges, and joins those that touch.
fn merged(mut ranges: Vec<Range<u32>>) -> Vec<Range<u32>> {
    ranges.sort_unstable_by_key(|range| range.start);
    let mut out: Vec<Range<u32>> = Vec::new();
    for range in ranges {
        match out.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => out.push(range),
        }
    }
    out
}

// Turns inodes without links into orphans, so that the mount deletes them like the orphans that a
// crash leaves.

/// The longest list of orphans that a replay changes.
const LONGEST: usize = 1 << 20;

impl Inodes<'_> {
    /// Adds the inodes that lost their last name to the list of orphans. Removes from the list all
    /// numbers whose inodes have links now. Returns the first inode in the list.
    pub(crate) fn update_orphans(&mut self) -> Result<Option<Ino>, Error> {
        let old = list(&self.draft)?;
        let in_list: BTreeSet<Ino> = old.iter().copied().collect();
        let in_file = entries(&self.draft)?;
        let is_new = |node: &&Node| {
            node.is_nameless() && !in_list.contains(&node.ino) && !in_file.contains(&node.ino)
        };
        let new: Vec<Ino> = self.nodes.values().filter(is_new).map(|node| node.ino).collect();
        let lives = |ino: &Ino| self.nodes.get(ino).is_some_and(Node::lives_again);
        let kept = old.iter().copied().filter(|ino| !lives(ino));
        let list: Vec<Ino> = new.into_iter().chain(kept).collect();
        let mut next: BTreeMap<Ino, u32> = BTreeMap::new();
        for (n, ino) in list.iter().enumerate() {
            next.insert(*ino, list.get(n + 1).map_or(0, |ino| ino.0));
            if old != list {
                self.node(*ino)?;
            }
        }
        for node in self.nodes.values_mut() {
            if let Some(inode) = &mut node.now {
                inode.dtime = next.get(&node.ino).copied().unwrap_or(0);
            }
        }
        Ok(list.first().copied())
    }
}

impl Node {
    fn is_nameless(&self) -> bool {
        self.now.as_ref().is_some_and(|inode| inode.links == 0)
    }

    /// Returns whether the inode with this number had no links and has links now. Either another
    /// inode got the number, or an unnamed file got a name.
    fn lives_again(&self) -> bool {
        self.before.as_ref().is_some_and(|inode| inode.links == 0) && !self.is_nameless()
    }
}

/// Returns the inodes of the list of orphans.
fn list(draft: &Draft<'_>) -> Result<Vec<Ino>, Error> {
    let mut list = Vec::new();
    let mut seen = BTreeSet::new();
    let mut next = draft.superblock.last_orphan();
    while let Some(ino) = next {
        if !draft.geometry.has_inode(ino) || !seen.insert(ino) {
            return Err(Corruption::Inode { ino, cause: Cause::OrphanLoop }.into());
        }
        if list.len() == LONGEST {
            return Err(refused("after the loss of more than a million names"));
        }
        list.push(ino);
        let record = draft.record(ino)?;
        let inode = Inode::decode(&record, ino, &draft.geometry, draft.checksums)?;
        next = Some(Ino(inode.dtime)).filter(|next| next.0 != 0);
    }
    Ok(list)
}

/// Returns the inodes in the orphan file.
fn entries(draft: &Draft<'_>) -> Result<BTreeSet<Ino>, Error> {
    let mut found = BTreeSet::new();
    let is_used = draft.superblock.features().ro_compat.contains(RoCompat::ORPHAN_PRESENT);
    let Some(file) = draft.superblock.orphan_file().filter(|_| is_used) else { return Ok(found) };
    let record = draft.record(file)?;
    let inode = Inode::decode(&record, file, &draft.geometry, draft.checksums)?;
    let seed = OrphanSeed::new(draft.checksums, file, inode.generation);
    for extent in node::load(draft, file, &inode)?.0.iter() {
        for n in 0..extent.len {
            let place = Block(extent.block.0 + u64::from(n));
            let block = FileBlock(extent.start.0 + n);
            let entries = OrphanBlock::decode(&draft.block(place)?, place, seed)
                .map_err(|cause| Corruption::OrphanFile { ino: file, block, cause })?;
            found.extend(entries.orphans().map(|(_, ino)| ino));
        }
    }
    Ok(found)
}
