//! Tests files with indirect block maps at their limits, and with damaged maps.

use crate::image::{Image, directory, file};
use lanefs_ext4::{Access, Error, Fallocate, MountOptions, OnError, Privilege, SetAttr, SetXattr};
use std::process::Command;

/// Returns an image with the file "victim", which has a double indirect block. Also returns the
/// indirect blocks of the file: the single one, the double one, and the first block to which the
/// double one refers.
fn image_with_a_map() -> (Image, [u64; 3]) {
    let image = Image::made(&["-t", "ext3", "-b", "1024", "-J", "size=1"], "32M");
    let source = image.path().with_file_name("source");
    std::fs::write(&source, vec![7; 700_000]).unwrap();
    image.debugfs(&[&format!("write {} victim", source.display())]);
    let said = image.debugfs(&["stat victim"]);
    let block = |title: &str| {
        let (_, rest) = said.split_once(title).unwrap_or_else(|| panic!("{title} in {said}"));
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        rest[..digits].parse().unwrap()
    };
    let blocks = [block("(IND):"), block("(DIND):"), block("(DIND):")];
    let place = 1024 * blocks[1] as usize;
    let bytes = std::fs::read(image.path()).unwrap();
    let first = u32::from_le_bytes(bytes[place..place + 4].try_into().unwrap());
    (image, [blocks[0], blocks[1], first.into()])
}

#[test]
fn a_damaged_block_map_is_an_error_of_its_file_and_changes_nothing() {
    for (what, at_node, word, block) in [
        ("outside of the file system", 0, 3, u32::MAX),
        ("outside of the file system", 1, 0, 1 << 20),
        ("twice", 1, 1, 0),
        ("holds metadata", 0, 5, 2),
        ("holds metadata", 2, 9, 1),
    ] {
        let (image, nodes) = image_with_a_map();
        let block = match what {
            "twice" => nodes[2] as u32,
            _ => block,
        };
        let mut bytes = std::fs::read(image.path()).unwrap();
        let place = 1024 * nodes[at_node] as usize + 4 * word;
        bytes[place..place + 4].copy_from_slice(&block.to_le_bytes());
        std::fs::write(image.path(), &bytes).unwrap();
        let options = MountOptions { on_error: OnError::Continue, ..MountOptions::default() };
        let mount = image.mount_with(Access::ReadWrite, options);
        let fs = mount.fs();
        let root = fs.root().unwrap();
        let victim = fs.find(&root, b"victim").unwrap().unwrap();
        let mut read = vec![0; 1000];
        let by = Privilege::Root;
        let size = SetAttr { size: Some(0), ..Default::default() };
        let said = [
            fs.read_at(&victim, 0, &mut read).map(|_| ()),
            fs.write_at(&victim, 690_000, &read, by).map(|_| ()),
            fs.write_at(&victim, 1 << 20, &read, by).map(|_| ()),
            fs.set_attr(&victim, &size).map(|_| ()),
        ];
        for error in said.map(Result::unwrap_err) {
            assert_eq!(error.errno(), 117, "{error}");
            assert!(error.to_string().contains(what), "{what}: {error}");
        }
        fs.create(&root, b"another", &file(0o644)).unwrap();
        drop((victim, root));
        mount.close().unwrap();
        let after = std::fs::read(image.path()).unwrap();
        for node in nodes.map(|node| 1024 * node as usize) {
            assert!(after[node..node + 1024] == bytes[node..node + 1024], "{what}");
        }
    }
}

#[test]
fn the_last_byte_that_a_map_reaches_is_written_and_no_byte_after_it() {
    let image = Image::made(&["-t", "ext3", "-b", "1024", "-J", "size=1"], "32M");
    let mount = image.mount(Access::ReadWrite);
    let fs = mount.fs();
    let root = fs.root().unwrap();
    let found = fs.create(&root, b"file", &file(0o644)).unwrap();
    // The expected values were observed on Linux 6.18.
    let end = 17_247_252_480;
    let by = Privilege::Root;
    assert_eq!(fs.write_at(&found, end - 1, &[7], by).unwrap(), 1);
    let too_large = |result: Result<usize, Error>| {
        assert!(matches!(result, Err(Error::FileTooLarge)), "{result:?}");
    };
    too_large(fs.write_at(&found, end, &[7], by));
    let set = |size| fs.set_attr(&found, &SetAttr { size: Some(size), ..SetAttr::default() });
    too_large(set(end + 1).map(|_| 0));
    let mut byte = [0];
    assert_eq!(fs.read_at(&found, end - 1, &mut byte).unwrap(), 1);
    assert_eq!(byte, [7]);
    fs.fallocate(&found, Fallocate::PunchHole, end + 5000, 1 << 40, by).unwrap();
    for how in [
        Fallocate::Allocate,
        Fallocate::AllocateKeepSize,
        Fallocate::ZeroRange,
        Fallocate::ZeroRangeKeepSize,
    ] {
        let result = fs.fallocate(&found, how, 0, 4096, by);
        assert!(matches!(result, Err(Error::NotSupported)), "{how:?}: {result:?}");
    }
    set(0).unwrap();
    assert_eq!(found.attr().sectors, 0);
    drop((found, root));
    mount.close().unwrap();
    image.check();
}

#[test]
fn empty_nodes_that_another_program_left_are_freed_with_the_file() {
    let (image, nodes) = image_with_a_map();
    // Another program may leave a node without pointers. The blocks to which this node referred are
    // free.
    let place = 1024 * nodes[0] as usize;
    let mut emptied = std::fs::read(image.path()).unwrap();
    emptied[place..place + 1024].fill(0);
    std::fs::write(image.path(), emptied).unwrap();
    // e2fsck frees the data blocks, and keeps the node.
    let repaired = Command::new("e2fsck").arg("-fy").arg(image.path()).output().unwrap();
    assert_eq!(repaired.status.code(), Some(1));
    assert!(image.debugfs(&["stat victim"]).contains(&format!("(IND):{}", nodes[0])));
    let mount = image.mount(Access::ReadWrite);
    let root = mount.fs().root().unwrap();
    mount.fs().unlink(&root, b"victim").unwrap();
    drop(root);
    mount.close().unwrap();
    image.check();
}

#[test]
fn a_file_system_of_revision_0_is_written_without_attribute_blocks() {
    let image = Image::made(&["-t", "ext2", "-r", "0", "-b", "1024"], "16M");
    let mount = image.mount(Access::ReadWrite);
    let fs = mount.fs();
    let root = fs.root().unwrap();
    let dir = fs.create(&root, b"directory", &directory()).unwrap();
    let found = fs.create(&dir, b"file", &file(0o644)).unwrap();
    assert_eq!(fs.write_at(&found, 400_000, &[7; 5000], Privilege::Root).unwrap(), 5000);
    // The feature `ext_attr` is missing, and inodes have no room for attributes.
    let set = fs.set_xattr(&found, b"user.name", b"value", SetXattr::Any);
    assert!(matches!(set, Err(Error::NotSupported)), "{set:?}");
    drop((found, dir, root));
    mount.close().unwrap();
    image.check();
}
