//! Repairs directories: a damaged block is rewritten with its valid entries.

use super::inode_offsets::{BLOCK, FLAGS, MODE, set_size};
use super::inodes::PERMISSIONS;
use super::mender::{Mender, put16, put32};
use super::salvage::{Salvaged, push_run};
use crate::attributes;
use crate::bytes::{le16, le32, part};
use crate::fault::{Fault, TargetFault};
use crate::inodes::looks_like_directory;
use crate::mapping::Runs;
use crate::place::Place;
use crate::record::Record;
use crate::report::Finding;
use lanefs_ondisk::casefold::Folding;
use lanefs_ondisk::dirent::{self, HEADER, MIN_RECORD, Name, NameForm, Packed};
use lanefs_ondisk::extent::{Extent, State};
use lanefs_ondisk::group_desc::GroupFlags;
use lanefs_ondisk::inode::{self, InodeFlags};
use lanefs_ondisk::{Block, FileBlock, FileType, Ino};
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashSet};

/// The longest name of an entry.
const LONGEST: usize = 255;
/// The first number that is never tried twice. Smaller numbers are tried for each name.
const ALWAYS_NEW: usize = 10;

/// A name that is kept.
#[derive(Debug, Clone)]
pub struct Kept {
    offset: usize,
    pub ino: Ino,
    pub name: Vec<u8>,
    is_renamed: bool,
}

impl Kept {
    /// Returns the form of the name that is equal for equal names.
    fn form(&self, folding: Folding) -> Vec<u8> {
        folding.form(&self.name).into_owned()
    }
}

