//! Tests a mount whose device fails, or whose server panics. Programs get an error, nothing hangs,
//! the server terminates at the unmount, and replaying the log makes the image consistent.
//!
//! The server is in this process. The clients are other processes under timeout(1), so a server
//! that hangs makes the test fail instead of hanging it.

mod serving;

use lanefs_device::{
    Access, Device, DeviceError, FileDevice, OpenOptions, Operation, ReadKind, WriteKind, forward,
};
use lanefs_ext4::{Mount, MountOptions};
use lanefs_fuse::{Busy, Ids, MountPoint, Options, Server, Session, Wishes};
use lanefs_lanes::sync::Arc;
use lanefs_lanes::sync::atomic::{AtomicU8, Ordering};
use serving::by_wanted_transport;
use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The fault of a device. It lasts until another fault is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Trouble {
    Nothing,
    /// Reads fail.
    Reads,
    /// All writes fail, except those of the log.
    DataWrites,
    /// All writes of the log fail.
    JournalWrites,
    /// Flushes fail.
    Flushes,
    /// Reads panic.
    PanicInReads,
    /// Every write panics, except a write to the log.
    PanicInDataWrites,
    /// Every write of the log panics.
    PanicInJournal,
}

/// The size of a block of the image, in bytes.
const BLOCK: u64 = 1024;

struct Troubled {
    inner: FileDevice,
    trouble: AtomicU8,
    /// The blocks of the log.
    log: HashSet<u64>,
}

impl Troubled {
    fn set(&self, trouble: Trouble) {
        self.trouble.store(trouble as u8, Ordering::SeqCst);
    }

    fn strike(&self, operation: Operation, at: u64, len: usize) -> Result<(), DeviceError> {
        let is = |trouble: Trouble| self.trouble.load(Ordering::SeqCst) == trouble as u8;
        let (fails, panics) = match (operation, self.log.contains(&(at / BLOCK))) {
            (Operation::Read, _) => (is(Trouble::Reads), is(Trouble::PanicInReads)),
            (Operation::Flush, _) => (is(Trouble::Flushes), false),
            (_, false) => (is(Trouble::DataWrites), is(Trouble::PanicInDataWrites)),
            (_, true) => (is(Trouble::JournalWrites), is(Trouble::PanicInJournal)),
        };
        assert!(!panics, "a panic that the test asked for");
        if fails {
            let source = io::Error::other("a fault that the test asked for");
            return Err(DeviceError::new(operation, at, len as u64, source));
        }
        Ok(())
    }
}

impl Device for Troubled {
    forward!(inner: len, is_read_only, discard);
    fn read(&self, offset: u64, buf: &mut [u8], kind: ReadKind) -> Result<(), DeviceError> {
        self.strike(Operation::Read, offset, buf.len())?;
        self.inner.read(offset, buf, kind)
    }
    fn write(&self, offset: u64, bufs: &[&[u8]], kind: WriteKind) -> Result<(), DeviceError> {
        let mut at = offset;
        for buf in bufs {
            self.strike(Operation::Write, at, buf.len())?;
            self.inner.write_at(at, buf)?;
            at += buf.len() as u64;
        }
        match kind.is_durable() {
            true => self.flush(),
            false => Ok(()),
        }
    }
    fn flush(&self) -> Result<(), DeviceError> {
        self.strike(Operation::Flush, 0, 0)?;
        self.inner.flush()
    }
}

/// A served image.
struct Scene {
    dir: TempDir,
    device: Arc<Troubled>,
    mount_point: MountPoint,
    server: Option<JoinHandle<End>>,
}

/// The result of a server.
struct End {
    broken: bool,
    outcome: io::Result<()>,
    closed: Result<(), lanefs_ext4::Error>,
}

fn run(command: &mut Command) -> (bool, String) {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&said).into_owned())
}

