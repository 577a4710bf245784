//! Tests of `gather.rs`.

use super::*;
use crate::base::layout::Layout;

const CHUNK: u64 = 16384;

/// Returns a geometry in which each row has four data chunks.
fn shape() -> Geometry {
    Geometry::new(Layout::LeftSymmetric, 5, CHUNK, CHUNK * 8).unwrap()
}

/// Returns the part `from..to`, in quarters of a chunk.
fn part(from: u64, to: u64) -> RowPart {
    RowPart { row: 3, first: from * CHUNK / 4, len: (to - from) * CHUNK / 4, at: 0 }
}

fn chosen(own: RowPart, waiting: &[RowPart], join: Join) -> Vec<usize> {
    let mut chosen = choose(&shape(), &[own], waiting, join);
    chosen.sort_unstable();
    chosen
}

#[test]
fn a_block_is_whole_beside_another_part_of_its_chunk() {
    let strips = strips_of(&shape(), &[part(0, 1), part(2, 3)]);
    let partial: Vec<_> = strips.iter().map(|strip| (strip.from, strip.partial)).collect();
    assert_eq!(partial, [(0, Slots::default()), (CHUNK / 2, Slots::default())]);
}

#[test]
fn parts_that_overlap_or_leave_a_gap_between_chunks_are_not_joined() {
    let own = part(4, 8);
    assert_eq!(chosen(own, &[part(7, 9)], Join::Any), []);
    assert_eq!(chosen(own, &[part(12, 16)], Join::Any), [], "chunk 2 is not written");
    assert_eq!(chosen(own, &[part(12, 16), part(8, 12), part(8, 12)], Join::Any), [0, 1]);
    assert_eq!(chosen(own, &[part(0, 4), part(2, 4)], Join::Any).len(), 1);
    assert_eq!(chosen(part(12, 16), &[part(4, 8), part(8, 12)], Join::Any), [0, 1]);
}

#[test]
fn parts_complete_a_row_or_the_same_range_of_all_chunks() {
    let waiting = [part(8, 12), part(12, 16)];
    assert_eq!(chosen(part(0, 8), &waiting, Join::Completing), [0, 1]);
    assert_eq!(chosen(part(0, 8), &waiting[..1], Join::Completing), []);
    assert_eq!(chosen(part(0, 8), &waiting[1..], Join::Completing), []);
    let columns = [part(5, 6), part(9, 10), part(13, 14)];
    assert_eq!(chosen(part(1, 2), &columns, Join::Completing), [0, 1, 2]);
}

#[test]
fn joint_pieces_hold_the_bytes_of_all_parts_in_order() {
    let seed = 61;
    println!("seed {seed}");
    let (mut rng, shape) = (fastrand::Rng::with_seed(seed), shape());
    for _ in 0..1000 {
        let row = shape.row_len() as usize;
        let mut cuts: Vec<usize> = (0..rng.usize(2..8)).map(|_| rng.usize(..=row)).collect();
        cuts.sort_unstable();
        let content: Vec<u8> = (0..row).map(|_| rng.u8(..)).collect();
        let ranges = cuts.windows(2).map(|w| (w[0], w[1])).filter(|(from, to)| from < to);
        let ranges: Vec<(usize, usize)> = ranges.filter(|_| rng.bool()).collect();
        let part = |&(from, to): &(usize, usize)| RowPart {
            row: 0,
            first: from as u64,
            len: (to - from) as u64,
            at: rng.u64(..),
        };
        let parts: Vec<RowPart> = ranges.iter().map(part).collect();
        let pieces = joint_pieces(&shape, &parts);
        let bytes: Vec<u8> = parts
            .iter()
            .flat_map(|p| &content[p.first as usize..(p.first + p.len) as usize])
            .copied()
            .collect();
        let mut written = 0;
        for piece in &pieces {
            let len = (piece.to - piece.from) as usize;
            let place = (piece.index as u64 * CHUNK + piece.from) as usize;
            let at = piece.at as usize;
            assert_eq!(bytes[at..at + len], content[place..place + len]);
            written += len;
        }
        assert_eq!(written, bytes.len());
    }
}
