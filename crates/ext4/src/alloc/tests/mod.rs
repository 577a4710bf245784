//! Tests groups in images that mke2fs created. The groups are changed by transactions without a
//! journal.

mod claims;
mod commits;

use crate::Error;
use crate::alloc::tests::claims::imagined_set_up;
use crate::alloc::*;
use crate::volume::BlockReader;
use lanefs_journal::Tid;
use lanefs_lanes::sync::atomic::{AtomicU64, Ordering};
use lanefs_ondisk::bitmap::Cause;
use lanefs_ondisk::checksum::Checksums;
use lanefs_ondisk::group_desc::{GroupDesc, GroupFlags};
use lanefs_ondisk::superblock::{Geometry, Superblock};
use lanefs_ondisk::{Block, BlockSize, Corruption, FileType, Group, Ino};
use lanefs_plan::system::SystemBlocks;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::sync::Arc;

/// An image, its groups and the device they are read from.
struct Fixture {
    groups: Groups,
    device: Device,
    geometry: Geometry,
    checksums: Checksums,
    descriptors: Vec<GroupDesc>,
}

/// Reads blocks of the image.
struct Device {
    dir: tempfile::TempDir,
    file: File,
    block_size: BlockSize,
}

impl BlockReader for Device {
    fn read_block(&self, block: Block) -> Result<Arc<[u8]>, Error> {
        let mut bytes = vec![0; self.block_size.bytes()];
        self.file.read_exact_at(&mut bytes, self.at(block)).expect("a block of the image");
        Ok(bytes.into())
    }
}

impl Device {
    fn at(&self, block: Block) -> u64 {
        block.0 * self.block_size.bytes() as u64
    }

    fn write(&self, block: Block, bytes: &[u8]) {
        self.file.write_all_at(bytes, self.at(block)).expect("a block of the image");
    }

    fn path(&self) -> String {
        self.dir.path().join("image").to_str().expect("a plain path").to_owned()
    }
}

/// Searches wait for busy groups, new inodes are near their parents, and an inode is found under
/// one hold of the guard and claimed under the next.
#[derive(Debug)]
struct Waiting;

impl Allocation for Waiting {
    fn busy_group(&self) -> Wait {
        Wait::Wait
    }
    fn spreads(&self) -> bool {
        false
    }
    fn stream_goal(&self, _: &Summaries, ino: Ino) -> Option<u32> {
        Some(ino.0 % 2)
    }
    fn claim_inode(&self, group: &Visit<'_>) -> Result<Attempt<u32>, Error> {
        let mut from = 0;
        while let Attempt::Taken(found) = group.find_inode(from)? {
            if let Attempt::Taken(index) = group.take_inode(found)? {
                return Ok(Attempt::Taken(index));
            }
            from = found + 1;
        }
        Ok(Attempt::Lacking)
    }
}

/// Returns the settings of groups without a reserve, whose bitmaps all stay in memory.
fn setup(allocation: Arc<dyn Allocation>) -> Setup {
    Setup { reserved: 0, allocation, row: 0, bitmap_bytes: u64::MAX, reuse: Reuse::AtOnce }
}

impl Groups {
    /// Claims blocks. The returned claim does not count as under way (see [`Found`]).
    fn claim(&self, read: &dyn BlockReader, request: &Request) -> Result<Claim, Error> {
        self.claim_blocks(read, request, None).map(Found::into_claim)
    }
}

impl Fixture {
    /// Creates an image of `mib` MiB with these mke2fs options. If mke2fs is not installed, prints
    /// a message and returns `None`.
    fn new(mib: u64, options: &[&str]) -> Option<Fixture> {
        Fixture::set_up(mib, options, setup(Arc::new(Scaling)))
    }

    fn set_up(mib: u64, options: &[&str], setup: Setup) -> Option<Fixture> {
        let dir = tempfile::tempdir_in("/dev/shm").expect("room for an image");
        let path = dir.path().join("image");
        let file = File::options().create_new(true).read(true).write(true).open(&path);
        let file = file.expect("an image");
        file.set_len(mib << 20).expect("a sparse image");
        let mut mke2fs = Command::new("mke2fs");
        mke2fs.args(["-q", "-F", "-t", "ext4"]).args(options).arg(&path);
        let Ok(status) = mke2fs.status() else {
            eprintln!("skipped: mke2fs is not here");
            return None;
        };
        assert!(status.success());
        let mut bytes = [0; 1024];
        file.read_exact_at(&mut bytes, 1024).expect("a superblock");
        let superblock = Superblock::decode(&bytes).expect("mke2fs made it");
        let (geometry, checksums) = (superblock.geometry(), superblock.checksums());
        let device = Device { dir, file, block_size: geometry.block_size() };
        let descriptors = descriptors(&device, &geometry, checksums);
        let system = Arc::new(SystemBlocks::new(&geometry, &descriptors, []));
        let groups = Groups::new(geometry, checksums, descriptors.clone(), system, setup);
        Some(Fixture { groups, device, geometry, checksums, descriptors })
    }

    fn claim(&self, goal: u64, want: u32) -> Result<Claim, Error> {
        self.claim_as(goal, want, Privilege::Ordinary)
    }

