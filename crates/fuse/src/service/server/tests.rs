//! Tests the server without a kernel: the results of single requests, and requests that no kernel
//! sends. A peer other than the kernel (a guest with its own transport) must get errors, never a
//! panic, a hang or a damaged file system.

use super::Server;
use crate::ids::Ids;
use crate::protocol::abi::{self, InHeader, opcode};
use crate::protocol::{Errno, Offer, Outbox, Request, Wishes};
use crate::service::api::Service;
use crate::transport::Channel;
use fastrand::Rng;
use lanefs_device::{Device, RamDevice};
use lanefs_ext4::{Attr, Mount, MountOptions, SetXattr};
use lanefs_lanes::sync::Arc;
use lanefs_mkfs::{MkfsOptions, mkfs};
use lanefs_ondisk::BlockSize;
use std::process::Command;
use std::time::Duration;
use zerocopy::IntoBytes;

const SIZE: u64 = 8 << 20;
const REQUESTS: usize = 5000;

/// A server without a kernel, and the node ids in its replies so far.
struct Scene {
    server: Server,
    outbox: Outbox,
    nowhere: Channel,
    nodes: Vec<u64>,
    /// The offset at which requests are cut into two parts, as in a request by io_uring.
    cut: Option<usize>,
}

impl Scene {
    fn new(device: Arc<RamDevice>) -> Scene {
        Scene::with(device, MountOptions::default())
    }

    /// Makes a file system, and serves it.
    fn of(mkfs_options: &MkfsOptions, options: MountOptions) -> Scene {
        let device = Arc::new(RamDevice::create(SIZE).unwrap());
        mkfs(&*device, mkfs_options).unwrap();
        Scene::with(device, options)
    }

    fn with(device: Arc<RamDevice>, options: MountOptions) -> Scene {
        let mount = Mount::open(device, options).unwrap();
        let nowhere = std::fs::File::options().write(true).open("/dev/null").unwrap();
        Scene {
            server: Server::new(mount, Wishes::default(), Ids::default()).unwrap(),
            outbox: Outbox::new(),
            nowhere: Channel::new(nowhere.into()),
            nodes: vec![1],
            cut: None,
        }
    }

    fn ask(&mut self, opcode: u32, nodeid: u64, body: &[u8]) {
        let header = header(opcode, nodeid, body, 0);
        let bytes = [header.as_bytes(), body].concat();
        let request = match self.cut.and_then(|cut| body.split_at_checked(cut)) {
            Some((operation, rest)) => Request::of_parts(header, operation, rest),
            None => Request::new(&bytes).unwrap(),
        };
        let answered = self.server.serve(request, &mut self.outbox, &self.nowhere).is_ok();
        let tells_node = [opcode::LOOKUP, opcode::CREATE, opcode::MKDIR, opcode::MKNOD];
        if answered && tells_node.contains(&opcode) && self.nodes.len() < 200 {
            let node = self.outbox.finish(0, None)[16..24].try_into().unwrap();
            self.nodes.push(u64::from_ne_bytes(node));
        }
    }
}

/// Returns the header of a request by this user.
fn header(opcode: u32, nodeid: u64, body: &[u8], uid: u32) -> InHeader {
    InHeader {
        len: (size_of::<InHeader>() + body.len()) as u32,
        opcode,
        unique: 2,
        nodeid,
        uid,
        gid: 0,
        pid: 1,
        total_extlen: 0,
        padding: 0,
    }
}

/// Returns a random number for a request field, usually an invalid one.
fn number(rng: &mut Rng, nodes: &[u64]) -> u64 {
    match rng.u32(..10) {
        0 => u64::MAX,
        1 => 1 << rng.u32(..64),
        2 => (1 << rng.u32(..64)) - 1,
        3 => rng.u64(..),
        4 => nodes[rng.usize(..nodes.len())],
        // Low numbers. Most of them are reserved inodes that programs cannot see, such as the
        // journal.
        5 => rng.u64(..12),
        _ => rng.u64(..5000),
    }
}

