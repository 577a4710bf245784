//! Tests of `lanefs recover`, `tune`, `trim`, `clone` and `resize`: exit codes, messages, images in
//! use.

use crate::mounting::{
    Image, KernelMounted, LANEFS, assert_clean, can_mount, needs, run, scratch, shell, try_run,
};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

fn lanefs(arguments: &[&str]) -> String {
    run(Command::new(LANEFS).args(arguments))
}

fn code(arguments: &[&str]) -> (Option<i32>, String) {
    let (status, said) = try_run(Command::new(LANEFS).args(arguments));
    (status.code(), said)
}

fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&lanefs(arguments)).unwrap()
}

/// Syncs an image that the kernel has mounted, and copies it. The log of the copy has to be
/// replayed.
fn copy_of_a_mounted_image(image: &Image, to: &Path) -> Option<()> {
    let kernel = KernelMounted::new(&image.path, "kernel", "rw")?;
    shell(&kernel.path, "mkdir d; echo text >d/f; exec 9>gone; rm gone; sync");
    std::fs::copy(&image.path, to).unwrap();
    Some(())
}

#[test]
fn recover_exits_as_e2fsck_does() {
    if !can_mount() {
        return;
    }
    let image = Image::new("32M");
    let copy = image.dir.path().join("copy.img");
    let Some(()) = copy_of_a_mounted_image(&image, &copy) else { return };
    let path = copy.to_str().unwrap();
    let (status, said) = code(&["recover", "-n", path]);
    assert_eq!(status, Some(4), "{said}");
    assert!(said.contains("to be recovered: ") && said.contains("transactions"), "{said}");
    let (status, said) = code(&["recover", "--json", path]);
    assert_eq!(status, Some(1), "{said}");
    let facts: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(facts["recovered"], true);
    assert!(facts["before"]["transactions"].as_u64().unwrap() > 0);
    assert_eq!(facts["after"]["needs_replay"], false);
    let (status, said) = code(&["recover", path]);
    assert_eq!((status, said.contains("already clean")), (Some(0), true), "{said}");
    assert_clean(&copy);
    assert_eq!(lanefs(&["cat", &format!("{path}:/d/f")]), "text\n");
    let none = image.dir.path().join("zeros.img");
    std::fs::write(&none, vec![0; 1 << 20]).unwrap();
    let (status, said) = code(&["recover", none.to_str().unwrap()]);
    assert_eq!(status, Some(8), "{said}");
    assert!(said.contains("no ext4 file system"), "{said}");
}

#[test]
fn tune_understands_the_words_of_tune2fs_and_shows_the_settings() {
    let dir = scratch();
    let image = dir.path().join("disk.img");
    let path = image.to_str().unwrap();
    lanefs(&["mkfs", "-q", "--size", "64M", path]);
    let facts = json(&[
        "tune",
        "--json",
        "-L",
        "data",
        "-m",
        "1",
        "-e",
        "remount-ro",
        "-o",
        "discard,^acl",
        "-c",
        "20",
        "-i",
        "2w",
        "-E",
        "stride=8,stripe_width=16,mount_opts=noatime",
        "-U",
        "0f0e0d0c-0b0a-4908-8706-050403020100",
        path,
    ]);
    assert_eq!(facts["label"], "data");
    assert_eq!(facts["uuid"], "0f0e0d0c-0b0a-4908-8706-050403020100");
    assert_eq!(facts["reserved_blocks"], 655);
    assert_eq!(facts["on_error"], "remount-ro");
    assert_eq!(facts["default_mount_options"], serde_json::json!(["user_xattr", "discard"]));
    assert_eq!(facts["max_mount_count"], 20);
    assert_eq!(facts["check_interval"], 14 * 86_400);
    assert_eq!(facts["mount_options"], "noatime");
    let said = lanefs(&["tune", path]);
    assert!(said.contains("Default mount options: user_xattr discard"), "{said}");
    lanefs(&["tune", "-J", "size=2", path]);
    assert_eq!(json(&["tune", "-l", "--json", path])["journal"]["bytes"], 2 << 20);
    lanefs(&["tune", "-O", "^has_journal", path]);
    assert!(json(&["tune", "--json", path])["journal"].is_null());
    lanefs(&["tune", "-j", path]);
    assert!(json(&["tune", "--json", path])["journal"]["bytes"].as_u64().unwrap() >= 4 << 20);
    if needs("e2fsck") {
        assert_clean(&image);
    }
    for (words, status, what) in [
        (["-O", "^metadata_csum"], 1, "metadata_csum cannot be cleared"),
        (["-O", "nonsense"], 2, "unknown feature 'nonsense'"),
        (["-J", "device=/dev/sdb"], 2, "does not make such journals"),
        (["-m", "60"], 1, "at most half"),
        (["-L", "a label that is too long"], 1, "16 fit"),
    ] {
        let (found, said) = code(&["tune", words[0], words[1], path]);
        assert_eq!(found, Some(status), "{words:?}: {said}");
        assert!(said.contains(what), "{words:?}: {said}");
    }
}

