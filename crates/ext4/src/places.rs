//! Which blocks belong to the file system itself: no inode may claim them.

use crate::Error;
use crate::fs::Fs;
use crate::meta::MetaKind;
use lanefs_ondisk::group_desc::GroupDesc;
use lanefs_ondisk::superblock::Geometry;
use lanefs_ondisk::{Block, Group, Ino};

/// Runs of blocks that hold the superblock, descriptors, bitmaps, inode tables and the journal.
pub(crate) struct SystemBlocks {
    /// Start and end, sorted, merged.
    runs: Vec<(u64, u64)>,
}

impl SystemBlocks {
    pub(crate) fn new(
        geometry: &Geometry,
        groups: &[GroupDesc],
        log: impl IntoIterator<Item = (Block, u32)>,
    ) -> SystemBlocks {
        let mut runs = Vec::with_capacity(groups.len() * 2);
        let mut add = |start: u64, len: u64| runs.push((start, start.saturating_add(len)));
        add(0, geometry.first_data_block().0);
        for (n, desc) in groups.iter().enumerate() {
            let group = Group(n as u32);
            add(desc.block_bitmap.0, 1);
            add(desc.inode_bitmap.0, 1);
            add(desc.inode_table.0, u64::from(geometry.itable_blocks()));
            if let Some(first) = geometry.group_first_block(group) {
                add(first.0, u64::from(geometry.group_overhead(group)));
            }
        }
        log.into_iter().for_each(|(start, len)| add(start.0, u64::from(len)));
        runs.retain(|(start, end)| start < end);
        runs.sort_unstable();
        let mut merged: Vec<(u64, u64)> = Vec::new();
        for (start, end) in runs {
            match merged.last_mut() {
                Some(last) if start <= last.1 => last.1 = last.1.max(end),
                _ => merged.push((start, end)),
            }
        }
        SystemBlocks { runs: merged }
    }

    /// How many there are.
    pub(crate) fn count(&self) -> u64 {
        self.runs.iter().map(|(start, end)| end - start).sum()
    }

    /// The first of `start..start + len` that is one of them.
    pub(crate) fn first_in(&self, start: Block, len: u32) -> Option<Block> {
        let end = start.0.saturating_add(u64::from(len));
        let after = self.runs.partition_point(|run| run.1 <= start.0);
        let run = self.runs.get(after)?;
        (run.0 < end).then(|| Block(run.0.max(start.0)))
    }
}

impl Fs {
    /// File data may lie here.
    pub(crate) fn check_data_place(&self, ino: Ino, start: Block, len: u32) -> Result<(), Error> {
        if !self.geometry.contains_run(start, u64::from(len)) {
            return Err(Error::OutsideFileSystem { block: start });
        }
        match self.system.first_in(start, len) {
            // The journal is a file too, read when it was opened.
            Some(block) if ino != Ino::JOURNAL => Err(Error::ClaimsMetadata { ino, block }),
            _ => Ok(()),
        }
    }

    /// A metadata block of an inode may lie here.
    pub(crate) fn check_metadata_place(&self, block: Block, kind: MetaKind) -> Result<(), Error> {
        let ino = match kind {
            MetaKind::Directory { ino, .. }
            | MetaKind::Extents { ino, .. }
            | MetaKind::Orphans { ino, .. } => ino,
            MetaKind::Xattr => Ino(0),
        };
        self.check_data_place(ino, block, 1)
    }
}
