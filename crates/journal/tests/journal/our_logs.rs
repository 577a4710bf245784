//! Lanefs, e2fsck and the kernel replay logs that Lanefs wrote. Lanefs and e2fsck also replay logs
//! that debugfs wrote. All replays of one log must agree.

use crate::toy;

use crate::host::*;
use crate::toy::{CELLS_OF_AN_IMAGE as CELLS, Toy, ToyJournal, stamps};
use lanefs_device::{Device, Kept, OverlayDevice, RamDevice, RecordingDevice};
use lanefs_journal::recovery::{Input, recover};
use lanefs_journal::{Config, Log};
use lanefs_lanes::sync::Arc;
use lanefs_ondisk::jbd2::JournalIncompat;
use std::fs::File;
use std::path::Path;

/// Creates an ext4 image. The cells of a [`Toy`] are free blocks of this image.
fn ext4_image(path: &Path, features: &str) -> Ext4 {
    File::create(path).unwrap().set_len(32 << 20).unwrap();
    let mkfs = ["-q", "-t", "ext4", "-b", "1024", "-N", "128", "-J", "size=1", "-O", features];
    must("mke2fs", &[&mkfs[..], &[arg(path)]].concat());
    Ext4::of(path)
}

fn recovered(ext4: &Ext4, state: &OverlayDevice) -> OverlayDevice {
    let target = state.fork();
    let superblock = ext4.journal_superblock(state);
    let source =
        Input { device: state, map: &ext4.map, superblock: &superblock, blocks: ext4.blocks };
    recover(&source, &target).unwrap();
    target
}

fn our_log_is_replayed_alike(features: &str, wanted: JournalIncompat, seed: u64) {
    println!("seed {seed}, {features}");
    let mut rng = fastrand::Rng::with_seed(seed);
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let image = dir.path().join("image");
    let ext4 = ext4_image(&image, features);
    must("debugfs", &["-w", "-R", "feature needs_recovery", arg(&image)]);
    let device =
        Arc::new(RecordingDevice::new(Arc::new(RamDevice::from_file(&image).unwrap())).unwrap());
    let log = Log {
        device: None,
        map: ext4.map.clone(),
        superblock: ext4.journal_superblock(&*device),
        features: wanted,
    };
    let config = Config { log: Some(log), ..Config::new(device.clone(), ext4.block_size) };
    let journal: ToyJournal = ToyJournal::start(config).unwrap();
    let toy = Toy::new(CELLS);
    for stamp in 1..40 {
        let cells: Vec<usize> = (0..rng.usize(1..150)).map(|_| rng.usize(..CELLS)).collect();
        let mut handle = journal.join(cells.len() as u32 + 1).unwrap();
        for cell in cells {
            if stamp % 4 == 0 && rng.bool() {
                toy.free(&mut handle, cell);
            } else {
                toy.change(&mut handle, cell, |_| stamp);
            }
        }
        drop(handle);
        journal.commit_now(&toy).unwrap();
    }
    let statistics = journal.statistics();
    assert!(statistics.checkpoints > 1 && statistics.revokes_logged > 100, "{statistics:?}");

    let recording = device.recording();
    let mut states = recording.replay();
    let last = recording.events().len();
    for n in 0..6 {
        let cut = if n == 0 { last } else { rng.usize(1..=last) };
        let kept = if n == 0 { Kept::All } else { Kept::Torn { seed: n } };
        let state = states.state(cut, kept);
        let ours = recovered(&ext4, &state);
        let crashed = dir.path().join("crashed");
        state.to_file(&crashed).unwrap();
        let what = format!("{features}, cut {cut}, {kept:?}");
        let theirs = replayed_by_e2fsck(&crashed, &dir.path().join("theirs"));
        ext4.assert_same(&ours, &theirs, &what);
        if let Some(mounted) = Mounted::new(&crashed, &dir.path().join("mnt"), "rw") {
            drop(mounted);
            let kernel = RamDevice::from_file(&crashed).unwrap();
            assert_eq!(stamps(&ours, CELLS), stamps(&kernel, CELLS), "kernel, {what}");
        }
    }

    // After a stop the log is empty, and e2fsck finds nothing wrong.
    journal.stop_now(&toy).unwrap();
    let stopped = dir.path().join("stopped");
    RamDevice::copy_of(&device).unwrap().to_file(&stopped).unwrap();
    let out = run("e2fsck", &["-fy", arg(&stopped)]).unwrap();
    let says = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(out.status.code().unwrap() < 4 && !says.contains("Corrupt"), "{says}");
    let after = RamDevice::from_file(&stopped).unwrap();
    assert_eq!(stamps(&*device, CELLS), stamps(&after, CELLS));
    for cell in 0..CELLS {
        if toy.stamp(cell) != 0 {
            assert_eq!(toy::stamp_at(&after, cell), toy.stamp(cell));
        }
    }
}

#[test]
fn lanefs_e2fsck_and_the_kernel_replay_logs_of_lanefs_alike() {
    if !has_e2fsprogs() {
        return;
    }
    let (wide, sums) = (JournalIncompat::BIT64, JournalIncompat::CSUM_V3);
    our_log_is_replayed_alike("orphan_file,metadata_csum_seed", wide | sums, 1);
    our_log_is_replayed_alike("^64bit", sums, 2);
    our_log_is_replayed_alike("^metadata_csum,64bit", wide, 3);
    our_log_is_replayed_alike("^metadata_csum,^64bit", JournalIncompat::empty(), 4);
}

/// The logs that debugfs writes have no checksums, or checksums of version 2 or 3. Current kernels
/// do not write version 2.
#[test]
fn logs_of_debugfs_replay_as_e2fsck_replays_them() {
    if !has_e2fsprogs() {
        return;
    }
    for (features, open) in [
        ("64bit,metadata_csum", "jo -c -v 2"),
        ("^64bit,metadata_csum", "jo -c -v 2"),
        ("64bit,metadata_csum", "jo -c -v 3"),
        ("^64bit,^metadata_csum", "jo"),
    ] {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let image = dir.path().join("image");
        let ext4 = ext4_image(&image, features);
        let data = dir.path().join("data");
        let magic = [0xc0, 0x3b, 0x39, 0x98];
        let bytes: Vec<u8> = (0..200u8).flat_map(|n| [&magic[..], &[n; 1020]].concat()).collect();
        std::fs::write(&data, bytes).unwrap();
        let script = dir.path().join("script");
        let data = arg(&data);
        let commands = format!(
            "{open}\njw -b 2000-2150 {data}\njw -r 2100-2110\njw -b 2105-2107 {data}\n\
             jw -b 2100,2140,2999 {data}\njc\n"
        );
        std::fs::write(&script, commands).unwrap();
        must("debugfs", &["-w", "-f", arg(&script), arg(&image)]);
        let theirs = replayed_by_e2fsck(&image, &dir.path().join("theirs"));
        let state: Arc<dyn Device> = Arc::new(RamDevice::from_file(&image).unwrap());
        let incompat = ext4.journal_superblock(&state).incompat();
        println!("{open}: {incompat:?}");
        assert_eq!(incompat.contains(JournalIncompat::CSUM_V2), open.ends_with("2"));
        assert_eq!(incompat.contains(JournalIncompat::CSUM_V3), open.ends_with("3"));
        let ours = recovered(&ext4, &OverlayDevice::new(state, u64::MAX));
        assert!(ours.held() > 150 << 10);
        ext4.assert_same(&ours, &theirs, features);
    }
}
