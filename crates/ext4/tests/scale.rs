//! Tests large images, which are sparse in memory: the bytes that a mount reads, and the extents of
//! concurrent appends.
//!
//! `LANEFS_SCALE=full cargo test --profile stress -p lanefs-ext4 --test scale -- --include-ignored
//! --nocapture` uses a million groups and files of 1 GiB; without the variable they are smaller.

mod image;

use image::{Image, file};
use lanefs_device::{
    Access as Opened, Device, DeviceError, FileDevice, OpenOptions, ReadKind, WriteKind, forward,
};
use lanefs_ext4::{Fallocate, Mount, MountOptions, Privilege};
use lanefs_lanes::sync::atomic::{AtomicU64, Ordering};
use lanefs_lanes::sync::unscheduled::Barrier;
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

/// Counts the bytes that are read. Large writes of zeros are not stored, because they are file
/// data, which is never read.
struct Sparse {
    inner: FileDevice,
    read: AtomicU64,
}

impl Device for Sparse {
    forward!(inner: len, is_read_only);
    fn read(&self, offset: u64, buf: &mut [u8], kind: ReadKind) -> Result<(), DeviceError> {
        self.read.fetch_add(buf.len() as u64, Ordering::Relaxed);
        self.inner.read(offset, buf, kind)
    }
    fn write(&self, offset: u64, bufs: &[&[u8]], kind: WriteKind) -> Result<(), DeviceError> {
        let is_data = |buf: &&[u8]| buf.len() >= 32 << 10 && buf.iter().all(|byte| *byte == 0);
        if bufs.iter().all(is_data) {
            return Ok(());
        }
        self.inner.write(offset, bufs, kind)
    }
    fn flush(&self) -> Result<(), DeviceError> {
        Ok(())
    }
    fn discard(&self, _: u64, _: u64) -> Result<(), DeviceError> {
        Ok(())
    }
}

fn is_full() -> bool {
    std::env::var("LANEFS_SCALE").is_ok_and(|scale| scale == "full")
}

fn opened(image: &Image) -> Arc<Sparse> {
    let options = OpenOptions::default();
    let inner = FileDevice::open(image.path(), Opened::ReadWrite, options).unwrap();
    Arc::new(Sparse { inner, read: AtomicU64::new(0) })
}

/// Returns the resident memory of this process in bytes.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = statm.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

/// Mounts an image of `groups` groups with blocks of 1 KiB; returns the bytes read.
fn mount_reads(groups: u64) -> u64 {
    let size = format!("{}M", 8 * groups);
    let image =
        Image::made(&["-b", "1024", "-J", "size=16", "-O", "^resize_inode", "-i", "524288"], &size);
    let device = opened(&image);
    let (before, begun) = (resident(), Instant::now());
    let mount = Mount::open(device.clone(), MountOptions::default()).unwrap();
    let took = begun.elapsed();
    let root = mount.fs().root().unwrap();
    let created = mount.fs().create(&root, b"f", &file(0o644)).unwrap();
    mount.fs().append(&created, &[1; 5000], Privilege::Root).unwrap();
    let read = device.read.load(Ordering::Relaxed);
    let memory = resident().saturating_sub(before);
    println!(
        "{groups} groups: {read} bytes read, {} a group; {} KiB of memory; {took:?}",
        read / groups,
        memory >> 10
    );
    drop((created, root));
    mount.close().unwrap();
    read
}

#[test]
fn a_mount_reads_the_descriptors_and_little_else() {
    for groups in [100, 10_000] {
        // A group descriptor has 64 bytes. The mount reads a few other blocks too.
        assert!(mount_reads(groups) <= 64 * groups + (256 << 10));
    }
}

#[test]
#[ignore = "long: a million groups take 800 MB, with LANEFS_SCALE=full"]
fn a_mount_of_a_million_groups_reads_the_descriptors_and_little_else() {
    let groups = if is_full() { 1_000_000 } else { 20_000 };
    assert!(mount_reads(groups) <= 64 * groups + (256 << 10));
}

