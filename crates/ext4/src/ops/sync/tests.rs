use crate::ops::sync::*;
use crate::{Mount, MountOptions, NewInode, NewKind};
use lanefs_device::{FaultyDevice, Operation, RamDevice};
use lanefs_lanes::sync::Arc;
use lanefs_mkfs::{Contents, MkfsOptions, mkfs};
use std::time::Duration;

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
    fs.objects.note_data(&fs.get(made[0], None).expect("it has a name"));
    flushes(made[1], 0, "another file was written");
    let before = fs.objects.inodes.get(made[0]).expect("it is in memory");
    // The committer has nothing to do here, so the test itself evicts the inode.
    fs.objects.inodes.evict(usize::MAX, 1 << 20, fs.objects.journal.settled());
    assert!(fs.objects.inodes.get(made[0]).is_none(), "nobody holds it");
    flushes(made[0], 1, "its data is not durable");
    let again = fs.objects.inodes.get(made[0]).expect("it is in memory");
    assert!(!Arc::ptr_eq(&before, &again));
    flushes(made[0], 0, "it is durable now");
    drop(root);
    mount.close().expect("no fault");
}

fn regular() -> NewInode<'static> {
    NewInode { kind: NewKind::Regular, permissions: 0o644, umask: 0, uid: 0, gid: 0 }
}
