//! Files, symbolic links and directories whose contents are in their inode (`inline_data`).

use lanefs_device::{OverlayDevice, RamDevice};
use lanefs_ext4::{Error, Fallocate, Fs, Privilege, Rename, Seek, SetXattr};
use lanefs_suites::both::{by_kernel, by_library, open};
use lanefs_suites::crash::states::every_state;
use lanefs_suites::hostile::words::Words;
use lanefs_suites::image::Image;
use lanefs_suites::library::Library;
use lanefs_suites::op::{File, Kind, Op, pattern};
use std::sync::Arc;

const SETS: [&str; 5] = [
    "-b 1024 -O inline_data",
    "-b 4096 -I 1024 -O inline_data",
    "-b 1024 -I 512 -O inline_data,^metadata_csum,^metadata_csum_seed",
    "-b 1024 -O inline_data,ea_inode,^orphan_file,^64bit",
    "-b 1024 -O inline_data,^extent,^64bit,^orphan_file",
];

fn at(path: &str) -> File {
    File::At(path.as_bytes().to_vec())
}

fn create(path: &str, kind: Kind) -> Op {
    let path = path.as_bytes().to_vec();
    Op::Create { path, kind, permissions: 0o755, uid: 7, gid: 8 }
}

fn write(path: &str, offset: u64, len: usize) -> Op {
    Op::Write { file: at(path), offset, len, seed: offset + len as u64 }
}

fn set(path: &str, name: &str, len: usize) -> Op {
    let (path, name, value) = (path.as_bytes().to_vec(), name.as_bytes().to_vec(), vec![9; len]);
    Op::SetXattr { path, name, value, how: SetXattr::Any }
}

/// Returns operations that create files with all sizes near the limits, symbolic links, small
/// directories, and files with both attributes and data.
fn fill() -> Vec<Op> {
    let mut ops = vec![create("d", Kind::Directory)];
    for len in [0, 1, 40, 59, 60, 61, 100, 130, 160, 161, 300, 700, 900, 1500] {
        let path = format!("d/file {len}");
        ops.push(create(&path, Kind::Regular));
        ops.push(write(&path, 0, len));
        let path = format!("d/with attributes {len}");
        ops.push(create(&path, Kind::Regular));
        ops.push(set(&path, "user.x", 20));
        ops.push(write(&path, 0, len));
        ops.push(set(&path, "user.y", 60));
    }
    for len in [1, 59, 60, 61, 100, 150, 151, 400, 900] {
        ops.push(create(&format!("d/link {len}"), Kind::Symlink(vec![b'l'; len])));
    }
    for names in [0, 1, 2, 4, 6, 8, 40] {
        let dir = format!("d/directory {names}");
        ops.push(create(&dir, Kind::Directory));
        for n in 0..names {
            ops.push(create(&format!("{dir}/{n}"), Kind::Regular));
        }
        ops.push(create(&format!("{dir}/below"), Kind::Directory));
    }
    ops.push(create("d/sparse", Kind::Regular));
    ops.push(write("d/sparse", 30, 10));
    ops.push(Op::Truncate { file: at("d/sparse"), size: 70 });
    ops.push(Op::Sync);
    ops
}

