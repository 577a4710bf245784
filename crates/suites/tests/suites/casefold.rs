//! Directories that ignore case (`casefold`). Most kernels do not mount such file systems, but
//! e2fsck computes the hashes of the names and compares the hashes with the index.

use lanefs_check::repair::{Shared, plan};
use lanefs_check::{Fault, Options, Verdict};
use lanefs_device::{Device, RamDevice};
use lanefs_ext4::{Error, InodeRef, Mount, MountOptions, NewInode, NewKind, Rename, SetAttr};
use lanefs_ondisk::casefold::Folding;
use lanefs_ondisk::inode::InodeFlags;
use lanefs_suites::changes::{self, Corpus, Extent};
use lanefs_suites::hostile::random_images_on;
use lanefs_suites::hostile::target::Left;
use lanefs_suites::image::Image;
use lanefs_suites::random::{in_parallel, seeds};
use lanefs_suites::sample;
use lanefs_suites::together::Bases;
use std::collections::HashMap;
use std::ops::ControlFlow;
use std::process::Command;
use std::sync::Arc;

const OPTIONS: &str = "-b 1024 -O casefold";

/// Images in which all directories ignore case: options for mke2fs, and the size.
const SETS: [(&str, &str); 5] = [
    ("-b 1024 -O casefold +F", "96M"),
    ("-b 1024 -O casefold,large_dir,inline_data -E encoding_flags=strict +F", "96M"),
    ("-b 4096 -O casefold,^metadata_csum,^metadata_csum_seed,^orphan_file +F", "96M"),
    ("-b 1024 -O casefold,^dir_index +F", "96M"),
    ("-b 1024 -I 256 -O casefold,quota,project +F", "96M"),
];

/// Images whose logs are so small that they wrap.
const SMALL_LOGS: [(&str, &str); 3] = [
    ("-b 1024 -J size=1 -N 600 -O casefold,large_dir +F", "20M"),
    (
        "-b 4096 -J size=4 -N 600 -O casefold,^metadata_csum,^metadata_csum_seed,^orphan_file +F",
        "20M",
    ),
    ("-b 1024 -J size=1 -N 600 -O casefold,^dir_index +F", "20M"),
];

fn mount(image: &Image) -> Mount {
    Mount::open(image.device(), MountOptions::default()).expect("it mounts")
}

