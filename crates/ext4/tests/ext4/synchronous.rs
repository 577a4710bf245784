//! Checks that with chattr +S and +D, and with the mount options `sync` and `dirsync`, changes are
//! durable when the call returns. After each operation the power is cut, and all unflushed data is
//! lost.

use crate::image::{Image, directory, file};
use Synchronous::{All, Marked, Names};
use lanefs_device::{Kept, OverlayDevice, RamDevice, RecordingDevice};
use lanefs_ext4::{
    Access, Error, Fallocate, Fs, InodeRef, Mount, MountOptions, NewInode, NewKind, Privilege,
    Rename, SetAttr, SetXattr, Synchronous,
};
use std::sync::Arc;
use std::time::Duration;

const SYNC: u32 = 0x8;
const DIRSYNC: u32 = 0x1_0000;

struct Scene {
    device: Arc<RecordingDevice>,
    mount: Mount,
}

impl Scene {
    /// Creates the directory `d` and the file `d/f` of 3 blocks, with these flags on both, on a
    /// mount with this option.
    fn new(flags: u32, synchronous: Synchronous) -> Scene {
        let image = Image::made(&["-b", "4096"], "16M");
        let ram = Arc::new(RamDevice::from_file(image.path()).unwrap());
        let device = Arc::new(RecordingDevice::new(ram).unwrap());
        let options = MountOptions {
            commit_interval: Duration::from_secs(3600),
            synchronous,
            ..MountOptions::default()
        };
        let mount = Mount::open(device.clone(), options).unwrap();
        let fs = mount.fs();
        let dir = fs.create(&fs.root().unwrap(), b"d", &directory()).unwrap();
        let inode = fs.create(&dir, b"f", &file(0o644)).unwrap();
        fs.write_at(&inode, 0, &[1; 3 * 4096], Privilege::Root).unwrap();
        for inode in [&dir, &inode] {
            let set = SetAttr { flags: Some(flags), ..SetAttr::default() };
            fs.set_attr(inode, &set).unwrap();
        }
        fs.sync().unwrap();
        drop((dir, inode));
        Scene { device, mount }
    }

    fn dir(&self) -> InodeRef {
        let fs = self.mount.fs();
        fs.find(&fs.root().unwrap(), b"d").unwrap().unwrap()
    }

    fn file(&self) -> InodeRef {
        self.mount.fs().find(&self.dir(), b"f").unwrap().unwrap()
    }

    /// Returns what a power cut would leave now: the names in `d`, and the bytes of `d/f`.
    fn survives(&self) -> (Vec<Vec<u8>>, Option<Vec<u8>>) {
        let recording = self.device.recording();
        let state: OverlayDevice = recording.replay().state(recording.events().len(), Kept::None);
        let options = MountOptions { access: Access::ReadOnly, ..MountOptions::default() };
        let mount = Mount::open(Arc::new(state), options).unwrap();
        seen(mount.fs())
    }
}

fn seen(fs: &Fs) -> (Vec<Vec<u8>>, Option<Vec<u8>>) {
    let dir = fs.find(&fs.root().unwrap(), b"d").unwrap().unwrap();
    let mut names = Vec::new();
    fs.read_dir(&dir, 0, &mut |entry| {
        names.push(entry.name.to_vec());
        std::ops::ControlFlow::Continue(())
    })
    .unwrap();
    let bytes = fs.find(&dir, b"f").unwrap().map(|inode| {
        let mut bytes = vec![0; inode.attr().size as usize];
        fs.read_at(&inode, 0, &mut bytes).unwrap();
        bytes
    });
    (names, bytes)
}

