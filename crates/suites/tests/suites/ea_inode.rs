//! Attributes with values in inodes of their own (`ea_inode`).

use lanefs_device::{OverlayDevice, RamDevice};
use lanefs_ext4::{Error, Fs, SetXattr};
use lanefs_suites::both::{by_kernel, by_library, open};
use lanefs_suites::crash::states::every_state;
use lanefs_suites::hostile::words::Words;
use lanefs_suites::image::Image;
use lanefs_suites::library::Library;
use lanefs_suites::op::{File, Kind, Op, pattern, show};
use lanefs_suites::random::seeds;
use std::collections::BTreeMap;
use std::process::Command;
use std::sync::Arc;

const SETS: [&str; 4] = [
    "-b 1024 -O ea_inode",
    "-b 4096 -O ea_inode",
    "-b 1024 -O ea_inode,^metadata_csum,^metadata_csum_seed",
    "-b 1024 -I 128 -O ea_inode,^orphan_file,^64bit",
];

fn set(path: &str, name: &str, value: Vec<u8>) -> Op {
    let (path, name) = (path.as_bytes().to_vec(), name.as_bytes().to_vec());
    Op::SetXattr { path, name, value, how: SetXattr::Any }
}

fn remove(path: &str, name: &str) -> Op {
    Op::RemoveXattr { path: path.as_bytes().to_vec(), name: name.as_bytes().to_vec() }
}

fn create(path: &str, kind: Kind) -> Op {
    let path = path.as_bytes().to_vec();
    Op::Create { path, kind, permissions: 0o755, uid: 7, gid: 8 }
}

/// Returns operations that set values of many sizes, set equal values on several files, and remove
/// files.
fn fill() -> Vec<Op> {
    let mut ops = vec![create("d", Kind::Directory)];
    for n in 0..12 {
        let path = format!("d/{n}");
        ops.push(create(&path, Kind::Regular));
        ops.push(set(&path, "user.own", pattern(n, 900 + 1200 * n as usize)));
        ops.push(set(&path, "user.same", pattern(99, 5000)));
        ops.push(set(&path, "user.small", pattern(n, 30)));
        ops.push(set(&path, "security.large", pattern(n, 65_536 - n as usize)));
    }
    // These files have the same attributes, so the kernel lets them share an attribute block.
    for n in 20..32 {
        let path = format!("d/{n}");
        ops.push(create(&path, Kind::Regular));
        ops.push(set(&path, "user.same", pattern(98, 5000)));
        ops.push(set(&path, "user.also the same", vec![7; 300]));
    }
    ops.push(set("d", "trusted.of a directory", pattern(50, 40_000)));
    ops.push(Op::Unlink { path: b"d/11".to_vec() });
    ops.push(Op::Sync);
    ops
}

fn change() -> Vec<Op> {
    let mut ops = Vec::new();
    for n in 0..10 {
        let path = format!("d/{n}");
        ops.push(match n % 4 {
            0 => remove(&path, "user.own"),
            1 => set(&path, "user.own", pattern(n, 10)),
            2 => set(&path, "user.own", pattern(n, 9000)),
            _ => Op::Unlink { path: path.into_bytes() },
        });
    }
    for n in 20..30 {
        let path = format!("d/{n}");
        ops.push(match n % 5 {
            0 => remove(&path, "user.same"),
            1 => set(&path, "user.same", pattern(n, 7000)),
            2 => set(&path, "user.also the same", vec![8; 300]),
            3 => set(&path, "user.more", vec![9; 200]),
            _ => Op::Unlink { path: path.into_bytes() },
        });
    }
    ops.push(set("d/0", "user.same", pattern(3, 4000)));
    ops.push(remove("d/1", "user.same"));
    ops.push(set("d", "trusted.of a directory", pattern(52, 30_000)));
    ops.push(Op::Sync);
    ops
}

