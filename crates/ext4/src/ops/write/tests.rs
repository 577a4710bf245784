use crate::ops::write::*;
use crate::{Fallocate, InodeRef, Mount, MountOptions, NewInode, NewKind, Privilege, SetAttr};
use lanefs_device::{Device, DeviceError, FaultyDevice, Operation, RamDevice, WriteKind, forward};
use lanefs_lanes::sync::Arc;
use lanefs_lanes::sync::unscheduled::{Condvar, Mutex};
use lanefs_mkfs::{Contents, MkfsOptions, mkfs};
use std::time::Duration;

/// The byte that fills the data of each write.
const DATA: u8 = 0xd7;
/// The length of each write in bytes.
const LEN: usize = 16 << 10;

/// A device on which data writes wait for each other.
struct Meeting {
    inner: RamDevice,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// The number of writes that wait for each other; 0 if writes do not wait.
    wanted: usize,
    inside: usize,
    met: bool,
}

impl Meeting {
    /// From now on each data write waits until `wanted` writes are on the device at the same time.
    fn expect(&self, wanted: usize) {
        *self.state.lock().unwrap() = State { wanted, ..State::default() };
    }

    fn enter(&self) {
        let mut state = self.state.lock().unwrap();
        state.inside += 1;
        if state.inside >= state.wanted {
            state.met = true;
            self.changed.notify_all();
        }
        // If the writes do not reach the device at the same time, the test fails instead of waiting
        // for ever.
        let patience = Duration::from_secs(20);
        let (mut state, _) =
            self.changed.wait_timeout_while(state, patience, |state| !state.met).unwrap();
        state.inside -= 1;
    }
}

impl Device for Meeting {
    forward!(inner: len, is_read_only, read, flush, discard);
    fn write(&self, offset: u64, bufs: &[&[u8]], kind: WriteKind) -> Result<(), DeviceError> {
        if bufs.iter().any(|buf| buf.len() == LEN && buf.iter().all(|byte| *byte == DATA)) {
            self.enter();
        }
        self.inner.write(offset, bufs, kind)
    }
}

/// Runs `test` with a new file, and then checks the file system as a new mount sees it.
fn with_file(test: impl FnOnce(&Meeting, &crate::Fs, &InodeRef)) {
    let device = Arc::new(Meeting {
        inner: RamDevice::create(64 << 20).expect("memory"),
        state: Mutex::default(),
        changed: Condvar::new(),
    });
    let options = MkfsOptions { contents: Contents::Zeros, ..MkfsOptions::default() };
    mkfs(&*device, &options).expect("room for a file system");
    let mount = Mount::open(device.clone(), MountOptions::default()).expect("a new file system");
    let root = mount.fs().root().expect("a root");
    let new = NewInode { kind: NewKind::Regular, permissions: 0o644, umask: 0, uid: 0, gid: 0 };
    let file = mount.fs().create(&root, b"file", &new).expect("room");
    test(&device, mount.fs(), &file);
    drop((file, root));
    mount.close().expect("no fault");
    let mount = Mount::open(device, MountOptions::default()).expect("a whole file system");
    mount.close().expect("no fault");
}

/// Starts one thread for each of `offsets`, which writes at that offset (`None` appends), and
/// checks that all these writes are on the device at the same time.
fn meet(device: &Meeting, fs: &crate::Fs, file: &InodeRef, offsets: &[Option<u64>], what: &str) {
    device.expect(offsets.len());
    std::thread::scope(|s| {
        for offset in offsets {
            s.spawn(move || {
                let data = [DATA; LEN];
                let written = match offset {
                    Some(at) => fs.write_at(file, *at, &data, Privilege::Root),
                    None => fs.append(file, &data, Privilege::Root).map(|(_, n)| n),
                };
                assert_eq!(written.expect("no fault"), LEN);
            });
        }
    });
    let met = device.state.lock().unwrap().met;
    assert!(met, "{what}: the writes were not on the device at once");
    for at in offsets.iter().flatten() {
        let mut found = [0; LEN];
        assert_eq!(fs.read_at(file, *at, &mut found).expect("no fault"), LEN);
        assert_eq!(found, [DATA; LEN], "{what}: at {at}");
    }
}

fn four(from: u64) -> Vec<Option<u64>> {
    (0..4).map(|n| Some(from + n * LEN as u64)).collect()
}

#[test]
fn writes_to_unwritten_space_of_one_file_are_on_the_device_at_once() {
    with_file(|device, fs, file| {
        fs.fallocate(file, Fallocate::Allocate, 0, 8 * LEN as u64, Privilege::Root).unwrap();
        meet(device, fs, file, &four(LEN as u64), "unwritten");
        meet(device, fs, file, &four(LEN as u64), "written");
        let mut edges = vec![1; 2 * LEN];
        fs.read_at(file, 5 * LEN as u64, &mut edges).unwrap();
        assert!(edges.iter().all(|byte| *byte == 0), "bytes beside the writes");
    });
}

#[test]
fn writes_to_holes_of_one_file_are_on_the_device_at_once() {
    with_file(|device, fs, file| {
        let size = Some(8 * LEN as u64);
        fs.set_attr(file, &SetAttr { size, ..SetAttr::default() }).unwrap();
        meet(device, fs, file, &four(LEN as u64), "holes");
    });
}