    fn claim_as(&self, goal: u64, want: u32, privilege: Privilege) -> Result<Claim, Error> {
        let request = Request {
            goal: Block(goal),
            want,
            ahead: 0,
            at_least: want,
            privilege,
            stream: None,
            owner: None,
        };
        self.groups.claim(&self.device, &request)
    }

    fn claim_inode(&self, kind: FileType, parent: u32) -> Result<InodeClaim<'_>, Error> {
        self.claim_inode_in(&WorkPlace::default(), kind, parent)
    }

    /// Claims an inode in a directory with the number `parent`.
    fn claim_inode_in(
        &self,
        place: &WorkPlace,
        kind: FileType,
        parent: u32,
    ) -> Result<InodeClaim<'_>, Error> {
        let parent = Parent { ino: Ino(parent), place, before: 0, is_top: false };
        self.groups.claim_inode(&self.device, kind, &parent)
    }

    /// Captures the groups that `tx` changed and writes them in place.
    fn write_in_place(&self, tx: &mut Transaction) {
        for group in std::mem::take(&mut tx.groups) {
            let Some(image) = self.groups.capture(tx.tid, group) else { continue };
            if let Some(bitmap) = &image.block_bitmap {
                self.device.write(image.desc.block_bitmap, bitmap);
            }
            if let Some(bitmap) = &image.inode_bitmap {
                self.device.write(image.desc.inode_bitmap, bitmap);
            }
            let (number, range) = self.geometry.desc_place(group).expect("a group");
            let block = self.geometry.desc_block(number).expect("a block of descriptors");
            let mut bytes = self.device.read_block(block).expect("readable").to_vec();
            image.desc.encode_into(&mut bytes[range], group, &self.geometry, self.checksums);
            self.device.write(block, &bytes);
        }
    }

    /// Makes `tx` durable.
    fn commit(&self, mut tx: Transaction) {
        self.write_in_place(&mut tx);
        for (start, len) in tx.released {
            self.groups.release(start, len);
        }
        self.groups.bitmaps.committed(tx.tid);
    }
}

fn descriptors(device: &Device, geometry: &Geometry, checksums: Checksums) -> Vec<GroupDesc> {
    let decode = |group| {
        let (number, range) = geometry.desc_place(group).expect("a group");
        let block = geometry.desc_block(number).expect("a block of descriptors");
        let bytes = device.read_block(block).expect("readable");
        GroupDesc::decode(&bytes[range], group, geometry, checksums).expect("right")
    };
    (0..geometry.group_count()).map(|group| decode(Group(group))).collect()
}

/// Records what the groups report to a transaction (see [`Changes`]).
struct Transaction {
    tid: Tid,
    groups: Vec<Group>,
    charged: u32,
    released: Vec<(Block, u32)>,
}

impl Transaction {
    fn new(number: u64) -> Transaction {
        Transaction { tid: Tid(number), groups: Vec::new(), charged: 0, released: Vec::new() }
    }
}

impl Changes for Transaction {
    fn tid(&self) -> Tid {
        self.tid
    }

    fn group_changed(&mut self, group: Group) {
        assert!(!self.groups.contains(&group), "on the list once");
        self.groups.push(group);
    }

    fn charge_blocks(&mut self, blocks: u32) {
        self.charged += blocks;
    }

    fn release_later(&mut self, start: Block, len: u32) {
        self.released.push((start, len));
    }
}

