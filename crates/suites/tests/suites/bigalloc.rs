//! File systems with clusters (feature `bigalloc`). The model, e2fsck and the kernel judge them.

use lanefs_device::{Device, DeviceError, RamDevice, WriteKind, forward};
use lanefs_ext4::{Error, Fallocate, Fs, InodeRef, Mount, MountOptions, Privilege};
use lanefs_lanes::sync::unscheduled::{Condvar, Mutex};
use lanefs_suites::both::{by_kernel, by_library, open, run_all};
use lanefs_suites::cuts::dumpe2fs;
use lanefs_suites::hostile::target::Left;
use lanefs_suites::hostile::{Totals, random_images_on};
use lanefs_suites::image::Image;
use lanefs_suites::library::Library;
use lanefs_suites::op::{File, Kind, Op, Path, Tree};
use lanefs_suites::random::{in_parallel, seeds};
use lanefs_suites::sample;
use lanefs_suites::together::Bases;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::time::Duration;

/// Images with a small log: options for mke2fs, and the size.
const SETS: [(&str, &str); 6] = [
    ("-b 4096 -J size=4 -O bigalloc -C 16384", "96M"),
    ("-b 1024 -J size=1 -O bigalloc -C 4096", "64M"),
    ("-b 4096 -J size=4 -O bigalloc,^metadata_csum,uninit_bg,^64bit -C 65536", "256M"),
    ("-b 1024 -J size=1 -O bigalloc,inline_data,ea_inode -C 8192", "96M"),
    ("-b 2048 -J size=2 -O bigalloc,^orphan_file,^flex_bg -C 4096 -g 8192", "64M"),
    ("-b 1024 -J size=1 -I 256 -O bigalloc,quota,project -C 16384", "160M"),
];
/// The number of sets at the start of [`SETS`] that have no quotas. On a set with quotas e2fsck
/// cannot judge crashes: when e2fsck deletes an orphan, it subtracts only one block from the usage
/// for each freed cluster.
const WITHOUT_QUOTAS: usize = 5;

fn hostile(seed: u64, count: u64) -> Totals {
    const PLAIN: &str = "-J size=1 -O bigalloc,^metadata_csum,^metadata_csum_seed -b 1024 -C 4096";
    let left = if seed.is_multiple_of(2) { Left::Clean } else { Left::Crashed };
    let checked = random_images_on((PLAIN, 32), left, seed, count);
    checked.unwrap_or_else(|why| panic!("{why}"))
}

fn path(name: &str) -> Path {
    name.as_bytes().to_vec()
}

fn found(fs: &Fs, name: &str) -> InodeRef {
    let root = fs.root().expect("the root");
    let named = fs.lookup(&root, name.as_bytes()).expect("the root is read").expect("the file");
    fs.get(named.ino, None).expect("the inode")
}

fn create(name: &str, kind: Kind) -> Op {
    Op::Create { path: path(name), kind, permissions: 0o755, uid: 0, gid: 0 }
}

fn write(name: &str, offset: u64, len: usize) -> Op {
    Op::Write { file: File::At(path(name)), offset, len, seed: offset }
}

#[test]
fn four_threads_leave_the_tree_of_the_model() {
    let bases = Bases::default();
    SETS.into_iter().zip(seeds(6)).for_each(|(set, seed)| sample::model(&bases, set, seed, 60));
}

#[test]
fn a_file_keeps_its_bytes() {
    let bases = Bases::default();
    SETS.into_iter().zip(seeds(6)).for_each(|(set, seed)| sample::fsx(&bases, set, seed, 300));
}

#[test]
fn promises_are_kept_at_a_few_crashes() {
    SETS[..WITHOUT_QUOTAS]
        .iter()
        .zip(seeds(5))
        .for_each(|(set, seed)| sample::crash(*set, seed, 60, 8));
}

#[test]
fn a_few_damaged_images_do_no_harm() {
    seeds(2).into_iter().for_each(|seed| println!("{:?}", hostile(seed, 6)));
}

