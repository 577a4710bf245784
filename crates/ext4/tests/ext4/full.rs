//! Tests writers when free space is almost used up, while bitmap reads, writes, commits or discards
//! are held back. Every writer gets space as long as there is some, and no writer waits for another
//! writer's commit.

use crate::image::{Image, file};
use lanefs_device::{
    Access as Opened, Device, DeviceError, FileDevice, OpenOptions, ReadKind, WriteKind, forward,
};
use lanefs_ext4::{Access, Error, Fs, InodeRef, Mount, MountOptions, NewInode, Privilege, SetAttr};
use lanefs_lanes::sync::unscheduled::mpsc::channel;
use lanefs_lanes::sync::unscheduled::{Barrier, Condvar, Mutex};
use lanefs_ondisk::quota::{Kind, Limits};
use std::sync::Arc;
use std::time::Duration;

const BLOCK: usize = 1024;
/// The byte that fills the data of a write that can be held back.
const HELD: u8 = 0x7e;
/// The number of blocks that mappings may take in addition to the data.
const NODES: u64 = 150;

/// How reads behave on a device with a gate.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Gate {
    Open,
    /// Reads wait until the gate is opened.
    Closed,
    /// Each read is delayed by a random time below this many microseconds.
    Slow(u64),
}

struct GatedDevice {
    inner: FileDevice,
    gate: Mutex<Gate>,
    /// Flushes wait if this is [`Gate::Closed`].
    flushes: Mutex<Gate>,
    /// Writes of blocks full of [`HELD`] wait if this is [`Gate::Closed`].
    writes: Mutex<Gate>,
    /// Discards wait if this is [`Gate::Closed`].
    discards: Mutex<Gate>,
    changed: Condvar,
}

impl GatedDevice {
    fn set(&self, gate: Gate) {
        *self.gate.lock().unwrap() = gate;
        self.changed.notify_all();
    }

    fn set_flushes(&self, gate: Gate) {
        *self.flushes.lock().unwrap() = gate;
        self.changed.notify_all();
    }

    fn set_writes(&self, gate: Gate) {
        *self.writes.lock().unwrap() = gate;
        self.changed.notify_all();
    }

    fn set_discards(&self, gate: Gate) {
        *self.discards.lock().unwrap() = gate;
        self.changed.notify_all();
    }
}

impl Device for GatedDevice {
    forward!(inner: len, is_read_only);
    fn read(&self, offset: u64, buf: &mut [u8], kind: ReadKind) -> Result<(), DeviceError> {
        let mut gate = self.gate.lock().unwrap();
        while *gate == Gate::Closed {
            gate = self.changed.wait(gate).unwrap();
        }
        let now = *gate;
        drop(gate);
        if let Gate::Slow(most) = now {
            std::thread::sleep(Duration::from_micros(fastrand::u64(..most)));
        }
        self.inner.read(offset, buf, kind)
    }

    fn write(&self, offset: u64, bufs: &[&[u8]], kind: WriteKind) -> Result<(), DeviceError> {
        if bufs.iter().any(|buf| buf.iter().all(|byte| *byte == HELD)) {
            let mut gate = self.writes.lock().unwrap();
            while *gate == Gate::Closed {
                gate = self.changed.wait(gate).unwrap();
            }
        }
        self.inner.write(offset, bufs, kind)?;
        match kind.is_durable() {
            true => self.flush(),
            false => Ok(()),
        }
    }

    fn discard(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        let mut gate = self.discards.lock().unwrap();
        while *gate == Gate::Closed {
            gate = self.changed.wait(gate).unwrap();
        }
        drop(gate);
        self.inner.discard(offset, len)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        let mut gate = self.flushes.lock().unwrap();
        while *gate == Gate::Closed {
            gate = self.changed.wait(gate).unwrap();
        }
        drop(gate);
        self.inner.flush()
    }
}

