//! The sizes of blocks, and the spans that are divided into blocks.

use std::alloc::Layout;

/// Bytes of a cache line.
pub(super) const LINE: usize = 64;
/// The largest alignment that classes support: two lines, as for [`Padded`].
const STRICTEST: usize = 128;
/// The sizes of blocks: every multiple of a line up to eight lines, then multiples of two lines, so
/// that a layout aligned to two lines finds a class with this alignment. Each of the last five
/// sizes is a power of two plus room for a header that the owner of the block adds.
pub(super) const SIZES: [usize; 24] = [
    64, 128, 192, 256, 320, 384, 448, 512, 640, 768, 896, 1024, 1280, 1536, 1792, 2048, 2560, 3072,
    3584, 4224, 8320, 16512, 33024, 65792,
];
pub(super) const CLASSES: usize = SIZES.len();
/// Sizes up to this one are looked up in a table.
pub(super) const SMALL: usize = 4224;
/// The approximate size of a full batch in bytes.
const BATCH: usize = 8192;
/// A full batch of small blocks has at least this number of blocks: twice as many as a lane's limbo
/// list usually frees at once. So if a limbo list frees blocks together and the lane then uses them
/// one by one, these blocks do not pass through the depot.
const SWEEP: usize = 2 * crate::limbo::STEP;
const CLASS_OF: [u8; SMALL / LINE] = {
    let mut table = [0; SMALL / LINE];
    let (mut lines, mut class) = (0, 0);
    while lines < table.len() {
        if (lines + 1) * LINE > SIZES[class] {
            class += 1;
        }
        table[lines] = class as u8;
        lines += 1;
    }
    table
};

/// The number of blocks in a full batch.
pub(super) const fn full(class: usize) -> u32 {
    let least = if SIZES[class] <= SMALL { SWEEP } else { 2 };
    let blocks = BATCH / SIZES[class];
    if blocks < least { least as u32 } else { blocks as u32 }
}

/// Returns the class of `layout`; `None` if the system allocates it.
#[inline]
pub(super) fn class_of(layout: Layout) -> Option<usize> {
    let unit = layout.align().max(LINE);
    // Rounding a layout up to its alignment does not overflow, by the contract of `Layout`.
    let size = (layout.size().max(1) + (unit - 1)) & !(unit - 1);
    if unit > STRICTEST || size > SIZES[CLASSES - 1] {
        return None;
    }
    if size <= SMALL {
        return Some(usize::from(CLASS_OF[(size - 1) / LINE]));
    }
    (0..CLASSES).rev().take_while(|class| SIZES[*class] >= size).last()
}

/// The page size. On machines with larger pages nothing is trimmed.
pub(super) const PAGE: usize = 4096;
/// Bytes that are requested from the system at once, and their alignment.
pub(super) const CHUNK: usize = 1 << 20;

/// Whole pages with blocks of one class.
#[derive(Clone, Copy)]
pub(super) struct Span {
    pub(super) bytes: usize,
    pub(super) blocks: usize,
    /// The number of spans in a chunk. They follow the chunk's first page, which is its header.
    pub(super) in_chunk: usize,
}

/// The spans of each class. Each span is as short as possible, on condition that at most a
/// sixteenth of it stays unused. Spans are short because a span can be returned to the system only
/// when all its blocks are free.
pub(super) const SPANS: [Span; CLASSES] = {
    let mut spans = [Span { bytes: 0, blocks: 0, in_chunk: 0 }; CLASSES];
    let mut class = 0;
    while class < CLASSES {
        let mut bytes = PAGE;
        while bytes < SIZES[class] || (bytes % SIZES[class]) * 16 > bytes {
            bytes += PAGE;
        }
        let in_chunk = (CHUNK - PAGE) / bytes;
        spans[class] = Span { bytes, blocks: bytes / SIZES[class], in_chunk };
        class += 1;
    }
    spans
};
