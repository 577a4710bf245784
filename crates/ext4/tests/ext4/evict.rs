//! An inode stays in memory as long as a commit has work for the inode. Since fsync may have to
//! wait for the commit, the inode stays until the commit is durable. Since the tail of a truncated
//! file must be zeroed, the inode stays until that deferred work is done.
//!
//! The device of these tests holds back a flush, or the zeroing of a tail, as long as a test needs.
//! The cache has size zero, so every object that may be evicted is evicted in the meantime. Then
//! the inode under test is opened again.

use crate::image::{directory, file};
use lanefs_device::{Device, DeviceError, RamDevice, WriteKind, forward};
use lanefs_ext4::{Fs, InodeRef, Mount, MountOptions, Privilege, SetAttr, SyncMode};
use lanefs_lanes::sync::unscheduled::mpsc::{Receiver, channel};
use lanefs_lanes::{Condvar, Mutex, Rank};
use lanefs_mkfs::{Contents, MkfsOptions, mkfs};
use std::sync::Arc;
use std::thread::{JoinHandle, spawn};
use std::time::Duration;

/// The number of files besides the one under test. Loading them triggers many checks of the caches.
const OTHERS: u32 = 200;
/// How long a test watches a call that must not return yet.
const WATCHED: Duration = Duration::from_millis(300);

/// The operations that the gate holds back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Held {
    Nothing,
    Flushes,
    Zeroing,
}

struct Gate {
    held: Held,
    /// The number of operations that wait at the gate.
    waiting: u32,
}

/// A device in memory with a gate.
struct GatedDevice {
    inner: RamDevice,
    gate: Mutex<Gate>,
    changed: Condvar,
}

impl GatedDevice {
    fn new(inner: RamDevice) -> GatedDevice {
        let gate = Mutex::new(Rank::Bucket, Gate { held: Held::Nothing, waiting: 0 });
        GatedDevice { inner, gate, changed: Condvar::new() }
    }

    fn hold(&self, held: Held) {
        self.gate.lock().held = held;
        self.changed.notify_all();
    }

    /// Returns as soon as an operation waits at the gate.
    fn wait_until_held(&self) {
        let mut gate = self.gate.lock();
        while gate.waiting == 0 {
            self.changed.wait(&mut gate);
        }
    }

    fn pass(&self, held: Held) {
        let mut gate = self.gate.lock();
        gate.waiting += 1;
        self.changed.notify_all();
        while gate.held == held {
            self.changed.wait(&mut gate);
        }
        gate.waiting -= 1;
    }
}

impl Device for GatedDevice {
    forward!(inner: len, is_read_only, read, discard);
    fn write(&self, offset: u64, bufs: &[&[u8]], kind: WriteKind) -> Result<(), DeviceError> {
        self.inner.write(offset, bufs, kind)?;
        match kind.is_durable() {
            true => self.flush(),
            false => Ok(()),
        }
    }
    fn flush(&self) -> Result<(), DeviceError> {
        self.pass(Held::Flushes);
        self.inner.flush()
    }
    fn write_zeros(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        self.pass(Held::Zeroing);
        self.inner.write_zeros(offset, len)
    }
}

/// A mount with a cache of size zero and [`OTHERS`] files, all durable.
struct World {
    mount: Mount,
    device: Arc<GatedDevice>,
}

impl World {
    fn new() -> World {
        let ram = RamDevice::create(64 << 20).unwrap();
        let options = MkfsOptions { contents: Contents::Zeros, ..MkfsOptions::default() };
        mkfs(&ram, &options).unwrap();
        let device = Arc::new(GatedDevice::new(ram));
        let options = MountOptions {
            cache_bytes: 0,
            commit_interval: Duration::from_secs(3600),
            ..MountOptions::default()
        };
        let mount = Mount::open(device.clone(), options).unwrap();
        let world = World { mount, device };
        let root = world.fs().root().unwrap();
        for n in 0..OTHERS {
            world.fs().create(&root, format!("other {n}").as_bytes(), &file(0o644)).unwrap();
        }
        world.fs().sync().unwrap();
        world
    }

    fn fs(&self) -> &Arc<Fs> {
        self.mount.fs()
    }

    fn open(&self, name: &str) -> InodeRef {
        open(self.fs(), name)
    }

    /// Starts a commit on another thread, and returns as soon as the commit is held at the gate.
    fn commit_until(&self, held: Held) -> JoinHandle<()> {
        self.device.hold(held);
        let fs = self.fs().clone();
        let commit = spawn(move || fs.sync().unwrap());
        self.device.wait_until_held();
        commit
    }

    /// Loads all other files several times, so that every object that can be evicted is evicted.
    fn fill_caches(&self) {
        for _ in 0..4 {
            (0..OTHERS).for_each(|n| drop(self.open(&format!("other {n}"))));
        }
    }

    /// Runs `call` on another thread. The receiver gets a message when `call` has returned.
    fn start(&self, call: impl FnOnce(&Fs) + Send + 'static) -> (JoinHandle<()>, Receiver<()>) {
        let fs = self.fs().clone();
        let (returned, returns) = channel();
        let thread = spawn(move || {
            call(&fs);
            returned.send(()).unwrap();
        });
        (thread, returns)
    }
}

fn open(fs: &Fs, name: &str) -> InodeRef {
    let root = fs.root().unwrap();
    fs.find(&root, name.as_bytes()).unwrap().expect("it is there")
}

