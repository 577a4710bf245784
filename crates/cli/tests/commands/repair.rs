//! Tests of `lanefs repair`: exit codes, the plan, undo files, images without a log.

use crate::mounting::{Image, LANEFS, try_run};
use serde_json::Value;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

fn repair(arguments: &[&str]) -> (Option<i32>, String) {
    let (status, said) = try_run(Command::new(LANEFS).arg("repair").args(arguments));
    (status.code(), said)
}

fn tool(program: &str, arguments: &[&str]) -> (Option<i32>, String) {
    let (status, said) = try_run(Command::new(program).args(arguments));
    (status.code(), said)
}

/// Sets the free block count in the superblock to a wrong value, and does not update the checksum.
fn damage(path: &Path) {
    let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(&[1, 2], 1024 + 12).unwrap();
}

#[test]
fn a_damaged_image_is_repaired_once_and_is_clean_for_e2fsck() {
    let image = Image::new("32M");
    let path = image.path.to_str().unwrap();
    assert_eq!(repair(&[path]).0, Some(0));
    tool("debugfs", &["-w", "-R", "mkdir d", path]);
    tool("debugfs", &["-w", "-R", "unlink d", path]);
    let before = std::fs::read(&image.path).unwrap();
    let (status, said) = repair(&["-n", path]);
    assert_eq!(status, Some(4), "{said}");
    assert!(said.contains("connected to lost+found/#"), "{said}");
    assert!(std::fs::read(&image.path).unwrap() == before, "a dry run writes nothing");
    let (status, said) = repair(&["--json", path]);
    assert_eq!(status, Some(1), "{said}");
    let facts: Value = serde_json::from_str(&said).unwrap();
    assert!(facts["blocks"].as_u64().unwrap() > 0, "{said}");
    assert_eq!(facts["left"].as_array().unwrap().len(), 0, "{said}");
    let (status, said) = tool("e2fsck", &["-fn", path]);
    assert_eq!(status, Some(0), "{said}");
    let (status, said) = repair(&[path]);
    assert_eq!(status, Some(0), "{said}");
}

#[test]
fn an_undo_file_brings_the_old_image_back() {
    let image = Image::new("32M");
    let (path, undo) = (image.path.to_str().unwrap(), image.dir.path().join("undo"));
    let undo = undo.to_str().unwrap();
    damage(&image.path);
    let before = std::fs::read(&image.path).unwrap();
    let (status, said) = repair(&["--undo", undo, path]);
    assert_eq!(status, Some(1), "{said}");
    assert_eq!(tool("e2fsck", &["-fn", path]).0, Some(0));
    let (status, said) = repair(&["--undo-apply", undo, path]);
    assert_eq!(status, Some(0), "{said}");
    assert!(std::fs::read(&image.path).unwrap() == before, "all old blocks are back");
    // An undo file is never overwritten, except by the same bytes, and is refused if it is not
    // whole.
    assert_eq!(repair(&["--undo", undo, path]).0, Some(1));
    assert_eq!(repair(&["--undo-apply", undo, path]).0, Some(0));
    assert!(std::fs::read(&image.path).unwrap() == before);
    debugfs(path, &["mkdir d", "unlink d"]);
    let before = std::fs::read(&image.path).unwrap();
    let (status, said) = repair(&["--undo", undo, path]);
    assert_eq!(status, Some(8), "{said}");
    assert!(std::fs::read(&image.path).unwrap() == before);
    let file = std::fs::OpenOptions::new().write(true).open(undo).unwrap();
    file.set_len(file.metadata().unwrap().len() - 1).unwrap();
    let (status, said) = repair(&["--undo-apply", undo, path]);
    assert_eq!(status, Some(8), "{said}");
    assert!(said.contains("not a whole undo file"), "{said}");
}

