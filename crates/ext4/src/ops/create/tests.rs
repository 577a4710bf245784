//! Tests of creating inodes.

use crate::ops::create::*;
use crate::{Mount, MountOptions, OnError, Privilege, SetXattr};
use lanefs_device::RamDevice;
use lanefs_lanes::sync::atomic::{AtomicBool, Ordering};
use lanefs_mkfs::{Contents, MkfsOptions, mkfs};
use lanefs_ondisk::features::{Incompat, RoCompat};

fn new_mount() -> Mount {
    let ram = RamDevice::create(64 << 20).expect("memory");
    let options = MkfsOptions { contents: Contents::Zeros, ..MkfsOptions::default() };
    mkfs(&ram, &options).expect("room for a file system");
    Mount::open(Arc::new(ram), MountOptions::default()).expect("a new one")
}

/// An inode without a name must not get a name before its creation is complete. Otherwise a thread
/// that found the inode by its number could turn it into an orphan with a name.
#[test]
fn a_file_without_a_name_gets_none_before_it_is_wholly_made() {
    let mount = new_mount();
    let fs = mount.fs();
    let root = fs.root().expect("a root");
    let new = NewInode { kind: NewKind::Regular, permissions: 0o600, umask: 0, uid: 0, gid: 0 };
    let born = fs.prepare_inode(&root, &new, Naming::Unnamed).expect("room for an inode");
    let mut handle = fs.join(born.credits().and(Orphans::RECORD)).expect("room in the log");
    let inode = fs.apply_birth(&mut handle, born);
    assert!(matches!(fs.link(&inode, &root, b"early"), Err(Error::NotFound)));
    fs.orphans.add(&mut handle, &inode);
    set_nameless(&inode, Nameless::Yes);
    drop(handle);
    fs.link(&inode, &root, b"name").expect("it may have one");
    drop((inode, root));
    mount.close().expect("no fault");
}

/// Every unlink in one directory would else write the presence of the same group.
#[test]
fn only_the_removal_of_the_last_name_holds_the_group() {
    let mount = new_mount();
    let fs = mount.fs();
    let root = fs.root().expect("a root");
    let new = NewInode { kind: NewKind::Regular, permissions: 0o600, umask: 0, uid: 0, gid: 0 };
    let file = fs.create(&root, b"one", &new).expect("room");
    fs.link(&file, &root, b"other").expect("room");
    let holds = || crate::name::prepare_drop_link(fs, &file).expect("no fault").is_some();
    assert!(!holds());
    fs.unlink(&root, b"other").expect("it is there");
    assert!(holds());
    drop((file, root));
    mount.close().expect("no fault");
}

#[test]
fn a_removal_of_a_directory_may_be_counted_before_its_creation() {
    let mount = new_mount();
    let fs = mount.fs();
    let root = fs.root().expect("a root");
    let before = root.attr().links;
    let new = NewInode { kind: NewKind::Directory, permissions: 0o755, umask: 0, uid: 0, gid: 0 };
    let dir = fs.create(&root, b"dir", &new).expect("room for a directory");
    let (more, less) = (NameChange::OneDirectoryMore, NameChange::OneDirectoryLess);
    for changes in [[more, less], [less, more]] {
        let mut handle = fs.join(EntrySlot::CREDITS).expect("room in the log");
        changes.into_iter().for_each(|change| names_changed(&mut handle, &dir, change));
        drop(handle);
        assert_eq!(dir.attr().links, 2, "{changes:?}");
    }
    fs.rmdir(&root, b"dir").expect("it is empty");
    assert_eq!(root.attr().links, before);
    drop((dir, root));
    mount.close().expect("no fault");
}

/// What is left of an inode whose bit in the bitmap was cleared.
#[derive(Debug, Clone, Copy)]
enum Left {
    /// The inode is open and has its name.
    Open,
    /// The inode is open and has lost its last name.
    OpenUnlinked,
    /// The inode is not open. Its record in the inode table still has a link.
    OnDisk,
}

/// Clears the bit of an inode in its group's bitmap, as if the bitmap were damaged.
fn clear_bit(fs: &Fs, ino: Ino) {
    let group = fs.volume.inode_place(ino).expect("a number of the image").group;
    let _held = fs.groups.bitmaps.load(fs, group).expect("no fault");
    let mut handle = fs.join(Credits::OLD_NUMBER).expect("room in the log");
    fs.groups.free_inode(&mut handle, ino, FileType::Regular).expect("its bit is set");
}

fn regular() -> NewInode<'static> {
    NewInode { kind: NewKind::Regular, permissions: 0o600, umask: 0, uid: 0, gid: 0 }
}

