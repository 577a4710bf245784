//! Tests with directories made by the kernel, and with directories made by the planners and checked
//! by e2fsck and the kernel.

use crate::dir::tests::*;
use lanefs_ondisk::inode::InodeFlags;
use lanefs_ondisk::superblock::{SUPERBLOCK_OFFSET, Superblock};
use std::fs;
use std::fs::File;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirEntryExt, FileExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// An image with a directory `/d`.
struct Image {
    root: TempDir,
    path: PathBuf,
}

/// Returns whether e2fsprogs is installed; prints a message if it is not.
fn has_tools() -> bool {
    let found = ["mke2fs", "debugfs", "e2fsck"]
        .iter()
        .all(|tool| Command::new(tool).arg("-V").output().is_ok());
    if !found {
        println!("skipped: mke2fs, debugfs and e2fsck are not all here");
    }
    found
}

fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .expect("it is installed");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{program} {arguments:?}: {text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    text
}

impl Image {
    /// Creates an image with these options; `/d` has empty files with these names.
    fn new(options: &[&str], size: &str, names: &[Vec<u8>]) -> Image {
        let root = tempfile::tempdir_in("/dev/shm").expect("room");
        let tree = root.path().join("tree");
        fs::create_dir_all(tree.join("d")).expect("room");
        for name in names {
            File::create(tree.join("d").join(std::ffi::OsStr::from_bytes(name))).expect("room");
        }
        let path = root.path().join("image");
        let (tree, image) = (tree.to_str().expect("UTF-8"), path.to_str().expect("UTF-8"));
        let arguments = [&["-q", "-t", "ext4"], options, &["-d", tree, image, size]].concat();
        run("mke2fs", &arguments);
        fs::remove_dir_all(tree).expect("ours");
        Image { root, path }
    }

    fn path(&self) -> &str {
        self.path.to_str().expect("UTF-8")
    }

    fn debugfs(&self, request: &str) -> String {
        run("debugfs", &["-R", request, self.path()])
    }

    fn debugfs_write(&self, requests: &str) {
        let file = self.root.path().join("requests");
        fs::write(&file, requests).expect("room");
        run("debugfs", &["-w", "-f", file.to_str().expect("UTF-8"), self.path()]);
    }

    /// Returns the block numbers of `/d`.
    fn places(&self) -> Vec<u64> {
        let mut places = Vec::new();
        for line in self.debugfs("dump_extents -l d").lines().skip(1) {
            let numbers =
                line.split(|c: char| !c.is_ascii_digit()).filter_map(|word| word.parse().ok());
            let numbers: Vec<u64> = numbers.collect();
            let [_, _, _, _, first, last, physical, ..] = numbers[..] else { panic!("{line}") };
            assert_eq!(first, places.len() as u64, "a directory has no holes");
            places.extend((0..=last - first).map(|i| physical + i));
        }
        places
    }

    fn context(&self) -> DirContext {
        let mut bytes = [0; 1024];
        let file = File::open(&self.path).expect("ours");
        file.read_exact_at(&mut bytes, SUPERBLOCK_OFFSET).expect("a superblock");
        let superblock = Superblock::decode(&bytes).expect("made by mke2fs");
        let stat = self.debugfs("stat d");
        let field = |name: &str| {
            let (_, after) = stat.split_once(name).expect("a field of stat");
            after.split_whitespace().next().expect("a value")
        };
        let flags =
            u32::from_str_radix(field("Flags:").trim_start_matches("0x"), 16).expect("flags");
        DirContext::new(
            &superblock,
            Ino(field("Inode:").parse().expect("a number")),
            field("Generation:").parse().expect("a number"),
            InodeFlags::from_bits_retain(flags),
        )
    }

    /// Reads `/d` and verifies every block.
    fn directory(&self, model: BTreeMap<Vec<u8>, Ino>) -> Directory {
        let cx = self.context();
        let size = cx.format.block_size.bytes();
        let file = File::open(&self.path).expect("ours");
        let mut blocks: Vec<Arc<[u8]>> = Vec::new();
        for (n, place) in (0..).zip(self.places()) {
            let mut block = vec![0; size];
            file.read_exact_at(&mut block, place * size as u64).expect("in the image");
            verify(&cx, FileBlock(n), &block).expect("written by the kernel or mke2fs");
            blocks.push(block.into());
        }
        Directory { cx, parent: Ino::ROOT, blocks, model }
    }

