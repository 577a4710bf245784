//! Runs mke2fs and `lanefs mkfs` with the same options. The two images must have the same bytes,
//! and dumpe2fs must show the same for both.

use crate::mounting;

use crate::mounting::{LANEFS, assert_clean, run, scratch, try_run};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

const CONFIG: &str = include_str!("../../../ondisk/testdata/mke2fs.conf");
const TIME: &str = "1700000000";
const IDENTITY: [&str; 2] = ["-U", "11111111-2222-3333-4444-555566667777"];
const SEED: &str = "hash_seed=5a5a5a5a-1111-2222-3333-444455556666";

/// For each case: the size of the image file, and the arguments. If the file system is to be
/// smaller than the file, the arguments end with a colon and the size of the file system.
const CASES: [(&str, &str); 66] = [
    ("64M", "-t ext2"),
    ("64M", "-t ext3"),
    ("64M", "-t ext2 -j"),
    ("600M", "-t ext3 -J size=40"),
    ("600M", "-t ext3 -b 1024 -J size=200"),
    ("64M", "-t ext3 -b 2048 -I 128 -N 3000"),
    ("64M", "-t ext2 -O ^resize_inode,^sparse_super"),
    ("3M", "-t ext2"),
    ("64M", "-t ext4 -O none,has_journal,extent"),
    ("64M", "-t ext4 -O ^extent,^64bit"),
    ("64M", "-t ext4 -O ^metadata_csum,uninit_bg"),
    ("64M", "-t ext4 -O ^sparse_super,^resize_inode"),
    ("64M", "-t ext4 -O meta_bg,^resize_inode"),
    ("64M", "-t ext4 -O sparse_super2"),
    ("600M", "-t ext4 -O sparse_super2,^flex_bg"),
    ("8M", "-t ext4 -O sparse_super2"),
    ("64M", "-t ext4 -O stable_inodes,^dir_index,^ext_attr,^large_file,^huge_file"),
    ("64M", "-t ext4 -O ^filetype,^dir_nlink,^extra_isize"),
    ("64M", "-t ext4 -O ^has_journal"),
    ("64M", "-t ext4 -O uninit_bg"),
    ("64M", "-t ext4 -T news"),
    ("64M", "-t ext4 -T largefile"),
    ("600M", "-t ext4 -T largefile4"),
    ("600M", "-t ext4 -T small"),
    ("64M", "-t ext4 -T default"),
    ("64M", "-t ext4 -T floppy"),
    ("64M", "-t ext4 -T big"),
    ("64M", "-t ext4 -T huge"),
    ("64M", "-t ext4 -g 4096 -G 4"),
    ("600M", "-t ext4 -g 8192 -b 4096 -G 64"),
    ("600M", "-t ext4 -G 1"),
    ("64M", "-t ext4 -E resize=10000000"),
    ("600M", "-t ext4 -b 4096 -E resize=200000"),
    ("600M", "-t ext4 -E packed_meta_blocks=1"),
    ("256M", "-t ext4 -b 1024 -E packed_meta_blocks"),
    ("64M", "-t ext4 -b 4096 -E packed_meta_blocks"),
    ("64M", "-t ext4 -E stride=16,stripe_width=48,root_owner=7:8,lazy_itable_init=0,test_fs"),
    ("64M", "-t ext4 -E lazy_journal_init=1,nodiscard -e remount-ro -M /srv/data -r 1"),
    ("64M", "-t ext4 -L scratch -m 0.7 -i 8192 -e panic"),
    ("64M", "-t ext4 -I 512 -N 4000 -J size=8"),
    ("64M", "-t ext4 :30000"),
    ("64M", "-t ext4 -b 2048 :30000"),
    ("64M", "-t ext4 :100000s"),
    ("64M", "-t ext4 -E offset=1048576 :60M"),
    ("64M", "-t ext4 -O casefold"),
    ("64M", "-t ext4 -O encrypt"),
    ("64M", "-t ext4 -O encrypt,casefold,^metadata_csum"),
    ("64M", "-t ext4 -E encoding=utf8,encoding_flags=strict"),
    ("64M", "-t ext4 -O bigalloc"),
    ("600M", "-t ext4 -O bigalloc"),
    ("64M", "-t ext4 -b 4096 -O bigalloc -C 16384"),
    ("67000000", "-t ext4 -b 1024 -O bigalloc -C 4096 -N 10000 -J size=8"),
    ("2G", "-t ext4 -b 1024 -O bigalloc -C 4096"),
    ("600M", "-t ext4 -b 1024 -O bigalloc -C 65536"),
    ("64M", "-t ext4 -b 2048 -O bigalloc,^flex_bg -C 4096 -g 8192"),
    ("64M", "-t ext4 -b 4096 -O bigalloc,^metadata_csum,uninit_bg,^64bit -C 65536"),
    ("64M", "-t ext4 -b 1024 -O bigalloc,meta_bg,^resize_inode,^has_journal -C 16384"),
    ("20G", "-t ext4 -O bigalloc -C 1048576"),
    ("2M", "-t ext4 -O fast_commit"),
    ("8M", "-t ext4 -O fast_commit"),
    ("64M", "-t ext4 -O fast_commit -J size=8,fast_commit_size=1024"),
    ("64M", "-t ext4 -b 4096 -O fast_commit -J fast_commit_size=5"),
    ("64M", "-t ext4 -O fast_commit -J size=5,fast_commit_size=0"),
    ("64M", "-t ext3 -O fast_commit"),
    ("64M", "-t ext4 -O fast_commit,^has_journal"),
    ("64M", "-t ext4 -b 4096 -O fast_commit,bigalloc"),
];

