//! Reads verity files that fsverity, mke2fs and debugfs have made, and verity files that Lanefs has
//! made, both intact and damaged.

use crate::images::*;
use lanefs::{Fallocate, FileOptions, FileSystem, NewVerity};
use lanefs_ondisk::verity::Algorithm;
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;

const NOT_PERMITTED: i32 = 1; // EPERM
const IO: i32 = 5; // EIO
const EXISTS: i32 = 17; // EEXIST
const IS_DIRECTORY: i32 = 21; // EISDIR
const INVALID: i32 = 22; // EINVAL
const NO_SPACE: i32 = 28; // ENOSPC
const NOT_SUPPORTED: i32 = 95; // EOPNOTSUPP
const DAMAGED: i32 = 117; // EUCLEAN

const VERITY: u32 = 0x10_0000;

/// How a hash tree is computed.
#[derive(Debug, Clone, Copy)]
struct Method {
    algorithm: &'static str,
    block: u64,
    salt: &'static str,
}

const PLAIN: Method = Method { algorithm: "sha256", block: 4096, salt: "" };

fn has_fsverity() -> bool {
    needs("fsverity")
}

/// Returns bytes that differ from block to block.
fn data(len: usize) -> Vec<u8> {
    (0..len).map(|n| (n / 1024 * 7 + n % 251) as u8).collect()
}

/// Returns the digest of the host file `name`, as `fsverity digest` prints it. Writes the hash tree
/// and the descriptor next to the file.
fn fsverity(dir: &Path, name: &str, method: Method) -> String {
    let Method { algorithm, block, salt } = method;
    let salt = if salt.is_empty() { String::new() } else { format!("--salt={salt}") };
    let line = format!(
        "fsverity digest {name} --hash-alg={algorithm} --block-size={block} {salt} \
         --out-merkle-tree={name}.tree --out-descriptor={name}.descriptor"
    );
    shell(dir, &line).split(' ').next().unwrap().to_owned()
}

/// Writes a verity file to the root directory of an image, by debugfs. Returns the file's digest.
fn add(image: &Image, name: &str, data: &[u8], method: Method, block_size: usize) -> String {
    let dir = image.dir.path();
    std::fs::write(dir.join(name), data).unwrap();
    let digest = fsverity(dir, name, method);
    let part = |end: &str| std::fs::read(dir.join(format!("{name}.{end}"))).unwrap_or_default();
    let mut bytes = data.to_vec();
    bytes.resize(data.len().next_multiple_of(65536), 0);
    bytes.extend_from_slice(&part("tree"));
    bytes.resize(bytes.len().next_multiple_of(block_size), 0);
    bytes.extend_from_slice(&part("descriptor"));
    bytes.resize((bytes.len() + 4).next_multiple_of(block_size) - 4, 0);
    bytes.extend_from_slice(&256u32.to_le_bytes());
    std::fs::write(dir.join("whole"), bytes).unwrap();
    let script =
        format!("write whole {name}\nsif {name} size {}\nsif {name} flags 0x180000\n", data.len());
    std::fs::write(dir.join("script"), script).unwrap();
    shell(dir, "PATH=$PATH:/usr/sbin; debugfs -w -f script disk.img");
    digest
}

fn image(block_size: usize) -> Image {
    Image::with("16M", &["-O", "verity", "-b", &block_size.to_string()])
}

fn errno<T>(result: lanefs::Result<T>) -> i32 {
    result.err().map_or(0, |error| error.errno())
}

#[test]
fn files_that_fsverity_describes_are_read_with_its_digest() {
    if !has_fsverity() {
        return;
    }
    for block_size in [1024, 4096] {
        let image = image(block_size);
        let mut files = Vec::new();
        let salted = Method { algorithm: "sha512", block: 1024, salt: "0011aabb" };
        let small = Method { block: 1024, ..PLAIN };
        for len in [0, 1, 1024, 4096, 4097, 65_536, 70_001, 600_000] {
            for method in [PLAIN, salted, small] {
                if method.block <= block_size as u64 {
                    let (name, data) = (format!("f{}", files.len()), data(len));
                    let digest = add(&image, &name, &data, method, block_size);
                    files.push((name, data, digest));
                }
            }
        }
        image.assert_clean();
        let fs = FileSystem::open(&image.path).unwrap();
        let mut random = fastrand::Rng::with_seed(seed());
        for (name, data, digest) in &files {
            let file = fs.open_file(Path::new("/").join(name)).unwrap();
            assert_eq!(file.digest().unwrap().unwrap().to_string(), *digest, "{name}");
            assert!(fs.read(Path::new("/").join(name)).unwrap() == *data, "{name}");
            for _ in 0..20 {
                let at = random.usize(0..data.len() + 2000);
                let mut found = vec![1; random.usize(0..9000)];
                let n = file.read_at(&mut found, at as u64).unwrap();
                let rest = data.get(at..).unwrap_or_default();
                assert_eq!(&found[..n], &rest[..rest.len().min(found.len())], "{name} at {at}");
            }
            assert_eq!(file.metadata().len(), data.len() as u64);
            assert!(file.seek_hole(0).unwrap().is_none_or(|at| at <= data.len() as u64));
            assert_eq!(file.seek_data(data.len() as u64).unwrap(), None);
        }
        fs.close().unwrap();
        image.assert_clean();
    }
}

