//! Tests members whose n-th operation of a kind fails, for every n, every kind and every member.

use crate::rig;
use crate::rig::hook::{HookDevice, Kind, Outcome};
use crate::rig::{Rig, content, range};
use lanefs_device::{
    Device, DeviceError, Duration, Fault, FaultyDevice, Operation, ReadKind, WriteKind, forward,
    total_len,
};
use lanefs_lanes::sync::Arc;
use lanefs_lanes::sync::unscheduled::Mutex;
use lanefs_raid5::{Array, Consistency, Layout, Scrub, Slots};
use std::collections::BTreeSet;
use std::ops::ControlFlow;

/// Runs small and large writes, reads and flushes; each call runs the same sequence. Stops at the
/// first failed write or flush, and returns the byte range whose content is undefined after this
/// failure: the range of the write, or an empty range for a flush.
fn load(array: &Array, model: &mut [u8]) -> Option<(usize, usize)> {
    let mut rng = fastrand::Rng::with_seed(91);
    for round in 0..14 {
        let (from, n) = range(&mut rng, array.len(), array.geometry().row_len());
        let (from, to) = (from as usize, (from + n) as usize);
        let mut bytes = vec![0; to - from];
        rng.fill(&mut bytes);
        let result = match round % 5 {
            4 => array.write_durable_at(from as u64, &bytes),
            _ => array.write_at(from as u64, &bytes),
        };
        if result.is_err() {
            return Some((from, to));
        }
        model[from..to].copy_from_slice(&bytes);
        if round % 4 == 3 && array.flush().is_err() {
            return Some((0, 0));
        }
        let (from, n) = range(&mut rng, array.len(), array.geometry().row_len());
        let mut got = vec![0; n as usize];
        array.read_at(from, &mut got).unwrap();
        assert!(got == model[from as usize..(from + n) as usize]);
    }
    None
}

fn rig(consistency: &Consistency) -> Rig {
    Rig::new(Layout::LeftSymmetric, 4, 16384, 6).with(consistency.clone())
}

/// Puts a [`FaultyDevice`] over the member in `slot`. Without a fault, it only counts operations.
fn break_member(rig: &mut Rig, slot: usize, fault: Option<Fault>) -> Arc<FaultyDevice> {
    let below = rig.members[slot].take().unwrap();
    let faulty = Arc::new(FaultyDevice::new(below, fault));
    rig.members[slot] = Some(faulty.clone());
    faulty
}

const OPERATIONS: [Operation; 3] = [Operation::Read, Operation::Write, Operation::Flush];

fn consistencies() -> [Consistency; 3] {
    [
        Consistency::Resync,
        Consistency::Bitmap { chunk: 32768, bits: vec![0; 2] },
        Consistency::PartialParity { signature: 7 },
    ]
}

#[test]
fn whichever_member_operation_fails_the_array_goes_on_and_names_the_member() {
    assert!(fail_every(7) > 80);
}

#[test]
#[ignore = "long: every operation of every member"]
fn every_single_member_operation_may_fail() {
    assert!(fail_every(1) > 500);
}