/// Creates a file system with groups of `group` blocks, and about `free` free blocks in runs of
/// `run` blocks. The file system has two files: `one` with `first` blocks, and `two` with one
/// block.
fn nearly_full(group: &str, first: usize, free: u64, run: u64) -> Image {
    let image = Image::made(&["-b", "1024", "-m", "0", "-g", group, "-O", "^flex_bg"], "24M");
    let mount = image.mount(Access::ReadWrite);
    let fs = mount.fs();
    let root = fs.root().unwrap();
    for (name, blocks) in [(&b"one"[..], first), (b"two", 1)] {
        let inode = fs.create(&root, name, &file(0o644)).unwrap();
        let len = fs.write_at(&inode, 0, &vec![1; blocks * BLOCK], Privilege::Root).unwrap();
        assert_eq!(len, blocks * BLOCK);
    }
    let filler = fs.create(&root, b"filler", &file(0o644)).unwrap();
    let mut end = 0;
    while let Ok(len) = fs.write_at(&filler, end, &vec![2; 64 * BLOCK], Privilege::Root) {
        end += len as u64;
    }
    let step = end / (free / run);
    for n in 0..free / run {
        let at = (n * step).next_multiple_of(BLOCK as u64);
        fs.fallocate(
            &filler,
            lanefs_ext4::Fallocate::PunchHole,
            at,
            run * BLOCK as u64,
            Privilege::Root,
        )
        .unwrap();
    }
    drop((root, filler));
    mount.close().unwrap();
    image
}

fn mounted(image: &Image) -> (Arc<GatedDevice>, Mount) {
    mounted_with(image, MountOptions::default())
}

fn mounted_with(image: &Image, options: MountOptions) -> (Arc<GatedDevice>, Mount) {
    let opened = FileDevice::open(image.path(), Opened::ReadWrite, OpenOptions::default());
    let device = GatedDevice {
        inner: opened.unwrap(),
        gate: Mutex::new(Gate::Open),
        flushes: Mutex::new(Gate::Open),
        writes: Mutex::new(Gate::Open),
        discards: Mutex::new(Gate::Open),
        changed: Condvar::new(),
    };
    let device = Arc::new(device);
    let mount = Mount::open(device.clone(), options).unwrap();
    (device, mount)
}

/// Appends `blocks` blocks to `name`, `piece` at a time.
fn append(fs: &Fs, name: &[u8], blocks: u64, piece: u64) -> Result<(), Error> {
    let inode = fs.find(&fs.root()?, name)?.expect("made before");
    let mut left = blocks;
    while left > 0 {
        let data = vec![3; (left.min(piece) as usize) * BLOCK];
        let len = fs.write_at(&inode, inode.attr().size, &data, Privilege::Root)?;
        assert_eq!(len % BLOCK, 0);
        left -= (len / BLOCK) as u64;
    }
    Ok(())
}

/// Writes to a new file `name` with privilege `by`, until a write is refused.
fn fill(fs: &Fs, name: &[u8], by: Privilege) {
    let inode = fs.create(&fs.root().unwrap(), name, &file(0o644)).unwrap();
    let mut end = 0;
    while let Ok(len) = fs.write_at(&inode, end, &vec![2; 64 * BLOCK], by) {
        end += len as u64;
    }
    fs.release(&inode);
}

#[test]
fn a_writer_with_room_does_not_wait_for_the_commit_of_one_without() {
    let image = Image::made(&["-b", "1024", "-m", "10", "-O", "^flex_bg"], "24M");
    let (device, mount) = mounted(&image);
    let fs = mount.fs();
    let root = fs.root().unwrap();
    for name in [&b"one"[..], b"two"] {
        fs.create(&root, name, &file(0o644)).unwrap();
        append(fs, name, 1, 1).unwrap();
    }
    let two = fs.find(&root, b"two").unwrap().unwrap();
    // After `fill` only the reserve for root is left. The blocks that the truncation below frees
    // can be claimed only after a commit, so an ordinary writer waits for one. A privileged writer
    // uses the reserve and does not wait.
    fill(fs, b"ordinary", Privilege::Ordinary);
    let filler = fs.find(&root, b"ordinary").unwrap().unwrap();
    fs.sync().unwrap();
    let cut = SetAttr { size: Some(64 * BLOCK as u64), ..SetAttr::default() };
    fs.set_attr(&filler, &cut).unwrap();
    let (told, hears) = channel();
    device.set_flushes(Gate::Closed);
    std::thread::scope(|s| {
        let refused =
            s.spawn(|| fs.write_at(&two, BLOCK as u64, &vec![4; 8 * BLOCK], Privilege::Ordinary));
        // After this time the ordinary writer should be waiting for its commit.
        std::thread::sleep(Duration::from_millis(200));
        let one = s.spawn(move || {
            let done = append(fs, b"one", 8, 2);
            told.send(()).unwrap();
            done
        });
        let in_time = hears.recv_timeout(Duration::from_secs(10));
        device.set_flushes(Gate::Open);
        assert!(one.join().unwrap().is_ok());
        assert!(refused.join().unwrap().is_ok(), "its room came with the commit");
        assert!(in_time.is_ok(), "the privileged writer waited for a commit of another");
    });
    drop((filler, two, root));
    mount.close().unwrap();
    image.check();
}