fn name(rng: &mut Rng) -> Vec<u8> {
    let mut name = match rng.u32(..12) {
        0 => b".".to_vec(),
        1 => b"..".to_vec(),
        2 => Vec::new(),
        3 => b"a/b".to_vec(),
        4 => vec![b'x'; rng.usize(250..260)],
        5 => (0..rng.usize(..20)).map(|_| rng.u8(1..)).collect(),
        6 => b"user.a".to_vec(),
        7 => b"system.posix_acl_access".to_vec(),
        _ => vec![b'a' + rng.u8(..8)],
    };
    if rng.u32(..20) > 0 {
        name.push(0);
    }
    name
}

/// Returns a random body: integers of 4 or 8 bytes, then names, then random bytes. The body need
/// not fit the operation.
fn body(rng: &mut Rng, nodes: &[u64]) -> Vec<u8> {
    let mut body = Vec::new();
    for _ in 0..rng.usize(..12) {
        if rng.bool() {
            body.extend_from_slice(&number(rng, nodes).to_ne_bytes());
        } else {
            body.extend_from_slice(&(number(rng, nodes) as u32).to_ne_bytes());
        }
    }
    for _ in 0..rng.usize(..3) {
        body.extend(name(rng));
    }
    let rest = rng.usize(..100);
    body.extend((0..rest).map(|_| rng.u8(..)));
    body
}

/// Returns the number of bytes before the names in a request of this kind. If a request has this
/// many bytes before the names, it is more likely to pass the parser and reach the file system.
fn lead(opcode: u32) -> usize {
    match opcode {
        opcode::MKDIR | opcode::RENAME | opcode::LINK | opcode::GETXATTR => 8,
        opcode::MKNOD | opcode::CREATE | opcode::RENAME2 | opcode::SETXATTR => 16,
        _ => 0,
    }
}

fn one_run(seed: u64) {
    let mut rng = Rng::with_seed(seed);
    let device = Arc::new(RamDevice::create(SIZE).unwrap());
    mkfs(&*device, &MkfsOptions::default()).unwrap();
    let mut scene = Scene::new(device.clone());
    for n in 0..REQUESTS {
        let opcode = if rng.u32(..50) == 0 { rng.u32(..) } else { rng.u32(1..56) };
        let node = if rng.u32(..3) > 0 {
            scene.nodes[rng.usize(..scene.nodes.len())]
        } else {
            number(&mut rng, &scene.nodes)
        };
        let mut bytes = body(&mut rng, &scene.nodes);
        if rng.bool() {
            bytes =
                std::iter::repeat_with(|| (number(&mut rng, &scene.nodes) as u32).to_ne_bytes())
                    .take(lead(opcode) / 4)
                    .flatten()
                    .collect();
            bytes.extend(name(&mut rng));
            bytes.extend(name(&mut rng));
        }
        // The body stays whole, or is cut after the operation's record, or at a random offset.
        scene.cut = [None, Some(lead(opcode)), Some(rng.usize(..130))][rng.usize(..3)];
        scene.ask(opcode, node, &bytes);
        assert!(!scene.server.is_broken(), "seed {seed}: request {n}, {opcode} of {node:#x}");
    }
    scene.server.close().unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    check(seed, &device);
}

/// Runs e2fsck, if it is installed.
fn check(seed: u64, device: &RamDevice) {
    let image = tempfile::NamedTempFile::new().unwrap();
    let mut bytes = vec![0; SIZE as usize];
    device.read_at(0, &mut bytes).unwrap();
    std::fs::write(image.path(), bytes).unwrap();
    match Command::new("e2fsck").arg("-fn").arg(image.path()).output() {
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success(), "seed {seed}: {said}");
        }
        Err(error) => println!("skipped: e2fsck as a judge: {error}"),
    }
}

#[test]
fn invalid_requests_do_no_harm() {
    let given = std::env::var("LANEFS_SEED").ok().and_then(|text| text.parse().ok());
    for _ in 0..3 {
        let seed = given.unwrap_or_else(|| fastrand::u64(..));
        println!("seed {seed} (again with LANEFS_SEED={seed})");
        one_run(seed);
    }
}