fn new(kind: NewKind<'_>) -> NewInode<'_> {
    NewInode { kind, permissions: 0o755, umask: 0, uid: 0, gid: 0 }
}

fn make(mount: &Mount, dir: &InodeRef, name: &[u8]) -> Result<InodeRef, Error> {
    mount.fs().create(dir, name, &new(NewKind::Regular))
}

/// Creates a directory that ignores case.
fn folded_dir(mount: &Mount, name: &str) -> InodeRef {
    let root = mount.fs().root().expect("the root");
    let made = mount.fs().create(&root, name.as_bytes(), &new(NewKind::Directory));
    let dir = made.expect("a directory");
    fold(mount, &dir, true).expect("an empty directory");
    dir
}

fn fold(mount: &Mount, dir: &InodeRef, casefold: bool) -> Result<(), Error> {
    let set = SetAttr { casefold: Some(casefold), ..SetAttr::default() };
    mount.fs().set_attr(dir, &set).map(|_| ())
}

fn ino(mount: &Mount, dir: &InodeRef, name: &[u8]) -> Option<u32> {
    let found = mount.fs().lookup(dir, name).expect("a sound directory");
    found.map(|named| named.ino.0)
}

fn names(mount: &Mount, dir: &InodeRef) -> Vec<Vec<u8>> {
    let mut names = Vec::new();
    let read = mount.fs().read_dir(dir, 0, &mut |entry| {
        names.push(entry.name.to_vec());
        ControlFlow::Continue(())
    });
    read.expect("a sound directory");
    names.retain(|name| !matches!(&name[..], b"." | b".."));
    names
}

/// Panics unless e2fsck and the checker find nothing.
#[track_caller]
fn assert_sound(image: &Image, context: &str) {
    let theirs = image.e2fsck("-fn -E check_encoding");
    assert!(theirs.status == 0, "{context}: {}", theirs.text);
    let report = lanefs_check::check(image.device(), &Options::default(), &|_| {});
    let report = report.expect("the device works");
    assert!(matches!(report.verdict(), Verdict::Clean), "{context}: {report:?}");
}

/// Returns a name that mixes characters of all scripts, marks in any order, ignored characters, and
/// unassigned characters.
fn random_name(random: &mut fastrand::Rng) -> Vec<u8> {
    const BLOCKS: [(u32, u32); 16] = [
        (0x21, 0x7f),
        (0xa0, 0x250),
        (0x250, 0x300),
        (0x300, 0x370),
        (0x370, 0x400),
        (0x400, 0x590),
        (0x590, 0x700),
        (0x900, 0xe00),
        (0x1100, 0x1200),
        (0x13a0, 0x1400),
        (0x1e00, 0x2000),
        (0x2000, 0x2100),
        (0xac00, 0xd7a4),
        (0xfb00, 0xfb50),
        (0x1d100, 0x1d800),
        (0x1f300, 0x20000),
    ];
    let mut name = Vec::new();
    for _ in 0..random.usize(1..12) {
        let (start, end) = BLOCKS[random.usize(..BLOCKS.len())];
        let c =
            char::from_u32(random.u32(start..end)).filter(|c| !"/.".contains(*c)).unwrap_or('x');
        name.extend(c.to_string().bytes());
    }
    name
}

/// Returns a different spelling that is equal to the name, or the name itself if no such spelling
/// is found.
fn respelled(name: &[u8]) -> Vec<u8> {
    let Ok(text) = std::str::from_utf8(name) else { return name.to_vec() };
    let spellings = [text.to_uppercase(), text.to_lowercase(), format!("{text}\u{200d}")];
    let wanted = Folding::Lenient.form(name);
    let equal = |spelling: &&String| {
        spelling.len() <= 255 && Folding::Lenient.form(spelling.as_bytes()) == wanted
    };
    let found = spellings.iter().filter(equal).find(|spelling| spelling.as_bytes() != name);
    found.map_or_else(|| name.to_vec(), |spelling| spelling.clone().into_bytes())
}

#[test]
fn names_of_all_scripts_are_where_e2fsck_expects_them() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    for options in [OPTIONS, "-b 4096 -O casefold,^metadata_csum,^metadata_csum_seed"] {
        let Some(image) = Image::make(options, "64M") else { return };
        let filled = mount(&image);
        let dir = folded_dir(&filled, "many");
        let mut made: HashMap<Vec<u8>, (Vec<u8>, u32)> = HashMap::new();
        for _ in 0..4000 {
            let name = random_name(&mut random);
            let form = Folding::Lenient.form(&name).into_owned();
            match (make(&filled, &dir, &name), made.get(&form)) {
                (Ok(inode), None) => drop(made.insert(form, (name, inode.ino().0))),
                (Err(Error::Exists), Some(_)) => {}
                (done, known) => panic!("{name:x?}, known {known:x?}: {}", done.is_ok()),
            }
        }
        let flags = InodeFlags::from_bits_retain(dir.attr().flags);
        assert!(flags.contains(InodeFlags::INDEX | InodeFlags::CASEFOLD), "{flags:?}");
        for (name, expected) in made.values() {
            assert_eq!(ino(&filled, &dir, name), Some(*expected), "{name:x?}");
            assert_eq!(ino(&filled, &dir, &respelled(name)), Some(*expected), "{name:x?}");
        }
        // Every third name is removed under a different spelling.
        for (n, form) in made.keys().cloned().collect::<Vec<_>>().into_iter().enumerate() {
            if n % 3 == 0 {
                let (name, _) = made.remove(&form).expect("a name");
                filled.fs().unlink(&dir, &respelled(&name)).expect("a name");
                assert_eq!(ino(&filled, &dir, &name), None, "{name:x?}");
            }
        }
        drop(dir);
        filled.close().expect("it unmounts");
        assert_sound(&image, options);
        // e2fsck builds the index anew, with its own hashes.
        let rebuilt = Command::new("e2fsck").arg("-fyD").arg(image.path()).output();
        assert!(rebuilt.expect("e2fsck runs").status.code().is_some_and(|code| code <= 1));
        assert_sound(&image, "rebuilt by e2fsck");
        let again = mount(&image);
        let root = again.fs().root().expect("the root");
        let dir = again.fs().find(&root, b"many").expect("sound").expect("the directory");
        for (name, expected) in made.values() {
            assert_eq!(ino(&again, &dir, &respelled(name)), Some(*expected), "{name:x?}");
        }
        let mut listed = names(&again, &dir);
        let mut kept: Vec<Vec<u8>> = made.values().map(|(name, _)| name.clone()).collect();
        listed.sort();
        kept.sort();
        assert!(listed == kept, "the names are spelled as they were created");
        drop((root, dir));
        again.close().expect("it unmounts");
    }
}