#[test]
fn an_image_without_a_log_is_repaired_with_an_undo_file_beside_it() {
    let image = Image::new("32M");
    let path = image.path.to_str().unwrap();
    assert_eq!(tool("mke2fs", &["-q", "-F", "-t", "ext2", path]).0, Some(0));
    let file = std::fs::OpenOptions::new().write(true).open(&image.path).unwrap();
    // Changes the free block count in the first group descriptor. The descriptor lies in the second
    // block if blocks have 4 KiB, and in the third if they have 1 KiB. Both positions are written.
    file.write_all_at(&[7], 4096 + 12).unwrap();
    file.write_all_at(&[7], 2048 + 12).unwrap();
    let before = std::fs::read(&image.path).unwrap();
    let (first, second) = (format!("{path}.undo"), format!("{path}.undo-2"));
    std::fs::write(&first, "another file").unwrap();
    let (status, said) = repair(&[path]);
    assert_eq!(status, Some(1), "{said}");
    let told =
        format!("the old blocks are in {second}: lanefs repair --undo-apply {second} {path}");
    assert!(said.lines().any(|line| line == told), "{said}");
    assert_eq!(std::fs::read(&first).unwrap(), b"another file");
    assert_eq!(tool("e2fsck", &["-fn", path]).0, Some(0));
    let is_back = || std::fs::read(&image.path).unwrap() == before;
    // A closed standard output changes nothing.
    let line = format!("{LANEFS} repair --undo-apply {second} {path} >&-");
    let (status, said) = try_run(Command::new("sh").args(["-c", &line]));
    assert!(status.success() && said.is_empty() && is_back(), "{said}");
    // Without an undo file, or with one of this name.
    assert_eq!(repair(&["--quiet", "--no-undo", path]), (Some(1), String::new()));
    assert!(!Path::new(&format!("{path}.undo-3")).exists());
    assert_eq!(tool("e2fsck", &["-fn", path]).0, Some(0));
    assert!(repair(&["--undo-apply", &second, path]).0 == Some(0) && is_back());
    let undo = image.dir.path().join("undo");
    let (status, said) = repair(&["--quiet", "--undo", undo.to_str().unwrap(), path]);
    assert_eq!((status, said.as_str()), (Some(1), ""));
    assert_eq!(tool("e2fsck", &["-fn", path]).0, Some(0));
    assert_eq!(repair(&["--no-undo", "--undo", "a", path]).0, Some(2));
    // If no undo file can be made, nothing is written.
    assert!(repair(&["--undo-apply", &second, path]).0 == Some(0) && is_back());
    (2..100).for_each(|n| std::fs::write(format!("{path}.undo-{n}"), "x").unwrap());
    let (status, said) = repair(&[path]);
    assert_eq!(status, Some(8), "{said}");
    assert!(said.contains("give --undo FILE") && said.contains("--no-undo") && is_back(), "{said}");
}

/// An image whose repair is written in place, before and after the repair.
struct InPlace {
    image: Image,
    before: Vec<u8>,
    after: Vec<u8>,
    /// The offsets of the sectors that the repair changes.
    changed: Vec<usize>,
}

const SECTOR: usize = 512;

impl InPlace {
    fn new() -> InPlace {
        let image = Image::new("32M");
        let path = image.path.to_str().unwrap();
        assert_eq!(tool("mke2fs", &["-q", "-F", "-t", "ext2", "-b", "4096", path]).0, Some(0));
        let sif = "sif d/e mode 0";
        debugfs(path, &["mkdir d", "mkdir d/e", "mkdir f", sif, "unlink d", "unlink f"]);
        let before = std::fs::read(&image.path).unwrap();
        assert_eq!(repair(&["--quiet", "--no-undo", path]).0, Some(1));
        let after = std::fs::read(&image.path).unwrap();
        let sectors = before.chunks(SECTOR).zip(after.chunks(SECTOR)).enumerate();
        let changed: Vec<usize> =
            sectors.filter(|(_, (old, new))| old != new).map(|(n, _)| n * SECTOR).collect();
        assert!(changed.len() > 5, "{changed:?}");
        InPlace { image, before, after, changed }
    }

    fn path(&self) -> &str {
        self.image.path.to_str().unwrap()
    }

    /// Puts the state back in which only these sectors are written.
    fn interrupt(&self, written: &[usize]) {
        let mut now = self.before.clone();
        for at in written {
            now[*at..at + SECTOR].copy_from_slice(&self.after[*at..at + SECTOR]);
        }
        std::fs::write(&self.image.path, &now).unwrap();
    }

    fn assert_completed(&self, arguments: &[&str]) -> String {
        let (status, said) = repair(arguments);
        assert_eq!(status, Some(1), "{said}");
        assert!(said.contains("an interrupted repair is completed"), "{said}");
        assert!(std::fs::read(&self.image.path).unwrap() == self.after, "{said}");
        said
    }
}

