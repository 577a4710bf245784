//! Explores schedules of writers that run concurrently with an exchange of a member: the new member
//! must have right contents.

use crate::array::Array;
use crate::array::ram::Unrecorded;
use crate::array::setup::{Consistency, Policies, Setup};
use crate::base::layout::{Geometry, Layout, Slots};
use crate::members::{Member, Standing};
use crate::tests::{Memory, explore};
use crate::upkeep::maintenance::{Ended, Rebuild};
use lanefs_device::{Device, DeviceError, Operation, WriteKind, forward};
use lanefs_lanes::sync::atomic::{AtomicBool, Ordering};
use lanefs_lanes::sync::{Arc, thread};
use lanefs_ondisk::md::Area;
use std::ops::ControlFlow;

const CHUNK: u64 = 4096;
const ROWS: u64 = 2;
/// The offset of the data area on each member.
const DATA_OFFSET: u64 = 32768;
const LOG: Area = Area { offset: 0, len: 16384 };
/// The log area of a new member. It does not overlap the log area of the first members.
const OTHER_LOG: Area = Area { offset: 16384, len: 16384 };

fn memory() -> Arc<Memory> {
    Memory::new(DATA_OFFSET + ROWS * CHUNK)
}

fn member(device: Arc<Memory>, log: Area, recovered: u64) -> Member {
    Member { device, data_offset: DATA_OFFSET, log: Some(log), recovered, bad_blocks: None }
}

/// Starts an array with a parity log on `devices`, all in sync.
fn start(shape: Geometry, devices: &[Arc<Memory>]) -> Arc<Array> {
    let setup = Setup {
        geometry: shape,
        members: devices.iter().map(|d| Some(member(d.clone(), LOG, u64::MAX))).collect(),
        record: Arc::new(Unrecorded),
        consistency: Consistency::PartialParity { signature: 7 },
        active: true,
        unsynced_from: u64::MAX,
        policies: Policies { rows: 2, ..Policies::default() },
    };
    Arc::new(Array::start(setup).unwrap())
}

/// Models one thread that writes parts of blocks to a row. Meanwhile the member with the row's
/// parity, or the member with the data, fails and is removed. Then another member is added and
/// rebuilt.
fn exchange(data: bool) {
    let shape = Geometry::new(Layout::LeftSymmetric, 3, CHUNK, ROWS * CHUNK).unwrap();
    let devices: Vec<_> = (0..3).map(|_| memory()).collect();
    let slot = if data { shape.data_slot(0, 0) } else { shape.parity_slot(0) };
    let array = start(shape, &devices);
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
    // Fails the member, unless an operation has already recorded its failure.
    array.fail(slot).expect("one member may fail");
    let new = memory();
    array.attach(slot, member(new.clone(), OTHER_LOG, 0)).expect("another");
    let ended = array.rebuild(slot, Rebuild::Whole, &mut |_| ControlFlow::Continue(()));
    assert_eq!(ended.expect("a rebuild"), Ended::Done);
    writer.join().expect("the writer");
    reader.join().expect("the reader");
    assert_eq!(array.status().members, [Standing::InSync; 3]);
    let old_log = new.bytes.lock().unwrap()[..LOG.len as usize].to_vec();
    assert!(
        old_log.iter().all(|byte| *byte == 0),
        "the new member's log has no entry of the former member"
    );
    let mut got = [0; 200];
    array.read_at(100, &mut got).expect("a read");
    assert_eq!(got, [2; 200]);
}