#[test]
fn a_name_can_be_created_once_and_used_in_any_spelling() {
    let Some(image) = Image::make(OPTIONS, "32M") else { return };
    let mounted = mount(&image);
    let (fs, dir) = (mounted.fs(), folded_dir(&mounted, "dir"));
    assert_eq!(ino(&mounted, &dir, b"readme"), None);
    let file = make(&mounted, &dir, b"README").expect("a new name");
    assert!(matches!(make(&mounted, &dir, b"ReadMe"), Err(Error::Exists)));
    assert!(matches!(fs.link(&file, &dir, b"readME"), Err(Error::Exists)));
    assert_eq!(ino(&mounted, &dir, b"readme"), Some(file.ino().0));
    // The file is renamed to new spellings of its name, some longer and some shorter.
    for spelling in ["readme", "Readme\u{200d}", "re\u{ad}adme", "READme"] {
        let old = names(&mounted, &dir).remove(0);
        fs.rename(&dir, &old, &dir, spelling.as_bytes(), Rename::Replace).expect("it is renamed");
        assert_eq!(names(&mounted, &dir), [spelling.as_bytes().to_vec()]);
        assert_eq!(ino(&mounted, &dir, b"rEADME"), Some(file.ino().0));
    }
    // A rename between two names of the same file changes nothing, so there are still two names.
    fs.link(&file, &dir, b"other").expect("a second name");
    fs.rename(&dir, b"OTHER", &dir, b"readme", Rename::Replace).expect("nothing happens");
    assert_eq!(names(&mounted, &dir).len(), 2);
    // If a rename replaces a file, the directory entry of the replaced file stays, with its
    // spelling. It now refers to the inode of the renamed file.
    let next = make(&mounted, &dir, b"next").expect("a new name");
    fs.rename(&dir, b"NEXT", &dir, b"oTHer", Rename::Replace).expect("it is renamed");
    assert_eq!(ino(&mounted, &dir, b"Other"), Some(next.ino().0));
    assert_eq!(ino(&mounted, &dir, b"next"), None);
    fs.unlink(&dir, b"OTHER").expect("a name");
    fs.unlink(&dir, b"README").expect("a name");
    assert!(names(&mounted, &dir).is_empty());
    drop((file, next, dir));
    mounted.close().expect("it unmounts");
    assert_sound(&image, "names in any spelling");
}

#[test]
fn a_longer_spelling_gets_room_in_any_directory() {
    for options in [OPTIONS, "-b 1024 -O casefold,^dir_index"] {
        let Some(image) = Image::make(options, "32M") else { return };
        let mounted = mount(&image);
        let (fs, dir) = (mounted.fs(), folded_dir(&mounted, "dir"));
        let all: Vec<String> = (0..200).map(|n| format!("a name that is long {n:04}")).collect();
        let made = all.iter().map(|name| make(&mounted, &dir, name.as_bytes()));
        let inos: Vec<u32> = made.map(|inode| inode.expect("a new name").ino().0).collect();
        for name in &all {
            let longer = format!("{}{}", name.to_uppercase(), "\u{200d}".repeat(60));
            let done = fs.rename(&dir, name.as_bytes(), &dir, longer.as_bytes(), Rename::Replace);
            done.unwrap_or_else(|error| panic!("{options}: {name}: {error}"));
        }
        let listed = names(&mounted, &dir);
        assert!(listed.len() == all.len() && listed.iter().all(|name| name.starts_with(b"A NAME")));
        let found = all.iter().map(|name| ino(&mounted, &dir, name.as_bytes()));
        assert!(found.eq(inos.into_iter().map(Some)), "{options}");
        drop(dir);
        mounted.close().expect("it unmounts");
        assert_sound(&image, options);
    }
}

