//! Encrypted directories. The model, e2fsck, the checker and the kernel judge them. On images with
//! the feature, the suites work in an encrypted directory (`home`).

use lanefs_check::repair::{Shared, plan};
use lanefs_check::{Options, Verdict};
use lanefs_device::{Device, Kept, OverlayDevice, RamDevice, RecordingDevice};
use lanefs_ext4::{Error, Fs, InodeRef, Mount, NewInode, NewKind, Privilege, Rename, SetAttr};
use lanefs_ondisk::encryption::Policy;
use lanefs_suites::both::{by_library, open};
use lanefs_suites::changes::{self, Corpus, Extent};
use lanefs_suites::fill::{Scale, fill};
use lanefs_suites::hostile::random_images_on;
use lanefs_suites::hostile::target::Left;
use lanefs_suites::image::{Image, Mappings};
use lanefs_suites::kernel::Kernel;
use lanefs_suites::library::Library;
use lanefs_suites::op::{File, Kind, Op, Tree};
use lanefs_suites::random::{in_parallel, seeds};
use lanefs_suites::sample;
use lanefs_suites::together::Bases;
use lanefs_suites::{home, listing};
use std::sync::Arc;

/// Images with a small log: options for mke2fs, and the size.
const SETS: [(&str, &str); 5] = [
    ("-b 4096 -J size=4 -O encrypt", "64M"),
    ("-b 1024 -J size=1 -O encrypt,large_dir", "64M"),
    ("-b 1024 -J size=1 -O encrypt,^metadata_csum,^metadata_csum_seed,^orphan_file", "64M"),
    ("-b 2048 -J size=2 -O encrypt,inline_data,^dir_index", "64M"),
    ("-b 1024 -J size=1 -O encrypt,bigalloc -C 4096", "64M"),
];

fn hostile(seed: u64, count: u64) {
    const PLAIN: &str = "-J size=1 -O encrypt,^metadata_csum,^metadata_csum_seed -b 1024";
    let left = if seed.is_multiple_of(2) { Left::Clean } else { Left::Crashed };
    let checked = random_images_on((PLAIN, 32), left, seed, count);
    println!("{:?}", checked.unwrap_or_else(|why| panic!("{why}")));
}

#[test]
fn four_threads_leave_the_tree_of_the_model() {
    let bases = Bases::default();
    SETS.into_iter().zip(seeds(5)).for_each(|(set, seed)| sample::model(&bases, set, seed, 60));
}

#[test]
fn a_file_keeps_its_bytes() {
    let bases = Bases::default();
    SETS.into_iter().zip(seeds(5)).for_each(|(set, seed)| sample::fsx(&bases, set, seed, 300));
}

#[test]
fn promises_are_kept_at_a_few_crashes() {
    SETS.into_iter().zip(seeds(5)).for_each(|(set, seed)| sample::crash(set, seed, 60, 6));
}

#[test]
fn a_few_damaged_images_do_no_harm() {
    seeds(2).into_iter().for_each(|seed| hostile(seed, 6));
}

#[test]
#[ignore = "long: all sets"]
fn all_suites_hold_in_encrypted_directories() {
    in_parallel(seeds(10), |seed| {
        let (bases, set) = (Bases::default(), (seed % 5) as usize);
        sample::model(&bases, SETS[set], seed, 300);
        sample::fsx(&bases, SETS[set], seed, 4000);
        sample::crash(SETS[set], seed, 150, 60);
        hostile(seed, 40);
    });
    let tally = changes::check(&Corpus::make(Extent::Encrypted), seeds(1)[0], 4000);
    println!("{}", tally.unwrap_or_else(|why| panic!("{why}")));
}

#[test]
fn the_kernel_reads_the_tree_that_lanefs_made() {
    for (options, size) in [SETS[0], SETS[2]] {
        let Some(image) = Image::make(options, size) else { return };
        let scale = Scale { files: 150, pieces: 60, ..Scale::of_image(20, 1024) };
        let ours = by_library(&image, &fill(scale.with(Mappings::of(options))));
        image.assert_clean("filled by Lanefs");
        let Some(mount) = image.kernel_mount("noatime") else { return };
        let Some(dir) = home::of_kernel(mount.path()) else { return };
        let theirs = listing::of_kernel(&dir).expect("the kernel reads everything");
        mount.unmount();
        ours.content().assert_same(&theirs.content(), options);
    }
}