fn a_live_number_is_refused(left: Left) {
    let ram = RamDevice::create(64 << 20).expect("memory");
    let options = MkfsOptions { contents: Contents::Zeros, ..MkfsOptions::default() };
    mkfs(&ram, &options).expect("room for a file system");
    let device = Arc::new(ram);
    let open = || {
        let options = MountOptions { on_error: OnError::Continue, ..MountOptions::default() };
        Mount::open(device.clone(), options).expect("it can be mounted")
    };
    let mut mount = open();
    let root = mount.fs().root().expect("a root");
    let mut file = Some(mount.fs().create(&root, b"file", &regular()).expect("room for a file"));
    let ino = file.as_ref().map(|file| file.ino()).expect("just made");
    if let Left::OpenUnlinked = left {
        mount.fs().unlink(&root, b"file").expect("it is there");
    }
    clear_bit(mount.fs(), ino);
    if let Left::OnDisk = left {
        file = None;
    }
    drop(root);
    if file.is_none() {
        mount.close().expect("no fault");
        mount = open();
    }
    let fs = mount.fs();
    let root = fs.root().expect("a root");
    let errors = || {
        fs.sync().expect("no fault");
        fs.superblock().error_count()
    };
    let before = errors();
    let refused = fs.create(&root, b"new", &regular()).map(|inode| inode.ino());
    let wanted = |found: &Error| match found {
        Error::Corruption(Corruption::Inode { ino: found, .. }) => *found == ino,
        _ => false,
    };
    assert!(refused.as_ref().is_err_and(wanted), "{left:?}: {ino} and {refused:?}");
    let next = fs.create(&root, b"new", &regular()).expect("other numbers are free").ino();
    assert_ne!(next, ino, "{left:?}");
    assert!(errors() > before, "{left:?}: the superblock says nothing");
    if let Some(file) = file {
        assert_eq!(fs.append(&file, b"data", Privilege::Root).expect("it lives on").1, 4);
    } else {
        assert_eq!(fs.find(&root, b"file").expect("no fault").map(|file| file.ino()), Some(ino));
    }
    drop(root);
    mount.close().expect("no fault");
}

#[test]
fn a_number_is_not_given_to_a_second_inode_while_the_first_is_open() {
    a_live_number_is_refused(Left::Open);
}

#[test]
fn a_number_is_not_given_to_a_second_inode_while_the_first_is_open_without_a_name() {
    a_live_number_is_refused(Left::OpenUnlinked);
}

#[test]
fn a_number_is_not_given_to_a_second_inode_while_the_record_of_the_first_has_links() {
    a_live_number_is_refused(Left::OnDisk);
}

/// A record whose count of sectors is damaged, and near the largest that it can store.
#[test]
fn space_that_the_record_cannot_count_is_refused_before_the_commit() {
    let ram = RamDevice::create(64 << 20).expect("memory");
    let mut options = MkfsOptions { contents: Contents::Zeros, ..MkfsOptions::default() };
    options.features.ro_compat.remove(RoCompat::HUGE_FILE);
    mkfs(&ram, &options).expect("room for a file system");
    let mount = Mount::open(Arc::new(ram), MountOptions::default()).expect("a new one");
    let fs = mount.fs();
    let root = fs.root().expect("a root");
    let file = fs.create(&root, b"file", &regular()).expect("room for a file");
    let mut state = file.state.lock();
    state.disk.sectors = u64::from(u32::MAX) - 1;
    file.publish(&state.disk);
    drop(state);
    let written = fs.write_at(&file, 0, &[1; 4096], Privilege::Root);
    assert!(matches!(written, Err(Error::FileTooLarge)), "{written:?}");
    let set = fs.set_xattr(&file, b"user.name", &[1; 900], SetXattr::Any);
    assert!(matches!(set, Err(Error::FileTooLarge)), "{set:?}");
    fs.sync().expect("the commit can encode the record");
    drop((file, root));
    mount.close().expect("no fault");
}

/// The inode of a new value has no name, so eviction may look at it while it is written.
#[test]
fn a_value_in_an_inode_of_its_own_is_written_although_eviction_looks_at_the_inode() {
    let ram = RamDevice::create(64 << 20).expect("memory");
    let mut options = MkfsOptions { contents: Contents::Zeros, ..MkfsOptions::default() };
    options.features.incompat.insert(Incompat::EA_INODE);
    mkfs(&ram, &options).expect("room for a file system");
    let mount = Mount::open(Arc::new(ram), MountOptions::default()).expect("a new one");
    let fs = mount.fs();
    let root = fs.root().expect("a root");
    let file = fs.create(&root, b"file", &regular()).expect("room for a file");
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                fs.inodes.evict(usize::MAX, usize::MAX, fs.journal.settled());
            }
        });
        for n in 0..600u32 {
            let value = vec![n as u8; 20_000];
            let set = fs.set_xattr(&file, b"user.large", &value, SetXattr::Any);
            if set.is_err() {
                done.store(true, Ordering::Relaxed);
            }
            set.expect("there is space");
        }
        done.store(true, Ordering::Relaxed);
    });
    drop((file, root));
    mount.close().expect("no fault");
}