#[test]
fn the_flag_needs_an_empty_directory_and_is_inherited() {
    let Some(image) = Image::make(OPTIONS, "32M") else { return };
    let mounted = mount(&image);
    let (fs, dir) = (mounted.fs(), folded_dir(&mounted, "dir"));
    let inner = fs.create(&dir, b"Inner", &new(NewKind::Directory)).expect("a directory");
    let file = make(&mounted, &inner, b"File").expect("a file");
    let has = |inode: &InodeRef| inode.attr().flags & InodeFlags::CASEFOLD.bits() != 0;
    assert!(has(&inner) && !has(&file));
    assert!(matches!(fold(&mounted, &dir, false), Err(Error::NotEmpty)));
    assert!(matches!(fold(&mounted, &file, true), Err(Error::NotDirectory)));
    let fixed = fs.create(&dir, b"Fixed", &new(NewKind::Directory)).expect("a directory");
    let set = |flags| SetAttr { flags: Some(flags), ..SetAttr::default() };
    fs.set_attr(&fixed, &set(InodeFlags::IMMUTABLE.bits())).expect("flags");
    assert!(matches!(fold(&mounted, &fixed, false), Err(Error::NotPermitted)));
    fs.set_attr(&fixed, &SetAttr { casefold: Some(false), ..set(0) }).expect("no longer fixed");
    assert!(has(&inner) && !has(&fixed));
    fold(&mounted, &inner, true).expect("no change");
    fs.unlink(&inner, b"FILE").expect("a name");
    fold(&mounted, &inner, false).expect("an empty directory");
    assert!(!has(&inner));
    drop(make(&mounted, &inner, b"a").expect("a name"));
    drop(make(&mounted, &inner, b"A").expect("another name"));
    assert!(matches!(fold(&mounted, &inner, true), Err(Error::NotEmpty)));
    drop((dir, inner, file, fixed));
    mounted.close().expect("it unmounts");
    assert_sound(&image, "flags");
    let Some(image) = Image::make("-b 1024", "32M") else { return };
    let mounted = mount(&image);
    let root = mounted.fs().root().expect("the root");
    assert!(matches!(fold(&mounted, &root, true), Err(Error::NotSupported)));
}

#[test]
fn names_that_are_not_utf_8_are_bytes_or_refused() {
    let Some(image) = Image::make(OPTIONS, "32M") else { return };
    let mounted = mount(&image);
    let dir = folded_dir(&mounted, "dir");
    drop(make(&mounted, &dir, b"A\xff").expect("a name"));
    drop(make(&mounted, &dir, b"a\xff").expect("another name"));
    // The hash of a name that is not valid UTF-8 is computed from its bytes. The directory `many`
    // is large enough to have an index, so look-ups in it use hashes.
    let many = folded_dir(&mounted, "many");
    let name = |n: u32| [format!("NAME {n}").as_bytes(), b"\xed\xa0\x80"].concat();
    (0..300).for_each(|n| drop(make(&mounted, &many, &name(n)).expect("a new name")));
    assert!((0..300).all(|n| ino(&mounted, &many, &name(n)).is_some()));
    assert_eq!(ino(&mounted, &many, &name(7).to_ascii_lowercase()), None);
    drop((dir, many));
    mounted.close().expect("it unmounts");
    // e2fsck 1.47.0 computes no hashes for such names, and compares meaningless values with the
    // index. Therefore only the checker judges this image.
    let report = lanefs_check::check(image.device(), &Options::default(), &|_| {});
    let report = report.expect("the device works");
    assert!(matches!(report.verdict(), Verdict::Clean), "{report:?}");
    let Some(image) = Image::make("-b 1024 -O casefold -E encoding_flags=strict", "32M") else {
        return;
    };
    let mounted = mount(&image);
    let dir = folded_dir(&mounted, "dir");
    // With strict encoding, names may still contain unassigned characters, even those that will
    // never be assigned.
    for name in ["\u{c4}", "\u{378}", "\u{ffff}", "\u{e000}", "\u{10ffff}", "\u{200d}"] {
        drop(make(&mounted, &dir, name.as_bytes()).expect(name));
    }
    for name in [&b"A\xff"[..], b"\xed\xa0\x80", b"\xc1\xa1", b"\xf4\x90\x80\x80"] {
        let refused = make(&mounted, &dir, name).err().expect("a refusal");
        assert_eq!(refused.errno(), 22, "{refused}");
        assert_eq!(mounted.fs().lookup(&dir, name).expect_err("a refusal").errno(), 22);
    }
    drop(dir);
    mounted.close().expect("it unmounts");
    assert_sound(&image, "strict");
}

