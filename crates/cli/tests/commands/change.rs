//! Tests of the commands that change an image; the kernel and e2fsck check the results.

use crate::mounting;

use crate::mounting::{Image, KernelMounted, LANEFS, assert_clean, can_mount, run, shell, try_run};
use std::path::Path;
use std::process::Command;

fn lanefs(arguments: &[&str]) -> String {
    run(Command::new(LANEFS).args(arguments))
}

fn fails(arguments: &[&str]) -> String {
    let (status, said) = try_run(Command::new(LANEFS).args(arguments));
    assert_eq!(status.code(), Some(1), "{arguments:?}: {said}");
    said
}

fn at(image: &Path, path: &str) -> String {
    format!("{}:{path}", image.display())
}

#[test]
fn the_kernel_finds_the_changes_of_the_commands() {
    if !can_mount() {
        return;
    }
    let image = Image::new("64M");
    let place = |path: &str| at(&image.path, path);
    lanefs(&["mkdir", "-p", &place("/a/b/c"), &place("/x")]);
    lanefs(&["mkdir", "-m", "1770", &place("/sticky")]);
    lanefs(&["touch", "-d", "2020-02-02T02:02:02Z", &place("/a/file")]);
    lanefs(&["truncate", "-s", "5M", &place("/a/big")]);
    lanefs(&["truncate", "-s", "-1M", &place("/a/big")]);
    lanefs(&["ln", "-s", "../a/file", &place("/x/link")]);
    lanefs(&["ln", &place("/a/file"), &place("/x/hard")]);
    lanefs(&["chmod", "u=rwx,go=", &place("/a/file")]);
    lanefs(&["chown", "-h", "12:34", &place("/x/link")]);
    lanefs(&["chown", "-R", "1000:1000", &place("/a")]);
    lanefs(&["chmod", "-R", "g+X", &place("/a")]);
    lanefs(&["mv", &place("/a/big"), &place("/x/large")]);
    lanefs(&["touch", "-d", "2020-02-02T02:02:02Z", &place("/a/file")]);
    assert_clean(&image.path);
    let Some(kernel) = KernelMounted::new(&image.path, "kernel", "ro") else { return };
    let said = shell(
        &kernel.path,
        "find . -path ./lost+found -prune -o -printf '%P %y %m %U:%G %n %s %l\n' | LC_ALL=C sort;
         stat -c %Y a/file",
    );
    let lines: Vec<&str> = said.lines().collect();
    for expected in [
        "a/file f 710 1000:1000 2 0 ",
        "x/hard f 710 1000:1000 2 0 ",
        "x/large f 644 1000:1000 1 4194304 ",
        "x/link l 777 12:34 1 9 ../a/file",
        "1580608922",
    ] {
        assert!(lines.contains(&expected), "{expected}:\n{said}");
    }
    for expected in ["a/b/c d 755 1000:1000", "sticky d 1770 0:0", "x d 755 0:0"] {
        assert!(lines.iter().any(|line| line.starts_with(expected)), "{expected}:\n{said}");
    }
}

#[test]
fn removing_asks_for_the_right_words() {
    let image = Image::new("16M");
    let place = |path: &str| at(&image.path, path);
    lanefs(&["mkdir", "-p", &place("/d/e")]);
    lanefs(&["touch", &place("/d/f")]);
    assert!(fails(&["rm", &place("/d")]).contains("is a directory"));
    assert!(fails(&["rm", "-d", &place("/d")]).contains("not empty"));
    assert!(fails(&["rm", &place("/none")]).contains("no such file or directory"));
    lanefs(&["rm", "-f", &place("/none"), &place("/d/f")]);
    lanefs(&["rm", "-d", &place("/d/e")]);
    lanefs(&["rm", "-r", &place("/d")]);
    for root in ["/", "", "/."] {
        let said = fails(&["rm", "-rf", &place(root)]);
        assert!(said.contains("the root directory cannot be removed"), "{said}");
    }
    assert_eq!(lanefs(&["ls", &place("/")]), "lost+found\n");
    assert_clean(&image.path);
}