fn host_bytes(path: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(path).unwrap().blocks() * 512
}

#[test]
fn trim_gives_the_space_of_removed_files_back() {
    let dir = scratch();
    let image = dir.path().join("disk.img");
    let path = image.to_str().unwrap();
    lanefs(&["mkfs", "-q", "--size", "96M", path]);
    let data: Vec<u8> = (0..20 << 20).map(|n: u32| (n % 251) as u8).collect();
    std::fs::write(dir.path().join("kept"), &data[..3 << 20]).unwrap();
    std::fs::write(dir.path().join("gone"), &data).unwrap();
    for name in ["kept", "gone"] {
        let from = dir.path().join(name);
        lanefs(&["cp", from.to_str().unwrap(), &format!("{path}:/{name}")]);
    }
    lanefs(&["rm", &format!("{path}:/gone")]);
    let before = host_bytes(&image);
    let facts = json(&["trim", "--json", path]);
    let after = host_bytes(&image);
    assert_eq!(facts["host_bytes_after"].as_u64(), Some(after));
    assert!(before - after >= 19 << 20, "{before} {after}");
    assert!(facts["discarded_bytes"].as_u64().unwrap() > 60 << 20);
    if needs("e2fsck") {
        assert_clean(&image);
    }
    let out = dir.path().join("out");
    lanefs(&["cp", &format!("{path}:/kept"), out.to_str().unwrap()]);
    assert!(std::fs::read(&out).unwrap() == data[..3 << 20]);
}

