//! Random reads and writes, compared with plain memory, with every member missing in turn.

use crate::rig;
use crate::rig::{Rig, content, range};
use lanefs_device::Device;
use lanefs_lanes::sync::atomic::{AtomicUsize, Ordering};
use lanefs_raid5::{
    Array, Consistency, Ended, Layout, Progress, Rebuild, Scrub, Slots, Standing, StripeWake,
};
use std::ops::ControlFlow;

/// Every way to restore parity after a crash.
const CONSISTENCIES: [fn() -> Consistency; 3] = [
    || Consistency::Resync,
    || Consistency::Bitmap { chunk: 32768, bits: vec![0; 2] },
    || Consistency::PartialParity { signature: 7 },
];

/// Performs `count` operations on random ranges: reads, and writes of random kinds.
fn exercise(array: &Array, model: &mut [u8], rng: &mut fastrand::Rng, count: usize) {
    let row_len = array.geometry().row_len();
    for _ in 0..count {
        let (from, n) = range(rng, array.len(), row_len);
        let (from, to) = (from as usize, (from + n) as usize);
        if rng.u8(..3) == 0 {
            let mut got = vec![0; to - from];
            array.read_at(from as u64, &mut got).unwrap();
            assert!(got == model[from..to], "read of {from}..{to}");
            continue;
        }
        rng.fill(&mut model[from..to]);
        let bytes = &model[from..to];
        match rng.u8(..4) {
            0 => array.write_durable_at(from as u64, bytes).unwrap(),
            1 => {
                let piece = rng.usize(1..=bytes.len());
                let bufs: Vec<&[u8]> = bytes.chunks(piece).collect();
                array.write_vectored_at(from as u64, &bufs).unwrap();
            }
            _ => array.write_at(from as u64, bytes).unwrap(),
        }
    }
}

