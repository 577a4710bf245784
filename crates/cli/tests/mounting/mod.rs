//! Mounts images for tests with `lanefs mount`, and unmounts them even if the test fails.

#![allow(dead_code, unused_imports, reason = "each test program uses its own part")]

#[path = "../../../lanefs/tests/images/mod.rs"]
mod images;

pub use images::*;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The program under test.
pub const LANEFS: &str = env!("CARGO_BIN_EXE_lanefs");

/// An image mounted by Lanefs. Dropping the value unmounts the image, by force if needed.
pub struct Mounted {
    pub path: PathBuf,
    server: Option<Child>,
    /// The loop device, if it belongs to this mount. It is detached after the unmount.
    device: Option<LoopDevice>,
}

/// What a test mounts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Beneath {
    /// The image file; the mount is of type `fuse`.
    File,
    /// A loop device on the image; the mount is of type `fuseblk`.
    Device,
}

impl Mounted {
    /// Mounts with a server in the background, as users do.
    pub fn new(image: &Image, options: &[&str]) -> Mounted {
        Mounted::at(&image.path, &image.mount_point(), options)
    }

    /// Does the same as [`Mounted::new`], for the image file or for a new loop device on it.
    /// Returns `None` if the host has no loop device.
    pub fn beneath(beneath: Beneath, image: &Image, options: &[&str]) -> Option<Mounted> {
        if beneath == Beneath::File {
            return Some(Mounted::new(image, options));
        }
        let device = LoopDevice::new(&image.path)?;
        let mut mounted = Mounted::at(&device.path, &image.mount_point(), options);
        mounted.device = Some(device);
        Some(mounted)
    }

    /// Does the same as [`Mounted::new`], with any source and directory.
    pub fn at(image: &Path, mount_point: &Path, options: &[&str]) -> Mounted {
        run(lanefs_mount(image, mount_point, options).stdout(Stdio::null()));
        assert!(is_mounted(mount_point));
        Mounted { path: mount_point.into(), server: None, device: None }
    }

    /// Takes over an existing mount on `path`, to unmount it when dropped.
    pub fn already(path: &Path) -> Mounted {
        assert!(is_mounted(path));
        Mounted { path: path.into(), server: None, device: None }
    }

    /// Mounts with a server that runs in the foreground, as a child process of the test.
    pub fn in_foreground(image: &Image, options: &[&str]) -> Mounted {
        Mounted::in_foreground_at(&image.path, &image.mount_point(), options)
    }

    /// Does the same as [`Mounted::in_foreground`], with any source and directory.
    pub fn in_foreground_at(image: &Path, mount_point: &Path, options: &[&str]) -> Mounted {
        let server = lanefs_mount(image, mount_point, options).arg("-f").spawn().unwrap();
        let mut mounted = Mounted { path: mount_point.into(), server: Some(server), device: None };
        wait_for("the mount", Duration::from_secs(20), || {
            let ended = mounted.server.as_mut().unwrap().try_wait().unwrap();
            assert!(ended.is_none(), "the server ended: {ended:?}");
            is_mounted(&mounted.path) && std::fs::read_dir(&mounted.path).is_ok()
        });
        mounted
    }

    /// Returns the server. Panics if it runs in the background.
    pub fn server(&mut self) -> &mut Child {
        self.server.as_mut().expect("in the foreground")
    }

    /// Unmounts with `lanefs umount`. When this returns, the image is closed.
    pub fn umount(mut self) {
        // The mount may be busy for a moment. If another test is starting a process, that process
        // has copies of this process's open files until it executes its program.
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

    /// Kills the server, as a crash would, and removes the dead mount.
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

/// Returns the command `lanefs mount IMAGE DIRECTORY -o OPTIONS`, with the transport in
/// `LANEFS_TRANSPORT` (`scripts/with-ring`).
pub fn lanefs_mount(image: &Path, mount_point: &Path, options: &[&str]) -> Command {
    let mut command = Command::new(LANEFS);
    command.arg("mount").arg(image).arg(mount_point);
    if let Ok(transport) = std::env::var("LANEFS_TRANSPORT") {
        command.args(["-o", &format!("transport={transport}")]);
    }
    for list in options {
        command.args(["-o", list]);
    }
    command
}

/// Returns whether a file system is mounted on `path`.
pub fn is_mounted(path: &Path) -> bool {
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    table.lines().any(|line| line.split(' ').nth(4).map(OsStr::new) == Some(path.as_os_str()))
}
