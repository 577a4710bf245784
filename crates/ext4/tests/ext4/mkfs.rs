//! Compares new file systems with those of mke2fs, byte for byte.

use lanefs_device::{Access, Device, FileDevice, OpenOptions, RamDevice};
use lanefs_mkfs::resize::{SizeError, resized};
use lanefs_mkfs::{
    Contents, InodeCount, InodeTables, JournalSize, Kind, MkfsError, MkfsOptions,
    existing_signature, mkfs,
};
use lanefs_ondisk::BadSize;
use lanefs_ondisk::BlockSize;
use lanefs_ondisk::features::{Compat, Features, Incompat, RoCompat};
use lanefs_ondisk::superblock::Superblock;
use rustix::fs::SeekFrom;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The part of mke2fs 1.47's configuration that concerns ext4.
const CONFIG: &str = include_str!("../../../ondisk/testdata/mke2fs.conf");

const TIME: u64 = 1_700_000_000;
const UUID: [u8; 16] = *b"\x11\x11\x11\x11\x22\x22\x33\x33\x44\x44\x55\x55\x66\x66\x77\x77";
const HASH_SEED: [u8; 16] = *b"\x5a\x5a\x5a\x5a\x11\x11\x22\x22\x33\x33\x44\x44\x55\x55\x66\x66";

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const TIB: u64 = 1 << 40;

struct Workshop {
    folder: tempfile::TempDir,
}

impl Workshop {
    /// The folder is in memory if possible, because sparse files may have 16 TiB there.
    fn new() -> Workshop {
        let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
        let folder = folder.expect("a folder");
        fs::write(folder.path().join("mke2fs.conf"), CONFIG).expect("the configuration");
        Workshop { folder }
    }

    fn sparse(&self, name: &str, size: u64) -> PathBuf {
        let path = self.folder.path().join(name);
        // Makes a new file, since a child process of another test may still hold the lock of the
        // old file for a moment.
        let _ = fs::remove_file(&path);
        let file = File::create(&path).expect("an image");
        file.set_len(size).expect("its length");
        path
    }

    /// Runs mke2fs. Returns `None` and prints the reason if mke2fs is missing.
    fn theirs(&self, size: u64, arguments: &str) -> Option<PathBuf> {
        let path = self.sparse("theirs", size);
        let uuid = uuid_text(&UUID);
        let seed = format!("hash_seed={}", uuid_text(&HASH_SEED));
        // If -E is given several times, only the last one counts.
        let arguments = if arguments.contains("-E ") {
            arguments.replace("-E ", &format!("-E {seed},"))
        } else {
            format!("{arguments} -E {seed}")
        };
        let output = Command::new("mke2fs")
            .env("MKE2FS_CONFIG", self.folder.path().join("mke2fs.conf"))
            .env("E2FSPROGS_FAKE_TIME", TIME.to_string())
            .args(["-q", "-F", "-t", "ext4", "-U", &uuid])
            .args(arguments.split_whitespace())
            .arg(&path)
            .output();
        match output {
            Ok(output) => {
                assert!(output.status.success(), "mke2fs {arguments}: {output:?}");
                Some(path)
            }
            Err(error) => {
                println!("skipped: mke2fs does not run here: {error}");
                None
            }
        }
    }

    fn ours(&self, size: u64, options: &MkfsOptions) -> PathBuf {
        let path = self.sparse("ours", size);
        let device =
            FileDevice::open(&path, Access::ReadWrite, OpenOptions::default()).expect("the image");
        mkfs(&device, options).expect("mkfs");
        path
    }
}

