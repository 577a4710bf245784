//! Images mounted by the command, for tests: unmounted at the end whatever happens.

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

/// An image mounted by Lanefs. Dropped, it is unmounted, and by force if it must be.
pub struct Mounted {
    pub path: PathBuf,
    server: Option<Child>,
    /// What is detached after the unmount.
    device: Option<LoopDevice>,
}

/// What a mount stands on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Beneath {
    /// The image file: the mount is of type `fuse`.
    File,
    /// A loop device of the image: the mount is of type `fuseblk`.
    Device,
}

impl Mounted {
    /// By a server in the background, as users mount.
    pub fn new(image: &Image, options: &[&str]) -> Mounted {
        Mounted::at(&image.path, &image.mount_point(), options)
    }

    /// As [`Mounted::new`], on what `beneath` says; `None` if the host has no such device.
    pub fn beneath(beneath: Beneath, image: &Image, options: &[&str]) -> Option<Mounted> {
        if beneath == Beneath::File {
            return Some(Mounted::new(image, options));
        }
        let device = LoopDevice::new(&image.path)?;
        let mut mounted = Mounted::at(&device.path, &image.mount_point(), options);
        mounted.device = Some(device);
        Some(mounted)
    }

    /// As [`Mounted::new`], anything anywhere.
    pub fn at(image: &Path, mount_point: &Path, options: &[&str]) -> Mounted {
        run(lanefs_mount(image, mount_point, options).stdout(Stdio::null()));
        assert!(is_mounted(mount_point));
        Mounted { path: mount_point.into(), server: None, device: None }
    }

    /// What is mounted on `path` by other means, so that it is taken away.
    pub fn already(path: &Path) -> Mounted {
        assert!(is_mounted(path));
        Mounted { path: path.into(), server: None, device: None }
    }

    /// By a server that is a child of the test, which knows its process.
    pub fn in_foreground(image: &Image, options: &[&str]) -> Mounted {
        Mounted::in_foreground_at(&image.path, &image.mount_point(), options)
    }

    /// As [`Mounted::in_foreground`], anything anywhere.
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

/// `lanefs mount IMAGE DIRECTORY -o OPTIONS`, with the transport that `LANEFS_TRANSPORT` names
/// (`scripts/with-ring`).
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

/// Whether something is mounted on `path`.
pub fn is_mounted(path: &Path) -> bool {
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    table.lines().any(|line| line.split(' ').nth(4).map(OsStr::new) == Some(path.as_os_str()))
}
