//! Lanefs and e2fsck replay copies of logs that debugfs wrote, and every block of the two results
//! must be the same. The logs come from debugfs because no current kernel writes logs with
//! checksums of version 2, and because debugfs can also write each format to a journal on a
//! separate device. `kernel_logs.rs` tests logs that the kernel wrote: logs without checksums, with
//! checksums of versions 1 and 3, logs that wrap around, and logs with `journal_async_commit`.

use crate::host::*;
use lanefs_device::{Device, OverlayDevice, RamDevice};
use lanefs_journal::LogMap;
use lanefs_journal::recovery::{Input, Recovered, recover};
use lanefs_lanes::sync::Arc;
use lanefs_ondisk::Block;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

const BLOCK: usize = 1024;
const MAGIC: [u8; 4] = [0xc0, 0x3b, 0x39, 0x98];
/// The option of debugfs for checksums, which have version 1 if the file system has no
/// `metadata_csum`.
const VERSION_1: &str = "-c";
/// Data blocks of the second group, which are free.
const FREE: std::ops::Range<u64> = 12_000..16_000;

/// A file system, and the file that holds its journal if the journal is not in the file system.
struct Logged {
    image: PathBuf,
    journal: Option<PathBuf>,
    ext4: Ext4,
}

impl Logged {
    /// Makes the file system and its journal with mke2fs. Returns `None` if there is no loop device
    /// for the journal.
    fn new(dir: &Path, features: &str, is_outside: bool) -> Option<Logged> {
        let image = dir.join("image");
        File::create(&image).unwrap().set_len(16 << 20).unwrap();
        let make = |more: &[&str]| {
            let base = ["-q", "-F", "-t", "ext4", "-b", "1024", "-O", features];
            must("mke2fs", &[&base[..], more, &[arg(&image)]].concat());
        };
        if !is_outside {
            make(&["-J", "size=1"]);
            let ext4 = Ext4::of(&image);
            return Some(Logged { image, journal: None, ext4 });
        }
        let journal = dir.join("journal");
        File::create(&journal).unwrap().set_len(1 << 20).unwrap();
        must("mke2fs", &["-q", "-F", "-b", "1024", "-O", "journal_dev", arg(&journal)]);
        // mke2fs accepts only a block device as the journal of a file system.
        let device = match run("losetup", &["--find", "--show", arg(&journal)]) {
            Ok(out) if out.status.success() => String::from_utf8(out.stdout).unwrap(),
            other => {
                println!("skipped: no loop device: {other:?}");
                return None;
            }
        };
        make(&["-J", &format!("device={}", device.trim())]);
        must("losetup", &["-d", device.trim()]);
        let map = LogMap::of_device(Block(2), 1024);
        let ext4 = Ext4 { map, ..Ext4::of_blocks(&image) };
        Some(Logged { image, journal: Some(journal), ext4 })
    }

    /// Writes transactions with copies, escaped copies and revokes. The last transaction is not
    /// committed.
    fn write(&self, dir: &Path, checksums: &str, rng: &mut fastrand::Rng) {
        let mut open = format!("jo {checksums}");
        if let Some(journal) = &self.journal {
            open += &format!(" -f {}", arg(journal));
        }
        let mut commands = vec![open];
        let mut earlier: Vec<u64> = Vec::new();
        for n in 0..6 {
            let blocks: Vec<u64> = (0..rng.usize(1..60))
                .map(|_| rng.u64(FREE))
                .filter(|block| !self.ext4.map.contains(Block(*block)))
                .collect();
            let data = dir.join(format!("data-{n}"));
            let mut bytes = vec![0; blocks.len() * BLOCK];
            rng.fill(&mut bytes);
            for copy in bytes.chunks_mut(BLOCK).step_by(3) {
                copy[..4].copy_from_slice(&MAGIC);
            }
            fs::write(&data, bytes).unwrap();
            let list =
                |blocks: &[u64]| blocks.iter().map(u64::to_string).collect::<Vec<_>>().join(",");
            if blocks.is_empty() {
                continue;
            }
            let uncommitted = if n == 5 { "-c " } else { "" };
            commands.push(format!("jw {uncommitted}-b {} {}", list(&blocks), arg(&data)));
            // With checksums of version 1, debugfs writes a wrong checksum for a transaction
            // without copies, and e2fsck ends the replay before that transaction.
            if n < 4 && checksums != VERSION_1 {
                earlier.extend(&blocks);
                rng.shuffle(&mut earlier);
                let revoked = &earlier[..earlier.len().min(rng.usize(1..8))];
                commands.push(format!("jw -r {}", list(revoked)));
            }
        }
        commands.push("jc".into());
        let script = dir.join("commands");
        fs::write(&script, commands.join("\n") + "\n").unwrap();
        must("debugfs", &["-w", "-f", arg(&script), arg(&self.image)]);
    }