#[test]
fn a_repair_in_place_that_was_interrupted_is_completed_by_its_undo_file() {
    let it = InPlace::new();
    let (path, undo) = (it.path(), format!("{}.undo", it.path()));
    it.interrupt(&[]);
    assert_eq!(repair(&[path]).0, Some(1));
    assert!(std::fs::read(path).unwrap() == it.after);
    let old = std::fs::read(&undo).unwrap();
    for written in 1..it.changed.len() {
        // In the order of the writes, and in another one, which a power cut may leave.
        let (first, last) = it.changed.split_at(written);
        for some in [first, last] {
            it.interrupt(some);
            let before = std::fs::read(path).unwrap();
            let (status, said) = repair(&["-n", path]);
            assert!(status == Some(4) && said.contains("is completed"), "{said}");
            assert!(std::fs::read(path).unwrap() == before, "a dry run writes nothing");
            let said = it.assert_completed(&[path]);
            assert!(said.contains(&format!("the old blocks are in {undo}:")), "{said}");
        }
    }
    // With other options, another path of the image, and a number after a gap.
    let some = &it.changed[..2];
    it.interrupt(some);
    it.assert_completed(&["--cut-shared", path]);
    it.interrupt(some);
    it.assert_completed(&["--undo", &format!("{path}.other"), path]);
    assert!(!Path::new(&format!("{path}.other")).exists());
    let link = it.image.dir.path().join("link");
    std::os::unix::fs::symlink(path, &link).unwrap();
    it.interrupt(some);
    it.assert_completed(&[link.to_str().unwrap()]);
    let (third, second) = (format!("{undo}-3"), format!("{undo}-2"));
    std::fs::rename(&undo, &third).unwrap();
    it.interrupt(some);
    it.assert_completed(&[path]);
    assert_eq!(repair(&[path]).0, Some(0), "it is clean");
    // An image that was changed since is repaired as it is.
    it.interrupt(some);
    debugfs(path, &["ssv mkfs_time 20200101000000"]);
    assert!(!repair(&["-n", path]).1.contains("is completed"));
    std::fs::write(path, &it.after).unwrap();
    debugfs(path, &["mkdir g", "unlink g"]);
    assert_eq!(repair(&["--quiet", path]).0, Some(1));
    assert!(std::fs::read(&third).unwrap() == old && Path::new(&undo).exists());
    assert!(!Path::new(&second).exists());
    assert_eq!(tool("e2fsck", &["-fn", path]).0, Some(0));
}

#[test]
fn a_repair_with_a_named_undo_file_that_was_killed_is_completed_with_or_without_its_name() {
    let it = InPlace::new();
    let (path, link) = (it.path(), format!("{}.undo", it.path()));
    let file = it.image.dir.path().join("elsewhere");
    let undo = file.to_str().unwrap();
    it.interrupt(&[]);
    assert_eq!(repair(&["--undo", undo, path]).0, Some(1));
    assert!(std::fs::symlink_metadata(&link).is_err(), "only for the time of the writes");
    let whole = std::fs::read(&file).unwrap();
    it.interrupt(&it.changed[1..]);
    it.assert_completed(&["--undo", undo, path]);
    it.interrupt(&it.changed[1..]);
    std::os::unix::fs::symlink(&file, &link).unwrap();
    let said = it.assert_completed(&[path]);
    assert!(said.contains(&format!("the old blocks are in {undo}:")), "{said}");
    assert!(std::fs::symlink_metadata(&link).is_err());
    // A run that was killed before its first write, or while it wrote the undo file.
    for len in [0, 3, whole.len() / 2, whole.len()] {
        it.interrupt(&[]);
        std::fs::write(&file, &whole[..len]).unwrap();
        let (status, said) = repair(&["--undo", undo, path]);
        assert_eq!(status, Some(1), "{said}");
        assert!(std::fs::read(path).unwrap() == it.after, "{said}");
        assert!(std::fs::read(&file).unwrap() == whole);
    }
}

