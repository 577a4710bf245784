//! Changes of a whole mounted file system, requested by ioctl(2) on its mount point.

use super::options::Options;
use super::point::mount_flags;
use rustix::fs::{StatVfsMountFlags, statvfs};
use rustix::ioctl::{Opcode, Setter, Updater, ioctl, opcode};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;

/// `EXT4_IOC_RESIZE_FS` of the kernel's ext4.
const RESIZE: Opcode = opcode::write::<u64>(b'f', 16);
/// `FITRIM` of `<linux/fs.h>`.
const TRIM: Opcode = opcode::read_write::<[u64; 3]>(b'X', 121);
/// An ioctl of Lanefs: 1 makes the file system read-only and its image clean, 0 makes it writable.
const SET_READ_ONLY: Opcode = opcode::write::<u32>(b'L', 0xc1);

/// Makes the file system that is mounted on `mount_point` larger, to at most `blocks` blocks. An
/// image file is made longer.
///
/// # Errors
/// `PermissionDenied` for users who are neither root nor the owner of the mount; `Unsupported` if
/// this file system cannot grow while it is mounted.
pub fn grow_mounted(mount_point: &Path, blocks: u64) -> io::Result<()> {
    let root = File::open(mount_point)?;
    // SAFETY: the kernel reads one u64 from the setter.
    Ok(unsafe { ioctl(&root, Setter::<RESIZE, u64>::new(blocks)) }?)
}

/// Discards the free blocks in a byte range of the file system that is mounted on `mount_point`,
/// except runs shorter than `least` bytes. Returns the number of discarded bytes.
///
/// # Errors
/// `PermissionDenied` as for [`grow_mounted`]; the errors of the device.
pub fn trim_mounted(mount_point: &Path, bytes: Range<u64>, least: u64) -> io::Result<u64> {
    let root = File::open(mount_point)?;
    let mut range = [bytes.start, bytes.end.saturating_sub(bytes.start), least];
    // SAFETY: the kernel reads and writes only the three u64 of `range`.
    unsafe { ioctl(&root, Updater::<TRIM, [u64; 3]>::new(&mut range)) }?;
    let [_, trimmed, _] = range;
    Ok(trimmed)
}

/// Makes the mount on `mount_point` read-only or writable, and changes the options that only the
/// kernel obeys. Once a mount is read-only, its image is clean, as after an unmount.
///
/// # Errors
/// `PermissionDenied` unless the caller is root; `ResourceBusy` if files are open for writing,
/// or removed files are open;
/// `ReadOnlyFilesystem` if the file system was opened read-only or had an error.
pub fn remount(mount_point: &Path, options: &Options) -> io::Result<()> {
    let root = File::open(mount_point)?;
    let ask = |value: u32| -> io::Result<()> {
        // SAFETY: the kernel reads one u32 from the setter.
        Ok(unsafe { ioctl(&root, Setter::<SET_READ_ONLY, u32>::new(value)) }?)
    };
    let was_read_only = statvfs(mount_point)?.f_flag.contains(StatVfsMountFlags::RDONLY);
    let change =
        |options: &Options| rustix::mount::mount_remount(mount_point, mount_flags(options), c"");
    // The kernel must refuse changes whenever the server does. So the server becomes writable
    // before the kernel's mount does, and becomes read-only after the kernel's mount does. If the
    // second step fails, the first one is undone.
    if options.read_only {
        change(options)?;
        let asked = ask(1);
        if asked.is_err() && !was_read_only {
            change(&Options { read_only: false, ..options.clone() }).ok();
        }
        asked
    } else {
        ask(0)?;
        let changed = change(options);
        if changed.is_err() && was_read_only {
            ask(1).ok();
        }
        Ok(changed?)
    }
}