#[test]
fn the_kernel_and_lanefs_read_and_change_each_others_values() {
    for options in SETS {
        let Some(kernels) = Image::make(options, "48M") else { return };
        let Some(filled) = by_kernel(&kernels, &fill()) else { return };
        filled.assert_same(&by_library(&kernels, &[]), &format!("{options}: the kernel's"));
        let Some(ours) = Image::make(options, "48M") else { return };
        let mine = by_library(&ours, &fill());
        ours.assert_clean(&format!("{options}: filled by Lanefs"));
        let Some(seen) = by_kernel(&ours, &[]) else { return };
        seen.assert_same(&mine, &format!("{options}: Lanefs's, kernel / Lanefs"));
        filled.content().assert_same(&mine.content(), &format!("{options}: by kernel / by Lanefs"));

        let a = by_library(&kernels, &change());
        kernels.assert_clean(&format!("{options}: filled by the kernel, changed by Lanefs"));
        let Some(seen) = by_kernel(&kernels, &[]) else { return };
        seen.assert_same(&a, &format!("{options}: changed by Lanefs, kernel / Lanefs"));
        let Some(b) = by_kernel(&ours, &change()) else { return };
        ours.assert_clean(&format!("{options}: filled by Lanefs, changed by the kernel"));
        a.content()
            .assert_same(&b.content(), &format!("{options}: changed by Lanefs / the kernel"));

        for image in [&kernels, &ours] {
            let names = (0..32).map(|n| format!("d/{n}"));
            let kept = names.filter(|name| seen.entries.contains_key(name.as_bytes()));
            let unlink = |path: String| Op::Unlink { path: path.into_bytes() };
            let mut ops: Vec<Op> = kept.map(unlink).collect();
            ops.push(Op::Rmdir { path: b"d".to_vec() });
            by_library(image, &ops);
            image.assert_clean(&format!("{options}: emptied by Lanefs"));
            let output = Command::new("dumpe2fs").arg("-h").arg(image.path()).output();
            let text = String::from_utf8_lossy(&output.expect("dumpe2fs").stdout).into_owned();
            let number = |field: &str| -> u64 {
                let line = text.lines().find_map(|line| line.strip_prefix(field)).expect(field);
                line.trim().parse().expect("a number")
            };
            let used = number("Inode count:") - number("Free inodes:");
            let system = if options.contains("^orphan_file") { 11 } else { 12 };
            assert_eq!(used, system, "{options}: values are left");
        }
    }
}

#[test]
fn random_changes_of_attributes_end_as_the_model_says() {
    for seed in seeds(3) {
        let options = SETS[seed as usize % SETS.len()];
        let Some(image) = Image::make(options, "48M") else { return };
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut models: Vec<BTreeMap<Vec<u8>, Vec<u8>>> = vec![BTreeMap::new(); 6];
        let mut full = 0;
        for round in 0..4 {
            let mount = open(&image);
            let mut library = Library::new(mount.fs());
            for n in 0..models.len() {
                if round == 0 {
                    library.act(&create(&n.to_string(), Kind::Regular)).expect("a file");
                }
            }
            for step in 0..120 {
                let n = rng.usize(..models.len());
                let (path, name) = (n.to_string(), format!("user.{}", rng.u8(..5)));
                if rng.u8(..40) == 0 {
                    library.act(&Op::Unlink { path: path.clone().into_bytes() }).expect("unlinked");
                    library.act(&create(&path, Kind::Regular)).expect("a file");
                    models[n].clear();
                } else if rng.u8(..4) == 0 {
                    let got = library.act(&remove(&path, &name)).map(drop);
                    match (models[n].remove(name.as_bytes()), got) {
                        (Some(_), Ok(())) | (None, Err(Error::NoAttribute)) => {}
                        (_, got) => panic!("seed {seed}, step {step}: {got:?}"),
                    }
                } else {
                    let most = [50, 500, 3000, 20_000][rng.usize(..4)];
                    let value = pattern(rng.u64(..), rng.usize(..most));
                    let op = set(&path, &name, value.clone());
                    match library.act(&op) {
                        Ok(_) => drop(models[n].insert(name.into_bytes(), value)),
                        // The inode and its attribute block are so full that there is no room even
                        // for the entry of the attribute.
                        Err(Error::NoSpace) => full += 1,
                        Err(error) => panic!("seed {seed}: {error}"),
                    }
                }
            }
            for (n, model) in models.iter().enumerate() {
                let inode = library.resolve(n.to_string().as_bytes()).expect("a file");
                let mut names = mount.fs().list_xattr(&inode).expect("names");
                names.sort();
                assert!(names.iter().eq(model.keys()), "seed {seed}, round {round}, file {n}");
                for (name, value) in model {
                    let found = mount.fs().get_xattr(&inode, name).expect("a value");
                    assert!(
                        found == *value,
                        "seed {seed}, round {round}, file {n}: {}",
                        show(name)
                    );
                }
            }
            drop(library);
            mount.close().expect("it unmounts");
            image.assert_clean(&format!("seed {seed}, round {round}"));
        }
        println!("seed {seed} ({options}): {full} of 480 found no room");
        assert!(full < 100, "{full}");
    }
}

