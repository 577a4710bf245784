//! Images that are extreme as a whole. Some are sparse files with the largest counts that the
//! format allows. In others, the log replaces the superblock.

use crate::image::Image;
use lanefs_device::Device;
use lanefs_ext4::{Mount, MountOptions, NewInode, NewKind};
use lanefs_ondisk::features::{Incompat, RoCompat};
use lanefs_ondisk::jbd2::JournalSuperblock;
use lanefs_ondisk::superblock::{OrphanEntries, RawSuperblock, Recovery, Superblock};
use std::process::Command;
use zerocopy::{FromBytes, IntoBytes};

/// A hostile image.
pub struct Extreme {
    /// The name of the image.
    pub name: &'static str,
    /// Words in the expected error; empty if the mount succeeds without an error.
    pub says: &'static str,
    /// Creates the image; returns `None` and prints the reason if mke2fs is missing.
    pub make: fn() -> Option<Image>,
}

const fn extreme(name: &'static str, says: &'static str, make: fn() -> Option<Image>) -> Extreme {
    Extreme { name, says, make }
}

const PLAIN: &str = "-b 1024 -J size=1 -O ^metadata_csum,^metadata_csum_seed";
const BARE: &str =
    "-b 1024 -I 128 -O ^metadata_csum,^metadata_csum_seed,^has_journal,^orphan_file,^resize_inode";

/// Images with the largest counts. Each is a sparse file that occupies a few KiB or MiB.
pub const LARGEST: &[Extreme] = &[
    extreme("2^29 - 1 groups", "descriptor", || counted(8, 8, (1 << 29) - 1)),
    extreme("2^32 - 8192 inodes", "descriptor", || counted(8192, 8192, (1 << 19) - 1)),
    extreme("2^29 - 1 groups that describe themselves", "descriptor", || {
        let image = counted(8, 8, (1 << 29) - 1)?;
        change(&image, |raw| {
            let features = raw.s_feature_incompat.get() | Incompat::META_BG.bits();
            raw.s_feature_incompat.set(features);
        });
        Some(image)
    }),
    extreme("a bad descriptor in a log of 2^23 blocks", "", || {
        let options = "-b 4096 -J size=32768 -E lazy_journal_init=1,lazy_itable_init=1";
        let image = Image::make(options, "80G")?;
        bad_descriptor(&image);
        Some(image)
    }),
];

/// Images whose log replaces the superblock.
pub const CHANGED_BY_LOG: &[Extreme] = &[
    extreme("the log: inline_data", "", || incompat(Incompat::INLINE_DATA)),
    extreme("the log: compression", "not supported", || incompat(Incompat::COMPRESSION)),
    extreme("the log: an unknown feature", "not supported", || {
        incompat(Incompat::from_bits_retain(1 << 31))
    }),
    extreme("the log: bigalloc", "the log changes", || ro_compat(RoCompat::BIGALLOC)),
    extreme("the log: quota", "", || ro_compat(RoCompat::QUOTA)),
    extreme("the log: an unknown read-only feature", "read-only", || {
        ro_compat(RoCompat::from_bits_retain(1 << 31))
    }),
    extreme("the log: fewer blocks", "the log changes", || {
        logged(|raw| raw.s_blocks_count_lo.set(15_000))
    }),
    extreme("the log: more blocks than the device", "truncated", || {
        logged(|raw| raw.s_blocks_count_lo.set(16_385))
    }),
    extreme("the log: smaller groups", "the log changes", || {
        logged(|raw| {
            raw.s_blocks_per_group.set(8184);
            raw.s_clusters_per_group.set(8184);
            raw.s_inodes_count.set(3 * raw.s_inodes_per_group.get());
        })
    }),
    extreme("the log: smaller inodes", "the log changes", || {
        logged(|raw| raw.s_inode_size.set(128))
    }),
    extreme("the log: another journal", "the log changes", || {
        logged(|raw| raw.s_journal_inum.set(11))
    }),
    extreme("the log: no magic", "superblock", || logged(|raw| raw.s_magic.set(0))),
];

/// Creates a sparse image with `groups` groups, each with `blocks` blocks and `inodes` inodes.
fn counted(blocks: u32, inodes: u32, groups: u32) -> Option<Image> {
    let image = Image::make(BARE, "8M")?;
    let count = u64::from(groups) * u64::from(blocks) + 1;
    let file = std::fs::File::options().write(true).open(image.path()).expect("the image");
    file.set_len(count * 1024).expect("a sparse file");
    change(&image, |raw| {
        raw.s_blocks_per_group.set(blocks);
        raw.s_clusters_per_group.set(blocks);
        raw.s_inodes_per_group.set(inodes);
        raw.s_inodes_count.set(groups * inodes);
        raw.s_blocks_count_lo.set(count as u32);
        raw.s_blocks_count_hi.set((count >> 32) as u32);
    });
    // Clears the descriptors that mke2fs wrote for the small image.
    image.device().write_at(2048, &[0; 2048]).expect("inside");
    Some(image)
}