#[test]
fn a_large_tree_is_removed_whole() {
    if !can_mount() {
        return;
    }
    let image = Image::new("64M");
    {
        let Some(kernel) = KernelMounted::new(&image.path, "kernel", "rw") else { return };
        shell(
            &kernel.path,
            "mkdir t; cd t; for d in $(seq 20); do mkdir $d; (cd $d; seq 200 | xargs touch); done;
             p=.; for n in $(seq 100); do p=$p/deep; mkdir $p; done; echo x > $p/x;
             dd if=/dev/zero of=big bs=1M count=20 status=none",
        );
    }
    let df = |flag: &str| {
        let said = lanefs(&["df", flag, image.path.to_str().unwrap()]);
        said.lines().nth(1).unwrap().to_owned()
    };
    lanefs(&["rm", "-r", &at(&image.path, "/t")]);
    assert_clean(&image.path);
    let fresh = Image::new("64M");
    let used = |line: &str| line.split_whitespace().nth(2).unwrap().to_owned();
    let said = lanefs(&["df", "-i", fresh.path.to_str().unwrap()]);
    assert_eq!(used(&df("-i")), used(said.lines().nth(1).unwrap()));
}

#[test]
fn names_are_those_of_the_image() {
    let image = Image::new("16M");
    let place = |path: &str| at(&image.path, path);
    lanefs(&["mkdir", &place("/etc")]);
    std::fs::write(image.dir.path().join("passwd"), "ann:x:4711:815::/:/bin/sh\n").unwrap();
    std::fs::write(image.dir.path().join("group"), "crew:x:815:\n").unwrap();
    let host = |name: &str| image.dir.path().join(name).to_str().unwrap().to_owned();
    lanefs(&["cp", &host("passwd"), &host("group"), &place("/etc")]);
    lanefs(&["touch", &place("/f")]);
    lanefs(&["chown", "ann:crew", &place("/f")]);
    assert_eq!(lanefs(&["stat", "-c", "%u:%g %U:%G", &place("/f")]), "4711:815 ann:crew\n");
    assert!(lanefs(&["ls", "-l", &place("/f")]).contains(" ann crew "));
    assert!(lanefs(&["ls", "-ln", &place("/f")]).contains(" 4711 815 "));
    assert!(fails(&["chown", "bob", &place("/f")]).contains("no such user: bob"));
    assert_clean(&image.path);
}

#[test]
fn an_image_in_use_is_not_touched() {
    if !can_mount() {
        return;
    }
    let image = Image::new("16M");
    let mounted = mounting::Mounted::new(&image, &[]);
    let said = fails(&["touch", &at(&image.path, "/f")]);
    assert!(said.contains("in use"), "{said}");
    mounted.umount();
    lanefs(&["touch", &at(&image.path, "/f")]);
    assert_clean(&image.path);
}

#[test]
fn two_names_of_one_file_are_not_moved_onto_each_other() {
    let image = Image::new("16M");
    let place = |path: &str| at(&image.path, path);
    lanefs(&["touch", &place("/f")]);
    lanefs(&["ln", &place("/f"), &place("/g")]);
    for target in ["/f", "/g", "/../f"] {
        let said = fails(&["mv", &place("/f"), &place(target)]);
        assert!(said.contains("is the same file"), "{said}");
    }
    assert!(fails(&["mv", "-n", &place("/f"), &place("/g")]).contains("exists"));
    assert_eq!(lanefs(&["ls", "-A", &place("/")]), "f\ng\nlost+found\n");
    lanefs(&["mv", &place("/f"), &place("/h")]);
    assert_eq!(lanefs(&["ls", "-A", &place("/")]), "g\nh\nlost+found\n");
    assert_clean(&image.path);
}

#[test]
fn a_link_with_a_slash_is_not_removed_as_a_directory() {
    let image = Image::new("16M");
    let place = |path: &str| at(&image.path, path);
    lanefs(&["mkdir", "-p", &place("/d/e")]);
    lanefs(&["ln", "-s", "d", &place("/l")]);
    lanefs(&["touch", &place("/f")]);
    for (option, path) in [("-r", "/l/"), ("-rf", "/l/"), ("-r", "/f/")] {
        let said = fails(&["rm", option, &place(path)]);
        assert!(said.contains("not a directory"), "{said}");
    }
    // As in rm(1), what is no directory does not exist with a slash behind it.
    lanefs(&["rm", "-rf", &place("/f/")]);
    lanefs(&["rm", "-r", &place("/d/")]);
    lanefs(&["rm", "-r", &place("/l")]);
    assert_eq!(lanefs(&["ls", "-A", &place("/")]), "f\nlost+found\n");
    assert_clean(&image.path);
}

#[test]
fn the_owner_that_means_no_change_is_refused() {
    let image = Image::new("16M");
    let file = at(&image.path, "/f");
    lanefs(&["touch", &file]);
    for owner in ["4294967295", ":4294967295", "0:4294967295", "4294967296"] {
        fails(&["chown", owner, &file]);
    }
    let ids = try_run(Command::new(LANEFS).args(["cp", "--owner", "0:4294967295", "x", &file]));
    assert_eq!(ids.0.code(), Some(2));
    lanefs(&["chown", "4294967294", &file]);
    assert_eq!(lanefs(&["stat", "-c", "%u:%g", &file]), "4294967294:0\n");
    assert_clean(&image.path);
}