type Work = (&'static str, fn(&Scene) -> Result<(), Error>);

const DATA: &[Work] = &[
    ("overwrite", |s| s.mount.fs().write_at(&s.file(), 4096, &[2; 4096], ROOT).map(|_| ())),
    ("part of a block", |s| s.mount.fs().write_at(&s.file(), 10, &[2; 100], ROOT).map(|_| ())),
    ("append", |s| s.mount.fs().append(&s.file(), &[3; 5000], ROOT).map(|_| ())),
    ("pages of a kernel", |s| s.mount.fs().write_back(&s.file(), 0, &[4; 4096], ROOT).map(|_| ())),
    ("truncate", |s| {
        let set = SetAttr { size: Some(4096), ..SetAttr::default() };
        s.mount.fs().set_attr(&s.file(), &set).map(|_| ())
    }),
    ("punch", |s| s.mount.fs().fallocate(&s.file(), Fallocate::PunchHole, 0, 4096, ROOT)),
    ("allocate", |s| s.mount.fs().fallocate(&s.file(), Fallocate::Allocate, 0, 40960, ROOT)),
];

const NAMES: &[Work] = &[
    ("create", |s| s.mount.fs().create(&s.dir(), b"new", &file(0o644)).map(|_| ())),
    ("mkdir", |s| s.mount.fs().create(&s.dir(), b"sub", &directory()).map(|_| ())),
    ("symlink", |s| {
        let long = [b'x'; 100];
        let new = NewInode { kind: NewKind::Symlink(&long), ..file(0o777) };
        s.mount.fs().create(&s.dir(), b"link", &new).map(|_| ())
    }),
    ("link", |s| s.mount.fs().link(&s.file(), &s.dir(), b"other")),
    ("rename out", |s| {
        let root = s.mount.fs().root()?;
        s.mount.fs().rename(&s.dir(), b"other", &root, b"out", Rename::Replace)
    }),
    ("rename in", |s| {
        let root = s.mount.fs().root()?;
        s.mount.fs().rename(&root, b"out", &s.dir(), b"in", Rename::Replace)
    }),
    ("rmdir", |s| s.mount.fs().rmdir(&s.dir(), b"sub")),
    ("unlink", |s| s.mount.fs().unlink(&s.dir(), b"in")),
];

const ROOT: Privilege = Privilege::Root;

/// Returns the names of those operations in `work` whose changes were durable when the operation
/// returned.
fn durable(flags: u32, synchronous: Synchronous, work: &[Work]) -> Vec<&'static str> {
    let scene = Scene::new(flags, synchronous);
    let mut durable = Vec::new();
    for (name, work) in work {
        let before = seen(scene.mount.fs());
        work(&scene).unwrap_or_else(|error| panic!("{name}: {error}"));
        let now = seen(scene.mount.fs());
        assert_ne!(before, now, "{name} changes nothing");
        if scene.survives() == now {
            durable.push(*name);
        }
    }
    durable
}

fn all(work: &[Work]) -> Vec<&'static str> {
    work.iter().map(|(name, _)| *name).collect()
}

#[test]
fn writes_to_a_synchronous_file_are_durable_when_the_call_returns() {
    assert_eq!(durable(SYNC, Marked, DATA), all(DATA));
    assert_eq!(durable(0, Marked, DATA), Vec::<&str>::new(), "without the flag");
}

#[test]
fn names_in_a_synchronous_directory_are_durable_when_the_call_returns() {
    assert_eq!(durable(DIRSYNC, Marked, NAMES), all(NAMES));
    assert_eq!(durable(SYNC, Marked, NAMES), all(NAMES));
    assert_eq!(durable(0, Marked, NAMES), Vec::<&str>::new(), "without the flag");
}

#[test]
fn a_synchronous_mount_treats_all_files_as_marked_ones() {
    assert_eq!(durable(0, All, DATA), all(DATA));
    assert_eq!(durable(0, All, NAMES), all(NAMES));
    assert_eq!(durable(0, Names, NAMES), all(NAMES));
    assert_eq!(durable(0, Names, DATA), Vec::<&str>::new(), "data with dirsync");
}

#[test]
fn attributes_of_a_synchronous_file_are_durable_when_the_call_returns() {
    for (flags, option) in [(SYNC, Marked), (0, All), (0, Names), (0, Marked)] {
        let scene = Scene::new(flags, option);
        let is_synchronous = flags == SYNC || option == All;
        let (fs, file) = (scene.mount.fs(), scene.file());
        let stored = || {
            let recording = scene.device.recording();
            let state = recording.replay().state(recording.events().len(), Kept::None);
            let options = MountOptions { access: Access::ReadOnly, ..MountOptions::default() };
            let mount = Mount::open(Arc::new(state), options).unwrap();
            let fs = mount.fs();
            let dir = fs.find(&fs.root().unwrap(), b"d").unwrap().unwrap();
            let file = fs.find(&dir, b"f").unwrap().unwrap();
            fs.get_xattr(&file, b"user.a").ok()
        };
        fs.set_xattr(&file, b"user.a", b"1", SetXattr::Any).unwrap();
        assert_eq!(stored().is_some(), is_synchronous, "set");
        fs.sync().unwrap();
        fs.remove_xattr(&file, b"user.a").unwrap();
        assert_eq!(stored().is_none(), is_synchronous, "removed");
    }
}
