//! One inode while fast commits are applied.

use crate::error::Error;
use crate::error::Expected;
use crate::extent::{EMPTY_ROOT, Limits, Map, Nodes};
use crate::fast_commit::draft::Draft;
use crate::fast_commit::draft::refused;
use crate::mapping::Form;
use lanefs_lanes::sync::Arc;
use lanefs_ondisk::checksum::Seed;
use lanefs_ondisk::inode::{BlockField, Inode, InodeFlags};
use lanefs_ondisk::jbd2::FastCause;
use lanefs_ondisk::{Block, Corruption, FileType, Ino, inode};
use std::cell::RefCell;
use std::ops::Range;

/// The bytes of `i_block` in a record.
const BLOCK_FIELD: Range<usize> = 0x28..0x64;
/// The bytes of `i_generation` in a record.
const GENERATION: Range<usize> = 0x64..0x68;
/// The size in bytes of an inode record without extra fields.
const GOOD_OLD_SIZE: usize = 128;

/// An inode that a fast commit changes.
pub(crate) struct Node {
    pub(crate) ino: Ino,
    /// The inode as the last transaction left it, if it was in use.
    pub(crate) before: Option<Inode>,
    /// The inode with the changes so far; `None` if it is not in use.
    pub(crate) now: Option<Inode>,
    /// The bytes of the record with the changes so far.
    record: Vec<u8>,
    /// The number of the change that gave the inode number to this inode, if there was such a
    /// change.
    pub(crate) born: Option<usize>,
    /// How many new inodes got the number, one after another.
    births: u32,
    /// The number of the last change that set the record.
    pub(crate) set: Option<usize>,
    /// The mappings; `None` if they were not needed yet.
    pub(crate) map: Option<Mappings>,
    /// For a directory that a fast commit creates: whether the directory already has its first
    /// block.
    pub(crate) has_dots: bool,
}

/// The mappings of an inode.
pub(crate) struct Mappings {
    /// The mappings as the last transaction left them; empty for an inode that a fast commit
    /// created.
    pub(crate) before: Map,
    pub(crate) now: Map,
    /// The parts of the file whose mappings were changed.
    pub(crate) changed: Vec<Range<u32>>,
}

impl Node {
    pub(crate) fn load(draft: &mut Draft<'_>, ino: Ino) -> Result<Node, Error> {
        let (mut before, mut record) = (None, vec![0; draft.geometry.inode_size()]);
        if draft.is_used(ino)? {
            record = draft.record(ino)?;
            before = Some(Inode::decode(&record, ino, &draft.geometry, draft.checksums)?);
        }
        let now = before.clone();
        Ok(Node {
            ino,
            before,
            now,
            record,
            born: None,
            births: 0,
            set: None,
            map: None,
            has_dots: false,
        })
    }

    pub(crate) fn fault(&self, cause: FastCause) -> Error {
        Corruption::FastCommit { ino: self.ino, cause }.into()
    }

    /// Returns the inode, which must be in use.
    pub(crate) fn inode(&self) -> Result<&Inode, Error> {
        self.now.as_ref().ok_or_else(|| self.fault(FastCause::NotInUse))
    }

    /// Returns the inode to be changed.
    pub(crate) fn inode_mut(&mut self) -> Result<&mut Inode, Error> {
        let fault = self.fault(FastCause::NotInUse);
        self.now.as_mut().ok_or(fault)
    }

    pub(crate) fn is_directory(&self) -> bool {
        self.now.as_ref().and_then(Inode::file_type) == Some(FileType::Directory)
    }

    /// Returns whether another inode had the number before this inode.
    pub(crate) fn replaces(&self) -> bool {
        self.born.is_some() && self.before.is_some()
    }

    /// Returns whether change `n` concerns this inode and not an older inode with its number. If
    /// this inode is the only one that had the number, changes before the inode's first record
    /// concern it too, because that record may come after the inode's first name.
    pub(crate) fn is_meant(&self, n: usize) -> bool {
        let is_first = self.before.is_none() && self.births == 1;
        is_first || self.born.is_none_or(|born| born <= n)
    }

