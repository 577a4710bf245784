//! The log as a ring: the blocks of the transactions that are not yet written in place.

use crate::tid::Tid;
use lanefs_ondisk::Block;
use std::collections::VecDeque;

/// A committed transaction in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) tid: Tid,
    /// The first log block of the transaction.
    pub(crate) start: u32,
    /// Number of log blocks, including the commit block.
    pub(crate) len: u32,
    /// The blocks whose images the transaction contains.
    pub(crate) blocks: Vec<Block>,
}

/// *Invariant*: segments follow each other around the ring, and the last one ends at `head`. At
/// least one block is free, so that a full log differs from an empty one.
#[derive(Debug)]
pub(crate) struct Ring {
    first: u32,
    end: u32,
    head: u32,
    segments: VecDeque<Segment>,
}

impl Ring {
    /// Creates an empty ring of log blocks `first..end`; the next transaction goes to `head`, or to
    /// `first` if `head` is not in the ring.
    pub(crate) fn new(first: u32, end: u32, head: u32) -> Ring {
        debug_assert!(first < end);
        let head = if (first..end).contains(&head) { head } else { first };
        Ring { first, end, head, segments: VecDeque::new() }
    }

    pub(crate) fn size(&self) -> u32 {
        self.end - self.first
    }

    /// Returns the number of log blocks that a transaction may take now.
    pub(crate) fn free(&self) -> u32 {
        self.size() - 1 - self.segments.iter().map(|s| s.len).sum::<u32>()
    }

    /// Returns the log block for block `n` of the next transaction.
    pub(crate) fn place(&self, n: u32) -> u32 {
        let from_first = u64::from(self.head - self.first) + u64::from(n);
        self.first + (from_first % u64::from(self.size())) as u32
    }

    /// Adds the transaction that was written at the head and is committed now.
    pub(crate) fn push(&mut self, tid: Tid, len: u32, blocks: Vec<Block>) {
        debug_assert!(len <= self.free());
        let start = self.head;
        self.head = self.place(len);
        self.segments.push_back(Segment { tid, start, len, blocks });
    }

    /// Returns the segments up to `upto`.
    pub(crate) fn until(&self, upto: Tid) -> impl Iterator<Item = &Segment> {
        self.segments.iter().take_while(move |s| s.tid <= upto)
    }

    /// Returns the newest transaction.
    pub(crate) fn newest(&self) -> Option<Tid> {
        self.segments.back().map(|s| s.tid)
    }

    /// Returns the last transaction that a checkpoint must write in place to free `need` blocks.
    /// The checkpoint is so large that at least half of the ring is free afterwards, because a
    /// larger checkpoint finds more adjacent blocks.
    pub(crate) fn enough(&self, need: u32) -> Option<Tid> {
        let target = need.max(self.size() / 2).min(self.size() - 1);
        let mut free = self.free();
        let last = self.segments.iter().find(|segment| {
            free += segment.len;
            free >= target
        });
        last.map(|s| s.tid)
    }

    /// Returns where the log starts after everything up to `upto` has been written in place: the
    /// first block of the transaction after `upto`, and the number of that transaction if it is in
    /// the log.
    pub(crate) fn start_after(&self, upto: Tid) -> (u32, Option<Tid>) {
        match self.segments.iter().find(|s| s.tid > upto) {
            Some(segment) => (segment.start, Some(segment.tid)),
            None => (self.head, None),
        }
    }

    /// Releases the log blocks of transactions up to `upto`. Called after all images of these
    /// transactions have been written in place and the journal superblock on the device says that
    /// the log starts after them.
    pub(crate) fn release(&mut self, upto: Tid) {
        while self.segments.front().is_some_and(|s| s.tid <= upto) {
            self.segments.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_go_round_and_are_released_in_order() {
        let mut ring = Ring::new(1, 11, 0);
        assert_eq!(ring.free(), 9);
        ring.push(Tid(1), 4, vec![]);
        ring.push(Tid(2), 3, vec![]);
        assert_eq!(ring.free(), 2);
        assert_eq!((ring.place(0), ring.place(2), ring.place(3)), (8, 10, 1));
        assert_eq!(ring.enough(5), Some(Tid(1)));
        assert_eq!(ring.enough(7), Some(Tid(2)));
        assert_eq!(ring.start_after(Tid(1)), (5, Some(Tid(2))));
        ring.release(Tid(1));
        ring.push(Tid(3), 5, vec![]);
        assert_eq!(ring.place(0), 3);
        assert_eq!(ring.free(), 1);
        assert_eq!(ring.start_after(Tid(3)), (3, None));
        assert_eq!(ring.until(Tid(9)).next().map(|s| s.tid), Some(Tid(2)));
        ring.release(Tid(3));
        assert_eq!(ring.free(), 9);
        assert_eq!(ring.newest(), None);
    }
}