#[test]
fn a_verity_file_keeps_its_data_and_everything_else_can_change() {
    if !has_fsverity() {
        return;
    }
    let image = image(4096);
    let content = data(300_000);
    add(&image, "f", &content, PLAIN, 4096);
    let fs = FileSystem::open(&image.path).unwrap();
    let free = fs.space().blocks_free;
    let write = FileOptions::new().write(true);
    assert_eq!(errno(fs.open_file_with("/f", &write)), NOT_PERMITTED);
    assert_eq!(errno(fs.open_file_with("/f", &write.truncate(true))), NOT_PERMITTED);
    assert_eq!(errno(fs.write("/f", b"new")), NOT_PERMITTED);
    let size = lanefs::SetAttr { size: Some(1), ..Default::default() };
    assert_eq!(errno(fs.set_attr("/f", &size, lanefs::Follow::Links)), NOT_PERMITTED);
    // These calls go directly to the ext4 layer, without the checks of the VFS layer. The ext4
    // layer must refuse them too.
    let file = fs.open_file("/f").unwrap();
    let (ext4, inode) = (fs.vfs().fs(), file.as_open_file().inode());
    let by = lanefs_ext4::Privilege::Root;
    let codes = [
        ext4.write_at(inode, 0, &[0; 4096], by).map(drop),
        ext4.append(inode, b"x", by).map(drop),
        ext4.write_back(inode, 1, b"x", by).map(drop),
        ext4.fallocate(inode, Fallocate::AllocateKeepSize, 0, 1 << 20, by),
        ext4.fallocate(inode, Fallocate::PunchHole, 300_000, 1 << 20, by),
        ext4.defragment(inode, by),
        ext4.set_attr(inode, &size).map(drop),
    ];
    for (n, code) in codes.into_iter().enumerate() {
        assert_eq!(code.unwrap_err().errno(), NOT_PERMITTED, "{n}");
    }
    drop(file);
    fs.set_permissions("/f", 0o600).unwrap();
    fs.set_owner("/f", Some(7), Some(8)).unwrap();
    fs.set_xattr("/f", "user.x", b"y").unwrap();
    fs.hard_link("/f", "/g").unwrap();
    fs.rename("/f", "/h").unwrap();
    fs.write("/other", &content).unwrap();
    assert_eq!(fs.metadata("/h").unwrap().attr().flags & VERITY, VERITY);
    fs.close().unwrap();
    image.assert_clean();
    let fs = FileSystem::open(&image.path).unwrap();
    assert!(fs.read("/h").unwrap() == content);
    for name in ["/g", "/h", "/other"] {
        fs.remove_file(name).unwrap();
    }
    // 300,000 bytes take 74 blocks; tree and descriptor take 2.
    assert_eq!(fs.space().blocks_free, free + 76);
    fs.close().unwrap();
    image.assert_clean();
}

/// Flips a bit of byte `at` of the file `/f`; the byte may lie after the end of the file.
fn flip(image: &Image, at: u64) {
    let fs = FileSystem::open(&image.path).unwrap();
    let inode = fs.vfs().fs().get(fs.symlink_metadata("/f").unwrap().attr().ino, None).unwrap();
    let extents = fs.vfs().fs().extents(&inode).unwrap();
    drop(inode);
    fs.close().unwrap();
    let extent = extents.iter().find(|e| (e.offset..e.offset + e.len).contains(&at)).unwrap();
    let device = OpenOptions::new().read(true).write(true).open(&image.path).unwrap();
    let (place, mut byte) = (extent.place + at - extent.offset, [0]);
    device.read_exact_at(&mut byte, place).unwrap();
    device.write_all_at(&[byte[0] ^ 4], place).unwrap();
}

