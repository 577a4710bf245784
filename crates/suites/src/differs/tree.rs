//! The tree of an image, keyed by inode numbers. It is read with the decoders of `lanefs_ondisk`
//! alone, so neither the checker nor the code that mounts images can hide a loss.

use crate::formats::debugfs;
use crate::image::Image;
use lanefs_device::Device;
use lanefs_ondisk::checksum::Checksums;
use lanefs_ondisk::extent::{self, Entries, Expected, Node as ExtentNode, NodePosition, State};
use lanefs_ondisk::group_desc::{GroupDesc, GroupFlags};
use lanefs_ondisk::inode::{Inode, InodeFlags};
use lanefs_ondisk::superblock::{Geometry, Superblock};
use lanefs_ondisk::xattr::{self, Attribute, Value};
use lanefs_ondisk::{Block, FileType, Group, Ino, Time};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// A name in a directory: the directory's inode number, and the bytes of the name.
pub type Name = (u32, Vec<u8>);

/// An inode in use.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[allow(missing_docs)] // as in stat(2)
pub struct Node {
    pub mode: u16,
    pub uid: u32,
    pub gid: u32,
    pub project: u32,
    pub size: u64,
    pub times: [Option<Time>; 4],
    pub links: u16,
    pub flags: u32,
    pub generation: u32,
    /// The field `i_block` of an inode that maps no blocks: a link's target, a device number.
    pub field: Vec<u8>,
    /// The hash of each value, by the prefix and the rest of the name.
    pub xattrs: BTreeMap<(u8, Vec<u8>), u64>,
    /// The hash of each block of data that is not all zeros. Inline data counts as block 0.
    pub data: BTreeMap<u32, u64>,
    /// Whether the mapping or the attributes cannot be decoded.
    pub is_unreadable: bool,
    /// The byte ranges of the image that hold the inode, its mapping and its attributes, and the
    /// data of a file.
    pub ranges: Vec<Range<u64>>,
}

/// A tree.
#[derive(Debug, Clone, Default)]
pub struct Tree {
    /// All inodes in use, by number.
    pub nodes: BTreeMap<u32, Node>,
    /// The inode of each name, and the byte range of the image that holds the entry's block.
    pub names: BTreeMap<Name, (u32, Range<u64>)>,
    /// The first inode number of files.
    pub first: u32,
    /// The number of blocks.
    pub blocks: u64,
    /// The size of a block in bytes.
    pub block_size: usize,
    /// The inodes that a path from the root leads to.
    pub reachable: BTreeSet<u32>,
}

impl Tree {
    /// Reads the tree of an image. Returns `None` if it has no valid superblock or descriptors.
    pub fn of(device: &dyn Device) -> Option<Tree> {
        let mut bytes = [0; 1024];
        device.read_at(1024, &mut bytes).ok()?;
        // e2fsck leaves a device beside a journal's inode, and the number of an orphan that is none.
        let unread = if bytes[0xe0..0xe4] == [0; 4] { 0xe8..0xec } else { 0xe4..0xec };
        bytes[unread].fill(0);
        let superblock = Superblock::decode_torn(&bytes).ok()?;
        let geometry = superblock.geometry();
        let reader = Reader { device, geometry };
        let (first, blocks) = (geometry.first_ino().0, geometry.block_count());
        let block_size = geometry.block_size().bytes();
        let mut tree = Tree { first, blocks, block_size, ..Tree::default() };
        for group in (0..geometry.group_count()).map(Group) {
            let (index, range) = geometry.desc_place(group)?;
            let block = reader.block(geometry.desc_block(index)?)?;
            let desc = GroupDesc::decode_unchecked(block.get(range)?, &geometry).ok()?;
            let has_flags = geometry.features().has_descriptor_checksums();
            if has_flags && desc.flags.contains(GroupFlags::INODE_UNINIT) {
                continue;
            }
            for index in 0..geometry.inodes_per_group() {
                let ino = geometry.ino_at(group, index)?;
                reader.inode(&desc, ino, &mut tree);
            }
        }
        tree.reachable = tree.reach();
        Some(tree)
    }

