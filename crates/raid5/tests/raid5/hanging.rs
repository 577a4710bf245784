//! Members that hang, and members that replace them.

use crate::rig::MemoryRecord;
use crate::rig::hook::{HookDevice, Kind, Outcome};
use crate::rig::made::{ALL, Members, content, ram, scribble, wrong_rows};
use lanefs_device::{Device, RamDevice};
use lanefs_lanes::sync::unscheduled::mpsc;
use lanefs_ondisk::md::{SUPERBLOCK_OFFSET, Uuid, ppl};
use lanefs_raid5::{
    Array, Consistency, Ended, Geometry, InitialParity, Layout, LogArea, Member, NewConsistency,
    NewMember, OpenArray, Policies, Progress, Rebuild, Setup, Standing,
};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

/// An array from which member 1 was removed while a write to that member's log hangs. When `answer`
/// is sent, the write completes, and then the writer terminates.
struct Hanging {
    array: Arc<OpenArray>,
    members: Members,
    model: Vec<u8>,
    answer: mpsc::Sender<()>,
    writer: std::thread::JoinHandle<()>,
}

impl Hanging {
    fn new(seed: u64) -> Hanging {
        let mut members = Members::create(4, NewConsistency::PartialParity, InitialParity::Right);
        let hook = Arc::new(HookDevice::new(members.0[1].1.clone()));
        members.0[1].1 = hook.clone();
        let array = Arc::new(members.open(None).expect("an array"));
        let mut model = scribble(&array, seed, 20);
        let (answer, wait) = mpsc::channel();
        let (hangs, in_log) = mpsc::channel();
        hook.on(Kind::WriteDurable, 0, move || {
            hangs.send(()).expect("the test waits");
            wait.recv().expect("the test answers");
            Outcome::Done
        });
        let shape = *array.array().geometry();
        let row = (8..12).find(|row| shape.parity_slot(*row) == 1).expect("one in four");
        let at = (row * shape.row_len()) as usize;
        model[at..at + 700].fill(0x77);
        let (writes, bytes) = (array.clone(), model[at..at + 700].to_vec());
        let writer = std::thread::spawn(move || {
            writes.write_at(at as u64, &bytes).expect("a write");
        });
        in_log.recv().expect("it writes its log");
        array.array().fail(1).expect("failed");
        Hanging { array, members, model, answer, writer }
    }

    /// Waits for the writer, rebuilds member 1, and checks the array's content.
    fn end(self) {
        self.writer.join().expect("the writer");
        let array = self.array.array();
        array.rebuild(1, Rebuild::Whole, &mut |_| ControlFlow::Continue(())).expect("rebuilt");
        assert_eq!(wrong_rows(&self.array), 0);
        assert!(content(&self.array) == self.model);
    }
}

#[test]
fn a_member_that_hangs_is_replaced_without_waiting_for_it() {
    let mut hanging = Hanging::new(21);
    let (array, model) = (hanging.array.clone(), &mut hanging.model);
    let shape = *array.array().geometry();
    let (name, device) = ram("new");
    let (done, ends) = mpsc::channel();
    let row = (0..4).find(|row| shape.parity_slot(*row) == 1).expect("one in four");
    let at = (row * shape.row_len()) as usize;
    model[at..at + 700].fill(0x66);
    let bytes = model[at..at + 700].to_vec();
    let other = std::thread::spawn(move || {
        array.add(NewMember { name, device, uuid: Uuid([9; 16]) }).expect("added");
        let on = &mut |progress: Progress| match progress.done < 8 * shape.chunk() {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        };
        let ended = array.array().rebuild(1, Rebuild::Whole, on).expect("eight rows");
        assert_eq!(ended, Ended::Stopped);
        // The parity of this row is on member 1, so the write uses the log of the new member.
        let before = array.array().statistics().log_writes;
        array.write_at(at as u64, &bytes).expect("a write");
        assert!(array.array().statistics().log_writes > before);
        done.send(()).expect("the test waits");
    });
    // The limit is long enough for slow machines. Only a defect makes the test wait until the
    // limit.
    let ended = ends.recv_timeout(std::time::Duration::from_secs(60));
    hanging.answer.send(()).expect("it hangs");
    ended.expect("nobody waited");
    other.join().expect("no panic");
    hanging.end();
}

