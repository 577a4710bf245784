//! Finds those users of a file or block device of the host that `flock` does not show.
//!
//! A loop device opens its file without a lock. Without this check the kernel and Lanefs could both
//! write to an image that the kernel has mounted through a loop device. Nothing prevents a loop
//! device from being attached after the check.

use crate::device::Access;
use std::fmt;
use std::fs::{File, Metadata};
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// `_IO(0x12, 94)` of `<linux/fs.h>`: whether a block device is write-protected.
const BLKROGET: rustix::ioctl::Opcode = rustix::ioctl::opcode::none(0x12, 94);

/// Returns whether the host refuses writes to a block device.
pub(crate) fn is_write_protected(block_device: &File) -> rustix::io::Result<bool> {
    // SAFETY: BLKROGET writes one int.
    let answer = unsafe {
        rustix::ioctl::ioctl(block_device, rustix::ioctl::Getter::<BLKROGET, i32>::new())
    }?;
    Ok(answer != 0)
}

/// The user of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum User {
    /// A program that locked the image, or opened a block device exclusively: usually a Lanefs
    /// mount or command.
    Lock,
    /// A program that locked the image as qemu does: a virtual machine, qemu-nbd or qemu-img.
    Machine,
    /// The host: the block device is mounted, used for swap, or part of another device.
    Host,
    /// The host, through a loop device.
    Loop {
        /// The loop device.
        device: PathBuf,
        /// A directory where the loop device is mounted, if such a mount is visible.
        mounted_on: Option<PathBuf>,
    },
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            User::Lock => f.write_str("by another program or mount"),
            User::Machine => {
                f.write_str("by a virtual machine or another program, which locked it as qemu does")
            }
            User::Host => {
                f.write_str("by the host: it is mounted, swapped to, or part of an array")
            }
            User::Loop { device, mounted_on: Some(dir) } => {
                write!(f, "by the kernel: {} is mounted on {}", device.display(), dir.display())
            }
            User::Loop { device, mounted_on: None } => {
                write!(f, "by the kernel: it is attached to {}", device.display())
            }
        }
    }
}

/// The host's files that describe its devices and mounts.
pub(crate) struct Host<'p> {
    /// The folder of block devices in sysfs.
    pub blocks: &'p Path,
    /// The table of mounts, in the format of mountinfo.
    pub mounts: &'p Path,
    /// The folder in sysfs with a link to each block device. The name of each link is the device's
    /// number.
    pub numbers: &'p Path,
    /// The table of swap areas.
    pub swaps: &'p Path,
}

impl Host<'static> {
    /// Returns the files of the running host.
    pub(crate) fn this() -> Host<'static> {
        Host {
            blocks: Path::new("/sys/block"),
            mounts: Path::new("/proc/self/mountinfo"),
            numbers: Path::new("/sys/dev/block"),
            swaps: Path::new("/proc/swaps"),
        }
    }
}

/// A line of the table of mounts.
struct Mounted {
    on: PathBuf,
    writable: bool,
}

impl Host<'_> {
    /// Returns a loop device whose use of a file conflicts with `access` to the bytes `part` of
    /// that file.
    ///
    /// With [`Access::ReadWrite`], no other user may have these bytes in a cache, not even for
    /// reading. With [`Access::ReadOnly`], no other user may change these bytes, so only a writable
    /// loop device is a conflict. A writable loop device is a conflict even if no mount of it is
    /// visible: there may be a mount that this process cannot see, and Lanefs would report a
    /// half-finished change of that mount as damage.
    pub(crate) fn loop_user(
        &self,
        file: &Metadata,
        part: Range<u64>,
        access: Access,
    ) -> Option<User> {
        let devices = std::fs::read_dir(self.blocks).ok()?;
        devices.flatten().find_map(|entry| {
            let dir = entry.path();
            let word = |name: &str| {
                let text = std::fs::read_to_string(dir.join(name)).ok()?;
                Some(text.trim_end_matches('\n').to_owned())
            };
            let number = |name: &str| word(name).and_then(|text| text.parse::<u64>().ok());
            let backing = std::fs::metadata(word("loop/backing_file")?).ok()?;
            if (backing.dev(), backing.ino()) != (file.dev(), file.ino()) {
                return None;
            }
            let start = number("loop/offset").unwrap_or(0);
            let end = match number("loop/sizelimit").unwrap_or(0) {
                0 => u64::MAX,
                len => start.saturating_add(len),
            };
            let apart = end <= part.start || part.end <= start;
            if apart || access == Access::ReadOnly && number("ro") == Some(1) {
                return None;
            }
            let mounted = word("dev").and_then(|dev| self.mounted(&dev));
            Some(User::Loop {
                device: Path::new("/dev").join(entry.file_name()),
                mounted_on: mounted.map(|mounted| mounted.on),
            })
        })
    }

    /// Returns whether a block device is mounted for writing. If it is, a read of the block device
    /// may return a half-finished change.
    pub(crate) fn writes(&self, block_device: &Metadata) -> bool {
        self.mounted(&number_of(block_device)).is_some_and(|mounted| mounted.writable)
    }

    /// Returns the user that prevents an exclusive open of the block device at `path`. If a program
    /// has the device open, a later retry may succeed; if the host uses the device, a retry is
    /// useless.
    pub(crate) fn claimant(&self, path: &Path) -> User {
        match std::fs::metadata(path) {
            Ok(block_device) if !self.claims(&block_device).unwrap_or(true) => User::Lock,
            _ => User::Host,
        }
    }

    /// Returns whether the host itself uses a block device, one of the device's partitions, or (if
    /// the device is a partition) its disk; `None` if that is not visible.
    fn claims(&self, block_device: &Metadata) -> Option<bool> {
        let dir = self.numbers.join(number_of(block_device)).canonicalize().ok()?;
        let mut dirs = vec![dir.clone()];
        if dir.join("partition").exists() {
            dirs.push(dir.parent()?.into());
        }
        let inside = std::fs::read_dir(&dir).ok()?.flatten().map(|entry| entry.path());
        dirs.extend(inside.filter(|dir| dir.join("partition").exists()));
        let swapped: Vec<String> = std::fs::read_to_string(self.swaps)
            .unwrap_or_default()
            .lines()
            .filter_map(|line| std::fs::metadata(line.split_whitespace().next()?).ok())
            .map(|file| number_of(&file))
            .collect();
        Some(dirs.iter().any(|dir| {
            let number = std::fs::read_to_string(dir.join("dev")).unwrap_or_default();
            let holders = std::fs::read_dir(dir.join("holders"));
            self.mounted(number.trim()).is_some()
                || swapped.iter().any(|swapped| swapped == number.trim())
                || holders.is_ok_and(|mut holders| holders.next().is_some())
        }))
    }

    /// Returns the mount of the device `MAJOR:MINOR`.
    fn mounted(&self, dev: &str) -> Option<Mounted> {
        let table = std::fs::read_to_string(self.mounts).ok()?;
        table.lines().find_map(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            // The last field contains the options of the file system rather than of one mount, so
            // they are the same for all its mounts.
            let writable = words.last()?.split(',').any(|option| option == "rw");
            let on = words.get(4)?.into();
            (words.get(2) == Some(&dev)).then_some(Mounted { on, writable })
        })
    }
}

/// Returns `MAJOR:MINOR` of a block device.
fn number_of(block_device: &Metadata) -> String {
    let rdev = block_device.rdev();
    format!("{}:{}", rustix::fs::major(rdev), rustix::fs::minor(rdev))
}

#[cfg(test)]
mod tests;