fn found(fs: &Fs, name: &str) -> InodeRef {
    let dir = home::of_library(fs).expect("the directory");
    fs.find(&dir, name.as_bytes()).expect("the directory is read").expect("the file")
}

fn create(fs: &Fs, dir: &InodeRef, name: &str, kind: NewKind<'_>) -> InodeRef {
    let new = NewInode { kind, permissions: 0o755, umask: 0, uid: 0, gid: 0 };
    fs.create(dir, name.as_bytes(), &new).expect("a new name")
}

fn resize(fs: &Fs, file: &InodeRef, size: u64) {
    let set = SetAttr { size: Some(size), ..SetAttr::default() };
    fs.set_attr(file, &set).expect("another size");
}

fn read(fs: &Fs, file: &InodeRef) -> Vec<u8> {
    let mut bytes = vec![1; file.attr().size as usize];
    let len = fs.read_at(file, 0, &mut bytes).expect("a read");
    bytes.truncate(len);
    bytes
}

fn mount(device: Arc<dyn Device>) -> Mount {
    Mount::open(device, home::options()).expect("Lanefs mounts it")
}

/// The sizes of a file before and after its truncation.
const LONG: usize = 11_000;
const SHORT: usize = 5_000;

/// Returns the bytes on the device between the end of the short file and the end of its last block.
/// The bytes start at the first AES block that lies entirely after the end of the file.
fn after_end(fs: &Fs, file: &InodeRef, device: &dyn Device) -> Vec<u8> {
    let size = SHORT as u64;
    let block = u64::from(fs.stat_fs().block_size);
    let extents = fs.extents(file).expect("extents");
    let is_last = |e: &&lanefs_ext4::FileExtent| (e.offset..e.offset + e.len).contains(&size);
    let last = extents.iter().find(is_last).expect("the end is mapped");
    let mut bytes = vec![0; (size.next_multiple_of(block) - size.next_multiple_of(16)) as usize];
    let at = last.place + (size.next_multiple_of(16) - last.offset);
    device.read_at(at, &mut bytes).expect("inside");
    bytes
}

/// Simulates crashes during a truncation. In each state that a crash can leave, checks which bytes
/// of the file are left.
fn crash_truncation(image: &OverlayDevice, old: &[u8], has_clusters: bool) {
    let device = Arc::new(RecordingDevice::since(image.fork(), Arc::new(image.fork())));
    let mounted = mount(device.clone());
    resize(mounted.fs(), &found(mounted.fs(), "f"), SHORT as u64);
    mounted.fs().sync().expect("committed");
    mounted.close().expect("closed");
    let recording = device.recording();
    let mut replay = recording.replay();
    let mut short = 0;
    for cut in 0..=recording.events().len() {
        for kept in [Kept::None, Kept::All, Kept::Some { seed: cut as u64 }] {
            let state = Arc::new(replay.state(cut, kept));
            let mounted = mount(state.clone());
            let (fs, file) = (mounted.fs(), found(mounted.fs(), "f"));
            let bytes = read(fs, &file);
            assert!(bytes[..SHORT] == [b'x'; SHORT], "cut {cut}, {kept:?}");
            if bytes.len() == LONG {
                // With clusters, the file may already contain zeros, because Lanefs writes zeros
                // behind the new end before it changes the size.
                let is_old = |byte: &u8| *byte == b'x' || (has_clusters && *byte == 0);
                assert!(bytes.iter().all(is_old), "cut {cut}, {kept:?}");
            } else {
                assert_eq!(bytes.len(), SHORT, "cut {cut}, {kept:?}");
                short += 1;
                let left = after_end(fs, &file, &*state);
                let is_left = left.chunks(16).zip(old.chunks(16)).any(|(new, old)| new == old);
                assert!(!is_left, "cut {cut}, {kept:?}: old bytes are left after the end");
                resize(fs, &file, LONG as u64);
                assert!(read(fs, &file)[SHORT..] == [0; LONG - SHORT], "cut {cut}, {kept:?}");
            }
            drop(file);
            mounted.close().expect("closed");
        }
    }
    assert!(short > 0, "no state has the shorter file");
}