#[test]
fn the_largest_file_is_as_large_as_the_kernels() {
    if !can_mount() {
        return;
    }
    for (block, size) in [("4096", (1u64 << 44) - 4096), ("1024", (1 << 42) - 1024)] {
        let image = Image::with("64M", &["-b", block]);
        let (ours, last) = (at(&image.path, "/ours"), size - 1);
        lanefs(&["truncate", "-s", &size.to_string(), &ours]);
        assert!(fails(&["truncate", "-s", &(size + 1).to_string(), &ours]).contains("too large"));
        let fs = lanefs::FileSystem::open(&image.path).unwrap();
        let file = fs.create_file("/end").unwrap();
        file.write_all_at(b"z", last).unwrap();
        assert!(file.write_all_at(b"z", size).is_err());
        file.allocate(size - 100_000, 100_000).unwrap();
        drop(file);
        fs.close().unwrap();
        assert_clean(&image.path);
        let Some(kernel) = KernelMounted::new(&image.path, "kernel", "rw") else { return };
        shell(
            &kernel.path,
            &format!(
                "[ $(stat -c %s ours) = {size} ]; [ $(stat -c %s end) = {size} ]
                 [ $(tail -c 1 end) = z ]; ! truncate -s {} ours 2>/dev/null
                 printf k | dd of=theirs bs=1 seek={last} status=none",
                size + 1
            ),
        );
        drop(kernel);
        let fs = lanefs::FileSystem::open(&image.path).unwrap();
        let mut byte = [0];
        let file = fs.open_file("/theirs").unwrap();
        assert_eq!((file.read_at(&mut byte, last).unwrap(), byte), (1, *b"k"));
        drop(file);
        fs.remove_file("/theirs").unwrap();
        fs.remove_file("/end").unwrap();
        fs.close().unwrap();
        assert_clean(&image.path);
    }
}

#[test]
fn ranges_move_and_extents_are_listed_and_joined() {
    let image = Image::new("64M");
    let f = at(&image.path, "/f");
    let dir = mounting::scratch();
    let host = dir.path().join("host");
    let blocks: Vec<u8> = (0..8u8).flat_map(|n| [n + 1; 4096]).collect();
    std::fs::write(&host, &blocks).unwrap();
    lanefs(&["cp", host.to_str().unwrap(), &f]);
    lanefs(&["fallocate", "-c", "-o", "4K", "-l", "8K", &f]);
    lanefs(&["fallocate", "--insert-range", "-o", "4K", "-l", "4K", &f]);
    let moved = [&blocks[..4096], &[0; 4096], &blocks[3 * 4096..]].concat();
    let output = Command::new(LANEFS).args(["cat", &f]).output().unwrap();
    assert!(output.stdout == moved);
    let listed = |file: &str| -> serde_json::Value {
        serde_json::from_str(&lanefs(&["filefrag", "--json", file])).unwrap()
    };
    let extents = listed(&f)["extents"].as_array().unwrap().clone();
    assert_eq!(extents.len(), 2, "{extents:?}");
    assert_eq!((&extents[1]["offset"], &extents[1]["len"]), (&8192.into(), &20480.into()));
    assert_eq!(extents[1]["flags"], serde_json::json!(["last"]));
    assert!(lanefs(&["filefrag", &f]).starts_with(&format!("{f}: 2 extents\n")));
    let refused = fails(&["fallocate", "-c", "-o", "1", "-l", "4K", &f]);
    assert!(refused.contains("/f: ") && refused.contains("whole blocks"), "{refused}");
    let refused = fails(&["fallocate", "-c", "-o", "0", "-l", "1M", &f]);
    assert!(refused.contains("reaches the end"), "{refused}");

    // Two files grow alternately, so that each gets many extents.
    let [a, b] = ["/a", "/b"].map(|name| at(&image.path, name));
    lanefs(&["touch", &a, &b]);
    for n in 0..8 {
        for file in [&a, &b] {
            lanefs(&["fallocate", "-o", &format!("{}K", 4 * n), "-l", "4K", file]);
        }
    }
    let before = listed(&a)["extents"].as_array().unwrap().len();
    let said: serde_json::Value = serde_json::from_str(&lanefs(&["defrag", "--json", &a])).unwrap();
    assert_eq!(said["before"].as_array().unwrap().len(), before);
    assert_eq!(said["after"], listed(&a)["extents"]);
    assert!(before > 4 && said["after"].as_array().unwrap().len() == 1, "{said}");
    // Defragments the whole image, after the second file was moved into a directory.
    lanefs(&["mkdir", &at(&image.path, "/d")]);
    lanefs(&["mv", &b, &at(&image.path, "/d/b")]);
    lanefs(&["ln", "-s", "/nowhere", &at(&image.path, "/d/link")]);
    let b = at(&image.path, "/d/b");
    assert!(listed(&b)["extents"].as_array().unwrap().len() > 4);
    let said = lanefs(&["defrag", image.path.to_str().unwrap()]);
    assert_eq!(said.lines().count(), 3, "{said}");
    assert_eq!(listed(&b)["extents"].as_array().unwrap().len(), 1, "{said}");
    assert!(fails(&["defrag", &at(&image.path, "/d/link")]).contains("/d/link: "));
    assert_clean(&image.path);
}