    /// Returns the inode of `lost+found`.
    pub fn lost_and_found(&self) -> Option<u32> {
        self.names.get(&(2, b"lost+found".to_vec())).map(|(ino, _)| *ino)
    }

    /// Compares the tree with what debugfs shows: names, modes, owners, sizes, and the data of small
    /// files. Returns the first difference.
    pub fn differs_from_debugfs(&self, image: &Image) -> Option<String> {
        let is_dir = |ino: &&u32| self.nodes[ino].mode & 0xf000 == 0x4000;
        let dirs = self.reachable.iter().filter(is_dir);
        let listed = debugfs::listed(image, dirs.map(|ino| u64::from(*ino)));
        for (dir, shown) in &listed {
            let dir = *dir as u32;
            let own = self.names.range((dir, Vec::new())..(dir + 1, Vec::new()));
            if own.count() != shown.len() {
                return Some(format!("{} names in inode {dir}", shown.len()));
            }
            for (name, shown) in shown {
                let ino = self.names.get(&(dir, name.clone())).map(|(ino, _)| *ino);
                let node = ino.and_then(|ino| self.nodes.get(&ino));
                let is_same = node.is_some_and(|node| {
                    (ino.map(u64::from), node.mode) == (Some(shown.ino), shown.mode)
                        && (node.uid, node.gid) == (shown.uid, shown.gid)
                        && shown.size.is_none_or(|size| size == node.size)
                });
                if !is_same {
                    return Some(format!("inode {} in {dir}", shown.ino));
                }
            }
        }
        let is_small = |node: &Node| node.mode & 0xf000 == 0x8000 && node.size <= debugfs::LARGEST;
        let small = self.reachable.iter().filter(|ino| is_small(&self.nodes[ino]));
        let small: Vec<u64> = small.map(|ino| u64::from(*ino)).collect();
        let mut different = None;
        debugfs::dumped(image, &small, &mut |ino, bytes| {
            let node = &self.nodes[&(ino as u32)];
            let mut data = BTreeMap::new();
            let bytes = &bytes[..bytes.len().min(node.size as usize)];
            let piece = if node.flags & 0x1000_0000 != 0 { usize::MAX } else { self.block_size };
            for (n, piece) in bytes.chunks(piece).enumerate() {
                add(&mut data, n as u32, piece);
            }
            if data != node.data {
                different.get_or_insert(format!("data of inode {ino}"));
            }
        });
        different
    }

    fn reach(&self) -> BTreeSet<u32> {
        let (mut found, mut todo) = (BTreeSet::from([2]), vec![2]);
        while let Some(dir) = todo.pop() {
            let names = self.names.range((dir, Vec::new())..(dir + 1, Vec::new()));
            for (_, (ino, _)) in names {
                if self.nodes.contains_key(ino) && found.insert(*ino) {
                    todo.push(*ino);
                }
            }
        }
        found
    }
}

struct Reader<'a> {
    device: &'a dyn Device,
    geometry: Geometry,
}