impl Scene {
    /// Mounts a new image; returns `None` and prints the reason where mounting is forbidden.
    fn new() -> Option<Scene> {
        let missing = if !rustix::process::geteuid().is_root() {
            "mounting needs root"
        } else if !Path::new("/dev/fuse").exists() {
            "there is no /dev/fuse"
        } else {
            ""
        };
        if !missing.is_empty() {
            println!("skipped: a real mount: {missing}");
            return None;
        }
        let memory = Path::new("/dev/shm");
        let base = if memory.is_dir() { memory.into() } else { std::env::temp_dir() };
        let dir = tempfile::Builder::new().prefix("lanefs-trouble-").tempdir_in(base).unwrap();
        let image = dir.path().join("disk.img");
        let (made, said) = run(Command::new("mke2fs")
            .args(["-q", "-t", "ext4", "-b", "1024"])
            .arg(&image)
            .arg("64M"));
        assert!(made, "{said}");
        let (_, log) = run(Command::new("debugfs").args(["-R", "blocks <8>"]).arg(&image));
        let log: HashSet<u64> = log.split_whitespace().filter_map(|n| n.parse().ok()).collect();
        assert!(log.len() > 1000, "the log has {} blocks", log.len());
        std::fs::create_dir(dir.path().join("mnt")).unwrap();
        let part = OpenOptions::default();
        let device = Arc::new(Troubled {
            inner: FileDevice::open(&image, Access::ReadWrite, part).unwrap(),
            trouble: AtomicU8::new(Trouble::Nothing as u8),
            log,
        });
        let mount = Mount::open(device.clone(), MountOptions::default()).unwrap();
        let options = Options::default();
        let (fuse, mount_point) =
            MountPoint::attach(&dir.path().join("mnt"), image.as_os_str(), &options).unwrap();
        let session = Session::start(
            fuse,
            Server::new(mount, by_wanted_transport(Wishes::default()), Ids::default()).unwrap(),
        )
        .unwrap();
        let server = std::thread::spawn(move || {
            let (server, outcome, _farewell) = session.run();
            End { broken: server.is_broken(), outcome, closed: server.close() }
        });
        let scene = Scene { dir, device, mount_point, server: Some(server) };
        // This data is made durable before the fault starts.
        scene.must(
            "echo kept >kept; dd if=/dev/zero of=big bs=1M count=8 conv=fsync status=none; sync kept",
        );
        Some(scene)
    }

    fn image(&self) -> PathBuf {
        self.dir.path().join("disk.img")
    }

    /// Runs a line of shell in the mount; returns whether it succeeded, and its output. The line
    /// must not hang.
    fn shell(&self, line: &str) -> (bool, String) {
        let mut command = Command::new("timeout");
        command.args(["-s", "KILL", "20", "sh", "-euc", line]).current_dir(self.mount_point.path());
        let begun = Instant::now();
        let outcome = run(&mut command);
        assert!(begun.elapsed() < Duration::from_secs(15), "{line}: hung");
        outcome
    }

    fn must(&self, line: &str) -> String {
        let (done, said) = self.shell(line);
        assert!(done, "{line}: {said}");
        said
    }

    /// Runs a line of shell that must fail with one of these errors.
    fn must_fail(&self, line: &str, errors: &[&str]) {
        let (done, said) = self.shell(line);
        assert!(!done && errors.iter().any(|error| said.contains(error)), "{line}: {said}");
    }

