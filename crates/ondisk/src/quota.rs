//! Quota files: the usage and the limits of each user, group or project.
//!
//! Source: kernel documentation, *Quota subsystem*; the description of the format "vfsv1" (version
//! 2, revision 1) in the quota tools; and files made by mke2fs and debugfs.
//!
//! A file has blocks of 1 KiB, whatever the block size of the file system. Block 0 has a header.
//! Block 1 is the root of a tree of four levels. Each level stands for one byte of an id, the root
//! for the highest byte. The tree's lowest level refers to *data blocks*. A data block has a header
//! of 16 bytes, and 14 entries of 72 bytes in any order. Data blocks with free entries are on a
//! list that is doubly linked through their headers.

pub use crate::cause::QuotaCause as Cause;

use crate::types::Ino;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// Returns whether quota files count inode `ino`. They count the root directory and all inodes that
/// are not reserved; `first` is the first of these. They do not count the file system's own files,
/// which are the quota files and the orphan file; `own` has the inodes of these files.
pub fn is_counted(ino: Ino, first: Ino, mut own: impl Iterator<Item = Ino>) -> bool {
    (ino == Ino::ROOT || ino >= first) && !own.any(|file| file == ino)
}

/// Bytes of a block of a quota file.
pub const BLOCK: usize = 1024;
/// The largest number of new blocks of 1 KiB that an added id needs: three blocks of the tree and a
/// data block.
pub const BLOCKS_OF_AN_ID: u32 = 4;
/// The largest number of blocks of 1 KiB that change when an id is added: the header, the root, the
/// new blocks, and two neighbours on the list of data blocks with free entries.
pub const CHANGES_OF_AN_ID: u32 = 8;
/// The grace time in new quota files: the seconds for which a soft limit may be exceeded.
const WEEK: u32 = 604_800;

const HEAD: u32 = 0;
const ROOT: u32 = 1;
const LEVELS: u32 = 4;
const VERSION: u32 = 1;
/// Bytes of the header of a data block.
const DATA_HEADER: usize = 16;
const ENTRIES: usize = (BLOCK - DATA_HEADER) / ENTRY;

/// Offsets in the header.
mod head {
    pub(super) const MAGIC: usize = 0;
    pub(super) const VERSION: usize = 4;
    pub(super) const BYTES_GRACE: usize = 8;
    pub(super) const INODES_GRACE: usize = 12;
    pub(super) const BLOCKS: usize = 20;
    pub(super) const FREE_BLOCK: usize = 24;
    pub(super) const FREE_ENTRY: usize = 28;
}

/// Offsets in the header of a data block.
mod data {
    pub(super) const NEXT: usize = 0;
    pub(super) const PREVIOUS: usize = 4;
    pub(super) const COUNT: usize = 8;
}

/// The kind of owner whose usage a quota file counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// `i_uid`.
    User,
    /// `i_gid`.
    Group,
    /// `i_projid`.
    Project,
}

impl Kind {
    /// All kinds, in the order of their numbers.
    pub const ALL: [Kind; 3] = [Kind::User, Kind::Group, Kind::Project];

    /// Returns the kind's number.
    pub fn index(self) -> usize {
        self as usize
    }

    /// Returns the kind's name.
    pub fn name(self) -> &'static str {
        match self {
            Kind::User => "user",
            Kind::Group => "group",
            Kind::Project => "project",
        }
    }

    fn magic(self) -> u32 {
        match self {
            Kind::User => 0xd9c0_1f11,
            Kind::Group => 0xd9c0_1927,
            Kind::Project => 0xd9c0_3f14,
        }
    }
}

/// A checked quota file in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuotaFile {
    /// The whole file; blocks of 1 KiB from [`QuotaFile::used_blocks`] on are spare.
    bytes: Vec<u8>,
    /// The offset of each id's entry.
    places: HashMap<u32, usize>,
    /// Data blocks with free entries, in the order of their list.
    open: Vec<u32>,
    /// Blocks changed since the last call of [`QuotaFile::take_changed`].
    changed: BTreeSet<u32>,
}