#[test]
fn the_undo_file_of_a_partition_has_the_name_of_the_disk_and_the_number() {
    let it = InPlace::new();
    let disk = it.image.dir.path().join("disk");
    let start = 1 << 20;
    let write = |bytes: &[u8]| {
        let file = std::fs::OpenOptions::new().write(true).open(&disk).unwrap();
        file.write_all_at(bytes, start).unwrap();
    };
    std::fs::write(&disk, vec![0; 40 << 20]).unwrap();
    let mut record = [0; 66];
    record[4] = 0x83;
    record[8..12].copy_from_slice(&2048_u32.to_le_bytes());
    record[12..16].copy_from_slice(&65536_u32.to_le_bytes());
    record[64..].copy_from_slice(b"\x55\xaa");
    std::fs::OpenOptions::new()
        .write(true)
        .open(&disk)
        .unwrap()
        .write_all_at(&record, 446)
        .unwrap();
    write(&it.before);
    let (path, part) = (disk.to_str().unwrap(), format!("{}@1", disk.display()));
    let undo = format!("{path}@1.undo");
    assert_eq!(repair(&[&part]).0, Some(1));
    assert!(Path::new(&undo).is_file());
    let after = std::fs::read(&disk).unwrap();
    let mut torn = it.before.clone();
    let first = it.changed[0];
    torn[first..first + SECTOR].copy_from_slice(&it.after[first..first + SECTOR]);
    for name in [&part, &format!("{path}@uuid={}", uuid(&it.after))] {
        write(&torn);
        let (status, said) = repair(&[name]);
        assert!(status == Some(1) && said.contains("is completed"), "{said}");
        assert!(std::fs::read(&disk).unwrap() == after, "{said}");
    }
}

/// Returns the UUID of the file system in these bytes.
fn uuid(image: &[u8]) -> String {
    let hex: String = image[1128..1144].iter().map(|byte| format!("{byte:02x}")).collect();
    let parts = [0..8, 8..12, 12..16, 16..20, 20..32].map(|range| hex[range].to_string());
    parts.join("-")
}

#[test]
fn without_a_superblock_the_repair_fails_with_8_and_writes_nothing() {
    let image = Image::new("32M");
    let none = image.dir.path().join("zeros.img");
    std::fs::write(&none, vec![0; 1 << 20]).unwrap();
    let (status, said) = repair(&[none.to_str().unwrap()]);
    assert_eq!(status, Some(8), "{said}");
    assert!(said.contains("no ext4 file system"), "{said}");
    assert_eq!(std::fs::read(&none).unwrap(), vec![0; 1 << 20]);
    assert_eq!(repair(&["--undo", "a", "--dry-run", "x"]).0, Some(2));
}

fn debugfs(path: &str, requests: &[&str]) {
    for request in requests {
        let (status, said) = tool("debugfs", &["-w", "-R", request, path]);
        assert_eq!(status, Some(0), "{request}: {said}");
    }
}

/// Asserts that e2fsck and `lanefs check` find the damage, which `fault` describes, and that
/// `lanefs repair` leaves nothing for e2fsck.
fn is_found_and_repaired(image: &Image, fault: &str) {
    let path = image.path.to_str().unwrap();
    let (status, said) = tool("e2fsck", &["-fn", path]);
    assert!(status != Some(0), "{fault}: e2fsck finds nothing: {said}");
    let (status, said) = tool(LANEFS, &["check", path]);
    assert_eq!(status, Some(4), "{fault}: {said}");
    assert!(said.contains(fault), "{said}");
    let (status, said) = repair(&[path]);
    assert_eq!(status, Some(1), "{fault}: {said}");
    let (status, said) = tool("e2fsck", &["-fn", path]);
    assert_eq!(status, Some(0), "{fault}: {said}");
    assert_eq!(tool(LANEFS, &["check", path]).0, Some(0), "{fault}");
}

#[test]
fn an_inline_file_without_its_attribute_becomes_empty_as_by_e2fsck() {
    for (features, len) in [("inline_data", 5), ("inline_data,^metadata_csum", 100)] {
        let image = Image::with("8M", &["-b", "1024", "-I", "256", "-O", features]);
        let (path, file) = (image.path.to_str().unwrap(), image.dir.path().join("file"));
        std::fs::write(&file, vec![b'x'; len]).unwrap();
        let write = format!("write {} f", file.display());
        debugfs(path, &[&write, "mknod pipe p", "ea_set f user.kept value"]);
        let (status, said) = tool("e2fsck", &["-fn", path]);
        assert_eq!(status, Some(0), "{said}");
        debugfs(path, &["ea_rm f system.data"]);
        is_found_and_repaired(&image, "it has no attribute system.data");
        let (_, said) = tool("debugfs", &["-R", "stat f", path]);
        assert!(said.contains("Flags: 0x0") && said.contains("Size: 0\n"), "{said}");
        assert!(said.contains("user.kept"), "{said}");
        debugfs(path, &["sif pipe flags 0x10000000"]);
        is_found_and_repaired(&image, "flags 0x10000000 are not valid here");
    }
}

