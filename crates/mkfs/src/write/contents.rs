//! Writes the metadata of the tree's files: directories, attributes, extents, long symbolic links.

use crate::layout::{File, ino_of, lost_and_found_blocks};
use crate::maps::BlockMap;
use crate::options::OnLoss;
use crate::report::{FileFault, MkfsError};
use crate::tree::{LOST_AND_FOUND, NewContent, NewFile, NewTree, ROOT};
use crate::write::directory::Directory;
use crate::write::format::{BlockWriter, Format};
use lanefs_ondisk::acl::Acl;
use lanefs_ondisk::extent::{Extent, State};
use lanefs_ondisk::inode::{DeviceNumber, Inode, InodeFlags};
use lanefs_ondisk::xattr::{Attribute, AttributeName, Value};
use lanefs_ondisk::{Block, FileBlock, FileType, Ino, Time, extent, xattr};
use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;

/// The largest link count that is stored for a file or a directory.
const MOST_LINKS: u32 = 65_000;
/// Longest target that is stored in the inode.
const FAST_TARGET: usize = 59;

/// An inode, except for its number, with the bytes of its attributes.
pub(crate) struct ReadyInode {
    pub(crate) inode: Inode,
    pub(crate) attributes: Vec<u8>,
}

/// Claims blocks.
pub(crate) type Claim<'c> = dyn FnMut(u64) -> Result<Vec<Range<u64>>, MkfsError> + 'c;

/// The inodes of all files, and the properties that were left out.
pub(crate) struct Ready {
    pub(crate) inodes: Vec<ReadyInode>,
    pub(crate) losses: Vec<(usize, FileFault)>,
}

/// Writes the blocks of all files, and returns their inodes. `placed` are the first blocks of root
/// and `lost+found`, if the layout has placed them.
pub(crate) fn contents(
    out: &mut BlockWriter<'_>,
    format: &Format,
    tree: &NewTree,
    placed: [File; 2],
    claim: &mut Claim<'_>,
) -> Result<Ready, MkfsError> {
    let attributes = AttributeBlocks::default();
    let mut writer = Writer { out, format, tree, claim, attributes, losses: Vec::new() };
    let mut placed = placed.into_iter();
    let mut inodes = Vec::with_capacity(tree.files().len());
    for (index, file) in tree.files().iter().enumerate() {
        let placed = placed.next().unwrap_or_default();
        inodes.push(writer.file(index, file, placed)?);
    }
    let Writer { out, attributes, losses, .. } = writer;
    attributes.finish(out, format)?;
    Ok(Ready { inodes, losses })
}

struct Writer<'w, 'd, 'c> {
    out: &'w mut BlockWriter<'d>,
    format: &'w Format,
    tree: &'w NewTree,
    claim: &'w mut Claim<'c>,
    attributes: AttributeBlocks,
    losses: Vec<(usize, FileFault)>,
}

