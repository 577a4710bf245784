//! An image to be damaged, with functions that find its parts and change them.
//!
//! Offsets are from the kernel documentation, "Data Structures and Algorithms" of ext4.

use super::guard::{FILL, GUARD};
use crate::changes::limit;
use crate::fill::{Scale, fill};
use crate::home;
use crate::image::{Image, Mappings};
use crate::library::Library;
use crate::op::{Op, Path, Tree};
use lanefs_device::{Device, OverlayDevice, RamDevice};
use lanefs_ext4::{
    FastCommitting, Fs, Mount, MountOptions, NewVerity, Privilege, Rename, SetXattr, SyncMode,
};
use lanefs_ondisk::features::Incompat;
use lanefs_ondisk::superblock::{Geometry, Superblock};
use lanefs_ondisk::{Group, Ino};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Byte offset of the superblock.
pub const SUPER: u64 = 1024;
/// The offset of the block field in an inode, where the root of the extent tree is.
pub const I_BLOCK: u64 = 0x28;
/// The offset of the field in an inode that holds the number of its attribute block.
pub const I_FILE_ACL: u64 = 0x68;

/// The state of the image before the damage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    /// Unmounted.
    Clean,
    /// Crashed during work. The log has transactions, and there are orphans.
    Crashed,
    /// Crashed in the same way, in a file system with `fast_commit`. The log ends with fast commits.
    FastCommits,
}

/// A filled image with guard bytes after it, and the positions of its structures.
pub struct Target {
    device: OverlayDevice,
    geometry: Geometry,
    inos: BTreeMap<Path, Ino>,
}

impl Target {
    /// Creates and fills an image; returns `None` and prints the reason if mke2fs is missing.
    pub fn make(options: &str, megabytes: u64, left: Left) -> Option<Target> {
        let image = Image::make(&with_numbers(options), &format!("{megabytes}M"))?;
        let plain = RamDevice::from_file(image.path()).expect("the image is read");
        let ram = RamDevice::create(plain.len() + GUARD).expect("memory");
        copy(&plain, &ram);
        ram.write_at(plain.len(), &vec![FILL; GUARD as usize]).expect("the guard");
        let device = OverlayDevice::new(Arc::new(ram), u64::MAX);

        let geometry = geometry(&plain);
        let block = geometry.block_size().bytes();
        let large = 150_000;
        let scale = Scale { files: 120, large, depth: 5, ..Scale::of_image(10, block) };
        let scale = scale.with(Mappings::of(options));
        let options =
            MountOptions { commit_interval: Duration::from_secs(3600), ..home::options() };
        let shared = Arc::new(device);
        let mount = Mount::open(shared.clone(), options.clone()).expect("a fresh image mounts");
        for op in fill(scale) {
            let done = Library::new(mount.fs()).apply(&op);
            done.unwrap_or_else(|errno| panic!("{op:?}: error {errno}"));
        }
        if mount.fs().superblock().features().incompat.contains(Incompat::EA_INODE) {
            let (path, name) = (b"attributes/inside".to_vec(), b"user.in an inode".to_vec());
            let value = vec![b'x'; block + 100];
            let set = Op::SetXattr { path, name, value, how: SetXattr::Any };
            Library::new(mount.fs()).apply(&set).expect("a large value");
        }
        limit(mount.fs());
        let inos = inos(mount.fs());
        if mount.fs().has_verity() {
            let file = mount.fs().get(inos[&b"data/large"[..]], None).expect("the file");
            let new = NewVerity { block_bytes: Some(1024), ..NewVerity::default() };
            mount.fs().enable_verity(&file, &new, Privilege::Root).expect("a verity file");
        }
        mount.close().expect("it unmounts");
        let device = match left {
            Left::Clean => shared.fork(),
            Left::Crashed => crashed(&shared, options),
            Left::FastCommits => {
                let fast_commits = FastCommitting::IfPossible;
                crashed(&shared, MountOptions { fast_commits, ..options })
            }
        };
        Some(Target { device, geometry, inos })
    }

    /// Returns a copy to damage.
    pub fn fork(&self) -> Target {
        let inos = self.inos.clone();
        Target { device: self.device.fork(), geometry: self.geometry, inos }
    }