fn free_blocks(fs: &Fs) -> u64 {
    fs.stat_fs().blocks_free
}

#[test]
fn a_writer_gets_space_that_another_drew_and_does_not_use() {
    let image = nearly_full("8192", 5000, 4000, 16);
    let (device, mount) = mounted(&image);
    let fs = mount.fs();
    for name in [&b"one"[..], b"two"] {
        // These calls load all metadata that a write needs, except bitmaps.
        append(fs, name, 0, 1).unwrap();
        let inode = fs.find(&fs.root().unwrap(), name).unwrap().unwrap();
        fs.read_at(&inode, 0, &mut [0; 10]).unwrap();
    }
    device.set(Gate::Closed);
    std::thread::scope(|s| {
        let one = s.spawn(|| append(fs, b"one", 2000, 2000));
        // After this time the first writer should have drawn all blocks that it wants from the
        // count of free blocks (`alloc/space.rs`), and should be reading a bitmap.
        std::thread::sleep(Duration::from_millis(100));
        let two = s.spawn(|| append(fs, b"two", 100, 10));
        std::thread::sleep(Duration::from_millis(100));
        device.set(Gate::Open);
        assert!(two.join().unwrap().is_ok(), "refused with {} free", free_blocks(fs));
        assert!(one.join().unwrap().is_ok(), "refused with {} free", free_blocks(fs));
    });
    mount.close().unwrap();
    image.check();
}

#[test]
fn a_writer_is_not_refused_while_a_trim_discards_all_free_blocks() {
    // The only group has one run of free blocks, and the trim claims it in one piece.
    let image = Image::made(&["-b", "4096", "-m", "0", "-J", "size=4"], "24M");
    let (device, mount) = mounted(&image);
    let fs = mount.fs();
    let root = fs.root().unwrap();
    let inode = fs.create(&root, b"one", &file(0o644)).unwrap();
    let data = vec![3; 100 * 4096];
    device.set_discards(Gate::Closed);
    std::thread::scope(|s| {
        let trim = s.spawn(|| fs.trim(0..24 << 20, 0));
        // After this time the trim should be discarding.
        std::thread::sleep(Duration::from_millis(100));
        let one = s.spawn(|| fs.write_at(&inode, 0, &data, Privilege::Root));
        std::thread::sleep(Duration::from_millis(100));
        device.set_discards(Gate::Open);
        assert!(trim.join().unwrap().unwrap() > 0);
        let one = one.join().unwrap();
        assert!(matches!(one, Ok(len) if len == data.len()), "{one:?}");
    });
    drop((inode, root));
    mount.close().unwrap();
    image.check();
}

#[test]
fn two_writers_fill_what_is_left_and_neither_is_refused_before() {
    let seed = fastrand::u64(..);
    eprintln!("seed {seed}");
    fastrand::seed(seed);
    for _ in 0..6 {
        let image = nearly_full("512", 64, fastrand::u64(1000..4000), fastrand::u64(2..64));
        let (device, mount) = mounted(&image);
        let fs = mount.fs();
        let room = free_blocks(fs) - NODES;
        let first = fastrand::u64(1..room);
        let pieces = [fastrand::u64(1..600), fastrand::u64(1..600)];
        device.set(Gate::Slow(fastrand::u64(1..2000)));
        let start = &Barrier::new(2);
        std::thread::scope(|s| {
            let write = |name, blocks, piece| {
                start.wait();
                let done = append(fs, name, blocks, piece);
                assert!(done.is_ok(), "{done:?} with {} free", free_blocks(fs));
            };
            s.spawn(move || write(b"one", first, pieces[0]));
            s.spawn(move || write(b"two", room - first, pieces[1]));
        });
        mount.close().unwrap();
        image.check();
    }
}

