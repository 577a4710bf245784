//! A table of unusual, damaged and hostile archives. Each must result in an error, or in the tree
//! that GNU tar unpacks into the kernel's ext4. `--nocapture` prints the table of `docs/results/`.

use crate::archive::{entry, extended, file, header, link, pax, seal};
use crate::image::{Mounted, assert_clean, can_mount, scratch, shell, try_build};
use lanefs_build::{Builder, Source};
use std::io::Cursor;
use std::path::Path;
use std::process::Command;

/// The result of comparing what Lanefs makes of an archive with what GNU tar makes of it. GNU tar
/// runs as root on the kernel's ext4.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    /// Both make the same tree.
    Same,
    /// Lanefs and GNU tar both report an error.
    Refused,
    /// Only GNU tar makes a tree; Lanefs reports an error.
    OnlyTar,
    /// Only Lanefs makes a tree; GNU tar reports an error.
    OnlyLanefs,
}
use Verdict::{OnlyLanefs, OnlyTar, Refused, Same};

/// The description of an archive, its bytes, and the expected result.
type Case = (&'static str, Vec<u8>, Verdict);

/// Joins entries, and adds the two blocks of zeros that end an archive.
fn tar(parts: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = parts.concat();
    bytes.resize(bytes.len() + 1024, 0);
    bytes
}

fn changed(mut header: Vec<u8>, at: usize, bytes: &[u8]) -> Vec<u8> {
    header[at..at + bytes.len()].copy_from_slice(bytes);
    seal(&mut header[..512]);
    header
}

fn directory(name: &str) -> Vec<u8> {
    changed(link(name, b'5', ""), 100, b"0000755")
}

fn device(kind: u8, major: &[u8; 8], minor: &[u8; 8]) -> Vec<u8> {
    changed(changed(link("device", kind, ""), 329, major), 337, minor)
}

fn named(path: &str) -> Vec<u8> {
    tar(&[pax(&[("path", path)]), file("f", b"x")])
}

fn names() -> Vec<Case> {
    let part = |len: usize| "n".repeat(len);
    let deep = vec![part(200); 15].join("/");
    let not_utf8 = changed(file("name", b"x"), 0, b"n\xff\xfee");
    vec![
        ("absolute name", tar(&[file("/etc/motd", b"x")]), Same),
        ("empty and `.` parts in a name", tar(&[file("./a//b/./c", b"x")]), Same),
        ("`..` at the start of a name", tar(&[file("../evil", b"x")]), Refused),
        ("`..` inside of a name", tar(&[file("a/../../evil", b"x")]), Refused),
        ("`..` that stays in the tree", tar(&[file("a/../b", b"x")]), Refused),
        (
            "the root itself",
            tar(&[changed(directory("./"), 100, b"0000711"), file("f", b"")]),
            Same,
        ),
        ("no name", tar(&[file("", b"x")]), Refused),
        ("part of 255 bytes", named(&part(255)), Same),
        ("part of 256 bytes", named(&part(256)), Refused),
        ("name of 3,000 bytes", named(&deep), Same),
        ("NUL in a pax name", named("a\0b"), OnlyTar),
        ("name that is not UTF-8", tar(&[not_utf8]), Same),
        ("name with a new line and an escape", tar(&[file("a\n\x1b[31mb", b"x")]), Same),
        ("file whose name ends in a slash", tar(&[file("d/", b"")]), Same),
        (
            "file whose name ends in a slash, with a size",
            tar(&[file("d/", &file("hidden", b"")), file("f", b"x")]),
            Same,
        ),
        ("prefix of ustar", tar(&[changed(file("f", b"x"), 345, b"pre/fix")]), Same),
    ]
}

fn links() -> Vec<Case> {
    let target = "t".repeat(4095);
    let to = |target: &str| tar(&[pax(&[("linkpath", target)]), link("l", b'2', "")]);
    let many = |name: char, count: u32| -> Vec<Vec<u8>> {
        let first = file(&format!("{name}"), b"x");
        let target = name.to_string();
        let links = (1..count).map(|n| link(&format!("d{name}/{n}"), b'1', &target));
        std::iter::once(first).chain(links).collect()
    };
    vec![
        ("symbolic link out of the tree", tar(&[link("l", b'2', "../../etc/passwd")]), Same),
        ("symbolic link of 4,095 bytes", to(&target), Same),
        ("symbolic link of 4,096 bytes", to(&format!("{target}t")), Refused),
        ("empty symbolic link", tar(&[link("l", b'2', "")]), Refused),
        (
            "name through a link to a directory",
            { tar(&[file("d/x", b"x"), link("l", b'2', "d"), file("l/f", b"x")]) },
            Same,
        ),
        (
            "name through a link with `..`",
            { tar(&[link("up", b'2', "../../.."), file("up/evil", b"x")]) },
            OnlyLanefs,
        ),
        (
            "name through an absolute link",
            { tar(&[link("abs", b'2', "/tmp"), file("abs/evil", b"x")]) },
            OnlyLanefs,
        ),
        (
            "name through a circle of links",
            { tar(&[link("a", b'2', "b"), link("b", b'2', "a"), file("a/x", b"")]) },
            Refused,
        ),
        ("hard link with `..`", tar(&[link("h", b'1', "../../etc/passwd")]), Refused),
        ("hard link to an absolute name", tar(&[file("f", b"x"), link("h", b'1', "/f")]), Same),
        ("hard link to an absolute name outside", tar(&[link("h", b'1', "/etc/passwd")]), Refused),
        ("hard link before its file", tar(&[link("h", b'1', "f"), file("f", b"x")]), Refused),
        ("hard link to itself", tar(&[link("h", b'1', "h")]), Refused),
        ("hard link to a directory", tar(&[directory("d"), link("h", b'1', "d")]), Refused),
        (
            "hard link to a symbolic link",
            { tar(&[link("l", b'2', "f"), link("h", b'1', "l")]) },
            Same,
        ),
        (
            "hard link twice",
            { tar(&[file("f", b"x"), link("h", b'1', "f"), link("h", b'1', "f")]) },
            Same,
        ),
        (
            "100,000 hard links of two files",
            tar(&[many('a', 50_000), many('b', 50_000)].concat()),
            Same,
        ),
        ("100,000 hard links of one file", tar(&many('a', 100_000)), Refused),
    ]
}

fn duplicates() -> Vec<Case> {
    vec![
        ("file twice", tar(&[file("f", b"old"), file("f", b"new")]), Same),
        (
            "file twice, with a hard link to the first",
            { tar(&[file("f", b"old"), link("h", b'1', "f"), file("f", b"new")]) },
            Same,
        ),
        ("symbolic link over a file", tar(&[file("f", b"x"), link("f", b'2', "to")]), Same),
        ("file over a symbolic link", tar(&[link("f", b'2', "to"), file("f", b"x")]), Same),
        (
            "directory twice, with another mode",
            { tar(&[directory("d"), file("d/f", b"x"), changed(directory("d"), 100, b"0000700")]) },
            Same,
        ),
        ("directory over a file", tar(&[file("d", b"x"), directory("d")]), Same),
        (
            "directory over a link to a directory",
            { tar(&[directory("d"), link("l", b'2', "d"), directory("l"), file("l/f", b"x")]) },
            Same,
        ),
        ("file over an empty directory", tar(&[directory("d"), file("d", b"x")]), Same),
        ("file over a directory with files", tar(&[file("d/f", b"x"), file("d", b"x")]), Refused),
        ("file below a file", tar(&[file("f", b"x"), file("f/x", b"x")]), Refused),
    ]
}

fn headers() -> Vec<Case> {
    let broken = |mut header: Vec<u8>| {
        header[0] ^= 1;
        header
    };
    let whole = tar(&[file("f", &[7; 5000]), file("g", b"x")]);
    let v7 = changed(file("f", b"x"), 257, &[0; 8]);
    let signed = {
        let mut header = file("f\u{e9}", b"");
        let sum = header[..512]
            .iter()
            .enumerate()
            .map(|(at, byte)| if (148..156).contains(&at) { 32 } else { i32::from(*byte as i8) });
        let text = format!("{:06o}\0", sum.sum::<i32>());
        header[148..155].copy_from_slice(text.as_bytes());
        header
    };
    let large_id = b"\x80\0\0\0\x7f\xff\xff\xf0";
    let early = b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xf0";
    let lone = [file("f", b"x"), vec![0; 512], file("g", b"x")];
    vec![
        ("empty archive", tar(&[]), Same),
        ("no mark of the end", file("f", b"x"), Same),
        ("lone block of zeros", tar(&lone), Same),
        ("garbage after the end", [tar(&[file("f", b"x")]), vec![b'x'; 5000]].concat(), Same),
        ("first header with a wrong checksum", tar(&[broken(file("f", b"x"))]), Refused),
        (
            "second header with a wrong checksum",
            { tar(&[file("f", b"x"), broken(file("g", b"x")), file("h", b"x")]) },
            Refused,
        ),
        ("checksum of signed bytes", tar(&[signed]), Same),
        ("ends in the data", whole[..3000].to_vec(), Refused),
        ("ends in a header", whole[..6000].to_vec(), OnlyTar),
        ("format of Unix v7", tar(&[v7]), Same),
        ("owner of 31 bits, binary", tar(&[changed(file("f", b"x"), 108, large_id)]), Same),
        ("time before 1970, binary", tar(&[changed(file("f", b"x"), 136, early)]), Same),
        ("mode that is no number", tar(&[changed(file("f", b"x"), 100, b"whatever")]), Refused),
        ("size that is no number", tar(&[changed(file("f", b"x"), 124, b"whatever    ")]), Refused),
        ("set-user-ID and sticky", tar(&[changed(file("f", b"x"), 100, b"0005755")]), Same),
        ("contiguous file", tar(&[changed(file("f", b"x"), 156, b"7")]), Same),
        ("unknown type", tar(&[changed(file("f", b"x"), 156, b"Z")]), OnlyTar),
        (
            "directory with a size",
            tar(&[changed(header(b"d/", b'5', 512, b""), 100, b"0000755"), file("f", b"x")]),
            Same,
        ),
        (
            "symbolic link with a size",
            tar(&[header(b"l", b'2', 512, b"f"), file("empty", b""), file("f", b"x")]),
            Same,
        ),
        (
            "volume label with data",
            tar(&[entry(header(b"label", b'V', 512, b""), &file("hidden", b"")), file("f", b"x")]),
            Same,
        ),
        ("volume label", tar(&[link("label", b'V', ""), file("f", b"x")]), Same),
        ("part of a file in several volumes", tar(&[link("f", b'M', "")]), Refused),
        (
            "directory of an incremental dump",
            {
                let names = b"Yf\0\0";
                tar(&[
                    entry(changed(header(b"d/", b'D', 4, b""), 100, b"0000755"), names),
                    file("d/f", b"x"),
                ])
            },
            Same,
        ),
        ("character device", tar(&[device(b'3', b"0000001\0", b"0000005\0")]), Same),
        (
            "device with one number in a record",
            tar(&[pax(&[("SCHILY.devmajor", "1")]), device(b'3', b"0000001\0", b"0000005\0")]),
            Same,
        ),
        ("block device with large numbers", tar(&[device(b'4', b"0000403\0", b"0210560\0")]), Same),
        ("pipe", tar(&[link("p", b'6', "")]), Same),
    ]
}

fn extensions() -> Vec<Case> {
    let next = file("f", b"x");
    let with = |records: &[(&str, &str)]| tar(&[pax(records), next.clone()]);
    let raw = |data: &[u8]| tar(&[extended(b'x', data), next.clone()]);
    let comment = |mib: usize| "c".repeat(mib << 20);
    let long = |kind: u8, len: usize| {
        let mut name = vec![b'n'; len];
        name.iter_mut().skip(100).step_by(100).for_each(|byte| *byte = b'/');
        name.push(0);
        extended(kind, &name)
    };
    let global = |records: &[(&str, &str)]| changed(pax(records), 156, b"g");
    vec![
        ("pax: 7 MiB of comment", with(&[("comment", &comment(7))]), Same),
        ("pax: 9 MiB of comment", with(&[("comment", &comment(9))]), OnlyTar),
        (
            "pax: a header that claims 8 GiB",
            { tar(&[changed(extended(b'x', b""), 124, b"77777777777")]) },
            Refused,
        ),
        ("pax: unknown keys", with(&[("VENDOR.key", "value"), ("comment", "")]), Same),
        (
            "pax: owner and time",
            { with(&[("uid", "4000000000"), ("gid", "70000"), ("mtime", "1234567890.123456789")]) },
            Same,
        ),
        ("pax: time before 1970", with(&[("mtime", "-1.5")]), Same),
        ("pax: time after 2446", with(&[("mtime", "99999999999")]), OnlyTar),
        ("pax: time that is no number", with(&[("mtime", "soon")]), Refused),
        ("pax: record without a length", raw(b"path=x\n"), Refused),
        ("pax: record that is too long", raw(b"99 path=x\n"), Refused),
        ("pax: record without a new line", raw(b"9 path=xy"), Refused),
        ("pax: header at the end", tar(&[pax(&[("path", "x")])]), Same),
        (
            "pax: global header",
            { tar(&[global(&[("uid", "1234"), ("comment", "x")]), next.clone(), file("g", b"y")]) },
            Same,
        ),
        (
            "pax: global header between a header and its entry",
            tar(&[pax(&[("path", "new")]), global(&[("uid", "1234")]), next.clone()]),
            Same,
        ),
        (
            "pax: two headers for one file",
            tar(&[pax(&[("path", "one"), ("uid", "7")]), pax(&[("gid", "8")]), next.clone()]),
            Same,
        ),
        (
            "pax: size that differs from the header's",
            { tar(&[pax(&[("size", "3")]), entry(header(b"f", b'0', 0, b""), b"abc")]) },
            Same,
        ),
        (
            "pax: attributes",
            { with(&[("SCHILY.xattr.user.a", "1"), ("SCHILY.xattr.trusted.b", "2")]) },
            Same,
        ),
        (
            "pax: access control list",
            {
                with(&[(
                    "SCHILY.acl.access",
                    "user::rw-,user:7:r--,group::r--,mask::r--,other::r--",
                )])
            },
            Same,
        ),
        (
            "pax: access control list that differs from the mode",
            {
                with(&[(
                    "SCHILY.acl.access",
                    "user::rwx,user:55:rwx,group::r-x,mask::r--,other::---",
                )])
            },
            Same,
        ),
        (
            "pax: attribute whose name has = and %",
            with(&[("SCHILY.xattr.user.a%3D%25", "1")]),
            Same,
        ),
        (
            "pax: attribute that ext4 does not store",
            with(&[("SCHILY.xattr.btrfs.x", "1")]),
            OnlyTar,
        ),
        (
            "pax: attribute of 8,000 bytes",
            { with(&[("SCHILY.xattr.user.x", &"v".repeat(8000))]) },
            OnlyTar,
        ),
        ("GNU: long name", tar(&[long(b'L', 3000), next.clone()]), Same),
        ("GNU: long link", tar(&[long(b'K', 3000), link("l", b'2', "short")]), Same),
        (
            "GNU: two long names for one file",
            { tar(&[long(b'L', 150), long(b'L', 250), next.clone()]) },
            Same,
        ),
        ("GNU: long name of 0 bytes", tar(&[extended(b'L', b""), next.clone()]), Refused),
        (
            "GNU: long name that claims 8 GiB",
            { tar(&[changed(extended(b'L', b""), 124, b"77777777777")]) },
            Refused,
        ),
        (
            "sparse: pieces in the wrong order",
            {
                let map = [("GNU.sparse.map", "700,1,0,2"), ("GNU.sparse.size", "1000")];
                tar(&[pax(&map), file("f", b"abc")])
            },
            Refused,
        ),
        (
            "sparse: piece beyond the size",
            {
                let map = [("GNU.sparse.map", "0,3"), ("GNU.sparse.size", "2")];
                tar(&[pax(&map), file("f", b"abc")])
            },
            Refused,
        ),
    ]
}

/// Returns archives of sparse files and hard links that GNU tar itself writes, in each format.
fn by_gnu_tar(dir: &Path) -> Vec<Case> {
    shell(
        dir,
        "mkdir t; truncate -s 300M t/s; for n in {1..40}; do
            printf piece$n | dd of=t/s bs=1 seek=$((n * 7000001)) conv=notrunc status=none; done
        truncate -s 9G t/all; ln t/s t/again; touch -d @1.5 t t/*",
    );
    let made = |options: &str| {
        shell(dir, &format!("tar -cf made.tar {options} -C t ."));
        std::fs::read(dir.join("made.tar")).expect("the archive")
    };
    vec![
        ("sparse: format of GNU", made("-H gnu --sparse"), Same),
        ("sparse: pax 0.0", made("-H pax --sparse-version=0.0 --sparse"), Same),
        ("sparse: pax 0.1", made("-H pax --sparse-version=0.1 --sparse"), Same),
        ("sparse: pax 1.0", made("-H pax --sparse-version=1.0 --sparse"), Same),
    ]
}

/// Describes a tree. A directory that has no entry in the archive has the time at which it was
/// unpacked. This time is shown as `now`.
fn survey(dir: &Path) -> String {
    let files = shell(
        dir,
        "find . -path ./lost+found -prune -o -type d -printf '%P\\0%m %U %G %T@ %y\\n' \
         -o -printf '%P\\0%m %U %G %T@ %y %s %n %l %D\\n' | tr '\\0' ' ' | sed 's/ [0-9]*$//' \
         | sed -E 's/ 1[6-9][0-9]{8}\\.[0-9]+ d/ now d/' | sort | md5sum",
    );
    let attributes =
        shell(dir, "getfattr -h -R -d -m - -e hex . 2>/dev/null | sed /selinux/d | md5sum");
    let devices = shell(dir, "find . -type c -o -type b | sort | xargs -r stat -c '%n %t %T'");
    let sums = "find . -type f -size -1G -links -3 -print0 | sort -z | xargs -0r md5sum";
    [files, attributes, devices, shell(dir, sums)].concat()
}

/// Unpacks an archive with GNU tar. Returns its tree, or the first line of the errors.
fn by_tar(dir: &Path, archive: &Path) -> Result<String, String> {
    std::fs::create_dir(dir).expect("a directory");
    let output = Command::new("tar")
        .args(["-xp", "--numeric-owner", "--xattrs", "--xattrs-include=*", "--acls", "-C"])
        .arg(dir)
        .arg("-f")
        .arg(archive)
        .env("LC_ALL", "C")
        .output()
        .expect("GNU tar");
    let result = match output.status.success() {
        true => Ok(survey(dir)),
        false => Err(String::from_utf8_lossy(&output.stderr).lines().next().unwrap_or("").into()),
    };
    std::fs::remove_dir_all(dir).expect("the directory");
    result
}

fn by_lanefs(image: &Path, bytes: Vec<u8>) -> Result<String, String> {
    let source = Source::stream(Cursor::new(bytes));
    try_build(image, Builder::new().source(source)).map_err(|error| error.to_string())?;
    assert_clean(image);
    Ok(survey(Mounted::new(image).path()))
}

#[test]
fn each_archive_gives_an_error_or_the_tree_of_gnu_tar() {
    if !can_mount() {
        println!("skipped: archives against GNU tar: no loop devices for this user");
        return;
    }
    let dir = scratch();
    let dir = dir.path();
    shell(
        dir,
        "mkdir k.mounted; mke2fs -q -t ext4 -N 200000 k.img 600M; mount -o loop k.img k.mounted",
    );
    let kernel = Unmounted(dir.join("k.mounted"));
    let cases = [names(), links(), duplicates(), headers(), extensions(), by_gnu_tar(dir)].concat();
    let mut wrong = Vec::new();
    for (name, bytes, expected) in cases {
        let archive = dir.join("a.tar");
        std::fs::write(&archive, &bytes).expect("the archive");
        let tar = by_tar(&kernel.0.join("x"), &archive);
        let lanefs = by_lanefs(&dir.join("a.img"), bytes);
        let found = match (&lanefs, &tar) {
            (Ok(lanefs), Ok(tar)) if lanefs == tar => Some(Same),
            (Ok(_), Ok(_)) => None,
            (Err(_), Err(_)) => Some(Refused),
            (Err(_), Ok(_)) => Some(OnlyTar),
            (Ok(_), Err(_)) => Some(OnlyLanefs),
        };
        let said = lanefs.as_ref().err().map(|error| error.chars().take(90).collect::<String>());
        println!("| {name} | {} | {} |", row(found), said.unwrap_or_default());
        if found != Some(expected) {
            wrong.push(format!("{name}: {found:?}, expected {expected:?}\n{lanefs:?}\n{tar:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

fn row(found: Option<Verdict>) -> &'static str {
    match found {
        Some(Same) => "the same tree",
        Some(Refused) => "both refuse it",
        Some(OnlyTar) => "only Lanefs refuses it",
        Some(OnlyLanefs) => "only GNU tar refuses it",
        None => "DIFFERENT",
    }
}

/// Unmounts a directory when it is dropped.
struct Unmounted(std::path::PathBuf);

impl Drop for Unmounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}