#[test]
#[ignore = "long: random requests for LANEFS_SECONDS"]
fn many_invalid_requests_do_no_harm() {
    let seconds = std::env::var("LANEFS_SECONDS").ok().and_then(|text| text.parse().ok());
    let end = std::time::Instant::now() + std::time::Duration::from_secs(seconds.unwrap_or(5));
    while std::time::Instant::now() < end {
        let seed = fastrand::u64(..);
        println!("seed {seed} (again with LANEFS_SEED={seed})");
        one_run(seed);
    }
}

/// Returns a size or an offset near a limit: of signed and unsigned numbers, of 2^31 and 2^32 blocks
/// of 1 and 4 KiB, or of small files.
fn limit(rng: &mut Rng) -> u64 {
    let place = 1u64 << [0, 10, 12, 31, 32, 34, 41, 42, 43, 44, 63][rng.usize(..11)];
    let distance = rng.u64(..3) * [1, 1024, 4096][rng.usize(..3)] + rng.u64(..2);
    if rng.bool() { place.saturating_sub(distance) } else { place.saturating_add(distance) }
}

/// Returns a request with numbers near limits: its operation, its node, and its body.
fn request_at_limits(rng: &mut Rng, files: &[u64]) -> (u32, u64, Vec<u8>) {
    let (file, other) = (files[rng.usize(..files.len())], files[rng.usize(..files.len())]);
    let (offset, len) = (limit(rng), if rng.bool() { limit(rng) } else { rng.u64(..9000) });
    let short = rng.u32(..9000);
    let words = |words: &[u64]| words.as_bytes().to_vec();
    let data = vec![7; short as usize];
    match rng.u32(..9) {
        0 | 1 => {
            let mut set = [0u64; 11];
            (set[0], set[2]) = (abi::fattr::SIZE.into(), offset);
            (opcode::SETATTR, file, words(&set))
        }
        2 => {
            let sizes = u64::from(short);
            (opcode::WRITE, file, [words(&[0, offset, sizes, 0, 0]), data].concat())
        }
        3 => (opcode::READ, file, words(&[0, offset, short.into(), 0, 0])),
        4 => {
            let modes = [0, 1, 3, 0x10, 0x11, 8, 0x20];
            let mode = modes[rng.usize(..modes.len())];
            (opcode::FALLOCATE, file, words(&[0, offset, len, mode]))
        }
        5 => (opcode::LSEEK, file, words(&[0, offset, rng.u64(3..5)])),
        6 => (opcode::COPY_FILE_RANGE, file, words(&[0, offset, other, 0, limit(rng), len, 0])),
        7 => (opcode::READDIR, 1, words(&[0, offset, short.into(), 0, 0])),
        _ => {
            // FITRIM with its three words.
            let head = [0u32, 0, 0, super::ioctls::TRIM, 0, 0, 24, 24];
            let body = [head.as_bytes(), &words(&[offset, len, limit(rng)])].concat();
            (opcode::IOCTL, file, body)
        }
    }
}

#[test]
fn sizes_and_offsets_at_limits_do_no_harm() {
    let given = std::env::var("LANEFS_SEED").ok().and_then(|text| text.parse().ok());
    for options in [
        MkfsOptions { block_size: BlockSize::new(1024), ..MkfsOptions::default() },
        MkfsOptions { block_size: BlockSize::new(4096), ..MkfsOptions::default() },
    ] {
        let seed = given.unwrap_or_else(|| fastrand::u64(..));
        println!("seed {seed} (again with LANEFS_SEED={seed})");
        let mut rng = Rng::with_seed(seed);
        let device = Arc::new(RamDevice::create(SIZE).unwrap());
        mkfs(&*device, &options).unwrap();
        let mut scene = Scene::new(device.clone());
        let files: Vec<u64> =
            (0..3).map(|n| scene.create(format!("{n}").as_bytes(), 0o644)).collect();
        for n in 0..2000 {
            let (opcode, node, body) = request_at_limits(&mut rng, &files);
            scene.ask(opcode, node, &body);
            assert!(!scene.server.is_broken(), "seed {seed}: request {n}, {opcode}: {body:x?}");
        }
        scene.server.close().unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        check(seed, &device);
    }
}

