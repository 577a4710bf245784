//! The host's tools for ext4: mke2fs, e2fsck, debugfs and the kernel.
#![allow(dead_code)] // each test file uses a part

use lanefs_device::{Device, RamDevice};
use lanefs_journal::LogMap;
use lanefs_ondisk::jbd2::JournalSuperblock;
use lanefs_ondisk::{Block, BlockSize};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

/// Runs a program; returns its output even if it fails.
pub fn run(program: &str, args: &[&str]) -> std::io::Result<Output> {
    Command::new(program).args(args).output()
}

/// Runs a program that must succeed.
pub fn must(program: &str, args: &[&str]) -> String {
    let out = run(program, args).unwrap_or_else(|e| panic!("{program}: {e}"));
    let error = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{program} {args:?}: {error}");
    String::from_utf8_lossy(&out.stdout).into_owned()
}

/// Returns whether e2fsprogs is installed; prints a message if it is not.
pub fn has_e2fsprogs() -> bool {
    let there = ["mke2fs", "e2fsck", "debugfs"].iter().all(|tool| run(tool, &["-V"]).is_ok());
    if !there {
        println!("skipped: no e2fsprogs here");
    }
    there
}

/// A loop mount by the kernel, which is unmounted when this value is dropped.
pub struct Mounted {
    pub at: PathBuf,
}

impl Mounted {
    /// Mounts `image` on `at`. Returns `None` and prints the reason if mounting is forbidden.
    pub fn new(image: &Path, at: &Path, options: &str) -> Option<Mounted> {
        std::fs::create_dir_all(at).unwrap();
        let options = format!("loop,{options}");
        let out = run("mount", &["-t", "ext4", "-o", &options, arg(image), arg(at)]);
        match out {
            Ok(out) if out.status.success() => Some(Mounted { at: at.into() }),
            other => {
                println!("skipped: cannot mount: {other:?}");
                None
            }
        }
    }

    /// Stops the file system as a crash does, and unmounts it. Nothing writes to the image after
    /// this. A copy of a mounted image would mix blocks of different moments. Returns whether the
    /// file system could be stopped, and prints the reason if it could not.
    pub fn crash(self) -> bool {
        let stopped = run("xfs_io", &["-x", "-c", "shutdown", arg(&self.at)]);
        let done = stopped.as_ref().is_ok_and(|out| out.status.success() && out.stderr.is_empty());
        if !done {
            println!("skipped: cannot stop the file system: {stopped:?}");
        }
        done
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // A child process of another test may have inherited an open file of the mount.
        for _ in 0..50 {
            if run("umount", &[arg(&self.at)]).is_ok_and(|out| out.status.success()) {
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        must("umount", &[arg(&self.at)]);
    }
}

pub fn arg(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// An ext4 image and the blocks of its log.
pub struct Ext4 {
    pub block_size: BlockSize,
    pub blocks: u64,
    pub map: LogMap,
}

impl Ext4 {
    /// Reads the description of `image` with debugfs, without the position of its log.
    pub fn of_blocks(image: &Path) -> Ext4 {
        // Before the replay, the bitmaps may be of other moments than their checksums. With -c they
        // are not read.
        let stats = must("debugfs", &["-c", "-R", "stats -h", arg(image)]);
        let number = |name: &str| -> u64 {
            let line = stats.lines().find(|l| l.starts_with(name)).unwrap();
            line[name.len()..].trim().parse().unwrap()
        };
        let blocks = number("Block count:");
        let block_size = BlockSize::new(number("Block size:") as u32).unwrap();
        Ext4 { block_size, blocks, map: LogMap::new([], 0, blocks).unwrap() }
    }

    /// Reads the description of `image` with debugfs.
    pub fn of(image: &Path) -> Ext4 {
        let Ext4 { block_size, blocks, .. } = Ext4::of_blocks(image);
        let stat = must("debugfs", &["-c", "-R", "stat <8>", arg(image)]);
        let extents = stat.split("EXTENTS:").nth(1).or(stat.split("BLOCKS:").nth(1)).unwrap();
        let runs = extents.split([',', '\n']).filter_map(|run| {
            // "(0-4095):16385-20480" is a run of the log; "(IND):77" and "TOTAL: 9" are not.
            let (logical, physical) = run.trim().strip_prefix('(')?.split_once("):")?;
            let log = logical.split('-').next()?.parse::<u32>().ok()?;
            let mut ends = physical.split('-').map(|n| n.parse::<u64>().unwrap());
            let first = ends.next().unwrap();
            let last = ends.next().unwrap_or(first);
            Some((log, Block(first), (last - first + 1) as u32))
        });
        let runs: Vec<_> = runs.collect();
        let len = runs.iter().map(|run| run.2).sum();
        Ext4 { block_size, blocks, map: LogMap::new(runs, len, blocks).unwrap() }
    }

    pub fn journal_superblock(&self, device: &dyn Device) -> JournalSuperblock {
        let mut bytes = [0; 1024];
        let at = self.map.superblock().0 << self.block_size.bits();
        device.read_at(at, &mut bytes).unwrap();
        JournalSuperblock::decode(&bytes, self.block_size, self.map.len()).unwrap()
    }

    /// Compares two images block by block, without the log, and without the superblock fields that
    /// e2fsck sets at the end.
    pub fn assert_same(&self, ours: &dyn Device, theirs: &dyn Device, what: &str) {
        let size = self.block_size.bytes();
        let (mut a, mut b) = (vec![0; size], vec![0; size]);
        for block in (0..self.blocks).map(Block) {
            if self.map.contains(block) {
                continue;
            }
            let at = block.0 << self.block_size.bits();
            ours.read_at(at, &mut a).unwrap();
            theirs.read_at(at, &mut b).unwrap();
            if at <= 1024 && 1024 < at + size as u64 {
                let start = (1024 - at) as usize;
                for superblock in [&mut a[start..start + 1024], &mut b[start..start + 1024]] {
                    // Write time, state, last check, incompatible features, kilobytes written,
                    // checksum.
                    for field in [0x30..0x34, 0x3a..0x3c, 0x40..0x44, 0x60..0x64, 0x178..0x180] {
                        superblock[field].fill(0);
                    }
                    superblock[0x3fc..].fill(0);
                }
            }
            assert!(a == b, "{what}: {block} differs");
        }
    }
}

/// Returns the image after e2fsck has replayed its log.
pub fn replayed_by_e2fsck(image: &Path, copy: &Path) -> RamDevice {
    std::fs::copy(image, copy).unwrap();
    let out = run("e2fsck", &["-p", "-E", "journal_only", arg(copy)]).unwrap();
    let says = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.code().unwrap() < 4, "e2fsck: {says}");
    RamDevice::from_file(copy).unwrap()
}