#[test]
fn writes_that_extend_one_file_are_on_the_device_at_once() {
    with_file(|device, fs, file| {
        meet(device, fs, file, &four(0), "an empty file");
        assert_eq!(file.attr().size, 4 * LEN as u64);
        meet(device, fs, file, &four(8 * LEN as u64), "beyond the end");
        assert_eq!(file.attr().size, 12 * LEN as u64);
        let mut hole = vec![1; 4 * LEN];
        fs.read_at(file, 4 * LEN as u64, &mut hole).unwrap();
        assert!(hole.iter().all(|byte| *byte == 0), "a hole");
    });
}

#[test]
fn an_append_is_on_the_device_beside_writes_inside_the_file_and_reads_run() {
    with_file(|device, fs, file| {
        fs.write_at(file, 0, &[1; LEN], Privilege::Root).unwrap();
        fs.fallocate(file, Fallocate::Allocate, LEN as u64, LEN as u64, Privilege::Root).unwrap();
        let size = Some(3 * LEN as u64);
        fs.set_attr(file, &SetAttr { size, ..SetAttr::default() }).unwrap();
        let offsets = [Some(0), Some(LEN as u64), Some(2 * LEN as u64), None];
        meet(device, fs, file, &offsets, "all four");
        assert_eq!(file.attr().size, 4 * LEN as u64);
        // A write that is in progress on the device does not block readers. Here the device holds
        // the append back until the reader is done.
        device.expect(2);
        std::thread::scope(|s| {
            s.spawn(|| fs.append(file, &[DATA; LEN], Privilege::Root).unwrap());
            while device.state.lock().unwrap().inside == 0 {
                std::thread::yield_now();
            }
            let mut found = [0; LEN];
            assert_eq!(fs.read_at(file, 3 * LEN as u64, &mut found).unwrap(), LEN);
            assert_eq!(found, [DATA; LEN]);
            assert_eq!(fs.read_at(file, 4 * LEN as u64, &mut found).unwrap(), 0, "not there yet");
            device.enter();
        });
        assert!(device.state.lock().unwrap().met);
        assert_eq!(file.attr().size, 5 * LEN as u64);
    });
}

#[test]
fn two_writes_to_one_hole_both_are_kept() {
    with_file(|device, fs, file| {
        let size = Some(8 * LEN as u64);
        fs.set_attr(file, &SetAttr { size, ..SetAttr::default() }).unwrap();
        let free = fs.stat_fs().blocks_free;
        // Each write overlaps the next one in two blocks, and all writes reach the device at the
        // same time.
        let offsets = [Some(0), Some(LEN as u64 / 2), Some(LEN as u64)];
        meet(device, fs, file, &offsets, "overlapping");
        let used = free - fs.stat_fs().blocks_free;
        let blocks = 2 * LEN as u64 / u64::from(fs.stat_fs().block_size);
        assert_eq!(used, blocks, "the blocks of the file and no others");
    });
}

fn mounted() -> (Mount, Arc<FaultyDevice>) {
    let ram = RamDevice::create(64 << 20).expect("memory");
    let options = MkfsOptions { contents: Contents::Zeros, ..MkfsOptions::default() };
    mkfs(&ram, &options).expect("room for a file system");
    let device = Arc::new(FaultyDevice::new(Arc::new(ram), None));
    let options =
        MountOptions { commit_interval: Duration::from_secs(3600), ..MountOptions::default() };
    (Mount::open(device.clone(), options).expect("a new file system"), device)
}

#[test]
fn an_fsync_flushes_for_its_own_writes_even_if_the_inode_was_evicted_since() {
    let (mount, device) = mounted();
    let fs = mount.fs();
    let root = fs.root().expect("a root");
    let made = ["written", "clean"]
        .map(|name| fs.create(&root, name.as_bytes(), &regular()).expect("room for a file").ino());
    fs.sync().expect("no fault");
    let flushes = |ino, flushed: u64, what: &str| {
        let before = device.count(Operation::Flush);
        let inode = fs.get(ino, None).expect("it has a name");
        fs.fsync(&inode, SyncMode::Full).expect("no fault");
        assert_eq!(device.count(Operation::Flush), before + flushed, "{what}");
    };
    // This call notes a write of data without any change of metadata, so there is nothing to
    // commit. An overwrite has the same effect if the file's times are already up to date.
    fs.note_data(&fs.get(made[0], None).expect("it has a name"));
    flushes(made[1], 0, "another file was written");
    let before = fs.inodes.get(made[0]).expect("it is in memory");
    // The committer has nothing to do here, so the test itself evicts the inode.
    fs.inodes.evict(usize::MAX, 1 << 20, fs.journal.settled());
    assert!(fs.inodes.get(made[0]).is_none(), "nobody holds it");
    flushes(made[0], 1, "its data is not durable");
    let again = fs.inodes.get(made[0]).expect("it is in memory");
    assert!(!Arc::ptr_eq(&before, &again));
    flushes(made[0], 0, "it is durable now");
    drop(root);
    mount.close().expect("no fault");
}

fn regular() -> NewInode<'static> {
    NewInode { kind: NewKind::Regular, permissions: 0o644, umask: 0, uid: 0, gid: 0 }
}