#[test]
fn a_member_that_hangs_and_comes_back_is_waited_for() {
    for blank in [false, true] {
        let hanging = Hanging::new(22);
        let (array, (name, device)) = (hanging.array.clone(), hanging.members.0[1].clone());
        let log = hanging.members.candidates(None)[1].superblock.ppl().expect("a log");
        if blank {
            device.write_at(SUPERBLOCK_OFFSET, &[0; 4096]).expect("no superblock");
        }
        let returns = device.clone();
        let other = std::thread::spawn(move || {
            array.add(NewMember { name, device: returns, uuid: Uuid([9; 16]) }).expect("added");
        });
        // If `add` did not wait for the log write, the other thread would probably be done now.
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert!(!other.is_finished());
        hanging.answer.send(()).expect("it hangs");
        other.join().expect("no panic");
        // The log of the new member is empty: it has a header without entries.
        let mut area = vec![1; log.len as usize];
        device.read_at(log.offset, &mut area).expect("the log");
        let header = ppl::Header::decode(&area, ppl::signature(Uuid([7; 16]))).expect("a header");
        assert!(header.entries.is_empty() && header.generation == 0);
        assert!(area[4096..].iter().all(|byte| *byte == 0));
        hanging.end();
    }
}

/// An array whose member 2 hangs in its next flush until `answer` is sent.
struct HangingFlush {
    array: Arc<OpenArray>,
    hangs: mpsc::Receiver<()>,
    answer: mpsc::Sender<()>,
}

impl HangingFlush {
    fn new(consistency: NewConsistency, limit: Duration) -> HangingFlush {
        let mut members = Members::create(4, consistency, InitialParity::Right);
        let hook = Arc::new(HookDevice::new(members.0[2].1.clone()));
        members.0[2].1 = hook.clone();
        let array = Arc::new(members.open_with_limit(limit));
        scribble(&array, 41, 5);
        let (answer, wait) = mpsc::channel();
        let (says, hangs) = mpsc::channel();
        hook.on(Kind::Flush, 0, move || {
            says.send(()).expect("the test waits");
            wait.recv().expect("the test answers");
            Outcome::Done
        });
        HangingFlush { array, hangs, answer }
    }

    /// Writes and flushes on another thread; sends a message when it is done.
    fn write_and_flush(&self) -> mpsc::Receiver<()> {
        let (done, ends) = mpsc::channel();
        let array = self.array.clone();
        std::thread::spawn(move || {
            array.write_at(7000, &[0x44; 50_000]).expect("a write");
            array.flush().expect("a flush");
            let _ = done.send(());
        });
        ends
    }

    fn standing(&self) -> Standing {
        self.array.array().status().members[2]
    }
}

/// The longest time that a test waits for a message: long enough for slow machines. Only a defect
/// makes a test wait so long.
const LONG: Duration = Duration::from_secs(60);

#[test]
fn a_member_that_hangs_in_a_flush_is_failed_and_the_others_go_on() {
    for consistency in ALL {
        let hanging = HangingFlush::new(consistency, Duration::from_millis(100));
        let first = hanging.write_and_flush();
        hanging.hangs.recv_timeout(LONG).expect("it flushes");
        first.recv_timeout(LONG).expect("the flush ends without it");
        assert_eq!(hanging.standing(), Standing::Missing);
        hanging.write_and_flush().recv_timeout(LONG).expect("writes and flushes still work");
        // The result of the removed member's flush is ignored.
        hanging.answer.send(()).expect("it hangs");
        hanging.write_and_flush().recv_timeout(LONG).expect("writes and flushes still work");
        let mut bytes = [0; 50_000];
        hanging.array.read_at(7000, &mut bytes).expect("a read");
        assert!(bytes.iter().all(|byte| *byte == 0x44));
        assert_eq!(hanging.standing(), Standing::Missing);
    }
}

