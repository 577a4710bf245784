//! Chooses the waiting writes that a thread carries out together with its own write to a row.
//!
//! The gathered parts are then written like one request that holds all their bytes, that is, with
//! one computation of parity and one log entry for each strip. So the parts must not overlap. The
//! chunks written in a strip must also follow each other, because a log entry can describe only a
//! run of consecutive chunks. A [`Group`] is the parts of a row that one thread writes together.

use crate::base::layout::{Geometry, Slots};
use crate::rows::strip::{Bytes, Piece, RowPart, Strip, pieces, strips};
use crate::rows::{RowHold, Taken};
use lanefs_device::WriteKind;

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

/// A thread's own part of a row, and the parts that it took from other threads.
pub(crate) struct Group<'s> {
    pub(crate) own: RowPart,
    pub(crate) how: WriteKind,
    source: &'s Bytes<'s>,
    taken: Vec<Taken>,
    /// Whether the group takes row parts from other threads.
    open: bool,
}

impl<'s> Group<'s> {
    pub(crate) fn new(own: RowPart, source: &'s Bytes<'s>, how: WriteKind) -> Group<'s> {
        Group { own, how, source, taken: Vec::new(), open: true }
    }

    /// Creates a group to which no parts of other threads are added.
    pub(crate) fn alone(own: RowPart, source: &'s Bytes<'s>, how: WriteKind) -> Group<'s> {
        Group { open: false, ..Group::new(own, source, how) }
    }

    /// Takes the waiting parts that fit the group; the caller adds them to the group.
    pub(crate) fn waiting(&self, shape: &Geometry, hold: &RowHold<'_>, join: Join) -> Vec<Taken> {
        if !self.open || self.own.len == shape.row_len() {
            return Vec::new();
        }
        let all: Vec<RowPart> = self.parts().map(|(part, _)| part).collect();
        hold.take(self.how, |waiting| choose(shape, &all, waiting, join))
    }

    pub(crate) fn extend(&mut self, more: Vec<Taken>) {
        self.taken.extend(more);
    }

    /// Returns whether the group contains parts that belong to other threads.
    pub(crate) fn is_shared(&self) -> bool {
        !self.taken.is_empty()
    }

    /// Returns the pieces of all parts, and the bytes of all parts. The offsets of the pieces are
    /// offsets in these bytes.
    pub(crate) fn contents(&self, shape: &Geometry) -> (Vec<Piece>, Vec<&[u8]>) {
        let mut all: Vec<_> = self.parts().collect();
        all.sort_by_key(|(part, _)| part.first);
        let parts: Vec<RowPart> = all.iter().map(|(part, _)| *part).collect();
        let bytes = all.iter().flat_map(|(part, source)| source.slices(part.at, part.len));
        (joint_pieces(shape, &parts), bytes.collect())
    }

    fn parts(&self) -> impl Iterator<Item = (RowPart, Bytes<'_>)> {
        let taken = self.taken.iter().map(|taken| (taken.part, Bytes::new(taken.slices())));
        std::iter::once((self.own, *self.source)).chain(taken)
    }

    /// Tells the other threads that their parts are written.
    pub(crate) fn written(self) {
        self.taken.into_iter().for_each(Taken::written);
    }

    /// Gives all taken parts back to their threads, which write them themselves; the group takes no
    /// parts from now on.
    pub(crate) fn part_ways(&mut self) {
        self.taken.clear();
        self.open = false;
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