#[test]
fn no_new_name_is_equal_to_dot_or_dot_dot() {
    let Some(image) = Image::make(OPTIONS, "32M") else { return };
    let mounted = mount(&image);
    let (fs, dir) = (mounted.fs(), folded_dir(&mounted, "dir"));
    let file = make(&mounted, &dir, b"file").expect("a new name");
    for name in [".\u{200d}", "\u{ad}.."] {
        let name = name.as_bytes();
        assert_eq!(ino(&mounted, &dir, name), None);
        assert_eq!(make(&mounted, &dir, name).err().expect("a refusal").errno(), 22);
        assert_eq!(fs.link(&file, &dir, name).expect_err("a refusal").errno(), 22);
        let moved = fs.rename(&dir, b"file", &dir, name, Rename::Replace);
        assert_eq!(moved.expect_err("a refusal").errno(), 22);
        // A directory that does not ignore case may contain this name.
        drop(make(&mounted, &fs.root().expect("the root"), name).expect("another name"));
    }
    assert_eq!(ino(&mounted, &dir, b"."), Some(dir.ino().0));
    assert_eq!(ino(&mounted, &dir, b".."), Some(2));
    drop((dir, file));
    mounted.close().expect("it unmounts");
    assert_sound(&image, "dots");
}

#[test]
fn a_directory_in_its_inode_ignores_case_too() {
    let Some(image) = Image::make("-b 1024 -O casefold,inline_data", "32M") else { return };
    for command in [
        "mkdir /dir",
        "set_inode_field /dir flags 0x50000000",
        "write /dev/null dir/README",
        "write /dev/null dir/Second",
    ] {
        image.debugfs(command);
    }
    assert_sound(&image, "made by debugfs");
    let mounted = mount(&image);
    let fs = mounted.fs();
    let dir = fs.find(&fs.root().expect("the root"), b"dir").expect("sound").expect("it is there");
    let flags = InodeFlags::CASEFOLD | InodeFlags::INLINE_DATA;
    assert!(InodeFlags::from_bits_retain(dir.attr().flags).contains(flags));
    let readme = ino(&mounted, &dir, b"readme").expect("the name");
    assert!(matches!(make(&mounted, &dir, b"SECOND"), Err(Error::Exists)));
    fs.rename(&dir, b"readMe", &dir, b"ReadMe", Rename::Replace).expect("it is renamed");
    assert_eq!(ino(&mounted, &dir, b"README"), Some(readme));
    assert_eq!(names(&mounted, &dir).len(), 2);
    drop(dir);
    mounted.close().expect("it unmounts");
    assert_sound(&image, "changed by Lanefs");
}

#[test]
fn another_encoding_is_refused_by_name() {
    let Some(image) = Image::make("-b 1024 -O casefold,^metadata_csum,^metadata_csum_seed", "32M")
    else {
        return;
    };
    let ram = RamDevice::from_file(image.path()).expect("the image is read");
    ram.write_at(1024 + 0x27c, &7u16.to_le_bytes()).expect("a write");
    let refused = Mount::open(Arc::new(ram), MountOptions::default()).err().expect("a refusal");
    assert!(refused.to_string().contains("encoding 7 of names"), "{refused}");
}