/// Returns random numbers; the seed is printed, and `LANEFS_SEED` sets it.
fn seeded(name: &str) -> fastrand::Rng {
    let given = std::env::var("LANEFS_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = given.unwrap_or_else(|| fastrand::u64(..));
    eprintln!("{name}: LANEFS_SEED={seed}");
    fastrand::Rng::with_seed(seed)
}

// Tests damaged bitmaps and descriptors, and files that map metadata blocks.

fn cause<T>(result: Result<T, Error>) -> (Group, Cause) {
    match result {
        Err(Error::Corruption(Corruption::Bitmap { group, cause })) => (group, cause),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it was damaged"),
    }
}

/// Changes the bytes of a block.
fn change(f: &Fixture, block: Block, change: impl FnOnce(&mut [u8])) {
    let mut bytes = f.device.read_block(block).expect("readable").to_vec();
    change(&mut bytes);
    f.device.write(block, &bytes);
}

#[test]
fn a_damaged_group_is_reported_once_and_not_used() {
    let Some(f) = Fixture::new(32, &["-b", "1024"]) else { return };
    assert!(!f.descriptors[0].flags.contains(GroupFlags::BLOCK_UNINIT), "it is read");
    change(&f, f.descriptors[0].block_bitmap, |bytes| bytes[1000] ^= 4);
    let goal = 6000;
    let (group, found) = cause(f.claim(goal, 10));
    assert!(group == Group(0) && matches!(found, Cause::Checksum { .. }));
    let total = f.groups.space().total();
    let others = f.descriptors[1..].iter().map(|desc| u64::from(desc.free_blocks)).sum::<u64>();
    assert_eq!(total, others);
    let claim = f.claim(goal, 10).expect("other groups are right");
    assert_ne!(f.geometry.group_of(claim.start()).map(|(group, _)| group), Some(Group(0)));
    assert!(matches!(cause(f.groups.bitmaps.load(&f.device, Group(0))).1, Cause::Checksum { .. }));
    drop(claim);
    let mut all = Vec::new();
    while let Ok(claim) = f.claim(goal, 3000) {
        all.push(claim);
    }
    assert_eq!(all.iter().map(|claim| u64::from(claim.len())).sum::<u64>(), total);
}

#[test]
fn free_metadata_and_wrong_counts_are_damage_even_without_checksums() {
    let options = ["-b", "1024", "-O", "^metadata_csum,^uninit_bg,^64bit,^resize_inode"];
    let Some(f) = Fixture::new(32, &options) else { return };
    // The bits of a metadata block and of a free block are swapped, so that the free count stays
    // right.
    let (group, bit) = f.geometry.group_of(f.descriptors[2].inode_table).expect("a group");
    let bitmap = f.descriptors[group.0 as usize].block_bitmap;
    change(&f, bitmap, |bytes| {
        bytes[bit as usize / 8] ^= 1 << (bit % 8);
        let other = bytes.iter().rposition(|byte| *byte == 0).expect("eight free blocks");
        bytes[other] ^= 1;
    });
    assert_eq!(
        cause(f.groups.bitmaps.load(&f.device, group)),
        (group, Cause::MetadataClear { bit })
    );

    change(&f, f.descriptors[3].block_bitmap, |bytes| {
        let free = bytes.iter().rposition(|byte| *byte == 0).expect("eight free blocks");
        bytes[free] = 1;
    });
    let (_, found) = cause(f.groups.bitmaps.load(&f.device, Group(3)));
    assert!(matches!(found, Cause::FreeCount { .. }));
}

#[test]
fn a_second_free_is_reported_and_frees_the_rest() {
    let Some(f) = Fixture::new(32, &["-b", "1024"]) else { return };
    let mut tx = Transaction::new(5);
    let claim = f.claim(9500, 6).expect("room");
    let at = claim.start();
    f.groups.allocate(&mut tx, claim);
    f.groups.free_blocks(&mut tx, Block(at.0 + 2), 2).expect("allocated");
    let (_, found) = cause(f.groups.free_blocks(&mut tx, at, 6));
    let bit = f.geometry.group_of(at).expect("a group").1 + 2;
    assert_eq!(found, Cause::AlreadyClear { bit });
    assert_eq!(f.claim(at.0, 6).expect("room").start(), at);
    let ino = f.claim_inode(FileType::Regular, 2).expect("room").ino();
    assert!(f.groups.free_inode(&mut tx, ino, FileType::Regular).is_err());
}

#[test]
fn the_file_systems_own_blocks_are_not_freed() {
    let Some(f) = Fixture::new(32, &["-b", "1024"]) else { return };
    let _hold = f.groups.bitmaps.load(&f.device, Group(0)).expect("right");
    let mut tx = Transaction::new(5);
    for block in [Block(1), f.descriptors[0].block_bitmap, f.descriptors[3].inode_table] {
        assert!(f.groups.is_metadata(block, 1));
        let (_, found) = cause(f.groups.free_blocks(&mut tx, block, 1));
        assert!(matches!(found, Cause::MetadataFreed { .. }));
    }
    for (start, len) in [(0, 1), (32 << 10, 1), ((32 << 10) - 2, 3), (u64::MAX, 2)] {
        cause(f.groups.free_blocks(&mut tx, Block(start), len));
    }
    assert!(tx.groups.is_empty());
}

// Tests the eviction of bitmaps. The cap allows only a few bitmaps in memory.

/// A reader that, when the cap is exceeded, evicts all bitmaps that are not held. (The real reader
/// requests a commit, which then evicts them.)
struct Committing<'g> {
    groups: &'g Groups,
    rounds: AtomicU64,
}

impl BlockReader for Committing<'_> {
    fn read_block(&self, block: Block) -> Result<Arc<[u8]>, Error> {
        panic!("{block} is read, though no group was ever initialised")
    }

    fn over_limit(&self) {
        let before = self.rounds.fetch_add(1, Ordering::Relaxed);
        assert!(before < 100, "what was just read was taken away 100 times");
        // A used group gets a second chance, but not a third.
        (0..3).for_each(|_| self.groups.bitmaps.committed(Tid(1)));
    }
}

#[test]
fn bitmaps_just_read_are_not_evicted_before_their_use() {
    let setup = Setup { bitmap_bytes: 0, ..setup(Arc::new(Scaling)) };
    let (groups, _) = imagined_set_up(64, setup, &|_, _| ());
    let read = Committing { groups: &groups, rounds: AtomicU64::new(0) };
    let held = (0..64).map(|group| groups.bitmaps.load(&read, Group(group)).expect("no damage"));
    let held: Vec<_> = held.collect();
    assert!(read.rounds.load(Ordering::Relaxed) > 0, "there was room for all");
    drop(held);
    assert_eq!(groups.bitmaps.bytes(), 64 * groups.shared.bitmap_bytes());
}
