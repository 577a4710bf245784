//! Returns free memory to the system.
//!
//! A trim of a class takes all batches out of the depot and counts, in the headers of their chunks,
//! the blocks of each span. Spans whose blocks are all free lose their memory and may be carved
//! again. The blocks of all other spans return to the depot. Chunks without carved spans are
//! unmapped. Blocks in threads' own lists are not visited, so their spans stay.

use super::classes::{CHUNK, PAGE, SPANS, full};
use super::depot::{Chunk, DEPOTS, Free, chunk_of, locked, span_at, span_of};
use crate::sync::unscheduled::{Mutex, TryLockError};
use std::ptr;

/// The lock that the trimming thread holds. It is taken before the locks of depots, and no thread
/// waits for it.
static TRIMMING: Mutex<()> = Mutex::new(());

/// Gives the free memory of `classes` back to the system. Returns the number of bytes in the spans
/// that were wholly free. Does nothing while another thread trims, or on a machine whose page size
/// is not [`PAGE`].
pub(super) fn trim(classes: impl Iterator<Item = usize>) -> usize {
    if cfg!(miri) || rustix::param::page_size() != PAGE {
        return 0;
    }
    let _trimming = match TRIMMING.try_lock() {
        Ok(guard) => guard,
        // No code panics under this lock.
        Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        Err(TryLockError::WouldBlock) => return 0,
    };
    // SAFETY: the lock is held.
    classes.map(|class| unsafe { trim_class(class) }).sum()
}

/// # Safety
/// The caller holds [`TRIMMING`].
unsafe fn trim_class(class: usize) -> usize {
    let batches = locked(&DEPOTS[class]).take_all();
    if batches.is_null() {
        return 0;
    }
    // SAFETY: the batches were taken out of the depot, and the thread holds TRIMMING.
    let (seen, left) = unsafe { (count(class, batches), keep(class, batches)) };
    locked(&DEPOTS[class]).give_all(left.first, left.last, left.blocks);
    // SAFETY: no list has a block of the spans that were found free, and the thread holds TRIMMING.
    let given_back = unsafe { release(class, seen) };
    if given_back > 0 {
        let empty = locked(&DEPOTS[class]).take_empty_chunks();
        for chunk in empty {
            // SAFETY: no span in the chunk is carved, and the chunk is in no list.
            let _ = unsafe { rustix::mm::munmap(chunk.cast(), CHUNK) };
        }
    }
    given_back
}

/// Counts for each span how many of its blocks are in `batches`. Returns a list of the chunks that
/// contain at least one of these blocks.
///
/// # Safety
/// The batches belong to the caller, and the caller holds [`TRIMMING`].
unsafe fn count(class: usize, batches: *mut Free) -> *mut Chunk {
    let mut seen = ptr::null_mut();
    for block in Blocks::of(batches) {
        let chunk = chunk_of(block);
        // SAFETY: a chunk exists while it has a carved span; TRIMMING guards these fields.
        unsafe {
            if !(*chunk).seen {
                (*chunk).seen = true;
                (*chunk).next_seen = seen;
                seen = chunk;
            }
            (*chunk).free[span_of(class, block)] += 1;
        }
    }
    seen
}

/// Batches that a trim returns to the depot.
struct Left {
    first: *mut Free,
    last: *mut Free,
    blocks: usize,
}

/// Makes batches of the blocks whose spans are not wholly free. Afterwards the other blocks are in
/// no list.
///
/// # Safety
/// The same as for [`count`], which has counted these batches.
unsafe fn keep(class: usize, batches: *mut Free) -> Left {
    let mut left = Left { first: ptr::null_mut(), last: ptr::null_mut(), blocks: 0 };
    for block in Blocks::of(batches) {
        // SAFETY: as in `count`.
        let free = unsafe { (*chunk_of(block)).free[span_of(class, block)] };
        if usize::from(free) < SPANS[class].blocks {
            // SAFETY: the block belongs to the caller, and its links were read before.
            unsafe { left.push(class, block) };
        }
    }
    left
}

impl Left {
    /// # Safety
    /// `block` is free, of the class, and in no list.
    unsafe fn push(&mut self, class: usize, block: *mut Free) {
        self.blocks += 1;
        // SAFETY: the caller's promise. The first block of the batch was added by this function,
        // with the same promise.
        unsafe {
            if !self.first.is_null() && (*self.first).len < full(class) {
                (*block).next = (*self.first).next;
                (*self.first).next = block;
                (*self.first).len += 1;
                return;
            }
            block.write(Free { next: ptr::null_mut(), len: 1, next_batch: self.first });
        }
        self.first = block;
        if self.last.is_null() {
            self.last = block;
        }
    }
}

/// Gives the memory of wholly free spans back to the system, with one call for adjacent spans, and
/// clears the counts. Returns the number of bytes that were given back.
///
/// # Safety
/// The same as for [`count`], which returned `chunk`; no list has a block of the spans that are
/// wholly free.
unsafe fn release(class: usize, mut chunk: *mut Chunk) -> usize {
    let span = SPANS[class];
    let mut given_back = 0;
    while !chunk.is_null() {
        // SAFETY: a chunk stays mapped while it has a carved span. Only this trim can take the
        // chunk's last carved span, and it unmaps the chunk later. TRIMMING guards these fields.
        let (free, next) = unsafe {
            (*chunk).seen = false;
            (std::mem::replace(&mut (*chunk).free, [0; CHUNK / PAGE]), (*chunk).next_seen)
        };
        let is_free = |n: usize| n < span.in_chunk && usize::from(free[n]) == span.blocks;
        let mut from = 0;
        while from < span.in_chunk {
            let to = (from..).find(|n| !is_free(*n)).unwrap_or(from);
            if to > from {
                let bytes = (to - from) * span.bytes;
                let start = span_at(chunk, class, from).cast();
                // The pages are returned before another thread may carve the spans. If the call
                // fails, the spans can still be carved again, since nothing relies on zeros.
                // SAFETY: the range consists of whole pages of the spans, which have no contents.
                let _ = unsafe { discard(start, bytes) };
                locked(&DEPOTS[class]).unclaim(class, chunk, from, to);
                given_back += bytes;
            }
            from = to + 1;
        }
        chunk = next;
    }
    given_back
}

/// Gives the memory of whole pages back to the system. The pages read as zeros afterwards.
///
/// # Safety
/// The range consists of whole pages that the system mapped, and has no contents.
unsafe fn discard(start: *mut core::ffi::c_void, bytes: usize) -> rustix::io::Result<()> {
    // SAFETY: the caller's promise.
    unsafe { rustix::mm::madvise(start, bytes, rustix::mm::Advice::LinuxDontNeed) }
}

/// Iterates over all blocks of a list of batches. The links of a block are read before the block is
/// returned.
struct Blocks {
    block: *mut Free,
    next_batch: *mut Free,
}

impl Blocks {
    /// Iterates over the blocks of batches that belong to the caller.
    fn of(batches: *mut Free) -> Blocks {
        Blocks { block: ptr::null_mut(), next_batch: batches }
    }
}

impl Iterator for Blocks {
    type Item = *mut Free;

    fn next(&mut self) -> Option<*mut Free> {
        if self.block.is_null() {
            self.block = self.next_batch;
            if self.block.is_null() {
                return None;
            }
            // SAFETY: `self.block` is the first block of a batch, which was linked when the depot
            // got the batch.
            self.next_batch = unsafe { (*self.block).next_batch };
        }
        let block = self.block;
        // SAFETY: the block belongs to a batch, and this iterator has not returned it yet.
        self.block = unsafe { (*block).next };
        Some(block)
    }
}