#[test]
fn a_crash_after_a_truncation_leaves_no_old_bytes_after_the_end() {
    for (options, size) in [SETS[0], SETS[4]] {
        let Some(image) = Bases::default().fresh(options, size) else { return };
        let image = Arc::new(image);
        let mounted = mount(image.clone());
        let fs = mounted.fs();
        let file = create(fs, &home::of_library(fs).expect("a directory"), "f", NewKind::Regular);
        fs.write_at(&file, 0, &[b'x'; LONG], Privilege::Root).expect("written");
        fs.sync().expect("committed");
        let old = after_end(fs, &file, &*image);
        drop(file);
        mounted.close().expect("closed");
        crash_truncation(&image, &old, options.contains("bigalloc"));
    }
}

#[test]
fn a_truncation_needs_no_free_block() {
    let Some(image) = Image::make("-b 4096 -O encrypt,^has_journal", "16M") else { return };
    let mounted = open(&image);
    let fs = mounted.fs();
    let dir = home::of_library(fs).expect("a directory");
    let [file, filler] = ["f", "filler"].map(|name| create(fs, &dir, name, NewKind::Regular));
    fs.write_at(&file, 0, &[b'x'; LONG], Privilege::Root).expect("written");
    let mut at = 0;
    while let Ok(written) = fs.write_at(&filler, at, &[b'y'; 4096], Privilege::Root) {
        at += written as u64;
    }
    assert_eq!(fs.stat_fs().blocks_free, 0);
    resize(fs, &file, SHORT as u64);
    resize(fs, &file, LONG as u64);
    let bytes = read(fs, &file);
    assert!(bytes[..SHORT] == [b'x'; SHORT] && bytes[SHORT..] == [0; LONG - SHORT]);
    drop((dir, file, filler));
    mounted.close().expect("closed");
    image.assert_clean("full and truncated");
}

/// Returns operations within the directory of [`home`], and operations between this directory and
/// two others: `other`, which has a different policy, and `plain`, which is not encrypted.
fn crossing() -> Vec<Op> {
    let path = |name: &str| name.as_bytes().to_vec();
    let at = |name: &str| File::At(path(name));
    let rename = |from: &str, to: &str, how| Op::Rename { path: path(from), new: path(to), how };
    let link = |file: File, new: &str| Op::Link { file, new: path(new) };
    let create = |name: &str, kind| {
        let (permissions, uid, gid) = (0o755, 0, 0);
        Op::Create { path: path(name), kind, permissions, uid, gid }
    };
    let write = |file: File, seed| Op::Write { file, offset: 1000, len: 9000, seed };
    let mut ops = Vec::new();
    for dir in ["", "../other/", "../plain/"] {
        for n in 0..4 {
            ops.push(create(&format!("{dir}f{n}"), Kind::Regular));
            ops.push(write(at(&format!("{dir}f{n}")), n));
            ops.push(create(&format!("{dir}d{n}"), Kind::Directory));
        }
        ops.push(create(&format!("{dir}l"), Kind::Symlink(path("f0"))));
        ops.push(create(&format!("{dir}p"), Kind::Fifo));
    }
    for (from, to) in [("", "../other/"), ("../plain/", ""), ("../other/", ""), ("", "../plain/")] {
        for name in ["f0", "d0", "l", "p"] {
            let (from, to) = (format!("{from}{name}"), format!("{to}from-{}", from.len()));
            ops.extend([link(at(&from), &format!("{to}-linked-{name}"))]);
            ops.extend([rename(&from, &format!("{to}-{name}"), Rename::Replace)]);
        }
        for name in ["f1", "d1"] {
            let (from, to) = (format!("{from}{name}"), format!("{to}{name}"));
            ops.push(rename(&from, &to, Rename::Exchange));
            ops.push(rename(&from, &to, Rename::Replace));
        }
    }
    let whiteout = Rename::Whiteout { uid: 0, gid: 0 };
    ops.extend([
        rename("f2", "d2", Rename::Exchange),
        rename("f3", "moved", whiteout),
        rename("d3", "../other/d2", whiteout),
        Op::Unnamed { dir: path("d1"), slot: 0 },
        write(File::Open(0), 7),
        link(File::Open(0), "../other/unnamed"),
        link(File::Open(0), "named"),
        link(File::Open(0), "../plain/named"),
        Op::Close { slot: 0 },
    ]);
    ops
}