impl QuotaFile {
    fn over(bytes: Vec<u8>) -> QuotaFile {
        let (places, open, changed) = (HashMap::new(), Vec::new(), BTreeSet::new());
        QuotaFile { bytes, places, open, changed }
    }

    /// Returns a file without entries.
    pub fn new(kind: Kind) -> QuotaFile {
        let mut file = QuotaFile::over(vec![0; 2 * BLOCK]);
        file.put(HEAD, head::MAGIC, kind.magic());
        file.put(HEAD, head::VERSION, VERSION);
        file.put(HEAD, head::BYTES_GRACE, WEEK);
        file.put(HEAD, head::INODES_GRACE, WEEK);
        file.put(HEAD, head::BLOCKS, 2);
        file
    }

    /// Decodes a file with all checks.
    ///
    /// # Errors
    /// The first fault found.
    pub fn decode(bytes: Vec<u8>, kind: Kind) -> Result<QuotaFile, Cause> {
        let len = bytes.len();
        if len < 2 * BLOCK {
            return Err(Cause::Length { len });
        }
        let mut file = QuotaFile::over(bytes);
        let (magic, version) = (file.word(HEAD, head::MAGIC), file.word(HEAD, head::VERSION));
        if magic != kind.magic() || version != VERSION {
            return Err(Cause::Header { magic, version });
        }
        let (blocks, has) = (file.used_blocks(), file.blocks());
        if blocks < 2 || blocks > has {
            return Err(Cause::Blocks { blocks, has });
        }
        if let Some(spare) = file.bytes.get_mut(blocks as usize * BLOCK..) {
            spare.fill(0);
        }
        let unused = file.word(HEAD, head::FREE_BLOCK);
        if unused != 0 && unused >= blocks {
            return Err(Cause::FreeList { block: unused });
        }
        file.read_tree()?;
        file.read_free_list()?;
        Ok(file)
    }

    /// Returns the bytes of the file, spare blocks included.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the number of blocks of 1 KiB in use: the header, the tree and the data blocks.
    pub fn used_blocks(&self) -> u32 {
        self.word(HEAD, head::BLOCKS)
    }

    /// Returns the number of spare blocks of 1 KiB, which new ids may use.
    pub fn spare_blocks(&self) -> u32 {
        self.blocks() - self.used_blocks()
    }

    /// Adds spare bytes at the end of the file.
    pub fn grow(&mut self, bytes: usize) {
        self.bytes.resize(self.bytes.len() + bytes, 0);
    }

    /// Returns the grace times of space and of inodes: the seconds for which a soft limit may be
    /// exceeded.
    pub fn grace(&self) -> (u32, u32) {
        (self.word(HEAD, head::BYTES_GRACE), self.word(HEAD, head::INODES_GRACE))
    }

    /// Sets the grace times of space and of inodes: the seconds for which a soft limit may be
    /// exceeded.
    pub fn set_grace(&mut self, (bytes, inodes): (u32, u32)) {
        self.put(HEAD, head::BYTES_GRACE, bytes);
        self.put(HEAD, head::INODES_GRACE, inodes);
    }

    /// Returns all ids that have an entry, in order.
    pub fn ids(&self) -> Vec<u32> {
        let mut ids: Vec<u32> = self.places.keys().copied().collect();
        ids.sort_unstable();
        ids
    }

    /// Returns the entry of an id.
    pub fn get(&self, id: u32) -> Option<Quota> {
        let at = *self.places.get(&id)?;
        Some(Quota::decode(self.bytes.get(at..at + ENTRY)?))
    }

    /// Sets the entry of an id. Returns false if the id has no entry.
    pub fn set(&mut self, id: u32, quota: &Quota) -> bool {
        let Some(&at) = self.places.get(&id) else { return false };
        if let Some(entry) = self.bytes.get_mut(at..at + ENTRY) {
            quota.encode(id, entry);
        }
        self.changed.insert((at / BLOCK) as u32);
        true
    }