fn change() -> Vec<Op> {
    let mut ops = Vec::new();
    for (n, len) in [0, 1, 40, 59, 60, 61, 100, 130].into_iter().enumerate() {
        let path = format!("d/file {len}");
        ops.push(match n % 4 {
            0 => write(&path, 20, 50),
            1 => Op::Append { file: at(&path), len: 3000, seed: 5 },
            2 => Op::Truncate { file: at(&path), size: 10 },
            _ => Op::Truncate { file: at(&path), size: 5000 },
        });
        let path = format!("d/with attributes {len}");
        ops.push(match n % 4 {
            0 => set(&path, "user.z", 90),
            1 => write(&path, 5, 20),
            2 => Op::Truncate { file: at(&path), size: 0 },
            _ => Op::Fallocate { file: at(&path), how: Fallocate::PunchHole, offset: 8, len: 16 },
        });
    }
    for names in [0, 1, 2, 4, 6, 8, 40] {
        let dir = format!("d/directory {names}");
        if names > 2 {
            ops.push(Op::Unlink { path: format!("{dir}/1").into_bytes() });
        }
        ops.push(create(&format!("{dir}/a new name"), Kind::Regular));
        ops.push(set(&dir, "user.of a directory", 80));
    }
    let rename = |path: &str, new: &str| Op::Rename {
        path: path.as_bytes().to_vec(),
        new: new.as_bytes().to_vec(),
        how: Rename::Replace,
    };
    ops.push(rename("d/directory 0/below", "d/moved"));
    ops.push(rename("d/link 100", "d/directory 2/link"));
    ops.push(rename("d/file 161", "d/file 1"));
    ops.push(Op::Rmdir { path: b"d/directory 4/below".to_vec() });
    ops.push(Op::Unlink { path: b"d/file 160".to_vec() });
    ops.push(Op::Unlink { path: b"d/link 61".to_vec() });
    ops.push(Op::Sync);
    ops
}

#[test]
fn the_kernel_and_lanefs_read_and_change_each_others_files_in_inodes() {
    for options in SETS {
        let Some(kernels) = Image::make(options, "32M") else { return };
        let Some(filled) = by_kernel(&kernels, &fill()) else { return };
        filled.assert_same(&by_library(&kernels, &[]), &format!("{options}: the kernel's"));
        kernels.assert_clean(&format!("{options}: read by Lanefs"));
        let changed = by_library(&kernels, &change());
        kernels.assert_clean(&format!("{options}: filled by the kernel, changed by Lanefs"));
        let Some(seen) = by_kernel(&kernels, &[]) else { return };
        seen.assert_same(&changed, &format!("{options}: changed by Lanefs, kernel / Lanefs"));

        let Some(ours) = Image::make(options, "32M") else { return };
        let mine = by_library(&ours, &fill());
        ours.assert_clean(&format!("{options}: filled by Lanefs"));
        filled.content().assert_same(&mine.content(), &format!("{options}: by kernel / by Lanefs"));
        let Some(both) = by_kernel(&ours, &change()) else { return };
        ours.assert_clean(&format!("{options}: filled by Lanefs, changed by the kernel"));
        both.content().assert_same(&changed.content(), &format!("{options}: changed by both"));
        both_again(&kernels, options);
    }
}

/// Lets the kernel remove the directory `d`, whose files Lanefs changed.
fn both_again(image: &Image, options: &str) {
    let Some(mount) = image.kernel_mount("noatime") else { return };
    std::fs::remove_dir_all(mount.path().join("d")).expect("the kernel removes everything");
    mount.unmount();
    image.assert_clean(&format!("{options}: emptied by the kernel"));
}

#[test]
fn a_tree_of_the_kernel_is_removed_where_it_is() {
    for options in SETS {
        let Some(image) = Image::make(options, "32M") else { return };
        let Some(filled) = by_kernel(&image, &fill()) else { return };
        let mut paths: Vec<_> = filled.entries.iter().collect();
        paths.retain(|(path, _)| path.starts_with(b"d"));
        let ops: Vec<Op> = paths
            .into_iter()
            .rev()
            .map(|(path, entry)| match entry.mode & 0xf000 {
                0x4000 => Op::Rmdir { path: path.clone() },
                _ => Op::Unlink { path: path.clone() },
            })
            .collect();
        by_library(&image, &ops);
        image.assert_clean(&format!("{options}: emptied by Lanefs"));
    }
}

