//! The metadata of a clean image, part by part, and the checksum of each part.
//!
//! The parts are found with the decoders of `lanefs_ondisk` alone, without the checker. The
//! positions of checksums are from the kernel documentation, "Checksums".

use lanefs_device::Device;
use lanefs_ondisk::checksum::{Checksums, Crc16};
use lanefs_ondisk::dirent::{self, DirFormat};
use lanefs_ondisk::extent::{Entries, Expected, Node, NodePosition};
use lanefs_ondisk::features::Compat;
use lanefs_ondisk::group_desc::{GroupDesc, GroupFlags};
use lanefs_ondisk::htree::{self, Kind as IndexKind};
use lanefs_ondisk::inode::{self, Inode, InodeFlags};
use lanefs_ondisk::orphan::{self, OrphanSeed};
use lanefs_ondisk::superblock::{Geometry, Superblock};
use lanefs_ondisk::{Block, FileBlock, FileType, Group, Ino, extent, xattr};

/// The kind of a part, with the numbers that the checksum of the part depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)] // the fields state which group, inode or block the part belongs to
pub enum Kind {
    Superblock,
    Descriptor { group: Group },
    BlockBitmap { group: Group },
    InodeBitmap { group: Group },
    Inode { ino: Ino },
    Node { ino: Ino, generation: u32 },
    Pointers,
    Leaf { ino: Ino, generation: u32 },
    Index { ino: Ino, generation: u32, root: bool },
    Attributes { block: Block },
    Orphans { ino: Ino, generation: u32, block: Block },
    Log,
    Quotas,
}

/// A part of the metadata.
#[derive(Debug, Clone, Copy)]
pub struct Part {
    /// The kind of structure that the part belongs to.
    pub kind: Kind,
    /// The byte offset of the part in the image.
    pub at: u64,
    /// The length of the part in bytes.
    pub len: usize,
}

/// The parts of an image.
pub struct Parts {
    /// The parts, in the order of the kinds.
    pub all: Vec<Part>,
    geometry: Geometry,
    checksums: Checksums,
    format: DirFormat,
    descriptors: Vec<u64>,
}

impl Parts {
    /// Finds the parts of a clean image.
    pub fn of(device: &dyn Device) -> Parts {
        let superblock = superblock_of(device);
        let geometry = superblock.geometry();
        let format = superblock.dir_format(InodeFlags::empty());
        let checksums = superblock.checksums();
        let parts = Parts { all: Vec::new(), geometry, checksums, format, descriptors: Vec::new() };
        let mut finder = Finder { device, superblock: &superblock, parts };
        finder.find();
        finder.parts
    }

    /// Keeps only the parts of quota files, and the superblock, which refers to these files.
    pub fn retain_quotas(&mut self, device: &dyn Device) {
        let files = superblock_of(device).quota_files();
        self.all.retain(|part| match part.kind {
            Kind::Superblock | Kind::Quotas => true,
            Kind::Inode { ino } | Kind::Node { ino, .. } => files.contains(&Some(ino)),
            _ => false,
        });
    }

    /// Sets the checksum of a part in `bytes`. The checksum of a bitmap is in the group's
    /// descriptor, so for a bitmap this function returns a change to the descriptor instead.
    pub fn seal(
        &self,
        device: &dyn Device,
        part: &Part,
        bytes: &mut [u8],
    ) -> Option<(u64, Vec<u8>)> {
        let seed = self.checksums.seed();
        match part.kind {
            Kind::Superblock => {
                if seed.is_some() {
                    let sum = lanefs_ondisk::checksum::Seed::START.chain(&bytes[..1020]).value();
                    bytes[1020..].copy_from_slice(&sum.to_le_bytes());
                }
            }
            Kind::Descriptor { group } => self.seal_descriptor(group, bytes),
            Kind::BlockBitmap { group } => {
                let bits = self.geometry.clusters_per_group();
                return self.seal_bitmap(device, group, bytes, bits, 0x18, 0x38);
            }
            Kind::InodeBitmap { group } => {
                let bits = self.geometry.inodes_per_group();
                return self.seal_bitmap(device, group, bytes, bits, 0x1a, 0x3a);
            }
            Kind::Inode { ino } => {
                let _ = inode::seal(bytes, ino, self.checksums);
            }
            Kind::Node { ino, generation } => {
                let max = usize::from(u16::from_le_bytes([bytes[4], bytes[5]]));
                if let Some(seed) = seed.filter(|_| 12 + max * 12 + 4 <= bytes.len()) {
                    extent::seal(bytes, seed.of_inode(ino, generation));
                }
            }
            Kind::Pointers | Kind::Quotas => {}
            Kind::Leaf { ino, generation } => {
                if let Some(seed) = seed {
                    let covered = bytes.len() - dirent::TAIL;
                    let sum = seed.of_inode(ino, generation).chain(&bytes[..covered]).value();
                    let at = bytes.len() - 4;
                    bytes[at..].copy_from_slice(&sum.to_le_bytes());
                }
            }
            Kind::Index { ino, generation, root } => {
                if let Some(seed) = seed {
                    let kind = if root { IndexKind::Root } else { IndexKind::Node };
                    let _ = htree::seal(&self.format, kind, seed.of_inode(ino, generation), bytes);
                }
            }
            Kind::Attributes { block } => {
                if let Some(seed) = seed {
                    xattr::seal(seed, block, bytes);
                }
            }
            Kind::Orphans { ino, generation, block } => {
                orphan::seal(bytes, block, OrphanSeed::new(self.checksums, ino, generation));
            }
            Kind::Log => {
                if bytes[0x2b] & 0x18 != 0 {
                    bytes[0xfc..0x100].fill(0);
                    let sum = lanefs_ondisk::checksum::Seed::START.chain(&bytes[..1024]).value();
                    bytes[0xfc..0x100].copy_from_slice(&sum.to_be_bytes());
                }
            }
        }
        None
    }

