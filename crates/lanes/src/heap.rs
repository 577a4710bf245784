//! A heap for programs with many lanes. Every block has cache lines of its own. When a thread
//! allocates or frees, it usually accesses no line that another thread accesses.
//!
//! An ordinary allocator places small blocks of different threads in the same line. A thread that
//! frees a block of another thread writes headers and lists of that other thread. So two threads
//! that have no data in common may still share lines by chance. In this heap, blocks have no
//! headers (the caller of a free passes the size), consist of whole lines, and are reused by the
//! thread that freed them. The blocks of one size form a *class*. A *batch* is a list of free
//! blocks of one class, which passes between a thread and a depot as a whole:
//!
//! ```text
//! take:    head of my list of the class; empty: my spare batch; else a batch from the depot, or new
//! give:    onto my list; a full batch there: it becomes the spare, the former spare goes to the depot
//! ```
//!
//! A thread rarely needs the depot. A depot serves one class and has one lock. Large blocks are
//! allocated and freed by the system. Small blocks stay in the heap until a trim
//! ([`LineHeap::trim`]), which gives whole pages of free blocks in the depots back to the system. A
//! thread keeps up to two batches of each class.
//!
//! *Locking*: no other lock is taken under a depot's lock. Depots use locks from
//! [`crate::sync::unscheduled`], because these locks allocate no memory.

mod classes;
mod depot;
mod trim;

use crate::clock::coarse_now;
use crate::lane::Padded;
use crate::sync::unscheduled::atomic::{AtomicBool, AtomicI64, AtomicIsize, AtomicUsize, Ordering};
use classes::{CLASSES, SIZES, class_of, full};
use depot::{DEPOTS, Free, carve, locked};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ptr;

/// Counts `block`, a large block from the system, unless it is null. Returns `block`.
fn large(size: usize, block: *mut u8) -> *mut u8 {
    if !block.is_null() {
        count_large(size as isize);
    }
    block
}

/// Adds to the count of bytes in large blocks.
fn count_large(bytes: isize) {
    MINE.with(|mine| mine.count(bytes));
}

/// A thread's free blocks of one class.
struct Magazine {
    head: Cell<*mut Free>,
    len: Cell<u32>,
    /// A full batch, or null.
    spare: Cell<*mut Free>,
}

struct Magazines {
    classes: [Magazine; CLASSES],
    state: Cell<State>,
    /// The index of the thread's counter in [`TALLIES`], if the thread has one.
    tally: Cell<Option<u8>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// The thread has not registered the destructor that returns its blocks.
    Fresh,
    Running,
    /// The thread is terminating: blocks that it still frees go to the depots at once.
    Over,
    /// Blocks that the thread frees are not reused.
    Forgetful,
}

thread_local! {
    static MINE: Magazines = const {
        Magazines {
            classes: [const {
                Magazine {
                    head: Cell::new(ptr::null_mut()),
                    len: Cell::new(0),
                    spare: Cell::new(ptr::null_mut()),
                }
            }; CLASSES],
            state: Cell::new(State::Fresh),
            tally: Cell::new(None),
        }
    };
    static END: End = const { End };
}

/// Returns a thread's blocks to the depots when it terminates.
struct End;

impl Drop for End {
    fn drop(&mut self) {
        MINE.with(|mine| {
            if mine.state.get() == State::Forgetful {
                return;
            }
            mine.state.set(State::Over);
            (0..CLASSES).for_each(|class| mine.empty(class));
        });
    }
}

/// The number of counters. If there are more threads than counters, some threads share one.
const MOST_TALLIES: usize = 64;

/// The bytes that threads took from depots and from the system, minus the bytes that they gave
/// back. The sum covers blocks in use, blocks in threads' lists, and large blocks. One thread may
/// take a block and another thread give it back, so only the sum is meaningful.
static TALLIES: [Padded<AtomicIsize>; MOST_TALLIES] =
    [const { Padded(AtomicIsize::new(0)) }; MOST_TALLIES];

/// The number of threads that were given a counter so far.
static COUNTING: AtomicUsize = AtomicUsize::new(0);

/// The time of the last check in [`LineHeap::trim_some`], in seconds.
static LOOKED: AtomicI64 = AtomicI64::new(0);

/// A class is trimmed once its free bytes exceed five quarters of the bytes that the last trim
/// kept, plus this number.
const WORTH: usize = 1 << 20;

/// Whether new threads start as [`State::Forgetful`].
static FORGETFUL: AtomicBool = AtomicBool::new(false);

/// Returns whether enough of `class` is free for a trim.
fn is_due(class: usize) -> bool {
    locked(&DEPOTS[class]).is_due(class, WORTH)
}

