//! Tests a mount that becomes read-only, and then writable again, while threads use it.

use crate::image::{Image, file};
use lanefs_device::{Device, Kept, OverlayDevice, RamDevice, RecordingDevice};
use lanefs_ext4::{Access, Error, Fs, Mount, MountOptions, OnError, Privilege, SyncMode};
use lanefs_lanes::sync::atomic::{AtomicBool, Ordering};
use lanefs_lanes::sync::thread;
use std::sync::Arc;
use std::time::Duration;

const WRITERS: usize = 3;
const CHANGES: usize = 8;
const CUTS: usize = 24;

/// A file, and how many events the device had seen when the fsync of the file returned.
struct Synced {
    name: String,
    at: usize,
}

struct Scene {
    device: Arc<RecordingDevice>,
    mount: Mount,
}

impl Scene {
    fn new(arguments: &[&str]) -> Scene {
        let image = Image::made(arguments, "16M");
        let ram = Arc::new(RamDevice::from_file(image.path()).unwrap());
        let device = Arc::new(RecordingDevice::new(ram).unwrap());
        let mount = Mount::open(device.clone(), MountOptions::default()).unwrap();
        Scene { device, mount }
    }

    /// Creates and syncs a file.
    fn make(&self, name: &str) -> Result<(), Error> {
        let fs = self.mount.fs();
        let inode = fs.create(&fs.root()?, name.as_bytes(), &file(0o644))?;
        fs.write_at(&inode, 0, name.as_bytes(), Privilege::Root)?;
        fs.fsync(&inode, SyncMode::Full)
    }

    /// Creates files until `stop` is set. The only expected errors are those of a read-only mount.
    fn write(&self, me: usize, stop: &AtomicBool) -> Vec<Synced> {
        let mut synced = Vec::new();
        for n in 0.. {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            let name = format!("file-{me}-{n}");
            match self.make(&name) {
                Ok(()) => synced.push(Synced { name, at: self.device.mark() }),
                Err(Error::ReadOnly) => thread::yield_now(),
                Err(error) => panic!("{name}: {error}"),
            }
        }
        synced
    }

    /// Returns a device with the state after a power cut at event `at`, and an image of this
    /// device. All writes that were not flushed are lost.
    fn cut(&self, at: usize) -> (OverlayDevice, Image) {
        let recording = self.device.recording();
        let state = recording.replay().state(at, Kept::None);
        let image = Image::made(&[], "1M");
        state.to_file(image.path()).unwrap();
        (state, image)
    }
}

/// Returns whether the superblock has the state and the features of a clean file system.
fn is_clean(device: &dyn Device) -> bool {
    let mut superblock = [0; 1024];
    device.read_at(1024, &mut superblock).unwrap();
    let needs_recovery = superblock[0x60] & 4 != 0;
    superblock[0x3a] & 1 != 0 && !needs_recovery
}

fn contents(fs: &Fs, name: &str) -> Option<Vec<u8>> {
    let inode = fs.find(&fs.root().unwrap(), name.as_bytes()).unwrap()?;
    let mut bytes = vec![0; inode.attr().size as usize];
    fs.read_at(&inode, 0, &mut bytes).unwrap();
    Some(bytes)
}

fn change_access_while_files_are_written(arguments: &[&str]) {
    let scene = Scene::new(arguments);
    let stop = AtomicBool::new(false);
    let (synced, clean) = thread::scope(|s| {
        let (scene, stop) = (&scene, &stop);
        let writers: Vec<_> =
            (0..WRITERS).map(|me| s.spawn(move || scene.write(me, stop))).collect();
        let mut clean = Vec::new();
        for _ in 0..CHANGES {
            thread::sleep(Duration::from_millis(10));
            scene.mount.make_read_only().unwrap();
            clean.push(scene.device.mark());
            assert!(matches!(scene.make("refused"), Err(Error::ReadOnly)));
            scene.mount.make_writable().unwrap();
        }
        scene.make("last").unwrap();
        stop.store(true, Ordering::Relaxed);
        let synced: Vec<_> =
            writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect();
        (synced, clean)
    });
    assert!(synced.len() > CHANGES, "the writers made {} files", synced.len());
    for at in &clean {
        let (state, image) = scene.cut(*at);
        assert!(is_clean(&state), "at event {at} the file system is in use");
        image.check();
    }
    let has_journal = !arguments.contains(&"^has_journal");
    let end = scene.device.mark();
    let cuts = (1..=CUTS).map(|n| end * n / CUTS).filter(|_| has_journal);
    for at in cuts {
        let (_, image) = scene.cut(at);
        let mount = image.mount(Access::ReadWrite);
        for file in synced.iter().filter(|file| file.at <= at) {
            let found = contents(mount.fs(), &file.name);
            assert_eq!(found.as_deref(), Some(file.name.as_bytes()), "cut at {at} of {end}");
        }
        mount.close().unwrap();
        image.check();
    }
    let Scene { device, mount } = scene;
    mount.close().unwrap();
    assert!(is_clean(&*device));
}