fn uuid_text(uuid: &[u8; 16]) -> String {
    let hex: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

fn fixed() -> MkfsOptions {
    MkfsOptions {
        uuid: Some(UUID),
        hash_seed: Some(HASH_SEED),
        time: Some(TIME),
        contents: Contents::Zeros,
        ..MkfsOptions::default()
    }
}

fn blocks_of(bytes: u32) -> Option<BlockSize> {
    BlockSize::new(bytes)
}

/// Returns the default features except the given ones.
fn without(compat: Compat, incompat: Incompat, ro_compat: RoCompat) -> Features {
    let mut features = Kind::Ext4.features();
    features.compat -= compat;
    features.incompat -= incompat;
    features.ro_compat -= ro_compat;
    features
}

/// Returns cases: a size, arguments of mke2fs, and the equivalent options of Lanefs.
fn cases() -> Vec<(u64, &'static str, MkfsOptions)> {
    let (compat, incompat, ro_compat) = (Compat::empty(), Incompat::empty(), RoCompat::empty());
    let of = |change: fn(&mut MkfsOptions)| {
        let mut options = fixed();
        change(&mut options);
        options
    };
    let leaving = |features: Features| MkfsOptions { features, ..fixed() };
    vec![
        (MIB, "", fixed()),
        (1023 * KIB, "", fixed()),
        (2 * MIB, "", fixed()),
        (3 * MIB, "", fixed()),
        (8 * MIB, "", fixed()),
        (8196 * KIB, "", fixed()),
        (8250 * KIB, "", fixed()),
        (8400 * KIB, "", fixed()),
        (8800 * KIB, "", fixed()),
        (16 * MIB, "", fixed()),
        (64 * MIB, "", fixed()),
        (129 * MIB, "", fixed()),
        (137 * MIB, "", fixed()),
        (140 * MIB, "", fixed()),
        (145 * MIB, "", fixed()),
        (511 * MIB, "", fixed()),
        (512 * MIB, "", fixed()),
        (600 * MIB, "", fixed()),
        (GIB, "", fixed()),
        (3 * GIB + 5 * MIB, "", fixed()),
        (8 * GIB, "", fixed()),
        (64 * MIB, "-b 4096", of(|o| o.block_size = blocks_of(4096))),
        (5 * MIB, "-b 4096", of(|o| o.block_size = blocks_of(4096))),
        (20 * MIB, "-b 4096", of(|o| o.block_size = blocks_of(4096))),
        (64 * MIB, "-b 8192", of(|o| o.block_size = blocks_of(8192))),
        (5 * GIB, "-b 8192", of(|o| o.block_size = blocks_of(8192))),
        (2 * GIB, "-b 16384", of(|o| o.block_size = blocks_of(16384))),
        (3 * GIB, "-b 32768", of(|o| o.block_size = blocks_of(32768))),
        (64 * MIB, "-b 65536", of(|o| o.block_size = blocks_of(65536))),
        (20 * GIB, "-b 65536", of(|o| o.block_size = blocks_of(65536))),
        (TIB, "-b 65536", of(|o| o.block_size = blocks_of(65536))),
        (
            20 * GIB,
            "-b 65536 -N 2000000",
            of(|o| {
                o.block_size = blocks_of(65536);
                o.inodes = InodeCount::Count(2_000_000);
            }),
        ),
        (
            700 * MIB,
            "-b 65536 -g 2048 -I 1024",
            of(|o| {
                o.block_size = blocks_of(65536);
                o.blocks_per_group = Some(2048);
                o.inode_size = 1024;
            }),
        ),
        (100 * MIB, "-b 2048", of(|o| o.block_size = blocks_of(2048))),
        (2 * GIB, "-b 1024", of(|o| o.block_size = blocks_of(1024))),
        (64 * MIB, "-O ^metadata_csum_seed,^orphan_file", leaving(MkfsOptions::debian_12())),
        (
            64 * MIB,
            "-O ^metadata_csum",
            leaving(without(compat, incompat, RoCompat::METADATA_CSUM)),
        ),
        (
            64 * MIB,
            "-O ^metadata_csum,^64bit",
            leaving(without(compat, Incompat::BIT64, RoCompat::METADATA_CSUM)),
        ),
        (64 * MIB, "-O ^64bit", leaving(without(compat, Incompat::BIT64, ro_compat))),
        (600 * MIB, "-O ^flex_bg", leaving(without(compat, Incompat::FLEX_BG, ro_compat))),
        (
            64 * MIB,
            "-O ^resize_inode,^flex_bg",
            leaving(without(Compat::RESIZE_INODE, Incompat::FLEX_BG, ro_compat)),
        ),
        (64 * MIB, "-O ^has_journal", of(|o| o.journal = JournalSize::None)),
        (64 * MIB, "-J size=8", of(|o| o.journal = JournalSize::Blocks(8192))),
        (64 * MIB, "-I 128", of(|o| o.inode_size = 128)),
        (64 * MIB, "-I 512", of(|o| o.inode_size = 512)),
        (64 * MIB, "-i 1024", of(|o| o.inodes = InodeCount::PerBytes(1024))),
        (64 * MIB, "-N 100000", of(|o| o.inodes = InodeCount::Count(100_000))),
        (
            64 * MIB,
            "-N 80000 -I 128",
            of(|o| (o.inodes, o.inode_size) = (InodeCount::Count(80_000), 128)),
        ),
        (64 * MIB, "-N 5000", of(|o| o.inodes = InodeCount::Count(5000))),
        (
            64 * MIB,
            "-m 0.7 -L scratch",
            of(|o| {
                o.reserved_percent = 0.7;
                o.label = b"scratch".to_vec();
            }),
        ),
        (
            600 * MIB,
            "-E stride=16,stripe_width=48,root_owner=7:8",
            of(|o| {
                (o.stride, o.stripe_width, o.root_owner) = (16, 48, (7, 8));
            }),
        ),
        (
            40 * MIB,
            "-E nodiscard,lazy_itable_init=0",
            of(|o| {
                o.inode_tables = InodeTables::Zeroed;
                o.contents = Contents::Unknown;
            }),
        ),
        (40 * MIB, "-E nodiscard,lazy_itable_init=1", of(|o| o.contents = Contents::Unknown)),
    ]
}

/// Returns the cases with file systems so large that comparing them takes a long time.
fn large_cases() -> Vec<(u64, &'static str, MkfsOptions)> {
    let small_blocks = MkfsOptions { block_size: blocks_of(1024), ..fixed() };
    vec![
        (100 * GIB, "", fixed()),
        (TIB, "", fixed()),
        (4 * TIB, "", fixed()),
        (15 * TIB, "", fixed()),
        (16 * TIB, "", fixed()),
        (400 * GIB, "-b 1024", small_blocks.clone()),
        (900 * GIB, "-b 1024", small_blocks),
    ]
}

/// Returns the first differing bytes, each with its offset, its value in `theirs` and its value in
/// `ours`. Stops when at least 20 bytes are found. Ignores two fields of superblocks: the count of
/// written KiB, and the checksum. Does not read ranges in which both files have holes.
fn differences(theirs: &Path, ours: &Path) -> Vec<(u64, u8, u8)> {
    const CHUNK: usize = 4096;
    let (theirs, ours) = (File::open(theirs).expect("theirs"), File::open(ours).expect("ours"));
    let len = theirs.metadata().expect("length").len();
    assert_eq!(len, ours.metadata().expect("length").len());
    let next_data =
        |file: &File, at: u64| rustix::fs::seek(file, SeekFrom::Data(at)).ok().unwrap_or(len);
    let read = |file: &File, at: u64| {
        let mut bytes = vec![0; CHUNK.min((len - at) as usize)];
        file.read_exact_at(&mut bytes, at).expect("the image");
        for superblock in bytes.chunks_exact_mut(1024).filter(|b| b[0x38..0x3a] == [0x53, 0xef]) {
            superblock[0x178..0x180].fill(0);
            superblock[0x3fc..].fill(0);
        }
        bytes
    };
    let mut different = Vec::new();
    let mut at = 0;
    loop {
        let data = next_data(&theirs, at).min(next_data(&ours, at));
        if data >= len || different.len() >= 20 {
            return different;
        }
        at = data / CHUNK as u64 * CHUNK as u64;
        let (left, right) = (read(&theirs, at), read(&ours, at));
        if left != right {
            let bytes = (at..).zip(left.into_iter().zip(right));
            let unequal = bytes.filter(|(_, (left, right))| left != right);
            different.extend(unequal.map(|(at, (left, right))| (at, left, right)).take(20));
        }
        at += CHUNK as u64;
    }
}

fn output_of(program: &str, arguments: &[&str], image: &Path) -> Output {
    Command::new(program).args(arguments).arg(image).output().expect("e2fsprogs")
}

/// Returns the output of dumpe2fs without the fields that may differ: the count of written KiB, and
/// the checksum that covers this count.
fn dump(image: &Path) -> String {
    let output = output_of("dumpe2fs", &[], image);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let by_right =
        |line: &&str| !line.starts_with("Lifetime writes:") && !line.starts_with("Checksum:  ");
    text.lines().filter(by_right).collect::<Vec<_>>().join("\n")
}

fn compare(size: u64, arguments: &str, options: &MkfsOptions) -> bool {
    let workshop = Workshop::new();
    let ours = workshop.ours(size, options);
    let Some(theirs) = workshop.theirs(size, arguments) else { return false };
    // For larger sizes e2fsck and dumpe2fs would take seconds each, and comparing the bytes is
    // sufficient.
    if size < 10 * GIB {
        let checked = output_of("e2fsck", &["-fn"], &ours);
        assert!(checked.status.success(), "{size} {arguments}: {checked:?}");
        let (theirs, ours) = (dump(&theirs), dump(&ours));
        let first = theirs.lines().zip(ours.lines()).find(|(theirs, ours)| theirs != ours);
        assert_eq!(first, None, "{size} {arguments}: theirs, ours");
        assert_eq!(theirs, ours);
    }
    let different = differences(&theirs, &ours);
    assert!(different.is_empty(), "{size} {arguments}: bytes differ at {different:x?}");
    true
}

#[test]
fn file_systems_equal_those_of_mke2fs() {
    for (size, arguments, options) in cases() {
        if !compare(size, arguments, &options) {
            return;
        }
    }
}

#[test]
fn the_block_of_mmp_is_where_mke2fs_puts_it() {
    for (arguments, interval) in
        [("-O mmp", 5), ("-O mmp,^resize_inode -E mmp_update_interval=20", 20)]
    {
        let workshop = Workshop::new();
        let mut features = Kind::Ext4.features();
        features.incompat |= Incompat::MMP;
        features.compat.set(Compat::RESIZE_INODE, !arguments.contains("^resize_inode"));
        let ours = workshop
            .ours(64 * MIB, &MkfsOptions { features, mmp_update_interval: interval, ..fixed() });
        let Some(theirs) = workshop.theirs(64 * MIB, arguments) else { return };
        let checked = output_of("e2fsck", &["-fn"], &ours);
        assert!(checked.status.success(), "{arguments}: {checked:?}");
        let dumped =
            String::from_utf8_lossy(&output_of("dumpe2fs", &["-h"], &theirs).stdout).into_owned();
        let block = dumped.lines().find_map(|line| line.strip_prefix("MMP block number:"));
        let block: u64 = block.expect("the block").trim().parse().expect("a number");
        let (mut names, mut intervals) = (Vec::new(), Vec::new());
        for path in [&theirs, &ours] {
            let image = File::options().read(true).write(true).open(path).expect("the image");
            let mut bytes = [0; 1024];
            image.read_exact_at(&mut bytes, block * 1024).expect("the block");
            intervals.push(bytes[112]);
            names.push(bytes[..8].to_vec());
            // The host name, the device name, the time and the checksum in the MMP block differ
            // between the two images, so the block is set to zero in both.
            image.write_all_at(&[0; 1024], block * 1024).expect("the block");
        }
        assert_eq!((&names[0], intervals[0]), (&names[1], intervals[1]), "{arguments}");
        let different = differences(&theirs, &ours);
        assert!(different.is_empty(), "{arguments}: bytes differ at {different:x?}");
    }
}

#[test]
fn large_file_systems_equal_those_of_mke2fs() {
    for (size, arguments, options) in large_cases() {
        if !compare(size, arguments, &options) {
            return;
        }
    }
}

fn write_to_file(workshop: &Workshop, device: &RamDevice) -> PathBuf {
    let path = workshop.folder.path().join("ram");
    device.to_file(&path).expect("the image");
    path
}

#[test]
fn former_contents_of_the_device_do_not_show() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    for (inode_tables, features) in [
        (InodeTables::Lazy, Kind::Ext4.features()),
        (InodeTables::Zeroed, Kind::Ext4.features()),
        (InodeTables::Lazy, without(Compat::empty(), Incompat::empty(), RoCompat::METADATA_CSUM)),
    ] {
        let device = RamDevice::create(24 * MIB).expect("memory");
        let rubbish: Vec<u8> = (0..MIB).map(|_| random.u8(..)).collect();
        for at in 0..24 {
            device.write_at(at * MIB, &rubbish).expect("rubbish");
        }
        mkfs(&device, &MkfsOptions { inode_tables, features, ..MkfsOptions::default() })
            .expect("mkfs");
        let workshop = Workshop::new();
        let path = write_to_file(&workshop, &device);
        let checked = output_of("e2fsck", &["-fn"], &path);
        assert!(checked.status.success(), "{checked:?}");
    }
}

