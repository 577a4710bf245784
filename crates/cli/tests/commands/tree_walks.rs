//! Compares find, du, diff and tar with the GNU programs on the kernel's mount of the same image.

use crate::mounting::{
    Image, KernelMounted, LANEFS, assert_clean, can_mount, needs, run, scratch, shell, try_run,
};
use crate::trees::{assert_same, fill, survey};
use std::io::Write;
use std::path::Path;
use std::process::Command;

fn lanefs(arguments: &[&str]) -> String {
    run(Command::new(LANEFS).args(arguments))
}

/// Makes an image with one file of each type; `None` if the machine forbids mounts.
fn filled() -> Option<Image> {
    if !can_mount() {
        return None;
    }
    let image = Image::new("300M");
    let kernel = KernelMounted::new(&image.path, "kernel", "rw")?;
    fill(&kernel.path);
    shell(&kernel.path, "rm -f d/socket");
    drop(kernel);
    Some(image)
}

/// Returns the sorted records of an output. Paths are rewritten as if a program that runs in the
/// mounted directory had printed them.
fn records(output: &str, image: &str, end: char) -> Vec<String> {
    let shown = format!("{image}:/");
    let relative = output.replace(&shown, "./");
    let mut records: Vec<String> = relative
        .split(end)
        .map(|record| if record.ends_with("./") { record.trim_end_matches('/') } else { record })
        .map(str::to_owned)
        .collect();
    records.sort_unstable();
    records
}

#[test]
fn find_finds_what_gnu_find_finds() {
    let Some(image) = filled().filter(|_| needs("find")) else { return };
    let path = image.path.to_str().unwrap();
    let kernel = KernelMounted::new(&image.path, "kernel", "ro").unwrap();
    for tests in [
        "",
        "-name '*1*'",
        "-iname HELLO*",
        "-name '[dh]*' -a -not -type d",
        "-path '*/e/*'",
        "-lname 'hel*'",
        "-type f",
        "-type d,l,p",
        "-size +1",
        "-size -1",
        "-size 1",
        "-size +1M",
        "-size 6c",
        "-empty",
        "-perm 644",
        "-perm -4000",
        "-perm /6000",
        "-perm /u+w,g+w",
        "-user 1000",
        "-uid +10",
        "-gid -7",
        "-links +1",
        "-inum 12",
        "-newer ./d/hello",
        "-cnewer ./d/hello",
        "-newermt 2020-01-01",
        "-mtime +365",
        "-mtime -1",
        "-mmin -60",
        "-mmin +60",
        "-atime 0",
        "-name '*1*' -o -type d",
        "-type f ! -name '*name*'",
        "'(' -name d -o -name e ')' -prune -o -print",
        "-depth -name 'e*'",
        "-maxdepth 1",
        "-mindepth 2 -maxdepth 3",
        "-false",
    ] {
        let print = if tests.ends_with("-print") { "0" } else { " -print0" };
        let theirs = shell(&kernel.path, &format!("find . {tests}{print}"));
        let tests = tests.replace("./d/hello", &format!("{path}:/d/hello"));
        let ours = format!("{LANEFS} find {path} {tests}{print}");
        let found = shell(Path::new("/"), &ours);
        assert_eq!(records(&found, path, '\0'), records(&theirs, path, '\0'), "{tests}");
        let two_dashes = |word: &str| match word.as_bytes() {
            [b'-', b'a'..=b'z', ..] => format!("-{word}"),
            _ => word.to_owned(),
        };
        let long: Vec<String> = ours.split(' ').map(two_dashes).collect();
        assert_eq!(shell(Path::new("/"), &long.join(" ")), found, "{long:?}");
    }
    let json = lanefs(&["find", path, "-type", "c", "--json"]);
    let line: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&line["path"], &line["type"]), (&"/d/null".into(), &"c".into()));
}