#[test]
fn names_cross_between_policies_as_in_the_kernel() {
    let fresh = || {
        let image = Image::make(SETS[0].0, SETS[0].1)?;
        let mounted = open(&image);
        let (fs, root) = (mounted.fs(), mounted.fs().root().expect("the root"));
        let policy = fs.encryption_policy(&home::of_library(fs).expect("a directory"));
        let policy = policy.expect("a context").expect("a policy");
        create(fs, &root, "plain", NewKind::Directory);
        let other = create(fs, &root, "other", NewKind::Directory);
        fs.set_encryption_policy(&other, &Policy { flags: 0, ..policy }).expect("a policy");
        drop((root, other));
        mounted.close().expect("closed");
        Some(image)
    };
    let (Some(theirs), Some(ours)) = (fresh(), fresh()) else { return };
    let by_kernel = |image: &Image, ops: &[Op]| {
        let mount = image.kernel_mount("noatime")?;
        let dir = home::of_kernel(mount.path())?;
        let outcomes: Vec<_> = {
            let mut kernel = Kernel::new(&dir);
            ops.iter().map(|op| kernel.apply(op)).collect()
        };
        let listing = listing::of_kernel(mount.path()).expect("the kernel reads everything");
        mount.unmount();
        Some((outcomes, listing.content()))
    };
    let ops = crossing();
    let Some((their_outcomes, their_tree)) = by_kernel(&theirs, &ops) else { return };
    assert!(their_outcomes.contains(&Err(EXDEV)), "{their_outcomes:?}");
    let mounted = open(&ours);
    let mut library = Library::new(mounted.fs());
    for (op, theirs) in ops.iter().zip(their_outcomes) {
        assert_eq!(library.apply(op), theirs, "{op:?}");
    }
    drop(library);
    mounted.close().expect("closed");
    ours.assert_clean("names across policies");
    let Some((_, our_tree)) = by_kernel(&ours, &[]) else { return };
    our_tree.assert_same(&their_tree, "names across policies");
}

/// Options for an image without checksums, so that a test can change metadata in it.
const PLAIN: &str = "-b 4096 -O encrypt,^metadata_csum,^metadata_csum_seed";
/// The size in bytes of an encryption context of version 2.
const CONTEXT: usize = 40;

/// Returns a copy of the image in which the encryption context of inode `ino` is changed.
fn damaged(image: &Image, ino: u32, change: impl FnOnce(&mut [u8])) -> Arc<RamDevice> {
    let device = RamDevice::from_file(image.path()).expect("the image is read");
    let at = image.inode_at(&format!("<{ino}>"), 4096);
    let mut record = [0; 256];
    device.read_at(at, &mut record).expect("inside");
    let start = record.windows(8).position(|bytes| bytes == [2, 1, 4, 3, 0, 0, 0, 0]);
    let start = start.expect("a context");
    change(&mut record[start..start + CONTEXT]);
    device.write_at(at, &record).expect("inside");
    Arc::new(device)
}

/// Returns an image with the file `f`, the directory `d`, the symbolic link `l` and the pipe `p`.
/// Also returns the inode numbers of the parent directory and of these four files, in this order.
fn sample() -> Option<(Image, [u32; 5])> {
    let image = Image::make(PLAIN, "16M")?;
    let mounted = open(&image);
    let fs = mounted.fs();
    let dir = home::of_library(fs).expect("a directory");
    let file = create(fs, &dir, "f", NewKind::Regular);
    fs.write_at(&file, 0, b"secret", Privilege::Root).expect("written");
    let inner = create(fs, &dir, "d", NewKind::Directory);
    let link = create(fs, &dir, "l", NewKind::Symlink(b"f"));
    let pipe = create(fs, &dir, "p", NewKind::Fifo);
    let inos = [&dir, &file, &inner, &link, &pipe].map(|inode| inode.ino().0);
    drop((dir, file, inner, link, pipe));
    mounted.close().expect("closed");
    Some((image, inos))
}

const ENOKEY: i32 = 126;
const EUCLEAN: i32 = 117;
const EPERM: i32 = 1;
const EXDEV: i32 = 18;
const EOPNOTSUPP: i32 = 95;