#[test]
fn the_same_options_make_the_same_bytes() {
    let image = || {
        let device = RamDevice::create(24 * MIB).expect("memory");
        mkfs(&device, &fixed()).expect("mkfs");
        let mut bytes = vec![0; device.len() as usize];
        device.read_at(0, &mut bytes).expect("the image");
        bytes
    };
    assert!(image() == image());
}

#[test]
fn the_kernel_mounts_writes_and_leaves_it_clean() {
    let workshop = Workshop::new();
    for (size, options) in [
        (2 * MIB, MkfsOptions::default()),
        (64 * MIB, MkfsOptions::default()),
        (64 * MIB, MkfsOptions { features: MkfsOptions::debian_12(), ..MkfsOptions::default() }),
        (600 * MIB, MkfsOptions { inode_size: 128, ..MkfsOptions::default() }),
    ] {
        let path = workshop.ours(size, &options);
        let mountpoint = workshop.folder.path().join("mounted");
        fs::create_dir_all(&mountpoint).expect("the mount point");
        let mounted = Command::new("mount")
            .args(["-t", "ext4", "-o", "loop"])
            .args([&path, &mountpoint])
            .output()
            .expect("mount");
        if !mounted.status.success() {
            println!("skipped: the kernel does not mount here: {mounted:?}");
            return;
        }
        let written = (0..50).try_for_each(|n| {
            fs::create_dir(mountpoint.join(format!("folder {n}")))?;
            fs::write(mountpoint.join(format!("folder {n}/file")), vec![1; 3000])
        });
        let unmounted = Command::new("umount").arg(&mountpoint).status().expect("umount");
        assert!(unmounted.success());
        written.expect("files");
        let checked = output_of("e2fsck", &["-fn"], &path);
        assert!(checked.status.success(), "{checked:?}");
    }
}