    /// Returns whether change `n` must change the link count: the change concerns this inode, and
    /// no later change sets the record, which contains the count.
    pub(crate) fn counts(&self, n: usize) -> bool {
        self.is_meant(n) && self.set.is_none_or(|set| set < n)
    }

    /// Sets the fields of the record to those of `raw`, as change `n` requests. An extent tree
    /// stays as it is, because other changes set the mappings.
    pub(crate) fn set_record(
        &mut self,
        draft: &Draft<'_>,
        n: usize,
        raw: &[u8],
    ) -> Result<(), Error> {
        let (len, size) = (raw.len(), self.record.len());
        if !(GOOD_OLD_SIZE..=size).contains(&len) {
            return Err(self.fault(FastCause::RecordLength { len }));
        }
        let old = self.now.take();
        let mut record = self.record.clone();
        overwrite(&mut record, raw, 0..BLOCK_FIELD.start);
        overwrite(&mut record, raw, GENERATION.start..len);
        let mut new = self.decoded(draft, &mut record)?;
        let is_same = old.as_ref().is_some_and(|old| {
            old.generation == new.generation && old.file_type() == new.file_type()
        });
        if !is_same {
            // The old record may contain attributes of an older inode with this number. The new
            // inode does not have these attributes.
            record.fill(0);
            overwrite(&mut record, raw, 0..BLOCK_FIELD.start);
            overwrite(&mut record, raw, GENERATION.start..len);
            new = self.decoded(draft, &mut record)?;
        }
        let old = old.filter(|_| is_same);
        if self.ino == Ino::ROOT && old.is_none() {
            return Err(self.fault(FastCause::NoSuchInode));
        }
        check_supported(draft, old.as_ref(), &new)?;
        match new.block_field(&draft.geometry) {
            BlockField::ExtentTree => {
                new.block = old.as_ref().map_or(EMPTY_ROOT, |old| old.block);
            }
            _ => {
                let field = raw.get(BLOCK_FIELD).and_then(|field| field.try_into().ok());
                new.block = field.unwrap_or(new.block);
            }
        }
        match &old {
            Some(old) if old.file_type() == Some(FileType::Directory) => {
                // The size and the flag `INDEX` are set later, when the names are changed.
                new.size = old.size;
                new.flags.set(InodeFlags::INDEX, old.flags.contains(InodeFlags::INDEX));
            }
            Some(_) => {}
            None => {
                self.born = Some(n);
                self.births = self.births.saturating_add(1);
                self.map = None;
                self.has_dots = false;
            }
        }
        new.sectors = old.map_or(0, |old| old.sectors);
        (self.set, self.record, self.now) = (Some(n), record, Some(new));
        Ok(())
    }

    fn decoded(&self, draft: &Draft<'_>, record: &mut [u8]) -> Result<Inode, Error> {
        let damaged = |cause| Corruption::Inode { ino: self.ino, cause };
        inode::seal(record, self.ino, draft.checksums).map_err(damaged)?;
        Ok(Inode::decode(record, self.ino, &draft.geometry, draft.checksums)?)
    }

    /// Writes the record.
    pub(crate) fn store(&mut self, draft: &mut Draft<'_>) -> Result<(), Error> {
        let Some(inode) = &self.now else { return Ok(()) };
        let encoded =
            inode.encode_into(&mut self.record, self.ino, &draft.geometry, draft.checksums);
        encoded.map_err(|_| Error::FileTooLarge)?;
        draft.put_record(self.ino, &self.record)
    }