#[test]
fn a_policy_that_is_not_supported_or_damaged_is_refused_by_name() {
    /// An offset in the context, the byte to write at this offset, the expected errno, and words in
    /// the error.
    const KINDS: [(usize, u8, i32, &str); 16] = [
        (0, 1, EUCLEAN, "encryption context of version 1 and 40 bytes"),
        (0, 3, EUCLEAN, "encryption context of version 3 and 40 bytes"),
        (1, 5, ENOKEY, "encrypts contents by AES-128-CBC-ESSIV"),
        (1, 9, ENOKEY, "encrypts contents by Adiantum"),
        (1, 77, ENOKEY, "encrypts contents by an unknown mode"),
        (2, 6, ENOKEY, "encrypts names by AES-128-CBC-CTS"),
        (2, 9, ENOKEY, "encrypts names by Adiantum"),
        (2, 10, ENOKEY, "encrypts names by AES-256-HCTR2"),
        (2, 1, ENOKEY, "encrypts names by an unknown mode"),
        (3, 7, ENOKEY, "has the flag DIRECT_KEY"),
        (3, 8, ENOKEY, "has the flag IV_INO_LBLK_64"),
        (3, 16, ENOKEY, "has the flag IV_INO_LBLK_32"),
        (3, 0x80, ENOKEY, "has an unknown flag"),
        (4, 9, ENOKEY, "encrypts parts of blocks"),
        (6, 1, EUCLEAN, "the reserved bytes of its encryption context are [0, 1, 0]"),
        (8, 0, ENOKEY, "was not given"),
    ];
    let Some((image, [dir, ..])) = sample() else { return };
    for (at, byte, errno, words) in KINDS {
        let mounted = mount(damaged(&image, dir, |context| context[at] = byte));
        let made = home::of_library(mounted.fs()).and_then(|dir| {
            let kind = NewKind::Regular;
            let new = NewInode { kind, permissions: 0o755, umask: 0, uid: 0, gid: 0 };
            mounted.fs().create(&dir, b"new", &new)
        });
        let refused = made.err().expect("a refusal");
        assert_eq!(refused.errno(), errno, "{refused}");
        assert!(refused.to_string().contains(words), "{refused}");
    }
}

#[test]
fn a_directory_is_encrypted_or_ignores_case_but_not_both() {
    const BOTH: &str = "-b 1024 -O encrypt,casefold,^metadata_csum,^metadata_csum_seed";
    let Some(image) = Image::make(BOTH, "16M") else { return };
    let mounted = open(&image);
    let fs = mounted.fs();
    let root = fs.root().expect("the root");
    let home = home::of_library(fs).expect("a directory");
    let encrypted = create(fs, &home, "encrypted", NewKind::Directory);
    let folding = create(fs, &root, "folding", NewKind::Directory);
    let fold = SetAttr { casefold: Some(true), ..SetAttr::default() };
    fs.set_attr(&folding, &fold).expect("an empty directory");
    let policy = fs.encryption_policy(&home).expect("readable").expect("a policy");
    let refused =
        [fs.set_attr(&encrypted, &fold).map(drop), fs.set_encryption_policy(&folding, &policy)];
    assert!(refused.iter().all(|done| matches!(done, Err(Error::NotSupported))), "{refused:?}");
    let ino = encrypted.ino().0;
    drop((root, home, encrypted, folding));
    mounted.close().expect("closed");
    image.assert_clean("both features");
    // The kernel can make directories that are encrypted and ignore case. Lanefs refuses to make
    // them, so the test sets the flag for casefold in the inode of the encrypted directory.
    let device = RamDevice::from_file(image.path()).expect("the image is read");
    let flags = image.inode_at(&format!("<{ino}>"), 1024) + 0x20;
    let mut bytes = [0; 4];
    device.read_at(flags, &mut bytes).expect("inside");
    bytes[3] |= 0x40;
    device.write_at(flags, &bytes).expect("inside");
    let mounted = mount(Arc::new(device));
    let (fs, home) = (mounted.fs(), home::of_library(mounted.fs()).expect("a directory"));
    let refused = fs.find(&found(fs, "encrypted"), b"name").err().expect("a refusal");
    assert_eq!(refused.errno(), EOPNOTSUPP, "{refused}");
    assert!(refused.to_string().contains("an encrypted directory that ignores case"), "{refused}");
    create(fs, &home, "other", NewKind::Directory);
    drop(home);
    mounted.close().expect("closed");
}

