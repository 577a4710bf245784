//! Lanefs and e2fsck replay logs that the kernel wrote, and every block of the two results must be
//! the same.

use crate::host::*;
use lanefs_device::{Device, OverlayDevice, RamDevice};
use lanefs_journal::recovery::{Input, Recovered, plan, recover};
use lanefs_lanes::sync::Arc;
use lanefs_ondisk::jbd2::{FastChange, FastName};
use std::fs::{self, File};
use std::path::Path;

/// Creates, renames and removes files, and reuses blocks of directories, with commits in between.
fn live(root: &Path, rng: &mut fastrand::Rng) {
    let sync = |path: &Path| File::open(path).unwrap().sync_all().unwrap();
    for round in 0..4 {
        let dir = root.join(format!("d{round}"));
        fs::create_dir(&dir).unwrap();
        for n in 0..rng.usize(50..200) {
            // The data starts with the log's magic number, which must be escaped if the log
            // contains data.
            let mut data = vec![n as u8; rng.usize(1..9000)];
            let magic = [0xc0, 0x3b, 0x39, 0x98];
            data.iter_mut().zip(magic).for_each(|(byte, m)| *byte = m);
            fs::write(dir.join(format!("file-with-a-longer-name-{n}")), data).unwrap();
        }
        sync(&dir);
        if round % 2 == 0 {
            fs::remove_dir_all(&dir).unwrap();
            fs::write(root.join(format!("over-{round}")), vec![7; 300_000]).unwrap();
        } else {
            fs::rename(dir.join("file-with-a-longer-name-3"), root.join(format!("r{round}")))
                .unwrap();
        }
        sync(root);
    }
    // Most of these changes are not committed.
    for n in 0..20 {
        fs::write(root.join(format!("late-{n}")), [n; 100]).unwrap();
    }
}

/// Runs `live` on a fresh image that the kernel mounts with `options`, and compares how Lanefs and
/// e2fsck replay the log.
fn compare(mkfs: &[&str], options: &str, seed: u64) -> Option<Recovered> {
    println!("seed {seed}, {mkfs:?}, {options}");
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let image = dir.path().join("image");
    File::create(&image).unwrap().set_len(32 << 20).unwrap();
    must("mke2fs", &[&["-q", "-t", "ext4"], mkfs, &[arg(&image)]].concat());
    let mounted = Mounted::new(&image, &dir.path().join("mnt"), options)?;
    live(&mounted.at, &mut fastrand::Rng::with_seed(seed));
    if !mounted.crash() {
        return None;
    }

    let theirs = replayed_by_e2fsck(&image, &dir.path().join("theirs"));
    let ext4 = Ext4::of(&image);
    let ours: Arc<dyn Device> = Arc::new(RamDevice::from_file(&image).unwrap());
    let superblock = ext4.journal_superblock(&ours);
    println!("journal features {:?} {:?}", superblock.compat(), superblock.incompat());
    let source =
        Input { device: &ours, map: &ext4.map, superblock: &superblock, blocks: ext4.blocks };
    let target = OverlayDevice::new(ours.clone(), u64::MAX);
    let recovered = recover(&source, &target).unwrap();
    println!("{recovered:?}");
    assert!(target.held() > 0);
    ext4.assert_same(&target, &theirs, options);
    // The log is replayed a second time, on the result of the first replay.
    let again = recover(&source, &target).unwrap();
    assert_eq!(again, recovered);
    ext4.assert_same(&target, &theirs, "replayed twice");
    Some(recovered)
}