fn resize(fs: &Fs, inode: &InodeRef, size: u64) {
    fs.set_attr(inode, &SetAttr { size: Some(size), ..SetAttr::default() }).unwrap();
}

/// Truncates a file in the middle of a block. While the commit of the truncation is held at `held`,
/// evicts what can be evicted, and appends to the file.
fn appended_while(held: Held) {
    let world = World::new();
    let fs = world.fs();
    let inode = fs.create(&fs.root().unwrap(), b"cut", &file(0o644)).unwrap();
    fs.write_at(&inode, 0, &[b'a'; 1000], Privilege::Root).unwrap();
    fs.sync().unwrap();
    resize(fs, &inode, 500);
    drop(inode);
    let commit = world.commit_until(held);
    world.fill_caches();
    let (append, appended) = world.start(|fs| {
        fs.append(&open(fs, "cut"), &[b'b'; 500], Privilege::Root).unwrap();
    });
    // An append that does not wait for the zeroing would return here, and its data would then be
    // zeroed.
    let _ = appended.recv_timeout(WATCHED);
    world.device.hold(Held::Nothing);
    commit.join().unwrap();
    append.join().unwrap();
    fs.sync().unwrap();
    let mut contents = [0; 1000];
    fs.read_at(&world.open("cut"), 0, &mut contents).unwrap();
    assert!(contents[..500] == [b'a'; 500], "{held:?} held: what stayed was changed");
    assert!(contents[500..] == [b'b'; 500], "{held:?} held: what was appended is gone");
    world.mount.close().unwrap();
}

#[test]
fn data_appended_after_a_truncation_that_is_not_durable_stays() {
    appended_while(Held::Flushes);
}

#[test]
fn data_appended_before_the_truncated_tail_is_zeroed_stays() {
    appended_while(Held::Zeroing);
}

/// Makes `change`, and syncs the file or directory `name` with `mode`. Fails if the sync returns
/// before the commit of `change` is durable.
fn waits_for_the_commit(change: fn(&Fs), mode: SyncMode, name: &'static str) {
    let world = World::new();
    let fs = world.fs();
    let root = fs.root().unwrap();
    fs.create(&root, b"file", &file(0o644)).unwrap();
    fs.create(&root, b"directory", &directory()).unwrap();
    drop(root);
    fs.sync().unwrap();
    change(fs);
    let commit = world.commit_until(Held::Flushes);
    world.fill_caches();
    let (sync, returns) = world.start(move |fs| fs.fsync(&open(fs, name), mode).unwrap());
    let early = returns.recv_timeout(WATCHED).is_ok();
    world.device.hold(Held::Nothing);
    commit.join().unwrap();
    sync.join().unwrap();
    assert!(!early, "{mode:?} of the {name} returned before its change was durable");
    world.mount.close().unwrap();
}

#[test]
fn fsync_of_a_file_opened_anew_waits_for_its_commit() {
    let change = |fs: &Fs| {
        let set = SetAttr { permissions: Some(0o600), ..SetAttr::default() };
        fs.set_attr(&open(fs, "file"), &set).unwrap();
    };
    waits_for_the_commit(change, SyncMode::Full, "file");
}

#[test]
fn fdatasync_of_a_file_opened_anew_waits_for_its_commit() {
    let change = |fs: &Fs| {
        // The change writes no data, so the call waits only for the commit.
        resize(fs, &open(fs, "file"), 5000);
    };
    waits_for_the_commit(change, SyncMode::Data, "file");
}

#[test]
fn fsync_of_a_directory_opened_anew_waits_for_its_commit() {
    let change = |fs: &Fs| {
        fs.create(&open(fs, "directory"), b"new", &file(0o644)).unwrap();
    };
    waits_for_the_commit(change, SyncMode::Full, "directory");
}

#[test]
fn inodes_stay_for_a_commit_and_go_when_it_is_settled() {
    let world = World::new();
    let fs = world.fs();
    // The caches exceed their cap, so a commit is requested, which the gate holds back.
    world.device.hold(Held::Flushes);
    (0..OTHERS).for_each(|n| {
        let set = SetAttr { permissions: Some(0o600), ..SetAttr::default() };
        fs.set_attr(&world.open(&format!("other {n}")), &set).unwrap();
    });
    // A file that is still in memory is not loaded, so new files make the last checks.
    let root = fs.root().unwrap();
    for n in 0..OTHERS {
        fs.create(&root, format!("more {n}").as_bytes(), &file(0o644)).unwrap();
    }
    drop(root);
    world.device.wait_until_held();
    let (kept, _, _) = fs.cached();
    assert!(kept >= OTHERS as usize, "{kept} inodes stay, whose commits are not durable");
    world.device.hold(Held::Nothing);
    fs.sync().unwrap();
    // Objects in memory are not loaded again, so new files are created to trigger the check of the
    // caches.
    let root = fs.root().unwrap();
    let made = OTHERS / 2;
    for n in 0..made {
        fs.create(&root, format!("new {n}").as_bytes(), &file(0o644)).unwrap();
    }
    let (left, _, _) = fs.cached();
    assert!(left < (made + OTHERS / 4) as usize, "{left} inodes stay for a cache of none");
    drop(root);
    world.mount.close().unwrap();
}