impl Scene {
    /// Returns the bytes of the reply to a request by this user.
    fn told_by(&self, uid: u32, opcode: u32, node: u64, parts: &[&[u8]]) -> Result<Vec<u8>, Errno> {
        let body = parts.concat();
        let bytes = [header(opcode, node, &body, uid).as_bytes(), &body].concat();
        let mut outbox = Outbox::new();
        self.server.serve(Request::new(&bytes).unwrap(), &mut outbox, &self.nowhere)?;
        Ok(outbox.put_so_far().to_vec())
    }

    /// Returns the bytes of the reply to a request by root.
    fn told(&self, opcode: u32, node: u64, parts: &[&[u8]]) -> Result<Vec<u8>, Errno> {
        self.told_by(0, opcode, node, parts)
    }

    /// Creates a file in the root directory, and returns its node.
    fn create(&self, name: &[u8], mode: u32) -> u64 {
        let input = [0o100_000 | mode, 0, 0, 0];
        let reply = self.told(opcode::MKNOD, 1, &[input.as_bytes(), name, b"\0"]).unwrap();
        u64::from_ne_bytes(*reply.first_chunk().unwrap())
    }

    fn set_xattr(&self, node: u64, name: &[u8], flags: i32) -> Result<(), Errno> {
        let input = [5, flags, 0, 0];
        self.told(opcode::SETXATTR, node, &[input.as_bytes(), name, b"\0value"]).map(drop)
    }

    fn has_xattr(&self, node: u64, name: &[u8]) -> bool {
        let input = [100u32, 0];
        match self.told(opcode::GETXATTR, node, &[input.as_bytes(), name, b"\0"]) {
            Err(Errno(libc::ENODATA)) => false,
            value => value.unwrap() == b"value",
        }
    }

    fn write(&self, node: u64) -> Result<(), Errno> {
        // The fifth word is the size.
        let input = [0u32, 0, 0, 0, 4, 0, 0, 0, 0, 0];
        self.told(opcode::WRITE, node, &[input.as_bytes(), b"data"]).map(drop)
    }

    fn ioctl(&self, node: u64, cmd: u32, argument: u32) -> Result<Vec<u8>, Errno> {
        // The last words are the sizes of the argument and of the result.
        let input = [0, 0, 0, cmd, 0, 0, 4, 4];
        let reply = self.told(opcode::IOCTL, node, &[input.as_bytes(), argument.as_bytes()])?;
        Ok(reply[size_of::<abi::IoctlOut>()..].to_vec())
    }
}

fn scene() -> Scene {
    Scene::of(&MkfsOptions::default(), MountOptions::default())
}

const CAPABILITY: &[u8] = b"security.capability";

#[test]
fn each_write_and_truncation_removes_capabilities() {
    let scene = scene();
    // A file may be made executable after the write, so a file without execute permission must lose
    // its capabilities too.
    for mode in [0o644, 0o755] {
        let file = scene.create(format!("{mode:o}").as_bytes(), mode);
        let writes = || scene.write(file).unwrap();
        let truncates = || {
            let mut input = [0u32; 22];
            input[0] = abi::fattr::SIZE;
            scene.told(opcode::SETATTR, file, &[input.as_bytes()]).unwrap();
        };
        let acts: [&dyn Fn(); 4] = [&writes, &writes, &truncates, &writes];
        for (n, act) in acts.iter().enumerate() {
            scene.set_xattr(file, CAPABILITY, 0).unwrap();
            assert!(scene.has_xattr(file, CAPABILITY));
            act();
            assert!(!scene.has_xattr(file, CAPABILITY), "{mode:o}, act {n}");
            act();
        }
    }
}

/// Both writers wait for the lock under which `user.a` is set. Then both find the capabilities, and
/// only one can remove them.
#[test]
fn two_writers_remove_the_same_capabilities() {
    let scene = scene();
    let file = scene.create(b"f", 0o755);
    let inode = scene.server.inode(file).unwrap();
    for _ in 0..5 {
        scene.set_xattr(file, CAPABILITY, 0).unwrap();
        std::thread::scope(|scope| {
            let change = |attr: &Attr| {
                (0..2).for_each(|_| drop(scope.spawn(|| scene.write(file).unwrap())));
                std::thread::sleep(Duration::from_millis(30));
                Ok(attr.permissions)
            };
            let fs = scene.server.fs();
            fs.set_xattr_as(&inode, b"user.a", b"value", SetXattr::Any, change).unwrap();
        });
        assert!(!scene.has_xattr(file, CAPABILITY));
    }
    drop(inode);
}

