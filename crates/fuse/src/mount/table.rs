//! The mount table, as in /proc/self/mountinfo.

use lanefs_device::{FileDevice, OpenOptions, file_of, is_uri};
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// A mount of Lanefs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountEntry {
    /// The mount point.
    pub mount_point: PathBuf,
    /// The image, unless the mount options set another name.
    pub source: PathBuf,
}

impl MountEntry {
    /// Returns the topmost Lanefs mount on directory `path`; if there is none, the most recent
    /// mount of the image `path`.
    ///
    /// # Errors
    /// `path` or the table cannot be read.
    pub fn of(path: &Path) -> io::Result<Option<MountEntry>> {
        Ok(MountEntry::all_of(path)?.into_iter().next())
    }

    /// Returns all Lanefs mounts, the most recent first.
    ///
    /// # Errors
    /// The table cannot be read.
    pub fn all() -> io::Result<Vec<MountEntry>> {
        let table = std::fs::read("/proc/self/mountinfo")?;
        Ok(table.split(|&b| b == b'\n').rev().filter_map(entry).collect())
    }

    /// Returns the topmost Lanefs mount on directory `path`; if there is none, all mounts of the
    /// image `path` and, if it names no partition, of its partitions, the most recent first.
    ///
    /// # Errors
    /// `path` or the table cannot be read.
    pub fn all_of(path: &Path) -> io::Result<Vec<MountEntry>> {
        let table = std::fs::read("/proc/self/mountinfo")?;
        // If the server of a mount has terminated, the root of the mount cannot be read. The path
        // is then used without resolving it.
        let file = file_of(path);
        let found = match file.canonicalize() {
            _ if is_uri(file) => file.into(),
            Err(_) => std::path::absolute(file)?,
            Ok(found) => found,
        };
        if file == path {
            return Ok(find(&table, &found));
        }
        // The table has the number of a partition, whatever name it was given.
        let device = FileDevice::peek(path, OpenOptions::default()).map_err(io::Error::other)?;
        let number = device.partition().map_or(0, |partition| partition.number);
        let mut name = found.into_os_string();
        name.push(format!("@{number}"));
        Ok(find(&table, Path::new(&name)))
    }
}

fn find(table: &[u8], path: &Path) -> Vec<MountEntry> {
    let mut entries: Vec<_> = table.split(|&b| b == b'\n').rev().filter_map(entry).collect();
    if let Some(on) = entries.iter().position(|entry| entry.mount_point == path) {
        return vec![entries.swap_remove(on)];
    }
    entries.retain(|entry| entry.source == path || file_of(&entry.source) == path);
    entries
}

/// Parses one line, and returns the entry if it is a Lanefs mount. The fifth word is the mount
/// point. The type and the source are the first and second words after a lone `-`. The type on a
/// block device is `fuseblk`.
fn entry(line: &[u8]) -> Option<MountEntry> {
    let mut words = line.split(|&b| b == b' ');
    let mount_point = unescape(words.nth(4)?);
    let mut rest = words.skip_while(|&word| word != b"-").skip(1);
    if !matches!(rest.next()?, b"fuse.lanefs" | b"fuseblk.lanefs") {
        return None;
    }
    let source = unescape(rest.next()?);
    Some(MountEntry { mount_point: mount_point.into(), source: source.into() })
}

/// Decodes blanks, tabs, newlines and backslashes. The table writes each of these characters as a
/// backslash and three octal digits.
fn unescape(word: &[u8]) -> OsString {
    let mut plain = Vec::with_capacity(word.len());
    let mut rest = word;
    while let Some((&byte, after)) = rest.split_first() {
        let octal = after.first_chunk::<3>().and_then(|digits| {
            let text = std::str::from_utf8(digits).ok()?;
            u8::from_str_radix(text, 8).ok()
        });
        match octal {
            Some(code) if byte == b'\\' => {
                plain.push(code);
                rest = &after[3..];
            }
            _ => {
                plain.push(byte);
                rest = after;
            }
        }
    }
    OsString::from_vec(plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt;

    const TABLE: &[u8] = b"22 1 8:1 / / rw - ext4 /dev/sda1 rw\n\
        40 22 0:50 / /mnt/a\\040b rw,nosuid shared:1 - fuse.lanefs /srv/disk\\134.img rw,user_id=0\n\
        41 22 0:51 / /mnt/c rw - fuse.sshfs host: rw\n";

    #[test]
    fn a_mount_is_found_by_directory_and_by_image() {
        let found = find(TABLE, Path::new("/mnt/a b"));
        assert_eq!(found[0].source.as_os_str().as_bytes(), b"/srv/disk\\.img");
        assert_eq!(find(TABLE, &found[0].source), found);
    }

    #[test]
    fn an_image_is_mounted_wherever_it_is_a_directory_once() {
        let line = "42 22 0:52 / /mnt/second ro - fuse.lanefs /srv/disk\\134.img ro\n";
        let table = [TABLE, line.as_bytes(), line.as_bytes()].concat();
        assert_eq!(find(&table, Path::new("/srv/disk\\.img")).len(), 3);
        assert_eq!(find(&table, Path::new("/mnt/second")).len(), 1);
    }

    #[test]
    fn a_mount_of_a_block_device_is_found() {
        let line = b"42 22 7:0 / /mnt/b rw - fuseblk.lanefs /dev/loop0 rw,blksize=4096";
        let found = find(line, Path::new("/dev/loop0"));
        assert_eq!(found[0].mount_point, Path::new("/mnt/b"));
        assert_eq!(find(line, Path::new("/mnt/b")), found);
    }

    #[test]
    fn mounts_of_other_programs_are_not_found() {
        for path in ["/", "/mnt/c", "/mnt", "/dev/sda1"] {
            assert_eq!(find(TABLE, Path::new(path)), []);
        }
    }
}
