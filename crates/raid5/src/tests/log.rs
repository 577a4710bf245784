//! Explores schedules of writers that share one log. Either a writer gets the turn and writes a
//! header itself, or another thread writes the writer's entries.

use crate::array::Array;
use crate::array::ram::Unrecorded;
use crate::array::setup::{Consistency, Policies, Setup};
use crate::base::layout::{Geometry, Layout};
use crate::members::Member;
use crate::tests::{Memory, explore};
use lanefs_device::Device;
use lanefs_lanes::sync::{Arc, thread};
use lanefs_ondisk::md::Area;

const CHUNK: u64 = 8192;
const ROWS: u64 = 4;
const DATA_OFFSET: u64 = 16384;
/// Has room for a header and the partial parity of three blocks.
const LOG: Area = Area { offset: 0, len: 16384 };

/// Lets each thread write its own block twice. So the log fills up and has to start again. At that
/// time, the entry of a block's first write may still be unfinished when the second write arrives.
fn write(carries: usize) {
    let shape = Geometry::new(Layout::LeftSymmetric, 3, CHUNK, ROWS * CHUNK).unwrap();
    let member = |_| {
        let device = Memory::new(DATA_OFFSET + ROWS * CHUNK);
        Some(Member {
            device,
            data_offset: DATA_OFFSET,
            log: Some(LOG),
            recovered: u64::MAX,
            bad_blocks: None,
        })
    };
    let array = Array::start(Setup {
        geometry: shape,
        members: (0..3).map(member).collect(),
        record: Arc::new(Unrecorded),
        consistency: Consistency::PartialParity { signature: 7 },
        active: true,
        unsynced_from: u64::MAX,
        policies: Policies { rows: 4, log_carries: carries, ..Policies::default() },
    })
    .unwrap();
    assert_eq!(shape.parity_slot(0), shape.parity_slot(3));
    let (row, array) = (shape.row_len(), Arc::new(array));
    let places = [0, 4096, 3 * row, 3 * row + 4096];
    let writers = places.map(|place| {
        let array = array.clone();
        thread::spawn(move || {
            for round in 1..3u8 {
                array.write_at(place, &[round; 4096]).expect("a write");
            }
        })
    });
    writers.into_iter().for_each(|writer| writer.join().expect("a writer"));
    for place in places {
        let mut got = [0; 4096];
        array.read_at(place, &mut got).expect("a read");
        assert_eq!(got, [2; 4096]);
    }
}

#[test]
fn shuttle_every_writer_that_waits_for_a_log_goes_on() {
    for carries in [0, 1, 32] {
        explore(2000, move || write(carries));
    }
}