#[test]
fn damaged_names_are_found_by_both_checkers_and_repaired() {
    let strict = "-b 1024 -O casefold -E encoding_flags=strict";
    for (options, wrong) in [
        (OPTIONS, ["stra\u{df}e".as_bytes(), b"STRASSE"]),
        (strict, [b"strasse", "STRA\u{df}E".as_bytes()]),
        (strict, [b"a\xff", b"B"]),
        (strict, [b"\xed\xa0\x80", b"B"]),
        (strict, [".\u{200d}".as_bytes(), b"B"]),
    ] {
        let Some(image) = Image::make(options, "32M") else { return };
        let mounted = mount(&image);
        let root = mounted.fs().root().expect("the root");
        let made = mounted.fs().create(&root, b"dir", &new(NewKind::Directory));
        let dir = made.expect("a directory");
        wrong.iter().for_each(|name| drop(make(&mounted, &dir, name).expect("a new name")));
        drop((root, dir));
        mounted.close().expect("it unmounts");
        assert_sound(&image, "not a folded directory yet");
        image.debugfs("set_inode_field /dir flags 0x40080000");
        // The test reads the output of e2fsck, because for a name that is equal to ".", e2fsck
        // prints the fault but returns 0.
        let theirs = image.e2fsck("-fn -E check_encoding").text;
        let is_found = ["Duplicate entry", "illegal UTF-8"].iter().any(|why| theirs.contains(why));
        assert!(is_found, "{wrong:x?}: {theirs}");
        let device = image.device();
        let plan = plan(device.clone(), Shared::Clone).expect("a superblock");
        let found: Vec<_> = plan.before.findings.iter().map(|finding| &finding.fault).collect();
        let is_named = |fault| matches!(fault, &&(Fault::DuplicateName | Fault::NotUtf8));
        assert!(found.iter().any(is_named), "{wrong:x?}: {found:?}");
        let bits = plan.block_size().bits();
        for (block, bytes) in plan.repair().expect("readable") {
            device.write_at(block.0 << bits, &bytes).expect("a write");
        }
        drop((plan, device));
        assert_sound(&image, "repaired");
        let mounted = mount(&image);
        let fs = mounted.fs();
        let dir = fs.find(&fs.root().expect("the root"), b"dir").expect("sound").expect("a name");
        let names = names(&mounted, &dir);
        assert!(names.len() == 2 && names.iter().any(|name| wrong.contains(&&name[..])));
        drop(dir);
        mounted.close().expect("it unmounts");
    }
}

#[test]
fn four_threads_leave_the_tree_of_the_model() {
    let bases = Bases::default();
    SETS.into_iter().zip(seeds(5)).for_each(|(set, seed)| sample::model(&bases, set, seed, 80));
}

#[test]
fn the_checker_and_e2fsck_agree_on_changes_of_these_images() {
    let tally = changes::check(&Corpus::make(Extent::Folding), 1, 60);
    println!("{}", tally.unwrap_or_else(|why| panic!("{why}")));
    let repairs = changes::repair(&Corpus::make(Extent::Folding), 1, 30);
    println!("{}", repairs.unwrap_or_else(|why| panic!("{why}")));
}

#[test]
fn a_few_damaged_images_do_no_harm() {
    for options in [
        "-b 1024 -O casefold,^metadata_csum,^metadata_csum_seed +F",
        "-b 1024 -O casefold,^metadata_csum,^metadata_csum_seed -E encoding_flags=strict +F",
    ] {
        let done = random_images_on((options, 24), Left::Clean, 1, 6);
        println!("{:?}", done.unwrap_or_else(|why| panic!("{options}: {why}")));
    }
}

#[test]
fn promises_are_kept_at_a_few_crashes() {
    SMALL_LOGS.into_iter().zip(seeds(2)).for_each(|(set, seed)| sample::crash(set, seed, 40, 6));
}

#[test]
#[ignore = "long: all sets"]
fn all_suites_hold_in_directories_that_ignore_case() {
    in_parallel(seeds(5), |seed| {
        let (bases, set) = (Bases::default(), (seed % 5) as usize);
        sample::model(&bases, SETS[set], seed, 300);
        sample::fsx(&bases, SETS[set], seed, 1000);
        sample::crash(SMALL_LOGS[(seed % 3) as usize], seed, 100, 30);
    });
}