#[test]
fn du_counts_what_gnu_du_counts() {
    let Some(image) = filled().filter(|_| needs("du")) else { return };
    let path = image.path.to_str().unwrap();
    let kernel = KernelMounted::new(&image.path, "kernel", "ro").unwrap();
    // Without -l, du shows only one name of a file with several names. Which name it shows depends
    // on the order of the directory, so -a is tested together with -l.
    for options in [
        "",
        "-a -l",
        "-s",
        "-d 1",
        "-h",
        "-a -h -l",
        "-l",
        "-c",
        "-m",
        "-B 4K",
        "--inodes",
        "-b -s d/e",
    ] {
        let theirs = match options.strip_suffix(" d/e") {
            Some(options) => shell(&kernel.path, &format!("du {options} ./d/e/f/noise")),
            None => shell(&kernel.path, &format!("du {options} .")),
        };
        let operand = if options.ends_with("d/e") { ":/d/e/f/noise" } else { "" };
        let options = options.strip_suffix(" d/e").unwrap_or(options);
        let ours = shell(Path::new("/"), &format!("{LANEFS} du {options} {path}{operand}"));
        assert_eq!(records(&ours, path, '\n'), records(&theirs, path, '\n'), "{options}");
    }
    let json = lanefs(&["du", "--json", "-s", path]);
    let line: serde_json::Value = serde_json::from_str(&json).unwrap();
    let theirs = shell(&kernel.path, "du -s -B1 .");
    assert_eq!(Some(line["bytes"].to_string().as_str()), theirs.split('\t').next());
}

#[test]
fn a_tar_of_an_image_is_the_same_tree_for_gnu_tar_and_for_mkfs() {
    let Some(image) = filled().filter(|_| needs("tar")) else { return };
    let path = image.path.to_str().unwrap();
    let archive = image.dir.path().join("a.tar");
    let tar = archive.to_str().unwrap();
    lanefs(&["tar", "-f", tar, path]);
    shell(image.dir.path(), &format!("{LANEFS} tar {path} | cmp - {tar}"));
    let expected = {
        let kernel = KernelMounted::new(&image.path, "kernel", "ro").unwrap();
        survey(&kernel.path)
    };

    let built = image.dir.path().join("built.img");
    lanefs(&["mkfs", "-q", "--size", "300M", built.to_str().unwrap(), "--from", tar]);
    assert_clean(&built);
    assert_same(&survey(&KernelMounted::new(&built, "built", "ro").unwrap().path), &expected);

    let unpacked = Image::new("300M");
    let kernel = KernelMounted::new(&unpacked.path, "kernel", "rw").unwrap();
    shell(&kernel.path, &format!("tar --xattrs --xattrs-include='*' --acls -xpf {tar}"));
    let mut found = survey(&kernel.path);
    // GNU tar sets the attributes of a file before its owner, and changing the owner removes the
    // capability attribute. So the attributes of this file are not compared.
    let noise = Path::new("d/e/f/noise");
    found.get_mut(noise).unwrap().attributes = expected[noise].attributes.clone();
    assert_same(&found, &expected);
    drop(kernel);
    for other in [built.to_str().unwrap(), unpacked.path.to_str().unwrap()] {
        let (status, said) = try_run(Command::new(LANEFS).args(["diff", "--times", path, other]));
        assert!(status.success(), "{said}");
    }

    let (status, said) = try_run(Command::new(LANEFS).args(["tar", "-f", path, path]));
    assert_eq!(
        (status.code(), said.contains("holds an image that this command has open")),
        (Some(1), true),
        "{said}"
    );
    image.assert_clean();

    let names = shell(
        image.dir.path(),
        &format!("{LANEFS} tar {path} --exclude 'a file*' --exclude /d/e | tar -tf -"),
    );
    assert!(names.contains("./d/hello\n") && names.contains("./many/\n"), "{names}");
    assert!(!names.contains("a file") && !names.contains("d/e"), "{names}");
    let one = shell(
        image.dir.path(),
        &format!(
            "{LANEFS} tar {path}:/d/e/numbers | tar -xOf - numbers | sha256sum; seq 1 200000 | sha256sum"
        ),
    );
    let digests: Vec<&str> = one.lines().collect();
    assert_eq!(digests[0], digests[1]);
}

#[test]
fn a_socket_is_named_since_a_tar_cannot_hold_it() {
    let image = Image::new("16M");
    let path = image.path.to_str().unwrap();
    if !needs("debugfs") || !can_mount() {
        return;
    }
    {
        let Some(kernel) = KernelMounted::new(&image.path, "kernel", "rw") else { return };
        shell(
            &kernel.path,
            "echo x > file; python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"s\")'",
        );
    }
    let out = image.dir.path().join("a.tar");
    let (status, said) = try_run(Command::new(LANEFS).args(["tar", path, "-f"]).arg(&out));
    assert_eq!(status.code(), Some(1));
    assert!(said.contains(":/s: a tar cannot hold a socket"), "{said}");
    assert_eq!(shell(image.dir.path(), "tar -xOf a.tar ./file"), "x\n");
}

