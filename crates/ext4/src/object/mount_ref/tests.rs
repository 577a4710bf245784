use crate::object::mount_ref::{AtomicBool, Ordering, *};
use crate::{Fs, InodeRef, Mount, MountOptions, NewInode, NewKind, Privilege};
use lanefs_device::RamDevice;
use lanefs_lanes::sync::Arc;
use lanefs_mkfs::{Contents, MkfsOptions, mkfs};

const FILES: usize = 12;
const EXTENTS: u64 = 600;

/// Returns how many bytes the mappings of these files occupy in memory.
fn mapped(files: &[InodeRef]) -> u64 {
    let pin = lanefs_lanes::pin();
    files.iter().filter_map(|file| Some(file.map.map.get(&pin)?.bytes())).sum()
}

fn fragmented(fs: &Fs, name: &str) -> InodeRef {
    let new = NewInode { kind: NewKind::Regular, permissions: 0o600, umask: 0, uid: 0, gid: 0 };
    let root = fs.root().expect("a root");
    let file = fs.create(&root, name.as_bytes(), &new).expect("room for a file");
    for n in 0..EXTENTS {
        fs.write_at(&file, 2 * n * 4096, &[n as u8; 8], Privilege::Root).expect("room");
    }
    file
}

#[test]
fn mappings_of_open_files_stay_within_the_cap_and_are_read_again() {
    let ram = RamDevice::create(128 << 20).expect("memory");
    let options = MkfsOptions { contents: Contents::Zeros, ..MkfsOptions::default() };
    mkfs(&ram, &options).expect("room for a file system");
    let options = MountOptions { cache_bytes: 400 << 10, ..MountOptions::default() };
    let mount = Mount::open(Arc::new(ram), options).expect("a new file system");
    let fs = mount.fs();
    let files: Vec<_> = (0..FILES).map(|n| fragmented(fs, &format!("{n}"))).collect();
    fs.sync().expect("no fault");
    let all = FILES as u64 * EXTENTS * 24;
    for _ in 0..3 {
        for file in &files {
            let mut byte = [0];
            for n in [0, 7, EXTENTS - 1] {
                fs.read_at(file, 2 * n * 4096, &mut byte).expect("no fault");
                assert_eq!(byte[0], n as u8);
            }
        }
        (0..200).for_each(|_| fs.note_load());
    }
    let left = mapped(&files);
    println!("{left} bytes of at least {all}");
    // A quarter of the cap is for inodes and their mappings.
    assert!(left <= 100 << 10, "{left} bytes of mappings stay in memory");
    let pin = lanefs_lanes::pin();
    let large = |file: &InodeRef| Some(file.map.map.get(&pin)?.bytes().saturating_sub(SMALL));
    let counted: u64 = files.iter().filter_map(large).sum();
    assert_eq!(fs.mount.totals.mapped.sum(), counted.cast_signed(), "what is counted is there");
    drop(pin);
    drop(files);
    mount.close().expect("no fault");
}

const FILE: NewInode =
    NewInode { kind: NewKind::Regular, permissions: 0o644, umask: 0, uid: 0, gid: 0 };

/// Mounts a new file system in memory.
fn mounted() -> Mount {
    let ram = RamDevice::create(64 << 20).expect("memory");
    let options = MkfsOptions { contents: Contents::Zeros, ..MkfsOptions::default() };
    mkfs(&ram, &options).expect("room for a file system");
    Mount::open(Arc::new(ram), MountOptions::default()).expect("a new one")
}

#[test]
fn taking_windows_back_looks_at_the_inodes_that_have_one_and_at_no_other() {
    let mount = mounted();
    let fs = mount.fs();
    let root = fs.root().expect("a root");
    let files: Vec<_> = (0..500)
        .map(|n| fs.create(&root, format!("{n}").as_bytes(), &FILE).expect("room"))
        .collect();
    assert!(fs.cached().0 > 500);
    assert_eq!(fs.drop_windows(), 0);
    let grow = |file: usize| {
        for _ in 0..2 {
            fs.append(&files[file], &[1; 8192], Privilege::Root).expect("room");
        }
    };
    (0..7).for_each(grow);
    // The closed file and the truncated one gave their windows back.
    fs.release(&files[0]);
    let cut = crate::SetAttr { size: Some(0), ..crate::SetAttr::default() };
    fs.set_attr(&files[1], &cut).expect("no fault");
    assert_eq!(fs.drop_windows(), 5);
    assert_eq!(fs.drop_windows(), 0, "all were given back");
    grow(2);
    assert_eq!(fs.drop_windows(), 1);
    drop((files, root));
    mount.close().expect("no fault");
}

#[test]
fn a_window_that_is_given_back_leaves_the_next_one_on_the_list() {
    let mount = mounted();
    let fs = mount.fs();
    let root = fs.root().expect("a root");
    let file = fs.create(&root, b"file", &FILE).expect("room");
    let ends = AtomicBool::new(false);
    std::thread::scope(|s| {
        // Closes the inode repeatedly, as a second program that opens the file would do.
        s.spawn(|| {
            let mut random = fastrand::Rng::with_seed(1);
            while !ends.load(Ordering::Relaxed) {
                // Waits for a random time, so that the inode is closed at a random point of the
                // next write.
                (0..random.u32(..4000)).for_each(|_| std::hint::spin_loop());
                fs.release(&file);
            }
        });
        for n in 0..20_000 {
            if n % 1000 == 0 {
                let cut = crate::SetAttr { size: Some(0), ..crate::SetAttr::default() };
                fs.set_attr(&file, &cut).expect("no fault");
            }
            fs.append(&file, &[1; 4096], Privilege::Root).expect("room");
            let slot = file.window.window.lock();
            let listed = fs.mount.totals.windows.listed().contains(&file.ino());
            if slot.is_some() && !listed {
                ends.store(true, Ordering::Relaxed);
                panic!("append {n}: a window that is not listed");
            }
        }
        ends.store(true, Ordering::Relaxed);
    });
    drop((file, root));
    mount.close().expect("no fault");
}