    /// Writes all blocks of `/d`, sealed.
    fn write(&self, directory: &Directory) {
        let size = directory.cx.format.block_size.bytes() as u64;
        let file = File::options().write(true).open(&self.path).expect("ours");
        let places = self.places();
        assert_eq!(places.len(), directory.blocks.len());
        for (place, block) in places.iter().zip(&directory.blocks) {
            let mut block = block.to_vec();
            seal(&directory.cx, &mut block);
            file.write_all_at(&block, place * size).expect("in the image");
        }
    }

    fn fsck(&self) {
        run("e2fsck", &["-fn", self.path()]);
    }

    /// Mounts with the kernel's ext4, calls `with` and unmounts; false if this machine forbids
    /// mounting.
    fn mounted(&self, with: impl FnOnce(&Path)) -> bool {
        let point = self.root.path().join("mount");
        fs::create_dir_all(&point).expect("room");
        let mount = Command::new("mount").args(["-o", "loop"]).arg(&self.path).arg(&point).output();
        if !mount.is_ok_and(|mount| mount.status.success()) {
            println!("skipped: this machine does not let the test mount a loop device");
            return false;
        }
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| with(&point)));
        run("umount", &[point.to_str().expect("UTF-8")]);
        result.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        true
    }
}

/// Returns the names that the kernel lists in `directory`.
fn listing(directory: &Path) -> BTreeMap<Vec<u8>, Ino> {
    let entries = fs::read_dir(directory).expect("a directory").map(|entry| entry.expect("sound"));
    entries.map(|entry| (entry.file_name().into_vec(), Ino(entry.ino() as u32))).collect()
}

fn options(block_size: u32) -> Vec<&'static str> {
    let size = if block_size == 1024 { "1024" } else { "4096" };
    vec!["-b", size, "-O", "metadata_csum_seed,orphan_file", "-N", "70000"]
}

fn read_what_the_kernel_made(options: &[&str], count: usize) {
    let mut model = BTreeMap::new();
    let image = Image::new(options, "192M", &[]);
    let mounted = image.mounted(|point| {
        for i in 0..count {
            File::create(point.join(format!("d/file {i:x}"))).expect("room");
        }
        model = listing(&point.join("d"));
    });
    if !mounted {
        return;
    }
    assert_eq!(model.len(), count);
    let directory = image.directory(model);
    directory.check();
    let read = directory.read_all(usize::MAX);
    let hashes: Vec<u32> =
        read.iter().skip(2).map(|(name, _)| directory.cx.hasher.hash(name).major).collect();
    assert!(hashes.is_sorted() || !in_hash_order(&directory.cx, &directory.blocks));
    assert_eq!(read.into_iter().skip(2).collect::<BTreeMap<_, _>>(), directory.model);
    for (bytes, ino) in &directory.model {
        let found = find(&directory.cx, &directory.blocks, name(bytes)).expect("sound");
        assert_eq!(found.map(|found| found.ino), Some(*ino));
    }
}

#[test]
#[ignore = "long: makes images and mounts them"]
fn directories_made_by_the_kernel_are_read_whole_and_in_hash_order() {
    if !has_tools() {
        return;
    }
    for block_size in [1024, 4096] {
        for count in [1, 50, 3000] {
            read_what_the_kernel_made(&options(block_size), count);
        }
    }
    read_what_the_kernel_made(&options(1024), 60_000);
}

#[test]
#[ignore = "long: makes images and mounts them"]
fn directories_of_old_formats_made_by_the_kernel_are_read_whole() {
    if !has_tools() {
        return;
    }
    let no_checksums = ["-b", "1024", "-O", "^metadata_csum,^metadata_csum_seed", "-N", "5000"];
    read_what_the_kernel_made(&no_checksums, 3000);
    let no_types = ["-b", "1024", "-O", "^filetype", "-N", "5000"];
    read_what_the_kernel_made(&no_types, 3000);
    let no_index = ["-b", "1024", "-O", "^dir_index", "-N", "5000"];
    read_what_the_kernel_made(&no_index, 3000);
}