impl Writer<'_, '_, '_> {
    fn file(
        &mut self,
        index: usize,
        file: &NewFile,
        placed: File,
    ) -> Result<ReadyInode, MkfsError> {
        let wrong = |fault| MkfsError::File { index, fault };
        let mut inode = self.blank(index, file).map_err(wrong)?;
        let mut blocks = match &file.content {
            NewContent::Directory { parent, entries } => {
                let subdirectories = entries.iter().filter(|(_, child)| self.is_directory(*child));
                inode.links = match u32::try_from(subdirectories.count() + 2).unwrap_or(u32::MAX) {
                    // With the feature dir_nlink, a directory's link count of 1 stands for more
                    // than `MOST_LINKS`.
                    many if many > MOST_LINKS && self.format.has_many_subdirectories => 1,
                    links if links > MOST_LINKS => {
                        return Err(wrong(FileFault::Links { links, most: MOST_LINKS }));
                    }
                    links => links as u16,
                };
                self.directory(index, *parent, entries, placed, &mut inode)?
            }
            NewContent::Regular { size, extents } => {
                let bits = self.format.block_size.bits();
                let blocks = match self.format.has_extents {
                    true => u64::from(u32::MAX),
                    false => BlockMap::most_blocks(bits).min(u32::MAX.into()),
                };
                let most = blocks << bits;
                if *size > most {
                    return Err(wrong(FileFault::Size { bytes: *size }));
                }
                inode.size = *size;
                self.out.count(blocks_of(extents) << self.format.block_size.bits());
                self.map(index, extents, &mut inode)?
            }
            NewContent::Symlink(target) => self.symlink(index, target, &mut inode)?,
            NewContent::Device(_, major, minor) => {
                if *major >= 1 << 12 || *minor >= 1 << 20 {
                    let fault = FileFault::DeviceNumber { major: *major, minor: *minor };
                    return Err(wrong(fault));
                }
                inode.set_device_number(DeviceNumber { major: *major, minor: *minor });
                0
            }
            NewContent::Empty(_) => 0,
        };
        let stored = self.store(index, &file.attributes)?;
        inode.file_acl = stored.block;
        blocks += u64::from(stored.block.is_some());
        // With `bigalloc` an inode takes whole clusters, so its number of blocks is rounded up.
        // This is right for a directory without a block of attributes. With `bigalloc` only such
        // directories occur here, because a file system with `bigalloc` cannot be created together
        // with files.
        let clusters = self.format.clusters;
        let blocks = blocks.div_ceil(clusters.blocks().into()) << clusters.bits();
        inode.sectors = blocks << (self.format.block_size.bits() - 9);
        Ok(ReadyInode { inode, attributes: stored.area })
    }

    /// Stores the attributes of a file. Leaves out attributes that cannot be stored, if the options
    /// allow that.
    fn store(
        &mut self,
        index: usize,
        attributes: &[(Vec<u8>, Vec<u8>)],
    ) -> Result<Stored, MkfsError> {
        let mut left = Cow::Borrowed(attributes);
        loop {
            let Writer { out, format, claim, attributes, .. } = self;
            let fault = match attributes.store(out, format, &left, &mut || one(claim))? {
                Ok(stored) => return Ok(stored),
                Err(fault) => fault,
            };
            let culprit = match &fault {
                FileFault::AttributeName { name } | FileFault::AccessList { name } => {
                    left.iter().position(|(known, _)| String::from_utf8_lossy(known) == *name)
                }
                _ => (0..left.len()).max_by_key(|&at| left.get(at).map(|(_, value)| value.len())),
            };
            match culprit.filter(|_| self.format.on_loss == OnLoss::Report) {
                Some(culprit) => drop(left.to_mut().remove(culprit)),
                None => return Err(MkfsError::File { index, fault }),
            }
            self.losses.push((index, fault));
        }
    }

    fn is_directory(&self, index: usize) -> bool {
        self.tree.files().get(index).is_some_and(NewFile::is_directory)
    }

    fn ino(&self, index: usize) -> Ino {
        ino_of(u32::try_from(index).unwrap_or(u32::MAX), self.format.has_orphan_file())
    }

    /// Returns the inode without contents.
    fn blank(&mut self, index: usize, file: &NewFile) -> Result<Inode, FileFault> {
        let kind = file.content.file_type();
        if file.links > MOST_LINKS && !file.is_directory() {
            return Err(FileFault::Links { links: file.links, most: MOST_LINKS });
        }
        let mut inode = Inode {
            mode: kind.mode_bits() | (file.permissions & 0o7777),
            uid: file.uid,
            gid: file.gid,
            links: file.links.min(MOST_LINKS) as u16,
            ..Inode::zeroed(self.format.extra_isize)
        };
        inode.set_atime(file.atime);
        inode.set_mtime(file.mtime);
        inode.set_ctime(file.ctime);
        inode.set_crtime(file.crtime);
        let kept = |wanted: Time, stored: Time| wanted.secs == stored.secs;
        if !kept(file.mtime, inode.mtime) || !kept(file.atime, inode.atime) {
            match self.format.on_loss {
                OnLoss::Fail => return Err(FileFault::Time),
                OnLoss::Report => self.losses.push((index, FileFault::Time)),
            }
        }
        Ok(inode)
    }

    fn directory(
        &mut self,
        index: usize,
        parent: usize,
        entries: &[(Box<[u8]>, usize)],
        placed: File,
        inode: &mut Inode,
    ) -> Result<u64, MkfsError> {
        let files = self.tree.files();
        let kind = |child: usize| files.get(child).map(|file| file.content.file_type());
        let block_size = self.format.block_size.bytes();
        let least_blocks = match index {
            LOST_AND_FOUND => lost_and_found_blocks(self.format.block_size) as usize,
            _ => 1,
        };
        let directory = Directory {
            ino: self.ino(index),
            parent: self.ino(if index == ROOT { ROOT } else { parent }),
            entries: entries
                .iter()
                .map(|(name, child)| {
                    let kind = kind(*child).unwrap_or(FileType::Regular);
                    (&**name, self.ino(*child), kind)
                })
                .collect(),
            least_blocks,
        };
        let built =
            directory.build(self.format).map_err(|fault| MkfsError::File { index, fault })?;
        let extents = self.place(&placed, built.blocks.len())?;
        for (place, block) in places(&extents).zip(&built.blocks) {
            self.out.write(place, block)?;
        }
        inode.size = (built.blocks.len() * block_size) as u64;
        let blocks = self.map(index, &extents, inode)?;
        inode.flags.set(InodeFlags::INDEX, built.is_indexed);
        Ok(blocks)
    }

    /// Returns the extents of a file of `len` blocks: first those that the layout has placed, if
    /// any, then newly claimed ones.
    fn place(&mut self, placed: &File, len: usize) -> Result<Vec<Extent>, MkfsError> {
        let mut extents = placed.extents.clone();
        let have: u64 = blocks_of(&extents);
        for run in (self.claim)((len as u64).saturating_sub(have))? {
            push_run(&mut extents, run);
        }
        Ok(extents)
    }

    /// Writes the extent tree or the block map. Returns how many blocks the tree or map and the
    /// data take together.
    fn map(
        &mut self,
        index: usize,
        extents: &[Extent],
        inode: &mut Inode,
    ) -> Result<u64, MkfsError> {
        let ino = self.ino(index);
        let Writer { out, format, claim, .. } = self;
        if !format.has_extents {
            let mut map = BlockMap::new(format.block_size.bits());
            map.fill(extents, &mut || one(claim))?;
            map.blocks().try_for_each(|(place, bytes)| out.write(place, &bytes))?;
            inode.block = map.block_field();
            return Ok(blocks_of(extents) + map.node_count());
        }
        let (seed, mut nodes) = (format.seed_of(ino), 0);
        inode.block = extent::build(extents.to_vec(), format.block_size, &mut |mut bytes| {
            if let Some(seed) = seed {
                extent::seal(&mut bytes, seed);
            }
            let place = one(claim)?;
            out.write(place, &bytes)?;
            nodes += 1;
            Ok::<_, MkfsError>(Block(place))
        })?;
        inode.flags |= InodeFlags::EXTENTS;
        Ok(blocks_of(extents) + nodes)
    }

    fn symlink(
        &mut self,
        index: usize,
        target: &[u8],
        inode: &mut Inode,
    ) -> Result<u64, MkfsError> {
        let block_size = self.format.block_size.bytes();
        // A NUL follows the target.
        let most = block_size.min(4096) - 1;
        if target.is_empty() || target.len() > most {
            let fault = FileFault::Target { len: target.len(), most };
            return Err(MkfsError::File { index, fault });
        }
        inode.size = target.len() as u64;
        if target.len() <= FAST_TARGET {
            if let Some(place) = inode.block.get_mut(..target.len()) {
                place.copy_from_slice(target);
            }
            return Ok(0);
        }
        let mut block = target.to_vec();
        block.resize(block_size, 0);
        let extents = self.place(&File::default(), 1)?;
        for place in places(&extents) {
            self.out.write(place, &block)?;
        }
        self.map(index, &extents, inode)
    }
}

