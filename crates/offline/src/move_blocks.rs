//! Moves the contents of files out of the space at or beyond the new end of the file system, into
//! free blocks before this end.
//!
//! The copy is made in free blocks, to which nothing refers. The transaction that maps the copy
//! also frees the old blocks. Each transaction leaves a consistent file system, so the move may
//! stop after any of them.

use crate::error::Error;
use crate::image::Image;
use crate::quota::Quotas;
use lanefs_ondisk::extent::{Extent, State};
use lanefs_ondisk::inode::Inode;
use lanefs_ondisk::orphan::{OrphanBlock, OrphanSeed};
use lanefs_ondisk::{Block, Corruption, FileBlock, Ino, xattr};
use std::collections::BTreeMap;

/// The reserved inode of a boot loader, which may have blocks.
const BOOT_LOADER: Ino = Ino(5);
/// The number of blocks that are copied at once.
const PIECE: u64 = 256;

impl Image {
    /// Moves all blocks that belong to files and lie at or beyond block `end`, and changes the
    /// usage in `quotas`. The journal must lie before `end`.
    pub(crate) fn move_blocks(&mut self, end: u64, quotas: &mut Quotas) -> Result<(), Error> {
        // The quota files are moved first, because a file is copied from its blocks on the device.
        // After other files were moved, the quota files' blocks on the device would lack the
        // changes of usage that are still in memory only.
        let quota_files = self.superblock.quota_files();
        let mut files: Vec<Ino> = quota_files.into_iter().flatten().chain([BOOT_LOADER]).collect();
        files.extend(self.used_inodes()?.iter().filter(|ino| !quota_files.contains(&Some(**ino))));
        self.move_attributes(&files, end)?;
        for ino in files {
            self.move_blocks_of(ino, end, quotas)?;
            self.commit_if_large()?;
        }
        self.commit_if_changed()
    }

    /// Moves attribute blocks, and makes all inodes that share such a block refer to its new
    /// position.
    fn move_attributes(&mut self, files: &[Ino], end: u64) -> Result<(), Error> {
        let mut sharers: BTreeMap<Block, Vec<Ino>> = BTreeMap::new();
        for ino in files {
            if let Some(block) = self.inode(*ino)?.file_acl.filter(|block| block.0 >= end) {
                sharers.entry(block).or_default().push(*ino);
            }
        }
        for (old, inodes) in sharers {
            let new = self.claim_one()?;
            let mut bytes = self.block(old)?;
            if let Some(seed) = self.checksums().seed() {
                xattr::seal(seed, new, &mut bytes);
            }
            self.blocks.insert(new, bytes);
            for ino in inodes {
                let mut inode = self.inode(ino)?;
                inode.file_acl = Some(new);
                self.put_inode(ino, &inode)?;
            }
            self.release(old, 1)?;
            self.commit_if_large()?;
        }
        Ok(())
    }

    fn claim_one(&mut self) -> Result<Block, Error> {
        let runs = self.claim(Block(0), 1)?;
        runs.first().map(|(start, _)| *start).ok_or_else(|| lanefs_ext4::Error::NoSpace.into())
    }

    fn move_blocks_of(&mut self, ino: Ino, end: u64, quotas: &mut Quotas) -> Result<(), Error> {
        let mut inode = self.inode(ino)?;
        if self.form_of(&inode).is_none() {
            return Ok(());
        }
        let (map, nodes) = self.map(ino, &inode)?;
        let beyond = |extent: &Extent| extent.block.0 + u64::from(extent.len) > end;
        if !map.iter().any(|extent| beyond(&extent)) && nodes.iter().all(|node| node.0 < end) {
            return Ok(());
        }
        let mut extents = Vec::new();
        for extent in map.iter() {
            if beyond(&extent) {
                self.move_extent(ino, &inode, &extent, end, &mut extents)?;
            } else {
                extents.push(extent);
            }
        }
        for node in &nodes {
            self.release(*node, 1)?;
        }
        let sectors = self.block_bytes() as u64 / 512;
        let before = inode.sectors;
        let without = before.saturating_sub(nodes.len() as u64 * sectors);
        let nodes = self.build_mappings(ino, &mut inode, &extents)?;
        inode.sectors = without + nodes * sectors;
        self.put_inode(ino, &inode)?;
        self.count_space(quotas, (ino, &inode), before)
    }