#[test]
fn a_clone_has_the_same_files_and_another_uuid() {
    let dir = scratch();
    let (image, copy) = (dir.path().join("disk.img"), dir.path().join("copy.img"));
    let (path, to) = (image.to_str().unwrap(), copy.to_str().unwrap());
    lanefs(&["mkfs", "-q", "--size", "96M", path]);
    let data: Vec<u8> = (0..9 << 20).map(|n: u32| (n % 253) as u8).collect();
    let file = dir.path().join("file");
    std::fs::write(&file, &data).unwrap();
    for name in ["a", "b"] {
        lanefs(&["cp", file.to_str().unwrap(), &format!("{path}:/{name}")]);
    }
    lanefs(&["rm", &format!("{path}:/b")]);
    let uuid = json(&["info", "--json", path])["uuid"].clone();
    for (more, most) in [(&[][..], 40 << 20), (&["--used", "-F", "-L", "second"], 16 << 20)] {
        let line = [&["clone", "--json", path, to], more].concat();
        let facts = json(&line);
        assert_ne!(facts["uuid"], uuid);
        let info = json(&["info", "--json", to]);
        assert_eq!(info["uuid"], facts["uuid"]);
        assert!(host_bytes(&copy) < most, "{} {most}", host_bytes(&copy));
        let out = dir.path().join("out");
        lanefs(&["cp", &format!("{to}:/a"), out.to_str().unwrap()]);
        assert!(std::fs::read(&out).unwrap() == data);
        if needs("e2fsck") {
            assert_clean(&copy);
        }
    }
    assert_eq!(json(&["info", "--json", to])["label"], "second");
    assert_eq!(json(&["info", "--json", path])["uuid"], uuid);
    let (status, said) = code(&["clone", path, to]);
    assert_eq!(status, Some(1));
    assert!(said.contains("file exists"), "{said}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 4, "no unfinished copy is left");
}

#[test]
fn a_clone_of_an_image_left_by_a_crash_is_recovered() {
    if !can_mount() {
        return;
    }
    let image = Image::new("32M");
    let left = image.dir.path().join("left.img");
    let Some(()) = copy_of_a_mounted_image(&image, &left) else { return };
    for more in [&[][..], &["--used"]] {
        let copy = image.dir.path().join(format!("copy{}.img", more.len()));
        let to = copy.to_str().unwrap();
        lanefs(&[&["clone", "-q", left.to_str().unwrap(), to], more].concat());
        assert_clean(&copy);
        assert_eq!(lanefs(&["cat", &format!("{to}:/d/f")]), "text\n");
        let Some(kernel) = KernelMounted::new(&copy, "of-copy", "rw") else { return };
        assert_eq!(shell(&kernel.path, "cat d/f"), "text\n");
    }
}

#[test]
fn resize_makes_image_and_file_larger() {
    let dir = scratch();
    let image = dir.path().join("disk.img");
    let path = image.to_str().unwrap();
    lanefs(&["mkfs", "-q", "--size", "64M", path]);
    lanefs(&["cp", "/etc/passwd", &format!("{path}:/passwd")]);
    assert_eq!(json(&["resize", "--json", path, "200M"])["bytes"], 200 << 20);
    assert_eq!(json(&["resize", "--json", path, "+56M"])["bytes"], 256 << 20);
    assert_eq!(std::fs::metadata(&image).unwrap().len(), 256 << 20);
    let (status, said) = code(&["resize", path]);
    assert!(status == Some(0) && said.contains("has 256M already"), "{said}");
    if needs("e2fsck") {
        assert_clean(&image);
    }
    assert_eq!(lanefs(&["cat", &format!("{path}:/passwd")]), shell(dir.path(), "cat /etc/passwd"));
    assert_eq!(code(&["resize", path, "much"]).0, Some(2));
    // A refused growth changes nothing, also not the length of the file.
    assert_eq!(code(&["resize", path, "16T"]).0, Some(1));
    assert_eq!(std::fs::metadata(&image).unwrap().len(), 256 << 20);
    let (status, said) = code(&["resize", path, "8192P"]);
    assert!(status == Some(2) && said.contains("'8192P' is too large"), "{said}");
}

#[test]
fn resize_makes_image_and_file_smaller() {
    let dir = scratch();
    let image = dir.path().join("disk.img");
    let path = image.to_str().unwrap();
    lanefs(&["mkfs", "-q", "--size", "256M", path]);
    let data: Vec<u8> = (0..9 << 20).map(|n: u32| (n % 253) as u8).collect();
    let file = dir.path().join("file");
    std::fs::write(&file, &data).unwrap();
    lanefs(&["cp", file.to_str().unwrap(), &format!("{path}:/file")]);
    assert_eq!(json(&["resize", "--json", path, "-56M"])["bytes"], 200 << 20);
    assert_eq!(std::fs::metadata(&image).unwrap().len(), 200 << 20);
    for size in ["4M", "4K", "1"] {
        let (status, said) = code(&["resize", path, size]);
        assert!(status == Some(1) && said.contains("the smallest size is"), "{said}");
    }
    let facts = json(&["resize", "--json", path, "auto"]);
    let bytes = facts["bytes"].as_u64().unwrap();
    assert!(bytes < 48 << 20, "{bytes}");
    assert_eq!(std::fs::metadata(&image).unwrap().len(), bytes);
    assert_eq!(json(&["resize", "--json", path, "auto"])["bytes"], bytes);
    if needs("e2fsck") {
        assert_clean(&image);
    }
    let out = dir.path().join("out");
    lanefs(&["cp", &format!("{path}:/file"), out.to_str().unwrap()]);
    assert!(std::fs::read(&out).unwrap() == data);
}

#[test]
fn edit_makes_all_changes_or_none() {
    let dir = scratch();
    let image = dir.path().join("disk.img");
    let path = image.to_str().unwrap();
    lanefs(&["mkfs", "-q", "--size", "64M", path]);
    std::fs::write(dir.path().join("app"), vec![7; 100_000]).unwrap();
    let app = dir.path().join("app");
    let script = dir.path().join("script");
    let text = format!(
        "# a script\nmkdir -p /srv/etc\nput {} /srv/app\nwrite /srv/etc/motd \"hello\\n\"\n\
         append /srv/etc/motd more\nchmod 600 /srv/etc/motd\nchown 7:8 /srv/app\n\
         [\"ln\", \"-s\", \"app\", \"/srv/link\"]\nsetfattr user.k v /srv/app\n",
        app.display()
    );
    std::fs::write(&script, &text).unwrap();
    let facts = json(&["edit", "--json", path, script.to_str().unwrap()]);
    assert_eq!(facts["commands"], 8);
    assert!(facts["new_blocks"].as_u64().unwrap() > 0);
    assert_eq!(lanefs(&["cat", &format!("{path}:/srv/etc/motd")]), "hello\nmore");
    let said = lanefs(&["stat", "-c", "%u:%g", &format!("{path}:/srv/app")]);
    assert_eq!(said.trim(), "7:8");
    if needs("e2fsck") {
        assert_clean(&image);
    }
    let before = std::fs::read(&image).unwrap();
    let (status, said) =
        code(&["edit", path, "-c", "mkdir /a", "-c", "rm /srv/app", "-c", "rm /none"]);
    assert_eq!(status, Some(1));
    assert!(said.contains("line 3: ") && said.contains("no such file"), "{said}");
    assert!(std::fs::read(&image).unwrap() == before, "a failed script changes nothing");
    let (_, said) = code(&["edit", path, "-c", "fly"]);
    assert!(said.contains("line 1: unknown command 'fly'"), "{said}");
    for input in ["", " -"] {
        shell(dir.path(), &format!("echo mkdir -p /stdin | {LANEFS} edit disk.img{input}"));
        assert!(lanefs(&["ls", &format!("{path}:/")]).contains("stdin"), "{input}");
        lanefs(&["rm", "-r", &format!("{path}:/stdin")]);
    }
}

#[test]
fn an_image_in_use_is_refused() {
    if !can_mount() {
        return;
    }
    let image = Image::new("32M");
    let path = image.path.to_str().unwrap();
    let Some(kernel) = KernelMounted::new(&image.path, "kernel", "rw") else { return };
    let lines: &[&[&str]] = &[
        &["tune", "-L", "x", path],
        &["recover", path],
        &["trim", path],
        &["resize", path, "64M"],
        &["clone", path, &format!("{path}.copy")],
    ];
    for line in lines {
        let (status, said) = code(line);
        assert!(matches!(status, Some(1 | 8)), "{said}");
        assert!(said.contains("in use by the kernel"), "{line:?}: {said}");
    }
    drop(kernel);
}

/// Returns a disk with two partitions, of 24 MiB at 1 MiB and of 24 MiB at 25 MiB. Each has a file
/// system, the first one of only 16 MiB.
fn disk_of_two(dir: &Path) -> Option<String> {
    if !needs("sfdisk") {
        return None;
    }
    shell(
        dir,
        "truncate -s 50M disk; (echo label: gpt; echo start=2048,size=49152; \
         echo start=51200,size=49152) | sfdisk -q disk",
    );
    let disk = dir.join("disk").to_str().unwrap().to_owned();
    lanefs(&["mkfs", "-q", "--offset", "1M", &disk, "16M"]);
    lanefs(&["mkfs", "-q", "--offset", "25M", &disk]);
    lanefs(&["cp", "-a", "--offset", "25M", "/etc/passwd", &format!("{disk}:/")]);
    Some(disk)
}

#[test]
fn a_file_system_at_an_offset_ends_with_its_partition() {
    let dir = scratch();
    let Some(disk) = disk_of_two(dir.path()) else { return };
    let size = |at: &str| {
        let facts = json(&["info", "--json", "--offset", at, &disk]);
        facts["blocks"].as_u64().unwrap() * facts["block_size"].as_u64().unwrap()
    };
    let copy =
        |from: u64, to: u64| std::fs::read(&disk).unwrap()[from as usize..to as usize].to_vec();
    let whole = |at: u64| (at << 20, (at + 24) << 20);
    assert_eq!(size("25M"), 24 << 20, "not to the end of the disk");
    let (from, to) = whole(25);
    let second = copy(from, to);
    let tail = copy(to, 50 << 20);
    let first = copy(0, 25 << 20);
    let too_long = [
        &["resize", "--offset", "1M", &disk, "25M"][..],
        &["resize", "--offset", "1M", &disk, "+9M"],
        &["mkfs", "-F", "--offset", "1M", &disk, "25M"],
        &["mkfs", "-n", "-F", "--offset", "1M", &disk, "25M"],
        &["mkfs", "-F", "--offset", "1M", "-O", "journal_dev", &disk, "25M"],
        &["mkfs", "-F", "--offset", "1M", "--from", "/etc/skel", "--size", "25M", &disk],
        &["mount", "-o", "offset=1M,sizelimit=25M", &disk, dir.path().to_str().unwrap()],
    ];
    for line in too_long {
        let (status, said) = code(line);
        assert_eq!(status, Some(1), "{line:?}: {said}");
        assert!(said.contains("partition 1"), "{line:?}: {said}");
    }
    assert!(copy(0, 25 << 20) == first, "a refused command writes nothing");
    lanefs(&["resize", "--offset", "1M", &disk]);
    assert_eq!(size("1M"), 24 << 20);
    let clone = dir.path().join("clone");
    lanefs(&["clone", "--offset", "1M", &disk, clone.to_str().unwrap()]);
    assert_eq!(clone.metadata().unwrap().len(), 24 << 20);
    assert_clean(&clone);
    lanefs(&["mkfs", "-q", "-F", "--offset", "1M", &disk]);
    assert_eq!(size("1M"), 24 << 20);
    lanefs(&["mkfs", "-q", "-F", "--offset", "1M", "--from", "/etc/skel", "--", &disk]);
    assert!(copy(from, to) == second && copy(to, 50 << 20) == tail, "the second is untouched");
    // Where no partition lies, the file system goes to the end, as on a disk without a table.
    lanefs(&["mkfs", "-q", "-F", "--offset", &(to + (64 << 10)).to_string(), &disk, "512K"]);
}
