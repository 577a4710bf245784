//! Counts the reads and writes that members receive, to test that writes in flight to one row
//! become one write. Hooks in members make the interleavings certain.

use crate::rig::Rig;
use crate::rig::hook::{HookDevice, Kind, Outcome};
use lanefs_device::{Device, Duration as Lasting, Fault, FaultyDevice, Operation};
use lanefs_lanes::sync::Arc;
use lanefs_lanes::sync::unscheduled::Mutex;
use lanefs_raid5::{Array, Consistency, Layout, Statistics};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const CHUNK: u64 = 16384;
const ROW: u64 = 3 * CHUNK;

/// An array of four members. A test can run its own code during an operation of a member.
struct Hooked {
    rig: Rig,
    hooks: Vec<Arc<HookDevice>>,
    array: Arc<Array>,
    late: Arc<Mutex<Vec<JoinHandle<bool>>>>,
}

impl Hooked {
    fn new(consistency: Consistency) -> Hooked {
        Hooked::prepared(consistency, |_| {})
    }

    fn prepared(consistency: Consistency, prepare: impl FnOnce(&mut Rig)) -> Hooked {
        let mut rig = Rig::new(Layout::LeftSymmetric, 4, CHUNK, 8).with(consistency);
        prepare(&mut rig);
        let mut hooks = Vec::new();
        for member in rig.members.iter_mut().flatten() {
            let hook = Arc::new(HookDevice::new(member.clone()));
            *member = hook.clone();
            hooks.push(hook);
        }
        let array = Arc::new(rig.start());
        Hooked { rig, hooks, array, late: Arc::default() }
    }

    /// Returns the member with data chunk `index` of row 0; all members are present.
    fn data(&self, index: usize) -> &HookDevice {
        &self.hooks[self.rig.shape.data_slot(0, index)]
    }

    /// During the next operation of this kind, starts one thread for each write `(offset, length,
    /// byte)`. The operation continues when all these threads wait for their row.
    fn during(&self, member: &HookDevice, kind: Kind, writes: Vec<(u64, u64, u8)>) {
        let (array, late) = (self.array.clone(), self.late.clone());
        member.on(kind, 0, move || {
            for (offset, len, byte) in writes {
                let waits = array.statistics().row_waits + 1;
                let of_thread = array.clone();
                let write = move || of_thread.write_at(offset, &vec![byte; len as usize]).is_ok();
                late.lock().unwrap().push(std::thread::spawn(write));
                wait_until(|| array.statistics().row_waits >= waits);
            }
            Outcome::Done
        });
    }

    /// Waits for the threads, and returns for each of them whether its write succeeded.
    fn finish(&self) -> Vec<bool> {
        assert!(!self.hooks.iter().any(|hook| hook.is_set()), "the hook has run");
        self.late.lock().unwrap().drain(..).map(|thread| thread.join().unwrap()).collect()
    }

    fn check(&self, expected: &[(u64, u64, u8)]) {
        for &(offset, len, byte) in expected {
            let mut got = vec![0; len as usize];
            self.array.read_at(offset, &mut got).unwrap();
            assert!(got.iter().all(|b| *b == byte), "the bytes at {offset}");
        }
        assert_eq!(self.rig.wrong_rows(), [0; 0]);
    }
}

fn wait_until(done: impl Fn() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < Duration::from_secs(30), "the other thread does not wait");
        std::thread::yield_now();
    }
}

fn kinds() -> [Consistency; 3] {
    let log = Consistency::PartialParity { signature: 7 };
    [Consistency::Resync, Consistency::Bitmap { chunk: 65536, bits: vec![0; 8] }, log]
}

fn reads(counts: &Statistics) -> u64 {
    assert_eq!(counts.old_reads, counts.data_reads + counts.parity_reads);
    counts.old_reads
}

#[test]
fn a_write_that_arrives_while_another_reads_its_row_completes_the_row() {
    for consistency in kinds() {
        let hooked = Hooked::new(consistency);
        hooked.during(hooked.data(2), Kind::Read, vec![(2 * CHUNK, CHUNK, 2)]);
        hooked.array.write_at(0, &[1; 2 * CHUNK as usize]).unwrap();
        assert_eq!(hooked.finish(), [true]);
        let counts = hooked.array.statistics();
        // The first write reads one chunk. The second write reads nothing, because it is written
        // together with the first. Alone, it would read two chunks.
        assert_eq!((reads(&counts), counts.data_writes, counts.parity_writes), (1, 3, 1));
        assert_eq!((counts.gathered, counts.full_row), (1, 1));
        hooked.check(&[(0, 2 * CHUNK, 1), (2 * CHUNK, CHUNK, 2)]);
    }
}

#[test]
fn the_end_of_a_request_is_written_with_the_next_request() {
    for consistency in kinds() {
        let hooked = Hooked::new(consistency);
        let array = hooked.array.clone();
        // While the first request is in row 0, another thread writes the rest of row 1.
        hooked.data(0).on(Kind::Read, 0, move || {
            array.write_at(ROW + CHUNK, &[2; 2 * CHUNK as usize]).unwrap();
            Outcome::Done
        });
        hooked.array.write_at(2 * CHUNK, &[1; 2 * CHUNK as usize]).unwrap();
        hooked.finish();
        let counts = hooked.array.statistics();
        // Only row 0 is written in part: its third chunk is written, and its first two chunks are
        // read.
        assert_eq!((reads(&counts), counts.data_writes, counts.parity_writes), (2, 4, 2));
        assert_eq!((counts.gathered, counts.full_row), (1, 1));
        hooked.check(&[(2 * CHUNK, 2 * CHUNK, 1), (ROW + CHUNK, 2 * CHUNK, 2)]);
    }
}