#[test]
fn a_whole_array_reads_back_its_data_and_keeps_parity() {
    let seed = 61;
    println!("seed {seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    for (layout, consistency) in
        Layout::ALL.into_iter().flat_map(|l| CONSISTENCIES.map(|c| (l, c())))
    {
        for (members, chunk) in [(3, 4096), (4, 16384), (5, 8192)] {
            let rig = Rig::new(layout, members, chunk, 12).with(consistency.clone());
            let array = rig.start();
            let mut model = vec![0; array.len() as usize];
            exercise(&array, &mut model, &mut rng, 60);
            assert!(content(&array) == model);
            assert_eq!(rig.wrong_rows(), [0u64; 0], "{layout:?} {members}");
            assert!(rig.record.said().active);
            array.stop().unwrap();
            assert!(!rig.record.said().active);
        }
    }
}

#[test]
fn an_array_without_one_member_goes_on_and_each_other_still_can_be_missed_in_reading() {
    let seed = 62;
    println!("seed {seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    for (layout, consistency) in
        Layout::ALL.into_iter().flat_map(|l| CONSISTENCIES.map(|c| (l, c())))
    {
        for lost in 0..4 {
            let rig = Rig::new(layout, 4, 16384, 9).with(consistency.clone());
            let array = rig.start();
            let mut model = vec![0; array.len() as usize];
            exercise(&array, &mut model, &mut rng, 20);
            array.fail(lost).unwrap();
            assert!(rig.record.said().failed.contains(lost));
            exercise(&array, &mut model, &mut rng, 40);
            assert!(content(&array) == model, "{layout:?} without {lost}");
            assert!(array.fail((lost + 1) % 4).is_err());
            exercise(&array, &mut model, &mut rng, 5);
        }
    }
}

#[test]
fn threads_on_one_row_and_on_many_leave_all_parity_right() {
    for (wake, consistency) in
        [StripeWake::All, StripeWake::One].into_iter().flat_map(|w| CONSISTENCIES.map(|c| (w, c)))
    {
        for rows in [1, 40] {
            let mut rig = Rig::new(Layout::LeftSymmetric, 5, 16384, rows).with(consistency());
            rig.policies.stripe_wake = wake;
            rig.policies.rows = 3;
            let array = rig.start();
            let share = array.len() / 8;
            std::thread::scope(|s| {
                for thread in 0..8u64 {
                    let array = &array;
                    s.spawn(move || {
                        let mut rng = fastrand::Rng::with_seed(70 + thread);
                        let mut mine = vec![0; share as usize];
                        let base = thread * share;
                        for _ in 0..60 {
                            let (from, n) = range(&mut rng, share, share / 3);
                            let part = &mut mine[from as usize..(from + n) as usize];
                            rng.fill(part);
                            array.write_at(base + from, part).unwrap();
                        }
                        let mut got = vec![0; share as usize];
                        array.read_at(base, &mut got).unwrap();
                        assert!(got == mine);
                    });
                }
            });
            assert_eq!(rig.wrong_rows(), [0u64; 0], "{wake:?} {rows}");
        }
    }
}

#[test]
fn plans_cost_the_member_operations_that_they_say() {
    let rig = Rig::new(Layout::LeftSymmetric, 9, 65536, 8);
    let array = rig.start();
    let row = vec![1; array.geometry().row_len() as usize];
    let before = array.statistics();
    array.write_at(0, &row).unwrap();
    let full = array.statistics().since(&before);
    assert_eq!((full.data_writes, full.parity_writes), (8, 1));
    assert_eq!((full.data_reads, full.parity_reads), (0, 0));
    let before = array.statistics();
    array.write_at(4096, &[2; 4096]).unwrap();
    let small = array.statistics().since(&before);
    assert_eq!(
        (small.data_reads, small.parity_reads, small.data_writes, small.parity_writes),
        (1, 1, 1, 1)
    );
}

fn on(_: Progress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

#[test]
fn a_member_is_rebuilt_while_writes_go_on_and_resumes_where_it_stopped() {
    let seed = 63;
    println!("seed {seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    for consistency in CONSISTENCIES {
        let mut rig = Rig::new(Layout::LeftSymmetric, 4, 8192, 60).with(consistency());
        let array = rig.start();
        let mut model = vec![0; array.len() as usize];
        exercise(&array, &mut model, &mut rng, 30);
        array.fail(2).unwrap();
        exercise(&array, &mut model, &mut rng, 30);
        let fresh = rig.replace(2);
        array.attach(2, fresh).unwrap();
        exercise(&array, &mut model, &mut rng, 30);
        let mut left = 20;
        let stopped = array.rebuild(2, Rebuild::Whole, &mut |_| {
            left -= 1;
            if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        assert_eq!(stopped.unwrap(), Ended::Stopped);
        assert_eq!(rig.record.said().recovered.last(), Some(&(2, 20 * 8192)));
        exercise(&array, &mut model, &mut rng, 30);
        assert!(content(&array) == model);
        std::thread::scope(|s| {
            let (array, model) = (&array, &mut model);
            let rebuild = s.spawn(|| {
                array.rebuild(2, Rebuild::Whole, &mut |_| {
                    std::thread::yield_now();
                    ControlFlow::Continue(())
                })
            });
            exercise(array, model, &mut rng, 200);
            assert_eq!(rebuild.join().unwrap().unwrap(), Ended::Done);
        });
        assert_eq!(rig.record.said().recovered.last(), Some(&(2, u64::MAX)));
        assert_eq!(array.status().members[2], Standing::InSync);
        assert!(content(&array) == model);
        assert_eq!(rig.wrong_rows(), [0u64; 0]);
    }
}

#[test]
fn scrub_counts_wrong_rows_and_repair_corrects_them() {
    let seed = 64;
    println!("seed {seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    let rig = Rig::new(Layout::RightAsymmetric, 5, 16384, 10);
    let array = rig.start();
    let mut model = vec![0; array.len() as usize];
    exercise(&array, &mut model, &mut rng, 40);
    let parity = rig.shape.parity_slot(3);
    let member = rig.members[parity].as_ref().unwrap();
    member.write_at(rig::DATA_OFFSET + 3 * 16384 + 5000, b"wrong").unwrap();
    let (report, _) = array.scrub(Scrub::Check, &mut on).unwrap();
    assert_eq!((report.rows, report.wrong_rows, report.wrong_blocks), (10, 1, 1));
    assert_eq!(rig.wrong_rows(), [3]);
    array.scrub(Scrub::Repair, &mut on).unwrap();
    assert_eq!(rig.wrong_rows(), [0u64; 0]);
    assert!(content(&array) == model);
}

#[test]
fn resync_goes_where_parity_is_in_doubt_and_writes_before_it_trust_none() {
    let seed = 65;
    println!("seed {seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut rig = Rig::new(Layout::LeftSymmetric, 4, 8192, 30);
    for member in rig.members.iter().flatten() {
        let mut rubbish = vec![0; 30 * 8192];
        rng.fill(&mut rubbish);
        member.write_at(rig::DATA_OFFSET, &rubbish).unwrap();
    }
    rig.unsynced_from = 0;
    let array = rig.start();
    let mut model = content(&array);
    exercise(&array, &mut model, &mut rng, 40);
    assert_eq!(array.status().unsynced_rows, 30);
    let mut left = 10;
    let stopped = array.resync(&mut |_| {
        left -= 1;
        if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert_eq!(stopped.unwrap(), Ended::Stopped);
    assert_eq!(rig.record.said().resynced, Some(10 * 8192));
    exercise(&array, &mut model, &mut rng, 40);
    assert!(rig.wrong_rows().iter().all(|row| *row >= 10));
    assert_eq!(array.resync(&mut on).unwrap(), Ended::Done);
    assert_eq!(rig.wrong_rows(), [0u64; 0]);
    assert!(content(&array) == model);
    assert_eq!(rig.record.said().resynced, Some(u64::MAX));
}

#[test]
fn missing_data_is_not_computed_from_parity_in_doubt() {
    let mut rig = Rig::new(Layout::LeftSymmetric, 4, 8192, 30);
    for (slot, member) in rig.members.iter().flatten().enumerate() {
        let rubbish: Vec<u8> = (0..30 * 8192).map(|at| (at / 512 * 7 + at + slot) as u8).collect();
        member.write_at(rig::DATA_OFFSET, &rubbish).unwrap();
    }
    rig.unsynced_from = 0;
    let (array, shape) = (rig.start(), rig.shape);
    let model = content(&array);
    let mut left = 10;
    let stopped = array.resync(&mut |_| {
        left -= 1;
        if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert_eq!(stopped.unwrap(), Ended::Stopped);
    let lost = shape.data_slot(10, 0);
    array.fail(lost).unwrap();
    let chunks = || {
        (0..30).flat_map(|row| (0..3).map(move |index| (row, index))).map(|(row, index)| {
            let at = row * shape.row_len() + index as u64 * shape.chunk();
            (at, row >= 10 && shape.data_slot(row, index) == lost)
        })
    };
    for (at, unknown) in chunks() {
        let mut got = [0; 5000];
        let read = array.read_at(at + 100, &mut got);
        assert_eq!(read.is_err(), unknown, "byte {at}: {read:?}");
        assert!(unknown || got[..] == model[at as usize + 100..][..5000], "byte {at}");
        // The write covers a part of a block. If the rest of the block is unknown, the write fails.
        let written = array.write_at(at + 100, &model[at as usize + 100..][..50]);
        assert_eq!(written.is_err(), unknown, "byte {at}: {written:?}");
    }
    assert_eq!(array.degraded(), Slots::one(lost));
    assert!(array.resync(&mut on).unwrap_err().to_string().contains("row 10"));
    assert_eq!(array.status().unsynced_rows, 20, "the rest stays in doubt");
    // A rebuild stops at row 10, and does not write wrong data for this row.
    let new = rig.replace(lost);
    array.attach(lost, new).unwrap();
    assert!(
        array.rebuild(lost, Rebuild::Whole, &mut on).unwrap_err().to_string().contains("row 10")
    );
    assert_eq!(array.status().members[lost], Standing::Rebuilding { row: 10 });
    assert_eq!(rig.record.said().recovered, []);
    for (at, unknown) in chunks() {
        assert_eq!(array.read_at(at, &mut [0; 4096]).is_err(), unknown, "byte {at}");
    }
}

#[test]
fn missing_parity_in_doubt_is_computed_from_the_data() {
    let mut rig = Rig::new(Layout::LeftSymmetric, 4, 8192, 1);
    let parity = rig.shape.parity_slot(0);
    for (slot, member) in rig.members.iter().flatten().enumerate() {
        member.write_at(rig::DATA_OFFSET, &[slot as u8 * 37 + 1; 8192]).unwrap();
    }
    rig.unsynced_from = 0;
    let array = rig.start();
    let model = content(&array);
    array.fail(parity).unwrap();
    assert!(content(&array) == model);
    let new = rig.replace(parity);
    array.attach(parity, new).unwrap();
    assert_eq!(array.rebuild(parity, Rebuild::Whole, &mut on).unwrap(), Ended::Done);
    assert_eq!(array.resync(&mut on).unwrap(), Ended::Done);
    assert_eq!(rig.wrong_rows(), [0u64; 0]);
    assert!(content(&array) == model);
}

#[test]
fn bits_are_set_before_data_and_cleared_when_idle_unless_a_member_is_missing() {
    let mut rig = Rig::new(Layout::LeftSymmetric, 4, 8192, 64);
    rig.consistency = Consistency::Bitmap { chunk: 4 * 8192, bits: vec![0; 2] };
    let array = rig.start();
    let row_len = array.geometry().row_len();
    array.write_at(9 * row_len + 5, b"x").unwrap();
    assert_eq!(rig.record.said().bits[..2], [0b100, 0]);
    let writes = array.statistics().bit_writes;
    array.write_at(9 * row_len + 7000, b"x").unwrap();
    assert_eq!(array.statistics().bit_writes, writes, "set already");
    array.settle().unwrap();
    array.write_at(10 * row_len, b"y").unwrap();
    array.settle().unwrap();
    assert_eq!(rig.record.said().bits[..2], [0b100, 0], "written since the last look");
    array.settle().unwrap();
    assert_eq!(rig.record.said().bits[..2], [0, 0]);
    assert!(!rig.record.said().active);
    array.write_at(0, &vec![1; 16 * row_len as usize]).unwrap();
    assert_eq!(rig.record.said().bits[..2], [0b1111, 0]);
    array.fail(1).unwrap();
    array.stop().unwrap();
    assert_eq!(rig.record.said().bits[..2], [0b1111, 0], "the bits mark what the member misses");
}

#[test]
fn threads_meet_bits_that_are_cleared_under_them() {
    let mut rig = Rig::new(Layout::LeftSymmetric, 4, 4096, 64);
    rig.consistency = Consistency::Bitmap { chunk: 2 * 4096, bits: vec![0; 4] };
    let array = rig.start();
    let row_len = array.geometry().row_len();
    let done = AtomicUsize::new(0);
    std::thread::scope(|s| {
        for thread in 0..4u64 {
            let (array, done) = (&array, &done);
            s.spawn(move || {
                let mut rng = fastrand::Rng::with_seed(80 + thread);
                for _ in 0..300 {
                    let row = rng.u64(..16) * 4 + thread;
                    array.write_at(row * row_len, &[1; 512]).unwrap();
                }
                done.fetch_add(1, Ordering::SeqCst);
            });
        }
        while done.load(Ordering::SeqCst) < 4 {
            array.settle().unwrap();
        }
    });
    let said = rig.record.said();
    assert_eq!(
        array.bitmap().unwrap()[..4],
        said.bits[..4],
        "the bitmap in memory equals that of the members"
    );
    assert!(array.statistics().bit_writes > 4);
}