#[test]
fn a_mount_that_becomes_read_only_leaves_a_clean_image_and_can_be_written_again() {
    change_access_while_files_are_written(&["-b", "4096", "-N", "16384"]);
}

#[test]
fn a_mount_without_a_journal_becomes_read_only_too() {
    change_access_while_files_are_written(&["-b", "4096", "-N", "16384", "-O", "^has_journal"]);
}

#[test]
fn a_mount_that_was_opened_read_only_stays_so() {
    let image = Image::made(&[], "16M");
    let mount = image.mount(Access::ReadOnly);
    mount.make_read_only().unwrap();
    assert!(matches!(mount.make_writable(), Err(Error::ReadOnly)));
}

#[test]
fn a_mount_that_was_closed_while_read_only_is_clean() {
    let scene = Scene::new(&["-b", "4096"]);
    scene.make("file").unwrap();
    scene.mount.make_read_only().unwrap();
    let Scene { device, mount } = scene;
    mount.close().unwrap();
    assert!(is_clean(&*device));
}

/// Makes an image with a directory `d` that is mapped to a block without directory entries.
fn damaged() -> Arc<RamDevice> {
    let image = Image::made(&["-b", "4096"], "16M");
    image.debugfs(&["mkdir d", "sif d block[5] 3000"]);
    Arc::new(RamDevice::from_file(image.path()).unwrap())
}

/// Reads the damaged directory.
fn meet_damage(mount: &Mount) {
    let fs = mount.fs();
    let dir = fs.find(&fs.root().unwrap(), b"d").unwrap().unwrap();
    assert!(fs.lookup(&dir, b"x").is_err());
}

fn has_errors(device: &dyn Device) -> bool {
    let mut state = [0];
    device.read_at(1024 + 0x3a, &mut state).unwrap();
    state[0] & 2 != 0
}

#[test]
fn errors_stay_recorded_when_a_mount_becomes_writable_again() {
    let device = damaged();
    let options = MountOptions { on_error: OnError::Continue, ..MountOptions::default() };
    let mount = Mount::open(device.clone(), options).unwrap();
    meet_damage(&mount);
    mount.make_read_only().unwrap();
    assert!(has_errors(&*device), "read-only");
    mount.make_writable().unwrap();
    assert!(has_errors(&*device), "writable");
    mount.close().unwrap();
    assert!(has_errors(&*device), "unmounted");
}

#[test]
fn a_mount_that_damage_made_read_only_does_not_become_writable_again() {
    for is_read_only_before in [false, true] {
        let device = damaged();
        let mount = Mount::open(device.clone(), MountOptions::default()).unwrap();
        if is_read_only_before {
            mount.make_read_only().unwrap();
        }
        meet_damage(&mount);
        mount.make_read_only().unwrap();
        let refused = mount.make_writable();
        assert!(matches!(refused, Err(Error::ReadOnly)), "{is_read_only_before}: {refused:?}");
        mount.close().unwrap();
        assert!(has_errors(&*device), "{is_read_only_before}");
    }
}

#[test]
fn a_mount_with_a_removed_file_that_is_open_does_not_become_read_only() {
    let scene = Scene::new(&["-b", "4096"]);
    scene.make("open").unwrap();
    let fs = scene.mount.fs();
    let root = fs.root().unwrap();
    let open = fs.find(&root, b"open").unwrap().unwrap();
    fs.unlink(&root, b"open").unwrap();
    let refused = scene.mount.make_read_only();
    assert!(matches!(refused, Err(Error::Busy)), "{refused:?}");
    scene.make("still writable").unwrap();
    drop((open, root));
    scene.mount.make_read_only().unwrap();
    let (state, image) = scene.cut(scene.device.mark());
    assert!(is_clean(&state));
    image.check();
}