    /// Adds an entry without usage and limits for an id, unless the id already has an entry.
    /// Returns false, and changes nothing, if fewer than [`BLOCKS_OF_AN_ID`] spare blocks are left.
    pub fn add(&mut self, id: u32) -> bool {
        if self.places.contains_key(&id) {
            return true;
        }
        if self.spare_blocks() < BLOCKS_OF_AN_ID {
            return false;
        }
        let data = match self.open.first() {
            Some(&open) => open,
            None => self.new_data_block(),
        };
        let mut node = ROOT;
        for level in 0..LEVELS {
            let at = reference(id, level);
            let below = match (self.word(node, at), level + 1 == LEVELS) {
                (_, true) => data,
                (0, false) => self.new_block(),
                (below, false) => below,
            };
            self.put(node, at, below);
            node = below;
        }
        let used = |n: &usize| self.is_used(data, *n);
        if let Some(n) = (0..ENTRIES).find(|n| !used(n)) {
            self.places.insert(id, place(data, n));
            self.set(id, &Quota::default());
        }
        self.count_entry(data);
        true
    }

    /// Returns the blocks of 1 KiB that have changed since the previous call, in order.
    pub fn take_changed(&mut self) -> BTreeSet<u32> {
        std::mem::take(&mut self.changed)
    }

    fn blocks(&self) -> u32 {
        u32::try_from(self.bytes.len() / BLOCK).unwrap_or(u32::MAX)
    }

    fn new_block(&mut self) -> u32 {
        let new = self.used_blocks();
        self.put(HEAD, head::BLOCKS, new + 1);
        new
    }

    /// Makes an empty data block. Called when no data block has free entries.
    fn new_data_block(&mut self) -> u32 {
        let new = self.new_block();
        self.open.push(new);
        self.put(HEAD, head::FREE_ENTRY, new);
        new
    }

    /// Counts one more entry in `block`, which is the first on the list of data blocks with free
    /// entries. Takes the block off the list if it is full.
    fn count_entry(&mut self, block: u32) {
        let entries = (self.word(block, data::COUNT) & 0xffff) + 1;
        self.put(block, data::COUNT, entries);
        if (entries as usize) < ENTRIES {
            return;
        }
        self.open.remove(0);
        let next = self.word(block, data::NEXT);
        self.put(block, data::NEXT, 0);
        self.put(block, data::PREVIOUS, 0);
        self.put(HEAD, head::FREE_ENTRY, next);
        if next != 0 {
            self.put(next, data::PREVIOUS, 0);
        }
    }

    /// Finds all entries, and checks that exactly one path in the tree leads to each used entry.
    fn read_tree(&mut self) -> Result<(), Cause> {
        // The blocks to visit, each with its level and with the upper bytes of the ids below it.
        let mut left = vec![(ROOT, 0, 0u32)];
        let mut seen = HashSet::from([HEAD, ROOT]);
        let mut found: HashMap<u32, u32> = HashMap::new();
        while let Some((node, level, above)) = left.pop() {
            for byte in 0..256u32 {
                let to = self.word(node, byte as usize * 4);
                if to == 0 {
                    continue;
                }
                let wrong = Cause::Reference { block: node, to };
                let id = above << 8 | byte;
                if to >= self.used_blocks() {
                    return Err(wrong);
                }
                if level + 1 < LEVELS {
                    if !seen.insert(to) {
                        return Err(wrong);
                    }
                    left.push((to, level + 1, id));
                    continue;
                }
                if !found.contains_key(&to) && !seen.insert(to) {
                    return Err(wrong);
                }
                let n = (0..ENTRIES).find(|n| self.is_used(to, *n) && self.id_of(to, *n) == id);
                let n = n.ok_or(Cause::Missing { block: to, id })?;
                self.places.insert(id, place(to, n));
                *found.entry(to).or_default() += 1;
            }
        }
        for (block, ways) in found {
            let used = (0..ENTRIES).filter(|n| self.is_used(block, *n)).count() as u32;
            let counted = self.word(block, data::COUNT) & 0xffff;
            if counted != used || ways != used {
                return Err(Cause::Entries { block, found: counted, expected: ways });
            }
        }
        Ok(())
    }

