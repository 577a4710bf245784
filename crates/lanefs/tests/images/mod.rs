//! Images for tests, and mounts of images by the kernel. The images are in memory, and are removed
//! at the end even if a test fails.

#![allow(dead_code, reason = "each test program uses its own part")]

use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Returns whether this machine allows mounts. If not, prints the reason in a line that `make test`
/// counts.
pub fn can_mount() -> bool {
    let reason = if !rustix::process::geteuid().is_root() {
        "mounting needs root"
    } else if !Path::new("/dev/fuse").exists() {
        "there is no /dev/fuse"
    } else if !has("mke2fs") {
        "there is no mke2fs (package e2fsprogs)"
    } else {
        return true;
    };
    println!("skipped: a real mount: {reason}");
    false
}

/// Returns whether `program` is installed. If not, prints a line that `make test` counts.
pub fn needs(program: &str) -> bool {
    let there = has(program);
    if !there {
        println!("skipped: there is no {program}");
    }
    there
}

fn has(program: &str) -> bool {
    let found = |dir: &Path| dir.join(program).is_file();
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| found(&dir))
        || ["/sbin", "/usr/sbin"].iter().any(|dir| found(Path::new(dir)))
}

/// Returns the time limit of a randomised test (`LANEFS_SECONDS`).
pub fn seconds(default: u64) -> Duration {
    let given = std::env::var("LANEFS_SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(given.unwrap_or(default))
}

/// Returns and prints the seed of a randomised test (`LANEFS_SEED`, or a new one).
pub fn seed() -> u64 {
    let given = std::env::var("LANEFS_SEED").ok().and_then(|text| text.parse().ok());
    let seed = given.unwrap_or_else(|| fastrand::u64(..));
    println!("seed: {seed} (again with LANEFS_SEED={seed})");
    seed
}

/// Creates a folder, in memory if possible. It is removed when the returned value is dropped.
pub fn scratch() -> TempDir {
    let memory = Path::new("/dev/shm");
    let builder = || {
        let mut builder = tempfile::Builder::new();
        builder.prefix("lanefs-test-");
        builder
    };
    // Other users need access, for tests that run as the user nobody.
    let dir = match builder().tempdir_in(memory) {
        Ok(dir) => dir,
        Err(_) => builder().tempdir().unwrap(),
    };
    run(Command::new("chmod").arg("755").arg(dir.path()));
    dir
}

/// Runs `command` and returns its output; panics with the output if it fails.
pub fn run(command: &mut Command) -> String {
    let output =
        command.stdin(Stdio::null()).output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(output.status.success(), "{command:?}: {}\n{}", output.status, said(&output));
    said(&output)
}

/// Runs `command`, which may fail; returns its status and output.
pub fn try_run(command: &mut Command) -> (ExitStatus, String) {
    let output =
        command.stdin(Stdio::null()).output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    (output.status, said(&output))
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Runs a line of shell with `dir` as the working directory.
pub fn shell(dir: &Path, line: &str) -> String {
    run(Command::new("sh").arg("-euc").arg(line).current_dir(dir))
}

/// Waits until `met` returns true, for at most `limit`.
pub fn wait_for(what: &str, limit: Duration, mut met: impl FnMut() -> bool) {
    let end = Instant::now() + limit;
    while !met() {
        assert!(Instant::now() < end, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// An ext4 image created by mke2fs, and an empty directory next to it.
pub struct Image {
    pub dir: TempDir,
    pub path: PathBuf,
}

impl Image {
    /// Creates an image of `size` (in mke2fs's syntax) with the defaults of mke2fs.
    pub fn new(size: &str) -> Image {
        Image::with(size, &[])
    }

    /// Does the same as [`Image::new`], with further arguments for mke2fs.
    pub fn with(size: &str, arguments: &[&str]) -> Image {
        let dir = scratch();
        let path = dir.path().join("disk.img");
        run(Command::new("mke2fs")
            .args(["-q", "-F", "-t", "ext4"])
            .args(arguments)
            .arg(&path)
            .arg(size));
        std::fs::create_dir(dir.path().join("mnt")).unwrap();
        Image { dir, path }
    }

    /// Returns the directory next to the image.
    pub fn mount_point(&self) -> PathBuf {
        self.dir.path().join("mnt")
    }

    /// Panics if e2fsck reports anything, even if only the log has to be replayed.
    pub fn assert_clean(&self) {
        assert_clean(&self.path);
    }

    /// Returns a sparse copy.
    pub fn copy(&self, name: &str) -> PathBuf {
        let copy = self.dir.path().join(name);
        run(Command::new("cp").arg("--sparse=always").arg(&self.path).arg(&copy));
        copy
    }
}

/// Panics if e2fsck reports anything about `image`.
pub fn assert_clean(image: &Path) {
    let (status, said) = try_run(Command::new("e2fsck").arg("-fn").arg(image));
    assert!(status.success(), "e2fsck -fn {}: {status}\n{said}", image.display());
    assert!(!said.contains("recovery"), "the log is not empty:\n{said}");
}

/// A mount of an image by the kernel's ext4. Dropping this value unmounts it.
pub struct KernelMounted {
    pub path: PathBuf,
}

impl KernelMounted {
    /// Mounts `image` on a new directory `name` next to it; returns `None` and prints the reason if
    /// the host cannot.
    pub fn new(image: &Path, name: &str, options: &str) -> Option<KernelMounted> {
        let path = image.parent().unwrap().join(name);
        std::fs::create_dir_all(&path).unwrap();
        let options = format!("loop,{options}");
        let (status, said) = try_run(
            Command::new("mount").args(["-t", "ext4", "-o", &options]).arg(image).arg(&path),
        );
        if !status.success() {
            println!("skipped: the kernel's ext4 as a judge: {}", said.trim());
            return None;
        }
        Some(KernelMounted { path })
    }

    /// Stops the file system as a crash does, and unmounts it. Nothing writes to the image after
    /// this. A copy of a mounted image would mix blocks of different moments. Returns whether the
    /// file system could be stopped, and prints the reason if it could not.
    pub fn crash(self) -> bool {
        if !needs("xfs_io") {
            return false;
        }
        let stop = ["-x", "-c", "shutdown"];
        let (_, said) = try_run(Command::new("xfs_io").args(stop).arg(&self.path));
        if !said.is_empty() {
            println!("skipped: xfs_io cannot stop the file system: {}", said.trim());
        }
        said.is_empty()
    }
}

impl Drop for KernelMounted {
    fn drop(&mut self) {
        let (status, said) = try_run(Command::new("umount").arg(&self.path));
        if !status.success() {
            eprintln!("umount {}: {said}", self.path.display());
        }
    }
}

/// Returns a command that runs as user and group 65534.
pub fn as_nobody(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.uid(65534).gid(65534);
    command
}

/// A loop device on an image. Dropping this value detaches it.
pub struct LoopDevice {
    pub path: PathBuf,
}

impl LoopDevice {
    /// Attaches a loop device. Returns `None` and prints a message if the host has none.
    pub fn new(image: &Path) -> Option<LoopDevice> {
        let (status, said) = try_run(Command::new("losetup").args(["--find", "--show"]).arg(image));
        if !status.success() {
            println!("skipped: a block device: {}", said.trim());
            return None;
        }
        Some(LoopDevice { path: said.trim().into() })
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        run(Command::new("losetup").arg("-d").arg(&self.path));
    }
}