/// Returns a file of `blocks` blocks, all of them holes.
fn holes(fs: &Fs, blocks: usize) -> InodeRef {
    let inode = fs.create(&fs.root().unwrap(), b"holes", &file(0o644)).unwrap();
    let size = Some((blocks * BLOCK) as u64);
    fs.set_attr(&inode, &SetAttr { size, ..SetAttr::default() }).unwrap();
    inode
}

/// Fills the file system, and then removes small files until `blocks` blocks are free.
fn leave_free(fs: &Fs, blocks: u64) {
    let root = fs.root().unwrap();
    let small = |n: u32| {
        let made = fs.create(&root, n.to_string().as_bytes(), &file(0o644))?;
        fs.write_at(&made, 0, &[2; BLOCK], Privilege::Root)
    };
    (0..blocks as u32).for_each(|n| assert_eq!(small(n).unwrap(), BLOCK));
    fill(fs, b"filler", Privilege::Root);
    assert_eq!(free_blocks(fs), 0);
    (0..blocks).for_each(|n| fs.unlink(&root, n.to_string().as_bytes()).unwrap());
    fs.sync().unwrap();
    assert_eq!(free_blocks(fs), blocks);
}

/// Writes block `block` of a file, and holds the data back until another thread has had time to
/// write `len` blocks at the file's start. Returns the result of the second write.
fn write_beside(
    (device, fs, inode): (&GatedDevice, &Fs, &InodeRef),
    block: usize,
    len: usize,
    by: Privilege,
) -> Result<usize, Error> {
    device.set_writes(Gate::Closed);
    std::thread::scope(|s| {
        let held = s.spawn(move || fs.write_at(inode, (block * BLOCK) as u64, &[HELD; BLOCK], by));
        // After this time the first write should have claimed its block.
        std::thread::sleep(Duration::from_millis(100));
        let second = s.spawn(move || fs.write_at(inode, 0, &vec![5; len * BLOCK], by));
        std::thread::sleep(Duration::from_millis(100));
        device.set_writes(Gate::Open);
        assert_eq!(held.join().unwrap().unwrap(), BLOCK);
        second.join().unwrap()
    })
}

/// Two blocks are free. One write claims a block for the second hole, so another write of both
/// holes finds only one block. But it needs no more, because the first write maps the second hole.
#[test]
fn a_write_is_not_cut_short_by_a_claim_for_the_same_hole() {
    let image = Image::made(&["-b", "1024", "-m", "0"], "16M");
    let (device, mount) = mounted(&image);
    let inode = holes(mount.fs(), 2);
    leave_free(mount.fs(), 2);
    let written = write_beside((&device, mount.fs(), &inode), 1, 2, Privilege::Root);
    assert!(matches!(written, Ok(len) if len == 2 * BLOCK), "{written:?}");
    drop(inode);
    mount.close().unwrap();
    image.check();
}

/// The owner's limit is one block. Two writes of the same hole need no more than that.
#[test]
fn a_write_is_not_refused_for_a_limit_that_another_write_of_the_hole_reached() {
    let image = Image::made(&["-b", "1024", "-O", "quota"], "16M");
    let (_, mount) = mounted(&image);
    let inode = holes(mount.fs(), 1);
    mount.fs().set_attr(&inode, &SetAttr { uid: Some(7), ..SetAttr::default() }).unwrap();
    let limits = Limits { kib_hard: 1, ..Limits::default() };
    mount.fs().set_quota(Kind::User, 7, limits).unwrap();
    drop(inode);
    mount.close().unwrap();
    let options = MountOptions { limits: vec![Kind::User], ..MountOptions::default() };
    let (device, mount) = mounted_with(&image, options);
    let inode = mount.fs().find(&mount.fs().root().unwrap(), b"holes").unwrap().unwrap();
    let written = write_beside((&device, mount.fs(), &inode), 0, 1, Privilege::Ordinary);
    assert!(matches!(written, Ok(BLOCK)), "{written:?}");
    drop(inode);
    mount.close().unwrap();
    image.check();
}

