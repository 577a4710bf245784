//! Explores schedules of writers that each write parts of rows, and together write whole rows. Each
//! part is written by its own thread or by another writer.

use crate::array::Array;
use crate::array::ram::Unrecorded;
use crate::array::setup::{Consistency, Policies, Setup};
use crate::base::layout::{Geometry, Layout};
use crate::members::Member;
use crate::tests::{Memory, explore};
use lanefs_device::Device;
use lanefs_lanes::sync::unscheduled::atomic::{AtomicU64, Ordering};
use lanefs_lanes::sync::{Arc, atomic, thread};
use lanefs_ondisk::md::Area;

const CHUNK: u64 = 4096;
const ROWS: u64 = 2;
const DATA_OFFSET: u64 = 16384;
const LOG: Area = Area { offset: 0, len: 16384 };

/// An event that happens during the writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Beside {
    Nothing,
    /// The member in slot 0 is removed.
    Removal,
    /// The member in slot 0 fails all operations.
    Failure,
}

/// Models three requests in two rows: the second request covers the end of the first row and the
/// start of the second row. Adds the number of gathered writes to `gathered`.
fn write(consistency: Consistency, beside: Beside, gathered: &AtomicU64) {
    let shape = Geometry::new(Layout::LeftSymmetric, 3, CHUNK, ROWS * CHUNK).unwrap();
    let devices: Vec<_> = (0..3).map(|_| Memory::new(DATA_OFFSET + ROWS * CHUNK)).collect();
    let member = |device: &Arc<Memory>| {
        let device = device.clone();
        Some(Member {
            device,
            data_offset: DATA_OFFSET,
            log: Some(LOG),
            recovered: u64::MAX,
            bad_blocks: None,
        })
    };
    let setup = Setup {
        geometry: shape,
        members: devices.iter().map(member).collect(),
        record: Arc::new(Unrecorded),
        consistency,
        active: true,
        unsynced_from: u64::MAX,
        // The row budget has only one unit. So a thread that holds its range may still have to wait
        // until another thread releases the unit.
        policies: Policies { rows: 1, ..Policies::default() },
    };
    let array = Arc::new(Array::start(setup).unwrap());
    let requests = [(0, CHUNK, 1u8), (CHUNK, 2 * CHUNK, 2), (3 * CHUNK, CHUNK, 3)];
    let writers = requests.map(|(offset, len, byte)| {
        let array = array.clone();
        thread::spawn(move || {
            array.write_at(offset, &vec![byte; len as usize]).expect("a write");
        })
    });
    match beside {
        Beside::Nothing => {}
        Beside::Removal => array.fail(0).expect("one member may fail"),
        Beside::Failure => devices[0].broken.store(true, atomic::Ordering::Relaxed),
    }
    writers.into_iter().for_each(|writer| writer.join().expect("a writer"));
    gathered.fetch_add(array.statistics().gathered, Ordering::Relaxed);
    for (offset, len, byte) in requests {
        let mut got = vec![0; len as usize];
        array.read_at(offset, &mut got).expect("a read");
        assert!(got.iter().all(|b| *b == byte), "the bytes at {offset}");
    }
    if beside == Beside::Nothing {
        let share =
            |device: &Arc<Memory>| device.bytes.lock().unwrap()[DATA_OFFSET as usize..].to_vec();
        let shares: Vec<Vec<u8>> = devices.iter().map(share).collect();
        for at in 0..shares[0].len() {
            let sum = shares.iter().fold(0, |sum, share| sum ^ share[at]);
            assert_eq!(sum, 0, "parity of byte {at}");
        }
    }
}

#[test]
fn shuttle_every_gathered_write_is_written_and_its_thread_goes_on() {
    for consistency in [Consistency::Resync, Consistency::PartialParity { signature: 7 }] {
        for beside in [Beside::Nothing, Beside::Removal, Beside::Failure] {
            let gathered = Arc::new(AtomicU64::new(0));
            let (consistency, counted) = (consistency.clone(), gathered.clone());
            explore(500, move || write(consistency.clone(), beside, &counted));
            assert!(gathered.load(Ordering::Relaxed) > 0, "some writes are gathered");
        }
    }
}
