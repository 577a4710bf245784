//! Gives another inode number to each file whose inode lies beyond the new end of the file system.
//!
//! A new inode number changes all directory entries that name the file. If the file is a directory,
//! the directory's `.` entry and the `..` entries of its subdirectories change too. Checksums of
//! the file's blocks change too, since their seed includes the number. Each file is moved in one
//! transaction.

use crate::error::Error;
use crate::image::Image;
use lanefs_ext4::Expected;
use lanefs_ondisk::dirent;
use lanefs_ondisk::htree;
use lanefs_ondisk::inode::{Inode, InodeFlags};
use lanefs_ondisk::orphan::{OrphanBlock, OrphanSeed};
use lanefs_ondisk::{Block, Corruption, FileBlock, FileType, Group, Ino};
use std::collections::BTreeMap;

/// The location of a directory entry that refers to an inode.
#[derive(Debug, Clone, Copy)]
struct NamedAt {
    /// The inode number that the directory had before any inode was moved.
    dir: Ino,
    block: Block,
    offset: usize,
}

/// A block of a directory.
#[derive(Debug, Clone, Copy)]
struct DirBlock {
    /// The number of the block in the directory.
    number: FileBlock,
    place: Block,
}

impl Image {
    /// Moves all inodes of group `end` and of later groups to earlier groups.
    pub(crate) fn move_inodes(&mut self, end: Group) -> Result<(), Error> {
        let last = end.0.saturating_mul(self.geometry().inodes_per_group());
        let used = self.used_inodes()?;
        let leaving: Vec<Ino> = used.iter().copied().filter(|ino| ino.0 > last).collect();
        if leaving.is_empty() {
            return Ok(());
        }
        let mut names = self.names_of(&used, last)?;
        let mut moved = BTreeMap::new();
        for old in leaving {
            let new = self.claim_inode(end)?;
            moved.insert(old, new);
            self.move_inode(old, new)?;
            for named in names.remove(&old).unwrap_or_default() {
                let dir = moved.get(&named.dir).copied().unwrap_or(named.dir);
                self.rename(dir, named, new)?;
            }
            self.commit_if_large()?;
        }
        self.commit_if_changed()
    }

    /// Returns the directory entries that name inodes with numbers above `last`.
    fn names_of(&self, used: &[Ino], last: u32) -> Result<BTreeMap<Ino, Vec<NamedAt>>, Error> {
        let mut names: BTreeMap<Ino, Vec<NamedAt>> = BTreeMap::new();
        for &dir in used {
            let inode = self.inode(dir)?;
            if inode.file_type() != Some(FileType::Directory) {
                continue;
            }
            for block in self.dir_blocks(dir, &inode)? {
                for (ino, offset) in self.inodes_named(dir, &inode, block)? {
                    if ino.0 > last {
                        let named = NamedAt { dir, block: block.place, offset };
                        names.entry(ino).or_default().push(named);
                    }
                }
            }
        }
        Ok(names)
    }

    fn dir_blocks(&self, dir: Ino, inode: &Inode) -> Result<Vec<DirBlock>, Error> {
        let (map, _) = self.map(dir, inode)?;
        let blocks = map.iter().flat_map(|extent| {
            (0..extent.len).map(move |n| DirBlock {
                number: FileBlock(extent.start.0 + n),
                place: Block(extent.block.0 + u64::from(n)),
            })
        });
        Ok(blocks.collect())
    }

    /// Returns the kind of an index block; `None` for a block of entries.
    fn index_kind(&self, inode: &Inode, number: FileBlock, bytes: &[u8]) -> Option<htree::Kind> {
        if !inode.flags.contains(InodeFlags::INDEX) {
            return None;
        }
        let kind = htree::shape(&self.superblock.dir_format(inode.flags), bytes)?;
        // Only the first block is a root. If another block has the form of a root, that is a
        // coincidence, so the block holds entries.
        ((kind == htree::Kind::Root) == (number.0 == 0)).then_some(kind)
    }

    /// Returns the inodes that the entries of a directory block name, each with the offset of the
    /// entry.
    fn inodes_named(
        &self,
        dir: Ino,
        inode: &Inode,
        block: DirBlock,
    ) -> Result<Vec<(Ino, usize)>, Error> {
        let bytes = self.block(block.place)?;
        let format = self.superblock.dir_format(inode.flags);
        let damage = |cause| Corruption::Directory { ino: dir, block: block.number, cause };
        match self.index_kind(inode, block.number, &bytes) {
            Some(htree::Kind::Root) => {
                let (dot, dot_dot) = dirent::dots(&format, &bytes).map_err(damage)?;
                let both = [dot, dot_dot].into_iter();
                Ok(both.filter_map(|entry| Some((entry.ino?, entry.offset))).collect())
            }
            Some(htree::Kind::Node) => Ok(Vec::new()),
            None => {
                let mut named = Vec::new();
                for entry in dirent::entries(&format, &bytes).map_err(damage)? {
                    let entry = entry.map_err(damage)?;
                    named.extend(entry.ino.map(|ino| (ino, entry.offset)));
                }
                Ok(named)
            }
        }
    }

