//! Repairs the fields of inodes, and decides which inodes need a new mapping.

use super::inode_offsets::{
    ACL_HIGH, BLOCK, BLOCK_END, BLOCKS, BLOCKS_HIGH, DTIME, EXTRA, EXTRA_SIZE, FLAGS, FRAGMENT,
    GOOD_OLD_SIZE, LINKS, MODE, SIZE_HIGH, set_size,
};
use super::mender::{Mender, put16, put32};
use super::salvage::EXTENT_MAGIC;
use crate::attributes::inline_data;
use crate::bytes::{le16, le32};
use crate::fault::Fault;
use crate::groups::NOWHERE;
use crate::inodes::{BAD_BLOCKS, looks_like_directory, symlink::SHORTEST_IN_BLOCK};
use crate::mapping::Runs;
use crate::place::Place;
use crate::record::Record;
use crate::report::Finding;
use lanefs_ondisk::bitmap::Bitmap;
use lanefs_ondisk::extent::{END, Extent, State};
use lanefs_ondisk::features::{Compat, Incompat, RoCompat};
use lanefs_ondisk::inode::{Cause, InodeFlags};
use lanefs_ondisk::xattr::{self, Attribute, AttributeName};
use lanefs_ondisk::{FileType, Ino};
use std::collections::BTreeMap;

/// The offsets of the times, each with the offset of the field that holds its upper bits.
const TIMES: [(usize, usize); 4] = [(0x0c, 0x84), (0x10, 0x88), (0x08, 0x8c), (0x90, 0x94)];
pub const PERMISSIONS: u16 = 0o7777;