#[test]
fn features_are_set_by_the_first_file_that_uses_them() {
    if !can_mount() {
        return;
    }
    for (ours, theirs) in [
        ("truncate -s 2147483647 @/f", "truncate -s 2147483647 f"),
        ("truncate -s 2147483648 @/f", "truncate -s 2147483648 f"),
        ("setfattr -n user.a -v 1 @/", "setfattr -n user.a -v 1 ."),
        ("setfacl -m u:1:r @/", "setfacl -m u:1:r ."),
        ("touch @/f", "touch f"),
    ] {
        for inode_size in ["128", "256"] {
            let options = ["-O", "^ext_attr,^large_file,^metadata_csum", "-I", inode_size];
            let (image, other) = (Image::with("16M", &options), Image::with("16M", &options));
            let place = format!("{}:", image.path.display());
            shell(Path::new("/"), &format!("{LANEFS} {}", ours.replace('@', &place)));
            let Some(kernel) = KernelMounted::new(&other.path, "kernel", "rw") else { return };
            shell(&kernel.path, theirs);
            drop(kernel);
            let features = [&image, &other].map(|image| {
                let path = image.path.display();
                shell(Path::new("/"), &format!("dumpe2fs -h {path} 2>/dev/null | grep features:"))
            });
            assert_eq!(features[0], features[1], "{ours}, inodes of {inode_size} bytes");
            assert_clean(&image.path);
        }
    }
}

/// Commands that fail, and the reason. `@` is the image; the host's files are in the working
/// directory.
const FAILING: &[(&str, &str)] = &[
    ("the same file", "ln -f @:/only @:/only"),
    ("the same file by another path", "ln -f @:/only @:/d/../only"),
    ("a link to itself", "ln -sf only @:/only"),
    ("no source", "ln -f @:/none @:/only"),
    ("a directory", "ln -f @:/d @:/only"),
    ("a text that is too long", "ln -sf $long$long$long$long$long$long @:/only"),
    ("a name that is too long", "ln -f @:/only @:/$long$long"),
    ("no source", "cp @:/none @:/only"),
    ("no source on the host", "cp none @:/only"),
    ("a directory without -r", "cp @:/d @:/only"),
    ("a directory over a file", "cp -rT @:/d @:/only"),
    ("a file over a directory", "cp -T @:/only @:/d"),
    ("a file over a directory of that name", "cp @:/only @:/"),
    ("the same file", "cp @:/only @:/only"),
    ("the same file", "cp -a @:/two @:/d/two"),
    ("no space", "cp big @:/only"),
    ("no space for a file of two names", "cp big @:/two"),
    ("no space for a file that replaces a link", "cp -a big @:/link"),
    ("no space for a file that replaces one of two names", "cp -a big @:/two"),
    ("no space for a stream", "cp - @:/only <big"),
    ("no space for a stream through a link", "cp - @:/link <big"),
    ("a link that is too long", "cp -d far @:/only"),
    ("a file that must not be changed", "cp f @:/fixed"),
    ("a file that must not be changed", "cp - @:/fixed <f"),
    ("a file that must not be replaced", "cp -a far @:/fixed"),
    ("a file that must not be replaced", "ln -f @:/only @:/fixed"),
    ("a file for a device", "cp f @:/null"),
    ("a name that is too long", "cp f @:/$long$long"),
    ("no space", "mv big @:/only"),
    ("no source", "mv none @:/only"),
    ("a directory over a file", "mv -T t @:/only"),
    ("a directory over one that is not empty", "mv -T t @:/d"),
    ("a file that must not be replaced", "mv f @:/fixed"),
    ("the same file", "mv @:/only @:/only"),
    ("a directory into itself", "mv @:/d @:/d/e/f"),
    ("no space", "edit @ -c 'write /only new' -c 'put big /two'"),
    ("a later line", "edit @ -c 'get /d/two f' -c 'get /only two' -c 'rm /none'"),
    ("no source", "edit @ -c 'get /none f'"),
    ("no source", "cp @:/none f"),
    ("a directory", "cp @:/d f"),
    ("a directory over a file", "cp -r @:/d f"),
    ("no space", "cp @:/wide small/f"),
    ("no space", "tar -f small/f @"),
    ("no space for a new file", "tar -f small/new @"),
    ("a later line", "edit @ -c 'get /only new' -c 'rm /none'"),
    ("no space", "edit @ -c 'get /wide small/f'"),
    ("no space", "mv @:/wide small/f"),
    ("no source", "tar -f f @:/none"),
    ("an image that exists", "mkfs other --size 16M"),
    ("a source that does not exist", "mkfs -F other --from none"),
    ("no archive", "mkfs -F other --size 2M --from big"),
    ("files that do not fit", "mkfs -q -F other --size 2M -d much"),
    // Also on tmpfs, where a file can have this size.
    ("a size that is out of range", "mkfs -F other --size 7E"),
    ("a size that is out of range, behind others", "mkfs -F other --offset 1M --size 7E"),
    ("a size that is out of range, with files", "mkfs -F other --size 7E --from t"),
    ("a size that is out of range, both", "mkfs -F other --offset 1M --size 7E --from t"),
    ("a journal that is out of range", "mkfs -F -O journal_dev other --size 7E"),
    ("an image that exists, as a journal", "mkfs -O journal_dev other --size 16M"),
    ("an image that exists", "clone @ other"),
    ("no image", "clone --force f other"),
];

