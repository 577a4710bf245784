//! Builds images, and checks them with e2fsck, debugfs and the kernel.
#![allow(dead_code)] // each test program uses a part

use lanefs_build::{Builder, Built, MkfsOptions, Room, Source, Spare};
use lanefs_device::FileDevice;
use lanefs_mkfs::Contents;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Runs a shell command in a directory, and returns its output. If the command fails, panics with
/// its errors.
pub fn shell(dir: &Path, command: &str) -> String {
    let output = Command::new("bash")
        .args(["-euo", "pipefail", "-c", command])
        .current_dir(dir)
        .env("LC_ALL", "C")
        .output()
        .expect("a shell");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command}\n{text}{errors}");
    text
}

/// Returns a temporary directory in memory.
pub fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").expect("a directory in memory")
}

/// Returns whether this user can mount an image with a loop device.
pub fn can_mount() -> bool {
    rustix::process::geteuid().is_root() && Path::new("/dev/loop-control").exists()
}

/// Builds an image that is as small as its files allow, and checks it with e2fsck.
pub fn build(image: &Path, builder: Builder<'_>) -> Built {
    let built = try_build(image, builder).unwrap_or_else(|error| panic!("{error}"));
    assert_clean(image);
    built
}

/// Does the same as [`build`], but returns errors and does not check the image.
pub fn try_build(image: &Path, builder: Builder<'_>) -> lanefs_build::Result<Built> {
    build_in(image, MkfsOptions::default(), Room::Fitted(Spare::default()), builder)
}

/// Does the same as [`build`], with these options.
pub fn build_with(image: &Path, options: MkfsOptions, builder: Builder<'_>) {
    build_in(image, options, Room::Fitted(Spare::default()), builder)
        .unwrap_or_else(|error| panic!("{error}"));
    assert_clean(image);
}

/// Builds an image in a new file.
pub fn build_in(
    image: &Path,
    options: MkfsOptions,
    room: Room,
    builder: Builder<'_>,
) -> lanefs_build::Result<Built> {
    let _ = std::fs::remove_file(image);
    let options = MkfsOptions { contents: Contents::Zeros, reserved_percent: 0.0, ..options };
    let built = {
        let device = FileDevice::create(image, 2 << 30).expect("an image");
        builder.options(options).room(room).build(&device)?
    };
    let file = std::fs::File::options().write(true).open(image).expect("the image");
    file.set_len(built.bytes()).expect("cut to its size");
    Ok(built)
}

/// Builds from one source.
pub fn build_from(image: &Path, source: Source) -> Built {
    build(image, Builder::new().source(source))
}

pub fn assert_clean(image: &Path) {
    let output = Command::new("e2fsck").arg("-fn").arg(image).output().expect("e2fsck");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}: {text}", image.display());
}

/// Describes a tree: names, modes, owners, times, types, links, devices, targets, attributes and
/// contents. The description leaves out `lost+found`, and all properties that depend only on the
/// type of the file system.
pub fn survey(dir: &Path) -> String {
    let files = shell(
        dir,
        "find . -path ./lost+found -prune -o -type d -printf '%P %m %U %G %T@ %y\\n' \
         -o -printf '%P %m %U %G %T@ %y %n %l\\n' | sort",
    );
    let attributes = shell(dir, "getfattr -h -R -d -m - -e hex . 2>/dev/null | sed /selinux/d");
    let mut blocks: Vec<&str> = attributes.split("\n\n").collect();
    blocks.sort_unstable();
    let contents = shell(dir, "find . -type f -print0 | sort -z | xargs -0r sha256sum");
    let devices = shell(dir, "find . -type c -o -type b | sort | xargs -r stat -c '%n %t %T'");
    [files, blocks.join("\n\n"), contents, devices].join("\n--\n")
}

/// Describes the tree in an image, which the kernel mounts for this.
pub fn survey_image(image: &Path) -> String {
    let mounted = Mounted::new(image);
    survey(mounted.path())
}

/// A mount by the kernel.
pub struct Mounted(PathBuf);

impl Mounted {
    pub fn new(image: &Path) -> Mounted {
        let place = image.with_extension("mounted");
        std::fs::create_dir_all(&place).expect("a directory");
        let (from, to) = (image.display(), place.display());
        shell(Path::new("/"), &format!("mount -o loop,ro '{from}' '{to}'"));
        Mounted(place)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

/// Compares texts by lines, and shows the first difference.
pub fn assert_same(found: &str, expected: &str) {
    let mut pairs = found.lines().zip(expected.lines());
    let differ = pairs.find(|(found, expected)| found != expected);
    assert_eq!(differ, None, "found and expected");
    assert_eq!(found.lines().count(), expected.lines().count());
}

/// Fills a directory with files of each kind that an ordinary user may make. If this user is root
/// and can mount images, also adds a FIFO, device nodes, other owners and extended attributes.
pub fn fill(dir: &Path) {
    shell(
        dir,
        r"mkdir -p a b/c empty many deep
        echo hi >a/hi; ln a/hi b/hardlink; ln -s ../a/hi b/link
        ln -s $(printf 'x%.0s' {1..200}) b/longlink
        head -c 3000000 /dev/urandom >a/data
        truncate -s 9M a/sparse
        printf data | dd of=a/sparse bs=1 seek=5000000 conv=notrunc status=none
        truncate -s 40M a/hole; printf end >>a/hole
        seq 5000 | sed 's/.*/many\/file-with-a-name-&/' | xargs touch
        printf x >$'b/bad\xff\xfename'; : >'b/a new
line'
        touch -d '2001-02-03 04:05:06.789012345' a/hi
        touch -d '1969-12-31 23:59:58.5' b/c
        touch -d '2100-01-01 00:00:00.25' empty
        long=$(printf 'n%.0s' {1..200}); mkdir deep/$long; echo deep >deep/$long/$long
        touch -d '2001-02-03 04:05:06.789012345' deep many",
    );
    if can_mount() {
        shell(
            dir,
            r"mkfifo pipe; mknod char c 5 1; mknod block b 259 70000
            chown 70000:80000 a/hi; chmod 4755 a/data; chown -h 5:6 b/link
            setfattr -n user.small -v bar a/hi
            setfattr -n user.big -v $(printf 'v%.0s' {1..3000}) a/data
            setfattr -n trusted.t -v 1 b
            setfattr -n security.capability -v 0sAQAAAgAgAAAAAAAAAAAAAAAAAAA= a/data",
        );
    }
}
