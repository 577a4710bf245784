use crate::object::window::{AtomicBool, Ordering};
use crate::{Mount, MountOptions, NewInode, NewKind, Privilege};
use lanefs_device::RamDevice;
use lanefs_lanes::sync::Arc;
use lanefs_mkfs::{Contents, MkfsOptions, mkfs};

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
    assert_eq!(fs.objects.drop_windows(), 0);
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
    assert_eq!(fs.objects.drop_windows(), 5);
    assert_eq!(fs.objects.drop_windows(), 0, "all were given back");
    grow(2);
    assert_eq!(fs.objects.drop_windows(), 1);
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
            let listed = fs.objects.mount.totals.windows.listed().contains(&file.ino());
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