    /// Returns the device with its present contents.
    pub fn device(&self) -> OverlayDevice {
        self.device.fork()
    }

    /// Returns the size of the file system in bytes, without the guard bytes.
    pub fn len(&self) -> u64 {
        self.geometry.block_count() * self.block_size()
    }

    /// Returns `false`, because the file system has at least a superblock.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Returns the block size in bytes.
    pub fn block_size(&self) -> u64 {
        self.geometry.block_size().bytes() as u64
    }

    /// Returns the inode number at a path.
    pub fn ino(&self, path: &str) -> Ino {
        self.inos[path.as_bytes()]
    }

    /// Reads `len` bytes.
    pub fn read(&self, at: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.device.read_at(at, &mut bytes).expect("inside the image");
        bytes
    }

    /// Reads a 16-bit little-endian number.
    pub fn get16(&self, at: u64) -> u16 {
        let bytes = self.read(at, 2);
        u16::from_le_bytes([bytes[0], bytes[1]])
    }

    /// Reads a 32-bit little-endian number.
    pub fn get32(&self, at: u64) -> u32 {
        u32::from(self.get16(at)) | u32::from(self.get16(at + 2)) << 16
    }

    /// Overwrites bytes.
    pub fn put(&self, at: u64, bytes: &[u8]) {
        self.device.write_at(at, bytes).expect("inside the image");
    }

    /// Overwrites a 16-bit number.
    pub fn put16(&self, at: u64, value: u16) {
        self.put(at, &value.to_le_bytes());
    }

    /// Overwrites a 32-bit number.
    pub fn put32(&self, at: u64, value: u32) {
        self.put(at, &value.to_le_bytes());
    }

    /// Returns the byte offset of a group's descriptor.
    pub fn descriptor(&self, group: u32) -> u64 {
        let (index, range) = self.geometry.desc_place(Group(group)).expect("a group");
        let block = self.geometry.desc_block(index).expect("a descriptor block");
        block.0 * self.block_size() + range.start as u64
    }

    /// Returns the byte offsets of a group's block bitmap, inode bitmap and inode table.
    pub fn group_blocks(&self, group: u32) -> [u64; 3] {
        let at = self.descriptor(group);
        [0, 4, 8].map(|field| u64::from(self.get32(at + field)) * self.block_size())
    }

    /// Returns the byte offset of an inode.
    pub fn inode(&self, ino: Ino) -> u64 {
        let place = self.geometry.inode_place(ino).expect("an inode of the file system");
        let table = self.group_blocks(place.group.0)[2];
        table + u64::from(place.table_block) * self.block_size() + place.offset as u64
    }

    /// Returns the byte offset of the inode at a path.
    pub fn inode_of(&self, path: &str) -> u64 {
        self.inode(self.ino(path))
    }

    /// Returns the byte offsets of the nodes of an inode's extent tree, the root first.
    pub fn nodes(&self, inode: u64) -> Vec<u64> {
        let mut nodes = vec![inode + I_BLOCK];
        let mut next = 0;
        while next < nodes.len() {
            let node = nodes[next];
            next += 1;
            if self.get16(node) == 0xf30a && self.get16(node + 6) > 0 {
                for n in 0..u64::from(self.get16(node + 2)) {
                    nodes.push(u64::from(self.get32(node + 12 + n * 12 + 4)) * self.block_size());
                }
            }
        }
        nodes
    }

    /// Returns whether an inode has extents.
    fn has_extents(&self, inode: u64) -> bool {
        self.get32(inode + 0x20) & 0x8_0000 != 0
    }

    /// For an inode without extents, returns two lists of byte offsets: those of its indirect
    /// blocks, and those of its data blocks. Both lists follow the order of the file.
    pub fn block_map(&self, inode: u64) -> (Vec<u64>, Vec<u64>) {
        let (mut nodes, mut data) = (Vec::new(), Vec::new());
        for slot in 0..15u64 {
            let place = inode + I_BLOCK + slot * 4;
            self.follow(place, slot.saturating_sub(11), &mut nodes, &mut data);
        }
        (nodes, data)
    }

