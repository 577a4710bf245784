//! Tests groups in images that mke2fs created. The groups are changed by transactions without a
//! journal.

mod claims;
mod commits;
mod damage;
mod placement;
mod residents;
mod scale;
mod threads;

use crate::Error;
use crate::alloc::*;
use crate::volume::reader::BlockReader;
use lanefs_journal::Tid;
use lanefs_ondisk::checksum::Checksums;
use lanefs_ondisk::group_desc::GroupDesc;
use lanefs_ondisk::superblock::{Geometry, Superblock};
use lanefs_ondisk::{Block, BlockSize, FileType, Group, Ino};
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