    /// Returns the image after e2fsck has replayed its log.
    fn replayed_by_e2fsck(&self, dir: &Path) -> RamDevice {
        let Some(journal) = &self.journal else {
            return replayed_by_e2fsck(&self.image, &dir.join("theirs"));
        };
        let [image, log] = [dir.join("theirs"), dir.join("their-log")];
        fs::copy(&self.image, &image).unwrap();
        fs::copy(journal, &log).unwrap();
        let out =
            run("e2fsck", &["-p", "-E", "journal_only", "-j", arg(&log), arg(&image)]).unwrap();
        let says = String::from_utf8_lossy(&out.stdout);
        assert!(out.status.code().unwrap() < 4, "e2fsck: {says}");
        RamDevice::from_file(&image).unwrap()
    }

    /// Replays the log with Lanefs and with e2fsck, and compares every block.
    fn compare(&self, dir: &Path, what: &str) -> Recovered {
        let theirs = self.replayed_by_e2fsck(dir);
        let fs: Arc<dyn Device> = Arc::new(RamDevice::from_file(&self.image).unwrap());
        let log: Arc<dyn Device> = match &self.journal {
            Some(journal) => Arc::new(RamDevice::from_file(journal).unwrap()),
            None => fs.clone(),
        };
        let superblock = self.ext4.journal_superblock(&log);
        println!("{what}: journal features {:?} {:?}", superblock.compat(), superblock.incompat());
        let (map, blocks) = (&self.ext4.map, self.ext4.blocks);
        let source = Input { device: &log, map, superblock: &superblock, blocks };
        let target = OverlayDevice::new(fs, u64::MAX);
        let recovered = recover(&source, &target).unwrap();
        println!("{recovered:?}");
        self.ext4.assert_same(&target, &theirs, what);
        recovered
    }
}

#[test]
fn logs_of_debugfs_in_every_format_replay_as_e2fsck_replays_them() {
    if !has_e2fsprogs() {
        return;
    }
    let seed = 16;
    println!("seed {seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    let (mut compared, mut revoked) = (0, 0);
    let formats = [
        ("metadata_csum,64bit", ""),
        ("metadata_csum,64bit", "-c -v 2"),
        ("metadata_csum,64bit", "-c -v 3"),
        ("metadata_csum,^64bit", "-c -v 2"),
        ("metadata_csum,^64bit", "-c -v 3"),
        ("^metadata_csum,^64bit", ""),
        ("^metadata_csum,64bit", VERSION_1),
        ("^metadata_csum,^64bit", VERSION_1),
    ];
    for is_outside in [false, true] {
        for (features, checksums) in formats {
            let what = format!("outside {is_outside}, {features}, {checksums:?}");
            let dir = tempfile::tempdir_in("/dev/shm").unwrap();
            let Some(logged) = Logged::new(dir.path(), features, is_outside) else { continue };
            logged.write(dir.path(), checksums, &mut rng);
            let found = logged.compare(dir.path(), &what);
            assert!(found.transactions >= 5 && found.blocks > 20, "{what}: {found:?}");
            revoked += found.revoked;
            compared += 1;
        }
    }
    assert!(compared >= 8 && revoked > 20, "{compared} logs, {revoked} revoked copies");
}