#[test]
fn bitmaps_of_many_groups_stay_within_the_cache() {
    let groups = if is_full() { 20_000 } else { 3000 };
    // Dirty bitmaps cannot be evicted, and a small log limits their number.
    let options = ["-b", "1024", "-J", "size=4", "-O", "^resize_inode", "-i", "524288"];
    let image = Image::made(&options, &format!("{}M", 8 * groups));
    let cache_bytes = 4 << 20;
    let options = MountOptions { cache_bytes, ..MountOptions::default() };
    let mount = Mount::open(opened(&image), options).unwrap();
    let fs = mount.fs();
    let root = fs.root().unwrap();
    let large = fs.create(&root, b"large", &file(0o644)).unwrap();
    let free = fs.stat_fs().blocks_free;
    let mut most = 0;
    let mut note = || {
        let statistics = fs.statistics();
        most = most.max(statistics.cached_bitmaps);
    };
    // Allocates most blocks of each group, then frees all of them.
    for how in [Fallocate::Allocate, Fallocate::PunchHole] {
        let len = 4 << 20;
        for n in 0..groups * 7 / 4 {
            fs.fallocate(&large, how, n * len, len, Privilege::Root).unwrap();
            note();
        }
        fs.sync().unwrap();
    }
    let last = fs.statistics().cached_bitmaps;
    println!("{groups} groups: {} KiB of bitmaps at most, {} at last", most >> 10, last >> 10);
    assert!(last <= cache_bytes / 16, "{last} bytes are clean and stay");
    assert!(most > 100 << 10, "{most} bytes: not many groups were touched");
    // The limit is a sixteenth of the cache, plus the bitmaps that are dirty in two transactions,
    // each of which takes up to a quarter of the log.
    assert!(most < cache_bytes / 16 + (3 << 20), "{most} bytes of bitmaps");
    let lost = free - fs.stat_fs().blocks_free;
    drop((large, root));
    mount.close().unwrap();
    image.check();
    assert!(lost < 10, "{lost} blocks are not free again");
}

#[test]
#[ignore = "long: 64 GiB are appended, with LANEFS_SCALE=full"]
fn appenders_in_turns_leave_files_in_few_pieces() {
    const WRITERS: usize = 64;
    const PIECE: usize = 64 << 10;
    let mib = if is_full() { 1024 } else { 64 };
    let image =
        Image::made(&["-b", "4096", "-J", "size=64"], &format!("{}M", WRITERS * mib * 5 / 4));
    let mount = Mount::open(opened(&image), MountOptions::default()).unwrap();
    let fs = mount.fs();
    let root = fs.root().unwrap();
    let files: Vec<_> = (0..WRITERS)
        .map(|n| fs.create(&root, format!("{n}").as_bytes(), &file(0o644)).unwrap())
        .collect();
    let turn = Barrier::new(WRITERS);
    std::thread::scope(|scope| {
        for file in &files {
            let turn = &turn;
            scope.spawn(move || {
                let zeros = vec![0; PIECE];
                for round in 0..mib << 20 >> 16 {
                    if round % 64 == 0 {
                        turn.wait();
                    }
                    assert_eq!(fs.append(file, &zeros, Privilege::Root).unwrap().1, PIECE);
                }
            });
        }
    });
    let inos: Vec<_> = files.iter().map(|file| file.ino()).collect();
    drop((files, root));
    mount.close().unwrap();
    let extents: Vec<usize> = inos
        .iter()
        .map(|ino| {
            let command = format!("dump_extents -l <{}>", ino.0);
            let run = Command::new("debugfs").args(["-R", &command]).arg(image.path()).output();
            String::from_utf8_lossy(&run.unwrap().stdout).lines().count() - 1
        })
        .collect();
    let most = extents.iter().max().copied().unwrap_or(0);
    let mean = extents.iter().sum::<usize>() / WRITERS;
    println!("{WRITERS} files of {mib} MiB: {mean} extents each, {most} at most");
    // At most 600 extents per GiB are accepted; the kernel's ext4 has 588.
    assert!(most <= 600 * mib / 1024, "{extents:?}");
}
