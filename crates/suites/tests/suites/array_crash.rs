//! A file system on an array whose members crash at the same moment. Each member has its own cache,
//! and the crash may lose any write that is only in a cache. After the recovery of the array's log
//! and of the journal, every file that was fsynced must be present, and e2fsck must find nothing.

use crate::rig;

use crate::rig::Rig;
use crate::rig::recovery::apply_logs;
use crate::rig::tape::{Event, Kept, Planted, States, Tape, TapeDevice};
use lanefs_device::{Device, RamDevice};
use lanefs_ext4::{Mount, MountOptions, NewInode, NewKind, Privilege, SyncMode};
use lanefs_lanes::sync::unscheduled::Mutex;
use lanefs_mkfs::{MkfsOptions, mkfs};
use lanefs_raid5::{Array, Consistency, Layout};
use lanefs_suites::image::Image;
use lanefs_suites::random::{in_parallel, seeds};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

const SIGNATURE: u32 = 7;

struct History {
    rig: Rig,
    base: Vec<Vec<u8>>,
    events: Vec<Event>,
    /// The completed fsyncs. Each has the first event at which the file must be durable, the number
    /// of the file, and the file's content.
    promises: Vec<(usize, u8, Vec<u8>)>,
    /// The changes of files. Each has the event at which it started, and the number of the file.
    begun: Vec<(usize, u8)>,
}

fn rig(seed: u64) -> Rig {
    let members = 3 + (seed % 3) as usize;
    let chunk = [16 << 10, 64 << 10][(seed % 2) as usize];
    let rows = (16 << 20) / chunk / (members as u64 - 1);
    let layout = Layout::ALL[(seed % 6) as usize];
    let mut rig = Rig::new(layout, members, chunk, rows)
        .with(Consistency::PartialParity { signature: SIGNATURE });
    rig.policies.log_carries = [0, 32][(seed / 2 % 2) as usize];
    rig
}

/// Starts the array that `rig` describes on members with these contents.
fn on(rig: &mut Rig, members: &[Vec<u8>], tape: &Arc<Tape>) -> Arc<Array> {
    for (member, bytes) in members.iter().enumerate() {
        let (tape, bytes) = (tape.clone(), Mutex::new(bytes.clone()));
        let planted = Planted::Nothing;
        rig.members[member] = Some(Arc::new(TapeDevice { tape, member, bytes, planted }));
    }
    Arc::new(rig.start())
}

/// Empties the logs, as starting an array does. Otherwise a recovery would use headers of the
/// previous run, because their generations are higher than those of the first headers of this run.
fn empty_logs(members: &mut [Vec<u8>], rig: &Rig) {
    let log = rig.log().expect("a log");
    let bytes = log.offset as usize..(log.offset + log.len) as usize;
    members.iter_mut().for_each(|member| member[bytes.clone()].fill(0));
}

fn options() -> MountOptions {
    MountOptions { commit_interval: Duration::from_millis(30), ..MountOptions::default() }
}

fn record(seed: u64) -> History {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut rig = rig(seed);
    mkfs(&rig.start(), &MkfsOptions::default()).expect("a file system");
    let mut base: Vec<Vec<u8>> =
        rig.members.iter().flatten().map(|member| rig::content(&**member)).collect();
    empty_logs(&mut base, &rig);
    let tape = Arc::new(Tape::default());
    let device: Arc<dyn Device> = on(&mut rig, &base, &tape);
    let mount = Mount::open(device, options()).expect("it mounts");
    let (fs, root) = (mount.fs(), mount.fs().root().expect("the root"));
    let (mut promises, mut begun) = (Vec::new(), Vec::new());
    for round in 0..20u8 {
        let file = rng.u8(..6);
        begun.push((tape.mark(), file));
        let name = format!("file{file}");
        if fs.lookup(&root, name.as_bytes()).expect("a look-up").is_some() {
            fs.unlink(&root, name.as_bytes()).expect("an unlink");
        }
        let kind = NewKind::Regular;
        let new = NewInode { kind, permissions: 0o600, umask: 0, uid: 0, gid: 0 };
        let inode = fs.create(&root, name.as_bytes(), &new).expect("a file");
        let data = vec![round + 1; rng.usize(1..120_000)];
        fs.write_at(&inode, 0, &data, Privilege::Root).expect("a write");
        fs.fsync(&inode, SyncMode::Full).expect("a promise");
        fs.release(&inode);
        promises.push((tape.mark(), file, data));
    }
    drop(root);
    mount.close().expect("an unmount");
    let events = tape.events();
    History { rig, base, events, promises, begun }
}

impl History {
    fn check(&self, cut: usize, mut members: Vec<Vec<u8>>, seed: u64) {
        let mut rig = rig(seed);
        let log = rig.log().expect("a log");
        apply_logs(&mut members, None, &self.rig.shape, log, SIGNATURE);
        empty_logs(&mut members, &rig);
        let array = on(&mut rig, &members, &Arc::new(Tape::default()));
        assert_eq!(rig.wrong_rows(), [0u64; 0], "seed {seed}, cut {cut}");
        let mount = Mount::open(array.clone(), options()).expect("it recovers");
        let (fs, root) = (mount.fs(), mount.fs().root().expect("the root"));
        let mut last = BTreeMap::new();
        for (mark, file, data) in self.promises.iter().filter(|(mark, ..)| *mark <= cut) {
            last.insert(file, (mark, data));
        }
        for (file, (mark, data)) in last {
            // If a change of a file started between the fsync and the crash, the file is not
            // compared, because the crash may leave it with the old content, a part of the new
            // content, or not at all.
            if self.begun.iter().any(|(at, of)| of == file && at >= mark && *at <= cut) {
                continue;
            }
            let named = fs.lookup(&root, format!("file{file}").as_bytes()).expect("a look-up");
            let context = format!("seed {seed}, cut {cut}: file{file}");
            let inode = named.unwrap_or_else(|| panic!("{context} is gone"));
            let inode = fs.get(inode.ino, None).expect("the inode");
            let mut got = vec![0; data.len() + 1];
            let n = fs.read_at(&inode, 0, &mut got).expect("a read");
            assert!(got[..n] == data[..], "{context} has other data");
        }
        drop(root);
        mount.close().expect("an unmount");
        let image = Image::empty();
        let copy = RamDevice::copy_of(&*array).expect("a copy");
        copy.to_file(image.path()).expect("the image is written");
        image.assert_clean(&format!("seed {seed}, cut {cut}"));
    }
}

fn check(seed: u64, cuts: usize) {
    println!("seed {seed}");
    let history = record(seed);
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut states = States::new(&history.events, history.base.clone());
    let op = (history.events.len() / cuts).max(1);
    for cut in (rng.usize(..op)..=history.events.len()).step_by(op) {
        let kept = [Kept::None, Kept::All, Kept::Some][rng.usize(..3)];
        let state = states.at(cut, kept, &mut rng);
        history.check(cut, state.members, seed);
    }
}

#[test]
fn files_on_an_array_keep_their_promises_at_a_few_crashes() {
    check(1, 6);
}

#[test]
#[ignore = "long: 25 crashes of each of 6 arrays"]
fn files_on_arrays_keep_their_promises_at_many_crashes() {
    in_parallel(seeds(6), |seed| check(seed, 25));
}