#[test]
fn diff_names_each_difference_of_two_trees() {
    let Some(image) = filled() else { return };
    let path = image.path.to_str().unwrap();
    let copy = image.copy("copy.img");
    let other = copy.to_str().unwrap();
    let diff = |arguments: &[&str]| {
        let (status, said) = try_run(Command::new(LANEFS).arg("diff").args(arguments));
        (status.code(), said)
    };
    assert_eq!(diff(&["--times", path, other]), (Some(0), String::new()));
    {
        let kernel = KernelMounted::new(&copy, "copy", "rw").unwrap();
        assert_eq!(diff(&["--times", path, kernel.path.to_str().unwrap()]).0, Some(0));
        shell(
            &kernel.path,
            r#"printf X | dd of=d/e/f/noise bs=1 seek=2000000 conv=notrunc status=none
            printf Y | dd of=d/spots bs=1 seek=5000000 conv=notrunc status=none
            echo longer >> d/hello; chmod 700 empty; chown 9 sticky; ln -sfn other d/short
            rm -r deep/1/2; mkdir new; echo a > new/file; rm d/pipe; mkdir d/pipe
            setfattr -n user.dir -v 2 d; setfattr -n user.more -v 1 d; setfattr -x trusted.hidden d/e
            setfacl -m u:9:r d/e/numbers; touch -d @5 d/null; rm d/disk; mknod d/disk b 7 7
            rm empty/hello-elsewhere; cp -p d/hello empty/hello-elsewhere
            cp --sparse=never d/hole /dev/null"#,
        );
    }
    let expected = "\
! /d: xattrs !user.dir +user.more
! /d/disk: device 259, 70000 -> 7, 7
! /d/e: xattrs -trusted.hidden
! /d/e/f/noise: content from byte 2000000, xattrs -security.capability
! /d/e/numbers: mode 4765 -> 4775, xattrs !system.posix_acl_access
! /d/hello: size 6 -> 13
! /d/hello-again: size 6 -> 13
! /d/null: mtime ...
! /d/pipe: type fifo -> directory
! /d/short: target hello -> other, owner 70000:70001 -> 0:0
! /d/spots: content from byte 5000000
- /deep/1/2
! /empty: mode 0755 -> 0700
! /empty/hello-elsewhere: size 6 -> 13, xattrs -user.big -user.note, links 3 -> 1
+ /new
! /sticky: owner 0:0 -> 9:0
";
    let (code, said) = diff(&[path, other]);
    let expected: Vec<&str> = expected.lines().filter(|line| !line.contains("mtime")).collect();
    assert_eq!((code, said.lines().collect::<Vec<_>>()), (Some(1), expected));
    let (_, timed) = diff(&["--times", path, other]);
    assert!(timed.contains("! /d/null: mtime "), "{timed}");
    let (_, json) = diff(&["--json", "--ignore", "xattrs,links,mode,owner", path, other]);
    let lines = json.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let named: Vec<String> = lines.map(|line| line["path"].as_str().unwrap().into()).collect();
    assert!(named.contains(&"/new".into()) && !named.contains(&"/sticky".into()), "{named:?}");
    assert_eq!(diff(&["-q", path, other]), (Some(1), String::new()));
    assert_eq!(diff(&[path, "/nonexistent"]).0, Some(2));
    assert_eq!(diff(&["/tmp", "/tmp"]).0, Some(2));
    let (code, said) = diff(&[&format!("{path}:/d"), &format!("{other}:/nowhere")]);
    assert_eq!(code, Some(2), "{said}");
}

#[test]
fn a_circle_of_directories_is_reported_and_ends() {
    if !needs("debugfs") {
        return;
    }
    let image = Image::with("16M", &["-O", "^metadata_csum"]);
    let path = image.path.to_str().unwrap();
    lanefs(&["mkdir", "-p", &format!("{path}:/a/b/c")]);
    run(Command::new("debugfs").args(["-w", "-R", "link /a /a/b/c/again", path]));
    let commands = [
        &["find"][..],
        &["du"],
        &["tar"],
        &["chmod", "-R", "700"],
        &["getfacl", "-R"],
        &["ls", "-R"],
        &["tree"],
    ];
    for command in commands {
        let mut run = Command::new("timeout");
        run.args(["20", LANEFS]).args(command).arg(format!("{path}:/"));
        let (status, said) = try_run(&mut run);
        assert_eq!(status.code(), Some(1), "{command:?}: {said}");
        assert!(
            said.contains("/a/b/c/again: damaged: this directory has another name too"),
            "{said}"
        );
    }
}