fn change(image: &Image, change: impl Fn(&mut RawSuperblock)) {
    let device = image.device();
    let mut bytes = [0; 1024];
    device.read_at(1024, &mut bytes).expect("a superblock");
    let mut raw = RawSuperblock::read_from_bytes(&bytes).expect("as long");
    change(&mut raw);
    device.write_at(1024, raw.as_bytes()).expect("inside");
}

fn incompat(feature: Incompat) -> Option<Image> {
    logged(|raw| raw.s_feature_incompat.set(raw.s_feature_incompat.get() | feature.bits()))
}

fn ro_compat(feature: RoCompat) -> Option<Image> {
    logged(|raw| raw.s_feature_ro_compat.set(raw.s_feature_ro_compat.get() | feature.bits()))
}

/// Creates an image whose log contains a superblock that `change` has modified.
fn logged(change: impl Fn(&mut RawSuperblock)) -> Option<Image> {
    let image = Image::make(PLAIN, "16M")?;
    let mut bytes = [0; 1024];
    image.device().read_at(1024, &mut bytes).expect("a superblock");
    let mut raw = RawSuperblock::read_from_bytes(&bytes).expect("as long");
    raw.s_feature_incompat.set(raw.s_feature_incompat.get() | Incompat::RECOVER.bits());
    change(&mut raw);
    let copy = image.path().with_extension("superblock");
    std::fs::write(&copy, raw.as_bytes()).expect("the copy");
    let commands = image.path().with_extension("commands");
    let lines = format!("jo\njw -b 1 {}\njc\n", copy.display());
    std::fs::write(&commands, lines).expect("the commands");
    let mut debugfs = Command::new("debugfs");
    debugfs.arg("-w").arg("-f").arg(&commands).arg(image.path());
    let done = debugfs.output().expect("debugfs runs");
    assert!(done.status.success(), "debugfs: {}", String::from_utf8_lossy(&done.stderr));
    Some(image)
}

/// Makes the log start with a descriptor block whose checksum is wrong. Nothing follows this block.
fn bad_descriptor(image: &Image) {
    let mount = Mount::open(image.device(), MountOptions::default()).expect("it mounts");
    let fs = mount.fs();
    let (kind, permissions) = (NewKind::Regular, 0o644);
    let new = NewInode { kind, permissions, umask: 0, uid: 0, gid: 0 };
    // The first commit makes the log use checksums.
    drop(fs.create(&fs.root().expect("the root"), b"file", &new).expect("a file"));
    fs.sync().expect("it commits");
    mount.close().expect("it closes");
    let device = image.device();
    let mut bytes = [0; 1024];
    device.read_at(1024, &mut bytes).expect("a superblock");
    let mut superblock = Superblock::decode(&bytes).expect("a good superblock");
    let size = superblock.geometry().block_size();
    let start = log_start(&*device, &superblock) << size.bits();
    let mut head = vec![0; size.bytes()];
    device.read_at(start, &mut head).expect("inside");
    let mut log = JournalSuperblock::decode(&head, size, u32::MAX).expect("a log");
    log.set_start(Some(1));
    device.write_at(start, &log.encode()).expect("inside");
    let word = |value: u32| value.to_be_bytes();
    let header = [word(lanefs_ondisk::jbd2::MAGIC), word(1), word(log.sequence().0)].concat();
    device.write_at(start + size.bytes() as u64, &header).expect("inside");
    superblock.set_dirty_features(Recovery::Needed, OrphanEntries::Present);
    device.write_at(1024, &superblock.encode()).expect("inside");
}

/// Returns the first block of the log, found through the superblock's copy of the journal inode's
/// extent tree. In each node, the upper half of the second word is the depth. The first entry's
/// block number is the fifth word of an index node, and the sixth word of a leaf.
fn log_start(device: &dyn Device, superblock: &Superblock) -> u64 {
    let mut words: Vec<u32> = superblock.raw().s_jnl_blocks.iter().map(|word| word.get()).collect();
    while words[1] >> 16 > 0 {
        let mut node = [0; 24];
        let place = u64::from(words[4]) << superblock.geometry().block_size().bits();
        device.read_at(place, &mut node).expect("inside");
        let word = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().expect("four bytes"));
        words = node.chunks(4).map(word).collect();
    }
    words[5].into()
}