#[test]
fn an_inode_of_another_policy_in_an_encrypted_directory_is_not_used() {
    let Some((image, [_, file, dir, link, _])) = sample() else { return };
    let other_key: fn(&mut [u8]) = |context| context[10] ^= 1;
    for (name, ino) in [("d", dir), ("l", link)] {
        let mounted = mount(damaged(&image, ino, other_key));
        let home = home::of_library(mounted.fs()).expect("a directory");
        let refused = mounted.fs().lookup(&home, name.as_bytes()).expect_err("a refusal");
        assert_eq!(refused.errno(), EPERM, "{refused}");
        assert_eq!(listing::library_names(mounted.fs(), &home).expect("names").len(), 4);
    }
    let other_padding: fn(&mut [u8]) = |context| context[3] = 0;
    for (change, errno) in [(other_key, ENOKEY), (other_padding, EPERM)] {
        let device = damaged(&image, file, change);
        kernel_refuses(&device, "f", errno);
        let mounted = mount(device);
        let (fs, home) = (mounted.fs(), home::of_library(mounted.fs()).expect("a directory"));
        let file = found(fs, "f");
        let refused = fs.check_contents(&file).expect_err("a refusal");
        assert_eq!(refused.errno(), errno, "{refused}");
        let refused = fs.write_at(&file, 0, b"new", Privilege::Root).expect_err("a refusal");
        assert_eq!(refused.errno(), errno, "{refused}");
        drop(file);
        fs.unlink(&home, b"f").expect("removed");
        drop(home);
        mounted.close().expect("closed");
    }
}

/// If this machine can mount the image, checks that the kernel fails to open the file `name`, with
/// the error `errno`.
fn kernel_refuses(device: &RamDevice, name: &str, errno: i32) {
    let image = Image::empty();
    device.to_file(image.path()).expect("a copy");
    let Some(mount) = image.kernel_mount("noatime") else { return };
    let Some(dir) = home::of_kernel(mount.path()) else { return };
    let refused = std::fs::File::open(dir.join(name)).expect_err("a refusal");
    assert_eq!(refused.raw_os_error(), Some(errno), "the kernel: {refused}");
    mount.unmount();
}

/// Returns whether the checker finds nothing.
fn is_clean(device: Arc<dyn Device>) -> bool {
    let report = lanefs_check::check(device, &Options::default(), &|_| {}).expect("a superblock");
    matches!(report.verdict(), Verdict::Clean)
}

#[test]
fn the_checker_and_e2fsck_agree_on_damaged_contexts() {
    const CHANGES: [(&str, usize, u8); 8] = [
        ("version", 0, 3),
        ("version and length", 0, 1),
        ("mode", 1, 77),
        ("flags", 3, 0x80),
        ("data unit", 4, 9),
        ("reserved", 6, 1),
        ("key", 10, 7),
        ("nonce", 30, 7),
    ];
    let Some((image, inos)) = sample() else { return };
    let scratch = Image::empty();
    let agrees = |device: Arc<RamDevice>, what: &str| {
        device.to_file(scratch.path()).expect("a copy");
        let theirs = scratch.check();
        assert_eq!(is_clean(device.clone()), theirs.status == 0, "{what}: {}", theirs.text);
        let plan = plan(device.clone(), Shared::Clone).expect("a superblock");
        for (block, bytes) in plan.repair().expect("readable") {
            device.write_at(block.0 << plan.block_size().bits(), &bytes).expect("inside");
        }
        device.to_file(scratch.path()).expect("a copy");
        scratch.assert_clean(&format!("{what}, repaired"));
    };
    // The pipe is left out, because it has no context.
    for ino in &inos[..4] {
        for (what, at, byte) in CHANGES {
            let device = damaged(&image, *ino, |context| context[at] = byte);
            agrees(device, &format!("inode {ino}, {what}"));
        }
    }
    for ino in inos {
        let device = RamDevice::from_file(image.path()).expect("the image is read");
        let at = image.inode_at(&format!("<{ino}>"), 4096) + 0x21;
        let mut flags = [0];
        device.read_at(at, &mut flags).expect("inside");
        device.write_at(at, &[flags[0] ^ 8]).expect("inside");
        agrees(Arc::new(device), &format!("inode {ino}, the flag"));
    }
}

#[test]
fn the_checker_and_e2fsck_agree_on_changes_of_these_images() {
    let corpus = Corpus::make(Extent::Encrypted);
    let tally = changes::check(&corpus, 1, 60);
    println!("{}", tally.unwrap_or_else(|why| panic!("{why}")));
    let repairs = changes::repair(&corpus, 1, 30);
    println!("{}", repairs.unwrap_or_else(|why| panic!("{why}")));
}