#[test]
fn a_tree_deeper_than_any_path_is_walked() {
    let image = Image::with("64M", &["-N", "8192"]);
    let path = image.path.to_str().unwrap();
    if !can_mount() {
        return;
    }
    {
        let Some(kernel) = KernelMounted::new(&image.path, "kernel", "rw") else { return };
        let script = "import os\nfor n in range(3000):\n os.mkdir('dddd'); os.chdir('dddd')\nopen('end', 'w').write('x')";
        shell(&kernel.path, &format!("python3 -c \"{script}\""));
    }
    let found = lanefs(&["find", path, "-name", "end"]);
    assert_eq!(found.trim_end().len(), path.len() + 2 + 3000 * 5 + 3);
    assert_eq!(lanefs(&["du", "-s", "--inodes", path]).split('\t').next(), Some("3003"));
    assert!(lanefs(&["ls", "-R", path]).contains("/dddd:\nend\n\n"));
    assert!(lanefs(&["tree", path]).ends_with("lost+found\n\n3001 directories, 1 file\n"));
    let built = image.dir.path().join("built.img");
    let built = built.to_str().unwrap();
    shell(
        Path::new("/"),
        &format!("{LANEFS} tar {path} | {LANEFS} mkfs -q --size 64M {built} --from -"),
    );
    assert_eq!(lanefs(&["diff", "--times", path, built]), "");
}

/// Makes a chain of directories whose path is longer than a system call accepts, with files at its
/// end.
fn deepen(top: &Path) {
    use rustix::fs::{AtFlags, CWD, Mode, OFlags, linkat, mkdirat, openat, symlinkat};
    let open = OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut dir = openat(CWD, top, open, Mode::empty()).unwrap();
    for _ in 0..1000 {
        mkdirat(&dir, "deep", Mode::RWXU).unwrap();
        dir = openat(&dir, "deep", open, Mode::empty()).unwrap();
    }
    for name in ["full", "sparse"] {
        let create = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
        let mut file = std::fs::File::from(openat(&dir, name, create, Mode::RWXU).unwrap());
        file.write_all(b"data").unwrap();
        file.set_len(if name == "sparse" { 1 << 20 } else { 4 }).unwrap();
    }
    linkat(&dir, "full", &dir, "again", AtFlags::empty()).unwrap();
    symlinkat("full", &dir, "link").unwrap();
}

/// Runs the command with a limit of open files.
fn with_few_descriptors(dir: &Path, arguments: &str) -> String {
    shell(dir, &format!("ulimit -n 64; {LANEFS} {arguments}"))
}

#[test]
fn a_tree_deeper_than_the_longest_path_is_copied_and_compared() {
    let dir = scratch();
    let dir = dir.path();
    shell(dir, "mkdir tree out");
    deepen(&dir.join("tree"));
    with_few_descriptors(dir, "mkfs -q built.img --size auto --from tree");
    assert_clean(&dir.join("built.img"));
    assert_eq!(with_few_descriptors(dir, "diff --times built.img tree"), "");
    with_few_descriptors(dir, "cp -a built.img:/deep out");
    assert_eq!(with_few_descriptors(dir, "diff --times out/deep built.img:/deep"), "");
    with_few_descriptors(dir, "mkfs -q copied.img 64M");
    with_few_descriptors(dir, "cp -a tree/deep copied.img:/");
    assert_clean(&dir.join("copied.img"));
    assert_eq!(with_few_descriptors(dir, "diff --times copied.img:/deep out/deep"), "");
    shell(dir, "rm -rf tree out");
}

#[test]
fn many_small_sparse_files_need_few_descriptors() {
    let dir = scratch();
    let dir = dir.path();
    shell(dir, "mkdir tree; for n in $(seq 600); do echo $n >tree/$n; done; truncate -s 9K tree/*");
    with_few_descriptors(dir, "mkfs -q a.img -b 1024 --size auto --from tree");
    assert_eq!(with_few_descriptors(dir, "diff a.img tree"), "");
}
