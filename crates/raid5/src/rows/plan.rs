//! Plans a row write: which blocks are read first, and how parity is computed.
//!
//! The plan of a strip depends only on the strip's [`StripShape`]. So tests can check, for every
//! shape of a small array, that no other correct plan reads less.
//! The buffers of a row write and their XOR sums are here too. All functions are pure.

use crate::base::layout::Slots;
use crate::base::resources::Buffer;
use crate::rows::strip::{Bytes, Piece, Strip};
use lanefs_device::WriteKind;
use lanefs_lanes::xor;

/// The write of a strip, without its position and its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StripShape {
    /// The number of data chunks in a row.
    pub data: usize,
    /// The data chunks that are written, by index.
    pub written: Slots,
    /// The written chunks in which some blocks are written only in part. The rest of these blocks
    /// must be kept.
    pub partial: Slots,
    /// The chunk that can be neither read nor written.
    pub missing: Missing,
    /// Whether the old parity is right.
    pub parity: Trust,
}

/// The missing member of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Missing {
    /// No member is missing.
    Nothing,
    /// The member with this data chunk.
    Data(usize),
    /// The member with the parity.
    Parity,
}

/// Whether a row's parity is known to be right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trust {
    /// The parity is right.
    Right,
    /// The parity may be wrong, as after a crash before resync: the new parity must be computed
    /// from data alone.
    Unknown,
}

/// How the new parity is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Method {
    /// No parity is computed: the member with the parity is missing.
    NoParity,
    /// All data of the strip is written. Parity is the XOR of the written data.
    FullRow,
    /// Parity is the XOR of the written data and of the other data, which is read.
    Reconstruct,
    /// Parity is the XOR of the old parity, the old data and the new data.
    Modify,
}

/// The plan for a strip.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Plan {
    /// How the new parity is computed.
    pub method: Method,
    /// Data chunks to read first.
    pub read: Slots,
    /// Whether the old parity is read first.
    pub read_parity: bool,
    /// Data chunks to write: the written chunks that are not missing.
    pub write: Slots,
    /// A missing data chunk that is overwritten only in part. To keep the rest of it, its old
    /// content is computed from all other chunks and the parity.
    pub rebuild: Option<usize>,
}

/// Returns the correct plan with the fewest member reads and writes. Of two plans with the same
/// cost it returns the plan that reconstructs parity, since this plan does not depend on old
/// parity.
///
/// Returns `None` if a part of a missing chunk must be kept, but the parity from which this part is
/// computed may be wrong.
pub(crate) fn plan(shape: StripShape) -> Option<Plan> {
    let all = Slots::below(shape.data);
    let (written, rest) = (shape.written, all - shape.written);
    let plan = |method, read, read_parity, write, rebuild| {
        Some(Plan { method, read, read_parity, write, rebuild })
    };
    let reconstruct = |read: Slots, write| {
        let method = if rest.is_empty() { Method::FullRow } else { Method::Reconstruct };
        plan(method, read, false, write, None)
    };
    match (shape.missing, shape.parity) {
        (Missing::Parity, _) => plan(Method::NoParity, shape.partial, false, written, None),
        (Missing::Data(lost), _) if written.contains(lost) => {
            let write = written - Slots::one(lost);
            if !shape.partial.contains(lost) {
                return reconstruct(rest | shape.partial, write);
            }
            // The old contents of the missing chunk are computed from the old parity and all other
            // chunks. All data of the row is known then, so the new parity is the XOR of the new
            // data.
            let others = all - Slots::one(lost);
            let method = if rest.is_empty() { Method::FullRow } else { Method::Reconstruct };
            match shape.parity {
                Trust::Right => plan(method, others, true, write, Some(lost)),
                Trust::Unknown => None,
            }
        }
        // Only the old parity has the missing data, so the new parity is computed from the old
        // parity, even if the old parity may be wrong.
        (Missing::Data(_), _) => plan(Method::Modify, written, true, written, None),
        (Missing::Nothing, Trust::Unknown) => reconstruct(rest | shape.partial, written),
        (Missing::Nothing, Trust::Right) => {
            let reads = (rest | shape.partial).count();
            if written.count() + 1 < reads {
                plan(Method::Modify, written, true, written, None)
            } else {
                reconstruct(rest | shape.partial, written)
            }
        }
    }
}

/// Strips of a row that are written together, and their data.
pub(crate) struct RowWrite<'w> {
    pub(crate) row: u64,
    pub(crate) pieces: &'w [Piece],
    pub(crate) strips: &'w [Strip],
    pub(crate) source: &'w Bytes<'w>,
    /// [`WriteKind::Cached`] or [`WriteKind::Durable`].
    pub(crate) how: WriteKind,
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
    Given { source: &'a Bytes<'a>, at: u64 },
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

#[cfg(test)]
mod tests;
