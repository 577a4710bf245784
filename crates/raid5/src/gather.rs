//! Chooses the waiting writes that a thread carries out together with its own write to a row.
//!
//! The gathered parts are then written like one request that holds all their bytes, that is, with
//! one computation of parity and one log entry for each strip. So the parts must not overlap. The
//! chunks written in a strip must also follow each other, because a log entry can describe only a
//! run of consecutive chunks. All functions here are pure.

use crate::layout::Geometry;
use crate::slots::Slots;
use crate::strip::{Piece, RowPart, Strip, pieces, strips};

/// The largest number of parts that are written together. This number bounds the search for such
/// parts.
const MOST: usize = 32;

/// The waiting writes that may join the thread's own write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Join {
    /// Any write that fits.
    Any,
    /// Only writes that, together with the thread's own write, complete all written strips, so that
    /// nothing has to be read.
    Completing,
}

/// Returns the indexes of the `waiting` parts to write together with `own`.
pub(crate) fn choose(
    shape: &Geometry,
    own: &[RowPart],
    waiting: &[RowPart],
    join: Join,
) -> Vec<usize> {
    let (mut all, mut chosen) = (own.to_vec(), Vec::new());
    for at in by_distance(own, waiting) {
        if all.len() >= MOST {
            break;
        }
        all.push(waiting[at]);
        if is_writable(shape, &all) {
            chosen.push(at);
        } else {
            all.pop();
        }
    }
    match join {
        Join::Completing if !is_complete(shape, &all) => Vec::new(),
        Join::Any | Join::Completing => chosen,
    }
}

/// Returns the indexes of the `waiting` parts in this order: first the parts after the start of
/// `own`, ascending, then the parts before it, descending. So of two parts on the same side of
/// `own`, the nearer one comes first.
fn by_distance(own: &[RowPart], waiting: &[RowPart]) -> Vec<usize> {
    let start = own.iter().map(|part| part.first).min().unwrap_or(0);
    let (mut after, mut before): (Vec<usize>, Vec<usize>) =
        (0..waiting.len()).partition(|at| waiting[*at].first >= start);
    after.sort_by_key(|at| waiting[*at].first);
    before.sort_by_key(|at| std::cmp::Reverse(waiting[*at].first));
    after.append(&mut before);
    after
}

fn is_writable(shape: &Geometry, parts: &[RowPart]) -> bool {
    let Some((new, others)) = parts.split_last() else { return true };
    let overlaps =
        |other: &RowPart| new.first < other.first + other.len && other.first < new.first + new.len;
    if others.iter().any(overlaps) {
        return false;
    }
    strips_of(shape, parts).iter().all(|strip| is_run(strip.written))
}

fn is_complete(shape: &Geometry, parts: &[RowPart]) -> bool {
    let all = Slots::below(shape.data());
    strips_of(shape, parts).iter().all(|strip| strip.written == all && strip.partial.is_empty())
}

fn strips_of(shape: &Geometry, parts: &[RowPart]) -> Vec<Strip> {
    let mut sorted = parts.to_vec();
    sorted.sort_by_key(|part| part.first);
    strips(&joint_pieces(shape, &sorted))
}

fn is_run(chunks: Slots) -> bool {
    let first = chunks.first().unwrap_or(0);
    chunks == Slots::below(first + chunks.count()) - Slots::below(first)
}

/// Returns the pieces of `parts`. The parts must be sorted by the position of their first byte. A
/// piece's offset in the request is its offset in the concatenated bytes of all parts.
pub(crate) fn joint_pieces(shape: &Geometry, parts: &[RowPart]) -> Vec<Piece> {
    let mut at = 0;
    let mut all: Vec<Piece> = Vec::new();
    for part in parts {
        for piece in pieces(shape, RowPart { at, ..*part }) {
            match all.last_mut() {
                Some(last) if last.index == piece.index && last.to == piece.from => {
                    last.to = piece.to;
                }
                _ => all.push(piece),
            }
        }
        at += part.len;
    }
    all
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::layout::Layout;

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
}