/// Fails every `step`-th operation of each kind on each member, each in a new array. Returns the
/// number of faults.
fn fail_every(step: usize) -> usize {
    let mut faults = 0;
    for consistency in consistencies() {
        for (slot, operation) in (0..4).flat_map(|s| OPERATIONS.map(|o| (s, o))) {
            let mut counted = rig(&consistency);
            let counter = break_member(&mut counted, slot, None);
            let array = counted.start();
            assert!(load(&array, &mut vec![0; array.len() as usize]).is_none());
            for nth in (1..=counter.count(operation)).step_by(step) {
                for duration in [Duration::Once, Duration::FromThenOn] {
                    let mut rig = rig(&consistency);
                    break_member(&mut rig, slot, Some(Fault { operation, nth, duration }));
                    let array = rig.start();
                    let mut model = vec![0; array.len() as usize];
                    let fault = format!("{operation:?} {nth} of {slot} {duration:?}");
                    assert!(load(&array, &mut model).is_none(), "{fault}");
                    // A member does not fail if the unreadable blocks can be read after they were
                    // rewritten. Of a longer range, only blocks that fail again are rewritten.
                    let (failed, most) = match (operation, duration) {
                        (Operation::Read, Duration::Once) => (Slots::NONE, 1),
                        _ => (Slots::one(slot), 0),
                    };
                    assert_eq!(rig.record.said().failed, failed, "{fault}");
                    assert_eq!(array.degraded(), failed, "{fault}");
                    assert!(array.statistics().reads_corrected <= most, "{fault}");
                    assert!(content(&array) == model, "{fault}");
                    array.stop().unwrap();
                    faults += 1;
                }
            }
        }
    }
    println!("{faults} faults");
    faults
}

#[test]
fn a_second_failure_stops_writes_and_loses_nothing_that_was_acknowledged() {
    let mut stopped = 0;
    for consistency in consistencies() {
        for operation in [Operation::Write, Operation::Flush] {
            for nth in (1..40).step_by(3) {
                let mut rig = rig(&consistency);
                let fault = Fault { operation, nth, duration: Duration::FromThenOn };
                break_member(&mut rig, 2, Some(fault));
                let array = rig.start();
                array.fail(0).unwrap();
                let mut model = vec![0; array.len() as usize];
                let Some((from, to)) = load(&array, &mut model) else { continue };
                stopped += 1;
                assert!(array.write_at(0, &[1]).is_err(), "writes are stopped");
                assert!(array.flush().is_err());
                assert!(array.status().stopped);
                assert_eq!(rig.record.said().failed, Slots::one(0), "the second is not recorded");
                // If the failed write covered a block of the missing member, this block may hold
                // anything or be unreadable.
                // After a failed flush, so may all its blocks that were not flushed.
                let same = |from: usize, to: usize| {
                    (from..to).step_by(4096).all(|at| {
                        let mut got = vec![0; 4096.min(to - at)];
                        match array.read_at(at as u64, &mut got) {
                            Ok(()) => got == model[at..at + got.len()],
                            Err(_) => {
                                let place = rig.shape.place(at as u64);
                                let slot = rig.shape.data_slot(place.row, place.index);
                                operation == Operation::Flush && slot == 0
                            }
                        }
                    })
                };
                assert!(same(0, from / 4096 * 4096), "{operation:?} {nth}");
                let after = (to.div_ceil(4096) * 4096).min(model.len());
                assert!(from == to || same(after, model.len()), "{operation:?} {nth}");
            }
        }
    }
    assert!(stopped > 15, "{stopped}");
}

#[test]
fn a_second_failure_in_the_middle_of_a_block_does_not_change_other_data() {
    for consistency in consistencies() {
        // The member whose write fails halfway: the member with the written data, or the member
        // with the parity.
        for index in [Some(0), None] {
            let mut rig = rig(&consistency);
            let slot = index.map_or(rig.shape.parity_slot(0), |i| rig.shape.data_slot(0, i));
            let below = rig.members[slot].take().unwrap();
            let hook = Arc::new(HookDevice::new(below.clone()));
            rig.members[slot] = Some(hook.clone());
            let array = rig.start();
            let model: Vec<u8> = (0..array.len()).map(|at| (at / 512 * 37 + at) as u8).collect();
            array.write_at(0, &model).unwrap();
            array.fail(rig.shape.data_slot(0, 1)).unwrap();
            hook.on(Kind::Write, 0, move || {
                below.write_at(rig::DATA_OFFSET, &[0x5a; 2048]).unwrap();
                Outcome::Failed
            });
            array.write_at(0, &[0x5a; 4096]).unwrap_err();
            let mut got = [0; 4096];
            // The block of the missing member depends on the block that is torn.
            let chunk = rig.shape.chunk() as usize;
            let read = array.read_at(chunk as u64, &mut got);
            assert!(read.is_err() || got[..] == model[chunk..][..4096], "{index:?}");
            array.read_at(chunk as u64 + 4096, &mut got).unwrap();
            assert!(got[..] == model[chunk + 4096..][..4096], "{index:?}");
        }
    }
}

