//! Splits a write into rows, chunks and strips, and the strips so that they fit in one log entry or
//! one header. All functions here are pure.

use crate::base::layout::{BLOCK, Geometry, Slots};

/// The part of a request that lies in one row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RowPart {
    pub(crate) row: u64,
    /// Offset of the first byte within the row's data.
    pub(crate) first: u64,
    /// Length in bytes.
    pub(crate) len: u64,
    /// The offset of the part in the request.
    pub(crate) at: u64,
}

/// Returns the parts of a request of `len` bytes at the array's byte `offset`, row by row.
pub(crate) fn row_parts(shape: &Geometry, offset: u64, len: u64) -> impl Iterator<Item = RowPart> {
    let row_len = shape.row_len();
    let mut done = 0;
    std::iter::from_fn(move || {
        let at = offset + done;
        let first = at % row_len;
        let part =
            RowPart { row: at / row_len, first, len: (row_len - first).min(len - done), at: done };
        done += part.len;
        (part.len > 0).then_some(part)
    })
}

/// The part of a request that lies in one chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Index of the data chunk in the row.
    pub(crate) index: usize,
    /// Offset of the first byte within the chunk.
    pub(crate) from: u64,
    /// Offset after the last byte.
    pub(crate) to: u64,
    /// The offset of the piece in the request.
    pub(crate) at: u64,
}

impl Piece {
    /// Returns the part of the piece in the given range of offsets.
    pub(crate) fn clip(self, from: u64, to: u64) -> Option<Piece> {
        let (from, to) = (from.max(self.from), to.min(self.to));
        (from < to).then(|| Piece { from, to, at: self.at + (from - self.from), ..self })
    }

    /// Returns the range of the blocks that the piece touches: the offsets of their first byte and
    /// of the byte after their last.
    pub(crate) fn blocks(self) -> (u64, u64) {
        (self.from / BLOCK * BLOCK, self.to.next_multiple_of(BLOCK))
    }
}

/// Splits a part of a row into pieces, one for each chunk.
pub(crate) fn pieces(shape: &Geometry, part: RowPart) -> Vec<Piece> {
    let chunk = shape.chunk();
    let mut done = 0;
    std::iter::from_fn(|| {
        let at = part.first + done;
        let from = at % chunk;
        let len = (chunk - from).min(part.len - done);
        let piece =
            Piece { index: (at / chunk) as usize, from, to: from + len, at: part.at + done };
        done += len;
        (len > 0).then_some(piece)
    })
    .collect()
}

/// A range of whole blocks, at the same offsets in all chunks of a row. The chunks that are written
/// are the same in the whole range, and so are those written only in part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Strip {
    pub(crate) from: u64,
    pub(crate) to: u64,
    /// The data chunks that are written.
    pub(crate) written: Slots,
    /// The written chunks that have partly written blocks.
    pub(crate) partial: Slots,
}

impl Strip {
    pub(crate) fn len(&self) -> u64 {
        self.to - self.from
    }

    /// Splits the strip into strips of at most `longest` bytes, or of one block if `longest` is
    /// less than a block.
    pub(crate) fn cut(self, longest: u64) -> Vec<Strip> {
        let longest = (longest / BLOCK * BLOCK).max(BLOCK);
        let (mut from, mut all) = (self.from, Vec::new());
        while from < self.to {
            let to = self.to.min(from.saturating_add(longest));
            all.push(Strip { from, to, ..self });
            from = to;
        }
        all
    }
}

/// Returns the strips that `pieces` write in a row, in ascending order.
pub(crate) fn strips(pieces: &[Piece]) -> Vec<Strip> {
    let mut cuts: Vec<u64> = pieces
        .iter()
        .flat_map(|p| {
            let up = |at: u64| at.next_multiple_of(BLOCK);
            let down = |at: u64| at / BLOCK * BLOCK;
            [down(p.from), up(p.from), down(p.to), up(p.to)]
        })
        .collect();
    cuts.sort_unstable();
    cuts.dedup();
    let mut all = Vec::new();
    for pair in cuts.windows(2) {
        let (from, end) = (pair[0], pair[1]);
        let of = |which: &dyn Fn(&Piece) -> bool| -> Slots {
            pieces.iter().filter(|p| which(p)).map(|p| p.index).collect()
        };
        let written = of(&|p| {
            let (first, last) = p.blocks();
            first < end && from < last
        });
        if written.is_empty() {
            continue;
        }
        let partial = written - of(&|p| p.from <= from && end <= p.to);
        all.push(Strip { from, to: end, written, partial });
    }
    all
}

/// The bytes of a request, in one or more buffers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bytes<'a> {
    pub(crate) bufs: &'a [&'a [u8]],
}

impl<'a> Bytes<'a> {
    pub(crate) fn new(bufs: &'a [&'a [u8]]) -> Bytes<'a> {
        Bytes { bufs }
    }

    pub(crate) fn len(&self) -> u64 {
        self.bufs.iter().map(|b| b.len() as u64).sum()
    }

    /// Returns the bytes from byte `at` of the request to the end of the buffer that has this byte.
    pub(crate) fn rest(&self, at: u64) -> &'a [u8] {
        let mut at = at as usize;
        for buf in self.bufs {
            if at < buf.len() {
                return &buf[at..];
            }
            at -= buf.len();
        }
        &[]
    }

    /// Returns `len` bytes of the request, starting at its byte `at`.
    pub(crate) fn slices(&self, at: u64, len: u64) -> Vec<&'a [u8]> {
        let (mut at, end) = (at, at + len);
        let mut all = Vec::new();
        while at < end {
            let rest = self.rest(at);
            let slice = &rest[..rest.len().min((end - at) as usize)];
            if slice.is_empty() {
                break;
            }
            at += slice.len() as u64;
            all.push(slice);
        }
        all
    }
}

/// The largest number of entries that one write has in a log header. It is half of what a header
/// can hold, so that entries of other writes fit in too.
const PARTS: usize = lanefs_ondisk::md::ppl::MAX_ENTRIES / 2;

/// The largest number of data bytes in one entry, whose byte count has 32 bits.
const PER_ENTRY: u64 = 1 << 31;

/// Groups strips so that the partial parity of each group is at most `most` bytes. A strip that
/// writes all chunks (`all`) has no partial parity.
pub(crate) fn loads(strips: Vec<Strip>, all: Slots, most: u64) -> Vec<Vec<Strip>> {
    let mut loads: Vec<Vec<Strip>> = vec![Vec::new()];
    let mut bytes = 0;
    let cut = |strip: Strip| match strip.written == all {
        true => strip.cut(PER_ENTRY / all.count() as u64),
        false => strip.cut(most),
    };
    for strip in strips.into_iter().flat_map(cut) {
        let more = if strip.written == all { 0 } else { strip.len() };
        let full = loads.last().is_some_and(|l| bytes + more > most || l.len() >= PARTS);
        if full {
            loads.push(Vec::new());
            bytes = 0;
        }
        bytes += more;
        if let Some(load) = loads.last_mut() {
            load.push(strip);
        }
    }
    loads
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
