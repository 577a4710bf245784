//! Tests of directories whose mappings are damaged.

use crate::data::FileData;
use crate::name::directory::*;
use crate::{Mount, MountOptions, NewInode, NewKind};
use lanefs_device::RamDevice;
use lanefs_mkfs::{Contents, MkfsOptions, mkfs};

/// Behind the end of such a directory the blocks may be in another leaf of the tree than the
/// directory's own, so one plan cannot map what is appended.
#[test]
fn blocks_mapped_behind_the_end_of_a_directory_are_corruption() {
    let ram = RamDevice::create(64 << 20).expect("memory");
    let options = MkfsOptions { contents: Contents::Zeros, ..MkfsOptions::default() };
    mkfs(&ram, &options).expect("room for a file system");
    let mount = Mount::open(Arc::new(ram), MountOptions::default()).expect("a new one");
    let fs = mount.fs();
    let root = fs.root().expect("a root");
    let new = NewInode { kind: NewKind::Directory, permissions: 0o755, umask: 0, uid: 0, gid: 0 };
    let dir = fs.create(&root, b"dir", &new).expect("room for a directory");
    let locked = dir.op.exclusive();
    let data = FileData { fs, inode: &dir };
    // Every second block, so that the tree gets several leaves.
    for at in (2..600).step_by(2) {
        let request = Request::for_metadata(data.goal(), 1);
        let claim = fs.claim_blocks(&request).expect("room").into_claim();
        let (start, block) = (FileBlock(at), claim.start());
        let extent = Extent { start, len: 1, block, state: State::Written };
        let change = data.plan_mapping(at..at + 1, &[extent]).expect("room in the tree");
        data.publish(&mut vec![(at, claim)], at + 1, change, |_| ()).expect("a commit");
    }
    let mut refused = 0;
    for count in 1..600 {
        let view = Directory { count, ..Directory::of(fs, &dir).expect("a directory") };
        let block: Arc<[u8]> = vec![0; fs.volume.block_size()].into();
        let plan = Plan { appended: vec![block; 2], ..Plan::default() };
        match view.prepare_shape(plan) {
            Err(Error::Corruption(Corruption::Inode { ino, .. })) if ino == dir.ino => refused += 1,
            Err(error) => panic!("{count} blocks: {error}"),
            Ok(_) => {}
        }
    }
    assert!(refused > 0, "the leaves end nowhere");
    drop(locked);
    drop((dir, root));
    mount.close().expect("no fault");
}