#[test]
fn a_value_without_room_is_refused_and_leaves_nothing() {
    let Some(image) = Image::make("-b 1024 -J size=1 -O ea_inode", "8M") else { return };
    let mount = open(&image);
    let mut library = Library::new(mount.fs());
    for n in (0..8).rev() {
        library.act(&create(&n.to_string(), Kind::Regular)).expect("a file");
    }
    let filler = Op::Write { file: File::At(b"0".to_vec()), offset: 0, len: 16 << 20, seed: 1 };
    assert!(matches!(library.act(&filler), Err(Error::NoSpace)));
    for n in 0..8 {
        // The value needs an inode of its own. In some rounds the number of this inode is lower
        // than that of the file's inode, in others it is higher.
        let refused = library.act(&set(&n.to_string(), "user.v", pattern(n, 60_000)));
        assert!(matches!(refused, Err(Error::NoSpace)), "{refused:?}");
        library.act(&create(&format!("more {n}"), Kind::Regular)).expect("an inode");
        library.act(&Op::Unlink { path: n.to_string().into_bytes() }).expect("unlinked");
        let filler = Op::Append { file: File::At(b"more 0".to_vec()), len: 16 << 20, seed: 1 };
        assert!(matches!(library.act(&filler), Err(Error::NoSpace)));
    }
    drop(library);
    mount.close().expect("it unmounts");
    image.assert_clean("full");
}

/// If the first value were stored in the attribute block, it would fill the block, and the entries
/// of the other attributes would have no room.
#[test]
fn a_large_value_leaves_room_for_the_entries_of_others() {
    for (options, len) in [("-b 1024 -O ea_inode", 960), ("-b 4096 -O ea_inode", 4040)] {
        let Some(image) = Image::make(options, "16M") else { return };
        let mount = open(&image);
        let mut library = Library::new(mount.fs());
        library.act(&create("f", Kind::Regular)).expect("a file");
        for n in 0..6 {
            let value = pattern(n, len - 60 * n as usize);
            let stored = library.act(&set("f", &format!("user.{n}"), value));
            stored.unwrap_or_else(|error| panic!("{options}, attribute {n}: {error}"));
        }
        drop(library);
        mount.close().expect("it unmounts");
        image.assert_clean(options);
    }
}

/// The access ACL and the default ACL of the new directory fill its attribute block. Lanefs does
/// not store the ACLs of a new inode in inodes of their own, so these ACLs need not leave room for
/// entries.
#[test]
fn a_directory_inherits_two_lists_that_fill_its_attribute_block() {
    let Some(image) = Image::make("-b 1024 -O ea_inode", "16M") else { return };
    let named = (1..=55).map(|id| (2, 7, id));
    let others = [(4, 5, u32::MAX), (16, 7, u32::MAX), (32, 5, u32::MAX)];
    let entries = [(1, 7, u32::MAX)].into_iter().chain(named).chain(others);
    let bytes = |(tag, permissions, id): (u16, u16, u32)| {
        [&tag.to_le_bytes()[..], &permissions.to_le_bytes(), &id.to_le_bytes()].concat()
    };
    let list = [2u32.to_le_bytes().to_vec(), entries.flat_map(bytes).collect()].concat();
    by_library(
        &image,
        &[
            create("d", Kind::Directory),
            set("d", "system.posix_acl_default", list),
            create("d/sub", Kind::Directory),
        ],
    );
    image.assert_clean("inherited lists");
}

/// Returns the value of an attribute of `/f`, or `None` if the file or the attribute does not
/// exist.
fn value_of(fs: &Arc<Fs>, name: &[u8]) -> Result<Option<Vec<u8>>, String> {
    let inode = match Library::new(fs).resolve(b"f") {
        Err(Error::NotFound) => return Ok(None),
        other => other.map_err(|e| e.to_string())?,
    };
    match fs.get_xattr(&inode, name) {
        Err(Error::NoAttribute) => Ok(None),
        other => other.map(Some).map_err(|e| e.to_string()),
    }
}

#[test]
#[ignore = "long: hundreds of crash states"]
fn a_value_is_old_or_new_after_a_crash() {
    for options in [SETS[0], SETS[3]] {
        let Some(image) = Image::make(&format!("{options} -J size=1 -N 600"), "14M") else {
            return;
        };
        by_library(&image, &[create("f", Kind::Regular), set("f", "user.v", pattern(1, 6000))]);
        let ram = RamDevice::from_file(image.path()).expect("the image is read");
        let base = OverlayDevice::new(Arc::new(ram), u64::MAX);
        let steps = [
            set("f", "user.v", pattern(2, 30_000)),
            set("f", "user.v", pattern(3, 20)),
            set("f", "user.v", pattern(4, 3000)),
            set("f", "user.w", pattern(5, 2000)),
            remove("f", "user.w"),
            Op::Unlink { path: b"f".to_vec() },
        ];
        let work = |fs: &Arc<Fs>| {
            let mut library = Library::new(fs);
            for op in &steps {
                library.act(op)?;
                library.act(&Op::Sync)?;
            }
            Ok(())
        };
        let known: Vec<Option<Vec<u8>>> = [(1, 6000), (2, 30_000), (3, 20), (4, 3000)]
            .into_iter()
            .map(|(seed, len)| Some(pattern(seed, len)))
            .chain([None])
            .collect();
        let sound = |fs: &Arc<Fs>| {
            let found = value_of(fs, b"user.v")?;
            if !known.contains(&found) {
                return Err(format!("a value of {:?} bytes", found.map(|value| value.len())));
            }
            match value_of(fs, b"user.w")? {
                Some(value) if value != pattern(5, 2000) => Err("another value of w".into()),
                _ => Ok(()),
            }
        };
        let states =
            every_state(base, &work, &sound).unwrap_or_else(|why| panic!("{options}: {why}"));
        println!("{options}: {states} crash states");
        assert!(states > 30, "{states}");
    }
}

