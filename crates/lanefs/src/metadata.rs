//! File metadata and times.

use lanefs_ext4::{Attr, Rdev, SetAttr, SetTime};
use lanefs_ondisk::{FileType, Ino, Time};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The attributes of a file, as in stat(2).
///
/// ```
/// use lanefs::FileSystem;
///
/// # use lanefs::device::RamDevice;
/// # use lanefs::{FormatOptions, OpenOptions};
/// # let device = std::sync::Arc::new(RamDevice::create(64 << 20).unwrap());
/// # FileSystem::format(&*device, &FormatOptions::default())?;
/// # let fs = FileSystem::open_device(device, &OpenOptions::new())?;
/// fs.write("/f", [7; 5000])?;
/// let metadata = fs.metadata("/f")?;
/// assert!(metadata.is_file());
/// assert_eq!((metadata.len(), metadata.links()), (5000, 1));
/// assert_eq!(metadata.attr().sectors, 10); // of 512 bytes: five blocks of 1 KiB
/// # Ok::<(), lanefs::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metadata {
    attr: Attr,
}

impl From<Attr> for Metadata {
    fn from(attr: Attr) -> Metadata {
        Metadata { attr }
    }
}

impl Metadata {
    /// All attributes.
    pub fn attr(&self) -> &Attr {
        &self.attr
    }
    /// The file type.
    pub fn file_type(&self) -> FileType {
        self.attr.file_type
    }
    /// True for a directory.
    pub fn is_dir(&self) -> bool {
        self.attr.file_type.is_dir()
    }
    /// True for a regular file.
    pub fn is_file(&self) -> bool {
        self.attr.file_type.is_file()
    }
    /// True for a symbolic link.
    pub fn is_symlink(&self) -> bool {
        self.attr.file_type.is_symlink()
    }
    /// Size in bytes.
    #[allow(clippy::len_without_is_empty)] // as in std::fs::Metadata: a size, not a collection
    pub fn len(&self) -> u64 {
        self.attr.size
    }
    /// The low 12 bits of the mode.
    pub fn permissions(&self) -> u16 {
        self.attr.permissions
    }
    /// Owner.
    pub fn uid(&self) -> u32 {
        self.attr.uid
    }
    /// Group.
    pub fn gid(&self) -> u32 {
        self.attr.gid
    }
    /// The inode number.
    pub fn ino(&self) -> Ino {
        self.attr.ino
    }
    /// Number of hard links.
    pub fn links(&self) -> u32 {
        self.attr.links
    }
    /// The device number of a device file.
    pub fn rdev(&self) -> Rdev {
        self.attr.rdev
    }
    /// Time of the last access.
    pub fn accessed(&self) -> SystemTime {
        to_system(self.attr.atime)
    }
    /// Time of the last change of the data.
    pub fn modified(&self) -> SystemTime {
        to_system(self.attr.mtime)
    }
    /// Time of the last change of the inode.
    pub fn changed(&self) -> SystemTime {
        to_system(self.attr.ctime)
    }
    /// Time of creation; `None` if the inode does not store it.
    pub fn created(&self) -> Option<SystemTime> {
        self.attr.crtime.map(to_system)
    }
}

/// The times to set. Times that are not given stay unchanged.
///
/// ```
/// use lanefs::FileTimes;
/// use std::time::{Duration, UNIX_EPOCH};
/// let times = FileTimes::new().modified(UNIX_EPOCH + Duration::from_secs(1_000_000_000));
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct FileTimes {
    accessed: Option<SetTime>,
    modified: Option<SetTime>,
}

impl FileTimes {
    /// Changes no time.
    pub fn new() -> FileTimes {
        FileTimes::default()
    }
    /// Sets both times, that of the last access and that of the last change of the data, to the
    /// time at which [`crate::FileSystem::set_times`] is called.
    pub fn now() -> FileTimes {
        FileTimes { accessed: Some(SetTime::Now), modified: Some(SetTime::Now) }
    }
    /// Sets the time of the last access.
    pub fn accessed(mut self, time: SystemTime) -> FileTimes {
        self.accessed = Some(SetTime::At(from_system(time)));
        self
    }
    /// Sets the time of the last change of the data.
    pub fn modified(mut self, time: SystemTime) -> FileTimes {
        self.modified = Some(SetTime::At(from_system(time)));
        self
    }
}

impl From<FileTimes> for SetAttr {
    fn from(times: FileTimes) -> SetAttr {
        SetAttr { atime: times.accessed, mtime: times.modified, ..SetAttr::default() }
    }
}

fn to_system(time: Time) -> SystemTime {
    let whole = Duration::from_secs(time.secs.unsigned_abs());
    let start =
        if time.secs < 0 { UNIX_EPOCH.checked_sub(whole) } else { UNIX_EPOCH.checked_add(whole) };
    // An inode's time has 34 bits of seconds. The host's type can represent every such time, so
    // `start` is not `None`.
    start.unwrap_or(UNIX_EPOCH) + Duration::from_nanos(time.nanos.into())
}

fn from_system(time: SystemTime) -> Time {
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => Time {
            secs: i64::try_from(after.as_secs()).unwrap_or(i64::MAX),
            nanos: after.subsec_nanos(),
        },
        Err(before) => {
            let before = before.duration();
            let secs = i64::try_from(before.as_secs()).map_or(i64::MIN, |s| -s);
            match before.subsec_nanos() {
                0 => Time { secs, nanos: 0 },
                nanos => Time { secs: secs.saturating_sub(1), nanos: 1_000_000_000 - nanos },
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_1970_survive_the_round_trip() {
        for (secs, nanos) in [(0, 0), (-1, 999_999_999), (-1, 0), (1 << 33, 5), (-(1 << 31), 1)] {
            let time = Time { secs, nanos };
            assert_eq!(from_system(to_system(time)), time);
        }
    }
}
