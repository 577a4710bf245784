//! Images created by mke2fs, which tests mount, damage with debugfs, and check with e2fsck.
#![allow(dead_code)] // Each test program uses its own part of this.

use lanefs_device::{Access as Opened, FileDevice, OpenOptions};
use lanefs_ext4::{Access, Error, Mount, MountOptions, NewInode, NewKind};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

pub struct Image {
    dir: tempfile::TempDir,
}

impl Image {
    /// Creates an image with these arguments of mke2fs; `size` is in mke2fs's syntax.
    pub fn made(arguments: &[&str], size: &str) -> Image {
        let base = if Path::new("/dev/shm").is_dir() { "/dev/shm" } else { "/tmp" };
        let dir = tempfile::Builder::new().prefix("lanefs-ext4-").tempdir_in(base).unwrap();
        let image = Image { dir };
        let default_type = if arguments.contains(&"-t") { &[][..] } else { &["-t", "ext4"] };
        let made = Command::new("mke2fs")
            .args(["-q", "-F", "-E", "root_owner=0:0"])
            .args(default_type)
            .args(arguments)
            .arg(image.path())
            .arg(size)
            .output()
            .expect("mke2fs runs");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        image
    }

    pub fn path(&self) -> PathBuf {
        self.dir.path().join("image")
    }

    /// Returns a copy of the image. It is what a power cut at this moment would leave if all writes
    /// so far were durable.
    pub fn copied(&self) -> Image {
        let dir = tempfile::tempdir_in(self.dir.path().parent().unwrap()).unwrap();
        let copy = Image { dir };
        std::fs::copy(self.path(), copy.path()).unwrap();
        copy
    }

    pub fn try_mount(&self, access: Access, options: MountOptions) -> Result<Mount, Error> {
        let opened = match access {
            Access::ReadOnly => Opened::ReadOnly,
            Access::ReadWrite => Opened::ReadWrite,
        };
        let device = FileDevice::open(self.path(), opened, OpenOptions::default()).unwrap();
        Mount::open(Arc::new(device), MountOptions { access, ..options })
    }

    pub fn mount_with(&self, access: Access, options: MountOptions) -> Mount {
        self.try_mount(access, options).unwrap()
    }

    pub fn mount(&self, access: Access) -> Mount {
        self.mount_with(access, MountOptions::default())
    }

    /// Runs debugfs commands with write access.
    pub fn debugfs(&self, commands: &[&str]) -> String {
        let mut said = String::new();
        for command in commands {
            let run = Command::new("debugfs").args(["-w", "-R", command]).arg(self.path()).output();
            let run = run.expect("debugfs runs");
            said += &String::from_utf8_lossy(&run.stdout);
        }
        said
    }

    pub fn check(&self) {
        let found = Command::new("e2fsck").args(["-fn"]).arg(self.path()).output().unwrap();
        let said = String::from_utf8_lossy(&found.stdout);
        assert!(found.status.success(), "e2fsck:\n{said}");
    }
}

pub fn file(permissions: u16) -> NewInode<'static> {
    NewInode { kind: NewKind::Regular, permissions, umask: 0, uid: 0, gid: 0 }
}

pub fn directory() -> NewInode<'static> {
    NewInode { kind: NewKind::Directory, permissions: 0o755, umask: 0, uid: 0, gid: 0 }
}