#[test]
fn a_member_that_hangs_in_a_flush_is_waited_for_while_another_is_missing() {
    let hanging = HangingFlush::new(NewConsistency::PartialParity, Duration::from_millis(20));
    hanging.array.array().fail(0).expect("failed");
    let first = hanging.write_and_flush();
    hanging.hangs.recv_timeout(LONG).expect("it flushes");
    let early = first.recv_timeout(Duration::from_millis(400));
    assert!(early.is_err(), "without both nothing could be read");
    hanging.answer.send(()).expect("it hangs");
    first.recv_timeout(LONG).expect("the flush ends");
    assert_eq!(hanging.standing(), Standing::InSync);
}

#[test]
fn no_thread_waits_for_the_flush_of_a_removed_member() {
    let hanging = HangingFlush::new(NewConsistency::PartialParity, Duration::from_secs(3600));
    let first = hanging.write_and_flush();
    hanging.hangs.recv_timeout(LONG).expect("it flushes");
    hanging.array.array().fail(2).expect("failed");
    first.recv_timeout(LONG).expect("the flush ends without it");
    hanging.answer.send(()).expect("it hangs");
}

#[test]
fn one_header_serves_all_writers_that_waited_for_the_one_before() {
    const WRITERS: u64 = 64;
    let shape = Geometry::new(Layout::LeftSymmetric, 4, 4096, 4096 * 4 * (WRITERS + 1)).unwrap();
    let member = || RamDevice::create((1 << 20) + shape.member_len()).expect("memory");
    let hook = Arc::new(HookDevice::new(Arc::new(member())));
    let of_slot = |slot: usize| -> Arc<dyn Device> {
        if slot == 1 { hook.clone() } else { Arc::new(member()) }
    };
    let members = (0..4).map(|slot| {
        Some(Member {
            device: of_slot(slot),
            data_offset: 1 << 20,
            log: Some(LogArea { offset: 0, len: 1 << 20 }),
            recovered: u64::MAX,
            bad_blocks: None,
        })
    });
    let array = Arc::new(
        Array::start(Setup {
            geometry: shape,
            members: members.collect(),
            record: Arc::new(MemoryRecord::default()),
            consistency: Consistency::PartialParity { signature: 7 },
            active: false,
            unsynced_from: u64::MAX,
            policies: Policies::default(),
        })
        .expect("an array"),
    );
    let rows: Vec<u64> = (0..shape.rows()).filter(|row| shape.parity_slot(*row) == 1).collect();
    assert_eq!(rows.len() as u64, WRITERS + 1);
    let write = |row: u64| {
        let array = array.clone();
        std::thread::spawn(move || array.write_at(row * shape.row_len(), &[5; 4096]))
    };
    let (answer, wait) = mpsc::channel();
    let (hangs, in_log) = mpsc::channel();
    hook.on(Kind::WriteDurable, 0, move || {
        hangs.send(()).expect("the test waits");
        wait.recv().expect("the test answers");
        Outcome::Done
    });
    let mut writers = vec![write(rows[0])];
    in_log.recv().expect("it writes its log");
    writers.extend(rows[1..].iter().map(|row| write(*row)));
    // Writers read first and wait for the log afterwards, so after these reads they are probably
    // waiting.
    let reads = |n: u64| array.statistics().parity_reads + array.statistics().data_reads >= 2 * n;
    while !reads(WRITERS + 1) {
        std::thread::yield_now();
    }
    std::thread::sleep(Duration::from_millis(200));
    answer.send(()).expect("it hangs");
    for writer in writers {
        writer.join().expect("no panic").expect("written");
    }
    let counted = array.statistics();
    // One header serves the first writer and one serves all others; there are more headers if some
    // writers arrived late.
    assert!((2..8).contains(&counted.log_headers), "{} headers", counted.log_headers);
}
