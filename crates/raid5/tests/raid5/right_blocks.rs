//! Data that was written where parity is in doubt, and is read after its member has failed.

use crate::rig::{DATA_OFFSET, Rig, content};
use lanefs_device::Device;
use lanefs_raid5::{Array, Consistency, Layout};
use std::ops::ControlFlow;

const CHUNK: u64 = 16384;
const BLOCK: u64 = 4096;
const ROWS: u64 = 12;

/// Starts an array in which all parity is wrong. The array is told that parity may be wrong only
/// from row 2 on.
fn start(consistency: Consistency) -> (Rig, Array) {
    let mut rig = Rig::new(Layout::LeftSymmetric, 4, CHUNK, ROWS).with(consistency);
    for (slot, member) in rig.members.iter().flatten().enumerate() {
        let rubbish: Vec<u8> =
            (0..ROWS * CHUNK).map(|at| (at / 512 * 7 + at) as u8 ^ (slot as u8 * 37 + 1)).collect();
        member.write_at(DATA_OFFSET, &rubbish).unwrap();
    }
    rig.unsynced_from = 2 * CHUNK;
    let array = rig.start();
    (rig, array)
}

/// Expects that in `row` all blocks of the other chunks can be read, but of the chunk `lost` only
/// the blocks in `readable`.
fn expect_readable(array: &Array, model: &[u8], row: u64, lost: u64, readable: &[u64]) {
    for chunk in 0..3 {
        for block in 0..CHUNK / BLOCK {
            let at = row * array.geometry().row_len() + chunk * CHUNK + block * BLOCK;
            let mut got = [0; BLOCK as usize];
            let read = array.read_at(at, &mut got);
            let place = format!("row {row}, chunk {chunk}, block {block}");
            assert_eq!(read.is_ok(), chunk != lost || readable.contains(&block), "{place}");
            assert!(read.is_err() || got[..] == model[at as usize..][..got.len()], "{place}");
        }
    }
}

#[test]
fn blocks_written_since_the_start_can_be_read_without_their_member() {
    for consistency in [Consistency::Resync, Consistency::PartialParity { signature: 7 }] {
        let (rig, array) = start(consistency);
        let (shape, mut model) = (rig.shape, content(&array));
        // The index of the data chunk of `row` that is on the member that will fail.
        let lost = |row| (0..3).find(|i| shape.data_slot(row, *i as usize) == 0).unwrap();
        let at = |row, chunk: u64| row * shape.row_len() + chunk * CHUNK;
        let mut put = |at: u64, len: u64| {
            let bytes = &mut model[at as usize..(at + len) as usize];
            bytes.iter_mut().for_each(|byte| *byte = byte.wrapping_mul(5).wrapping_add(at as u8));
            array.write_at(at, bytes)
        };
        // A whole row.
        put(at(4, 0), shape.row_len()).unwrap();
        // A part of a block of the lost chunk.
        put(at(5, lost(5)) + BLOCK + 100, 50).unwrap();
        // A block of another chunk, twice. The second write may trust the parity.
        let other = at(6, (lost(6) + 1) % 3) + 2 * BLOCK;
        put(other, BLOCK).unwrap();
        put(other + 7, 90).unwrap();
        array.fail(0).unwrap();
        // A block of the lost chunk, as a whole.
        put(at(8, lost(8)) + 3 * BLOCK, BLOCK).unwrap();
        put(at(8, lost(8)) + 3 * BLOCK + 9, 10).unwrap();
        // After the failure, a write to a block of another chunk leaves the parity of that block in
        // doubt.
        put(at(9, (lost(9) + 1) % 3), BLOCK).unwrap();
        let right: [(u64, &[u64]); 6] =
            [(4, &[0, 1, 2, 3]), (5, &[1]), (6, &[2]), (8, &[3]), (9, &[]), (10, &[])];
        for (row, right) in right {
            expect_readable(&array, &model, row, lost(row), right);
        }
        assert_eq!(array.status().unsynced_rows, ROWS - 2);
    }
}

#[test]
fn a_resync_goes_on_after_writes_to_blocks_in_doubt() {
    let (rig, array) = start(Consistency::Resync);
    array.write_at(4 * rig.shape.row_len() + 5, &[9; 9000]).unwrap();
    let model = content(&array);
    array.resync(&mut |_| ControlFlow::Continue(())).unwrap();
    assert_eq!(rig.wrong_rows(), [0, 1], "rows that were taken for right");
    array.fail(rig.shape.data_slot(5, 1)).unwrap();
    let from = 2 * rig.shape.row_len() as usize;
    let mut got = vec![0; model.len() - from];
    array.read_at(from as u64, &mut got).unwrap();
    assert!(got[..] == model[from..]);
}
