//! Builds the extent trees of files.

use crate::commit::seconds;
use crate::error::Error;
use crate::image::Image;
use lanefs_ext4::extent::{self, Limits, plan_replace};
use lanefs_ondisk::extent::{Extent, State};
use lanefs_ondisk::inode::{Inode, InodeFlags};
use lanefs_ondisk::{Block, FileBlock, Ino, Time};

impl Image {
    /// Returns the inode of a file without a name that has these blocks.
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
            flags: InodeFlags::EXTENTS,
            atime: time,
            ctime: time,
            mtime: time,
            crtime: blank.crtime.map(|_| time),
            ..blank
        };
        let nodes = self.build_tree(ino, &mut inode, &extents)?;
        let sectors = geometry.block_size().bytes() as u64 / 512;
        inode.sectors = (u64::from(blocks) + nodes) * sectors;
        Ok(inode)
    }

    /// Gives an inode these extents, and returns how many blocks its tree takes.
    pub(crate) fn build_tree(
        &mut self,
        ino: Ino,
        inode: &mut Inode,
        extents: &[Extent],
    ) -> Result<u64, Error> {
        let geometry = self.geometry();
        let space = geometry.first_data_block().0..geometry.block_count();
        let limits = Limits::new(ino, geometry.block_size(), space);
        let seed = self.checksums().seed().map(|seed| seed.of_inode(ino, inode.generation));
        let mut nodes = 0;
        inode.block = extent::empty_root();
        for extent in extents {
            let range = extent.start.0..extent.end();
            let reader = self.nodes(ino, seed);
            let plan = plan_replace(&inode.block, &reader, &limits, range, &[*extent])?;
            let places = match plan.nodes_needed() {
                0 => Vec::new(),
                needed => {
                    let runs = self.claim(extent.block, needed as u32)?;
                    runs.iter()
                        .flat_map(|(start, len)| (0..u64::from(*len)).map(|n| Block(start.0 + n)))
                        .collect()
                }
            };
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
        Ok(nodes)
    }
}