/// Models one thread that writes parts of blocks to a row. Meanwhile the member with the row's
/// parity, or the member with the data, is replaced.
fn replace(data: bool) {
    let shape = Geometry::new(Layout::LeftSymmetric, 3, CHUNK, ROWS * CHUNK).unwrap();
    let mut devices: Vec<_> = (0..3).map(|_| memory()).collect();
    let slot = if data { shape.data_slot(0, 0) } else { shape.parity_slot(0) };
    let array = start(shape, &devices);
    let written = array.clone();
    let writer = thread::spawn(move || {
        for round in 1..4u8 {
            // Each write has different bytes, so that no later write hides a lost one.
            written.write_at(300 * u64::from(round), &[round; 200]).expect("a write");
        }
    });
    let new = memory();
    let id = array.add_shadow(slot, member(new.clone(), OTHER_LOG, 0)).expect("a shadow");
    let copied = array.copy_to_shadow(id, &mut |_| ControlFlow::Continue(()));
    assert_eq!(copied.expect("a copy"), Ended::Done);
    array.exchange(id, || Ok(Slots::NONE)).expect("an exchange");
    writer.join().expect("the writer");
    devices[slot] = new;
    let share =
        |device: &Arc<Memory>| device.bytes.lock().unwrap()[DATA_OFFSET as usize..].to_vec();
    let shares: Vec<Vec<u8>> = devices.iter().map(share).collect();
    for at in 0..shares[0].len() {
        assert_eq!(shares.iter().fold(0, |sum, share| sum ^ share[at]), 0, "parity of byte {at}");
    }
    for round in 1..4u8 {
        let mut got = [0; 200];
        array.read_at(300 * u64::from(round), &mut got).expect("a read");
        assert_eq!(got, [round; 200]);
    }
}

/// A member in memory. Once `fails` is set, the member fails each write that starts at or after
/// byte `from`. All other operations succeed.
struct FailsWrites {
    below: Arc<Memory>,
    from: u64,
    fails: AtomicBool,
}

impl Device for FailsWrites {
    forward!(below: len, is_read_only, read);
    fn write(&self, offset: u64, bufs: &[&[u8]], kind: WriteKind) -> Result<(), DeviceError> {
        if offset >= self.from && self.fails.load(Ordering::Relaxed) {
            let error = std::io::Error::other("broken");
            return Err(DeviceError::new(Operation::Write, offset, 0, error));
        }
        self.below.write(offset, bufs, kind)
    }
    fn flush(&self) -> Result<(), DeviceError> {
        Ok(())
    }
    fn discard(&self, _: u64, _: u64) -> Result<(), DeviceError> {
        Ok(())
    }
}

/// Starts an array in which a test can make writes to the member in `slot` fail.
fn start_failing(
    shape: Geometry,
    devices: &[Arc<Memory>],
    slot: usize,
) -> (Arc<Array>, Arc<FailsWrites>) {
    let fails = AtomicBool::new(false);
    let failing = Arc::new(FailsWrites { below: devices[slot].clone(), from: 0, fails });
    let members = devices.iter().enumerate().map(|(at, device)| match at == slot {
        true => Some(bare_member(failing.clone())),
        false => Some(bare_member(device.clone())),
    });
    let array = Array::start(Setup {
        geometry: shape,
        members: members.collect(),
        record: Arc::new(Unrecorded),
        consistency: Consistency::Resync,
        active: true,
        unsynced_from: u64::MAX,
        policies: Policies { rows: 2, ..Policies::default() },
    });
    (Arc::new(array.unwrap()), failing)
}

fn bare_member(device: Arc<dyn Device>) -> Member {
    Member { device, data_offset: 0, log: None, recovered: u64::MAX, bad_blocks: None }
}

/// Models one thread that writes two strips of a row. Meanwhile the member with the row's parity is
/// replaced. This old member fails all writes.
fn replace_failing() {
    const CHUNK: u64 = 16384;
    let shape = Geometry::new(Layout::LeftSymmetric, 3, CHUNK, CHUNK).unwrap();
    let mut devices: Vec<_> = (0..3).map(|_| Memory::new(CHUNK)).collect();
    let slot = shape.parity_slot(0);
    let (array, failing) = start_failing(shape, &devices, slot);
    let new = Memory::new(CHUNK);
    let id = array.add_shadow(slot, bare_member(new.clone())).expect("a shadow");
    let copied = array.copy_to_shadow(id, &mut |_| ControlFlow::Continue(()));
    assert_eq!(copied.expect("a copy"), Ended::Done);
    failing.fails.store(true, Ordering::Relaxed);
    let written = array.clone();
    let writer = thread::spawn(move || {
        // Writes the end of one chunk, and the start of the next.
        written.write_at(CHUNK - 4096, &[7; 8192]).expect("a write");
    });
    let exchanged = array.exchange(id, || Ok(Slots::NONE));
    writer.join().expect("the writer");
    if exchanged.is_err() {
        return;
    }
    devices[slot] = new;
    let shares: Vec<Vec<u8>> = devices.iter().map(|d| d.bytes.lock().unwrap().clone()).collect();
    for at in 0..CHUNK as usize {
        assert_eq!(shares.iter().fold(0, |sum, share| sum ^ share[at]), 0, "parity of byte {at}");
    }
}