#[test]
fn files_take_as_much_space_as_in_the_kernel() {
    const FILES: [&str; 4] = ["one", "three", "sparse", "punched"];
    let file = |name: &str| File::At(path(name));
    let mut ops: Vec<Op> = FILES.iter().map(|name| create(name, Kind::Regular)).collect();
    ops.extend([
        write("one", 0, 1),
        write("three", 0, 9000),
        write("sparse", 5 << 10, 1),
        write("sparse", 50 << 10, 1),
        write("punched", 0, 64 << 10),
        Op::Fallocate {
            file: file("punched"),
            how: Fallocate::PunchHole,
            offset: 5 << 10,
            len: 20 << 10,
        },
        Op::Truncate { file: file("punched"), size: 41 << 10 },
        create("d", Kind::Directory),
    ]);
    let options = "-b 1024 -O bigalloc -C 4096";
    let (Some(theirs), Some(ours)) = (Image::make(options, "64M"), Image::make(options, "64M"))
    else {
        return;
    };
    if by_kernel(&theirs, &ops).is_none() {
        return;
    }
    by_library(&ours, &ops);
    ours.assert_clean("filled by Lanefs");
    let counted = |image: &Image| {
        let mount = image.kernel_mount("ro")?;
        let of =
            |name: &&str| std::fs::metadata(mount.path().join(name)).expect("the file").blocks();
        let sectors: Vec<u64> = FILES.iter().chain(&["d"]).map(of).collect();
        mount.unmount();
        Some(sectors)
    };
    let sectors = counted(&theirs);
    assert_eq!(counted(&ours), sectors);
    assert_eq!(sectors, Some(vec![8, 24, 16, 56, 8]));
}

#[test]
fn all_free_clusters_are_trimmed_and_counted() {
    let Some(image) = Image::make("-b 1024 -O bigalloc -C 4096", "64M") else { return };
    let mount = open(&image);
    // Each file is written only once, because a second write could leave a preallocation window,
    // whose blocks do not count as free.
    let files = ["f", "g"].map(|name| create(name, Kind::Regular));
    let ops = [&files[..], &[write("f", 0, 100_000), write("g", 0, 5)]].concat();
    run_all(&mut Library::new(mount.fs()), "Lanefs", &ops);
    mount.fs().sync().expect("committed");
    let free = mount.fs().stat_fs().blocks_free;
    assert!(free.is_multiple_of(4), "{free} free blocks are not whole clusters");
    assert_eq!(mount.fs().trim(0..u64::MAX, 0).expect("trimmed"), free * 1024);
    mount.close().expect("closed");
    image.assert_clean("trimmed");
}

#[test]
fn fallocate_maps_the_holes_of_clusters_in_use() {
    let Some(image) = Image::make("-b 1024 -O bigalloc -C 4096", "64M") else { return };
    by_library(&image, &[create("f", Kind::Regular), write("f", 0, 1024)]);
    let mount = open(&image);
    let file = found(mount.fs(), "f");
    mount.fs().fallocate(&file, Fallocate::Allocate, 0, 4096, Privilege::Root).expect("room");
    let extents = mount.fs().extents(&file).expect("listed");
    assert_eq!(extents.iter().map(|extent| extent.len).sum::<u64>(), 4096, "{extents:?}");
    drop(file);
    mount.close().expect("closed");
    image.assert_clean("allocated");
}

#[test]
fn the_last_cluster_is_given_and_taken_back() {
    let Some(image) = Image::make("-b 1024 -O bigalloc,^has_journal -C 16384", "32M") else {
        return;
    };
    let mount = open(&image);
    let fs = mount.fs();
    let free = fs.stat_fs().blocks_free;
    run_all(&mut Library::new(fs), "Lanefs", &[create("f", Kind::Regular)]);
    let file = found(fs, "f");
    let chunk = vec![7; 1 << 20];
    let mut at = 0;
    let full = loop {
        match fs.write_at(&file, at, &chunk, Privilege::Root) {
            Ok(written) => at += written as u64,
            Err(why) => break why,
        }
    };
    assert!(matches!(full, Error::NoSpace), "{full}");
    assert!(fs.stat_fs().blocks_free < 32, "{} blocks are left", fs.stat_fs().blocks_free);
    drop(file);
    fs.unlink(&fs.root().expect("the root"), b"f").expect("removed");
    fs.sync().expect("committed");
    assert_eq!(fs.stat_fs().blocks_free, free);
    mount.close().expect("closed");
    image.assert_clean("full and emptied");
}

#[test]
fn an_extent_outside_of_its_cluster_is_damage_for_lanefs_and_e2fsck() {
    let options = "-b 1024 -O bigalloc,^metadata_csum,^metadata_csum_seed -C 4096";
    let Some(image) = Image::make(options, "32M") else { return };
    by_library(&image, &[create("f", Kind::Regular), write("f", 0, 4096)]);
    // The offset of the low 32 bits of the first extent's device block number. The extent follows
    // the header of the extent tree's root.
    let at = image.inode_at("/f", 1024) + 0x28 + 12 + 8;
    let mut low = [0];
    image.device().read_at(at, &mut low).expect("inside");
    image.device().write_at(at, &[low[0] + 1]).expect("inside");
    let mount = open(&image);
    let file = found(mount.fs(), "f");
    let read = mount.fs().read_at(&file, 0, &mut [0; 4096]);
    assert!(matches!(read, Err(Error::Corruption(_))), "{read:?}");
    drop(file);
    drop(mount);
    assert_ne!(image.check().status, 0, "e2fsck sees it too");
}