/// The heap, for a program's `#[global_allocator]`.
///
/// ```
/// #[global_allocator]
/// static HEAP: lanefs_lanes::LineHeap = lanefs_lanes::LineHeap;
///
/// let boxed = Box::new(7);
/// assert_eq!(std::ptr::from_ref(&*boxed).addr() % 64, 0);
/// ```
#[derive(Debug, Clone, Copy)]
pub struct LineHeap;

impl LineHeap {
    /// Returns the bytes in use. They include the free blocks that threads keep, which are at most
    /// 1.4 megabytes for each thread.
    pub fn in_use() -> usize {
        let sum: isize = TALLIES.iter().map(|tally| tally.0.load(Ordering::Relaxed)).sum();
        // While the counters are added up, one thread may take a block after its counter was read,
        // and another thread may give this block back before its counter is read. So the sum can be
        // negative.
        usize::try_from(sum).unwrap_or(0)
    }

    /// Gives free blocks back to the system where they fill whole spans of pages. Returns the
    /// number of bytes given back; 0 if another thread is trimming.
    ///
    /// Visits every free block in the depots, but does so without holding any lock that an
    /// allocation takes.
    pub fn trim() -> usize {
        trim::trim(0..CLASSES)
    }

    /// Trims each block size that has enough free memory: at least a mebibyte more than five
    /// quarters of the memory that the last trim of this size kept. Returns the number of bytes
    /// that were given back. Meant for idle times. In a program that uses another heap, the call
    /// costs little.
    pub fn trim_excess() -> usize {
        trim::trim((0..CLASSES).filter(|class| is_due(*class)))
    }

    /// Trims one block size that [`LineHeap::trim_excess`] would trim. At most one call per second
    /// does so; further calls in the same second only read the clock. Meant for threads that call
    /// this function between other work.
    pub fn trim_some() -> usize {
        let now = coarse_now().secs;
        if LOOKED.load(Ordering::Relaxed) == now || LOOKED.swap(now, Ordering::Relaxed) == now {
            return 0;
        }
        trim::trim((0..CLASSES).find(|class| is_due(*class)).into_iter())
    }

    /// From now on, memory that this thread frees is not reused. The same holds for memory freed by
    /// threads that are started later. Tools that compare the memory accesses of operations need
    /// this, because an address then always belongs to the same object.
    pub fn forget_what_is_freed() {
        FORGETFUL.store(true, Ordering::Relaxed);
        MINE.with(|mine| mine.state.set(State::Forgetful));
    }
}

// SAFETY: `alloc` returns blocks of a class's size, which is at least the requested size, at
// multiples of the requested alignment. No block is returned twice before it is freed. A block is
// freed under its own class, since the layout alone determines the class.
unsafe impl GlobalAlloc for LineHeap {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match class_of(layout) {
            Some(class) => MINE.with(|mine| mine.take(class)),
            // SAFETY: the caller's promise.
            None => large(layout.size(), unsafe { System.alloc(layout) }),
        }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        match class_of(layout) {
            // SAFETY: the block is of this class, and its owner gives it up.
            Some(class) => MINE.with(|mine| unsafe { mine.give(class, block.cast()) }),
            None => {
                count_large(-(layout.size() as isize));
                // SAFETY: the caller's promise.
                unsafe { System.dealloc(block, layout) }
            }
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if class_of(layout).is_none() {
            // SAFETY: the caller's promise. The system knows which of its memory is already zero.
            return large(layout.size(), unsafe { System.alloc_zeroed(layout) });
        }
        // SAFETY: the caller's promise.
        let block = unsafe { self.alloc(layout) };
        if !block.is_null() {
            // SAFETY: the block has at least this many bytes, and no other thread has it.
            unsafe { block.write_bytes(0, layout.size()) };
        }
        block
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller promises that the size, rounded up to the alignment, does not
        // overflow.
        let new = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        match (class_of(layout), class_of(new)) {
            (Some(old), Some(new)) if old == new => return block,
            (None, None) => {
                // SAFETY: the caller keeps the contract of `realloc`. The system's allocator owns
                // both the old and the new block.
                let moved = unsafe { System.realloc(block, layout, size) };
                if !moved.is_null() {
                    count_large(-(layout.size() as isize));
                }
                return large(size, moved);
            }
            _ => {}
        }
        // SAFETY: the caller promises that the size is not zero.
        let moved = unsafe { self.alloc(new) };
        if !moved.is_null() {
            // SAFETY: both blocks have at least this many bytes; the caller has given up the old
            // one.
            unsafe {
                ptr::copy_nonoverlapping(block, moved, layout.size().min(size));
                self.dealloc(block, layout);
            }
        }
        moved
    }
}

impl Magazines {
    #[inline]
    fn take(&self, class: usize) -> *mut u8 {
        let magazine = &self.classes[class];
        let head = magazine.head.get();
        if head.is_null() {
            return self.refill(class);
        }
        magazine.pop(head)
    }