#[test]
fn logs_of_every_flavour_replay_as_e2fsck_replays_them() {
    if !has_e2fsprogs() {
        return;
    }
    let none = "^metadata_csum,^64bit";
    let default = "orphan_file,metadata_csum_seed";
    let flavours: [(&[&str], &str); 9] = [
        (&["-O", default], "rw"),
        (&["-O", default, "-b", "4096"], "rw"),
        (&["-O", default], "data=journal"),
        (&["-O", "^64bit"], "rw"),
        (&["-O", none], "rw"),
        (&["-O", none], "data=journal"),
        (&["-O", none], "journal_checksum"),
        (&["-O", none, "-b", "2048"], "data=writeback,journal_async_commit"),
        (&["-O", "^extent,^metadata_csum,^64bit"], "data=journal"),
    ];
    let (mut revoked, mut mounted) = (0, 0);
    for (seed, (mkfs, options)) in (1..).zip(flavours) {
        let Some(recovered) = compare(mkfs, options, seed) else { continue };
        assert!(recovered.transactions >= 3, "{recovered:?}");
        revoked += recovered.revoked;
        mounted += 1;
    }
    assert!(mounted == 0 || revoked > 0, "no log had a revoked block");
}

#[test]
fn a_wrapped_log_replays_from_its_start() {
    if !has_e2fsprogs() {
        return;
    }
    // The smallest journal, with blocks of 1 KiB, wraps during this run.
    let mkfs = ["-O", "orphan_file,metadata_csum_seed", "-J", "size=1"];
    let Some(recovered) = compare(&mkfs, "data=journal", 99) else { return };
    assert!(recovered.transactions >= 1);
}

/// Data that an fsync stored as a fast commit must not be lost. The crate `lanefs-journal` only
/// reads the fast commits; the file system replays them. The kernel leaves the block after the log
/// unused, and writes the first fast commit into the block after that.
#[test]
fn fast_commits_of_the_kernel_are_read_until_they_are_torn() {
    if !has_e2fsprogs() {
        return;
    }
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let image = dir.path().join("image");
    File::create(&image).unwrap().set_len(32 << 20).unwrap();
    must("mke2fs", &["-q", "-t", "ext4", "-O", "fast_commit", arg(&image)]);
    let Some(mounted) = Mounted::new(&image, &dir.path().join("mnt"), "commit=300") else { return };
    let sync = |path: &Path| File::open(path).unwrap().sync_all().unwrap();
    fs::create_dir(mounted.at.join("d")).unwrap();
    must("sync", &["-f", arg(&mounted.at)]);
    for n in 0..3 {
        let file = mounted.at.join(format!("d/f{n}"));
        fs::write(&file, [n; 3000]).unwrap();
        sync(&file);
    }
    if !mounted.crash() {
        return;
    }
    let said = must("debugfs", &["-c", "-R", "logdump -c", arg(&image)]);
    if !said.contains("tag TAIL") {
        println!("skipped: this kernel writes no fast commits");
        return;
    }
    let ext4 = Ext4::of(&image);
    let device: Arc<dyn Device> = Arc::new(RamDevice::from_file(&image).unwrap());
    let superblock = ext4.journal_superblock(&device);
    let source =
        Input { device: &device, map: &ext4.map, superblock: &superblock, blocks: ext4.blocks };
    let target = OverlayDevice::new(device.clone(), u64::MAX);
    let replay = plan(&source).unwrap();
    let created = |name: &str| {
        let is = |made: &FastName| made.name == name.as_bytes();
        replay.fast_changes().iter().any(|c| matches!(c, FastChange::Create(made) if is(made)))
    };
    assert!((0..3).all(|n| created(&format!("f{n}"))), "{:?}", replay.fast_changes());
    let refused = recover(&source, &target).unwrap_err();
    assert!(refused.to_string().contains("fast_commit"), "{refused}");
    assert_eq!(target.held(), 0);
    // If the first fast commit is damaged, Lanefs finds no fast commit at all, and neither does
    // e2fsck.
    let place = ext4.map.place(superblock.fast_commit_area().start).unwrap().0;
    let mut first = vec![0; ext4.block_size.bytes()];
    let at = place.0 << ext4.block_size.bits();
    device.read_at(at, &mut first).unwrap();
    first[20] ^= 1;
    device.write_at(at, &first).unwrap();
    let recovered = recover(&source, &target).unwrap();
    assert!(recovered.transactions >= 1 && recovered.fast_commits == 0);
}