    fn follow(&self, place: u64, depth: u64, nodes: &mut Vec<u64>, data: &mut Vec<u64>) {
        let at = u64::from(self.get32(place)) * self.block_size();
        match depth {
            _ if at == 0 => {}
            0 => data.push(at),
            _ => {
                nodes.push(at);
                for slot in 0..self.block_size() / 4 {
                    self.follow(at + slot * 4, depth - 1, nodes, data);
                }
            }
        }
    }

    /// Returns the byte offsets of an inode's data blocks, in the order of the file. For each
    /// extent, returns at most the first 4,096 blocks.
    pub fn blocks(&self, inode: u64) -> Vec<u64> {
        if !self.has_extents(inode) {
            return self.block_map(inode).1;
        }
        let mut blocks = Vec::new();
        for node in self.nodes(inode).into_iter().filter(|node| self.get16(node + 6) == 0) {
            if self.get16(node) != 0xf30a {
                continue;
            }
            for n in 0..u64::from(self.get16(node + 2)) {
                let extent = node + 12 + n * 12;
                let start = u64::from(self.get32(extent + 8));
                let len = u64::from(self.get16(extent + 4) & 0x7fff).min(4096);
                blocks.extend((start..start + len).map(|block| block * self.block_size()));
            }
        }
        blocks
    }

    /// Returns the byte offsets of the log's blocks.
    pub fn log(&self) -> Vec<u64> {
        self.blocks(self.inode(Ino::JOURNAL))
    }

    /// Returns the number of the log block where the live part of the log starts, or 0 if there is
    /// no live part. The log stores numbers in big-endian order.
    pub fn log_start(&self) -> usize {
        self.get32(self.log()[0] + 28).swap_bytes() as usize
    }

    /// Returns the offset and length of each range of metadata in use. Random damage changes bytes
    /// in these ranges.
    pub fn metadata(&self) -> Vec<(u64, u64)> {
        let block = self.block_size();
        let mut ranges = vec![(SUPER, 0x300)];
        let places = self.inos.values().map(|ino| self.inode(*ino));
        let reserved = (1..=12).map(|ino| self.inode(Ino(ino)));
        let inodes: Vec<u64> = places.chain(reserved).collect();
        for group in 0..self.geometry.group_count() {
            ranges.push((self.descriptor(group), 32));
            let [blocks, inos, _] = self.group_blocks(group);
            ranges.extend([(blocks, 256), (inos, 32)]);
        }
        for inode in inodes {
            ranges.push((inode, 256));
            let (is_file, is_dir) = match self.get16(inode) & 0xf000 {
                0x4000 => (false, true),
                0x8000 => (true, false),
                _ => (false, false),
            };
            // The map of the resize inode is left out, because it refers to the reserved descriptor
            // blocks of all groups.
            let extents = self.has_extents(inode);
            if extents {
                ranges.extend(self.nodes(inode).into_iter().skip(1).map(|node| (node, 200)));
            } else if (is_file || is_dir) && inode != self.inode(Ino::RESIZE) {
                ranges.extend(self.block_map(inode).0.into_iter().map(|node| (node, 200)));
            }
            if is_dir {
                ranges.extend(self.blocks(inode).into_iter().map(|at| (at, block)));
            }
            match u64::from(self.get32(inode + I_FILE_ACL)) {
                0 => {}
                acl => ranges.push((acl * block, 200)),
            }
        }
        let log = self.log();
        // The log's superblock, and the transactions left by a crash.
        ranges.extend(log.first().map(|at| (*at, 0x54)));
        let start = if log.is_empty() { 0 } else { self.log_start() };
        let live = log.iter().skip(start).take(60);
        ranges.extend(live.map(|at| (*at, 200)));
        ranges.retain(|(at, len)| at + len <= self.len());
        ranges
    }

    /// Returns a copy of the first `len` bytes of the device.
    pub fn truncated(&self, len: u64) -> OverlayDevice {
        let ram = RamDevice::create(len).expect("memory");
        copy(&self.device, &ram);
        OverlayDevice::new(Arc::new(ram), u64::MAX)
    }
}

