use crate::error::Error;
use crate::xattr::*;
use lanefs_ondisk::inode::Inode;
use lanefs_ondisk::superblock::{SUPERBLOCK_OFFSET, Superblock};
use lanefs_ondisk::xattr::{Attribute, AttributeName, Value};
use lanefs_ondisk::{Block, Ino, xattr};
use std::collections::BTreeMap;
use std::fs;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};

const SIZE: usize = 1024;
const PLACE: Block = Block(99);

/// The attributes of one inode in memory, and the expected attributes.
#[derive(Default)]
struct Attributes {
    in_inode: Vec<u8>,
    block: Option<Vec<u8>>,
    model: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Attributes {
    fn new(room: usize) -> Attributes {
        Attributes { in_inode: vec![0; room], ..Attributes::default() }
    }

    fn state(&self) -> XattrState<'_> {
        let block = self.block.as_deref().map(|block| (PLACE, block));
        XattrState {
            ino: Ino(12),
            in_inode: &self.in_inode,
            block,
            block_size: SIZE,
            entry_room: 0,
        }
    }

    fn set(&mut self, full: &[u8], value: Option<&[u8]>, how: SetXattr) -> Result<(), Error> {
        let value_on_disk = value.map(Value::Here);
        let plan = plan_set(&self.state(), parse_name(full)?, value_on_disk, how)?;
        assert_eq!(plan.shared_by, u32::from(self.block.is_some()));
        if let Some(in_inode) = plan.in_inode {
            assert_eq!(in_inode.len(), self.in_inode.len());
            self.in_inode = in_inode;
        }
        match plan.block {
            BlockChange::Keep => {}
            BlockChange::Write(block) => self.block = Some(block),
            BlockChange::Remove => self.block = None,
        }
        match value {
            Some(value) => drop(self.model.insert(full.to_vec(), value.to_vec())),
            None => drop(self.model.remove(full)),
        }
        Ok(())
    }

    fn check(&self) {
        let mut names = list(&self.state()).expect("sound");
        names.sort();
        assert_eq!(names, self.model.keys().cloned().collect::<Vec<_>>());
        for (name, value) in &self.model {
            let name = parse_name(name).expect("a name");
            assert_eq!(get(&self.state(), name).expect("there"), Stored::Here(value));
        }
    }
}

#[test]
fn random_changes_keep_the_other_attributes() {
    let seed = std::env::var("LANEFS_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| fastrand::u64(..));
    println!("LANEFS_SEED={seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    for room in [0, 2, 4, 96, 160, 400] {
        let mut attributes = Attributes::new(room);
        let mut refused = 0;
        for _ in 0..2000 {
            let prefix = ["user.", "trusted.", "security."][rng.usize(..3)];
            let full = format!("{prefix}{}", "n".repeat(rng.usize(1..14)));
            let there = attributes.model.contains_key(full.as_bytes());
            let value = vec![rng.u8(..); rng.usize(..300)];
            let value = (rng.usize(..10) < 6).then_some(&value[..]);
            let how = [SetXattr::Any, SetXattr::Create, SetXattr::Replace][rng.usize(..3)];
            match attributes.set(full.as_bytes(), value, how) {
                Ok(()) => {
                    assert!(there && how != SetXattr::Create || !there && how != SetXattr::Replace)
                }
                Err(Error::Exists) => assert!(there && how == SetXattr::Create),
                Err(Error::NoAttribute) => {
                    assert!(!there && (how == SetXattr::Replace || value.is_none()))
                }
                Err(Error::NoSpace) => refused += 1,
                Err(error) => panic!("{error}"),
            }
            attributes.check();
        }
        assert!(refused > 0, "the space ran out now and then");
        for full in attributes.model.keys().cloned().collect::<Vec<_>>() {
            attributes.set(&full, None, SetXattr::Any).expect("there");
        }
        assert!(attributes.block.is_none() && attributes.in_inode.iter().all(|&byte| byte == 0));
    }
}

#[test]
fn an_attribute_goes_into_the_inode_first_and_moves_when_it_grows() {
    let mut attributes = Attributes::new(96);
    attributes.set(b"user.a", Some(b"small"), SetXattr::Any).expect("room");
    assert!(attributes.block.is_none());
    attributes.set(b"user.a", Some(&[1; 200]), SetXattr::Any).expect("room");
    assert!(attributes.block.is_some() && attributes.in_inode.iter().all(|&byte| byte == 0));
    attributes.set(b"user.a", Some(b"small"), SetXattr::Any).expect("room");
    assert!(attributes.block.is_none());
    attributes.check();
}

#[test]
fn a_shared_block_is_reported() {
    let mut attributes = Attributes::new(0);
    attributes.set(b"user.a", Some(b"x"), SetXattr::Any).expect("room");
    if let Some(block) = attributes.block.as_mut() {
        xattr::set_refcount(block, 7);
    }
    let name = parse_name(b"user.a").expect("a name");
    let plan = plan_set(&attributes.state(), name, None, SetXattr::Any).expect("there");
    assert_eq!((plan.shared_by, plan.block), (7, BlockChange::Remove));
}

#[test]
fn a_value_in_an_inode_of_its_own_is_found_and_kept() {
    let elsewhere = Attribute {
        name: AttributeName { index: AttributeName::USER, rest: b"huge" },
        value: Value::Inode { ino: Ino(77), size: 100_000, hash: 5 },
    };
    let mut attributes = Attributes::new(160);
    attributes.in_inode = xattr::encode_inode(160, &[elsewhere]).expect("it fits");
    let huge = parse_name(b"user.huge").expect("a name");
    let value = ValueInode { ino: Ino(77), size: 100_000, entry_hash: 5 };
    assert_eq!(get(&attributes.state(), huge).expect("there"), Stored::Inode(value));
    let plan = plan_set(&attributes.state(), huge, None, SetXattr::Any).expect("there");
    assert_eq!(plan.old_value, Some(value));
    attributes.set(b"user.a", Some(b"x"), SetXattr::Any).expect("room");
    let kept = xattr::decode_inode(&attributes.in_inode).expect("sound");
    assert!(kept.contains(&elsewhere));
}

fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    let output = output.expect("it is installed");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{program} {arguments:?}: {text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    text
}

/// Mounts the image and calls `with`; false if this machine forbids loop mounts.
fn mounted(image: &Path, point: &Path, with: impl FnOnce()) -> bool {
    let mount = Command::new("mount").args(["-o", "loop"]).arg(image).arg(point).output();
    if !mount.is_ok_and(|mount| mount.status.success()) {
        println!("skipped: this machine does not let the test mount a loop device");
        return false;
    }
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(with));
    run("umount", &[point.to_str().expect("UTF-8")]);
    result.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    true
}