/// Replaces names in a directory made by the kernel, but only where that appends no block.
#[test]
#[ignore = "long: makes images and mounts them"]
fn a_directory_of_the_kernel_stays_sound_to_e2fsck_and_the_kernel_after_changes() {
    if !has_tools() {
        return;
    }
    let mut rng = rng("changes");
    for block_size in [1024, 4096] {
        let mut model = BTreeMap::new();
        let image = Image::new(&options(block_size), "192M", &[]);
        let mounted = image.mounted(|point| {
            for i in 0..3000 {
                File::create(point.join(format!("d/a file with a longer name {i}"))).expect("room");
            }
            model = listing(&point.join("d"));
        });
        if !mounted {
            return;
        }
        let mut directory = image.directory(model);
        let mut changed = 0;
        for (old, ino) in directory.model.clone() {
            let new = random_name(&mut rng, 30);
            if directory.model.contains_key(&new) {
                continue;
            }
            let (blocks, model) = (directory.blocks.clone(), directory.model.clone());
            directory.remove(&old);
            directory.insert(&new, ino).expect("room");
            if directory.blocks.len() > blocks.len() {
                (directory.blocks, directory.model) = (blocks, model);
            } else {
                changed += 1;
            }
        }
        assert!(changed > 1000, "{changed}");
        directory.check();
        image.write(&directory);
        image.fsck();
        image.mounted(|point| assert_eq!(listing(&point.join("d")), directory.model));
        image.fsck();
    }
}

/// Builds a directory with the planners only, and replaces a linear directory in the image by it.
fn build(options: &[&str], names: &[Vec<u8>], guests: usize, test: &str) {
    let mut rng = rng(test);
    build_in(Image::new(options, "64M", names), names, guests, &mut rng);
}

fn build_in(image: Image, names: &[Vec<u8>], guests: usize, rng: &mut fastrand::Rng) {
    let linear = image.directory(BTreeMap::new());
    let mut cx = linear.cx;
    let inodes: BTreeMap<Vec<u8>, Ino> = linear.read_all(usize::MAX).into_iter().skip(2).collect();
    assert_eq!(inodes.len(), names.len());

    cx.indexing = if cx.indexing == Indexing::Never { Indexing::Never } else { Indexing::Possible };
    let mut directory = Directory::new(cx);
    let mut visitors = Vec::new();
    for name in names {
        directory.insert(name, inodes[name]).expect("room");
        if visitors.len() < guests {
            let guest = random_name(rng, 100);
            if !inodes.contains_key(&guest) && !directory.model.contains_key(&guest) {
                directory.insert(&guest, Ino(11)).expect("room");
                visitors.push(guest);
            }
        }
    }
    for guest in visitors {
        directory.remove(&guest);
    }
    directory.check();

    let missing = directory.blocks.len() - linear.blocks.len();
    image.debugfs_write(&"expand_dir d\n".repeat(missing));
    image.write(&directory);
    if directory.cx.indexing == Indexing::Indexed {
        image.debugfs_write("set_inode_field d flags 0x81000\n");
    }
    image.fsck();
    image.mounted(|point| {
        assert_eq!(listing(&point.join("d")), inodes);
        for name in names.iter().take(200) {
            fs::metadata(point.join("d").join(std::ffi::OsStr::from_bytes(name))).expect("there");
        }
        for i in 0..200 {
            File::create(point.join(format!("d/of the kernel {i}"))).expect("room");
        }
        for name in names {
            fs::remove_file(point.join("d").join(std::ffi::OsStr::from_bytes(name)))
                .expect("there");
        }
    });
    image.fsck();
}

#[test]
#[ignore = "long: makes images and mounts them"]
fn a_directory_built_here_is_sound_to_e2fsck_and_the_kernel() {
    if !has_tools() {
        return;
    }
    let mut rng = rng("names");
    let mut names: Vec<Vec<u8>> = (0..3000).map(|_| random_name(&mut rng, 255)).collect();
    names.sort();
    names.dedup();
    rng.shuffle(&mut names);
    let few = &names[..4];
    build(&["-b", "1024", "-N", "8000"], few, 0, "linear");
    build(&["-b", "1024", "-N", "8000"], &names, 2000, "two levels");
    build(&["-b", "4096", "-N", "8000"], &names, 2000, "4 KiB");
    build(
        &["-b", "1024", "-N", "8000", "-O", "^metadata_csum,^metadata_csum_seed"],
        &names,
        500,
        "no checksums",
    );
    build(&["-b", "1024", "-N", "8000", "-O", "^dir_index"], &names, 500, "no index");
    build(&["-b", "1024", "-N", "8000", "-O", "^filetype"], &names, 500, "no types");
    build(&["-b", "1024", "-N", "8000", "-O", "large_dir"], &names, 500, "large_dir");
}

#[test]
fn names_of_one_hash_over_several_leaves_are_sound_to_e2fsck_and_the_kernel() {
    if !has_tools() {
        return;
    }
    let names = collisions::legacy_collisions(usize::MAX);
    let image = Image::new(&["-b", "1024", "-N", "8000"], "64M", &names);
    image.debugfs_write("set_super_value def_hash_version legacy\n");
    assert_eq!(image.context().hasher.version, HashVersion::Legacy);
    build_in(image, &names, 100, &mut rng("collisions"));
}