impl Mender<'_> {
    /// Mends directories, one after another.
    pub fn mend_names(&mut self, found: &[Finding]) {
        if self.extend_tables(found)
            || self.restore_directories(found)
            || self.drop_first_names(found)
        {
            return;
        }
        let mut directories: BTreeMap<Ino, Vec<Finding>> = BTreeMap::new();
        for finding in found {
            if let Some(ino) = finding.place.ino() {
                directories.entry(ino).or_default().push(finding.clone());
            }
        }
        for (ino, found) in directories {
            self.mend_directory(ino, &found);
        }
    }

    /// Removes the first names of directories whose ".." leads to the second name. Returns whether
    /// any name was removed.
    fn drop_first_names(&mut self, found: &[Finding]) -> bool {
        let mut dropped = false;
        for finding in found {
            let Fault::SecondName { target } = finding.fault else { continue };
            let Some(second) = finding.place.ino() else { continue };
            let n = self.parents.position(target);
            let n = n.filter(|n| self.parents.dot_dot(*n) == Some(second));
            let first = n.and_then(|n| self.parents.parent(n)).filter(|first| *first != second);
            if !self.is_below(second, target)
                && first.is_some_and(|first| self.remove_name(first, |_, ino| ino == target))
            {
                let what = "of its two names, keeps the one to which its \"..\" leads";
                self.act(Place::Inode { ino: target }, what);
                dropped = true;
            }
        }
        dropped
    }

    /// Returns whether a directory may be `other`, or below it: no chain of parents leads to the
    /// root without `other`.
    fn is_below(&self, directory: Ino, other: Ino) -> bool {
        let mut at = directory;
        for _ in self.parents.inos() {
            match self.parents.position(at).and_then(|n| self.parents.parent(n)) {
                _ if at == Ino::ROOT => return false,
                Some(parent) if at != other => at = parent,
                _ => break,
            }
        }
        true
    }

    /// Extends the initialised part of an inode table if a name or the superblock refers to a valid
    /// inode beyond that part, because in this case the descriptor is wrong.
    pub fn extend_tables(&mut self, found: &[Finding]) -> bool {
        let mut extended = false;
        let geometry = self.run.volume.geometry;
        for finding in found {
            let Fault::BadTarget { target, why: TargetFault::Uninitialised } = finding.fault else {
                continue;
            };
            let (ino, checksums) = (Ino(target), self.run.volume.checksums);
            let Some((bytes, record)) = self.read_inode(ino) else { continue };
            let is_valid = inode::verify(&bytes, ino, checksums).is_ok()
                && record.links > 0
                && record.file_type().is_some();
            let Some(place) = geometry.inode_place(ino).filter(|_| is_valid) else { continue };
            let Some(mut desc) = self.descriptor(place.group) else { continue };
            let unused = geometry.inodes_per_group().saturating_sub(place.index + 1);
            desc.flags -= GroupFlags::INODE_UNINIT;
            desc.itable_unused = desc.itable_unused.min(unused);
            self.write_descriptor(place.group, &desc);
            self.act(Place::Descriptor { group: place.group }, "more of its inodes are in use");
            extended = true;
        }
        extended && self.changed
    }

    /// Gives inodes the type of a directory again if a name says so, and their content agrees.
    fn restore_directories(&mut self, found: &[Finding]) -> bool {
        let mut restored = false;
        let wrong = FileType::Directory.dirent_byte();
        for finding in found.iter().filter(
            |finding| matches!(finding.fault, Fault::EntryType { found, .. } if found == wrong),
        ) {
            let Place::Entry { ino, block, offset } = finding.place else { continue };
            let Some((_, record)) = self.read_inode(ino) else { continue };
            let block = Runs::of(self.run.volume, ino, &record).block(block);
            let entry = block.and_then(|block| self.read_block(block));
            let target = Ino(entry.map_or(0, |entry| le32(&entry, offset)));
            let Some((mut bytes, record)) = self.read_inode(target) else { continue };
            if looks_like_directory(self.run, target, &record) {
                put16(
                    &mut bytes,
                    MODE,
                    FileType::Directory.mode_bits() | record.mode & PERMISSIONS,
                );
                self.write_inode(target, bytes);
                self.act(Place::Inode { ino: target }, "a directory again, as its name says");
                restored = true;
            }
        }
        restored && self.changed
    }

    fn mend_directory(&mut self, ino: Ino, found: &[Finding]) {
        let Some((bytes, record)) = self.read_inode(ino) else { return };
        if record.flags.contains(InodeFlags::INLINE_DATA) {
            return self.mend_inline(ino, bytes, &record, found);
        }
        let blocks = self.directory_blocks(ino, &record);
        let is_hole = |finding: &Finding| {
            matches!(finding.fault, Fault::Dirent(dirent::Cause::Hole)) || blocks.is_empty()
        };
        if found.iter().any(is_hole) {
            return self.close_holes(ino, bytes, blocks);
        }
        let is_indexed = record.flags.contains(InodeFlags::INDEX);
        let hits_index = |finding: &Finding| match finding.place {
            Place::Index { .. } => true,
            Place::Directory { block, .. } | Place::Entry { block, .. } if block.0 == 0 => true,
            _ => matches!(finding.fault, Fault::Index(_) | Fault::NotInIndex),
        };
        if is_indexed && found.iter().any(hits_index) {
            self.drop_index(ino, bytes, &record, found);
        } else {
            self.mend_blocks(ino, &record, found, false);
        }
    }

    /// Returns the blocks of a directory, up to the directory's size.
    pub fn directory_blocks(&self, ino: Ino, record: &Record) -> Vec<(FileBlock, Block)> {
        let size = record.size() >> self.run.volume.geometry.block_size().bits();
        let end = u32::try_from(size).unwrap_or(u32::MAX);
        // An earlier stage ensured that no block occurs at two offsets of the file. The limit
        // protects against hostile images, in which a directory could nevertheless have more blocks
        // than the whole file system.
        let most = self.run.volume.geometry.block_count();
        Runs::of(self.run.volume, ino, record)
            .extents()
            .iter()
            .flat_map(|e| (0..e.len).map(|n| (e.start.0 + n, Block(e.block.0 + u64::from(n)))))
            .filter(|(at, _)| *at < end)
            .map(|(at, block)| (FileBlock(at), block))
            .take(usize::try_from(most).unwrap_or(usize::MAX))
            .collect()
    }

    /// Rewrites the mapping of a directory so that its blocks follow one another without holes. A
    /// directory without a first block gets a new one.
    fn close_holes(&mut self, ino: Ino, mut bytes: Vec<u8>, mut blocks: Vec<(FileBlock, Block)>) {
        if blocks.first().is_none_or(|(start, _)| start.0 > 0) {
            let Some(block) = self.allocate() else { return };
            let parent = self.parent_of(ino);
            let record = Record::decode(&bytes);
            let new = dirent::new_directory(&self.run.volume.dir_format(), ino, parent);
            self.write_leaf(ino, &record, block, new);
            blocks.insert(0, (FileBlock(0), block));
        }
        let (mut salvaged, state) = (Salvaged::default(), State::Written);
        for (start, (_, block)) in (0..).map(FileBlock).zip(&blocks) {
            push_run(&mut salvaged.extents, Extent { start, len: 1, block: *block, state });
        }
        let count = blocks.len();
        let flags = Record::decode(&bytes).flags - InodeFlags::INDEX;
        if self.rebuild(ino, &mut bytes, salvaged) {
            put32(&mut bytes, FLAGS, flags.bits());
            set_size(&mut bytes, (count as u64) << self.run.volume.geometry.block_size().bits());
            self.write_inode(ino, bytes);
            let record = self.read_inode(ino).map(|(_, record)| record);
            if let Some(record) = record {
                self.mend_blocks(ino, &record, &[], true);
            }
            self.act(Place::Inode { ino }, "directory: its blocks follow one another");
        }
    }

    /// Converts an indexed directory to a linear one, which every kernel can read.
    pub fn drop_index(&mut self, ino: Ino, mut bytes: Vec<u8>, record: &Record, found: &[Finding]) {
        put32(&mut bytes, FLAGS, (record.flags - InodeFlags::INDEX).bits());
        self.write_inode(ino, bytes);
        self.mend_blocks(ino, record, found, true);
        self.act(Place::Inode { ino }, "directory: its index is dropped");
    }

    /// Rewrites each block that has a finding. With `all`, also converts the blocks of the index to
    /// linear blocks.
    fn mend_blocks(&mut self, ino: Ino, record: &Record, found: &[Finding], all: bool) {
        let format = self.run.volume.superblock().dir_format(record.flags);
        let folding = self.run.volume.folding_of(record.flags);
        let (mut blocks, mut others) = (Vec::new(), HashSet::new());
        for (at, block) in self.directory_blocks(ino, record) {
            let here: Vec<&Finding> = found.iter().filter(|f| block_of(f) == Some(at)).collect();
            let Some(bytes) = self.read_block(block) else { continue };
            let names = self.kept(&bytes, format.record_bytes(), format.names, &here, folding);
            match here.is_empty() && !all {
                true => others.extend(names.iter().map(|kept| kept.form(folding))),
                false => blocks.push((at, block, here, names)),
            }
        }
        // The same name may be in two blocks, if the index is damaged.
        make_unique(blocks.iter_mut().flat_map(|(.., names)| names).collect(), others, folding);
        for (at, block, here, names) in blocks {
            let Some(bytes) = self.read_block(block) else { continue };
            let seed = self.seed(ino, record);
            let is_linear = || {
                let sum = seed.is_none_or(|seed| dirent::verify(&format, seed, &bytes).is_ok());
                let valid = dirent::entries(&format, &bytes).map(|mut all| all.all(|e| e.is_ok()));
                sum && valid.unwrap_or(false) && at.0 > 0
            };
            if here.is_empty() && is_linear() && !names.iter().any(|kept| kept.is_renamed) {
                continue;
            }
            let new = self.pack(ino, at, &bytes, names);
            self.write_leaf(ino, record, block, new);
            let what = match here.first() {
                Some(finding) => format!("written anew ({})", finding.fault),
                None => "written anew".into(),
            };
            self.act(Place::Directory { ino, block: at }, what);
        }
    }

    /// Returns the names that the repair keeps, from a block or from inline data. If the file
    /// system has strict names, bytes that are not valid UTF-8 become dots, as in e2fsck.
    fn kept(
        &self,
        bytes: &[u8],
        end: usize,
        form: NameForm,
        found: &[&Finding],
        folding: Folding,
    ) -> Vec<Kept> {
        let mut names = self.parse(bytes, end, form);
        let own = found.first().and_then(|finding| finding.place.ino());
        names.retain_mut(|kept| {
            let is_dots = leads_to_parent(bytes, kept.offset)
                && part(bytes, kept.offset + HEADER, 3) == Some(b"..\0".as_slice());
            let faults = found.iter().filter(|f| offset_of(f) == Some(kept.offset));
            let mut faults = faults.map(|finding| &finding.fault);
            let is_wrong = faults.any(|fault| {
                let dot = dirent::Cause::MisplacedDot { offset: kept.offset };
                let is_dot = *fault == Fault::Dirent(dot);
                let wrong = matches!(fault, Fault::BadTarget { .. } | Fault::SecondName { .. })
                    || matches!(fault, Fault::ForeignPolicy { .. });
                let is_dot_dot = *fault == Fault::Dirent(dirent::Cause::NoDots)
                    && leads_to_parent(bytes, kept.offset)
                    && self.parents.position(kept.ino).is_some();
                wrong || is_dot || is_dot_dot || *fault == Fault::Encoding
            });
            kept.name = permitted(&kept.name, folding);
            let is_dots = is_dots || Some(kept.ino) == own;
            !is_wrong && !is_dots && !matches!(kept.name.as_slice(), b"." | b"..")
        });
        names
    }

    /// Reads the entries of a block. After an invalid record, continues at the next one that refers
    /// to an inode in use and states the type of that inode. Such an entry is kept even if its
    /// length is not valid.
    fn parse(&self, bytes: &[u8], end: usize, form: NameForm) -> Vec<Kept> {
        let (mut names, mut at, mut is_lost) = (Vec::new(), 0, false);
        while at + HEADER <= end {
            match self.record(bytes, at, end, form, is_lost) {
                Some((kept, len)) => {
                    names.extend(kept);
                    is_lost = len.is_none();
                    at += len.unwrap_or(MIN_RECORD);
                }
                None => {
                    is_lost = true;
                    at += 4;
                }
            }
        }
        names
    }

    fn record(
        &self,
        bytes: &[u8],
        offset: usize,
        end: usize,
        form: NameForm,
        strict: bool,
    ) -> Option<(Option<Kept>, Option<usize>)> {
        let raw = usize::from(le16(bytes, offset + 4));
        let is_longest = end >= 1 << 16 && [0, 0xffff].contains(&raw);
        let len = if is_longest { end - offset } else { raw };
        let name_len = usize::from(*bytes.get(offset + 6)?);
        let fits = len >= MIN_RECORD.max(dirent::space(name_len)) && offset + len <= end;
        let len = Some(len).filter(|len| fits && len.is_multiple_of(4));
        let ino = Ino(le32(bytes, offset));
        if ino.0 == 0 {
            return len.filter(|_| !strict).map(|len| (None, Some(len)));
        }
        let mut name = part(bytes.get(..end)?, offset + HEADER, name_len)?.to_vec();
        if form == NameForm::Plain && len.is_some() {
            // Bytes that no name may have become dots, as in a repair by e2fsck.
            name.iter_mut().filter(|byte| b"/\0".contains(byte)).for_each(|byte| *byte = b'.');
        }
        let state = self.run.states.get(ino);
        let kind = bytes.get(offset + 7).copied().unwrap_or_default();
        let types = self.run.volume.dir_format().has_file_types;
        let is_likely = state.is_used()
            && (!types || state.file_type().is_some_and(|k| k.dirent_byte() == kind));
        let valid = Name::of(form, &name).is_ok() && self.run.volume.geometry.has_inode(ino);
        if (strict || len.is_none()) && !is_likely || len.is_none() && !valid {
            return None;
        }
        Some((valid.then_some(Kept { offset, ino, name, is_renamed: false }), len))
    }

    /// Packs names into a block. Names that do not fit are left out. If a file has no name as a
    /// result, a later stage gives it one.
    fn pack(&self, ino: Ino, at: FileBlock, old: &[u8], names: Vec<Kept>) -> Vec<u8> {
        let format = self.run.volume.dir_format();
        let mut packed = Vec::new();
        if at.0 == 0 {
            let parent = self.dot_dot(ino, old);
            let file_type = Some(FileType::Directory);
            for (name, ino) in [(b".".as_slice(), ino), (b"..", parent)] {
                let name = Name::new(name);
                packed.extend(name.map(|name| Packed { ino, file_type, name }));
            }
        }
        let mut used: usize = packed.iter().map(Packed::space).sum();
        for kept in &names {
            // The name was already checked when it was read, so the form that permits all bytes is
            // used for every directory.
            let Ok(name) = Name::of(NameForm::Encrypted, &kept.name) else { continue };
            let file_type = self.run.states.get(kept.ino).file_type();
            let new = Packed { ino: kept.ino, file_type, name };
            if used + new.space() <= format.record_bytes() {
                used += new.space();
                packed.push(new);
            }
        }
        dirent::pack(&format, &packed).unwrap_or_else(|| old.to_vec())
    }

    /// Returns the inode to which ".." in the first block of directory `ino` refers, if this inode
    /// is a directory. Otherwise returns the directory that contains the name of directory `ino`.
    fn dot_dot(&self, ino: Ino, first: &[u8]) -> Ino {
        let at = usize::from(le16(first, 4));
        let named = Ino(le32(first, at));
        let is_dots = le16(first, at + 8) == u16::from_le_bytes(*b"..");
        match (is_dots || leads_to_parent(first, at)) && self.parents.position(named).is_some() {
            true => named,
            false => self.parent_of(ino),
        }
    }

    /// Returns the directory that contains the name of a directory, or the root if none is known.
    fn parent_of(&self, ino: Ino) -> Ino {
        let position = self.parents.position(ino).filter(|_| ino != Ino::ROOT);
        position.and_then(|n| self.parents.parent(n)).unwrap_or(Ino::ROOT)
    }

    /// Writes a linear block with its checksum.
    pub fn write_leaf(&mut self, ino: Ino, record: &Record, block: Block, mut bytes: Vec<u8>) {
        if let Some(seed) = self.seed(ino, record) {
            dirent::seal(&self.run.volume.dir_format(), seed, &mut bytes);
        }
        self.write_block(block, &bytes);
    }

    fn mend_inline(&mut self, ino: Ino, mut bytes: Vec<u8>, record: &Record, found: &[Finding]) {
        // The entries are in two parts, the block field and `system.data`. The offset in a finding
        // is relative to the start of one part, but the finding does not state which part. So the
        // finding is applied to the entries at this offset in both parts.
        let here: Vec<&Finding> = found.iter().collect();
        let folding = self.run.volume.folding_of(record.flags);
        let rest = attributes::inline_data(self.run, record, &bytes).map(<[u8]>::to_vec);
        let first = record.block.get(4..).unwrap_or_default().to_vec();
        let old = rest.unwrap_or_default();
        // A part that is too short for a record has no names, and is left out.
        let len = if old.len() < MIN_RECORD { 0 } else { old.len() & !3 };
        let kept = |part: &[u8]| self.kept(part, part.len(), NameForm::Plain, &here, folding);
        let (mut names, mut more) = (kept(&first), kept(old.get(..len).unwrap_or_default()));
        make_unique(names.iter_mut().chain(&mut more).collect(), HashSet::new(), folding);
        let first = self.pack_inline(first.len(), names);
        let new = self.pack_inline(len, more);
        if let Some(place) = bytes.get_mut(BLOCK + 4..BLOCK + 60) {
            place.copy_from_slice(&first);
        }
        self.set_inline_data(&mut bytes, record, Some(&new));
        set_size(&mut bytes, (record.block.len() + len) as u64);
        self.write_inode(ino, bytes);
        self.act(Place::Inode { ino }, "directory in the inode: written anew");
    }

    fn pack_inline(&self, len: usize, mut names: Vec<Kept>) -> Vec<u8> {
        names.retain(|kept| !kept.name.is_empty());
        let mut bytes = vec![0; len];
        let (mut at, mut last) = (0, 0);
        for kept in &names {
            let len = dirent::space(kept.name.len());
            if at + len > bytes.len() {
                break;
            }
            let kind = self.run.states.get(kept.ino).file_type().map_or(0, FileType::dirent_byte);
            put32(&mut bytes, at, kept.ino.0);
            put16(&mut bytes, at + 4, len as u16);
            if let Some(place) = bytes.get_mut(at + 6..at + HEADER + kept.name.len()) {
                let types = self.run.volume.dir_format().has_file_types;
                let head = [kept.name.len() as u8, if types { kind } else { 0 }];
                place.copy_from_slice(&[&head, kept.name.as_slice()].concat());
            }
            (last, at) = (at, at + len);
        }
        let whole = bytes.len() - last;
        if whole >= MIN_RECORD {
            put16(&mut bytes, last + 4, whole as u16);
        }
        bytes
    }
}