/// mke2fs copies a folder into the image. It puts small files and the targets of symbolic links
/// into inodes.
#[test]
fn the_tree_of_mke2fs_is_read() {
    let folder = lanefs_suites::image::folder();
    let path = |name: &str| folder.path().join(name);
    std::fs::create_dir_all(path("tree/sub/below")).expect("a folder");
    std::fs::write(path("tree/small"), vec![b's'; 120]).expect("a file");
    std::fs::write(path("tree/sub/empty"), b"").expect("a file");
    for len in [10, 60, 100, 140] {
        let target = "t".repeat(len);
        std::os::unix::fs::symlink(target, path(&format!("tree/link {len}"))).expect("a link");
    }
    for options in SETS {
        let options = format!("{options} -d {}", path("tree").display());
        let Some(image) = Image::make(&options, "32M") else { return };
        let Some(seen) = by_kernel(&image, &[]) else { return };
        seen.assert_same(&by_library(&image, &[]), &options);
        let ops = ["link 10", "link 60", "link 100", "link 140", "small", "sub/empty"];
        let ops: Vec<Op> =
            ops.iter().map(|path| Op::Unlink { path: path.as_bytes().to_vec() }).collect();
        by_library(&image, &ops);
        image.assert_clean(&options);
    }
}

#[test]
fn an_index_flag_of_a_directory_in_its_inode_is_found_and_cleared() {
    let Some(image) = Image::make("-O inline_data", "16M") else { return };
    image.debugfs("mkdir /d");
    image.debugfs("set_inode_field /d flags 0x10001000");
    assert_eq!(image.check().status, 4, "e2fsck finds it");
    let plan = lanefs_check::repair::plan(image.device(), lanefs_check::repair::Shared::Clone);
    let plan = plan.expect("a plan");
    assert!(!plan.before.findings.is_empty() && !plan.leaves_faults(), "{:?}", plan.after.findings);
}

#[test]
fn data_in_an_inode_is_data_to_seek() {
    let Some(image) = Image::make(SETS[0], "32M") else { return };
    let Some(_) = by_kernel(&image, &[create("f", Kind::Regular), write("f", 50, 10)]) else {
        return;
    };
    let mount = open(&image);
    let inode = Library::new(mount.fs()).resolve(b"f").expect("a file");
    let fs = mount.fs();
    assert_eq!(fs.seek(&inode, Seek::Data, 3).expect("data"), 3);
    assert_eq!(fs.seek(&inode, Seek::Hole, 3).expect("the end"), 60);
    assert!(matches!(fs.seek(&inode, Seek::Data, 60), Err(Error::NoSuchOffset)));
    let mut bytes = [1; 100];
    assert_eq!(fs.read_at(&inode, 48, &mut bytes).expect("a read"), 12);
    assert!(bytes[..2] == [0, 0] && bytes[2..12] == pattern(60, 10)[..]);
    assert_eq!(fs.read_at(&inode, 1 << 40, &mut bytes).expect("a read"), 0);
}

#[test]
fn no_space_is_reserved_for_data_that_would_get_a_block_map() {
    let Some(image) = Image::make(SETS[4], "32M") else { return };
    let mount = open(&image);
    let (fs, mut library) = (mount.fs(), Library::new(mount.fs()));
    let made = [create("f", Kind::Regular), write("f", 0, 40)].map(|op| library.act(&op));
    assert!(made.iter().all(Result::is_ok), "{made:?}");
    let inode = library.resolve(b"f").expect("a file");
    let refused = fs.fallocate(&inode, Fallocate::Allocate, 0, 9000, Privilege::Root);
    assert!(matches!(refused, Err(Error::NotSupported)), "{refused:?}");
    assert_eq!(contents(fs, "f").expect("a read"), Some(pattern(40, 40)));
    drop((inode, library));
    mount.close().expect("Lanefs unmounts it");
    image.assert_clean("after a fallocate that was refused");
}

/// Returns the contents of a file, or `None` if it does not exist.
fn contents(fs: &Arc<Fs>, path: &str) -> Result<Option<Vec<u8>>, String> {
    let inode = match Library::new(fs).resolve(path.as_bytes()) {
        Err(Error::NotFound) => return Ok(None),
        other => other.map_err(|e| e.to_string())?,
    };
    let mut bytes = vec![0; inode.attr().size as usize];
    fs.read_at(&inode, 0, &mut bytes).map_err(|e| e.to_string())?;
    Ok(Some(bytes))
}