/// The kernel sets attributes, the test changes them in the image, and then e2fsck and the kernel
/// check the result.
#[test]
fn attributes_of_the_kernel_are_read_and_ours_are_sound_to_e2fsck_and_the_kernel() {
    let tools = ["mke2fs", "debugfs", "e2fsck", "setfattr", "getfattr"];
    if let Some(missing) = tools.iter().find(|tool| Command::new(tool).arg("-V").output().is_err())
    {
        println!("skipped: {missing} is not here");
        return;
    }
    let root = tempfile::tempdir_in("/dev/shm").expect("room");
    let (image, point) = (root.path().join("image"), root.path().join("mount"));
    fs::create_dir_all(&point).expect("room");
    let path = image.to_str().expect("UTF-8");
    run("mke2fs", &["-q", "-t", "ext4", "-b", "1024", path, "16M"]);
    let file = point.join("f");
    let file = file.to_str().expect("UTF-8");
    let long = "v".repeat(300);
    let mut model = BTreeMap::from([
        (b"user.mime_type".to_vec(), b"text/plain".to_vec()),
        ("user.caf\u{e9}".into(), long.clone().into_bytes()),
        (b"trusted.big".to_vec(), long[..200].into()),
        (b"user.empty".to_vec(), Vec::new()),
    ]);
    let set = || {
        File::create(file).expect("room");
        for (name, value) in &model {
            let (name, value) = (
                std::str::from_utf8(name).expect("ours"),
                std::str::from_utf8(value).expect("ours"),
            );
            run("setfattr", &["-n", name, "-v", value, file]);
        }
    };
    if !mounted(&image, &point, set) {
        return;
    }

    let device = File::options().read(true).write(true).open(&image).expect("ours");
    let mut bytes = [0; 1024];
    device.read_exact_at(&mut bytes, SUPERBLOCK_OFFSET).expect("in the image");
    let superblock = Superblock::decode(&bytes).expect("sound");
    let geometry = superblock.geometry();
    let seed = superblock.checksums().seed();
    let ino = Ino(12);
    // Block and offset of the inode, as debugfs prints them: "located at block 42, offset 0x0b00".
    let located = run("debugfs", &["-R", "imap <12>", path]);
    let (_, after) = located.split_once("located at block ").expect("imap's words");
    let (block, offset) = after.trim().split_once(", offset 0x").expect("imap's words");
    let at = block.parse::<u64>().expect("a number") * SIZE as u64
        + u64::from_str_radix(offset, 16).expect("a number");
    let mut record = vec![0; geometry.inode_size()];
    device.read_exact_at(&mut record, at).expect("in the image");
    let inode = Inode::decode(&record, ino, &geometry, superblock.checksums()).expect("sound");
    let area = inode.xattr_area(&geometry).expect("room");
    let place = inode.file_acl.expect("a block");
    let mut block = vec![0; SIZE];
    device.read_exact_at(&mut block, place.0 * SIZE as u64).expect("in the image");
    verify(seed, ino, place, &block).expect("written by the kernel");

    let mut attributes = Attributes {
        in_inode: record[area.clone()].to_vec(),
        block: Some(block),
        model: model.clone(),
    };
    attributes.check();
    attributes.set(b"user.mime_type", Some(b"text/x-rust"), SetXattr::Replace).expect("room");
    attributes.set(b"trusted.big", Some(&long.as_bytes()[..150]), SetXattr::Any).expect("room");
    attributes.set(b"user.new", Some(b"of ours"), SetXattr::Create).expect("room");
    attributes.set("user.caf\u{e9}".as_bytes(), Some(b"short"), SetXattr::Any).expect("room");
    attributes.check();
    model = attributes.model.clone();

    let mut block = attributes.block.clone().expect("too much for the inode");
    seal(seed, place, &mut block);
    device.write_all_at(&block, place.0 * SIZE as u64).expect("in the image");
    record[area].copy_from_slice(&attributes.in_inode);
    inode.encode_into(&mut record, ino, &geometry, superblock.checksums()).expect("it fits");
    device.write_all_at(&record, at).expect("in the image");
    run("e2fsck", &["-fn", path]);
    mounted(&image, &point, || {
        for (name, value) in &model {
            let name = std::str::from_utf8(name).expect("ours");
            let found = run("getfattr", &["--absolute-names", "--only-values", "-n", name, file]);
            assert_eq!(found.as_bytes(), value);
        }
        run("setfattr", &["-n", "user.of_the_kernel", "-v", "after ours", file]);
        run("setfattr", &["-x", "user.new", file]);
    });
    run("e2fsck", &["-fn", path]);
}