    fn seal_descriptor(&self, group: Group, bytes: &mut [u8]) {
        let (before, after) = (&bytes[..0x1e], &bytes[0x20..]);
        let sum = match self.checksums {
            Checksums::None => return,
            Checksums::Descriptors { uuid } => {
                let head = Crc16::start().chain(&uuid).chain(&group.0.to_le_bytes());
                head.chain(before).chain(after).value()
            }
            Checksums::All { seed } => {
                let head = seed.chain_u32(group.0).chain(before).chain(&[0, 0]);
                head.chain(after).value() as u16
            }
        };
        bytes[0x1e..0x20].copy_from_slice(&sum.to_le_bytes());
    }

    fn seal_bitmap(
        &self,
        device: &dyn Device,
        group: Group,
        bytes: &[u8],
        bits: u32,
        low: usize,
        high: usize,
    ) -> Option<(u64, Vec<u8>)> {
        let sum = self.checksums.seed()?.chain(&bytes[..bits as usize / 8]).value().to_le_bytes();
        let at = self.descriptors[group.0 as usize];
        let mut desc = vec![0; self.geometry.desc_size()];
        device.read_at(at, &mut desc).expect("a descriptor");
        desc[low..low + 2].copy_from_slice(&sum[..2]);
        if desc.len() >= 64 {
            desc[high..high + 2].copy_from_slice(&sum[2..]);
        }
        self.seal_descriptor(group, &mut desc);
        Some((at, desc))
    }
}

fn superblock_of(device: &dyn Device) -> Superblock {
    let mut bytes = [0; 1024];
    device.read_at(1024, &mut bytes).expect("a superblock");
    Superblock::decode(&bytes).expect("a clean superblock")
}

struct Finder<'a> {
    device: &'a dyn Device,
    superblock: &'a Superblock,
    parts: Parts,
}

