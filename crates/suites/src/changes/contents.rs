//! The contents of all files of an image, keyed by inode number. They are read with the decoders of
//! `lanefs_ondisk` alone.

use lanefs_device::Device;
use lanefs_ondisk::checksum::Checksums;
use lanefs_ondisk::extent::{self, Entries, Expected, Node, NodePosition, State};
use lanefs_ondisk::group_desc::{GroupDesc, GroupFlags};
use lanefs_ondisk::inode::{Inode, InodeFlags};
use lanefs_ondisk::superblock::{Geometry, Superblock};
use lanefs_ondisk::{Block, FileBlock, FileType, Group, Ino};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;

/// The contents of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Content {
    mode: u16,
    size: u64,
    hash: u64,
}

/// The contents of a file, and the byte ranges of the image that hold the file's metadata.
#[derive(Debug, Clone)]
pub struct File {
    /// The file's contents.
    pub content: Content,
    /// The file's inode, and the blocks of its mapping.
    pub metadata: Vec<Range<u64>>,
}

/// Reads all regular files and symbolic links that have a name. Leaves out the orphan file and
/// quota files, which have no name.
pub fn files(device: &dyn Device) -> Option<BTreeMap<Ino, File>> {
    let mut bytes = [0; 1024];
    device.read_at(1024, &mut bytes).ok()?;
    let superblock = Superblock::decode(&bytes).ok()?;
    let geometry = superblock.geometry();
    let (orphans, quotas) = (superblock.orphan_file(), superblock.quota_files());
    let reader = Reader { device, geometry };
    let mut files = BTreeMap::new();
    for group in (0..geometry.group_count()).map(Group) {
        let (index, range) = geometry.desc_place(group)?;
        let block = reader.block(geometry.desc_block(index)?)?;
        let desc = GroupDesc::decode_unchecked(block.get(range)?, &geometry).ok()?;
        let is_uninit = desc.flags.contains(GroupFlags::INODE_UNINIT)
            && geometry.features().has_descriptor_checksums();
        if is_uninit {
            continue;
        }
        for index in 0..geometry.inodes_per_group() {
            let ino = geometry.ino_at(group, index)?;
            if ino >= geometry.first_ino()
                && Some(ino) != orphans
                && !quotas.contains(&Some(ino))
                && let Some(file) = reader.file(&desc, ino)
            {
                files.insert(ino, file);
            }
        }
    }
    Some(files)
}

struct Reader<'a> {
    device: &'a dyn Device,
    geometry: Geometry,
}

impl Reader<'_> {
    fn block(&self, block: Block) -> Option<Vec<u8>> {
        let mut bytes = vec![0; self.geometry.block_size().bytes()];
        self.device.read_at(block.0 << self.geometry.block_size().bits(), &mut bytes).ok()?;
        Some(bytes)
    }

    fn range(&self, block: Block) -> Range<u64> {
        let bits = self.geometry.block_size().bits();
        block.0 << bits..(block.0 + 1) << bits
    }

    fn file(&self, desc: &GroupDesc, ino: Ino) -> Option<File> {
        let place = self.geometry.inode_place(ino)?;
        let table = Block(desc.inode_table.0 + u64::from(place.table_block));
        let at = self.range(table).start + place.offset as u64;
        let mut record = vec![0; self.geometry.inode_size()];
        self.device.read_at(at, &mut record).ok()?;
        let inode = Inode::decode(&record, ino, &self.geometry, Checksums::None).ok()?;
        let kind = inode.file_type()?;
        if inode.links == 0 || ![FileType::Regular, FileType::Symlink].contains(&kind) {
            return None;
        }
        let mut metadata: Vec<Range<u64>> = std::iter::once(at..at + record.len() as u64).collect();
        let mut hasher = DefaultHasher::new();
        let is_inline = inode.flags.contains(InodeFlags::INLINE_DATA);
        if is_inline || inode.fast_symlink(&self.geometry).is_some() {
            (&inode.block, record.get(160..)).hash(&mut hasher);
        } else {
            let data = self.data(&inode, &mut metadata)?;
            self.hash(&data, inode.size, &mut hasher)?;
        }
        let (mode, size, hash) = (inode.mode, inode.size, hasher.finish());
        Some(File { content: Content { mode, size, hash }, metadata })
    }

    fn hash(&self, data: &[(u32, Block)], size: u64, hasher: &mut DefaultHasher) -> Option<()> {
        for (at, block) in data {
            let start = u64::from(*at) << self.geometry.block_size().bits();
            let left = usize::try_from(size.saturating_sub(start)).ok()?;
            let bytes = self.block(*block)?;
            let bytes = &bytes[..left.min(bytes.len())];
            if bytes.iter().any(|byte| *byte != 0) {
                (at, bytes).hash(hasher);
            }
        }
        Some(())
    }

    fn data(&self, inode: &Inode, metadata: &mut Vec<Range<u64>>) -> Option<Vec<(u32, Block)>> {
        let mut data = Vec::new();
        if inode.flags.contains(InodeFlags::EXTENTS) {
            let root = NodePosition::Root;
            self.node(&inode.block, root, 0..extent::END, metadata, &mut data)?;
        } else {
            for (n, word) in (0u64..).zip(inode.block.as_chunks().0) {
                let levels = n.saturating_sub(11) as u32;
                let per_block = self.geometry.block_size().bytes() as u64 / 4;
                let from = match levels {
                    0 => n,
                    1 => 12,
                    2 => 12 + per_block,
                    _ => 12 + per_block + per_block.pow(2),
                };
                self.pointer(u32::from_le_bytes(*word), levels, from, metadata, &mut data)?;
            }
        }
        Some(data)
    }

    fn node(
        &self,
        bytes: &[u8],
        position: NodePosition,
        range: Range<u32>,
        metadata: &mut Vec<Range<u64>>,
        data: &mut Vec<(u32, Block)>,
    ) -> Option<()> {
        let space = 1..self.geometry.block_count();
        let expected = Expected { position, range: range.clone(), space };
        let node = Node::decode(bytes, &expected).ok()?;
        match node.entries {
            Entries::Leaf(extents) => {
                for extent in extents.iter().filter(|extent| extent.state == State::Written) {
                    let blocks = (0..extent.len)
                        .map(|n| (extent.start.0 + n, Block(extent.block.0 + u64::from(n))));
                    data.extend(blocks);
                }
            }
            Entries::Index(children) => {
                for (n, child) in children.iter().enumerate() {
                    metadata.push(self.range(child.child));
                    let end = children.get(n + 1).map_or(range.end, |next| next.start.0);
                    let FileBlock(start) = child.start;
                    let depth = NodePosition::Depth(node.depth - 1);
                    self.node(&self.block(child.child)?, depth, start..end, metadata, data)?;
                }
            }
        }
        Some(())
    }

    fn pointer(
        &self,
        pointer: u32,
        levels: u32,
        from: u64,
        metadata: &mut Vec<Range<u64>>,
        data: &mut Vec<(u32, Block)>,
    ) -> Option<()> {
        let block = Block(pointer.into());
        if pointer == 0 {
            return Some(());
        }
        let Some(below) = levels.checked_sub(1) else {
            data.push((u32::try_from(from).ok()?, block));
            return Some(());
        };
        metadata.push(self.range(block));
        let bytes = self.block(block)?;
        let each = (bytes.len() as u64 / 4).pow(below);
        for (n, word) in (0u64..).zip(bytes.as_chunks().0) {
            self.pointer(u32::from_le_bytes(*word), below, from + n * each, metadata, data)?;
        }
        Some(())
    }
}