    /// Reads the list of data blocks with free entries.
    fn read_free_list(&mut self) -> Result<(), Cause> {
        let data: HashSet<u32> = self.places.values().map(|at| (at / BLOCK) as u32).collect();
        let mut seen = HashSet::new();
        let (mut before, mut next) = (0, self.word(HEAD, head::FREE_ENTRY));
        while next != 0 {
            let has_room = data.contains(&next)
                && ((self.word(next, data::COUNT) & 0xffff) as usize) < ENTRIES
                && self.word(next, data::PREVIOUS) == before;
            if !has_room || !seen.insert(next) {
                return Err(Cause::FreeList { block: next });
            }
            self.open.push(next);
            before = next;
            next = self.word(next, data::NEXT);
        }
        Ok(())
    }

    /// Returns whether an entry of a data block is used. An entry is used if any of its bytes is
    /// not zero.
    fn is_used(&self, block: u32, n: usize) -> bool {
        let at = place(block, n);
        self.bytes.get(at..at + ENTRY).is_some_and(|entry| entry.iter().any(|byte| *byte != 0))
    }

    fn id_of(&self, block: u32, n: usize) -> u32 {
        self.word(block, place(0, n))
    }

    /// Returns the word at byte `at` of a block; 0 beyond the end of the file.
    fn word(&self, block: u32, at: usize) -> u32 {
        let at = block as usize * BLOCK + at;
        let bytes = self.bytes.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(0, u32::from_le_bytes)
    }

    fn put(&mut self, block: u32, at: usize, word: u32) {
        let start = block as usize * BLOCK + at;
        if let Some(bytes) = self.bytes.get_mut(start..start + 4) {
            bytes.copy_from_slice(&word.to_le_bytes());
            self.changed.insert(block);
        }
    }
}

/// The readable part of a damaged quota file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Salvaged {
    /// The entries by id.
    pub entries: BTreeMap<u32, Quota>,
    /// The grace times of space and of inodes, if the header is valid. See [`QuotaFile::grace`].
    pub grace: Option<(u32, u32)>,
}

impl Salvaged {
    /// Reads as much as can be read of a file that may have any faults.
    ///
    /// An entry counts if the tree leads to it by the bytes of its id. Any other entry counts only
    /// if its block has the form of a data block and `is_usage` confirms the stored usage. Without
    /// these conditions, a block of the tree or the old contents of an unused block could be
    /// mistaken for entries.
    pub fn read(bytes: Vec<u8>, kind: Kind, is_usage: impl Fn(u32, &Quota) -> bool) -> Salvaged {
        let file = QuotaFile::over(bytes);
        let is_header = file.word(HEAD, head::MAGIC) == kind.magic();
        let mut salvaged =
            Salvaged { grace: is_header.then(|| file.grace()), entries: BTreeMap::new() };
        let reached = salvaged.read_tree(&file);
        for block in (ROOT + 1..file.blocks()).filter(|block| !reached.contains(block)) {
            if !is_data(&file, block) {
                continue;
            }
            for (id, quota) in entries(&file, block).filter(|(id, quota)| is_usage(*id, quota)) {
                salvaged.entries.entry(id).or_insert(quota);
            }
        }
        salvaged
    }

    /// Reads the entries to which the tree leads, and skips wrong references. Returns the blocks of
    /// the tree, and the data blocks with these entries.
    fn read_tree(&mut self, file: &QuotaFile) -> BTreeSet<u32> {
        let mut reached = BTreeSet::from([HEAD, ROOT]);
        // The blocks to visit, each with its level and with the upper bytes of the ids below it.
        let mut left = vec![(ROOT, 0, 0u32)];
        while let Some((node, level, above)) = left.pop() {
            for byte in 0..256u32 {
                let (to, id) = (file.word(node, byte as usize * 4), above << 8 | byte);
                if to <= ROOT || to >= file.blocks() {
                    continue;
                }
                if level + 1 < LEVELS {
                    if reached.insert(to) {
                        left.push((to, level + 1, id));
                    }
                } else if let Some((_, quota)) = entries(file, to).find(|(at, _)| *at == id) {
                    reached.insert(to);
                    self.entries.insert(id, quota);
                }
            }
        }
        reached
    }
}

/// Returns whether a block has the form of a data block with at least one entry.
fn is_data(file: &QuotaFile, block: u32) -> bool {
    let used = entries(file, block).count();
    let count = file.word(block, data::COUNT);
    let [next, previous] = [data::NEXT, data::PREVIOUS].map(|at| file.word(block, at));
    let is_padded = (0..ENTRIES).all(|n| file.word(block, place(0, n) + 4) == 0);
    used > 0
        && count as usize == used
        && file.word(block, DATA_HEADER - 4) == 0
        && next < file.blocks()
        && previous < file.blocks()
        && is_padded
}