/// Reads a file with one changed byte. If the file cannot be opened, returns the errno and the
/// message. Otherwise returns 0, the blocks that cannot be read, and the first message.
fn reads(image: &Image, len: usize) -> (i32, Vec<usize>, String) {
    let fs = FileSystem::open(&image.path).unwrap();
    let file = match fs.open_file("/f") {
        Ok(file) => file,
        Err(error) => return (error.errno(), Vec::new(), error.to_string()),
    };
    let (mut failed, mut said) = (Vec::new(), String::new());
    let content = data(len);
    for (n, block) in content.chunks(4096).enumerate() {
        let mut found = vec![9; block.len()];
        match file.read_at(&mut found, n as u64 * 4096) {
            Ok(_) => assert!(found == block, "unverified data of block {n}"),
            Err(error) => {
                assert_eq!(error.errno(), IO);
                assert!(found.iter().all(|byte| *byte == 0), "data after an error");
                said = if said.is_empty() { error.to_string() } else { said };
                failed.push(n);
            }
        }
    }
    assert_eq!(fs.read("/f").is_err(), !failed.is_empty());
    (0, failed, said)
}

#[test]
fn a_changed_byte_of_data_or_tree_is_an_error_of_the_blocks_it_covers() {
    if !has_fsverity() {
        return;
    }
    // The tree has two levels: a block of hashes for each 128 blocks of data, and above them one
    // block with two hashes.
    let len = 150 * 4096 - 100;
    let image = image(4096);
    add(&image, "f", &data(len), PLAIN, 4096);
    let whole = std::fs::read(&image.path).unwrap();
    let tree = len.next_multiple_of(65536) as u64;
    let all: Vec<usize> = (0..150).collect();
    for (at, failed, words) in [
        (5, &all[0..1], "block 0 of its data"),
        (4096 * 140 + 4095, &all[140..141], "block 140 of its data"),
        // A byte after the end of the file, in the file's last block.
        (len as u64 + 50, &all[149..150], "block 149 of its data"),
        (tree, &all[..], "block 0 of level 2"),
        (tree + 4096, &all[0..128], "block 0 of level 1"),
        (tree + 2 * 4096, &all[128..150], "block 1 of level 1"),
        // A byte in the padding of a block of hashes.
        (tree + 3 * 4096 - 1, &all[128..150], "block 1 of level 1"),
    ] {
        flip(&image, at);
        let (opened, found, said) = reads(&image, len);
        assert_eq!((opened, &found[..]), (0, failed), "{at}: {said}");
        assert!(said.contains("inode 12") && said.contains(words), "{at}: {said}");
        std::fs::write(&image.path, &whole).unwrap();
    }
    assert_eq!(reads(&image, len).1, Vec::<usize>::new());
}

#[test]
fn a_changed_descriptor_is_an_error_too() {
    if !has_fsverity() {
        return;
    }
    let len = 9000;
    let image = image(4096);
    add(&image, "f", &data(len), Method { salt: "abcd", ..PLAIN }, 4096);
    let whole = std::fs::read(&image.path).unwrap();
    let descriptor = 65536 + 4096;
    for (at, says) in [
        (0, "version"),
        (1, "algorithm"),
        (2, "blocks of 2^8 bytes"),
        (3, ""), // a salt of 6 bytes, padded with zeros to the same block
        (4, "a signature of 4 bytes"),
        (8, "the hash tree is for"),
        (16, "block 0 of level 1"), // the root hash
        (80, "block 0 of level 1"), // the salt
        (200, "reserved"),
        (4092, ""), // a descriptor of 260 bytes at the same place
        (4095, "a descriptor of"),
    ] {
        flip(&image, descriptor + at);
        let (opened, failed, said) = reads(&image, len);
        if says.contains("level") {
            assert_eq!((opened, &failed), (0, &vec![0, 1, 2]), "{at}: {said}");
        }
        assert_eq!(opened == 0 && failed.is_empty(), says.is_empty(), "{at}");
        assert!(said.contains(says), "{at}: {said}");
        std::fs::write(&image.path, &whole).unwrap();
    }
    for (field, says) in [
        ("size 8999", "the hash tree is for 9000 bytes"),
        ("size 80000", "no block after its data"),
        ("size 0x0ffffffffff", "no block after its data"),
        ("flags 0x100000", "extents"),
    ] {
        let line = format!("PATH=$PATH:/usr/sbin; debugfs -w -R 'sif f {field}' disk.img");
        shell(image.dir.path(), &line);
        let (opened, _, said) = reads(&image, len);
        assert_eq!(opened, DAMAGED, "{field}: {said}");
        assert!(said.contains(says), "{field}: {said}");
        std::fs::write(&image.path, &whole).unwrap();
    }
}