    /// Copies the inode to another number, and computes the checksums of its blocks for that
    /// number.
    fn move_inode(&mut self, old: Ino, new: Ino) -> Result<(), Error> {
        let inode = self.inode(old)?;
        let is_dir = inode.file_type() == Some(FileType::Directory);
        if let Some(form) = self.form_of(&inode) {
            let (_, nodes) = self.map(old, &inode)?;
            let dir_blocks = if is_dir { self.dir_blocks(old, &inode)? } else { Vec::new() };
            if let Some(seed) = self.node_seed(new, &inode, form) {
                for node in nodes {
                    let mut bytes = self.block(node)?;
                    lanefs_ondisk::extent::seal(&mut bytes, seed);
                    self.blocks.insert(node, bytes);
                }
            }
            for block in dir_blocks {
                let bytes = self.block(block.place)?;
                self.put_dir_block(new, &inode, block, bytes)?;
            }
        }
        if self.superblock.orphan_file() == Some(old) {
            self.seal_orphan_file(old, new, &inode)?;
        }
        self.rename_quota_file(old, new)?;
        let bytes = self.record(old)?;
        self.put_record(new, bytes)?;
        self.put_inode(new, &inode)?;
        let blank = vec![0; self.geometry().inode_size()];
        self.put_record(old, blank)?;
        self.release_inode(old)?;
        if is_dir {
            self.move_directory_count(old, new);
        }
        Ok(())
    }

    /// If the superblock refers to `old` as a quota file, makes it refer to `new`.
    fn rename_quota_file(&mut self, old: Ino, new: Ino) -> Result<(), Error> {
        if !self.superblock.quota_files().contains(&Some(old)) {
            return Ok(());
        }
        self.edit(|raw| {
            let fields =
                [&mut raw.s_usr_quota_inum, &mut raw.s_grp_quota_inum, &mut raw.s_prj_quota_inum];
            fields
                .into_iter()
                .filter(|field| field.get() == old.0)
                .for_each(|field| field.set(new.0));
        })
    }

    fn seal_orphan_file(&mut self, old: Ino, new: Ino, inode: &Inode) -> Result<(), Error> {
        let (map, _) = self.map(old, inode)?;
        let seed = OrphanSeed::new(self.checksums(), new, inode.generation);
        let empty = OrphanBlock::empty(self.geometry().block_size());
        for extent in map.iter() {
            for n in 0..u64::from(extent.len) {
                let place = Block(extent.block.0 + n);
                self.blocks.insert(place, empty.encode(place, seed));
            }
        }
        self.edit(|raw| raw.s_orphan_file_inum.set(new.0))
    }

    /// Makes an entry of `dir` refer to another inode.
    fn rename(&mut self, dir: Ino, named: NamedAt, new: Ino) -> Result<(), Error> {
        let inode = self.inode(dir)?;
        let file_type = self.inode(new)?.file_type().expected()?;
        let mut bytes = self.block(named.block)?;
        let blocks = self.dir_blocks(dir, &inode)?;
        let block = blocks.into_iter().find(|block| block.place == named.block);
        let block = block.expected()?;
        dirent::replace(
            &self.superblock.dir_format(inode.flags),
            &mut bytes,
            named.offset,
            new,
            file_type,
        )
        .map_err(|cause| Corruption::Directory { ino: dir, block: block.number, cause })?;
        self.put_dir_block(dir, &inode, block, bytes)
    }

    fn put_dir_block(
        &mut self,
        dir: Ino,
        inode: &Inode,
        block: DirBlock,
        mut bytes: Vec<u8>,
    ) -> Result<(), Error> {
        let format = self.superblock.dir_format(inode.flags);
        if let Some(seed) = self.checksums().seed() {
            let seed = seed.of_inode(dir, inode.generation);
            match self.index_kind(inode, block.number, &bytes) {
                Some(kind) => htree::seal(&format, kind, seed, &mut bytes).map_err(|cause| {
                    Corruption::DirectoryIndex { ino: dir, block: block.number, cause }
                })?,
                None => dirent::seal(&format, seed, &mut bytes),
            }
        }
        self.blocks.insert(block.place, bytes);
        Ok(())
    }
}
