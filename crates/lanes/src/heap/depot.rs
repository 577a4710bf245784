//! Depots: for each class, the part of its memory that no thread owns. This memory consists of
//! batches of blocks, and of chunks that are still to be divided into blocks.
//!
//! A chunk belongs to one class permanently. Its first page is its header. The other pages form
//! *spans*, each of which consists of whole pages and has room for a number of blocks. A span is
//! *carved* when it is divided into blocks. Each block of a carved span is in use, in a thread's
//! lists, or in the depot. A span that is not carved has no contents and possibly no memory.
//!
//! The blocks of the spans that were carved last are put into batches a few at a time. Each new
//! batch of a class is twice as large as the one before, up to the size of a full batch. So a
//! program that needs few blocks touches only the pages that it needs.

use super::classes::{CHUNK, CLASSES, PAGE, SIZES, SPANS, full};
use crate::lane::Padded;
use crate::sync::unscheduled::{Mutex, MutexGuard, PoisonError};
use std::ops::Range;
use std::ptr;

/// The contents of a free block.
pub(super) struct Free {
    pub(super) next: *mut Free,
    /// In the first block of a batch: the number of its blocks, and the next batch of the depot.
    pub(super) len: u32,
    pub(super) next_batch: *mut Free,
}

/// The number of words in a set of bits, one bit for each span of a chunk.
const WORDS: usize = CHUNK / PAGE / 64;

/// The header of a chunk. Fields marked [depot] are guarded by the lock of the class's depot,
/// fields marked [trim] by the lock of trims.
pub(super) struct Chunk {
    /// The next chunk with a span to carve. [depot]
    next: *mut Chunk,
    /// The carved spans, one bit for each. [depot]
    carved: [u64; WORDS],
    /// The chunk after this one in the list of chunks that a trim visits. [trim]
    pub(super) next_seen: *mut Chunk,
    /// Whether this chunk is in that list. [trim]
    pub(super) seen: bool,
    /// For each span, the number of its blocks that a trim found in the depot; zero between trims.
    /// [trim]
    pub(super) free: [u16; CHUNK / PAGE],
}

const _: () = assert!(size_of::<Chunk>() <= PAGE);

/// The part of a class's memory that no thread owns.
pub(super) struct Depot {
    batches: *mut Free,
    /// Blocks in all batches.
    blocks: usize,
    /// All chunks with a span to carve.
    roomy: *mut Chunk,
    /// The spans carved last, and the indexes of the blocks in these spans that were never in a
    /// batch.
    fresh: *mut u8,
    left: Range<usize>,
    /// The number of blocks in the next new batch.
    next_len: usize,
    /// The number of free blocks that the last trim kept, or the smallest number of free blocks
    /// that [`Depot::is_due`] has found since, if that is smaller.
    kept: usize,
}
// SAFETY: only the thread that holds the lock accesses the memory of a depot.
unsafe impl Send for Depot {}

pub(super) static DEPOTS: [Padded<Mutex<Depot>>; CLASSES] =
    [const { Padded(Mutex::new(Depot::new())) }; CLASSES];

