//! The buffers of a row write and their XOR sums. All functions here are pure.

use crate::plan::{Method, Plan};
use crate::scratch::Buffer;
use crate::slots::Slots;
use crate::strip::{Piece, Source, Strip};
use lanefs_lanes::xor;

/// Whether a write must be durable when it returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Durability {
    Cached,
    Durable,
}

/// Strips of a row that are written together, and their data.
pub(crate) struct RowWrite<'w> {
    pub(crate) row: u64,
    pub(crate) pieces: &'w [Piece],
    pub(crate) strips: &'w [Strip],
    pub(crate) source: &'w Source<'w>,
    pub(crate) how: Durability,
}

/// A strip with the data that was read for it.
pub(crate) struct Prepared<'a> {
    pub(crate) strip: Strip,
    pub(crate) plan: Plan,
    /// Data chunks, each with its old content in the range of the strip.
    pub(crate) old: Vec<(usize, Buffer<'a>)>,
    pub(crate) old_parity: Option<Buffer<'a>>,
    /// New content of chunks that are written only in part.
    pub(crate) merged: Vec<(usize, Buffer<'a>)>,
}

/// Bytes that go into an XOR sum.
#[derive(Clone, Copy)]
pub(crate) enum Content<'a> {
    /// A buffer as long as the strip.
    Buffer(&'a [u8]),
    /// Bytes of the request, possibly in several buffers.
    Given { source: &'a Source<'a>, at: u64 },
}

impl<'a> Content<'a> {
    /// Returns the bytes of the strip from byte `at` on, as far as they are contiguous in memory.
    fn rest(self, at: usize) -> &'a [u8] {
        match self {
            Content::Buffer(bytes) => &bytes[at..],
            Content::Given { source, at: start } => source.rest(start + at as u64),
        }
    }
}

/// Sets `into` to the XOR of `contents`. Works in runs of bytes that are contiguous in each of
/// `contents`.
pub(crate) fn sum(into: &mut [u8], contents: &[Content<'_>]) {
    let mut at = 0;
    while at < into.len() {
        let rests: Vec<&[u8]> = contents.iter().map(|c| c.rest(at)).collect();
        let len = rests.iter().map(|r| r.len()).min().unwrap_or(usize::MAX).min(into.len() - at);
        assert!(len > 0, "a request's bytes end before its strips");
        let parts: Vec<&[u8]> = rests.iter().map(|r| &r[..len]).collect();
        xor(&mut into[at..at + len], &parts);
        at += len;
    }
}

impl Prepared<'_> {
    /// Returns whether anything was read for the strip.
    pub(crate) fn has_read(&self) -> bool {
        !self.old.is_empty() || self.old_parity.is_some()
    }

    /// Returns the terms of the partial parity, which are all terms of the new parity except the
    /// written data.
    pub(crate) fn kept(&self) -> Vec<Content<'_>> {
        let of = |which: Slots| {
            self.old
                .iter()
                .filter(move |(i, _)| which.contains(*i))
                .map(|(_, b)| Content::Buffer(b))
        };
        match self.plan.method {
            Method::NoParity | Method::FullRow => Vec::new(),
            Method::Reconstruct => of(self.rest()).collect(),
            Method::Modify => {
                let parity = self.old_parity.as_deref().map(Content::Buffer);
                of(self.strip.written).chain(parity).collect()
            }
        }
    }

    pub(crate) fn new_parity(&self, write: &RowWrite<'_>, into: &mut [u8]) {
        let mut contents = self.kept();
        contents.extend(self.given(write));
        sum(into, &contents);
    }

    fn rest(&self) -> Slots {
        self.old.iter().map(|(i, _)| *i).collect::<Slots>() - self.strip.written
    }

    /// Returns the new data of the written chunks, in whole blocks. For a chunk that is written
    /// only in part, this is the merged old and new content.
    pub(crate) fn given<'a>(
        &'a self,
        write: &'a RowWrite<'_>,
    ) -> impl Iterator<Item = Content<'a>> {
        let merged = self.merged.iter().map(|(_, b)| Content::Buffer(b));
        let whole = write.pieces.iter().filter_map(|piece| {
            let piece = piece.clip(self.strip.from, self.strip.to)?;
            let partial = self.strip.partial.contains(piece.index);
            (!partial).then_some(Content::Given { source: write.source, at: piece.at })
        });
        merged.chain(whole)
    }
}
