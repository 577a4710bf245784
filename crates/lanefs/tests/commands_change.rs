//! The commands that change an image, the kernel and e2fsck judging.

mod mounting;

use mounting::{Image, KernelMounted, LANEFS, assert_clean, can_mount, run, shell, try_run};
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
fn what_the_commands_did_is_what_the_kernel_finds() {
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
    fails(&["rm", "-rf", &place("/")]);
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