#[test]
fn a_write_to_a_part_of_a_missing_block_is_undone_if_the_parity_fails() {
    let mut failed = 0;
    for (consistency, before) in consistencies().iter().flat_map(|c| [(c, 0), (c, 1)]) {
        let mut rig = rig(consistency);
        let slot = rig.shape.parity_slot(0);
        let hook = Arc::new(HookDevice::new(rig.members[slot].take().unwrap()));
        rig.members[slot] = Some(hook.clone());
        let array = rig.start();
        let model: Vec<u8> = (0..array.len()).map(|at| (at / 512 * 37 + at) as u8).collect();
        array.write_at(0, &model).unwrap();
        array.fail(rig.shape.data_slot(0, 1)).unwrap();
        hook.on(Kind::Write, before, || Outcome::Failed);
        let chunk = rig.shape.chunk() as usize;
        if array.write_at(0, &vec![0x5a; chunk + 100]).is_ok() {
            continue;
        }
        let mut got = [0; 4096];
        array.read_at(chunk as u64, &mut got).unwrap();
        assert!(got[..] == model[chunk..][..4096], "{consistency:?} {before}");
        failed += 1;
    }
    assert!(failed >= 3, "{failed} of the writes failed");
}

/// A disk with sectors that cannot be read until a write makes the disk remap them.
struct Worn {
    below: Arc<dyn Device>,
    bad: Mutex<BTreeSet<u64>>,
}

impl Worn {
    fn blocks(offset: u64, len: usize) -> std::ops::Range<u64> {
        offset / 4096..(offset + len as u64).div_ceil(4096)
    }
}

impl Device for Worn {
    forward!(below: len, is_read_only, flush, write_zeros, discard);
    fn read(&self, offset: u64, buf: &mut [u8], kind: ReadKind) -> Result<(), DeviceError> {
        let bad = self.bad.lock().unwrap();
        if bad.range(Worn::blocks(offset, buf.len())).next().is_some() {
            let error = std::io::Error::other("worn out");
            return Err(DeviceError::new(Operation::Read, offset, buf.len() as u64, error));
        }
        self.below.read(offset, buf, kind)
    }
    fn write(&self, offset: u64, bufs: &[&[u8]], kind: WriteKind) -> Result<(), DeviceError> {
        let mut bad = self.bad.lock().unwrap();
        Worn::blocks(offset, total_len(bufs) as usize).for_each(|block| {
            bad.remove(&block);
        });
        self.below.write(offset, bufs, kind)
    }
}

/// Makes blocks of the data area of the member in `slot` unreadable; `blocks` lists their numbers.
fn wear(rig: &mut Rig, slot: usize, blocks: impl Iterator<Item = u64>) -> Arc<Worn> {
    let below = rig.members[slot].take().unwrap();
    let first = rig::DATA_OFFSET / 4096;
    let bad = Mutex::new(blocks.map(|block| first + block).collect());
    let worn = Arc::new(Worn { below, bad });
    rig.members[slot] = Some(worn.clone());
    worn
}