    fn end(mut self) -> (Scene, End) {
        let end = Instant::now() + Duration::from_secs(20);
        while let Err(error) = self.mount_point.detach(Busy::Refuse) {
            // A process that another test has just started may still have copies of this process's
            // open files.
            assert!(Instant::now() < end, "unmount: {error}");
            std::thread::sleep(Duration::from_millis(20));
        }
        let server = self.server.take().unwrap();
        while !server.is_finished() {
            assert!(Instant::now() < end, "the server does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
        let end = server.join().expect("the server's thread did not panic");
        assert!(end.outcome.is_ok(), "{:?}", end.outcome);
        (self, end)
    }

    /// Checks that after e2fsck has replayed the log, the image has no fault and contains all data
    /// that was made durable.
    fn assert_recovers(&self) {
        let image = self.image();
        run(Command::new("e2fsck").args(["-fy", "-E", "journal_only"]).arg(&image));
        // Files that were deleted while open, and wrong free counts, are not faults, since the next
        // mount corrects them.
        let (done, said) = run(Command::new("e2fsck").arg("-fp").arg(&image));
        assert!(done || said.contains("orphan"), "{said}");
        let (clean, said) = run(Command::new("e2fsck").arg("-fn").arg(&image));
        assert!(clean, "{said}");
        let (_, said) = run(Command::new("debugfs").args(["-R", "cat kept"]).arg(&image));
        assert!(said.contains("kept\n"), "{said}");
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        if self.server.is_some() {
            let _ = self.mount_point.cut_off();
        }
    }
}

const EIO: &str = "Input/output error";
const EROFS: &str = "Read-only file system";
const READ: &str = "dd if=big of=/dev/null bs=4k count=4 iflag=direct status=none";
const WRITE: &str = "dd if=/dev/zero of=big bs=4k count=4 oflag=direct conv=notrunc status=none";
const SYNC: &str = "echo new >new; sync new";

#[test]
#[ignore = "long: a real mount"]
fn after_a_panic_in_a_request_everything_fails_until_the_unmount() {
    for (trouble, line) in [(Trouble::PanicInReads, READ), (Trouble::PanicInDataWrites, WRITE)] {
        let Some(scene) = Scene::new() else { return };
        scene.device.set(trouble);
        scene.must_fail(line, &[EIO]);
        scene.device.set(Trouble::Nothing);
        scene.must_fail("touch later", &[EIO]);
        scene.must_fail(READ, &[EIO]);
        scene.must_fail("sync big", &[EIO]);
        let (scene, end) = scene.end();
        assert!(end.broken && end.closed.is_ok(), "{trouble:?}");
        scene.assert_recovers();
    }
}

#[test]
#[ignore = "long: a real mount"]
fn a_panic_of_the_journal_leaves_no_thread_waiting() {
    let Some(scene) = Scene::new() else { return };
    scene.device.set(Trouble::PanicInJournal);
    scene.must_fail(SYNC, &[EIO, EROFS]);
    scene.must_fail("mkdir more; sync more", &[EIO, EROFS]);
    let (scene, end) = scene.end();
    assert!(end.broken || end.closed.is_err(), "a mount that lost data ends with an error");
    scene.assert_recovers();
}

#[test]
#[ignore = "long: a real mount"]
fn a_read_that_fails_is_an_error_of_that_read_alone() {
    let Some(scene) = Scene::new() else { return };
    scene.device.set(Trouble::Reads);
    scene.must_fail(READ, &[EIO]);
    scene.device.set(Trouble::Nothing);
    scene.must(READ);
    scene.must(WRITE);
    scene.must(SYNC);
    let (scene, end) = scene.end();
    end.closed.unwrap();
    scene.assert_recovers();
}

#[test]
#[ignore = "long: a real mount"]
fn a_failed_write_of_data_is_reported_to_the_program() {
    let Some(scene) = Scene::new() else { return };
    scene.device.set(Trouble::DataWrites);
    scene.must_fail(WRITE, &[EIO]);
    // The data is written through the kernel's cache, so only fsync returns the error.
    scene.must_fail("dd if=/dev/zero of=cached bs=64k count=1 conv=fsync status=none", &[EIO]);
    scene.device.set(Trouble::Nothing);
    scene.must("cat kept");
    let (scene, _) = scene.end();
    scene.assert_recovers();
}

#[test]
#[ignore = "long: a real mount"]
fn a_journal_that_cannot_be_written_makes_the_mount_read_only() {
    for trouble in [Trouble::JournalWrites, Trouble::Flushes] {
        let Some(scene) = Scene::new() else { return };
        scene.device.set(trouble);
        scene.must_fail(SYNC, &[EIO]);
        // Changes and syncs still fail after the device works again.
        scene.device.set(Trouble::Nothing);
        scene.must_fail("mkdir more", &[EIO, EROFS]);
        scene.must_fail("sync kept", &[EIO]);
        assert_eq!(scene.must("cat kept"), "kept\n", "{trouble:?}: reading goes on");
        scene.must(READ);
        let (scene, end) = scene.end();
        assert!(end.closed.is_err(), "{trouble:?}: a mount that lost data ends with an error");
        scene.assert_recovers();
    }
}
