//! Tests requests that no kernel sends. A peer other than the kernel (a guest with its own
//! transport) must get errors, never a panic, a hang or a damaged file system.

use super::Server;
use crate::ids::Ids;
use crate::protocol::abi::{InHeader, opcode};
use crate::protocol::{Outbox, Request, Wishes};
use crate::service::api::Service;
use crate::transport::Channel;
use fastrand::Rng;
use lanefs_device::{Device, RamDevice};
use lanefs_ext4::mkfs::{MkfsOptions, mkfs};
use lanefs_ext4::{Mount, MountOptions};
use lanefs_lanes::sync::Arc;
use std::process::Command;
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
        let mount = Mount::open(device, MountOptions::default()).unwrap();
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
        let header = InHeader {
            len: (size_of::<InHeader>() + body.len()) as u32,
            opcode,
            unique: 2,
            nodeid,
            uid: 0,
            gid: 0,
            pid: 1,
            total_extlen: 0,
            padding: 0,
        };
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