fn one(claim: &mut Claim<'_>) -> Result<u64, MkfsError> {
    let runs = claim(1)?;
    runs.first().map(|run| run.start).ok_or(MkfsError::Full { bytes: 0 })
}

fn blocks_of(extents: &[Extent]) -> u64 {
    extents.iter().map(|extent| u64::from(extent.len)).sum()
}

fn places(extents: &[Extent]) -> impl Iterator<Item = u64> {
    extents.iter().flat_map(|extent| (extent.block.0..).take(extent.len as usize))
}

/// Appends a run of blocks to the extents of a file without holes.
fn push_run(extents: &mut Vec<Extent>, run: Range<u64>) {
    let most = u64::from(State::Written.max_len());
    let mut at = run.start;
    while at < run.end {
        let start = extents.last().map_or(0, Extent::end);
        let room = extents.last_mut().filter(|last| last.block.0 + u64::from(last.len) == at);
        let room = room.filter(|last| u64::from(last.len) < most);
        let len = match &room {
            Some(last) => (most - u64::from(last.len)).min(run.end - at),
            None => most.min(run.end - at),
        };
        match room {
            Some(last) => last.len += len as u32,
            None => extents.push(Extent {
                start: FileBlock(start),
                len: len as u32,
                block: Block(at),
                state: State::Written,
            }),
        }
        at += len;
    }
}

// The extended attributes of new files. Files with the same attributes share a block.

/// The largest number of inodes that may share a block; e2fsck and the kernel allow this number.
const MOST_SHARERS: u32 = 1024;

/// The attributes of one inode.
pub(crate) struct Stored {
    /// The bytes in the inode.
    pub(crate) area: Vec<u8>,
    pub(crate) block: Option<Block>,
}