impl Mender<'_> {
    /// Mends inodes, one after another.
    pub fn mend_files(&mut self, found: &[Finding]) {
        let mut files: BTreeMap<Ino, Vec<&Finding>> = BTreeMap::new();
        let value = |finding: &&Finding| match (&finding.fault, finding.place) {
            (Fault::ValueInode { .. }, Place::Inode { ino }) => Some(ino),
            _ => None,
        };
        self.mend_values(found.iter().filter_map(|finding| value(&finding)));
        let found = found.iter().filter(|finding| value(finding).is_none());
        for finding in found {
            if let Some(ino) = finding.place.ino() {
                files.entry(ino).or_default().push(finding);
            }
        }
        for (ino, findings) in files {
            self.mend_file(ino, &findings);
        }
    }

    fn mend_file(&mut self, ino: Ino, findings: &[&Finding]) {
        let is_special = |f: &&Finding| matches!(f.fault, Fault::Special { .. });
        let is_count = |f: &&Finding| matches!(f.fault, Fault::Sectors { .. });
        if ino == Ino::RESIZE && self.has_resize() && !findings.iter().all(is_count) {
            return self.mend_resize();
        }
        let is_lost = |f: &&Finding| {
            matches!(f.fault, Fault::Size { last: None, .. } | Fault::WrongType { .. })
                || is_special(f)
        };
        if self.run.volume.superblock().orphan_file() == Some(ino) && findings.iter().any(is_lost) {
            return self.remove_orphan_file(ino);
        }
        if findings.iter().any(is_special) {
            return self.clear_inode(ino, "cleared");
        }
        let Some((mut bytes, before)) = self.read_inode(ino) else { return };
        let shortened = findings.iter().find(|finding| self.shorten_name(&mut bytes, finding));
        if let Some(finding) = shortened
            .or_else(|| findings.iter().find(|f| self.mend_basis(ino, &mut bytes, &f.fault)))
        {
            // All other faults of the inode may be consequences of this one.
            self.write_inode(ino, bytes);
            return self.act(Place::Inode { ino }, format!("corrected ({})", finding.fault));
        }
        // So they may be of damaged attributes.
        let mut has_attributes = false;
        for finding in findings {
            if let Place::Attributes { block, .. } = finding.place {
                self.mend_attributes(ino, &mut bytes, block, &finding.fault);
                has_attributes = true;
            }
        }
        if has_attributes {
            return self.write_inode(ino, bytes);
        }
        let (mut maps_anew, mut ends_at_size) = (false, false);
        for finding in findings {
            match self.is_behind_end(ino, &before, &finding.fault, findings) {
                true => (maps_anew, ends_at_size) = (true, true),
                false => maps_anew |= self.mend_fault(ino, &mut bytes, &finding.fault),
            }
        }
        let record = Record::decode(&bytes);
        if record.links == 0 && before.links != 0 {
            return self.write_inode(ino, bytes);
        }
        maps_anew &= record.maps_blocks() || ino == BAD_BLOCKS;
        let has_space = !maps_anew || self.map_anew(ino, &mut bytes, &record, ends_at_size);
        self.write_inode(ino, bytes);
        if !has_space {
            return;
        }
        let what =
            if maps_anew { "its blocks are mapped anew" } else { "its fields are corrected" };
        self.act(Place::Inode { ino }, format!("{what} ({})", names(findings)));
    }

    /// Returns whether the fault is blocks behind the end of a file whose mapping is damaged, and
    /// not its size: `i_blocks` is nearer to the number of blocks without them.
    fn is_behind_end(
        &self,
        ino: Ino,
        record: &Record,
        fault: &Fault,
        findings: &[&Finding],
    ) -> bool {
        let Fault::Size { size, last: Some(last) } = *fault else { return false };
        let block = self.run.volume.block_bytes() as u64;
        let counts = findings.iter().find_map(|finding| match finding.fault {
            Fault::Sectors { found, expected } => Some((found, expected)),
            _ => None,
        });
        let Some((found, expected)) = counts else { return false };
        if !record.ends_at_size() || u64::from(last.0).saturating_mul(block) < size {
            return false;
        }
        let end = size.div_ceil(block);
        let behind = |extent: &Extent| match extent.state {
            State::Written => {
                u64::from(extent.end()).saturating_sub(end.max(extent.start.0.into()))
            }
            State::Unwritten => 0,
        };
        let runs = Runs::of(self.run.volume, ino, record);
        let behind: u64 = runs.extents().iter().map(behind).sum();
        let unit = if record.flags.contains(InodeFlags::HUGE_FILE) { 1 } else { block / 512 };
        let without = expected.saturating_sub(behind.saturating_mul(unit));
        found.abs_diff(without) < found.abs_diff(expected)
    }

    /// Mends a fault of the fields by which the rest of the inode is read: its type, the form of
    /// its data, and the place of its attributes. Returns whether this is such a fault.
    fn mend_basis(&mut self, ino: Ino, bytes: &mut [u8], fault: &Fault) -> bool {
        let record = Record::decode(bytes);
        let both = InodeFlags::EXTENTS | InodeFlags::INLINE_DATA;
        match fault {
            Fault::Inode(Cause::Mode { .. }) | Fault::WrongType { .. } => {
                self.guess_mode(ino, bytes, &record);
            }
            Fault::Inode(Cause::ExtraSize { .. }) => set_extra_size(bytes),
            Fault::Flags { .. } if record.flags.contains(both) => {
                let is_tree = le16(&record.block, 0) == EXTENT_MAGIC
                    || !self.run.volume.incompat(Incompat::INLINE_DATA);
                let wrong = if is_tree { InodeFlags::INLINE_DATA } else { InodeFlags::EXTENTS };
                put32(bytes, FLAGS, (record.flags - wrong).bits());
            }
            Fault::Inode(Cause::NoInlineData) | Fault::Attributes(_)
                if record.flags.contains(InodeFlags::INLINE_DATA) =>
            {
                // Either the flag is wrong, or the size of the fields before the attributes.
                let flags = (record.flags - both) | InodeFlags::EXTENTS;
                let tree = Record { flags, ..record.clone() };
                let has_tree = self.has_extents() && le16(&record.block, 0) == EXTENT_MAGIC;
                let is_data = |one: &Attribute<'_>| one.name == AttributeName::inline_data();
                let area = bytes.get(GOOD_OLD_SIZE + usize::from(EXTRA)..).unwrap_or_default();
                let has_data = xattr::decode_inode(area).is_ok_and(|all| all.iter().any(is_data));
                if has_data && record.extra_isize != EXTRA {
                    set_extra_size(bytes);
                } else if !has_data
                    && has_tree
                    && !Runs::of(self.run.volume, ino, &tree).extents().is_empty()
                {
                    put32(bytes, FLAGS, flags.bits());
                } else {
                    return false;
                }
            }
            _ => return false,
        }
        true
    }

    /// Mends one fault. Returns whether the inode needs a new mapping.
    fn mend_fault(&mut self, ino: Ino, bytes: &mut [u8], fault: &Fault) -> bool {
        let record = Record::decode(bytes);
        match *fault {
            Fault::Inode(Cause::EncryptionContext { .. }) => {
                self.act(Place::Inode { ino }, "not encrypted any more: it cannot be decrypted");
                put32(bytes, FLAGS, (record.flags - InodeFlags::ENCRYPT).bits());
            }
            Fault::Inode(Cause::NoInlineData) => {
                // Without the attribute, the bytes of the block field may be something else than
                // data. So the file becomes empty, as after e2fsck.
                self.act(Place::Inode { ino }, "truncated: its inline data is not complete");
                put32(bytes, FLAGS, (record.flags - InodeFlags::INLINE_DATA).bits());
                if let Some(field) = bytes.get_mut(BLOCK..BLOCK_END) {
                    field.fill(0);
                }
                set_size(bytes, 0);
            }
            Fault::DeletedInUse { .. } => put32(bytes, DTIME, 0),
            Fault::Orphan { .. } => {
                let time = if record.links == 0 { self.time() } else { 0 };
                put32(bytes, DTIME, time);
            }
            Fault::NoDeletionTime => match self.is_marked_used(ino) {
                true => put16(bytes, LINKS, if record.is_directory() { 2 } else { 1 }),
                false => put32(bytes, DTIME, self.time()),
            },
            Fault::TimeRange => mend_times(bytes),
            Fault::NotZero { .. } => self.zero_fields(bytes, &record),
            Fault::Flags { flags } => {
                put32(bytes, FLAGS, (record.flags - InodeFlags::from_bits_retain(flags)).bits());
            }
            Fault::LinkTarget => {
                self.mend_link(ino, bytes, &record);
                return record.maps_blocks();
            }
            Fault::Sectors { expected, .. } => {
                put32(bytes, BLOCKS, expected as u32);
                if self.run.volume.ro_compat(RoCompat::HUGE_FILE) {
                    put16(bytes, BLOCKS_HIGH, (expected >> 32) as u16);
                }
            }
            Fault::Size { .. } if record.flags.contains(InodeFlags::INLINE_DATA) => {
                let rest = inline_data(self.run, &record, bytes).map_or(0, <[u8]>::len);
                set_size(bytes, (record.block.len() + rest) as u64);
            }
            Fault::Size { last, .. } => {
                let blocks = last.map_or(0, |last| u64::from(last.0) + 1);
                set_size(bytes, blocks << self.run.volume.geometry.block_size().bits());
            }
            Fault::Extent { .. } | Fault::WildBlock { .. } | Fault::TooFar { .. } => return true,
            Fault::UnwrittenDirectory { .. } => return true,
            _ => {}
        }
        false
    }

    /// Maps the valid part of a file anew; with `ends_at_size`, or if a node may be that of another
    /// file, no written extents behind its size. Returns false if there is no space for the nodes.
    fn map_anew(
        &mut self,
        ino: Ino,
        bytes: &mut [u8],
        record: &Record,
        ends_at_size: bool,
    ) -> bool {
        let extents = le16(&record.block, 0) == EXTENT_MAGIC;
        if extents && !record.flags.contains(InodeFlags::EXTENTS) && self.has_extents() {
            // The block field begins with the magic number of an extent node, so the inode has
            // extents.
            put32(bytes, FLAGS, (record.flags | InodeFlags::EXTENTS).bits());
        }
        let record = Record::decode(bytes);
        let mut salvaged = self.salvage(ino, &record);
        if record.file_type() == Some(FileType::Symlink) {
            salvaged.extents = salvaged.extents.iter().filter_map(|e| e.clip(&(0..1))).collect();
        }
        if record.is_directory() {
            salvaged.extents.iter_mut().for_each(|extent| extent.state = State::Written);
            let most = (2u64 << 30) >> self.run.volume.geometry.block_size().bits();
            if !self.run.volume.incompat(Incompat::LARGE_DIR) {
                let range = 0..u32::try_from(most).unwrap_or(u32::MAX);
                salvaged.extents = salvaged.extents.iter().filter_map(|e| e.clip(&range)).collect();
            }
        }
        if record.ends_at_size() && (ends_at_size || salvaged.is_doubtful) {
            let end = record.size().div_ceil(self.run.volume.block_bytes() as u64);
            let range = 0..u32::try_from(end).unwrap_or(END);
            let keep =
                |e: &Extent| if e.state == State::Unwritten { Some(*e) } else { e.clip(&range) };
            salvaged.extents = salvaged.extents.iter().filter_map(keep).collect();
        }
        self.rebuild(ino, bytes, salvaged)
    }

    pub fn has_extents(&self) -> bool {
        self.run.volume.incompat(Incompat::EXTENTS)
    }

    /// Chooses the type of an inode whose type is lost: a directory if it looks like one, else a
    /// regular file. Clears a reserved inode that is not used as a file, and a root that is not a
    /// directory.
    fn guess_mode(&mut self, ino: Ino, bytes: &mut [u8], record: &Record) {
        let is_hidden = self.run.volume.is_hidden(ino) && ino != BAD_BLOCKS;
        let named = [
            self.run.volume.superblock().orphan_file().map(|ino| ino.0),
            Some(self.run.volume.raw().s_journal_inum.get())
                .filter(|_| self.run.volume.compat(Compat::HAS_JOURNAL)),
        ];
        let is_file = named.contains(&Some(ino.0)) || self.run.volume.is_quota_file(ino);
        if is_hidden && !is_file {
            return self.clear_bytes(bytes);
        }
        let kind = match looks_like_directory(self.run, ino, record) {
            true => FileType::Directory,
            false => FileType::Regular,
        };
        if kind == FileType::Directory && self.run.volume.is_quota_file(ino) {
            // The inode is a directory and not a quota file, so the number in the superblock is
            // wrong.
            return self.forget_quotas(ino);
        }
        if ino == Ino::ROOT && kind != FileType::Directory {
            return self.clear_bytes(bytes);
        }
        put16(bytes, MODE, kind.mode_bits() | record.mode & PERMISSIONS);
    }

    fn zero_fields(&self, bytes: &mut [u8], record: &Record) {
        put32(bytes, FRAGMENT, 0);
        if !self.run.volume.incompat(Incompat::BIT64) {
            put16(bytes, ACL_HIGH, 0);
        }
        if !self.run.volume.ro_compat(RoCompat::HUGE_FILE) {
            put16(bytes, BLOCKS_HIGH, 0);
        }
        let sized = [FileType::Regular, FileType::Symlink, FileType::Directory];
        match record.file_type() {
            Some(FileType::Directory) if !self.run.volume.incompat(Incompat::LARGE_DIR) => {
                put32(bytes, SIZE_HIGH, 0);
            }
            Some(kind) if !sized.contains(&kind) => set_size(bytes, 0),
            _ => {}
        }
    }

    /// Sets the size of a symbolic link from its target, or deletes the link.
    fn mend_link(&mut self, ino: Ino, bytes: &mut [u8], record: &Record) {
        let frozen = InodeFlags::IMMUTABLE | InodeFlags::APPEND;
        let elsewhere = InodeFlags::EXTENTS | InodeFlags::INLINE_DATA | InodeFlags::ENCRYPT;
        let mut flags = record.flags - frozen;
        let end = record.block.iter().position(|byte| *byte == 0).map(|len| len as u64);
        let is_tree = le16(&record.block, 0) == EXTENT_MAGIC
            && record.flags & elsewhere == InodeFlags::EXTENTS;
        let block_bytes = self.run.volume.block_bytes() as u64;
        if flags & elsewhere == InodeFlags::EXTENTS && !is_tree && end == Some(record.size()) {
            // The target is in the block field.
            flags -= InodeFlags::EXTENTS;
        }
        put32(bytes, FLAGS, flags.bits());
        let record = Record::decode(bytes);
        // A symbolic link without the extents flag can have its target in a block only if the file
        // system has no extents.
        let in_block = !self.has_extents() && record.blocks_lo != 0;
        let in_field = !record.flags.intersects(elsewhere) && !in_block;
        let target = match in_field {
            true => Some(record.block.to_vec()),
            false if record.flags.intersects(InodeFlags::INLINE_DATA | InodeFlags::ENCRYPT) => None,
            false => Runs::of(self.run.volume, ino, &record)
                .block(lanefs_ondisk::FileBlock(0))
                .and_then(|block| self.read_block(block)),
        };
        let len = target.and_then(|target| target.iter().position(|byte| *byte == 0));
        let least = if in_field { 1 } else { SHORTEST_IN_BLOCK };
        match len.filter(|len| *len as u64 >= least) {
            Some(len) if record.size() != len as u64 || record.flags.intersects(frozen) => {
                set_size(bytes, len as u64);
            }
            Some(_) => {}
            None if is_tree && !(SHORTEST_IN_BLOCK..block_bytes).contains(&record.size()) => {
                // A link of this size has no blocks, so this is a file that lost its type.
                self.act(Place::Inode { ino }, "a regular file again: its size is not of a link");
                put16(bytes, MODE, FileType::Regular.mode_bits() | record.mode & PERMISSIONS);
            }
            None => {
                self.act(Place::Inode { ino }, "deleted: the target of the link is lost");
                put16(bytes, LINKS, 0);
                put32(bytes, DTIME, self.time());
            }
        }
    }

    /// Returns whether the inode bitmap is intact and has the inode's bit set.
    fn is_marked_used(&self, ino: Ino) -> bool {
        let (volume, geometry) = (self.run.volume, &self.run.volume.geometry);
        let Some(place) = geometry.inode_place(ino) else { return false };
        let Some(desc) = self.run.groups.get(place.group) else { return false };
        if desc.inode_bitmap == NOWHERE {
            return false;
        }
        let Some(bytes) = self.read_block(desc.inode_bitmap) else { return false };
        Bitmap::verify_inodes(&bytes, desc, geometry, volume.checksums).is_ok()
            && Bitmap::from_bytes(&bytes, geometry.inodes_per_group()).get(place.index)
    }

    /// Clears an inode, as if it had never been used.
    pub fn clear_inode(&mut self, ino: Ino, what: &str) {
        let Some((mut bytes, _)) = self.read_inode(ino) else { return };
        self.clear_bytes(&mut bytes);
        self.write_inode(ino, bytes);
        self.act(Place::Inode { ino }, what);
    }

    /// Sets the bytes of an inode to those of an inode that was never used.
    pub fn clear_bytes(&self, bytes: &mut [u8]) {
        bytes.fill(0);
        set_extra_size(bytes);
    }
}

/// Sets the size of the fields after the first 128 bytes to that of mke2fs.
fn set_extra_size(bytes: &mut [u8]) {
    if let Some(room) = bytes.len().checked_sub(GOOD_OLD_SIZE).filter(|room| *room > 0) {
        put16(bytes, EXTRA_SIZE, EXTRA.min((room & !3) as u16));
    }
}

fn mend_times(bytes: &mut [u8]) {
    for (seconds, extra) in TIMES {
        if le32(bytes, extra) & 3 == 3 && le32(bytes, seconds) >> 31 == 1 {
            put32(bytes, extra, le32(bytes, extra) & !3);
        }
    }
}

/// Joins the first few faults into one text.
fn names(findings: &[&Finding]) -> String {
    let mut texts: Vec<String> = findings.iter().map(|f| f.fault.to_string()).collect();
    texts.dedup();
    texts.truncate(3);
    texts.join("; ")
}