/// Runs a program on a new sparse file, checks the image, and returns what dumpe2fs shows of it.
fn make(dir: &Path, program: &str, size: &str, arguments: &str, image: &Path) -> String {
    let _ = std::fs::remove_file(image);
    run(Command::new("truncate").args(["-s", size]).arg(image));
    let (arguments, operand) = arguments.split_once(" :").unwrap_or((arguments, ""));
    let mut words: Vec<String> = arguments.split_whitespace().map(String::from).collect();
    // If -E is given several times, mke2fs obeys the last one only. Without nodiscard, mke2fs marks
    // the inode tables as zeroed if the image is a regular file.
    match words.iter().position(|word| word == "-E") {
        Some(at) => words[at + 1] += &format!(",nodiscard,{SEED}"),
        None => words.extend(["-E".into(), format!("nodiscard,{SEED}")]),
    }
    let mut command = Command::new(program);
    if program == LANEFS {
        command.arg("mkfs");
    }
    command
        .env("MKE2FS_CONFIG", dir.join("mke2fs.conf"))
        .envs([("E2FSPROGS_FAKE_TIME", TIME), ("SOURCE_DATE_EPOCH", TIME)])
        .args(["-q", "-F"])
        .args(IDENTITY)
        .args(&words)
        .arg(image)
        .args(Some(operand).filter(|operand| !operand.is_empty()));
    run(&mut command);
    if arguments.contains("offset=1048576") {
        let bytes = std::fs::read(image).unwrap();
        std::fs::write(image, &bytes[1 << 20..]).unwrap();
    }
    assert_clean(image);
    let dump = run(Command::new("dumpe2fs").arg(image));
    let kept =
        |line: &&str| !line.starts_with("Lifetime writes:") && !line.starts_with("Checksum:");
    dump.lines().filter(kept).collect::<Vec<_>>().join("\n")
}

/// Returns the first byte that differs. The superblocks may differ in how many KiB were written to
/// the file system, and so in their checksums.
fn first_difference(theirs: &Path, ours: &Path) -> Option<String> {
    let found = Command::new("cmp").arg("-l").args([theirs, ours]).output().unwrap();
    let found = String::from_utf8(found.stdout).unwrap();
    let image = std::fs::File::open(ours).unwrap();
    let allowed = |line: &&str| {
        let number = line.split_whitespace().next().unwrap();
        let at = number.parse::<u64>().unwrap() - 1;
        let mut magic = [0; 2];
        image.read_exact_at(&mut magic, at / 1024 * 1024 + 0x38).unwrap();
        let within = at % 1024;
        magic == [0x53, 0xef] && ((0x178..0x180).contains(&within) || within >= 0x3fc)
    };
    found.lines().find(|line| !allowed(line)).map(String::from)
}

#[test]
fn the_options_of_mke2fs_make_what_mke2fs_makes() {
    let dir = scratch();
    std::fs::write(dir.path().join("mke2fs.conf"), CONFIG).unwrap();
    let mut wrong = Vec::new();
    for (size, arguments) in CASES {
        let [theirs, ours] = ["theirs", "ours"].map(|name| dir.path().join(name));
        let their_dump = make(dir.path(), "mke2fs", size, arguments, &theirs);
        let our_dump = make(dir.path(), LANEFS, size, arguments, &ours);
        let mut lines = their_dump.lines().zip(our_dump.lines());
        if let Some(line) = lines.find(|(theirs, ours)| theirs != ours) {
            wrong.push(format!("{size} {arguments}: {line:?}"));
        } else if let Some(line) = first_difference(&theirs, &ours) {
            wrong.push(format!("{size} {arguments}: {line}"));
        }
    }
    assert!(wrong.is_empty(), "theirs and ours differ:\n{}", wrong.join("\n"));
}

