//! The planners' view of a directory, the checks of its blocks when they are read and written, and
//! the planned changes.

use crate::error::Error;
use lanefs_ondisk::casefold::Folding;
use lanefs_ondisk::checksum::Seed;
use lanefs_ondisk::dirent::{Cause, DirFormat, Entry, Name, NameForm};
use lanefs_ondisk::features::Compat;
use lanefs_ondisk::hash::{HashVersion, NameHasher};
use lanefs_ondisk::htree::Kind;
use lanefs_ondisk::inode::InodeFlags;
use lanefs_ondisk::superblock::Superblock;
use lanefs_ondisk::{Corruption, FileBlock, Ino, dirent, htree};
use std::sync::Arc;

/// Read access to the blocks of one directory. May do I/O; the implementer does the caching.
pub trait DirBlocks {
    /// Returns the contents of block `n`, which is below [`DirBlocks::count`]; a block read from
    /// disk has passed [`verify`].
    fn block(&self, n: FileBlock) -> Result<Arc<[u8]>, Error>;
    /// Runs `look` on the contents of block `n`, if possible without a copy. May hold a guard while
    /// `look` runs.
    fn look(&self, n: FileBlock, look: &mut dyn FnMut(&[u8])) -> Result<(), Error> {
        look(&self.block(n)?);
        Ok(())
    }
    /// Returns the contents of block `n` although [`DirBlocks::block`] has found `fault` in them;
    /// `None` if they cannot be read, or their checksum is wrong.
    fn unsound(&self, n: FileBlock, fault: &Error) -> Option<Arc<[u8]>> {
        let _ = (n, fault);
        None
    }
    /// Returns the number of blocks in the directory: its size divided by the block size.
    fn count(&self) -> u32;
}

/// Whether a directory has an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Indexing {
    /// The file system has no `dir_index`. (If a directory still has the index flag, a change of
    /// the directory must clear the flag, since the index is not maintained.)
    Never,
    /// The directory is linear, and becomes indexed when its first block is full.
    Possible,
    /// The directory has an index.
    Indexed,
}

/// The directory's properties, as far as the planners use them.
#[derive(Debug, Clone, Copy)]
pub struct DirContext {
    /// The directory's inode number, which error messages contain.
    pub ino: Ino,
    /// The generation of the directory's inode.
    pub generation: u32,
    /// The checksum seed of the file system.
    pub file_system_seed: Seed,
    /// The format of the directory's blocks.
    pub format: DirFormat,
    /// The file system's hash function: the default version, whether the bytes of names count as
    /// signed, and the seed. The index of a directory states its own version.
    pub hasher: NameHasher,
    /// Whether the directory has an index.
    pub indexing: Indexing,
}

impl DirContext {
    /// Creates the context of directory `ino` in the file system of `superblock`.
    pub fn new(
        superblock: &Superblock,
        ino: Ino,
        generation: u32,
        flags: InodeFlags,
    ) -> DirContext {
        let features = superblock.features();
        let seed = superblock.checksums().seed();
        let version = HashVersion::from_byte(superblock.hash_version());
        let folding = match flags.contains(InodeFlags::CASEFOLD) {
            true => superblock.folding().unwrap_or_default(),
            false => Folding::None,
        };
        DirContext {
            ino,
            generation,
            file_system_seed: seed.unwrap_or(Seed::START),
            format: superblock.dir_format(flags),
            hasher: superblock.hasher(version.unwrap_or(HashVersion::HalfMd4), folding),
            indexing: match features.compat.contains(Compat::DIR_INDEX) {
                false => Indexing::Never,
                true if flags.contains(InodeFlags::INDEX) => Indexing::Indexed,
                true => Indexing::Possible,
            },
        }
    }

    /// Returns the checksum seed of the directory's blocks.
    pub(crate) fn seed(&self) -> Seed {
        self.file_system_seed.of_inode(self.ino, self.generation)
    }

    /// Returns whether names are compared by the bytes that callers give. This is so if the
    /// directory neither ignores case nor is encrypted.
    pub fn compares_bytes(&self) -> bool {
        self.hasher.folding == Folding::None && self.format.names == NameForm::Plain
    }