/// A block of attributes that further inodes may use.
struct Shared {
    place: u64,
    users: u32,
}

/// The attribute blocks that further inodes may use, keyed by the contents of the block.
#[derive(Default)]
pub(crate) struct AttributeBlocks {
    open: HashMap<Vec<u8>, Shared>,
}

impl AttributeBlocks {
    /// Stores attributes in the given order. Each is stored in the inode if there is still room for
    /// it, otherwise in a block.
    pub(crate) fn store(
        &mut self,
        out: &mut BlockWriter<'_>,
        format: &Format,
        attributes: &[(Vec<u8>, Vec<u8>)],
        claim: &mut dyn FnMut() -> Result<u64, MkfsError>,
    ) -> Result<Result<Stored, FileFault>, MkfsError> {
        let room = format.attribute_room;
        let blank = || Stored { area: vec![0; room], block: None };
        if attributes.is_empty() {
            return Ok(Ok(blank()));
        }
        let on_disk: Result<Vec<_>, FileFault> = attributes.iter().map(on_disk).collect();
        let on_disk = match on_disk {
            Ok(on_disk) => on_disk,
            Err(fault) => return Ok(Err(fault)),
        };
        let mut here: Vec<Attribute<'_>> = Vec::new();
        let mut rest = Vec::new();
        for (name, value) in on_disk.iter().flatten() {
            let attribute = Attribute { name: *name, value: Value::Here(value) };
            here.push(attribute);
            if xattr::encode_inode(room, &here).is_none() || room < 4 {
                rest.extend(here.pop());
            }
        }
        let area = xattr::encode_inode(room, &here).unwrap_or_else(|| vec![0; room]);
        if rest.is_empty() {
            return Ok(Ok(Stored { area, block: None }));
        }
        let Some(block) = xattr::encode_block(format.block_size.bytes(), &rest) else {
            let bytes = attributes.iter().map(|(name, value)| name.len() + value.len()).sum();
            let most = format.block_size.bytes();
            return Ok(Err(FileFault::Attributes { bytes, most }));
        };
        let place = self.place(out, format, block, claim)?;
        Ok(Ok(Stored { area, block: Some(Block(place)) }))
    }

    fn place(
        &mut self,
        out: &mut BlockWriter<'_>,
        format: &Format,
        block: Vec<u8>,
        claim: &mut dyn FnMut() -> Result<u64, MkfsError>,
    ) -> Result<u64, MkfsError> {
        if let Some(shared) = self.open.get_mut(&block) {
            shared.users += 1;
            let place = shared.place;
            if shared.users == MOST_SHARERS {
                let shared = self.open.remove_entry(&block);
                shared
                    .into_iter()
                    .try_for_each(|(block, shared)| seal(out, format, block, &shared))?;
            }
            return Ok(place);
        }
        let place = claim()?;
        self.open.insert(block, Shared { place, users: 1 });
        Ok(place)
    }

    /// Writes all blocks that are not written yet.
    pub(crate) fn finish(
        self,
        out: &mut BlockWriter<'_>,
        format: &Format,
    ) -> Result<(), MkfsError> {
        let mut open: Vec<_> = self.open.into_iter().collect();
        open.sort_by_key(|(_, shared)| shared.place);
        open.into_iter().try_for_each(|(block, shared)| seal(out, format, block, &shared))
    }
}

fn seal(
    out: &mut BlockWriter<'_>,
    format: &Format,
    mut block: Vec<u8>,
    shared: &Shared,
) -> Result<(), MkfsError> {
    xattr::set_refcount(&mut block, shared.users);
    if let Some(seed) = format.checksums.seed() {
        xattr::seal(seed, Block(shared.place), &mut block);
    }
    out.write(shared.place, &block)
}

type OnDisk<'a> = (AttributeName<'a>, Vec<u8>);

/// Returns the attribute as ext4 stores it; `None` for an empty access control list.
fn on_disk((name, value): &(Vec<u8>, Vec<u8>)) -> Result<Option<OnDisk<'_>>, FileFault> {
    let shown = || String::from_utf8_lossy(name).into_owned();
    let parsed =
        AttributeName::parse(name).map_err(|_| FileFault::AttributeName { name: shown() })?;
    if ![AttributeName::acl_access(), AttributeName::acl_default()].contains(&parsed) {
        return Ok(Some((parsed, value.clone())));
    }
    let list = Acl::from_system(value).map_err(|_| FileFault::AccessList { name: shown() })?;
    Ok(list.map(|list| (parsed, list.to_disk())))
}
