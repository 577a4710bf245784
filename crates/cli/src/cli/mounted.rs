//! A file system that Lanefs has mounted, for commands that change a file system as a whole.

use super::{Failure, ImageArguments};
use lanefs::Source;
use lanefs_fuse::MountEntry;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The extended attribute whose value lists the server's counters (`lanefs_fuse::Control`).
const ATTRIBUTE: &str = "system.lanefs_statistics";
/// The largest size of an attribute's value in bytes.
const ROOM: usize = 64 << 10;

/// A mount of Lanefs.
pub struct MountedImage {
    /// The directory on which the file system is mounted.
    pub mount_point: PathBuf,
    /// The mounted image or block device.
    pub source: PathBuf,
}

impl MountedImage {
    /// Returns the mount whose directory or image is `path`. Returns `None` if there is no such
    /// mount, or if `arguments` select a part of the image.
    pub fn of(path: &Path, arguments: ImageArguments) -> Option<MountedImage> {
        if arguments.offset.bytes() != 0 || Source::array_name(path).is_some() {
            return None;
        }
        let MountEntry { mount_point, source } = MountEntry::of(path).ok()??;
        Some(MountedImage { mount_point, source })
    }

    /// Returns the size of the file system in blocks, and the size of a block in bytes.
    pub fn size(&self) -> Result<(u64, u64), Failure> {
        let counters = counters(&self.mount_point)?;
        let level = |name| counters.get(name).copied().unwrap_or(0);
        Ok((level("size.blocks"), level("size.block_bytes").max(1)))
    }
}

/// Reads the counters of the mount on this directory.
pub fn counters(mount_point: &Path) -> Result<BTreeMap<String, u64>, Failure> {
    let mut value = vec![0; ROOM];
    match rustix::fs::getxattr(mount_point, ATTRIBUTE, &mut value[..]) {
        Ok(len) => {
            value.truncate(len);
            Ok(parse_counters(&String::from_utf8_lossy(&value)))
        }
        Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NODATA) => Err(Failure::new(
            mount_point.display(),
            "not the mount point of a Lanefs mount of this user",
        )),
        Err(error) => Err(Failure::on_host(mount_point)(error)),
    }
}

/// Parses lines that each hold a name and a number.
pub fn parse_counters(text: &str) -> BTreeMap<String, u64> {
    let lines = text.lines().filter_map(|line| {
        let (name, value) = line.split_once(' ')?;
        Some((name.to_owned(), value.parse().ok()?))
    });
    lines.collect()
}
