//! Tests which changes become durable if damage is found while the file system is mounted.

use crate::image::{Image, file};
use lanefs_device::{
    Access as Opened, Device, DeviceError, Duration as Lasting, Fault, FaultyDevice, FileDevice,
    OpenOptions, Operation, OverlayDevice, RamDevice, WriteKind, forward,
};
use lanefs_ext4::{Access, Error, InodeRef, Mount, MountOptions, Privilege, SyncMode};
use lanefs_lanes::sync::unscheduled::atomic::{AtomicU64, Ordering};
use lanefs_ondisk::quota::{Kind, Limits};
use std::sync::Arc;
use std::time::Duration;

#[test]
fn fsync_keeps_its_promise_though_damage_has_made_the_mount_read_only() {
    let image = Image::made(&["-b", "4096"], "32M");
    let mount = image.mount(Access::ReadWrite);
    let root = mount.fs().root().unwrap();
    let damaged = mount.fs().create(&root, b"damaged", &file(0o644)).unwrap();
    mount.fs().write_at(&damaged, 0, &[1; 4096], Privilege::Root).unwrap();
    drop((root, damaged));
    mount.close().unwrap();
    // The first extent in i_block is changed to refer to a free block.
    image.debugfs(&["sif damaged block[5] 7000"]);

    let options =
        MountOptions { commit_interval: Duration::from_secs(3600), ..MountOptions::default() };
    let mount = image.mount_with(Access::ReadWrite, options);
    let fs = mount.fs();
    let root = fs.root().unwrap();
    let promised = fs.create(&root, b"promised", &file(0o644)).unwrap();
    fs.write_at(&promised, 0, b"written before", Privilege::Root).unwrap();
    fs.unlink(&root, b"damaged").unwrap();
    assert!(fs.is_read_only(), "a block was freed that was free");
    fs.fsync(&promised, SyncMode::Full).unwrap();
    let after = image.copied();
    drop((root, promised));
    mount.close().unwrap();

    let mount = after.mount(Access::ReadOnly);
    let root = mount.fs().root().unwrap();
    let found = mount.fs().find(&root, b"promised").unwrap().expect("what fsync promised");
    assert_eq!(found.attr().size, 14);
}

#[test]
fn damage_is_recorded_in_the_superblock_with_its_inode() {
    let image = Image::made(&["-b", "4096"], "32M");
    image.debugfs(&["mkdir d"]);
    let mount = image.mount(Access::ReadOnly);
    let ino = mount.fs().find(&mount.fs().root().unwrap(), b"d").unwrap().expect("made").ino();
    mount.close().unwrap();
    // The directory is now mapped to a block that is not a directory block, so the block's checksum
    // is wrong.
    image.debugfs(&["sif d block[5] 3000"]);
    let mount = image.mount(Access::ReadWrite);
    let fs = mount.fs();
    let root = fs.root().unwrap();
    let dir = fs.find(&root, b"d").unwrap().expect("made");
    assert!(fs.lookup(&dir, b"x").is_err());
    drop((root, dir));
    mount.close().unwrap();
    assert_eq!(header(&image, "Last error inode #"), Some(ino.0.to_string()));
    assert_eq!(header(&image, "Last error err").as_deref(), Some("EFSCORRUPTED"));
}

/// Returns the value of the field `name` in the output of `dumpe2fs -h`.
fn header(image: &Image, name: &str) -> Option<String> {
    let output = std::process::Command::new("dumpe2fs").arg("-h").arg(image.path()).output();
    let said = String::from_utf8_lossy(&output.unwrap().stdout).into_owned();
    let line = said.lines().find(|line| line.starts_with(name));
    line.and_then(|line| line.split(':').nth(1)).map(|found| found.trim().to_owned())
}

/// Mounts an image, changes files and unmounts. The `nth` operation of the kind `operation` on the
/// device fails. Returns whether this made the log fail.
fn fails_once(image: &Image, operation: Operation, nth: u64) -> bool {
    let opened = FileDevice::open(image.path(), Opened::ReadWrite, OpenOptions::default());
    let fault = Fault { operation, nth, duration: Lasting::Once };
    let device = FaultyDevice::new(Arc::new(opened.unwrap()), Some(fault));
    let options =
        MountOptions { commit_interval: Duration::from_secs(3600), ..MountOptions::default() };
    let Ok(mount) = Mount::open(Arc::new(device), options) else { return false };
    let fs = mount.fs().clone();
    for name in [&b"one"[..], b"two"] {
        let made = fs.root().and_then(|root| fs.create(&root, name, &file(0o644)));
        let _ = made.and_then(|inode| {
            fs.write_at(&inode, 0, &[1; 9000], Privilege::Root)?;
            fs.fsync(&inode, SyncMode::Full)
        });
    }
    let closed = mount.close();
    let failed = fs.failure().is_some();
    assert!(closed.is_err() || !failed);
    failed
}