impl Finder<'_> {
    fn geometry(&self) -> Geometry {
        self.parts.geometry
    }

    fn add(&mut self, kind: Kind, at: u64, len: usize) {
        self.parts.all.push(Part { kind, at, len });
    }

    fn place(&self, block: Block) -> u64 {
        block.0 << self.geometry().block_size().bits()
    }

    fn add_block(&mut self, kind: Kind, block: Block) {
        let (at, len) = (self.place(block), self.geometry().block_size().bytes());
        self.add(kind, at, len);
    }

    fn read(&self, block: Block) -> Vec<u8> {
        let mut bytes = vec![0; self.geometry().block_size().bytes()];
        self.device.read_at(self.place(block), &mut bytes).expect("a block");
        bytes
    }

    fn find(&mut self) {
        self.add(Kind::Superblock, 1024, 1024);
        let geometry = self.geometry();
        for group in (0..geometry.group_count()).map(Group) {
            let (index, range) = geometry.desc_place(group).expect("a group");
            let block = geometry.desc_block(index).expect("a descriptor block");
            let at = self.place(block) + range.start as u64;
            self.parts.descriptors.push(at);
            self.add(Kind::Descriptor { group }, at, range.len());
            let bytes = self.read(block);
            let desc = GroupDesc::decode(&bytes[range], group, &geometry, self.parts.checksums);
            self.find_group(group, &desc.expect("a clean descriptor"));
        }
    }

    fn find_group(&mut self, group: Group, desc: &GroupDesc) {
        let geometry = self.geometry();
        if !desc.flags.contains(GroupFlags::BLOCK_UNINIT) {
            self.add_block(Kind::BlockBitmap { group }, desc.block_bitmap);
        }
        if desc.flags.contains(GroupFlags::INODE_UNINIT) {
            return;
        }
        self.add_block(Kind::InodeBitmap { group }, desc.inode_bitmap);
        for index in 0..geometry.inodes_per_group() - desc.itable_unused {
            let ino = geometry.ino_at(group, index).expect("an inode");
            let place = geometry.inode_place(ino).expect("an inode");
            let table = Block(desc.inode_table.0 + u64::from(place.table_block));
            let at = self.place(table) + place.offset as u64;
            let mut bytes = vec![0; geometry.inode_size()];
            self.device.read_at(at, &mut bytes).expect("an inode");
            let decoded = Inode::decode(&bytes, ino, &geometry, self.parts.checksums);
            let decoded = decoded.expect("a clean inode");
            if decoded.links > 0 || ino.0 < 11 {
                self.add(Kind::Inode { ino }, at, bytes.len());
                self.find_inode(ino, &decoded);
            }
        }
    }

    fn find_inode(&mut self, ino: Ino, decoded: &Inode) {
        if let Some(block) = decoded.file_acl {
            self.add_block(Kind::Attributes { block }, block);
        }
        let fast = decoded.fast_symlink(&self.geometry()).is_some();
        let kinds = [FileType::Regular, FileType::Directory, FileType::Symlink];
        let maps = decoded.file_type().is_some_and(|kind| kinds.contains(&kind));
        if fast || !maps || decoded.flags.contains(InodeFlags::INLINE_DATA) {
            return;
        }
        let mut data = Vec::new();
        if decoded.flags.contains(InodeFlags::EXTENTS) {
            self.node(ino, decoded, &decoded.block, NodePosition::Root, 0..extent::END, &mut data);
        } else {
            self.pointers(&decoded.block, 0, &mut data);
        }
        self.find_data(ino, decoded, &data);
    }

    fn find_data(&mut self, ino: Ino, decoded: &Inode, data: &[(FileBlock, Block)]) {
        let generation = decoded.generation;
        if self.superblock.orphan_file() == Some(ino) {
            for (_, block) in data {
                self.add_block(Kind::Orphans { ino, generation, block: *block }, *block);
            }
        }
        if self.superblock.quota_files().contains(&Some(ino)) {
            data.iter().for_each(|(_, block)| self.add_block(Kind::Quotas, *block));
        }
        let has_journal = self.geometry().features().compat.contains(Compat::HAS_JOURNAL);
        if let (Ino::JOURNAL, true, Some((_, block))) = (ino, has_journal, data.first()) {
            let at = self.place(*block);
            self.add(Kind::Log, at, 1024);
        }
        if decoded.file_type() != Some(FileType::Directory) {
            return;
        }
        let indexed = decoded.flags.contains(InodeFlags::INDEX);
        for (n, block) in data {
            let shape = htree::shape(&self.parts.format, &self.read(*block));
            let kind = match shape.filter(|_| indexed) {
                Some(IndexKind::Root) if n.0 == 0 => Kind::Index { ino, generation, root: true },
                Some(IndexKind::Node) if n.0 > 0 && self.parts.format.has_checksums => {
                    Kind::Index { ino, generation, root: false }
                }
                _ => Kind::Leaf { ino, generation },
            };
            self.add_block(kind, *block);
        }
    }

    fn node(
        &mut self,
        ino: Ino,
        decoded: &Inode,
        bytes: &[u8],
        position: NodePosition,
        range: std::ops::Range<u32>,
        data: &mut Vec<(FileBlock, Block)>,
    ) {
        let space = 1..self.geometry().block_count();
        let expected = Expected { position, range: range.clone(), space };
        let node = Node::decode(bytes, &expected).expect("a clean node");
        match node.entries {
            Entries::Leaf(extents) => {
                for extent in extents {
                    let run = (0..extent.len).take(4096);
                    data.extend(run.map(|n| {
                        (FileBlock(extent.start.0 + n), Block(extent.block.0 + u64::from(n)))
                    }));
                }
            }
            Entries::Index(children) => {
                for (n, child) in children.iter().enumerate() {
                    let generation = decoded.generation;
                    self.add_block(Kind::Node { ino, generation }, child.child);
                    let end = children.get(n + 1).map_or(range.end, |next| next.start.0);
                    let below = self.read(child.child);
                    let depth = NodePosition::Depth(node.depth - 1);
                    self.node(ino, decoded, &below, depth, child.start.0..end, data);
                }
            }
        }
    }

    /// Follows the pointers in an inode, or in a pointer block that is `levels` levels above the
    /// data.
    fn pointers(&mut self, bytes: &[u8], levels: u32, data: &mut Vec<(FileBlock, Block)>) {
        for (n, word) in bytes.as_chunks().0.iter().enumerate() {
            let block = Block(u32::from_le_bytes(*word).into());
            let below = if bytes.len() == 60 { (n as u32).saturating_sub(11) } else { levels - 1 };
            if block.0 == 0 {
                continue;
            }
            if below == 0 {
                data.push((FileBlock(data.len() as u32), block));
            } else {
                self.add_block(Kind::Pointers, block);
                let bytes = self.read(block);
                self.pointers(&bytes, below, data);
            }
        }
    }
}
