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

/// Returns the names in a directory, sorted.
fn names(dir: &Path) -> Vec<String> {
    let names = std::fs::read_dir(dir).unwrap();
    let mut names: Vec<String> =
        names.map(|name| name.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Puts a file that no program can compress into an image.
fn put_random(image: &Path) {
    let bytes: Vec<u8> = (0..12 << 20).map(|_| fastrand::u8(..)).collect();
    let file = image.with_file_name("random");
    std::fs::write(&file, bytes).unwrap();
    lanefs(&["cp", file.to_str().unwrap(), &format!("{}:/random", image.display())]);
    std::fs::remove_file(file).unwrap();
}

#[test]
fn a_clone_is_resized_and_edited_in_one_step() {
    let dir = scratch();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (base, to) = (at("base.img"), at("vm.img"));
    lanefs(&["mkfs", "-q", "--size", "64M", "-L", "base", &base]);
    lanefs(&["edit", &base, "-c", "mkdir /etc", "-c", "write /etc/hostname base"]);
    std::fs::write(at("script"), "# of one machine\nwrite /etc/hostname vm\nmkdir -p /srv/a\n")
        .unwrap();
    let before = std::fs::read(&base).unwrap();
    let facts = json(&["clone", "--json", &base, &to, "--size", "1G", "--edit", &at("script")]);
    assert_eq!(facts["image_bytes"], 1 << 30, "{facts}");
    assert_ne!(facts["uuid"], json(&["info", "--json", &base])["uuid"]);
    assert_eq!(json(&["info", "--json", &to])["uuid"], facts["uuid"]);
    assert_eq!(lanefs(&["cat", &format!("{to}:/etc/hostname")]), "vm");
    assert_eq!(lanefs(&["ls", &format!("{to}:/srv")]), "a\n");
    lanefs(&["clone", "-q", "--keep-uuid", "-F", &base, &to, "-s", "auto", "-c", "rm -r /etc"]);
    assert!(std::fs::metadata(&to).unwrap().len() < 32 << 20);
    let uuid = |path: &str| json(&["info", "--json", path])["uuid"].clone();
    assert_eq!(uuid(&base), uuid(&to));
    // A copy needs no journal for its changes.
    let (ext2, of_ext2) = (at("ext2.img"), at("of-ext2.img"));
    lanefs(&["mkfs", "-q", "-t", "ext2", "--size", "32M", &ext2]);
    lanefs(&["clone", "-q", &ext2, &of_ext2, "-s", "+32M", "-c", "write /f text"]);
    assert_eq!(lanefs(&["cat", &format!("{of_ext2}:/f")]), "text");
    if needs("e2fsck") {
        assert_clean(Path::new(&to));
        assert_clean(Path::new(&of_ext2));
    }
    let made = names(dir.path());
    let kept = std::fs::read(&to).unwrap();
    let refused: [(&[&str], &str); 7] = [
        (&[&base, "DIR/new.img", "-c", "rm /nothing"], "line 1: "),
        (&[&base, "DIR/new.img", "-c", "put DIR/none /x"], "DIR/none: no such file"),
        (&[&base, "DIR/new.img", "--size", "16T"], "DIR/new.img: "),
        (&[&base, "DIR/new.img", "-c", "get /etc/hostname DIR/base.img"], "DIR/base.img: "),
        (&[&base, "DIR/vm.img"], "file exists"),
        (&["-F", &base, "DIR/vm.img", "-c", "rm /nothing"], "line 1: "),
        (&["-F", &base, "DIR/vm.img", "-c", "get /etc/hostname DIR/vm.img"], "DIR/vm.img: "),
    ];
    for (words, why) in refused {
        let here = |text: &str| text.replace("DIR", dir.path().to_str().unwrap());
        let words: Vec<String> = words.iter().map(|word| here(word)).collect();
        let line: Vec<&str> =
            ["clone"].into_iter().chain(words.iter().map(String::as_str)).collect();
        let (status, said) = code(&line);
        assert_eq!(status, Some(1), "{line:?}: {said}");
        assert!(said.contains(&here(why)), "{line:?}: {said}");
        assert_eq!(names(dir.path()), made, "{line:?}");
        assert!(std::fs::read(&to).unwrap() == kept, "{line:?}");
    }
    assert!(std::fs::read(&base).unwrap() == before, "the source is only read");
    assert_eq!(code(&["clone", &base, &at("new.img"), "-c", "fly"]).0, Some(1));
    assert_eq!(names(dir.path()), made);
}

#[test]
fn a_compressed_image_is_unpacked_into_the_clone() {
    if !needs("zstd") || !needs("xz") {
        return;
    }
    let dir = scratch();
    let base = dir.path().join("base.img");
    lanefs(&["mkfs", "-q", "--size", "48M", base.to_str().unwrap()]);
    put_random(&base);
    shell(dir.path(), "zstd -q base.img; xz -k0 base.img; gzip -k1 base.img; mkdir made");
    shell(dir.path(), "head -c 1000000 base.img.zst >short.zst; gzip -c base.img.xz >twice.gz");
    shell(dir.path(), "head -c 20000000 base.img >short.img");
    let clones = [
        ("base.img.zst", ""),
        ("base.img.xz", ""),
        ("base.img.gz", ""),
        ("-", "<base.img.zst"),
        ("-", "<base.img"),
        ("<(cat base.img.gz)", ""),
    ];
    for (source, input) in clones {
        let line = format!("{LANEFS} clone -q {source} made/c.img --size 80M -c 'rm /random'");
        let mut bash = Command::new("bash");
        run(bash.args(["-c", &format!("{line} {input}")]).current_dir(dir.path()));
        let made = dir.path().join("made/c.img");
        assert_eq!(made.metadata().unwrap().len(), 80 << 20);
        assert_eq!(lanefs(&["ls", &format!("{}:/", made.display())]), "lost+found\n");
        if needs("e2fsck") {
            assert_clean(&made);
        }
        std::fs::remove_file(made).unwrap();
    }
    let refused = [
        ("short.zst", "zstd stream is damaged or ends too early"),
        ("twice.gz", "no ext4 file system"),
        ("--used base.img.xz", "not compressed"),
        ("--offset 1M base.img.xz", "not compressed"),
        ("--keep-uuid --size 80M <(cat short.img)", "incomplete: 20000000 bytes"),
        ("none.zst", "no such file"),
        ("- -e -", "both the image and the script"),
    ];
    for (words, why) in refused {
        let line = format!("{LANEFS} clone {words} made/c.img <base.img.gz");
        let (status, said) = try_run(Command::new("bash").args(["-c", &line]).current_dir(&dir));
        assert!(status.code() == Some(1) && said.contains(why), "{words}: {said}");
        assert_eq!(names(&dir.path().join("made")), [""; 0], "{words}");
    }
}

#[test]
fn a_clone_does_not_replace_what_appears_meanwhile() {
    let dir = scratch();
    let (base, to) = (dir.path().join("base.img"), dir.path().join("to.img"));
    lanefs(&["mkfs", "-q", "--size", "8M", base.to_str().unwrap()]);
    shell(dir.path(), "mkfifo pipe");
    let mut clone = Command::new(LANEFS);
    let clone = clone.args(["clone", "pipe", "to.img"]).current_dir(dir.path());
    let clone = clone.stderr(std::process::Stdio::piped()).spawn().unwrap();
    // This open waits for the clone, which has looked at its destination before.
    let mut pipe = std::fs::File::options().write(true).open(dir.path().join("pipe")).unwrap();
    std::fs::write(&to, "another program's").unwrap();
    std::io::copy(&mut std::fs::File::open(&base).unwrap(), &mut pipe).unwrap();
    drop(pipe);
    let output = clone.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && said.contains("to.img: file exists"), "{said}");
    assert_eq!(std::fs::read_to_string(&to).unwrap(), "another program's");
    assert_eq!(names(dir.path()), ["base.img", "pipe", "to.img"]);
}

#[test]
fn a_killed_clone_leaves_all_or_nothing() {
    let dir = scratch();
    let base = dir.path().join("base.img");
    lanefs(&["mkfs", "-q", "--size", "64M", base.to_str().unwrap()]);
    put_random(&base);
    let mut random = fastrand::Rng::with_seed(crate::mounting::seed());
    let (mut all, mut nothing) = (0, 0);
    for _ in 0..24 {
        let mut clone = Command::new(LANEFS);
        clone.args(["clone", "-q", "--used", "base.img", "made.img", "-s", "1G"]);
        clone.args(["-c", "write /hostname vm"]);
        let mut clone = clone.current_dir(dir.path()).spawn().unwrap();
        std::thread::sleep(std::time::Duration::from_micros(random.u64(0..150_000)));
        let _ = clone.kill();
        clone.wait().unwrap();
        if names(dir.path()) == ["base.img"] {
            nothing += 1;
            continue;
        }
        all += 1;
        assert_eq!(names(dir.path()), ["base.img", "made.img"]);
        let made = dir.path().join("made.img");
        assert_eq!(made.metadata().unwrap().len(), 1 << 30);
        assert_eq!(lanefs(&["cat", &format!("{}:/hostname", made.display())]), "vm");
        if needs("e2fsck") {
            assert_clean(&made);
        }
        std::fs::remove_file(made).unwrap();
    }
    println!("all {all}, nothing {nothing}");
}

#[test]
fn a_clone_on_xfs_shares_its_blocks() {
    if !can_mount() || !needs("mkfs.xfs") {
        return;
    }
    let dir = scratch();
    shell(dir.path(), "truncate -s 400M xfs.img; mkfs.xfs -q -m reflink=1 xfs.img; mkdir xfs");
    let (mounted, said) =
        try_run(Command::new("mount").args(["-o", "loop", "xfs.img", "xfs"]).current_dir(&dir));
    if !mounted.success() {
        println!("skipped: {said}");
        return;
    }
    let _mounted = KernelMounted { path: dir.path().join("xfs") };
    let base = dir.path().join("xfs/base.img");
    let path = base.to_str().unwrap();
    lanefs(&["mkfs", "-q", "--size", "100M", path]);
    put_random(&base);
    for n in 0..20 {
        let to = format!("{}/c{n}.img", dir.path().join("xfs").display());
        let facts = json(&["clone", "--json", path, &to, "-s", "1G", "-c", "write /n 1"]);
        assert_eq!(facts["copied"], "shared", "{facts}");
    }
    if needs("e2fsck") {
        assert_clean(&dir.path().join("xfs/c19.img"));
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
