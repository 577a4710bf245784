//! The first part of a replay: fields and mappings of inodes.

use super::blocks::Draft;
use super::node::Node;
use super::refusal::refused;
use crate::error::Error;
use crate::plan::extent::{Extent, State};
use crate::volume::own_files;
use lanefs_ondisk::features::Incompat;
use lanefs_ondisk::inode::InodeFlags;
use lanefs_ondisk::jbd2::{FastCause, FastChange};
use lanefs_ondisk::{Block, Corruption, FileBlock, FileType, Ino, xattr};
use std::collections::BTreeMap;
use std::ops::Range;

/// The inodes that fast commits change.
pub(super) struct Inodes<'a> {
    pub(super) draft: Draft<'a>,
    pub(super) nodes: BTreeMap<Ino, Node>,
    /// The inodes of the file system's own files, such as the journal. A fast commit that changes
    /// one of them is an error.
    own: Vec<Ino>,
}

impl<'a> Inodes<'a> {
    pub(super) fn new(draft: Draft<'a>) -> Inodes<'a> {
        let own = own_files(&draft.superblock);
        Inodes { draft, nodes: BTreeMap::new(), own }
    }

    /// Returns the inode `ino`, which is loaded first if necessary.
    pub(super) fn node(&mut self, ino: Ino) -> Result<&mut Node, Error> {
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
        self.nodes.get_mut(&ino).ok_or(Error::Stale)
    }

    /// Applies change `n` if it changes an inode's fields or mappings.
    pub(super) fn apply(&mut self, n: usize, change: &FastChange) -> Result<(), Error> {
        match change {
            FastChange::Inode { ino, record } => {
                self.node(*ino)?;
                let node = self.nodes.get_mut(ino).ok_or(Error::Stale)?;
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
        let node = self.nodes.get_mut(&ino).ok_or(Error::Stale)?;
        let mappings = node.mappings(&self.draft)?;
        self.draft.count_extents(with.len() as u64)?;
        mappings.now = mappings.now.replace(range.clone(), with);
        mappings.changed.push(range);
        Ok(())
    }

    /// Frees the blocks that the changed files have lost, and takes the blocks that these files now
    /// have.
    pub(super) fn update_bitmaps(&mut self) -> Result<(), Error> {
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