fn block_of(finding: &Finding) -> Option<FileBlock> {
    match finding.place {
        Place::Directory { block, .. } | Place::Entry { block, .. } => Some(block),
        Place::Index { block, .. } => Some(block),
        _ => None,
    }
}

fn offset_of(finding: &Finding) -> Option<usize> {
    match (&finding.fault, finding.place) {
        (Fault::Dirent(dirent::Cause::MisplacedDot { offset }), _) => Some(*offset),
        (_, Place::Entry { offset, .. }) => Some(offset),
        _ => None,
    }
}

/// Returns whether the entry at `offset` of a directory's first block is the second one, after ".",
/// whatever its name is: it leads to the parent, as in e2fsck.
fn leads_to_parent(first: &[u8], offset: usize) -> bool {
    let dot = [le16(first, 4), le16(first, 6) & 0xff, le16(first, 8)];
    offset == MIN_RECORD && dot == [MIN_RECORD as u16, 1, u16::from(b'.')]
}

/// Renames entries so that no name occurs twice in a directory, or is in `others`. As in e2fsck,
/// the entry with the greatest inode number keeps the name. A second entry of the same inode gets
/// an empty name, with which it is not written.
fn make_unique(mut entries: Vec<&mut Kept>, mut others: HashSet<Vec<u8>>, folding: Folding) {
    others.extend([b".".to_vec(), b"..".to_vec()]);
    let own = entries.iter().map(|kept| kept.form(folding));
    let mut taken: HashSet<Vec<u8>> = own.chain(others.iter().cloned()).collect();
    entries.sort_by_cached_key(|kept| (kept.form(folding), Reverse(kept.ino)));
    let (mut last, mut next) = (None, ALWAYS_NEW);
    for kept in entries {
        let this = Some((kept.form(folding), kept.ino));
        let is_same = |(other, _): &(Vec<u8>, Ino)| *other == kept.form(folding);
        let is_equal = last.as_ref().is_some_and(is_same) || others.contains(&kept.form(folding));
        kept.is_renamed = is_equal;
        if is_equal && last == this {
            kept.name.clear();
        } else if is_equal {
            kept.name = new_name(&kept.name, &mut next, &taken, folding);
            taken.insert(kept.form(folding));
        }
        last = this;
    }
}