#[test]
fn orphan_present_without_orphans_is_cleared() {
    let image = Image::with("8M", &["-b", "1024", "-O", "orphan_file"]);
    debugfs(image.path.to_str().unwrap(), &["feature orphan_present"]);
    is_found_and_repaired(&image, "superblock: orphan_present is set, and the orphan file has no");
}

/// The number that e2fsck stores in the block of mmp.
const BEING_CHECKED: u32 = 0xe24d_4d50;

#[test]
fn an_invalid_state_of_mmp_is_mended_after_a_wait_and_told() {
    // The second number, 0xf0000000, is one that no mount uses.
    std::thread::scope(|scope| {
        for number in [BEING_CHECKED, 0xf000_0000] {
            scope.spawn(move || mmp_is_mended(number));
        }
    });
}

fn mmp_is_mended(number: u32) {
    let image = Image::with("8M", &["-b", "1024", "-O", "mmp,^metadata_csum"]);
    let path = image.path.to_str().unwrap();
    let file = std::fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut block = [0; 8];
    file.read_exact_at(&mut block, 1024 + 0x168).unwrap();
    let at = u64::from_le_bytes(block) * 1024 + 4;
    file.write_all_at(&number.to_le_bytes(), at).unwrap();
    assert_eq!(tool(LANEFS, &["check", path]).0, Some(4), "{number:#x}");
    if number == BEING_CHECKED {
        let (status, said) = repair(&[path]);
        assert!(status == Some(8) && said.contains("--take-over"), "{said}");
    }
    let (status, said) = repair(&["--take-over", path]);
    assert_eq!(status, Some(1), "{number:#x}: {said}");
    assert!(said.contains("mmp is written anew") && said.contains(": repaired\n"), "{said}");
    let (status, said) = repair(&[path]);
    assert!(status == Some(0) && said.contains("already clean"), "{number:#x}: {said}");
}

/// Checks that `check` and `repair` name what the image holds, with these words, as `ls` does, and
/// that they write nothing.
fn assert_named(path: &Path, words: &str) {
    let (disk, undo) = (path.to_str().unwrap(), path.with_extension("undo"));
    let before = std::fs::read(path).unwrap();
    // Commands that destroy nothing take the only ext4 of a disk.
    let picked = words.contains("for partition 1");
    let looking: &[&[&str]] = if picked { &[] } else { &[&["ls", disk], &["check", disk]] };
    for line in [
        &["repair", "-n", disk][..],
        &["repair", disk],
        &["repair", "--undo", undo.to_str().unwrap(), disk],
    ]
    .iter()
    .chain(looking)
    {
        let (status, said) = tool(LANEFS, line);
        assert!(said.contains(words), "{line:?} {words}: {said}");
        assert!(status == Some(1) || status == Some(8), "{line:?}: {said}");
    }
    assert!(std::fs::read(path).unwrap() == before && !undo.exists(), "{words}");
}

#[test]
fn a_disk_whose_partition_begins_where_a_copy_would_be_is_left_alone() {
    // A file system with blocks of 1 KiB at 8 MiB has its superblock where a file system on the
    // whole disk would have its first copy.
    let image = Image::new("8M");
    let (path, disk) = (&image.path, image.path.to_str().unwrap());
    let file = std::fs::File::options().write(true).open(path).unwrap();
    let fresh = || {
        file.set_len(0).unwrap();
        file.set_len(24 << 20).unwrap();
        let offset = ["-q", "-F", "-t", "ext4", "-b", "1024", "-E", "offset=8388608", disk, "16M"];
        assert_eq!(tool("mke2fs", &offset).0, Some(0));
    };
    let mut table = [0; 512];
    table[450] = 0x83;
    table[454..462].copy_from_slice(&[0, 64, 0, 0, 0, 128, 0, 0]);
    table[510..].copy_from_slice(b"\x55\xaa");
    for (head, words) in [
        (&table[..], "--offset 8388608 for partition 1 (ext4)"),
        (b"vhdxfile", "VHDX"),
        (b"QFI\xfb", "qcow2"),
        (b"LUKS\xba\xbe", "LUKS"),
        (b"", "use --offset 8388608"),
    ] {
        fresh();
        file.write_all_at(head, 0).unwrap();
        assert_named(path, words);
        if !head.is_empty() {
            // Without its descriptors, the file system of the partition leads to no root.
            file.write_all_at(&[0; 1024], (8 << 20) + 2048).unwrap();
            assert_named(path, words);
        }
    }
    // A file system of the whole disk was there before: its inode table is still in its place.
    fresh();
    assert_eq!(tool("mke2fs", &["-q", "-F", "-t", "ext4", "-b", "1024", disk, "8M"]).0, Some(0));
    file.write_all_at(&[0; 1024], 1024).unwrap();
    file.write_all_at(&table, 0).unwrap();
    assert_named(path, "for partition 1 (ext4)");
}

