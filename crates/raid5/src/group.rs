//! The parts of a row that one thread writes together: its own part, and parts of waiting threads.

use crate::gather::{Join, choose, joint_pieces};
use crate::layout::Geometry;
use crate::row_write::Durability;
use crate::rows::{RowHold, Taken};
use crate::strip::{Piece, RowPart, Source};

/// A thread's own part of a row, and the parts that it took from other threads.
pub(crate) struct Group<'s> {
    pub(crate) own: RowPart,
    pub(crate) how: Durability,
    source: &'s Source<'s>,
    taken: Vec<Taken>,
    /// Whether the group takes row parts from other threads.
    open: bool,
}

impl<'s> Group<'s> {
    pub(crate) fn new(own: RowPart, source: &'s Source<'s>, how: Durability) -> Group<'s> {
        Group { own, how, source, taken: Vec::new(), open: true }
    }

    /// Creates a group to which no parts of other threads are added.
    pub(crate) fn alone(own: RowPart, source: &'s Source<'s>, how: Durability) -> Group<'s> {
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

    fn parts(&self) -> impl Iterator<Item = (RowPart, Source<'_>)> {
        let taken = self.taken.iter().map(|taken| (taken.part, Source::new(taken.slices())));
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