pub(super) fn locked<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    // No code panics under these locks.
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Depot {
    pub(super) const fn new() -> Depot {
        let (batches, roomy) = (ptr::null_mut(), ptr::null_mut());
        let fresh = ptr::null_mut();
        Depot { batches, blocks: 0, roomy, fresh, left: 0..0, next_len: 0, kept: 0 }
    }

    /// Takes a batch. Returns null if there is none.
    pub(super) fn take(&mut self) -> *mut Free {
        let batch = self.batches;
        if !batch.is_null() {
            // SAFETY: a batch in the depot belongs to the depot, and its first block was filled in
            // when it was added.
            unsafe {
                self.batches = (*batch).next_batch;
                self.blocks -= (*batch).len as usize;
            }
        }
        batch
    }

    /// Adds `batch`, which belongs to the caller.
    pub(super) fn give(&mut self, batch: *mut Free) {
        // SAFETY: `batch` is the first block of the caller's batch, which now belongs to the depot.
        unsafe {
            (*batch).next_batch = self.batches;
            self.blocks += (*batch).len as usize;
        }
        self.batches = batch;
    }

    /// Takes all batches, linked by `next_batch`. Returns null if there are none.
    pub(super) fn take_all(&mut self) -> *mut Free {
        self.blocks = 0;
        std::mem::replace(&mut self.batches, ptr::null_mut())
    }

    /// Adds the batches from `first` to `last`, which a trim keeps and which have `blocks` blocks.
    pub(super) fn give_all(&mut self, first: *mut Free, last: *mut Free, blocks: usize) {
        if !last.is_null() {
            // SAFETY: `last` is the first block of a batch that now belongs to the depot.
            unsafe { (*last).next_batch = self.batches };
            self.batches = first;
        }
        self.blocks += blocks;
        self.kept = blocks;
    }

    /// Returns whether enough memory is free for a trim: at least `least` bytes in addition to five
    /// quarters of the bytes that the last trim kept.
    pub(super) fn is_due(&mut self, class: usize, least: usize) -> bool {
        self.kept = self.kept.min(self.blocks);
        self.blocks.saturating_sub(self.kept + self.kept / 4) * SIZES[class] >= least
    }

    /// Takes blocks that were never in a batch. The blocks are in adjacent spans. Returns the
    /// address of the first of these spans, and the indexes of the taken blocks in the spans.
    /// Returns `None` if there is no memory.
    fn take_fresh(&mut self, class: usize) -> Option<(*mut u8, Range<usize>)> {
        let (span, full) = (SPANS[class], full(class) as usize);
        if self.left.is_empty() {
            let (start, spans) = self.claim(class, full.div_ceil(span.blocks))?;
            (self.fresh, self.left) = (start, 0..spans * span.blocks);
        }
        let len = self.next_len.clamp((PAGE / SIZES[class]).max(1), full);
        self.next_len = 2 * len;
        let taken = self.left.start..self.left.end.min(self.left.start + len);
        self.left.start = taken.end;
        Some((self.fresh, taken))
    }

    /// Claims up to `wanted` adjacent spans to be carved. Returns their address and number, or
    /// `None` if there is no memory.
    fn claim(&mut self, class: usize, wanted: usize) -> Option<(*mut u8, usize)> {
        if self.roomy.is_null() {
            self.roomy = new_chunk()?;
        }
        let chunk = self.roomy;
        // SAFETY: `chunk` is a chunk of this depot, whose lock the caller holds. No other reference
        // to this field exists.
        let carved = unsafe { &mut (*chunk).carved };
        let all = SPANS[class].in_chunk;
        let is_carved = |carved: &[u64; WORDS], n: usize| carved[n / 64] >> (n % 64) & 1 != 0;
        let first = (0..all).find(|n| !is_carved(carved, *n))?;
        let mut end = first;
        while end < all && end - first < wanted && !is_carved(carved, end) {
            carved[end / 64] |= 1 << (end % 64);
            end += 1;
        }
        if count(carved) == all {
            // SAFETY: as above.
            self.roomy = unsafe { (*chunk).next };
        }
        Some((span_at(chunk, class, first), end - first))
    }

    /// Allows spans `from..to` of `chunk` to be carved again. All their blocks are free and in no
    /// list.
    pub(super) fn unclaim(&mut self, class: usize, chunk: *mut Chunk, from: usize, to: usize) {
        // SAFETY: `chunk` is a chunk of this depot, whose lock the caller holds. No other reference
        // to this field exists.
        let carved = unsafe { &mut (*chunk).carved };
        if count(carved) == SPANS[class].in_chunk {
            // SAFETY: as above, for the field `next`.
            unsafe { (*chunk).next = self.roomy };
            self.roomy = chunk;
        }
        (from..to).for_each(|n| carved[n / 64] &= !(1 << (n % 64)));
    }

    /// Removes the chunks that have no carved span, and returns them as a list.
    pub(super) fn take_empty_chunks(&mut self) -> Chunks {
        let (mut empty, mut roomy) = (ptr::null_mut(), ptr::null_mut());
        for chunk in Chunks(std::mem::replace(&mut self.roomy, ptr::null_mut())) {
            // SAFETY: `chunk` is a chunk of this depot, whose lock the caller holds. The chunk is
            // in no list now.
            unsafe {
                let list = if count(&(*chunk).carved) == 0 { &mut empty } else { &mut roomy };
                (*chunk).next = std::mem::replace(list, chunk);
            }
        }
        self.roomy = roomy;
        Chunks(empty)
    }

    #[cfg(all(test, not(any(loom, shuttle))))]
    pub(super) fn is_empty(&self) -> bool {
        self.batches.is_null()
    }
}

