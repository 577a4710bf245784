//! Images and mounts for tests: made in memory, taken away at the end whatever happens.

#![allow(dead_code, reason = "each test program uses its own part")]

use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The program under test.
pub const LANEFS: &str = env!("CARGO_BIN_EXE_lanefs");

/// True if this machine lets us mount; otherwise says why not, in a line that `make test` counts.
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

/// True if `program` is there; otherwise says so in a line that `make test` counts.
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

/// The seconds that a randomised test may take (`LANEFS_SECONDS`).
pub fn seconds(default: u64) -> Duration {
    let given = std::env::var("LANEFS_SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(given.unwrap_or(default))
}

/// The seed of a randomised test (`LANEFS_SEED`, or a new one), printed.
pub fn seed() -> u64 {
    let given = std::env::var("LANEFS_SEED").ok().and_then(|text| text.parse().ok());
    let seed = given.unwrap_or_else(|| fastrand::u64(..));
    println!("seed: {seed} (again with LANEFS_SEED={seed})");
    seed
}

/// A folder in memory if there is one, gone at the end.
pub fn scratch() -> TempDir {
    let memory = Path::new("/dev/shm");
    let builder = || {
        let mut builder = tempfile::Builder::new();
        builder.prefix("lanefs-test-");
        builder
    };
    // Others than root must get through for the tests that are run as nobody.
    let dir = match builder().tempdir_in(memory) {
        Ok(dir) => dir,
        Err(_) => builder().tempdir().unwrap(),
    };
    run(Command::new("chmod").arg("755").arg(dir.path()));
    dir
}

/// Runs `command` and gives what it said; panics with that if it fails.
pub fn run(command: &mut Command) -> String {
    let output =
        command.stdin(Stdio::null()).output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(output.status.success(), "{command:?}: {}\n{}", output.status, said(&output));
    said(&output)
}

/// Runs `command`, which may fail.
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

/// Waits until `met`, for at most `limit`.
pub fn wait_for(what: &str, limit: Duration, mut met: impl FnMut() -> bool) {
    let end = Instant::now() + limit;
    while !met() {
        assert!(Instant::now() < end, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// An ext4 image made by mke2fs, and an empty directory beside it.
pub struct Image {
    pub dir: TempDir,
    pub path: PathBuf,
}

impl Image {
    /// Of `size` as mke2fs understands it, otherwise as mke2fs makes it by default.
    pub fn new(size: &str) -> Image {
        Image::with(size, &[])
    }

    /// With more arguments for mke2fs.
    pub fn with(size: &str, arguments: &[&str]) -> Image {
        let dir = scratch();
        let path = dir.path().join("disk.img");
        run(Command::new("mke2fs").args(["-q", "-t", "ext4"]).args(arguments).arg(&path).arg(size));
        std::fs::create_dir(dir.path().join("mnt")).unwrap();
        Image { dir, path }
    }

    /// The directory beside it.
    pub fn mount_point(&self) -> PathBuf {
        self.dir.path().join("mnt")
    }

    /// e2fsck must find nothing, not even a log to replay.
    pub fn assert_clean(&self) {
        assert_clean(&self.path);
    }

    /// A copy, sparse as the original.
    pub fn copy(&self, name: &str) -> PathBuf {
        let copy = self.dir.path().join(name);
        run(Command::new("cp").arg("--sparse=always").arg(&self.path).arg(&copy));
        copy
    }
}

/// e2fsck must find nothing in `image`.
pub fn assert_clean(image: &Path) {
    let (status, said) = try_run(Command::new("e2fsck").arg("-fn").arg(image));
    assert!(status.success(), "e2fsck -fn {}: {status}\n{said}", image.display());
    assert!(!said.contains("recovery"), "the log is not empty:\n{said}");
}

/// An image mounted by Lanefs. Dropped, it is unmounted, and by force if it must be.
pub struct Mounted {
    pub path: PathBuf,
    server: Option<Child>,
}

impl Mounted {
    /// By a server in the background, as users mount.
    pub fn new(image: &Image, options: &[&str]) -> Mounted {
        Mounted::at(&image.path, &image.mount_point(), options)
    }

    /// As [`Mounted::new`], anything anywhere.
    pub fn at(image: &Path, mount_point: &Path, options: &[&str]) -> Mounted {
        run(lanefs_mount(image, mount_point, options).stdout(Stdio::null()));
        assert!(is_mounted(mount_point));
        Mounted { path: mount_point.into(), server: None }
    }

    /// What is mounted on `path` by other means, so that it is taken away.
    pub fn already(path: &Path) -> Mounted {
        assert!(is_mounted(path));
        Mounted { path: path.into(), server: None }
    }

    /// By a server that is a child of the test, which knows its process.
    pub fn in_foreground(image: &Image, options: &[&str]) -> Mounted {
        Mounted::in_foreground_at(&image.path, &image.mount_point(), options)
    }

    /// As [`Mounted::in_foreground`], anything anywhere.
    pub fn in_foreground_at(image: &Path, mount_point: &Path, options: &[&str]) -> Mounted {
        let server = lanefs_mount(image, mount_point, options).arg("-f").spawn().unwrap();
        let mut mounted = Mounted { path: mount_point.into(), server: Some(server) };
        wait_for("the mount", Duration::from_secs(20), || {
            let ended = mounted.server.as_mut().unwrap().try_wait().unwrap();
            assert!(ended.is_none(), "the server ended: {ended:?}");
            is_mounted(&mounted.path) && std::fs::read_dir(&mounted.path).is_ok()
        });
        mounted
    }

    /// The server, if it is our child.
    pub fn server(&mut self) -> &mut Child {
        self.server.as_mut().expect("in the foreground")
    }

    /// Unmounts with `lanefs umount`: afterwards the image is closed.
    pub fn umount(mut self) {
        // A process that another test is just starting holds our open files until it runs its program.
        wait_for("the unmount", Duration::from_secs(10), || {
            let (status, said) = try_run(Command::new(LANEFS).arg("umount").arg(&self.path));
            assert!(status.success() || said.contains("busy"), "{said}");
            status.success()
        });
        if let Some(mut server) = self.server.take() {
            let status = server.wait().unwrap();
            assert!(status.success(), "the server ended with {status}");
        }
    }

    /// Ends the server as a crash of the process would, and takes the dead mount away.
    pub fn kill(mut self) {
        self.server().kill().unwrap();
        self.server().wait().unwrap();
        self.server = None;
        detach(&self.path);
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if is_mounted(&self.path) {
            detach(&self.path);
        }
        if let Some(mut server) = self.server.take() {
            let end = Instant::now() + Duration::from_secs(5);
            while Instant::now() < end && matches!(server.try_wait(), Ok(None)) {
                std::thread::sleep(Duration::from_millis(10));
            }
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

fn detach(path: &Path) {
    let _ = try_run(Command::new("umount").arg("-l").arg(path));
}

/// `lanefs mount IMAGE DIRECTORY -o OPTIONS`.
pub fn lanefs_mount(image: &Path, mount_point: &Path, options: &[&str]) -> Command {
    let mut command = Command::new(LANEFS);
    command.arg("mount").arg(image).arg(mount_point);
    for list in options {
        command.args(["-o", list]);
    }
    command
}

/// Whether something is mounted on `path`.
pub fn is_mounted(path: &Path) -> bool {
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    table.lines().any(|line| line.split(' ').nth(4).map(OsStr::new) == Some(path.as_os_str()))
}

/// `image` mounted by the kernel's own ext4, unmounted when dropped.
pub struct KernelMounted {
    pub path: PathBuf,
}

impl KernelMounted {
    /// On a new directory `name` beside the image; `None`, said aloud, if the host cannot.
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
}

impl Drop for KernelMounted {
    fn drop(&mut self) {
        let (status, said) = try_run(Command::new("umount").arg(&self.path));
        if !status.success() {
            eprintln!("umount {}: {said}", self.path.display());
        }
    }
}

/// A command run as user and group 65534.
pub fn as_nobody(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.uid(65534).gid(65534);
    command
}

/// A loop device on an image, detached when dropped.
pub struct LoopDevice {
    pub path: PathBuf,
}

impl LoopDevice {
    /// `None`, said aloud, if the host has none.
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