    /// Returns the entry whose name is equal to `name` in this directory.
    pub(crate) fn entry<'b>(
        &self,
        block: &'b [u8],
        name: Name<'_>,
    ) -> Result<Option<Entry<'b>>, dirent::Cause> {
        match self.hasher.folding {
            Folding::None => dirent::find(&self.format, block, name),
            folding => self.folded_entry(block, name, folding),
        }
    }

    fn folded_entry<'b>(
        &self,
        block: &'b [u8],
        name: Name<'_>,
        folding: Folding,
    ) -> Result<Option<Entry<'b>>, dirent::Cause> {
        let wanted = folding.form(name.bytes());
        for entry in dirent::entries(&self.format, block)? {
            let entry = entry?;
            let is_name = entry.ino.is_some() && !entry.is_dot();
            if is_name && folding.has_form(entry.name, &wanted) {
                return Ok(Some(entry));
            }
        }
        Ok(None)
    }

    pub(crate) fn damaged(&self, block: FileBlock, cause: dirent::Cause) -> Error {
        Error::Corruption(Corruption::Directory { ino: self.ino, block, cause })
    }

    pub(crate) fn bad_index(&self, block: FileBlock, cause: htree::Cause) -> Error {
        Error::Corruption(Corruption::DirectoryIndex { ino: self.ino, block, cause })
    }
}

/// Returns the first block of a new directory whose inode is `cx.ino`.
pub fn new_directory(cx: &DirContext, parent: Ino) -> Arc<[u8]> {
    dirent::new_directory(&cx.format, cx.ino, parent).into()
}

/// Sets the checksum of a directory block of any kind; without `metadata_csum` does nothing.
pub fn seal(cx: &DirContext, block: &mut [u8]) {
    if !cx.format.has_checksums {
        return;
    }
    match htree::shape(&cx.format, block) {
        // An index block with wrong counts has no place for a checksum, and stays as it is.
        Some(kind) => drop(htree::seal(&cx.format, kind, cx.seed(), block)),
        None => dirent::seal(&cx.format, cx.seed(), block),
    }
}

/// Checks block `n` of a directory after the block was read from disk: its checksum, and either all
/// its records or the head of the index.
pub fn verify(cx: &DirContext, n: FileBlock, block: &[u8]) -> Result<(), Error> {
    match kind(cx, n, block) {
        Some(kind) => verify_index(cx, n, kind, block),
        None => verify_leaf(cx, n, block),
    }
}

/// Returns whether block `n` of a directory contains names, which means that it is not a block of
/// the index.
pub fn has_names(cx: &DirContext, n: FileBlock, block: &[u8]) -> bool {
    kind(cx, n, block).is_none()
}

fn kind(cx: &DirContext, n: FileBlock, block: &[u8]) -> Option<Kind> {
    match (cx.indexing, n) {
        (Indexing::Never | Indexing::Possible, _) => None,
        (Indexing::Indexed, FileBlock(0)) => Some(Kind::Root),
        (Indexing::Indexed, _) => {
            htree::shape(&cx.format, block).filter(|&kind| kind == Kind::Node)
        }
    }
}

fn verify_index(cx: &DirContext, n: FileBlock, kind: Kind, block: &[u8]) -> Result<(), Error> {
    let checked = match kind {
        Kind::Root => htree::root(&cx.format, block).map(|_| ()),
        // Without checksums the block is not checked as a node, because an empty leaf has the same
        // shape.
        Kind::Node if !cx.format.has_checksums => Ok(()),
        Kind::Node => htree::node(&cx.format, block).map(|_| ()),
    };
    checked
        .and_then(|()| htree::verify(&cx.format, kind, cx.seed(), block))
        .map_err(|cause| cx.bad_index(n, cause))
}

fn verify_leaf(cx: &DirContext, n: FileBlock, block: &[u8]) -> Result<(), Error> {
    let check = || {
        dirent::verify(&cx.format, cx.seed(), block)?;
        if n == FileBlock(0) {
            dirent::dots(&cx.format, block)?;
        }
        dirent::entries(&cx.format, block)?.try_for_each(|entry| entry.map(|_| ()))
    };
    check().map_err(|cause| cx.damaged(n, cause))
}