#[test]
fn a_file_system_can_be_smaller_than_its_device() {
    let device = RamDevice::create(24 * MIB).expect("memory");
    let options = MkfsOptions { size: Some(8 * MIB), ..fixed() };
    let report = mkfs(&device, &options).expect("mkfs");
    assert_eq!((report.blocks, report.groups, report.inodes), (8192, 1, 2048));
    let options = MkfsOptions { size: Some(25 * MIB), ..fixed() };
    let error = mkfs(&device, &options).unwrap_err();
    assert!(matches!(error, MkfsError::BeyondDevice { .. }));
}

#[test]
fn impossible_file_systems_are_refused_before_the_first_write() {
    let device = RamDevice::create(MIB).expect("memory");
    let refused = |options: MkfsOptions| mkfs(&device, &options).unwrap_err();
    for options in [
        MkfsOptions { label: vec![b'x'; 17], ..fixed() },
        MkfsOptions { reserved_percent: f64::NAN, ..fixed() },
        MkfsOptions { reserved_percent: 51.0, ..fixed() },
        MkfsOptions { inode_size: 64, ..fixed() },
        MkfsOptions { inode_size: 2048, ..fixed() },
        MkfsOptions { inodes: InodeCount::PerBytes(1023), ..fixed() },
        MkfsOptions { inodes: InodeCount::Count(0), ..fixed() },
    ] {
        assert!(matches!(refused(options), MkfsError::Option { .. }));
    }
    let (compat, ro_compat) = (Compat::empty(), RoCompat::empty());
    let features = without(compat, Incompat::EXTENTS, ro_compat);
    let error = refused(MkfsOptions { features, ..fixed() });
    assert!(matches!(error, MkfsError::FeatureRule { rule: "64bit needs extent" }));
    let mut features = Kind::Ext4.features();
    features.incompat |= Incompat::COMPRESSION;
    let error = refused(MkfsOptions { features, ..fixed() }).to_string();
    assert_eq!(error, "compression: Lanefs does not make file systems with this feature");
    for size in [0, 1024, 4096, 20 * KIB, 60 * KIB] {
        let error = refused(MkfsOptions { size: Some(size), ..fixed() });
        assert!(
            matches!(error, MkfsError::TooSmall { .. } | MkfsError::TooManyInodes { .. }),
            "{size}: {error:?}"
        );
    }
    let error = refused(MkfsOptions { inodes: InodeCount::Count(5000), ..fixed() });
    assert!(matches!(error, MkfsError::TooManyInodes { .. }));
    let error = refused(MkfsOptions { journal: JournalSize::Blocks(1023), ..fixed() });
    assert!(matches!(error, MkfsError::JournalSize { .. }));
    let mut bytes = vec![0; MIB as usize];
    device.read_at(0, &mut bytes).expect("the device");
    assert!(bytes.iter().all(|&byte| byte == 0));
}

