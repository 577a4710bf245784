//! Turns inodes without links into orphans, so that the mount deletes them like the orphans that a
//! crash leaves.

use super::blocks::Draft;
use super::inodes::Inodes;
use super::node::{self, Node};
use super::refusal::refused;
use crate::error::Error;
use lanefs_ondisk::features::RoCompat;
use lanefs_ondisk::inode::{Cause, Inode};
use lanefs_ondisk::orphan::{OrphanBlock, OrphanSeed};
use lanefs_ondisk::{Block, Corruption, FileBlock, Ino};
use std::collections::{BTreeMap, BTreeSet};

/// The longest list of orphans that a replay changes.
const LONGEST: usize = 1 << 20;

impl Inodes<'_> {
    /// Adds the inodes that lost their last name to the list of orphans. Removes from the list all
    /// numbers whose inodes have links now. Returns the first inode in the list.
    pub(super) fn update_orphans(&mut self) -> Result<Option<Ino>, Error> {
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