#[test]
fn a_crash_does_not_bring_punched_blocks_back_with_new_bytes() {
    let fresh = Bases::default().fresh("-b 1024 -O bigalloc -C 4096", "64M");
    let Some(device) = fresh.map(Arc::new) else { return };
    let day = Duration::from_secs(86_400);
    let options = MountOptions { commit_interval: day, ..MountOptions::default() };
    let mount = Mount::open(device.clone(), options).expect("Lanefs mounts it");
    let fs = mount.fs();
    run_all(&mut Library::new(fs), "Lanefs", &[create("f", Kind::Regular)]);
    let file = found(fs, "f");
    let write = |offset, bytes: &[u8]| {
        fs.write_at(&file, offset, bytes, Privilege::Root).expect("written");
    };
    write(0, &[b'a'; 4096]);
    fs.sync().expect("committed");
    fs.fallocate(&file, Fallocate::PunchHole, 1024, 2048, Privilege::Root).expect("punched");
    write(1024, &[b'b'; 1024]);
    let crashed = Image::empty();
    device.to_file(crashed.path()).expect("a copy");
    let again = open(&crashed);
    let mut bytes = [0; 4096];
    again.fs().read_at(&found(again.fs(), "f"), 0, &mut bytes).expect("read");
    assert!(bytes[2048] == 0 || bytes[1024] == b'a', "the punch is lost, the write is not");
}

#[test]
#[ignore = "long: all sets"]
fn all_suites_hold_with_all_clusters() {
    in_parallel(seeds(12), |seed| {
        let (bases, set) = (Bases::default(), (seed % 6) as usize);
        sample::model(&bases, SETS[set], seed, 300);
        sample::fsx(&bases, SETS[set], seed, 4000);
        sample::crash(SETS[set % WITHOUT_QUOTAS], seed, 150, 60);
        println!("{:?}", hostile(seed, 40));
    });
}

#[test]
fn the_checker_counts_the_blocks_of_clusters() {
    let (options, size) = SETS[0];
    let Some(image) = Image::make(options, size) else { return };
    let options = lanefs_check::Options::default();
    let report = lanefs_check::check(image.device(), &options, &|_| {}).expect("a superblock");
    let fields = dumpe2fs(&image);
    let number = |name: &str| fields[name].parse::<u64>().expect("a number");
    assert_eq!(report.totals.blocks, number("Block count") - number("Free blocks"));
}

/// The data of a write to a part of a block.
const PART: [u8; 512] = [0xd7; 512];

/// A device on which writes with [`PART`] wait for each other.
struct Meeting {
    inner: RamDevice,
    inside: Mutex<u32>,
    entered: Condvar,
}

impl Device for Meeting {
    forward!(inner: len, is_read_only, read, flush, discard);
    fn write(&self, offset: u64, bufs: &[&[u8]], kind: WriteKind) -> Result<(), DeviceError> {
        let has_part = |buf: &[u8]| buf.windows(PART.len()).any(|part| part == PART);
        if bufs.iter().any(|buf| buf.len() <= 4096 && has_part(buf)) {
            let mut inside = self.inside.lock().expect("no panic");
            *inside += 1;
            self.entered.notify_all();
            // If Lanefs makes these writes one after the other, the second write does not arrive
            // while the first one waits, so the wait has a time limit.
            let patience = Duration::from_millis(200);
            let met = self.entered.wait_timeout_while(inside, patience, |inside| *inside < 2);
            drop(met.expect("no panic"));
        }
        self.inner.write(offset, bufs, kind)
    }
}

/// The cluster of the hole is in use, so both writes go to the same block. A write fills the rest
/// of the block with zeros, unless the other write is already done.
#[test]
fn two_writes_to_parts_of_a_hole_in_a_cluster_in_use_are_both_kept() {
    let Some(image) = Image::make("-b 4096 -O bigalloc -C 16384", "32M") else { return };
    let inner = RamDevice::copy_of(&image.device()).expect("memory");
    let device = Arc::new(Meeting { inner, inside: Mutex::new(0), entered: Condvar::new() });
    let mount = Mount::open(device, MountOptions::default()).expect("a mount");
    let fs = mount.fs();
    let mut library = Library::new(fs);
    let size = Op::Truncate { file: File::At(path("file")), size: 16384 };
    for op in [create("file", Kind::Regular), write("file", 0, 4096), size] {
        library.apply(&op).expect("a file of one block and a hole");
    }
    let file = found(fs, "file");
    let offsets = [4096, 4096 + 2048];
    std::thread::scope(|scope| {
        for at in offsets {
            let file = &file;
            scope.spawn(move || fs.write_at(file, at, &PART, Privilege::Root).expect("room"));
        }
    });
    for at in offsets {
        let mut found = [0; PART.len()];
        fs.read_at(&file, at, &mut found).expect("no fault");
        assert!(found == PART, "at {at}");
    }
}