// Visits the entries of one block, without "." and "..".

/// Calls `each` for every entry that is in use in a linear block or a leaf, except "." and "..".
/// These must be the first two entries of a linear directory's first block, and may be nowhere
/// else. Goes on behind a fault, and returns the first one.
pub(crate) fn for_each_name<'a>(
    cx: &DirContext,
    n: FileBlock,
    block: &'a [u8],
    mut each: impl FnMut(&Entry<'a>) -> Result<(), Error>,
) -> Result<(), Error> {
    let damaged = |cause| cx.damaged(n, cause);
    let starts_directory = n == FileBlock(0) && cx.indexing != Indexing::Indexed;
    let (names_begin, mut fault) = match starts_directory.then(|| dirent::dots(&cx.format, block)) {
        Some(Ok((_, dot_dot))) => (dot_dot.offset + 1, Ok(())),
        Some(Err(cause)) => (0, Err(cause)),
        None => (0, Ok(())),
    };
    for entry in dirent::entries(&cx.format, block).map_err(damaged)? {
        match entry {
            Ok(entry) if entry.ino.is_none() || entry.offset < names_begin => {}
            Ok(Entry { offset, name: b"." | b"..", .. }) => {
                fault = fault.and(Err(Cause::MisplacedDot { offset }));
            }
            Ok(entry) => each(&entry)?,
            Err(cause) => fault = fault.and(Err(cause)),
        }
    }
    fault.map_err(damaged)
}

// The planned changes of a directory.

/// The largest number of blocks that one [`Plan`] updates: a leaf and three levels of index.
pub const MOST_UPDATED: usize = 4;
/// The largest number of blocks that one [`Plan`] appends: a leaf, and a node for each level.
pub const MOST_APPENDED: usize = 4;

/// The changes of a directory.
#[derive(Debug, Clone, Default)]
pub struct Plan {
    /// New contents of existing blocks; each block at most once.
    pub updates: Vec<(FileBlock, Arc<[u8]>)>,
    /// Blocks to append, in this order: the first becomes block [`DirBlocks::count`].
    pub appended: Vec<Arc<[u8]>>,
    /// Whether the directory's inode gets the index flag (`EXT4_INDEX_FL`).
    pub becomes_indexed: bool,
}

impl Plan {
    /// Creates a plan that changes one block.
    pub(crate) fn update(n: FileBlock, block: Arc<[u8]>) -> Plan {
        Plan { updates: vec![(n, block)], ..Plan::default() }
    }
}

/// Blocks to append. Their numbers follow those of the existing blocks.
pub(crate) struct Growth {
    count: u32,
    most: u32,
    pub(crate) appended: Vec<Arc<[u8]>>,
}

impl Growth {
    /// Creates an empty list for the directory of `blocks`. Two limits apply to the number of
    /// blocks: without `large_dir` the size of a directory is a 32-bit number, and in every case an
    /// index entry has 28 bits for a block number.
    pub(crate) fn new(cx: &DirContext, blocks: &dyn DirBlocks) -> Growth {
        let most = match cx.format.has_large_dirs {
            true => htree::MAX_CHILD.0,
            false => u32::MAX >> cx.format.block_size.bits(),
        };
        Growth { count: blocks.count(), most: most.min(htree::MAX_CHILD.0), appended: Vec::new() }
    }

    /// Appends a block and returns its number.
    pub(crate) fn push(&mut self, block: Vec<u8>) -> Result<FileBlock, Error> {
        let n = self.next()?;
        self.appended.push(block.into());
        Ok(n)
    }

    /// Returns the number of the next block.
    pub(crate) fn next(&self) -> Result<FileBlock, Error> {
        let appended = u32::try_from(self.appended.len()).unwrap_or(u32::MAX);
        match self.count.checked_add(appended) {
            Some(n) if n < self.most => Ok(FileBlock(n)),
            _ => Err(Error::NoSpace),
        }
    }
}
