use crate::object::map_slot::*;
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
        (0..200).for_each(|_| fs.objects.note_load());
    }
    let left = mapped(&files);
    println!("{left} bytes of at least {all}");
    // A quarter of the cap is for inodes and their mappings.
    assert!(left <= 100 << 10, "{left} bytes of mappings stay in memory");
    let pin = lanefs_lanes::pin();
    let large = |file: &InodeRef| Some(file.map.map.get(&pin)?.bytes().saturating_sub(SMALL));
    let counted: u64 = files.iter().filter_map(large).sum();
    assert_eq!(
        fs.objects.mount.totals.mapped.sum(),
        counted.cast_signed(),
        "what is counted is there"
    );
    drop(pin);
    drop(files);
    mount.close().expect("no fault");
}