/// Returns the used entries of a data block.
fn entries(file: &QuotaFile, block: u32) -> impl Iterator<Item = (u32, Quota)> + '_ {
    (0..ENTRIES).filter(move |n| file.is_used(block, *n)).filter_map(move |n| {
        let at = place(block, n);
        Some((file.id_of(block, n), Quota::decode(file.bytes.get(at..at + ENTRY)?)))
    })
}

/// Returns the offset of the reference to `id` in a block of the tree at `level`.
fn reference(id: u32, level: u32) -> usize {
    ((id >> (8 * (LEVELS - 1 - level))) & 0xff) as usize * 4
}

/// Returns the offset in the file of entry `n` of a data block.
fn place(block: u32, n: usize) -> usize {
    block as usize * BLOCK + DATA_HEADER + n * ENTRY
}

/// Bytes of an entry.
const ENTRY: usize = 72;

/// The space and the inodes that an id uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Space in bytes.
    pub bytes: u64,
    /// Number of inodes.
    pub inodes: u64,
}

/// The limits of an id; 0 means no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Limits {
    /// The hard limit of space, which usage never exceeds, in units of 1024 bytes.
    pub kib_hard: u64,
    /// The soft limit of space, which usage may exceed for the grace time, in units of 1024 bytes.
    pub kib_soft: u64,
    /// The hard limit of inodes, which usage never exceeds.
    pub inodes_hard: u64,
    /// The soft limit of inodes, which usage may exceed for the grace time.
    pub inodes_soft: u64,
}

/// An entry of a quota file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Quota {
    /// Usage.
    pub usage: Usage,
    /// Limits.
    pub limits: Limits,
    /// When the grace time for space ends, in seconds since 1970; 0 if the soft limit of space is
    /// not exceeded.
    pub bytes_until: u64,
    /// When the grace time for inodes ends, in seconds since 1970; 0 if the soft limit of inodes is
    /// not exceeded.
    pub inodes_until: u64,
}

impl Quota {
    fn decode(bytes: &[u8]) -> Quota {
        let mut words = [0; ENTRY / 8];
        for (word, bytes) in words.iter_mut().zip(bytes.as_chunks().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        let [id, inodes_hard, inodes_soft, inodes, kib_hard, kib_soft, bytes, times @ ..] = words;
        let [bytes_until, inodes_until] = times;
        let limits = Limits { kib_hard, kib_soft, inodes_hard, inodes_soft };
        let quota = Quota { usage: Usage { bytes, inodes }, limits, bytes_until, inodes_until };
        match quota == IN_USE && id == 0 {
            true => Quota::default(),
            false => quota,
        }
    }

    fn encode(&self, id: u32, bytes: &mut [u8]) {
        // An entry of zeros counts as free. So if id 0 has no usage and no limits, its entry
        // contains a time that is not zero, which marks the entry as used.
        let fields = if id == 0 && *self == Quota::default() { IN_USE } else { *self };
        let Quota { usage, limits, bytes_until, inodes_until } = fields;
        let Limits { kib_hard, kib_soft, inodes_hard, inodes_soft } = limits;
        let inodes = [inodes_hard, inodes_soft, usage.inodes];
        let rest = [kib_hard, kib_soft, usage.bytes, bytes_until, inodes_until];
        let words = std::iter::once(id.into()).chain(inodes).chain(rest);
        for (place, word) in bytes.as_chunks_mut().0.iter_mut().zip(words) {
            *place = u64::to_le_bytes(word);
        }
    }
}

/// What the entry of id 0 contains if id 0 has no usage and no limits.
const IN_USE: Quota = Quota {
    usage: Usage { bytes: 0, inodes: 0 },
    limits: Limits { kib_hard: 0, kib_soft: 0, inodes_hard: 0, inodes_soft: 0 },
    bytes_until: 0,
    inodes_until: 1,
};

#[cfg(test)]
mod tests;