/// Models one thread that writes a data chunk of a row of three members. The member with the other
/// data chunk is missing. The member with the written chunk, or with the parity, fails all writes
/// and is replaced meanwhile.
fn replace_failing_degraded(parity: bool) {
    let shape = Geometry::new(Layout::LeftSymmetric, 3, CHUNK, CHUNK).unwrap();
    let devices: Vec<_> = (0..3).map(|_| Memory::new(CHUNK)).collect();
    let slot = if parity { shape.parity_slot(0) } else { shape.data_slot(0, 0) };
    let (array, failing) = start_failing(shape, &devices, slot);
    array.write_at(0, &[1; 2 * CHUNK as usize]).expect("a full row");
    array.fail(shape.data_slot(0, 1)).expect("one member may fail");
    let id = array.add_shadow(slot, bare_member(Memory::new(CHUNK))).expect("a shadow");
    let copied = array.copy_to_shadow(id, &mut |_| ControlFlow::Continue(()));
    assert_eq!(copied.expect("a copy"), Ended::Done);
    failing.fails.store(true, Ordering::Relaxed);
    let written = array.clone();
    let writer = thread::spawn(move || written.write_at(0, &[7; CHUNK as usize]).is_ok());
    let _ = array.exchange(id, || Ok(Slots::NONE));
    let acknowledged = writer.join().expect("the writer");
    let mut got = [0; 2 * CHUNK as usize];
    array.read_at(0, &mut got).expect("a read");
    let (first, second) = got.split_at(CHUNK as usize);
    assert!(second.iter().all(|byte| *byte == 1), "the chunk of the missing member changed");
    if acknowledged {
        assert!(first.iter().all(|byte| *byte == 7), "an acknowledged write is lost");
    }
}

#[test]
fn shuttle_a_degraded_array_keeps_its_data_when_a_replaced_member_fails() {
    explore(5000, || replace_failing_degraded(false));
    explore(5000, || replace_failing_degraded(true));
}

#[test]
fn shuttle_a_member_that_fails_as_it_is_replaced_leaves_the_new_one_all_parity() {
    explore(5000, replace_failing);
}

/// Models the replacement of the member with the parity of row 0, which also has the log for this
/// row. That member and another member fail all writes beyond the log area, so the array stops
/// writes.
fn replace_as_writes_stop() {
    let shape = Geometry::new(Layout::LeftSymmetric, 3, CHUNK, ROWS * CHUNK).unwrap();
    let slot = shape.parity_slot(0);
    let members = (0..3).map(|at| {
        let fails = AtomicBool::new(at == slot || at == shape.data_slot(0, 0));
        let device = Arc::new(FailsWrites { below: memory(), from: DATA_OFFSET, fails });
        Some(Member {
            device,
            data_offset: DATA_OFFSET,
            log: Some(LOG),
            recovered: u64::MAX,
            bad_blocks: None,
        })
    });
    let array = Array::start(Setup {
        geometry: shape,
        members: members.collect(),
        record: Arc::new(Unrecorded),
        consistency: Consistency::PartialParity { signature: 7 },
        active: true,
        unsynced_from: u64::MAX,
        policies: Policies { rows: 2, ..Policies::default() },
    });
    let array = Arc::new(array.unwrap());
    let id = array.add_shadow(slot, member(memory(), OTHER_LOG, 0)).expect("a shadow");
    let copied = array.copy_to_shadow(id, &mut |_| ControlFlow::Continue(()));
    assert_eq!(copied.expect("a copy"), Ended::Done);
    let written = array.clone();
    let writer = thread::spawn(move || written.write_at(0, &[7; 4096]).is_ok());
    let exchanged = array.exchange(id, || Ok(Slots::NONE)).is_ok();
    assert!(
        writer.join().expect("the writer") <= exchanged,
        "the array cannot work without two members"
    );
}

#[test]
fn shuttle_an_exchange_ends_when_writes_stop() {
    explore(20_000, replace_as_writes_stop);
}

#[test]
fn shuttle_a_replaced_member_misses_no_write() {
    explore(3000, || replace(false));
    explore(3000, || replace(true));
}

#[test]
fn shuttle_a_new_member_of_a_slot_is_independent_of_the_former() {
    explore(3000, || exchange(false));
    explore(3000, || exchange(true));
}
