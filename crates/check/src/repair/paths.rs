//! Repairs paths: corrects "..", makes `lost+found`, and gives names to inodes that have none. Also
//! sets the link counts, in a later stage.

use super::inode_offsets::{BLOCK, LINKS, set_size};
use super::mender::{Mender, put16, put32};
use super::salvage::{Salvaged, push_run};
use crate::fault::Fault;
use crate::mapping::Runs;
use crate::place::Place;
use crate::record::Record;
use crate::report::Finding;
use lanefs_ondisk::dirent::{self, Name, Packed};
use lanefs_ondisk::extent::{Extent, State};
use lanefs_ondisk::features::RoCompat;
use lanefs_ondisk::group_desc::GroupFlags;
use lanefs_ondisk::inode::InodeFlags;
use lanefs_ondisk::{Block, FileBlock, FileType, Group, Ino};
use std::collections::HashSet;

const LOST_AND_FOUND: &[u8] = b"lost+found";
/// The largest link count of a directory. With `dir_nlink`, a directory that would need more links
/// has a link count of 1.
const MOST_LINKS: u32 = 65_000;

impl Mender<'_> {
    /// Gives every directory and file a path from the root.
    pub fn mend_paths(&mut self, found: &[Finding]) {
        if found.iter().any(|finding| finding.fault == Fault::NoRoot) {
            return self.make_root();
        }
        for finding in found {
            if let (Fault::Parent { expected, .. }, Some(ino)) =
                (&finding.fault, finding.place.ino())
            {
                self.set_dot_dot(ino, *expected);
            }
        }
        let unconnected = |finding: &Finding| matches!(finding.fault, Fault::Unconnected);
        let directories: Vec<Ino> =
            found.iter().filter(|f| unconnected(f)).filter_map(|f| f.place.ino()).collect();
        let nameless =
            |ino: &Ino| self.parents.position(*ino).and_then(|n| self.parents.parent(n)).is_none();
        let mut lost: Vec<Ino> = directories.iter().copied().filter(nameless).collect();
        if lost.is_empty()
            && let Some(first) = directories.first()
        {
            return self.open_ring(*first);
        }
        let nameless = found.iter().filter(|f| matches!(f.fault, Fault::NoName));
        lost.extend(nameless.filter_map(|f| f.place.ino()));
        lost.sort_unstable();
        lost.dedup();
        let (values, lost): (Vec<Ino>, Vec<Ino>) =
            lost.into_iter().partition(|ino| self.run.states.get(*ino).has_values());
        for ino in values {
            self.clear_inode(ino, "deleted: no attribute refers to this value");
        }
        self.connect(&lost);
    }

    /// Breaks a ring of directories by removing the name of one of them.
    fn open_ring(&mut self, start: Ino) {
        let mut seen = HashSet::new();
        let mut at = start;
        while seen.insert(at) {
            match self.parents.position(at).and_then(|n| self.parents.parent(n)) {
                Some(parent) => at = parent,
                None => return,
            }
        }
        let Some(parent) = self.parents.position(at).and_then(|n| self.parents.parent(n)) else {
            return;
        };
        self.remove_name(parent, |_, ino| ino == at);
        self.act(Place::Inode { ino: at }, "taken out of a ring of directories");
    }

    /// Removes from a directory the first name that `is_it` accepts.
    pub fn remove_name(&mut self, directory: Ino, is_it: impl Fn(&[u8], Ino) -> bool) -> bool {
        let Some((mut bytes, record)) = self.read_inode(directory) else { return false };
        if record.flags.contains(InodeFlags::INLINE_DATA) {
            let Some(block) = self.move_to_block(directory, &mut bytes, &record) else {
                return false;
            };
            let Some(record) = self.read_inode(directory).map(|(_, record)| record) else {
                return false;
            };
            return self.remove_in(directory, &record, block, &is_it);
        }
        let blocks = self.directory_blocks(directory, &record);
        blocks.into_iter().any(|(at, block)| {
            let is_root = at.0 == 0 && record.flags.contains(InodeFlags::INDEX);
            !is_root && self.remove_in(directory, &record, block, &is_it)
        })
    }

    fn remove_in(
        &mut self,
        directory: Ino,
        record: &Record,
        block: Block,
        is_it: &impl Fn(&[u8], Ino) -> bool,
    ) -> bool {
        let format = self.run.volume.superblock().dir_format(record.flags);
        let Some(mut bytes) = self.read_block(block) else { return false };
        let found = dirent::entries(&format, &bytes).ok().and_then(|entries| {
            let mut entries = entries.filter_map(Result::ok);
            let found = |entry: &dirent::Entry<'_>| {
                !entry.is_dot() && entry.ino.is_some_and(|ino| is_it(entry.name, ino))
            };
            entries.find(found).map(|entry| entry.offset)
        });
        let Some(offset) = found else { return false };
        if dirent::remove(&format, &mut bytes, 0, offset).is_err() {
            return false;
        }
        self.write_leaf(directory, record, block, bytes);
        true
    }

    fn set_dot_dot(&mut self, ino: Ino, parent: Ino) {
        let Some((mut bytes, record)) = self.read_inode(ino) else { return };
        self.act(Place::Inode { ino }, format!("\"..\" leads to {parent}"));
        if record.flags.contains(InodeFlags::INLINE_DATA) {
            put32(&mut bytes, BLOCK, parent.0);
            return self.write_inode(ino, bytes);
        }
        let Some(block) = Runs::of(self.run.volume, ino, &record).block(FileBlock(0)) else {
            return;
        };
        let Some(mut first) = self.read_block(block) else { return };
        let format = self.run.volume.dir_format();
        let Ok((_, dot_dot)) = dirent::dots(&format, &first) else { return };
        let at = dot_dot.offset;
        put32(&mut first, at, parent.0);
        if record.flags.contains(InodeFlags::INDEX) {
            if let Some(seed) = self.seed(ino, &record) {
                let kind = lanefs_ondisk::htree::Kind::Root;
                let _ = lanefs_ondisk::htree::seal(&format, kind, seed, &mut first);
            }
            self.write_block(block, &first);
            return;
        }
        self.write_leaf(ino, &record, block, first);
    }

    /// Gives inodes names in `lost+found`.
    fn connect(&mut self, lost: &[Ino]) {
        if lost.is_empty() {
            return;
        }
        let Some(home) = self.lost_and_found() else { return };
        for ino in lost {
            let name = format!("#{}", ino.0);
            if *ino != home && self.add_name(home, name.as_bytes(), *ino) {
                if self.run.states.get(*ino).file_type() == Some(FileType::Directory) {
                    self.set_dot_dot(*ino, home);
                }
                self.act(Place::Inode { ino: *ino }, format!("connected to lost+found/{name}"));
            }
        }
    }

    /// Finds `lost+found`, or makes it if it is missing.
    fn lost_and_found(&mut self) -> Option<Ino> {
        let (bytes, record) = self.read_inode(Ino::ROOT)?;
        let wanted = Name::new(LOST_AND_FOUND).ok()?;
        let mut named = None;
        for (_, block) in self.directory_blocks(Ino::ROOT, &record) {
            let bytes = self.read_block(block)?;
            let found = dirent::find(&self.run.volume.dir_format(), &bytes, wanted);
            named = named.or(found.ok().flatten().and_then(|entry| entry.ino));
        }
        if record.flags.contains(InodeFlags::INLINE_DATA) {
            named = crate::directories::inline_names(self.run, &record, &bytes)
                .into_iter()
                .find(|(name, _)| name == LOST_AND_FOUND)
                .map(|(_, ino)| ino);
        }
        if let Some(ino) = named {
            let found = self.read_inode(ino).filter(|(_, record)| record.is_directory());
            if found.is_some_and(|(_, record)| !record.flags.contains(InodeFlags::ENCRYPT)) {
                return Some(ino);
            }
            // The name `lost+found` belongs to a file that is not a directory, or to a directory
            // that takes only encrypted files. The name is removed here, and the next round gives
            // the file another name.
            self.remove_name(Ino::ROOT, |name, _| name == LOST_AND_FOUND);
            return None;
        }
        let ino = self.new_inode()?;
        self.new_directory(ino, Ino::ROOT)?;
        self.act(Place::Inode { ino }, "made as lost+found");
        self.add_name_of(Ino::ROOT, LOST_AND_FOUND, ino, FileType::Directory).then_some(ino)
    }

    fn make_root(&mut self) {
        // The inode of the root directory may be intact although the descriptor states that this
        // part of the inode table was never used.
        let Some(mut desc) = self.descriptor(Group(0)) else { return };
        if desc.flags.contains(GroupFlags::INODE_UNINIT) || desc.itable_unused > 0 {
            desc.flags -= GroupFlags::INODE_UNINIT;
            desc.itable_unused = 0;
            self.write_descriptor(Group(0), &desc);
            let what = "all of its inodes count as used";
            return self.act(Place::Descriptor { group: Group(0) }, what);
        }
        if self.new_directory(Ino::ROOT, Ino::ROOT).is_some() {
            self.act(Place::Inode { ino: Ino::ROOT }, "made: the root directory was lost");
        }
    }

    /// Takes a free inode.
    fn new_inode(&mut self) -> Option<Ino> {
        let geometry = self.run.volume.geometry;
        for group in (0..geometry.group_count()).map(Group) {
            let Some(mut desc) = self.descriptor(group) else { continue };
            for index in 0..geometry.inodes_per_group() {
                let Some(ino) = geometry.ino_at(group, index) else { continue };
                let is_free = !self.run.states.get(ino).is_used() && ino >= geometry.first_ino();
                if !is_free || self.run.volume.is_hidden(ino) || self.fast.uses_inode(ino) {
                    continue;
                }
                // The inodes up to the new one are zeroed if they were never initialised.
                let end = geometry.inodes_per_group().saturating_sub(desc.itable_unused);
                let is_uninit = desc.flags.contains(GroupFlags::INODE_UNINIT);
                let used = if is_uninit { 0 } else { end };
                for fresh in (used..=index).filter_map(|n| geometry.ino_at(group, n)) {
                    self.write_zero_inode(fresh);
                }
                desc.flags -= GroupFlags::INODE_UNINIT;
                let left = geometry.inodes_per_group().saturating_sub(index + 1);
                let unused = if is_uninit { left } else { desc.itable_unused.min(left) };
                desc.itable_unused = unused;
                self.write_descriptor(group, &desc);
                return Some(ino);
            }
        }
        None
    }

    fn write_zero_inode(&mut self, ino: Ino) {
        if let Some(at) = self.run.groups.inode_at(self.run.volume, ino) {
            self.write(at, &vec![0; self.run.volume.geometry.inode_size()]);
        }
    }

    /// Writes an empty directory.
    fn new_directory(&mut self, ino: Ino, parent: Ino) -> Option<()> {
        const MODE: u16 = 0o040_700;
        let block = self.allocate()?;
        let geometry = self.run.volume.geometry;
        let mut bytes = vec![0; geometry.inode_size()];
        put16(&mut bytes, 0, MODE);
        put16(&mut bytes, LINKS, 2);
        for time in [0x08, 0x0c, 0x10] {
            put32(&mut bytes, time, self.time());
        }
        if bytes.len() > 128 {
            put16(&mut bytes, 0x80, 32);
        }
        if self.has_extents() {
            put32(&mut bytes, super::inode_offsets::FLAGS, InodeFlags::EXTENTS.bits());
        }
        let unit = (geometry.block_size().bytes() as u32 / 512) << geometry.cluster_bits();
        put32(&mut bytes, super::inode_offsets::BLOCKS, unit);
        set_size(&mut bytes, geometry.block_size().bytes() as u64);
        let extent = Extent { start: FileBlock(0), len: 1, block, state: State::Written };
        let salvaged = Salvaged { extents: vec![extent], ..Salvaged::default() };
        self.rebuild(ino, &mut bytes, salvaged).then_some(())?;
        let record = Record::decode(&bytes);
        let first = dirent::new_directory(&self.run.volume.dir_format(), ino, parent);
        self.write_leaf(ino, &record, block, first);
        self.write_inode(ino, bytes);
        Some(())
    }

    fn add_name(&mut self, directory: Ino, name: &[u8], target: Ino) -> bool {
        let kind = self.run.states.get(target).file_type();
        kind.is_some_and(|kind| self.add_name_of(directory, name, target, kind))
    }

    /// Adds a name to a directory. The directory loses its index, and gets one more block if it is
    /// full.
    fn add_name_of(&mut self, directory: Ino, name: &[u8], ino: Ino, kind: FileType) -> bool {
        let Some((mut bytes, mut record)) = self.read_inode(directory) else { return false };
        let Ok(name) = Name::new(name) else { return false };
        if record.flags.contains(InodeFlags::INLINE_DATA) {
            if self.move_to_block(directory, &mut bytes, &record).is_none() {
                return false;
            }
        } else if record.flags.contains(InodeFlags::INDEX) {
            self.drop_index(directory, bytes.clone(), &record, &[]);
        }
        let Some(again) = self.read_inode(directory) else { return false };
        (bytes, record) = again;
        let format = self.run.volume.dir_format();
        let new = Packed { ino, file_type: Some(kind), name };
        let blocks = self.directory_blocks(directory, &record);
        for (_, block) in blocks.iter().rev() {
            let Some(mut leaf) = self.read_block(*block) else { continue };
            if let Ok(Some(_)) = dirent::insert(&format, &mut leaf, &new) {
                self.write_leaf(directory, &record, *block, leaf);
                return true;
            }
        }
        let Some(block) = self.allocate() else { return false };
        let Some(leaf) = dirent::pack(&format, &[new]) else { return false };
        self.write_leaf(directory, &record, block, leaf);
        let mut salvaged = self.salvage(directory, &record);
        let start = FileBlock(blocks.len() as u32);
        salvaged.extents.retain(|extent| extent.end() <= start.0);
        push_run(&mut salvaged.extents, Extent { start, len: 1, block, state: State::Written });
        if !self.rebuild(directory, &mut bytes, salvaged) {
            return false;
        }
        let bits = self.run.volume.geometry.block_size().bits();
        set_size(&mut bytes, (blocks.len() as u64 + 1) << bits);
        self.write_inode(directory, bytes);
        true
    }

    /// Moves a directory out of its inode into a block. Returns the block.
    fn move_to_block(&mut self, ino: Ino, bytes: &mut [u8], record: &Record) -> Option<Block> {
        let names = crate::directories::inline_names(self.run, record, bytes);
        let block = self.allocate()?;
        let format = self.run.volume.dir_format();
        let parent = Ino(crate::bytes::le32(&record.block, 0));
        let mut leaf = dirent::new_directory(&format, ino, parent);
        for (name, target) in &names {
            let file_type = self.run.states.get(*target).file_type();
            let name = Name::new(name).ok()?;
            dirent::insert(&format, &mut leaf, &Packed { ino: *target, file_type, name }).ok()?;
        }
        self.write_leaf(ino, record, block, leaf);
        let mut flags = record.flags - InodeFlags::INLINE_DATA;
        if self.has_extents() {
            flags |= InodeFlags::EXTENTS;
        }
        put32(bytes, super::inode_offsets::FLAGS, flags.bits());
        self.set_inline_data(bytes, record, None);
        let extent = Extent { start: FileBlock(0), len: 1, block, state: State::Written };
        let salvaged = Salvaged { extents: vec![extent], ..Salvaged::default() };
        self.rebuild(ino, bytes, salvaged).then_some(())?;
        set_size(bytes, self.run.volume.block_bytes() as u64);
        self.write_inode(ino, bytes.to_vec());
        self.act(Place::Inode { ino }, "directory: moved out of the inode into a block");
        Some(block)
    }

    /// Sets link counts.
    pub fn mend_links(&mut self, found: &[Finding]) {
        for finding in found {
            let (Fault::Links { expected, .. }, Some(ino)) = (&finding.fault, finding.place.ino())
            else {
                continue;
            };
            let Some((mut bytes, record)) = self.read_inode(ino) else { continue };
            let many = record.is_directory() && self.run.volume.ro_compat(RoCompat::DIR_NLINK);
            let links = if many && *expected > MOST_LINKS { 1 } else { *expected };
            put16(&mut bytes, LINKS, u16::try_from(links).unwrap_or(u16::MAX));
            self.write_inode(ino, bytes);
            self.act(Place::Inode { ino }, format!("link count set to {links}"));
        }
    }
}