#[test]
#[ignore = "long: hundreds of crash states"]
fn data_leaves_the_inode_as_a_whole_after_a_crash() {
    for options in [SETS[0], SETS[2]] {
        let Some(image) = Image::make(&format!("{options} -J size=1 -N 600"), "14M") else {
            return;
        };
        let prepared = [
            create("grown", Kind::Regular),
            write("grown", 0, 100),
            create("cut", Kind::Regular),
            write("cut", 0, 100),
            create("emptied", Kind::Regular),
            write("emptied", 0, 50),
            create("set", Kind::Regular),
            write("set", 0, 30),
            create("d", Kind::Directory),
            create("d/a", Kind::Regular),
            create("d/sub", Kind::Directory),
            create("e", Kind::Directory),
        ];
        let Some(_) = by_kernel(&image, &prepared) else { return };
        let ram = RamDevice::from_file(image.path()).expect("the image is read");
        let base = OverlayDevice::new(Arc::new(ram), u64::MAX);
        let rename =
            Op::Rename { path: b"d/sub".to_vec(), new: b"e/sub".to_vec(), how: Rename::Replace };
        let steps = [
            write("grown", 100, 100),
            Op::Truncate { file: at("cut"), size: 20 },
            Op::Truncate { file: at("emptied"), size: 0 },
            set("set", "user.large", 700),
            Op::Unlink { path: b"set".to_vec() },
            create("d/b", Kind::Regular),
            Op::Unlink { path: b"d/a".to_vec() },
            rename,
        ];
        let work = |fs: &Arc<Fs>| {
            let mut library = Library::new(fs);
            for op in &steps {
                library.act(op)?;
                library.act(&Op::Sync)?;
            }
            Ok(())
        };
        let old = pattern(100, 100);
        let sound = |fs: &Arc<Fs>| {
            let grown = contents(fs, "grown")?.ok_or("it is gone")?;
            // The write to `grown` first moves the old data out of the inode. It adds the new data
            // later, and a crash may leave only a part of the new data.
            if grown[..100] != old[..] || grown.len() > 200 {
                return Err(format!("grown: {} bytes", grown.len()));
            }
            if grown.len() == 200 && grown[100..] != pattern(200, 100)[..] {
                return Err("grown: other bytes".into());
            }
            let cut = contents(fs, "cut")?.ok_or("it is gone")?;
            if cut != old && cut != old[..20] {
                return Err(format!("cut: {} bytes", cut.len()));
            }
            let emptied = contents(fs, "emptied")?.ok_or("it is gone")?;
            if !emptied.is_empty() && emptied != pattern(50, 50) {
                return Err(format!("emptied: {} bytes", emptied.len()));
            }
            if contents(fs, "set")?.is_some_and(|bytes| bytes != pattern(30, 30)) {
                return Err("set: other bytes".into());
            }
            let found = [b"d/sub", b"e/sub"].map(|path| Library::new(fs).resolve(path).is_ok());
            if found[0] == found[1] {
                return Err(format!("sub is at {found:?}"));
            }
            Ok(())
        };
        let states =
            every_state(base, &work, &sound).unwrap_or_else(|why| panic!("{options}: {why}"));
        println!("{options}: {states} crash states");
        assert!(states > 30, "{states}");
    }
}