/// Each thread of a user writes a file of three blocks and removes it, again and again. The user's
/// limits permit one such file for each thread.
#[test]
fn a_user_within_the_limits_is_not_refused_for_what_other_threads_do() {
    const THREADS: usize = 4;
    let image = Image::made(&["-b", "1024", "-O", "quota"], "16M");
    let (_, mount) = mounted(&image);
    let of_user = NewInode { uid: 7, ..file(0o644) };
    let root = mount.fs().root().unwrap();
    // A mount obeys the limits only of users that already had limits.
    drop(mount.fs().create(&root, b"first", &of_user).unwrap());
    mount.fs().unlink(&root, b"first").unwrap();
    let threads = THREADS as u64;
    let limits = Limits { kib_hard: 3 * threads, inodes_hard: threads, ..Limits::default() };
    mount.fs().set_quota(Kind::User, 7, limits).unwrap();
    drop(root);
    mount.close().unwrap();
    let options = MountOptions { limits: vec![Kind::User], ..MountOptions::default() };
    let (_, mount) = mounted_with(&image, options);
    let fs = mount.fs();
    std::thread::scope(|s| {
        for name in [&b"a"[..], b"b", b"c", b"d"].into_iter().take(THREADS) {
            s.spawn(move || {
                let root = fs.root().unwrap();
                for round in 0..1000 {
                    let made = fs.create(&root, name, &of_user).unwrap();
                    let data = [3; 3 * BLOCK];
                    let written = fs.write_at(&made, 0, &data, Privilege::Ordinary);
                    assert!(matches!(written, Ok(n) if n == data.len()), "{round}: {written:?}");
                    drop(made);
                    fs.unlink(&root, name).unwrap();
                }
            });
        }
    });
    mount.close().unwrap();
    image.check();
}

/// One block is free. It is enough for the data in the hole, but the file's extent tree needs
/// another block.
#[test]
fn a_write_without_room_for_the_tree_changes_nothing_after_the_hole() {
    let image = Image::made(&["-b", "1024", "-m", "0"], "16M");
    let mount = image.mount(Access::ReadWrite);
    let fs = mount.fs();
    let root = fs.root().unwrap();
    let inode = fs.create(&root, b"holes", &file(0o644)).unwrap();
    let write =
        |block: u64, data: &[u8]| fs.write_at(&inode, block * BLOCK as u64, data, Privilege::Root);
    // The root of the tree has room for four extents.
    [0, 2, 4, 6].into_iter().for_each(|block| {
        write(block, &[1; BLOCK]).unwrap();
        fs.release(&inode);
    });
    fill(fs, b"filler", Privilege::Root);
    let small = |n: u32| {
        let made = fs.create(&root, n.to_string().as_bytes(), &file(0o644))?;
        fs.write_at(&made, 0, &[2; BLOCK], Privilege::Root)
    };
    let last = (0..).take_while(|n| small(*n).is_ok()).last().expect("room for a file");
    assert_eq!(free_blocks(fs), 0);
    fs.unlink(&root, last.to_string().as_bytes()).unwrap();
    fs.sync().unwrap();
    assert_eq!(free_blocks(fs), 1);
    let refused = write(3, &[3; 3 * BLOCK]);
    assert!(matches!(refused, Err(Error::NoSpace)), "{refused:?}");
    let short = write(2, &[4; 3 * BLOCK]).unwrap();
    assert_eq!(short, BLOCK, "the write ends at the hole");
    let mut found = vec![9; 7 * BLOCK];
    fs.read_at(&inode, 0, &mut found).unwrap();
    let first: Vec<u8> = found.iter().copied().step_by(BLOCK).collect();
    assert_eq!(first, [1, 0, 4, 0, 1, 0, 1]);
    drop((inode, root));
    mount.close().unwrap();
    image.check();
}