#[test]
fn places_that_cannot_be_read_are_written_anew_from_the_other_members() {
    for consistency in consistencies() {
        let mut rig = rig(&consistency);
        let mut model = vec![0; rig.start().len() as usize];
        assert!(load(&rig.start(), &mut model).is_none());
        // Blocks of data and of parity, in six rows of four blocks.
        let worn = wear(&mut rig, 1, [0, 5, 6, 9, 17, 22].into_iter());
        let array = rig.start();
        assert!(content(&array) == model);
        let before = array.statistics().reads_corrected;
        assert!(before > 0 && before <= 6);
        let (report, _) =
            array.scrub(Scrub::Check, &mut |_| ControlFlow::Continue(())).expect("scrub");
        assert_eq!((report.wrong_blocks, report.skipped), (0, 0));
        assert!(worn.bad.lock().unwrap().is_empty(), "a scrub reads everything");
        assert_eq!(array.degraded(), Slots::NONE);
        assert!(content(&array) == model);
    }
}

#[test]
fn a_member_with_too_many_places_that_cannot_be_read_is_failed() {
    let mut rig = Rig::new(Layout::LeftSymmetric, 4, 16384, 200);
    let mut model = vec![0; rig.start().len() as usize];
    assert!(load(&rig.start(), &mut model).is_none());
    wear(&mut rig, 2, 0..800);
    let array = rig.start();
    let mut got = vec![0; model.len()];
    for (at, got) in got.chunks_mut(4096).enumerate() {
        array.read_at(at as u64 * 4096, got).unwrap();
    }
    assert!(got == model);
    assert_eq!(array.statistics().reads_corrected, 256);
    assert_eq!(rig.record.said().failed, Slots::one(2));
}

#[test]
fn a_place_that_two_members_cannot_read_is_an_error_and_no_more() {
    let mut rig = rig(&Consistency::Resync);
    wear(&mut rig, 1, [2].into_iter());
    wear(&mut rig, 2, [2].into_iter());
    let array = rig.start();
    let mut all = vec![0; array.len() as usize];
    assert!(array.read_at(0, &mut all).is_err());
    assert_eq!(array.degraded(), Slots::NONE);
    array.write_at(0, &all).unwrap();
    array.read_at(0, &mut all).unwrap();
}

#[test]
fn a_place_that_cannot_be_read_of_a_degraded_array_is_an_error_and_no_more() {
    let mut rig = rig(&Consistency::Resync);
    let fault = Fault { operation: Operation::Read, nth: 1, duration: Duration::Once };
    break_member(&mut rig, 1, Some(fault));
    let array = rig.start();
    array.fail(0).unwrap();
    let mut all = vec![0; array.len() as usize];
    assert!(array.read_at(0, &mut all).is_err());
    assert_eq!(array.degraded(), Slots::one(0));
    array.read_at(0, &mut all).unwrap();
    array.write_at(0, &all).unwrap();
}

#[test]
fn data_put_back_after_a_second_failure_fits_the_written_parity() {
    // The write covers the end of a chunk and the start of the next: the row's parity is written in
    // two runs, and the second one fails. The missing member has none of the written blocks.
    let mut rig = rig(&Consistency::Resync);
    let shape = rig.shape;
    let (parity, lost) = (shape.parity_slot(0), shape.data_slot(0, 2));
    let model: Vec<u8> = (0..shape.len()).map(|at| (at / 512 * 29 + at) as u8).collect();
    rig.start().write_at(0, &model).unwrap();
    let fault = Fault { operation: Operation::Write, nth: 2, duration: Duration::FromThenOn };
    break_member(&mut rig, parity, Some(fault));
    let array = rig.start();
    array.fail(lost).unwrap();
    let (from, to) = (16384 - 4096, 16384 + 4096);
    assert!(array.write_at(from, &[0x77; 8192]).is_err());
    let got = content(&array);
    assert!(got[..from as usize] == model[..from as usize]);
    assert!(got[to as usize..] == model[to as usize..], "what the missing member has");
}

#[test]
fn a_slot_that_the_array_does_not_have_cannot_fail() {
    let array = rig(&Consistency::Resync).start();
    for slot in [4, 63, 64, usize::MAX] {
        array.fail(slot).expect_err("there is none");
    }
    assert!(array.degraded().is_empty() && !array.status().stopped);
}
