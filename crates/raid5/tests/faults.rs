//! Failing members: the n-th operation of each kind on each member, for every n.

mod rig;

use lanefs_device::{Device, Duration, Fault, FaultyDevice, Operation};
use lanefs_lanes::sync::Arc;
use lanefs_raid5::{Array, Consistency, Layout, Slots};
use rig::{Rig, content, range};

/// Small writes, large ones, reads and flushes, always the same. Ends at the first write that
/// fails; gives the ranges that it left in doubt.
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

/// Puts a fault in front of a member.
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
fn whichever_member_operation_fails_the_array_goes_on_and_says_who_it_was() {
    assert!(fail_every(7) > 80);
}

#[test]
#[ignore = "long: every operation of every member"]
fn every_single_member_operation_may_fail() {
    assert!(fail_every(1) > 500);
}

/// Fails every `step`-th operation of each kind on each member, each in an array of its own.
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
                    assert_eq!(rig.record.said().failed, Slots::one(slot), "{fault}");
                    assert_eq!(array.degraded(), Slots::one(slot), "{fault}");
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
                let got = content(&array);
                // A block of the missing member that the failed write went to is in doubt.
                let block = |at: usize| at / 4096 * 4096;
                let same = |from: usize, to: usize| got[from..to] == model[from..to];
                assert!(same(0, block(from)), "{operation:?} {nth}");
                let after = (to.div_ceil(4096) * 4096).min(got.len());
                assert!(from == to || same(after, got.len()), "{operation:?} {nth}");
            }
        }
    }
    assert!(stopped > 15, "{stopped}");
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