/// Adds the UUID and the seed of name hashes to the options, so that an image is always the same.
fn with_numbers(options: &str) -> String {
    const UUID: &str = "6c616e65-6673-4653-8000-000000000001";
    let seed = format!("-E hash_seed={UUID}");
    match options.contains("-E ") {
        true => format!("-U {UUID} {}", options.replacen("-E ", &format!("{seed},"), 1)),
        false => format!("-U {UUID} {seed} {options}"),
    }
}

fn geometry(device: &dyn Device) -> Geometry {
    let mut bytes = [0; 1024];
    device.read_at(SUPER, &mut bytes).expect("the superblock");
    Superblock::decode(&bytes).expect("a good superblock").geometry()
}

/// Copies bytes from the start, up to the end of the shorter device.
fn copy(from: &dyn Device, to: &dyn Device) {
    let mut piece = vec![0; 1 << 16];
    let (mut at, end) = (0, from.len().min(to.len()));
    while at < end {
        let n = (end - at).min(piece.len() as u64) as usize;
        from.read_at(at, &mut piece[..n]).expect("inside");
        to.write_at(at, &piece[..n]).expect("inside");
        at += n as u64;
    }
}

fn inos(fs: &Fs) -> BTreeMap<Path, Ino> {
    let listing = crate::listing::of_library(fs).unwrap_or_else(|(_, e)| panic!("{e}"));
    let ino = |entry: crate::listing::Entry| Ino(entry.ino.unwrap_or(0) as u32);
    listing.entries.into_iter().map(|(path, entry)| (path, ino(entry))).collect()
}

/// Creates, writes and removes files in the filled image, and returns the device as a crash leaves
/// it. The changes are committed but not yet written in place, and there are orphans.
fn crashed(device: &Arc<OverlayDevice>, options: MountOptions) -> OverlayDevice {
    let with_fast_commits = options.fast_commits == FastCommitting::IfPossible;
    let mount = Mount::open(device.clone(), options).expect("it mounts again");
    let mut library = Library::new(mount.fs());
    let apply = |library: &mut Library, op| {
        library.apply(&op).unwrap_or_else(|errno| panic!("{op:?}: error {errno}"));
    };
    use crate::op::{File, Kind};
    for n in 0..20u8 {
        let path = format!("big/after {n}").into_bytes();
        let (kind, permissions, uid, gid) = (Kind::Regular, 0o600, 0, 0);
        apply(&mut library, Op::Create { path: path.clone(), kind, permissions, uid, gid });
        let file = File::At(path.clone());
        apply(&mut library, Op::Write { file, offset: 0, len: 3000, seed: n.into() });
        if n < 5 {
            apply(&mut library, Op::Open { path: path.clone(), slot: n });
            apply(&mut library, Op::Unlink { path });
        }
    }
    apply(&mut library, Op::Sync);
    if with_fast_commits {
        fast_commits(&mut |op| apply(&mut library, op));
    }
    let state = device.fork();
    drop(library);
    mount.close().expect("it unmounts");
    state
}

/// Changes files and syncs each of them, so that the log ends with fast commits. The first change
/// is one that needs a transaction.
fn fast_commits(apply: &mut dyn FnMut(Op)) {
    use crate::op::{File, Kind};
    let path = |n: u8| format!("big/after {n}").into_bytes();
    let create = |n: u8| {
        let (kind, permissions, uid, gid) = (Kind::Regular, 0o640, 7, 7);
        Op::Create { path: path(n), kind, permissions, uid, gid }
    };
    apply(Op::Unlink { path: path(12) });
    apply(Op::Rename { path: path(13), new: path(12), how: Rename::Replace });
    apply(create(20));
    apply(Op::Fsync { file: File::At(path(12)), mode: SyncMode::Full });
    for n in 5..12 {
        let (seed, file) = (n.into(), File::At(path(n)));
        apply(Op::Write { file: file.clone(), offset: 5000, len: 2000, seed });
        let mode = if n % 2 == 0 { SyncMode::Full } else { SyncMode::Data };
        apply(Op::Fsync { file, mode });
    }
    for n in 21..24 {
        apply(create(n));
        apply(Op::Fsync { file: File::At(path(n)), mode: SyncMode::Full });
    }
    apply(Op::Unlink { path: path(11) });
    apply(Op::Fsync { file: File::At(path(23)), mode: SyncMode::Full });
}
