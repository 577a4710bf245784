//! Schedules of writers beside somebody who exchanges a member: nobody comes to harm who came after.

use crate::array::Planted;
use crate::planted::{Choice, finds};
use crate::{
    Array, Consistency, Ended, Geometry, Layout, LogArea, Member, Policies, Rebuild, Setup,
    Standing, Unrecorded,
};
use lanefs_device::{Device, DeviceError, Operation};
use lanefs_lanes::sync::atomic::{AtomicBool, Ordering};
use lanefs_lanes::sync::unscheduled::Mutex;
use lanefs_lanes::sync::{Arc, thread};
use std::ops::ControlFlow;

const CHUNK: u64 = 4096;
const ROWS: u64 = 2;
/// Bytes before each member's share.
const DATA_OFFSET: u64 = 32768;
const LOG: LogArea = LogArea { offset: 0, len: 16384 };
/// Where nobody else's log is.
const OTHER_LOG: LogArea = LogArea { offset: 16384, len: 16384 };

/// A member in memory that can be told to fail everything from then on.
struct Memory {
    bytes: Mutex<Vec<u8>>,
    broken: AtomicBool,
}

impl Memory {
    fn new() -> Arc<Memory> {
        let len = DATA_OFFSET + ROWS * CHUNK;
        Arc::new(Memory {
            bytes: Mutex::new(vec![0; len as usize]),
            broken: AtomicBool::new(false),
        })
    }

    fn check(&self, operation: Operation, offset: u64) -> Result<(), DeviceError> {
        // A step of the schedule: between being asked and answering, others go on.
        if self.broken.load(Ordering::Relaxed) {
            let error = std::io::Error::other("broken");
            return Err(DeviceError::new(operation, offset, 0, error));
        }
        Ok(())
    }
}

impl Device for Memory {
    fn len(&self) -> u64 {
        self.bytes.lock().unwrap().len() as u64
    }
    fn is_read_only(&self) -> bool {
        false
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        self.check(Operation::Read, offset)?;
        let from = offset as usize;
        buf.copy_from_slice(&self.bytes.lock().unwrap()[from..from + buf.len()]);
        Ok(())
    }
    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<(), DeviceError> {
        self.check(Operation::Write, offset)?;
        let from = offset as usize;
        self.bytes.lock().unwrap()[from..from + buf.len()].copy_from_slice(buf);
        Ok(())
    }
    fn flush(&self) -> Result<(), DeviceError> {
        self.check(Operation::Flush, 0)
    }
    fn discard(&self, _: u64, _: u64) -> Result<(), DeviceError> {
        Ok(())
    }
}

fn member(device: Arc<Memory>, log: LogArea, recovered: u64) -> Member {
    Member { device, data_offset: DATA_OFFSET, log: Some(log), recovered }
}

/// One writes parts of blocks to a row; the member with the row's parity, or with the data, breaks,
/// is taken out, and another is put in and rebuilt.
fn exchange(planted: Option<Planted>, data: bool) {
    let shape = Geometry::new(Layout::LeftSymmetric, 3, CHUNK, ROWS * CHUNK).unwrap();
    let devices: Vec<_> = (0..3).map(|_| Memory::new()).collect();
    let slot = if data { shape.data_slot(0, 0) } else { shape.parity_slot(0) };
    let mut array = Array::start(Setup {
        geometry: shape,
        members: devices.iter().map(|d| Some(member(d.clone(), LOG, u64::MAX))).collect(),
        record: Arc::new(Unrecorded),
        consistency: Consistency::PartialParity { signature: 7 },
        active: true,
        unsynced_from: u64::MAX,
        policies: Policies { rows: 2, ..Policies::default() },
    })
    .unwrap();
    array.planted = planted;
    let array = Arc::new(array);
    let (written, read) = (array.clone(), array.clone());
    let writer = thread::spawn(move || {
        for round in 1..3u8 {
            written.write_at(100, &[round; 200]).expect("a write");
        }
    });
    let reader = thread::spawn(move || {
        let mut got = [0; 200];
        read.read_at(CHUNK, &mut got).expect("a read");
    });
    devices[slot].broken.store(true, Ordering::Relaxed);
    // Unless an operation found out before.
    array.fail(slot).expect("one may fail");
    let new = Memory::new();
    array.attach(slot, member(new.clone(), OTHER_LOG, 0)).expect("another");
    let ended = array.rebuild(slot, Rebuild::Whole, &mut |_| ControlFlow::Continue(()));
    assert_eq!(ended.expect("a rebuild"), Ended::Done);
    writer.join().expect("the writer");
    reader.join().expect("the reader");
    assert_eq!(array.status().members, [Standing::InSync; 3]);
    let old_log = new.bytes.lock().unwrap()[..LOG.len as usize].to_vec();
    assert!(old_log.iter().all(|byte| *byte == 0), "what was logged for the one before");
    let mut got = [0; 200];
    array.read_at(100, &mut got).expect("a read");
    assert_eq!(got, [2; 200]);
}

#[test]
fn shuttle_who_comes_into_a_slot_has_nothing_to_do_with_the_one_before() {
    for data in [false, true] {
        shuttle::check_random(move || exchange(None, data), 3000);
        shuttle::check_pct(move || exchange(None, data), 3000, 3);
    }
}

#[test]
fn shuttle_finds_failures_that_name_the_slot() {
    finds(5000, Choice::Steps, || exchange(Some(Planted::FailsWhoHasTheSlot), true));
}

#[test]
fn shuttle_finds_a_log_that_is_written_to_whoever_has_the_slot() {
    let log = || exchange(Some(Planted::LogsOnWhoHasTheSlot), false);
    finds(20_000, Choice::Priorities(2), log);
}