    /// # Safety
    /// `block` is of the class and not in use.
    #[inline]
    unsafe fn give(&self, class: usize, block: *mut Free) {
        let magazine = &self.classes[class];
        let len = magazine.len.get();
        if len >= full(class) || self.state.get() != State::Running {
            // SAFETY: the caller's promise.
            return unsafe { self.spill(class, block) };
        }
        // SAFETY: the caller's promise. A block has at least the size and alignment of a line.
        unsafe { magazine.push(block) };
    }

    /// Fills the list of `class`, which is empty, with a batch, and takes a block from it. Returns
    /// null if there is no memory.
    #[cold]
    #[inline(never)]
    fn refill(&self, class: usize) -> *mut u8 {
        self.note_end();
        let magazine = &self.classes[class];
        let mut batch = magazine.spare.replace(ptr::null_mut());
        if batch.is_null() {
            batch = locked(&DEPOTS[class]).take();
            if batch.is_null() {
                batch = carve(class);
            }
            if batch.is_null() {
                return ptr::null_mut();
            }
            // SAFETY: `batch` is the first block of a batch that now belongs to this thread.
            self.count(unsafe { bytes_of(class, batch) });
        }
        // SAFETY: `batch` is the first block of a batch that now belongs to this thread.
        magazine.len.set(unsafe { (*batch).len });
        let block = magazine.pop(batch);
        if self.state.get() == State::Over {
            self.empty(class);
        }
        block
    }

    /// Handles the rare cases of [`Magazines::give`]: the list of `class` is already a full batch,
    /// or the thread is new or terminating.
    ///
    /// # Safety
    /// The same as for [`Magazines::give`].
    #[cold]
    #[inline(never)]
    unsafe fn spill(&self, class: usize, block: *mut Free) {
        self.note_end();
        if self.state.get() == State::Forgetful {
            return;
        }
        let magazine = &self.classes[class];
        if magazine.len.get() >= full(class) {
            let former = magazine.spare.replace(magazine.close());
            if !former.is_null() {
                self.give_back(class, former);
            }
        }
        // SAFETY: the caller's promise.
        unsafe { magazine.push(block) };
        if self.state.get() == State::Over {
            self.empty(class);
        }
    }

    /// Gives all blocks of `class` to the depot.
    fn empty(&self, class: usize) {
        let magazine = &self.classes[class];
        for batch in [magazine.close(), magazine.spare.replace(ptr::null_mut())] {
            if !batch.is_null() {
                self.give_back(class, batch);
            }
        }
    }

    /// Gives a batch to the depot.
    fn give_back(&self, class: usize, batch: *mut Free) {
        // SAFETY: `batch` is the first block of a batch that still belongs to this thread.
        self.count(-unsafe { bytes_of(class, batch) });
        locked(&DEPOTS[class]).give(batch);
    }

    /// Adds to the count of the bytes that threads took.
    fn count(&self, bytes: isize) {
        let tally = self.tally.get().unwrap_or_else(|| {
            let tally = (COUNTING.fetch_add(1, Ordering::Relaxed) % MOST_TALLIES) as u8;
            self.tally.set(Some(tally));
            tally
        });
        TALLIES[usize::from(tally)].0.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Registers a new thread, so that its blocks are given back when it terminates.
    fn note_end(&self) {
        if self.state.get() == State::Fresh {
            // `try_with` may allocate, but from `libc`, not from this heap.
            let running = END.try_with(|_| ()).is_ok();
            self.state.set(match running {
                true if FORGETFUL.load(Ordering::Relaxed) => State::Forgetful,
                true => State::Running,
                false => State::Over,
            });
        }
    }
}

impl Magazine {
    /// Takes `head`, the first block of the list, which is not empty.
    #[inline]
    fn pop(&self, head: *mut Free) -> *mut u8 {
        // SAFETY: a block in the list belongs to this thread alone, and its link was set when it
        // was added.
        self.head.set(unsafe { (*head).next });
        self.len.set(self.len.get() - 1);
        head.cast()
    }

    /// # Safety
    /// `block` is of the class and not in use.
    #[inline]
    unsafe fn push(&self, block: *mut Free) {
        // SAFETY: the caller's promise. A block has at least the size and alignment of a line.
        unsafe { (*block).next = self.head.get() };
        self.head.set(block);
        self.len.set(self.len.get() + 1);
    }

    /// Takes the whole list as a batch. Returns null if the list is empty.
    fn close(&self) -> *mut Free {
        let batch = self.head.replace(ptr::null_mut());
        let len = self.len.replace(0);
        if !batch.is_null() {
            // SAFETY: `batch` is the first block of the list.
            unsafe { (*batch).len = len };
        }
        batch
    }
}

/// Returns the bytes of a batch.
///
/// # Safety
/// `batch` is the first block of a batch of the calling thread.
unsafe fn bytes_of(class: usize, batch: *mut Free) -> isize {
    // SAFETY: the caller's promise.
    unsafe { (*batch).len as isize * SIZES[class] as isize }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