#[test]
fn an_option_that_cannot_be_obeyed_is_refused_by_name_before_anything_is_written() {
    let dir = scratch();
    let image = dir.path().join("disk.img");
    for (arguments, told) in [
        ("-O quota,verity", "quota: Lanefs does not make"),
        ("-O bigalloc,^extent,^64bit", "bigalloc needs extent"),
        ("-O bigalloc -C 1024 -b 4096", "cluster size out of range"),
        ("-O ^extent", "64bit needs extent"),
        ("-O ^sparse_super", "resize_inode needs sparse_super"),
        ("-O meta_bg", "resize_inode and meta_bg exclude each other"),
        ("-O nonsense", "-O: no feature 'nonsense'"),
        ("-E nonsense", "-E nonsense: not a word that mke2fs or Lanefs knows"),
        ("-E quotatype=usrquota", "-E quotatype=usrquota: Lanefs does not make quota files"),
        ("-E encoding=ascii", "the only encoding is utf8-12.1"),
        (
            "-O casefold -E encoding_flags=loose",
            "encoding_flags=loose: neither strict nor nostrict",
        ),
        ("-E encoding_flags=strict", "strict names need casefold"),
        ("-E packed_meta_blocks -O ^flex_bg", "packed metadata (without flex_bg) out of range"),
        ("-E resize=50", "growing to 50 blocks cannot be prepared"),
        ("-C 65536", "a cluster size needs bigalloc"),
        ("-J fast_commit_size=64", "fast_commit_size needs fast_commit"),
        ("-O fast_commit -J size=32", "a journal of 32832 blocks is too short, or too large"),
        ("-g 100", "blocks per group out of range"),
        ("-G 3", "groups per flexible group out of range"),
        ("-b 131072", "block size out of range"),
    ] {
        let arguments = arguments.split_whitespace();
        let mut command = Command::new(LANEFS);
        let (status, said) = try_run(command.arg("mkfs").args(arguments).arg(&image).arg("64M"));
        assert_eq!(status.code(), Some(1), "{said}");
        assert!(said.contains(told), "{told}: {said}");
        assert!(!image.exists());
    }
    // If an option is refused, the image keeps its old contents, even if it was to be filled
    // (`-d`).
    std::fs::write(&image, [7; 4096]).unwrap();
    for wrong in ["-Ononsense", "-Obigalloc", "-Eoffset=x", "-g100"] {
        for size in ["64M", "auto"] {
            let mut command = Command::new(LANEFS);
            command.args(["mkfs", "-F", wrong, "--size", size, "-d"]).arg(dir.path()).arg(&image);
            assert_eq!(try_run(&mut command).0.code(), Some(1), "{wrong}");
            assert!(std::fs::read(&image).unwrap() == [7; 4096], "{wrong} {size}");
        }
    }
    std::fs::remove_file(&image).unwrap();
    for arguments in
        ["-t ext5", "-T nonsense", "-J location=7", "-J device=", "-J device=j,size=4", "-r 0"]
    {
        let arguments = arguments.split_whitespace();
        let mut command = Command::new(LANEFS);
        let (status, said) = try_run(command.arg("mkfs").args(arguments).arg(&image).arg("64M"));
        assert_eq!(status.code(), Some(2), "{said}");
    }
}

#[test]
fn a_dry_run_shows_the_plan_and_writes_nothing() {
    let dir = scratch();
    let image = dir.path().join("disk.img");
    let path = image.to_str().unwrap();
    let mkfs = |more: &[&str]| run(Command::new(LANEFS).arg("mkfs").args(more).arg(path));
    let would = mkfs(&["-n", "--json", "--size", "64M", "-U", IDENTITY[1]]);
    assert!(!image.exists());
    assert_eq!(mkfs(&["--json", "--size", "64M", "-U", IDENTITY[1]]), would);
    let before = std::fs::read(&image).unwrap();
    let said = mkfs(&["-n", "-v", "-F", "-t", "ext2", "-b", "4096", "--size", "32M"]);
    assert!(said.contains("8192 blocks of 4096 bytes, 1 group, "), "{said}");
    assert!(said.contains("features: ext_attr resize_inode dir_index filetype "), "{said}");
    assert!(std::fs::read(&image).unwrap() == before);
}

#[test]
fn the_hint_at_the_owner_of_the_root_is_left_out_if_the_owner_is_given() {
    if !mounting::can_mount() {
        return;
    }
    let dir = scratch();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    let says = |name: &str, more: &[&str]| {
        let image = dir.path().join(name);
        let mut mkfs = mounting::as_nobody(LANEFS);
        let (status, said) = try_run(mkfs.arg("mkfs").args(more).arg(&image).arg("16M"));
        assert!(status.success(), "{said}");
        said.contains("belongs to 0:0")
    };
    assert!(says("a.img", &[]));
    assert!(!says("b.img", &["--root-owner", "65534:65534"]));
    assert!(!says("c.img", &["-E", "root_owner=65534:65534"]));
    assert!(!says("d.img", &["-E", "root_owner"]));
}