#[test]
fn an_attribute_that_must_exist_and_must_not_is_refused_as_by_the_kernel() {
    let (scene, both) = (scene(), libc::XATTR_CREATE | libc::XATTR_REPLACE);
    let file = scene.create(b"f", 0o644);
    assert_eq!(scene.set_xattr(file, b"user.a", both), Err(Errno(libc::ENODATA)));
    scene.set_xattr(file, b"user.a", 0).unwrap();
    assert_eq!(scene.set_xattr(file, b"user.a", both), Err(Errno(libc::EEXIST)));
    assert_eq!(scene.set_xattr(file, b"user.a", 4), Err(Errno(libc::EINVAL)));
}

#[test]
fn the_flag_for_extents_cannot_be_cleared() {
    let scene = scene();
    let file = scene.create(b"f", 0o644);
    let (get, set) = (0x8008_6601, 0x4008_6602);
    let flags = || u32::from_ne_bytes(*scene.ioctl(file, get, 0).unwrap().first_chunk().unwrap());
    assert_eq!(flags(), 0x8_0000);
    assert_eq!(scene.ioctl(file, set, 0), Err(Errno(libc::EOPNOTSUPP)));
    assert_eq!(scene.ioctl(file, set, 0x40), Err(Errno(libc::EOPNOTSUPP)));
    assert_eq!(flags(), 0x8_0000);
    scene.ioctl(file, set, 0x8_0040).unwrap();
    assert_eq!(flags(), 0x8_0040);
}

/// The inodes before the first one that a name can refer to: among them the journal.
#[test]
fn inodes_of_the_file_system_itself_have_no_nodes() {
    let scene = scene();
    let before = scene.server.fs().root().unwrap().attr();
    let set = |valid: u32| -> [u32; 22] { std::array::from_fn(|n| if n == 0 { valid } else { 0 }) };
    let (size, mode) = (set(abi::fattr::SIZE), set(abi::fattr::MODE));
    let refused = |result: Result<Vec<u8>, Errno>| assert!(result.is_err());
    for (ino, generation) in (3..=10u64).flat_map(|ino| [(ino, 0), (ino, 1)]) {
        let node = ino | generation << 32;
        for set in [&size, &mode] {
            refused(scene.told(opcode::SETATTR, node, &[set.as_bytes()]));
        }
        refused(scene.told(opcode::GETATTR, node, &[&[0; 16]]));
        refused(scene.told(opcode::READ, node, &[&[0; 40]]));
        assert!(scene.write(node).is_err());
        assert!(scene.set_xattr(node, b"user.a", 0).is_err());
        assert!(scene.ioctl(node, 0x4008_6602, 0x8_0000).is_err());
        scene.told(opcode::FORGET, node, &[&1u64.to_ne_bytes()]).unwrap();
    }
    assert_eq!(scene.server.fs().root().unwrap().attr(), before);
    scene.server.close().unwrap();
}

#[test]
fn the_kernel_sets_times_as_precise_as_inodes_store_them() {
    for (inode_size, granularity) in [(128, 1_000_000_000), (256, 1u32)] {
        let options = MkfsOptions { inode_size, ..MkfsOptions::default() };
        let mut scene = Scene::of(&options, MountOptions::default());
        let flags = (abi::init::SETXATTR_EXT | abi::init::HANDLE_KILLPRIV_V2) as u32;
        let input = [abi::MAJOR, abi::MINOR, 0, flags];
        let header = header(opcode::INIT, 0, input.as_bytes(), 0);
        let bytes = [header.as_bytes(), input.as_bytes()].concat();
        let offer = Offer::take(&mut Request::new(&bytes).unwrap()).unwrap();
        offer.accept(scene.server.wishes(), false, &mut scene.outbox);
        let at = std::mem::offset_of!(abi::InitOut, time_gran);
        let told = scene.outbox.put_so_far()[at..].first_chunk().copied().unwrap();
        assert_eq!(u32::from_ne_bytes(told), granularity, "inodes of {inode_size} bytes");
    }
}
