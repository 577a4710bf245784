//! Tests failures of rings on a real mount, with a service that has no file system.

use super::*;
use crate::mount::{Busy, MountPoint, Options};
use crate::protocol::abi::{Attr, AttrOut, StatfsOut, opcode};
use crate::protocol::{Request, Wishes};
use crate::service::Answer;
use crate::transport::Ring;
use lanefs_lanes::Padded;
use lanefs_lanes::sync::atomic::{AtomicBool, Ordering};
use queues::{Queue, Waiting};
use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

/// A service that replies to statfs(2), or panics. The kernel never caches the result of statfs(2).
#[derive(Default)]
struct Tiny {
    panics: bool,
    knows_transport: AtomicBool,
}

impl Service for Tiny {
    fn wishes(&self) -> Wishes {
        Wishes { transport: Transport::Ring, ..Wishes::default() }
    }

    fn carried(&self, _: &Carried) {
        // If the session did not wait for this call, a request would be served during this sleep.
        thread::sleep(Duration::from_millis(100));
        self.knows_transport.store(true, Ordering::Relaxed);
    }

    fn serve(
        &self,
        request: Request<'_>,
        outbox: &mut Outbox,
        _: &Channel,
    ) -> Result<Answer, Errno> {
        outbox.clear();
        assert!(self.knows_transport.load(Ordering::Relaxed), "a request came first");
        match request.header.opcode {
            opcode::GETATTR => {
                let attr = Attr { ino: 1, mode: 0o040755, nlink: 2, ..Attr::default() };
                let valid = 1000;
                outbox.put(&AttrOut { attr_valid: valid, attr_valid_nsec: 0, dummy: 0, attr });
                Ok(Answer::Reply)
            }
            opcode::STATFS => {
                assert!(!self.panics, "a panic that the test asked for");
                outbox.put(&StatfsOut {
                    blocks: 0,
                    bfree: 0,
                    bavail: 0,
                    files: 0,
                    ffree: 0,
                    bsize: 4096,
                    namelen: 255,
                    frsize: 4096,
                    padding: 0,
                    spare: [0; 6],
                });
                Ok(Answer::Reply)
            }
            opcode::FORGET | opcode::BATCH_FORGET => Ok(Answer::Silence),
            _ => Err(Errno::NOSYS),
        }
    }
}

/// Returns whether `scripts/with-ring` runs this test; otherwise prints that it does not.
fn is_ring_wanted() -> bool {
    let wanted = std::env::var_os("LANEFS_TRANSPORT").is_some_and(|name| name == "ring");
    if !wanted {
        println!("skipped: FUSE over io_uring: not run by scripts/with-ring");
    }
    wanted
}

/// Mounts on a new directory.
fn attach() -> (TempDir, OwnedFd, MountPoint) {
    let dir = tempfile::tempdir().unwrap();
    let made = MountPoint::attach(dir.path(), OsStr::new("nothing"), &Options::default());
    let (device, point) = made.unwrap();
    (dir, device, point)
}

/// Calls statfs(2) in another process; it must not hang.
fn stat_fs(path: &Path) -> bool {
    let mut command = Command::new("timeout");
    let status = command.args(["-s", "KILL", "20", "stat", "-f"]).arg(path).output().unwrap();
    assert_ne!(status.status.code(), None, "it hung");
    status.status.success()
}

#[test]
#[ignore = "long: a real mount"]
fn if_the_kernel_refuses_rings_requests_are_read() {
    if !is_ring_wanted() {
        return;
    }
    // In the first round, all rings are for a queue that no machine has. In the second round, one
    // more ring is for a valid queue.
    for queues in [vec![vec![u16::MAX]], vec![vec![0], vec![u16::MAX]]] {
        let (dir, device, point) = attach();
        let mut session = Session::start(device, Tiny::default()).unwrap();
        assert!(matches!(session.carried(), Carried::ByRing(_)), "{}", session.carried());
        session.rings.rings = queues.iter().map(|own| (0, Ring::new(own).unwrap())).collect();
        let server = thread::spawn(move || session.run().1);
        assert!(stat_fs(dir.path()), "{queues:?}");
        point.detach(Busy::Refuse).unwrap();
        server.join().unwrap().unwrap();
    }
}

#[test]
#[ignore = "long: a real mount"]
fn a_ring_that_no_thread_serves_any_more_ends_the_mount() {
    if !is_ring_wanted() {
        return;
    }
    let (dir, device, point) = attach();
    let session = Session::start(device, Tiny { panics: true, ..Tiny::default() }).unwrap();
    let server = thread::spawn(move || session.run().1);
    assert!(!stat_fs(dir.path()));
    let error = server.join().unwrap().unwrap_err();
    assert!(error.to_string().contains("panicked"), "{error}");
    assert!(!stat_fs(dir.path()), "the connection is over");
    point.detach(Busy::Detach).unwrap();
}

#[test]
#[ignore = "long: a real mount"]
fn a_service_knows_its_transport_before_the_first_request() {
    if !is_ring_wanted() {
        return;
    }
    let (dir, device, point) = attach();
    let session = Session::start(device, Tiny::default()).unwrap();
    let server = thread::spawn(move || session.run().1);
    let served = stat_fs(dir.path());
    point.detach(Busy::Detach).unwrap();
    server.join().unwrap().unwrap();
    assert!(served);
}

#[test]
#[ignore = "long: a real mount"]
fn a_thread_that_starts_during_the_unmount_is_no_failure() {
    if !is_ring_wanted() {
        return;
    }
    let (_dir, device, point) = attach();
    let session = Session::start(device, Tiny::default()).unwrap();
    // The mount is idle, because the kernel holds back all requests until rings are registered.
    point.detach(Busy::Detach).unwrap();
    let (readers, queues) = (Readers::new(1, 1), vec![Padded(Queue::new(0, 1, 2))]);
    let shared = Shared::new(&session.server, &session.channel, readers, queues);
    thread::scope(|scope| {
        let mut seen = [Seen::default()];
        assert_eq!(shared.queues[0].takes(), Waiting::None);
        let looks = [(); 3].map(|()| shared.look_at_rings(scope, &mut seen));
        assert_eq!(looks, [true, false, false], "the last look started a thread");
    });
    assert!(shared.ring_ends.lock().is_empty(), "the thread is not needed");
    assert!(!shared.readers.is_over());
    assert!(shared.queues[0].add_thread(), "the thread is not counted");
}