#[test]
#[ignore = "long: fills a small image many times"]
fn a_command_that_fails_leaves_its_destination_as_it_was() {
    if !can_mount() {
        return;
    }
    let image = Image::with("16M", &["-b", "1024"]);
    let Some(kernel) = KernelMounted::new(&image.path, "kernel", "rw") else { return };
    shell(
        &kernel.path,
        "echo only >only; mkdir -p d/e d/only; echo two >two; ln two d/two; ln -s only link
        mknod null c 1 3; echo fixed >fixed; chattr +i fixed; head -c 3000000 /dev/urandom >wide
        chmod 640 only; setfattr -n user.a -v 1 only",
    );
    drop(kernel);
    let dir = image.dir.path();
    shell(dir, "mkdir small && mount -t tmpfs -o size=1M none small");
    lanefs(&["mkfs", "-q", dir.join("other").to_str().unwrap(), "--size", "4M"]);
    let small = KernelMounted { path: dir.join("small") };
    shell(
        dir,
        "head -c 14M /dev/urandom >big; echo f >f; mkdir t much; echo f >t/f; cp big much/f
        echo two >two; echo old >small/f; ln -s $(printf '%01500d' 1) far",
    );
    let long = "l".repeat(200);
    let state = || {
        // A hole of exabytes would be read for years.
        let script = "ls -A . small t; cat f two small/f t/f; stat -c %s other
            head -c 16M other | cksum; readlink far";
        let host = shell(dir, script);
        let kernel = KernelMounted::new(&image.path, "kernel", "ro").unwrap();
        let script = "find . -path ./lost+found -prune -o -printf '%P %y %m %n %s %l\\n' |
            LC_ALL=C sort; cat only two fixed d/two; getfattr -d only; cksum wide";
        (host, shell(&kernel.path, script))
    };
    let before = state();
    // The state after each command costs more than the command.
    let each = std::env::var_os("LANEFS_SEED").is_some();
    for (reason, command) in FAILING {
        let command = command.replace('@', image.path.to_str().unwrap());
        let line = format!("long={long}; {LANEFS} {command}");
        let (status, said) = try_run(Command::new("sh").args(["-c", &line]).current_dir(dir));
        assert_eq!(status.code(), Some(1), "{reason}: {command}: {said}");
        assert!(!said.contains(".lanefs-"), "{reason}: {command}: {said}");
        if each {
            assert_eq!(state(), before, "{reason}: {command}: {said}");
        }
    }
    assert_eq!(state(), before);
    drop(small);
    shell(dir, "truncate -s 0 big");
    let kernel = KernelMounted::new(&image.path, "kernel", "rw").unwrap();
    shell(&kernel.path, "chattr -i fixed");
    drop(kernel);
    assert_clean(&image.path);
}
