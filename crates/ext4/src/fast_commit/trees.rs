//! The second part of a replay: extent trees get the new mappings.

use super::blocks::Draft;
use super::inodes::Inodes;
use super::node::{DraftNodes, Node};
use crate::error::Error;
use crate::plan::extent::{Extent, node_blocks, overlapping};
use crate::plan::mapping::Form;
use lanefs_ondisk::Block;
use std::ops::Range;

impl Inodes<'_> {
    /// Updates the bitmaps and the extent trees of all changed files.
    pub(super) fn update_trees(&mut self) -> Result<(), Error> {
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
    pub(super) fn change_tree(
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
    pub(super) fn count_sectors(&mut self, draft: &Draft<'_>) -> Result<(), Error> {
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