/// Makes file systems of small and odd sizes, in which some structures must be smaller than usual.
/// Each size must either be refused, or lead to a clean file system.
#[test]
fn every_size_gives_a_clean_file_system_or_is_refused() {
    let seed = std::env::var("LANEFS_SEED")
        .map_or_else(|_| fastrand::u64(..), |s| s.parse().expect("a number"));
    println!("LANEFS_SEED={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let workshop = Workshop::new();
    let mut made = 0;
    for _ in 0..60 {
        let size = random.u64(1..40 * MIB);
        let options = MkfsOptions {
            size: Some(size),
            block_size: [None, blocks_of(1024), blocks_of(2048), blocks_of(4096)]
                [random.usize(..4)],
            inodes: match random.u32(..3) {
                0 => InodeCount::BySize,
                1 => InodeCount::PerBytes(random.u32(1024..100_000)),
                _ => InodeCount::Count(random.u32(1..60_000)),
            },
            inode_size: [128, 256, 512, 1024][random.usize(..4)],
            journal: match random.u32(..3) {
                0 => JournalSize::BySize,
                1 => JournalSize::None,
                _ => JournalSize::Blocks(random.u32(1024..9000)),
            },
            features: match random.u32(..5) {
                0 => without(Compat::empty(), Incompat::FLEX_BG, RoCompat::empty()),
                1 => Kind::Ext2.features(),
                2 => Kind::Ext3.features(),
                3 => {
                    let (compat, ro_compat) = (Compat::RESIZE_INODE, RoCompat::SPARSE_SUPER);
                    without(compat, Incompat::empty(), ro_compat)
                }
                _ => Kind::Ext4.features(),
            },
            blocks_per_group: random.bool().then(|| random.u32(32..1024) * 8),
            groups_per_flex: 1 << random.u32(..8),
            ..fixed()
        };
        let path = workshop.sparse("odd", 40 * MIB);
        let device =
            FileDevice::open(&path, Access::ReadWrite, OpenOptions::default()).expect("the image");
        if mkfs(&device, &options).is_err() {
            continue;
        }
        made += 1;
        let checked = output_of("e2fsck", &["-fn"], &path);
        assert!(checked.status.success(), "{options:?}: {checked:?}");
    }
    assert!(made > 5);
}

#[test]
fn contents_of_a_device_are_recognised_by_their_signatures() {
    let found = |at: u64, magic: &[u8]| {
        let device = RamDevice::create(MIB).expect("memory");
        device.write_at(at, magic).expect("the mark");
        existing_signature(&device).expect("readable")
    };
    assert_eq!(found(0, b""), None);
    assert_eq!(found(0, b"LUKS\xba\xbe"), Some("LUKS"));
    assert_eq!(found(0, b"XFSB"), Some("xfs"));
    assert_eq!(found(0x10040, b"_BHRfS_M"), Some("btrfs"));
    assert_eq!(found(4086, b"SWAPSPACE2"), Some("swap"));
    assert_eq!(found(0, b"hsqs"), Some("squashfs"));
    assert_eq!(found(0x52, b"FAT32   "), Some("vfat"));
    assert_eq!(found(512, b"EFI PART"), Some("GPT partition table"));
    assert_eq!(found(MIB - 512, b"EFI PART"), Some("GPT partition table"));
    let md = 0xa92b_4efc_u32.to_le_bytes();
    for at in [0, 4096, MIB - 65536, MIB - 8192] {
        assert_eq!(found(at, &md), Some("md superblock"));
    }
    let mut sector = [0; 512];
    sector[510..].copy_from_slice(b"\x55\xaa");
    assert_eq!(found(0, &sector), None);
    sector[450] = 0x83;
    assert_eq!(found(0, &sector), Some("MBR partition table"));
    let tiny = RamDevice::create(100).expect("memory");
    assert_eq!(existing_signature(&tiny).expect("readable"), None);
}

#[test]
fn ext2_ext3_and_ext4_are_distinguished() {
    let workshop = Workshop::new();
    for (kind, name) in [("ext2", "ext2"), ("ext3", "ext3"), ("ext4", "ext4")] {
        let path = workshop.sparse("family", 24 * MIB);
        let made = Command::new("mke2fs").args(["-q", "-F", "-t", kind]).arg(&path).status();
        if made.is_err() {
            println!("skipped: mke2fs does not run here");
            return;
        }
        let device =
            FileDevice::open(&path, Access::ReadOnly, OpenOptions::default()).expect("the image");
        assert_eq!(existing_signature(&device).expect("readable"), Some(name));
    }
    let swap = workshop.sparse("swap", MIB);
    if Command::new("mkswap").arg(&swap).output().is_ok_and(|output| output.status.success()) {
        let device =
            FileDevice::open(&swap, Access::ReadOnly, OpenOptions::default()).expect("the image");
        assert_eq!(existing_signature(&device).expect("readable"), Some("swap"));
    }
}

#[test]
fn signatures_of_former_contents_are_erased() {
    let device = RamDevice::create(24 * MIB).expect("memory");
    let end = device.len();
    let md = 0xa92b_4efc_u32.to_le_bytes();
    let marks: [(u64, &[u8]); 5] = [
        (0, b"LUKS\xba\xbe"),
        (0x10040, b"_BHRfS_M"),
        (end - 65536, &md),
        (end - 8192, &md),
        (end - 512, b"EFI PART"),
    ];
    for (at, magic) in marks {
        device.write_at(at, magic).expect("the mark");
    }
    mkfs(&device, &MkfsOptions::default()).expect("mkfs");
    assert_eq!(existing_signature(&device).expect("readable"), Some("ext4"));
    for (at, magic) in marks {
        let mut found = vec![0; magic.len()];
        device.read_at(at, &mut found).expect("the device");
        assert_ne!(found, magic, "at {at}");
    }
}

#[test]
fn no_resize_inode_reserves_blocks_beyond_its_reach() {
    let workshop = Workshop::new();
    let arguments = "-b 65536 -N 16 -O ^has_journal,resize_inode,64bit";
    let Some(image) = workshop.theirs(64 * MIB, arguments) else { return };
    let bytes = fs::read(image).unwrap();
    let mut raw = Superblock::decode(&bytes[1024..2048]).unwrap().raw().clone();
    raw.s_reserved_gdt_blocks.set(200);
    let superblock = Superblock::from_raw(raw).unwrap();
    // Of the groups after block 2^32, group 5^7 is the first with a backup.
    let per_group = u64::from(superblock.geometry().blocks_per_group());
    assert_eq!((1 << 32) / per_group, 65_544);
    resized(&superblock, 78_125 * per_group).unwrap();
    let refused = resized(&superblock, 78_126 * per_group);
    assert!(matches!(refused, Err(SizeError::Refused(BadSize::FarBackup))), "{refused:?}");
}