#[test]
fn a_log_that_failed_is_recorded_where_the_next_mount_and_e2fsck_look() {
    let base = Image::made(&["-b", "4096"], "32M");
    let mut met = 0;
    for operation in [Operation::Write, Operation::Flush] {
        for nth in 1..40 {
            let image = base.copied();
            if !fails_once(&image, operation, nth) {
                continue;
            }
            met += 1;
            let about = format!("{operation:?} {nth}");
            let errno = header(&image, "Journal errno");
            assert_eq!(errno.as_deref(), Some("-5"), "{about}");
            let state = header(&image, "Filesystem state").unwrap();
            assert!(state.contains("with errors"), "{about}: {state}");
            // A replay may restore the superblock from before the error, but the next mount still
            // finds the error in the log.
            image.mount(Access::ReadWrite).close().unwrap();
            let state = header(&image, "Filesystem state").unwrap();
            assert_eq!(state, "clean with errors", "{about}");
            assert_eq!(header(&image, "Journal errno"), None, "{about}: it is told");
            let e2fsck = std::process::Command::new("e2fsck").arg("-p").arg(image.path()).output();
            let said = String::from_utf8_lossy(&e2fsck.unwrap().stdout).into_owned();
            assert!(said.contains("contains a file system with errors"), "{about}: {said}");
            assert_eq!(header(&image, "Filesystem state").as_deref(), Some("clean"), "{about}");
            image.check();
        }
    }
    assert!(met > 6, "{met} faults were met by the log");
}

/// A device whose host has lost a write, and reports that to only one flush or durable write: the
/// one with number `nth`.
struct Host {
    inner: OverlayDevice,
    nth: u64,
    flushes: AtomicU64,
}

impl Host {
    fn flushed(&self) -> Result<(), DeviceError> {
        match self.flushes.fetch_add(1, Ordering::Relaxed) + 1 == self.nth {
            true => {
                let lost = std::io::Error::other("a lost write");
                Err(DeviceError::new(Operation::Flush, 0, 0, lost))
            }
            false => Ok(()),
        }
    }

    fn has_reported(&self) -> bool {
        self.flushes.load(Ordering::Relaxed) >= self.nth
    }
}

impl Device for Host {
    forward!(inner: len, is_read_only, read, discard);
    fn flush(&self) -> Result<(), DeviceError> {
        self.flushed()
    }
    fn write(&self, offset: u64, bufs: &[&[u8]], kind: WriteKind) -> Result<(), DeviceError> {
        self.inner.write(offset, bufs, kind)?;
        match kind.is_durable() {
            true => self.flush(),
            false => Ok(()),
        }
    }
}

/// Mounts an image whose host reports a lost write to the flush with number `nth`. Makes all
/// changes that flush the device, in an order that begins with number `first`. Once the loss was
/// reported, nothing may say any more that data is durable. Returns whether it was reported.
fn is_reported(image: &Arc<RamDevice>, first: usize, nth: u64) -> bool {
    let inner = OverlayDevice::new(image.clone(), u64::MAX);
    let host = Arc::new(Host { inner, nth, flushes: AtomicU64::new(0) });
    let options =
        MountOptions { commit_interval: Duration::from_secs(3600), ..MountOptions::default() };
    let Ok(mount) = Mount::open(host.clone(), options) else { return true };
    let fs = mount.fs();
    let about = |what: &str| format!("{what} after the loss was reported to flush {nth}, {first}");
    let Ok(inode) = fs.root().and_then(|root| fs.create(&root, b"f", &file(0o644))) else {
        return true;
    };
    type Change = fn(&Mount, &InodeRef) -> Result<(), Error>;
    let changes: [Change; 7] = [
        |mount, _| mount.fs().grow(40 << 10).map(drop),
        |mount, _| mount.make_read_only().and_then(|()| mount.make_writable()),
        |mount, inode| mount.fs().fsync(inode, SyncMode::Full),
        |mount, _| mount.fs().trim(0..u64::MAX, 0).map(drop),
        |mount, _| {
            let limits = Limits::default();
            mount.fs().set_quota(Kind::User, 7, limits)
        },
        |mount, inode| mount.fs().defragment(inode, Privilege::Root),
        |mount, _| mount.fs().sync(),
    ];
    for (n, at) in (0..changes.len()).map(|n| (n, (first + n) % changes.len())) {
        let _ = fs.write_at(&inode, n as u64 * 4096, &[n as u8; 9000], Privilege::Root);
        let _ = changes[at](&mount, &inode);
        if host.has_reported() {
            assert!(fs.fsync(&inode, SyncMode::Full).is_err(), "{}", about("fsync"));
            assert!(fs.fsync(&inode, SyncMode::Data).is_err(), "{}", about("fdatasync"));
            assert!(fs.sync().is_err(), "{}", about("sync"));
            let _ = (mount.make_read_only(), mount.make_writable());
            assert!(fs.fsync(&inode, SyncMode::Full).is_err(), "{}", about("a later fsync"));
        }
    }
    drop(inode);
    let closed = mount.close();
    assert!(closed.is_err() || !host.has_reported(), "{}", about("close"));
    host.has_reported()
}

#[test]
#[ignore = "long: every flush fails in turn"]
fn after_a_lost_write_was_reported_once_nothing_is_said_to_be_durable() {
    for options in ["quota,^fast_commit", "fast_commit", "quota,^has_journal,^orphan_file"] {
        let base = Image::made(&["-b", "1024", "-O", options], "20M");
        std::fs::File::options().write(true).open(base.path()).unwrap().set_len(40 << 20).unwrap();
        let base = Arc::new(RamDevice::from_file(base.path()).unwrap());
        for first in [0, 1, 4] {
            let mut nth = 1;
            while is_reported(&base, first, nth) {
                nth += 1;
            }
            assert!(nth > 6, "{nth} flushes with {options}");
        }
    }
}