/// The blocks of a file: the number in the file, and the block of the image.
type Data = Vec<(u32, Block)>;

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

    fn record(&self, desc: &GroupDesc, ino: Ino) -> Option<(u64, Vec<u8>)> {
        let place = self.geometry.inode_place(ino)?;
        let table = Block(desc.inode_table.0 + u64::from(place.table_block));
        let at = self.range(table).start + place.offset as u64;
        let mut record = vec![0; self.geometry.inode_size()];
        self.device.read_at(at, &mut record).ok()?;
        Some((at, record))
    }

    fn inode(&self, desc: &GroupDesc, ino: Ino, tree: &mut Tree) {
        let Some((at, record)) = self.record(desc, ino) else { return };
        let Some(inode) = Inode::decode_unchecked(&record, &self.geometry) else { return };
        if inode.links == 0 {
            return;
        }
        let kind = inode.file_type();
        let mut node = Node {
            mode: inode.mode,
            uid: inode.uid,
            gid: inode.gid,
            project: inode.projid,
            size: inode.size,
            times: [Some(inode.atime), Some(inode.mtime), Some(inode.ctime), inode.crtime],
            links: inode.links,
            flags: inode.flags.bits(),
            generation: inode.generation,
            ranges: std::iter::once(at..at + record.len() as u64).collect(),
            ..Node::default()
        };
        let inline = self.attributes(&inode, &record, &mut node);
        node.is_unreadable |= inline.is_none();
        let inline = inline.unwrap_or_default();
        let is_dir = kind == Some(FileType::Directory);
        if inode.flags.contains(InodeFlags::INLINE_DATA) {
            if is_dir {
                let parts = [inode.block.get(4..).unwrap_or_default(), &inline[..]];
                parts.iter().for_each(|part| self.names(ino, part, at..at + 1, tree));
            } else {
                let mut bytes = [&inode.block[..], &inline].concat();
                bytes.truncate(usize::try_from(inode.size).unwrap_or(usize::MAX));
                add(&mut node.data, 0, &bytes);
            }
        } else if inode.fast_symlink(&self.geometry).is_some()
            || !kind.is_some_and(|kind| kind.is_file() || kind.is_symlink() || kind.is_dir())
        {
            node.field = inode.block.to_vec();
        } else {
            let data = self.data(&inode, &mut node.ranges);
            node.is_unreadable |= data.is_none();
            for (n, block) in data.unwrap_or_default() {
                let range = self.range(block);
                let start = range.end.saturating_sub(range.start) * u64::from(n);
                let left = usize::try_from(inode.size.saturating_sub(start)).unwrap_or(usize::MAX);
                let Some(mut bytes) = self.block(block) else {
                    node.is_unreadable = true;
                    continue;
                };
                if is_dir {
                    self.names(ino, &bytes, range, tree);
                } else {
                    bytes.truncate(left);
                    add(&mut node.data, n, &bytes);
                    node.ranges.push(range);
                }
            }
        }
        tree.nodes.insert(ino.0, node);
    }

    /// Adds the attributes to the node. Returns the inline data that is among them.
    fn attributes(&self, inode: &Inode, record: &[u8], node: &mut Node) -> Option<Vec<u8>> {
        let mut inline = Vec::new();
        let area = inode.xattr_area(&self.geometry).and_then(|area| record.get(area));
        let inside = xattr::decode_inode(area.unwrap_or_default());
        let mut is_whole = inside.is_ok();
        for attribute in inside.unwrap_or_default() {
            if attribute.name == xattr::AttributeName::inline_data() {
                if let Value::Here(bytes) = attribute.value {
                    inline = bytes.to_vec();
                }
            } else {
                is_whole &= self.attribute(&attribute, node);
            }
        }
        if let Some(place) = inode.file_acl {
            node.ranges.push(self.range(place));
            let bytes = self.block(place)?;
            let block = xattr::decode_block(&bytes).ok()?;
            for attribute in &block.attributes {
                is_whole &= self.attribute(attribute, node);
            }
        }
        is_whole.then_some(inline)
    }

    fn attribute(&self, attribute: &Attribute<'_>, node: &mut Node) -> bool {
        let key = (attribute.name.index, attribute.name.rest.to_vec());
        let value = match attribute.value {
            Value::Here(bytes) => Some(hash(bytes)),
            Value::Inode { ino, size, .. } => self.value(ino, size, node),
        };
        node.xattrs.insert(key, value.unwrap_or_default());
        value.is_some()
    }

    /// Returns the hash of a value that is in an inode of its own.
    fn value(&self, ino: Ino, size: u32, node: &mut Node) -> Option<u64> {
        let place = self.geometry.inode_place(ino)?;
        let (index, range) = self.geometry.desc_place(place.group)?;
        let block = self.block(self.geometry.desc_block(index)?)?;
        let desc = GroupDesc::decode_unchecked(block.get(range)?, &self.geometry).ok()?;
        let (at, record) = self.record(&desc, ino)?;
        node.ranges.push(at..at + record.len() as u64);
        let inode = Inode::decode(&record, ino, &self.geometry, Checksums::None).ok()?;
        let mut bytes = Vec::new();
        for (_, block) in self.data(&inode, &mut node.ranges)? {
            node.ranges.push(self.range(block));
            bytes.extend(self.block(block)?);
        }
        bytes.get(..size as usize).map(hash)
    }

    /// Adds the names in a block or an inline area, except `.` and `..`. An entry that is cut off
    /// ends the block.
    fn names(&self, dir: Ino, bytes: &[u8], range: Range<u64>, tree: &mut Tree) {
        let mut at = 0;
        while let Some(head) = bytes.get(at..at + 8) {
            let ino = u32::from_le_bytes([head[0], head[1], head[2], head[3]]);
            let len = match u16::from_le_bytes([head[4], head[5]]) {
                0 | 0xffff if bytes.len() > 0xffff => 1 << 16,
                len if bytes.len() > 0xffff => {
                    usize::from(len & 0xfffc) | usize::from(len & 3) << 16
                }
                len => usize::from(len),
            };
            let Some(name) = bytes.get(at + 8..at + 8 + usize::from(head[6])) else { return };
            if len < 8 || at + len > bytes.len() {
                return;
            }
            if ino != 0 && name != b"." && name != b".." {
                tree.names.insert((dir.0, name.to_vec()), (ino, range.clone()));
            }
            at += len;
        }
    }

    fn data(&self, inode: &Inode, ranges: &mut Vec<Range<u64>>) -> Option<Data> {
        let mut data = Vec::new();
        if inode.flags.contains(InodeFlags::EXTENTS) {
            self.node(&inode.block, NodePosition::Root, 0..extent::END, ranges, &mut data)?;
        } else {
            let per_block = self.geometry.block_size().bytes() as u64 / 4;
            for (n, word) in (0u64..).zip(inode.block.as_chunks().0) {
                let levels = n.saturating_sub(11) as u32;
                let from = match levels {
                    0 => n,
                    1 => 12,
                    2 => 12 + per_block,
                    _ => 12 + per_block + per_block.pow(2),
                };
                self.pointer(u32::from_le_bytes(*word), levels, from, ranges, &mut data)?;
            }
        }
        Some(data)
    }

    fn node(
        &self,
        bytes: &[u8],
        position: NodePosition,
        range: Range<u32>,
        ranges: &mut Vec<Range<u64>>,
        data: &mut Data,
    ) -> Option<()> {
        let space = 1..self.geometry.block_count();
        let expected = Expected { position, range: range.clone(), space };
        let node = ExtentNode::decode(bytes, &expected).ok()?;
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
                    ranges.push(self.range(child.child));
                    let end = children.get(n + 1).map_or(range.end, |next| next.start.0);
                    let depth = NodePosition::Depth(node.depth - 1);
                    let below = self.block(child.child)?;
                    self.node(&below, depth, child.start.0..end, ranges, data)?;
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
        ranges: &mut Vec<Range<u64>>,
        data: &mut Data,
    ) -> Option<()> {
        let block = Block(pointer.into());
        if pointer == 0 {
            return Some(());
        }
        let Some(below) = levels.checked_sub(1) else {
            data.push((u32::try_from(from).ok()?, block));
            return Some(());
        };
        ranges.push(self.range(block));
        let bytes = self.block(block)?;
        let each = (bytes.len() as u64 / 4).pow(below);
        for (n, word) in (0u64..).zip(bytes.as_chunks().0) {
            self.pointer(u32::from_le_bytes(*word), below, from + n * each, ranges, data)?;
        }
        Some(())
    }
}

/// Adds the hash of a block, unless its bytes are all zeros.
fn add(data: &mut BTreeMap<u32, u64>, n: u32, bytes: &[u8]) {
    let end = bytes.iter().rposition(|byte| *byte != 0);
    if let Some(end) = end {
        data.insert(n, hash(&bytes[..=end]));
    }
}

fn hash(bytes: &[u8]) -> u64 {
    let mix =
        |hash: u64, word: u64| (hash.rotate_left(23) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let (words, rest) = bytes.as_chunks();
    let hash =
        words.iter().fold(bytes.len() as u64, |hash, word| mix(hash, u64::from_le_bytes(*word)));
    rest.iter().fold(hash, |hash, byte| mix(hash, u64::from(*byte)))
}