/// Returns a name that is not in `taken`: a number takes the place of the end of `name`, and of
/// the padding after it, so that the entry needs no more space, as in e2fsck.
fn new_name(name: &[u8], next: &mut usize, taken: &HashSet<Vec<u8>>, folding: Folding) -> Vec<u8> {
    let len = match name.len() % 4 {
        1 | 2 => name.len() + 2,
        _ => name.len().next_multiple_of(4),
    };
    let mut numbers = 0..ALWAYS_NEW;
    loop {
        let number = numbers.next().unwrap_or_else(|| {
            *next += 1;
            *next - 1
        });
        let number = format!("~{number}");
        let base = len.min(LONGEST).saturating_sub(number.len()).min(name.len());
        let base = permitted(name.get(..base).unwrap_or_default(), folding);
        let other = [&base, number.as_bytes()].concat();
        if !taken.contains(&*folding.form(&other)) {
            return other;
        }
    }
}

/// Returns a name with a dot in place of each byte that strict names do not permit.
fn permitted(name: &[u8], folding: Folding) -> Vec<u8> {
    match folding.permits(name) {
        true => name.to_vec(),
        false => name.utf8_chunks().fold(Vec::new(), |mut text, chunk| {
            text.extend(chunk.valid().bytes());
            text.extend(chunk.invalid().iter().map(|_| b'.'));
            text
        }),
    }
}

#[cfg(test)]
mod tests;
