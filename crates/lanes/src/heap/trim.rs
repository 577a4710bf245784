//! Gives free memory back to the system.
//!
//! A trim of a class takes all batches out of the depot and counts, in the headers of their chunks,
//! how many blocks of each span are among them. Wholly free spans lose their memory and may be
//! carved again; chunks without carved spans are unmapped; other blocks go back to the depot.
//! Blocks in threads' own lists stay there, and so do their spans.

use super::classes::{CHUNK, PAGE, SPANS, full};
use super::depot::{Chunk, DEPOTS, Free, chunk_of, locked, span_at, span_of};
use crate::sync::unscheduled::{Mutex, TryLockError};
use std::ptr;

/// Held by the one thread that trims. Taken before the locks of depots, and never waited for.
static TRIMMING: Mutex<()> = Mutex::new(());

/// Gives back the free memory of `classes`. Returns the bytes that can be carved again or were
/// unmapped. Does nothing while another thread trims, or where pages are larger than a span may be.
pub(super) fn trim(classes: impl Iterator<Item = usize>) -> usize {
    if cfg!(miri) || rustix::param::page_size() != PAGE {
        return 0;
    }
    let _trimming = match TRIMMING.try_lock() {
        Ok(guard) => guard,
        // Nothing panics under this lock.
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
    // SAFETY: the batches were taken out of the depot, and TRIMMING is held.
    let (seen, left) = unsafe { (count(class, batches), keep(class, batches)) };
    locked(&DEPOTS[class]).give_all(left.first, left.last, left.blocks);
    // SAFETY: no list has a block of the spans that were found free, and TRIMMING is held.
    let given_back = unsafe { release(class, seen) };
    if given_back > 0 {
        let empty = locked(&DEPOTS[class]).take_empty_chunks();
        for chunk in empty {
            // SAFETY: nothing in the chunk is carved, and no list has it.
            let _ = unsafe { rustix::mm::munmap(chunk.cast(), CHUNK) };
        }
    }
    given_back
}

/// Counts the blocks of each span, and lists the chunks that have one.
///
/// # Safety
/// The batches belong to the caller, which holds [`TRIMMING`].
unsafe fn count(class: usize, batches: *mut Free) -> *mut Chunk {
    let mut seen = ptr::null_mut();
    for block in Blocks::of(batches) {
        let chunk = chunk_of(block);
        // SAFETY: a chunk stays while it has a carved span; these fields are guarded by TRIMMING.
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

/// Batches that a trim gives back to the depot.
struct Left {
    first: *mut Free,
    last: *mut Free,
    blocks: usize,
}

/// Makes batches of the blocks whose spans are in use; the others are in no list any more.
///
/// # Safety
/// As for [`count`], which has counted them.
unsafe fn keep(class: usize, batches: *mut Free) -> Left {
    let mut left = Left { first: ptr::null_mut(), last: ptr::null_mut(), blocks: 0 };
    for block in Blocks::of(batches) {
        // SAFETY: as in `count`.
        let free = unsafe { (*chunk_of(block)).free[span_of(class, block)] };
        if usize::from(free) < SPANS[class].blocks {
            // SAFETY: the block belongs to the caller, and its links were read.
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
        // SAFETY: the caller's promise; the first block came here the same way.
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

/// Gives back the memory of wholly free spans, adjacent ones at once, and clears the counts.
/// Returns the bytes.
///
/// # Safety
/// As for [`count`], which listed `chunk`; no list has a block of the spans that are wholly free.
unsafe fn release(class: usize, mut chunk: *mut Chunk) -> usize {
    let span = SPANS[class];
    let mut given_back = 0;
    while !chunk.is_null() {
        // SAFETY: a chunk stays mapped while it has a carved span. Only this trim can take its last one,
        // and unmaps it later. These fields are guarded by TRIMMING.
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
                // Before another thread may carve the spans. If it fails they are carved again all the
                // same: nothing relies on zeros.
                // SAFETY: whole pages of the spans, in which nothing lies.
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

/// Gives the memory of whole pages back; they read as zeros then.
///
/// # Safety
/// Nothing lies in these pages, nor do pages of the system reach beyond them.
unsafe fn discard(start: *mut core::ffi::c_void, bytes: usize) -> rustix::io::Result<()> {
    // SAFETY: the caller's promise.
    unsafe { rustix::mm::madvise(start, bytes, rustix::mm::Advice::LinuxDontNeed) }
}

/// All blocks of a list of batches. Their links are read before they are given out.
struct Blocks {
    block: *mut Free,
    next_batch: *mut Free,
}

impl Blocks {
    /// The blocks of batches that belong to the caller.
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
            // SAFETY: the first block of a batch, linked when the depot got it.
            self.next_batch = unsafe { (*self.block).next_batch };
        }
        let block = self.block;
        // SAFETY: a block of a batch that was not given out yet.
        self.block = unsafe { (*block).next };
        Some(block)
    }
}