#[test]
fn bytes_after_the_last_block_of_the_data_are_zeros_up_to_the_end_of_the_page() {
    if !has_fsverity() {
        return;
    }
    let image = image(4096);
    add(&image, "f", &data(5000), Method { block: 1024, ..PLAIN }, 4096);
    flip(&image, 5200); // in the last block of 1024 bytes
    assert_eq!(reads(&image, 5000).1, [1]);
    flip(&image, 5200);
    flip(&image, 8191);
    assert_eq!(reads(&image, 5000).1, [1]);
    flip(&image, 8191);
    assert_eq!(reads(&image, 5000).1, [0; 0]);
}

#[test]
fn verity_files_are_made_as_fsverity_would() {
    if !has_fsverity() {
        return;
    }
    for (block_size, features) in [(1024, "verity"), (4096, "verity,bigalloc,inline_data")] {
        let arguments = ["-O", features, "-b", &block_size.to_string()];
        let image = Image::with("16M", &arguments);
        let fs = FileSystem::open(&image.path).unwrap();
        let mut files = Vec::new();
        for (n, len) in [0, 1, 50, 4096, 5000, 70_001, 600_000].into_iter().enumerate() {
            let (algorithm, salt) = match n % 2 {
                0 => (Algorithm::Sha256, &[][..]),
                _ => (Algorithm::Sha512, &[0x12, 0xab][..]),
            };
            let (name, content) = (format!("/f{n}"), data(len));
            fs.write(&name, &content).unwrap();
            if n > 3 {
                // Allocates space after the end of the file. Making the file a verity file must
                // free all of this space.
                let file = fs.open_file_with(&name, &FileOptions::new().write(true)).unwrap();
                file.fallocate(Fallocate::AllocateKeepSize, 0, 1 << 20).unwrap();
            }
            let new = NewVerity { algorithm, block_bytes: Some(1024), salt: salt.to_vec() };
            let digest = fs.enable_verity(&name, &new).unwrap();
            assert_eq!(fs.enable_verity(&name, &new).unwrap_err().errno(), EXISTS);
            files.push((name, content, digest, algorithm));
        }
        fs.close().unwrap();
        image.assert_clean();
        let fs = FileSystem::open(&image.path).unwrap();
        for (name, content, digest, algorithm) in files {
            assert!(fs.read(&name).unwrap() == content, "{name}");
            assert_eq!(fs.digest(&name).unwrap(), Some(digest), "{name}");
            let salt = if algorithm == Algorithm::Sha256 { "" } else { "12ab" };
            let method = Method { algorithm: algorithm.name(), block: 1024, salt };
            std::fs::write(image.dir.path().join("host"), &content).unwrap();
            assert_eq!(fsverity(image.dir.path(), "host", method), digest.to_string(), "{name}");
        }
        fs.close().unwrap();
    }
}

#[test]
fn files_that_cannot_become_verity_files_stay_unchanged() {
    let image = Image::with("8M", &["-O", "verity"]);
    let fs = FileSystem::open(&image.path).unwrap();
    let free = fs.space().blocks_free;
    fs.write("/f", data(100_000)).unwrap();
    let with = |block_bytes, salt: usize| NewVerity {
        block_bytes: Some(block_bytes),
        salt: vec![1; salt],
        ..NewVerity::default()
    };
    for wrong in [with(512, 0), with(3000, 0), with(8192, 0), with(0, 0), with(4096, 33)] {
        assert_eq!(errno(fs.enable_verity("/f", &wrong)), INVALID, "{wrong:?}");
    }
    assert_eq!(errno(fs.enable_verity("/", &NewVerity::default())), IS_DIRECTORY);
    // There is no space for the whole hash tree, so the blocks that were already allocated for the
    // tree must be freed again.
    let fill = fs.create_file("/fill").unwrap();
    while fill.allocate(0, fill.metadata().len() + 4096).is_ok() {}
    drop(fill);
    assert_eq!(errno(fs.enable_verity("/f", &with(1024, 0))), NO_SPACE);
    assert_eq!(fs.metadata("/f").unwrap().attr().flags & VERITY, 0);
    fs.remove_file("/fill").unwrap();
    fs.write("/f", b"new").unwrap();
    fs.remove_file("/f").unwrap();
    fs.sync().unwrap();
    assert_eq!(fs.space().blocks_free, free);
    fs.close().unwrap();
    image.assert_clean();
    let plain = Image::new("8M");
    let fs = FileSystem::open(&plain.path).unwrap();
    fs.write("/f", b"").unwrap();
    assert_eq!(errno(fs.enable_verity("/f", &NewVerity::default())), NOT_SUPPORTED);
}