#[test]
fn damage_to_data_in_inodes_is_named() {
    let options = "-b 1024 -J size=1 -O inline_data,^metadata_csum,^metadata_csum_seed";
    let Some(image) = Image::make(options, "14M") else { return };
    let mut ops =
        vec![create("f", Kind::Regular), write("f", 0, 100), create("d", Kind::Directory)];
    ops.extend((0..6).map(|n| create(&format!("d/name {n}"), Kind::Regular)));
    let Some(_) = by_kernel(&image, &ops) else { return };
    let [f, d] = ["/f", "/d"].map(|path| image.inode_at(path, 1024));
    let words = Words::of(&image);
    let get = |at| words.get(at);
    const BLOCK: u64 = 0x28;
    // The offset of the first attribute entry, which follows the first 128 bytes, 32 bytes of extra
    // fields and the magic number.
    const ENTRY: u64 = 128 + 32 + 4;
    let record = d + BLOCK + 4;
    // The directory's second part, with further names, is the value of the attribute. The stored
    // offset of the value is relative to the first attribute entry.
    let second = d + ENTRY + u64::from(get(d + ENTRY) >> 16);
    for (what, says, at, put) in [
        ("no attribute with the rest", "has no attribute system.data", f + ENTRY - 4, 0),
        (
            "an attribute of another name",
            "has no attribute system.data",
            f + ENTRY + 16,
            0x41414141,
        ),
        (
            "an attribute of a user",
            "has no attribute system.data",
            f + ENTRY,
            get(f + ENTRY) & !0xff00 | 0x100,
        ),
        ("a rest in another inode", "has no attribute system.data", f + ENTRY + 4, 12),
        ("a rest outside the inode", "attributes", f + ENTRY + 8, 60_000),
        ("no attribute of a directory", "has no attribute system.data", d + ENTRY - 4, 0),
        ("a parent of 0", "does not start with", d + BLOCK, 0),
        ("a parent beyond all", "does not start with", d + BLOCK, u32::MAX),
        ("a parent that is a file", "", d + BLOCK, 12),
        ("a name of no inode", "directory", record, 99_999_999),
        ("a record of length 0", "directory", record + 4, get(record + 4) & 0xffff_0000),
        ("a record over the end", "directory", record + 4, get(record + 4) & 0xffff_0000 | 64),
        ("a record of odd length", "directory", record + 4, get(record + 4) & 0xffff_0000 | 17),
        ("a name over its record", "directory", record + 4, get(record + 4) | 0x00ff_0000),
        ("a name with a slash", "directory", record + 8, u32::from_le_bytes(*b"/ame")),
        ("a dot", "directory", record + 4, get(record + 4) & 0xff00_ffff | 0x0001_0000),
        ("a record of length 0 in the second area", "directory", second + 4, 0),
        ("a name of no inode in the second area", "directory", second, 99_999_999),
        ("an index in an inode", "", d + 0x20, get(d + 0x20) | 0x1000),
        ("extents in an inode", "", f + 0x20, get(f + 0x20) | 0x8_0000),
        ("a device with data", "", f, 0x61a4),
    ] {
        let dot = (record + 8, get(record + 8) & !0xff | u32::from(b'.'));
        let both = [(at, put), dot];
        let outcome = words.check(what, if what == "a dot" { &both } else { &both[..1] });
        let named = says.is_empty() || outcome.says(says);
        assert!(outcome.mounted && named, "{what}: {:?}", outcome.errors);
    }
}

#[test]
fn threads_change_and_read_while_names_and_data_leave_inodes() {
    let Some(image) = Image::make(SETS[0], "32M") else { return };
    let mut ops = Vec::new();
    for n in 0..60 {
        ops.push(create(&format!("d{n}"), Kind::Directory));
        ops.push(create(&format!("d{n}/kept"), Kind::Regular));
        ops.push(write(&format!("d{n}/kept"), 0, 100));
    }
    let Some(_) = by_kernel(&image, &ops) else { return };
    let mount = open(&image);
    let start = pattern(100, 100);
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (fs, start) = (mount.fs(), &start);
            scope.spawn(move || {
                let mut library = Library::new(fs);
                for n in 0..60 {
                    let dir = format!("d{n}");
                    library.act(&create(&format!("{dir}/{thread}"), Kind::Regular)).expect("made");
                    let len = 10 + thread as usize;
                    let at = 200 + 1000 * thread as u64;
                    library.act(&write(&format!("{dir}/kept"), at, len)).expect("written");
                    let kept = contents(fs, &format!("{dir}/kept")).expect("sound").expect("there");
                    assert!(kept[..100] == start[..] && kept.len() >= 200, "{dir}");
                    library.act(&Op::List { path: dir.into_bytes() }).expect("a listing");
                }
            });
        }
    });
    for n in 0..60 {
        let mut library = Library::new(mount.fs());
        let names = library.act(&Op::List { path: format!("d{n}").into_bytes() });
        let lanefs_suites::op::Seen::Names(names) = names.expect("a listing") else { panic!() };
        assert_eq!(names, [&b"0"[..], b"1", b"2", b"kept"]);
    }
    mount.close().expect("it unmounts");
    image.assert_clean("changed by threads");
}
