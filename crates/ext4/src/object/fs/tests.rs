use crate::object::fs::LOOK;
use crate::volume::MetaKind;
use crate::{Fs, InodeRef, Mount, MountOptions, NewInode, NewKind};
use lanefs_device::RamDevice;
use lanefs_lanes::sync::Arc;
use lanefs_lanes::sync::atomic::Ordering;
use lanefs_lanes::sync::unscheduled::mpsc::channel;
use lanefs_mkfs::{Contents, MkfsOptions, mkfs};
use std::time::Duration;

const FILE: NewInode =
    NewInode { kind: NewKind::Regular, permissions: 0o644, umask: 0, uid: 0, gid: 0 };

/// The number of files.
const FILES: usize = 100;

/// Mounts a new file system in memory.
fn mounted() -> Mount {
    mounted_with(MountOptions::default())
}

fn mounted_with(options: MountOptions) -> Mount {
    let ram = RamDevice::create(64 << 20).expect("memory");
    let format = MkfsOptions { contents: Contents::Zeros, ..MkfsOptions::default() };
    mkfs(&ram, &format).expect("room for a file system");
    Mount::open(Arc::new(ram), options).expect("a new one")
}

fn files(fs: &Fs) -> Vec<InodeRef> {
    let root = fs.root().expect("a root");
    let names = (0..FILES).map(|n| n.to_string());
    let files: Result<_, _> = names.map(|name| fs.create(&root, name.as_bytes(), &FILE)).collect();
    fs.sync().expect("no fault");
    files.expect("room")
}

/// Evicts all inodes and metadata blocks that nothing needs, on a new thread. Returns the number of
/// evicted inodes.
fn evict_all(fs: &Arc<Fs>) -> usize {
    let (fs, (done, evicted)) = (fs.clone(), channel());
    let thread = std::thread::spawn(move || {
        let fs = fs;
        let settled = fs.journal.settled();
        let inodes = fs.inodes.evict(usize::MAX, usize::MAX, settled);
        fs.meta.blocks.evict(usize::MAX, usize::MAX, settled);
        done.send(inodes).expect("the test waits");
    });
    // The timeout ends the test if the eviction waits forever.
    let inodes = evicted.recv_timeout(Duration::from_secs(100)).expect("eviction does not wait");
    thread.join().expect("the thread has sent its result");
    inodes
}

#[test]
fn the_counts_of_all_lanes_are_read_seldom_while_there_is_much_room() {
    let reads = |cache_bytes| {
        let mount = mounted_with(MountOptions { cache_bytes, ..MountOptions::default() });
        let looks = &mount.fs().pressure.looks.0;
        let mut reads = 0;
        for _ in 0..100 * LOOK {
            let before = looks.load(Ordering::Relaxed);
            mount.fs().note_load();
            reads += usize::from(looks.load(Ordering::Relaxed) > before);
        }
        mount.close().expect("no fault");
        reads
    };
    assert!((1..=2).contains(&reads(1 << 30)));
    assert!(reads(256 << 20) <= 2);
}

#[test]
fn eviction_does_not_wait_for_the_guard_of_an_inode() {
    let mount = mounted();
    let fs = mount.fs();
    let files = files(fs);
    let busy = fs.inodes.get(files[7].ino()).expect("a held inode is in memory");
    drop(files);
    let state = busy.state.lock();
    let (before, _, _) = fs.cached();
    let evicted = evict_all(fs);
    assert!(evicted >= FILES - 1, "{evicted} of {before} inodes");
    assert!(fs.inodes.get(busy.ino).is_some(), "the inode under its guard stays");
    drop(state);
    assert!(evict_all(fs) >= 1, "the inode can be evicted now");
    assert!(fs.inodes.get(busy.ino).is_none());
    mount.close().expect("no fault");
}

#[test]
fn eviction_does_not_wait_for_the_guard_of_a_metadata_block() {
    let mount = mounted();
    let fs = mount.fs();
    drop(files(fs));
    let mut directory = None;
    fs.meta.blocks.for_each(|block| {
        if matches!(block.kind, MetaKind::Directory { .. }) {
            directory = Some(block.clone());
        }
    });
    let busy = directory.expect("the block of the root's names");
    let is_there = || fs.meta.blocks.find(&lanefs_lanes::pin(), busy.block.0).is_some();
    let stays = busy.look_under_guard(|_| {
        evict_all(fs);
        is_there()
    });
    assert!(stays.1, "the block under its guard stays");
    evict_all(fs);
    assert!(!is_there(), "the block can be evicted now");
    mount.close().expect("no fault");
}