#[test]
fn writes_that_wait_for_a_row_are_written_together() {
    for consistency in kinds() {
        let hooked = Hooked::new(consistency);
        // The last two of the three late writes cover the third chunk, one part each. The first one
        // holds a range of offsets in the row, and both parts lie in this range.
        let late =
            vec![(CHUNK, CHUNK, 2), (2 * CHUNK, 5000, 3), (2 * CHUNK + 5000, CHUNK - 5000, 4)];
        hooked.during(hooked.data(0), Kind::Write, late);
        hooked.array.write_at(0, &[1; CHUNK as usize]).unwrap();
        assert_eq!(hooked.finish(), [true; 3]);
        let counts = hooked.array.statistics();
        // The first write reads two chunks. The other writes, which are done together, read one
        // chunk.
        assert_eq!((reads(&counts), counts.parity_writes, counts.gathered), (3, 2, 2));
        assert_eq!(counts.data_writes, 3, "parts that follow each other are one member write");
        hooked.check(&[
            (0, CHUNK, 1),
            (CHUNK, CHUNK, 2),
            (2 * CHUNK, 5000, 3),
            (2 * CHUNK + 5000, CHUNK - 5000, 4),
        ]);
    }
}

#[test]
fn writes_that_overlap_are_not_written_together() {
    let hooked = Hooked::new(Consistency::Resync);
    let late = vec![(CHUNK, CHUNK, 2), (CHUNK, CHUNK, 3)];
    hooked.during(hooked.data(0), Kind::Write, late);
    hooked.array.write_at(0, &[1; CHUNK as usize]).unwrap();
    assert_eq!(hooked.finish(), [true; 2]);
    assert_eq!(hooked.array.statistics().gathered, 0);
    hooked.check(&[(0, CHUNK, 1), (CHUNK, CHUNK, 3)]);
}

#[test]
fn a_row_without_a_member_is_completed_too() {
    for (consistency, lost) in kinds().into_iter().flat_map(|c| [(c.clone(), 1), (c, 3)]) {
        let hooked = Hooked::new(consistency);
        // Slot 3 has the parity of row 0.
        hooked.array.fail(lost).unwrap();
        let late = vec![(CHUNK, CHUNK, 2), (2 * CHUNK, CHUNK, 3)];
        hooked.during(hooked.data(0), Kind::Write, late);
        hooked.array.write_at(0, &[1; CHUNK as usize]).unwrap();
        assert_eq!(hooked.finish(), [true; 2]);
        assert_eq!(hooked.array.statistics().gathered, 1);
        let mut got = vec![0; ROW as usize];
        hooked.array.read_at(0, &mut got).unwrap();
        let chunks = got.chunks(CHUNK as usize).map(|chunk| (chunk[0], chunk[CHUNK as usize - 1]));
        assert_eq!(chunks.collect::<Vec<_>>(), [(1, 1), (2, 2), (3, 3)], "without member {lost}");
    }
}

#[test]
fn a_write_gets_no_error_of_a_write_that_was_written_with_it() {
    // Chunk 2 of row 0 is missing, and chunk 1 cannot be read.
    let shape = Rig::new(Layout::LeftSymmetric, 4, CHUNK, 8).shape;
    let hooked = Hooked::prepared(Consistency::Resync, |rig| {
        let slot = shape.data_slot(0, 1);
        let below = rig.members[slot].take().unwrap();
        let fault = Fault { operation: Operation::Read, nth: 1, duration: Lasting::FromThenOn };
        rig.members[slot] = Some(Arc::new(FaultyDevice::new(below, Some(fault))));
    });
    hooked.array.fail(shape.data_slot(0, 2)).unwrap();
    // The first late write needs only chunk 0 and the parity. The second covers a part of a block
    // of chunk 1, so it needs the rest of this block, which cannot be read.
    let late = vec![(0, CHUNK, 2), (CHUNK, 512, 3)];
    hooked.during(hooked.data(0), Kind::Write, late);
    hooked.array.write_at(0, &[1; CHUNK as usize]).unwrap();
    assert_eq!(hooked.finish(), [true, false]);
    assert_eq!(hooked.array.statistics().gathered, 1, "both were tried together");
    let mut got = vec![0; CHUNK as usize];
    hooked.array.read_at(0, &mut got).unwrap();
    assert!(got.iter().all(|byte| *byte == 2));
}

#[test]
fn a_write_without_company_is_written_at_once() {
    let hooked = Hooked::new(Consistency::Resync);
    let (part, row) = (vec![1; CHUNK as usize], vec![2; 2 * ROW as usize]);
    hooked.array.write_at(0, &part).unwrap();
    hooked.array.write_at(CHUNK, &row).unwrap();
    let counts = hooked.array.statistics();
    assert_eq!((counts.gathered, counts.row_waits), (0, 0));
    hooked.check(&[(0, CHUNK, 1), (CHUNK, 2 * ROW, 2)]);
}