#[test]
fn a_copy_that_says_it_is_of_group_0_is_used_if_it_leads_to_the_root() {
    let image = Image::with("24M", &["-b", "1024", "-O", "^metadata_csum"]);
    let file = std::fs::File::options().write(true).open(&image.path).unwrap();
    file.write_all_at(&[0, 0], (8193 << 10) + 0x5a).unwrap();
    for len in [1024, 2048] {
        // The descriptors follow the superblock.
        file.write_all_at(&vec![0; len], 1024).unwrap();
        let (status, said) = repair(&[
            "--undo",
            &format!("{}.{len}", image.path.display()),
            image.path.to_str().unwrap(),
        ]);
        assert_eq!(status, Some(1), "{said}");
        assert_eq!(tool("e2fsck", &["-fn", image.path.to_str().unwrap()]).0, Some(0));
        file.write_all_at(&[0, 0], (8193 << 10) + 0x5a).unwrap();
    }
}

/// Runs `lanefs` as fsck(8) does, through a link `fsck.lanefs`.
fn fsck(image: &Image, arguments: &[&str]) -> (Option<i32>, String) {
    let link = image.dir.path().join("fsck.lanefs");
    if !link.exists() {
        std::os::unix::fs::symlink(LANEFS, &link).unwrap();
    }
    let (status, said) = try_run(Command::new(link).args(arguments).arg(&image.path));
    (status.code(), said)
}

#[test]
fn fsck_repairs_at_boot_only_what_loses_nothing() {
    let image = Image::new("32M");
    let path = image.path.to_str().unwrap();
    assert_eq!(fsck(&image, &["-a"]).0, Some(0));
    assert_eq!(fsck(&image, &["-f", "-p", "-T", "-M"]).0, Some(0));
    // A file without a name: its repair gives it one, which nobody expects at boot.
    tool("debugfs", &["-w", "-R", "mkdir d", path]);
    tool("debugfs", &["-w", "-R", "unlink d", path]);
    assert_eq!(fsck(&image, &["-p"]).0, Some(0), "a clean image is checked only with -f");
    let before = std::fs::read(&image.path).unwrap();
    for arguments in [&["-f", "-p"][..], &["-f"], &["-n"]] {
        let (status, said) = fsck(&image, arguments);
        assert_eq!(status, Some(4), "{arguments:?}: {said}");
        assert!(std::fs::read(&image.path).unwrap() == before, "{arguments:?}");
    }
    assert_eq!(fsck(&image, &["-f", "-y"]).0, Some(1));
    assert_eq!(tool("e2fsck", &["-fn", path]).0, Some(0));
    // A wrong count.
    tool("debugfs", &["-w", "-R", "set_super_value free_inodes_count 5", path]);
    assert_eq!(fsck(&image, &["-f", "-p"]).0, Some(1));
    assert_eq!(tool("e2fsck", &["-fn", path]).0, Some(0));
    assert_eq!(fsck(&image, &["-p", "-y"]).0, Some(16));
    assert_eq!(fsck(&image, &["-a", "-p", "-f", "-f"]).0, Some(0));
    std::fs::write(&image.path, b"no file system").unwrap();
    assert_eq!(fsck(&image, &["-p"]).0, Some(8));
}

#[test]
fn fsck_tells_its_progress_as_fsck_8_reads_it() {
    let image = Image::new("32M");
    let (path, out) = (image.path.to_str().unwrap(), image.dir.path().join("progress"));
    let script = format!("{LANEFS} fsck -f -p -C 3 {path} 3>{}", out.display());
    let (status, said) = try_run(Command::new("sh").args(["-c", &script]));
    assert!(status.success(), "{said}");
    let lines = std::fs::read_to_string(out).unwrap();
    assert!(lines.lines().count() > 0);
    for line in lines.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        assert_eq!(words.len(), 4, "{line}");
        assert!(words[..3].iter().all(|word| word.parse::<u64>().is_ok()), "{line}");
        assert_eq!(words[3], path);
    }
}