    /// Copies those blocks of an extent that lie at or beyond `end`, and frees the old blocks. Adds
    /// the resulting extents to `extents`.
    fn move_extent(
        &mut self,
        ino: Ino,
        inode: &Inode,
        extent: &Extent,
        end: u64,
        extents: &mut Vec<Extent>,
    ) -> Result<(), Error> {
        let kept = end.saturating_sub(extent.block.0).min(extent.len.into()) as u32;
        if kept > 0 {
            extents.push(Extent { len: kept, ..*extent });
        }
        let mut from = extent.block.0 + u64::from(kept);
        let mut at = extent.start.0 + kept;
        let old = (Block(from), u64::from(extent.len - kept));
        for (start, len) in self.claim(Block(0), extent.len - kept)? {
            if self.superblock.orphan_file() == Some(ino) {
                self.copy_orphan_blocks(ino, inode, at, from, start, len)?;
            } else if extent.state == State::Written {
                self.copy_blocks(from, start.0, len.into())?;
            }
            extents.push(Extent { start: FileBlock(at), len, block: start, state: extent.state });
            at += len;
            from += u64::from(len);
        }
        self.release(old.0, old.1)
    }

    /// Copies blocks to free blocks. The copy is durable after the next flush.
    fn copy_blocks(&self, from: u64, to: u64, len: u64) -> Result<(), Error> {
        let bits = self.geometry().block_size().bits();
        let mut bytes = vec![0; (PIECE.min(len) << bits) as usize];
        let mut done = 0;
        while done < len {
            let part = PIECE.min(len - done);
            let piece = bytes.get_mut(..(part << bits) as usize).unwrap_or_default();
            self.device.read_at((from + done) << bits, piece)?;
            self.device.write_at((to + done) << bits, piece)?;
            done += part;
        }
        Ok(())
    }

    /// Copies blocks of the orphan file. The checksum of such a block includes the block's number,
    /// so it is recomputed.
    fn copy_orphan_blocks(
        &mut self,
        ino: Ino,
        inode: &Inode,
        at: u32,
        from: u64,
        to: Block,
        len: u32,
    ) -> Result<(), Error> {
        let seed = OrphanSeed::new(self.checksums(), ino, inode.generation);
        for n in 0..u64::from(len) {
            let (old, new) = (Block(from + n), Block(to.0 + n));
            let block = FileBlock(at + n as u32);
            let entries = OrphanBlock::decode(&self.block(old)?, old, seed)
                .map_err(|cause| Corruption::OrphanFile { ino, block, cause })?;
            self.blocks.insert(new, entries.encode(new, seed));
        }
        Ok(())
    }

    /// Commits if the changes need more than half of the log, because the other half is kept for
    /// the changes to one more file.
    pub(crate) fn commit_if_large(&mut self) -> Result<(), Error> {
        let room = self.journal_len()?.unwrap_or(0) / 2;
        let pending = self.blocks.len() + self.bitmaps.len() * 2 + self.inode_bitmaps.len() * 2;
        match pending as u64 > u64::from(room) {
            true => self.commit(),
            false => Ok(()),
        }
    }

    pub(crate) fn commit_if_changed(&mut self) -> Result<(), Error> {
        let same = self.blocks.is_empty()
            && self.bitmaps.is_empty()
            && self.inode_bitmaps.is_empty()
            && self.superblock.encode() == self.found.encode();
        if same { Ok(()) } else { self.commit() }
    }
}