/// A list of chunks that belongs to the caller.
pub(super) struct Chunks(*mut Chunk);

impl Iterator for Chunks {
    type Item = *mut Chunk;

    fn next(&mut self) -> Option<*mut Chunk> {
        let chunk = self.0;
        if chunk.is_null() {
            return None;
        }
        // SAFETY: `chunk` is in the list. Chunks in the list are mapped.
        self.0 = unsafe { (*chunk).next };
        Some(chunk)
    }
}

fn count(carved: &[u64; WORDS]) -> usize {
    carved.iter().map(|word| word.count_ones() as usize).sum()
}

/// Returns the chunk of `block`.
pub(super) fn chunk_of(block: *mut Free) -> *mut Chunk {
    block.map_addr(|at| at & !(CHUNK - 1)).cast()
}

/// Returns the index of the span of `class` that contains `block`.
pub(super) fn span_of(class: usize, block: *mut Free) -> usize {
    (block.addr() % CHUNK - PAGE) / SPANS[class].bytes
}

/// Returns the first byte of a span.
pub(super) fn span_at(chunk: *mut Chunk, class: usize, span: usize) -> *mut u8 {
    // The span is within the chunk, whose spans have indexes below `in_chunk`.
    chunk.cast::<u8>().wrapping_add(PAGE + span * SPANS[class].bytes)
}

/// Maps a chunk without carved spans. Returns `None` if there is no memory.
#[cfg(not(miri))]
fn new_chunk() -> Option<*mut Chunk> {
    use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping. The parts before and after the chunk are unmapped; no other code has
    // seen them. The system's allocator is not used here, because it would keep both parts.
    unsafe {
        let start = mmap_anonymous(ptr::null_mut(), 2 * CHUNK, access, MapFlags::PRIVATE).ok()?;
        let before = start.addr().next_multiple_of(CHUNK) - start.addr();
        let chunk = start.byte_add(before);
        // If unmapping fails, only addresses without memory are lost.
        if before > 0 {
            let _ = munmap(start, before);
        }
        let _ = munmap(chunk.byte_add(CHUNK), CHUNK - before);
        // All zeros is a valid header: no next chunk, no carved span, no counts.
        Some(chunk.cast())
    }
}

#[cfg(miri)]
fn new_chunk() -> Option<*mut Chunk> {
    // SAFETY: neither size nor alignment is zero.
    let chunk = unsafe {
        let layout = std::alloc::Layout::from_size_align_unchecked(CHUNK, CHUNK);
        std::alloc::GlobalAlloc::alloc_zeroed(&std::alloc::System, layout)
    };
    (!chunk.is_null()).then_some(chunk.cast())
}

/// Makes a new batch of `class`. Returns null if there is no memory.
pub(super) fn carve(class: usize) -> *mut Free {
    let (size, span) = (SIZES[class], SPANS[class]);
    let Some((start, blocks)) = locked(&DEPOTS[class]).take_fresh(class) else {
        return ptr::null_mut();
    };
    let len = blocks.len() as u32;
    let mut head: *mut Free = ptr::null_mut();
    for n in blocks.rev() {
        let at = n / span.blocks * span.bytes + n % span.blocks * size;
        // SAFETY: `start + at` is the start of a block in a claimed span. The block is aligned to a
        // line, and no other thread has it.
        unsafe {
            let block = start.add(at).cast::<Free>();
            block.write(Free { next: head, len, next_batch: ptr::null_mut() });
            head = block;
        }
    }
    head
}
