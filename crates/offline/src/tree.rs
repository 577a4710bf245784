//! Builds the extent trees and block maps of files.

use crate::commit::seconds;
use crate::error::Error;
use crate::image::Image;
use lanefs_ext4::Expected;
use lanefs_ondisk::extent::{Extent, State};
use lanefs_ondisk::features::Incompat;
use lanefs_ondisk::inode::{Inode, InodeFlags};
use lanefs_ondisk::{Block, FileBlock, Ino, Time};

impl Image {
    /// Returns an inode for a file that consists of these blocks and has no name.
    pub(crate) fn file_inode(
        &mut self,
        ino: Ino,
        runs: &[(Block, u32)],
        blocks: u32,
    ) -> Result<Inode, Error> {
        let geometry = self.geometry();
        let mut extents = Vec::new();
        let mut at = 0;
        for (start, len) in runs {
            let (mut start, mut len) = (start.0, *len);
            while len > 0 {
                let part = len.min(State::Written.max_len());
                let block = Block(start);
                let from = FileBlock(at);
                extents.push(Extent { start: from, len: part, block, state: State::Written });
                (start, len, at) = (start + u64::from(part), len - part, at + part);
            }
        }
        let time = Time { secs: seconds() as i64, nanos: 0 };
        let blank = Inode::zeroed(self.superblock.extra_isize());
        let mut inode = Inode {
            mode: 0o100_600,
            links: 1,
            size: u64::from(blocks) << geometry.block_size().bits(),
            flags: match geometry.features().incompat.contains(Incompat::EXTENTS) {
                true => InodeFlags::EXTENTS,
                false => InodeFlags::empty(),
            },
            atime: time,
            ctime: time,
            mtime: time,
            crtime: blank.crtime.map(|_| time),
            ..blank
        };
        let nodes = self.build_mappings(ino, &mut inode, &extents)?;
        let sectors = geometry.block_size().bytes() as u64 / 512;
        inode.sectors = (u64::from(blocks) + nodes) * sectors;
        Ok(inode)
    }

    /// Gives an inode these mappings, and returns how many blocks were allocated for mapping nodes.
    pub(crate) fn build_mappings(
        &mut self,
        ino: Ino,
        inode: &mut Inode,
        extents: &[Extent],
    ) -> Result<u64, Error> {
        let form = self.form_of(inode).expected()?;
        let (limits, seed) = (self.limits_of(ino), self.node_seed(ino, inode, form));
        let mut nodes = 0;
        inode.block = form.empty_root();
        for extent in extents {
            let mut left = extent.start.0..extent.end();
            while let Some(part) = extent.clip(&left) {
                let reader = self.nodes(ino, seed);
                let plan =
                    form.plan_replace(&inode.block, &reader, &limits, left.clone(), &[part])?;
                left.start = plan.covered().end;
                let places = self.claim_nodes(extent.block, plan.nodes_needed())?;
                nodes += places.len() as u64;
                let placed = plan.place(&places);
                inode.block = placed.root;
                for (block, bytes) in placed.writes {
                    let mut bytes = bytes.to_vec();
                    if let Some(seed) = seed {
                        lanefs_ondisk::extent::seal(&mut bytes, seed);
                    }
                    self.blocks.insert(block, bytes);
                }
            }
        }
        Ok(nodes)
    }

    fn claim_nodes(&mut self, near: Block, needed: usize) -> Result<Vec<Block>, Error> {
        if needed == 0 {
            return Ok(Vec::new());
        }
        let runs = self.claim(near, needed as u32)?;
        let blocks =
            runs.iter().flat_map(|(start, len)| (0..u64::from(*len)).map(|n| Block(start.0 + n)));
        Ok(blocks.collect())
    }
}