    /// Returns the mappings, which are loaded first if necessary.
    pub(crate) fn mappings(&mut self, draft: &Draft<'_>) -> Result<&mut Mappings, Error> {
        if self.map.is_none() {
            let now = match self.born {
                Some(_) => Map::empty(),
                None => load(draft, self.ino, self.inode()?)?.0,
            };
            self.map = Some(Mappings { before: now.clone(), now, changed: Vec::new() });
        }
        self.map.as_mut().expected()
    }

    pub(crate) fn limits(&self, draft: &Draft<'_>) -> Limits {
        limits(draft, self.ino)
    }
}

/// Copies the bytes `range` of the record `raw` to `record`.
fn overwrite(record: &mut [u8], raw: &[u8], range: Range<usize>) {
    if let Some((to, from)) = record.get_mut(range.clone()).zip(raw.get(range)) {
        to.copy_from_slice(from);
    }
}

/// Refuses changes that the kernel's fast commits never contain.
fn check_supported(draft: &Draft<'_>, old: Option<&Inode>, new: &Inode) -> Result<(), Error> {
    let inline = |inode: &Inode| inode.flags.contains(InodeFlags::INLINE_DATA);
    if new.file_type().is_none() {
        return Err(refused("of an inode without a type"));
    }
    if new.block_field(&draft.geometry) == BlockField::BlockMap {
        return Err(refused("of a file with a block map"));
    }
    if new.file_acl != old.and_then(|old| old.file_acl) {
        return Err(refused("that change a block of attributes"));
    }
    let Some(old) = old else { return Ok(()) };
    if old.extra_isize != new.extra_isize && !inline(new) {
        return Err(refused("that change the size of an inode's fields"));
    }
    if inline(old) != inline(new) {
        return Err(refused("of data that left its inode (inline_data)"));
    }
    Ok(())
}

fn limits(draft: &Draft<'_>, ino: Ino) -> Limits {
    let space = draft.geometry.first_data_block().0..draft.geometry.block_count();
    Limits::new(ino, draft.geometry.block_size(), space)
}

/// Reads the mappings of an inode. Returns the mappings and the blocks of their nodes.
pub(crate) fn load(draft: &Draft<'_>, ino: Ino, inode: &Inode) -> Result<(Map, Vec<Block>), Error> {
    let form = match inode.block_field(&draft.geometry) {
        BlockField::ExtentTree => Form::Extents,
        BlockField::BlockMap => Form::BlockMap,
        BlockField::InlineData | BlockField::NoMapping => return Ok((Map::empty(), Vec::new())),
    };
    let nodes = DraftNodes::new(draft, ino, inode.generation, form);
    let map = form.load(&inode.block, &nodes, &limits(draft, ino))?;
    draft.count_extents(map.count().saturating_add(1))?;
    Ok((map, nodes.met.into_inner()))
}

/// Reads nodes of one inode's mappings.
pub(crate) struct DraftNodes<'n, 'a> {
    draft: &'n Draft<'a>,
    ino: Ino,
    pub(crate) seed: Option<Seed>,
    met: RefCell<Vec<Block>>,
}

impl<'n, 'a> DraftNodes<'n, 'a> {
    pub(crate) fn new(
        draft: &'n Draft<'a>,
        ino: Ino,
        generation: u32,
        form: Form,
    ) -> DraftNodes<'n, 'a> {
        // Indirect blocks have no checksum.
        let seed = draft.checksums.seed().filter(|_| form == Form::Extents);
        let seed = seed.map(|seed| seed.of_inode(ino, generation));
        DraftNodes { draft, ino, seed, met: RefCell::default() }
    }
}

impl Nodes for DraftNodes<'_, '_> {
    fn node(&self, block: Block) -> Result<Arc<[u8]>, Error> {
        let bytes = self.draft.block(block)?;
        if let Some(seed) = self.seed {
            lanefs_ondisk::extent::verify(&bytes, seed).map_err(|cause| {
                Corruption::ExtentNode { ino: self.ino, block: Some(block), cause }
            })?;
        }
        self.met.borrow_mut().push(block);
        Ok(bytes)
    }
}