#[test]
fn damage_to_values_is_named() {
    let options = "-b 1024 -J size=1 -O ea_inode,^metadata_csum,^metadata_csum_seed";
    let Some(image) = Image::make(options, "14M") else { return };
    let ops = [
        create("f", Kind::Regular),
        set("f", "user.v", pattern(1, 6000)),
        create("g", Kind::Regular),
        Op::Write { file: File::At(b"g".to_vec()), offset: 0, len: 6000, seed: 1 },
    ];
    by_library(&image, &ops);
    let owner = image.inode_at("/f", 1024);
    let words = Words::of(&image);
    let get = |at| words.get(at);
    // The first attribute entry in the inode follows the first 128 bytes, 32 bytes of extra fields
    // and the magic number.
    let entry = owner + 128 + 32 + 4;
    let value = get(entry + 4);
    let value_at = image.inode_at(&format!("<{value}>"), 1024);
    let other = image.debugfs("stat /g");
    let other = other.split_whitespace().nth(1).and_then(|ino| ino.parse().ok());
    let other: u32 = other.expect("an inode number");
    for (what, says, at, put) in [
        ("a value in no inode", "should hold a value", entry + 4, 9_999_999),
        ("a value in a free inode", "should hold a value", entry + 4, 500),
        ("a value in the journal", "should hold a value", entry + 4, 8),
        ("a value in the root", "should hold a value", entry + 4, 2),
        ("a value in another file", "should hold a value", entry + 4, other),
        ("a value of its own owner", "should hold a value", entry + 4, value - 1),
        ("a value of another size", "should hold a value", entry + 8, 5999),
        ("a value of 4 GiB", "bytes in an inode of its own", entry + 8, u32::MAX),
        ("a value of 16 MiB", "should hold a value", entry + 8, 1 << 24),
        ("an entry of another hash", "has hash", entry + 12, 77),
        ("a value of another hash", "has hash", value_at + 8, 77),
        ("an inode of another size", "should hold a value", value_at + 4, 1 << 20),
        ("an inode that is no value", "should hold a value", value_at + 0x20, 0x80000),
        ("a directory as a value", "is not whole blocks", value_at, 0x41c0),
        ("a value without references", "", value_at + 0x24, 0),
        ("a value of many references", "", value_at + 0x24, u32::MAX),
        ("a value without links", "should hold a value", value_at + 0x18, 0),
    ] {
        let outcome = words.check(what, &[(at, put)]);
        let named = says.is_empty() || outcome.says(says);
        assert!(outcome.mounted && named, "{what}: {:?}", outcome.errors);
    }
    let no_feature = 1024 + 0x60;
    let without = [(no_feature, get(no_feature) & !0x400)];
    let outcome = words.check("a value without the feature", &without);
    assert!(outcome.says("not supported: ea_inode"), "{:?}", outcome.errors);
}

#[test]
fn threads_release_values_that_the_kernel_shares() {
    for options in [SETS[0], SETS[3]] {
        let Some(image) = Image::make(options, "48M") else { return };
        let mut ops = Vec::new();
        for n in 0..90 {
            let path = n.to_string();
            ops.push(create(&path, Kind::Regular));
            ops.push(set(&path, "user.same", pattern(n / 9, 3000)));
            // The second attribute is needed: if a file had only the first one, Linux 6.18 would
            // count a reference to the value for each file that shares the attribute block.
            ops.push(set(&path, "user.also the same", vec![7; 300]));
        }
        let Some(_) = by_kernel(&image, &ops) else { return };
        image.assert_clean(&format!("{options}: by the kernel"));
        let mount = open(&image);
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let fs = mount.fs();
                scope.spawn(move || {
                    let mut library = Library::new(fs);
                    for n in (thread..90).step_by(3) {
                        let path = n.to_string();
                        let op = match n / 3 % 3 {
                            0 => Op::Unlink { path: path.into_bytes() },
                            1 => remove(&path, "user.same"),
                            _ => set(&path, "user.same", pattern(n, 2000)),
                        };
                        library.act(&op).unwrap_or_else(|error| panic!("{op:?}: {error}"));
                    }
                });
            }
        });
        mount.close().expect("it unmounts");
        image.assert_clean(&format!("{options}: changed by threads"));
    }
}
