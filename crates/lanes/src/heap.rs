//! A heap for programs of many lanes: every block on cache lines of its own, taken and given back by
//! a thread without a line that another touches.
//!
//! A common allocator puts small blocks side by side, and what is freed by another thread than the
//! one that made it writes headers and lists of the maker's. So two threads that share nothing may
//! still share lines, and which ones is chance. Here blocks have no headers (who frees says how
//! large it was), begin and end with a line, and what a thread frees it uses again itself:
//!
//! ```text
//! take:    head of my list of the class; empty: my spare batch; else a batch from the depot, or new
//! give:    onto my list; a full batch there: it becomes the spare, the former spare goes to the depot
//! ```
//!
//! Many operations in a row take and give without the depot, whose lock is that of one class.
//! Memory that was made into blocks stays blocks of that class: at most what was in use at once, and
//! two batches a thread. Large blocks are the system's.
//!
//! *Locking*: the depot's locks are innermost of all. They are unscheduled ones, which allocate nothing.

use crate::Padded;
use crate::sync::unscheduled::atomic::{AtomicBool, AtomicIsize, AtomicUsize, Ordering};
use crate::sync::unscheduled::{Mutex, MutexGuard, PoisonError};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ptr;

/// Bytes of a cache line.
const LINE: usize = 64;
/// No stricter alignment is served from classes: two lines, as of [`Padded`].
const STRICTEST: usize = 128;
/// Sizes of blocks: every multiple of a line up to eight, then multiples of two lines, so that what is
/// aligned to two lines finds a class that is. The last ones hold a power of two and its owner's header.
const SIZES: [usize; 24] = [
    64, 128, 192, 256, 320, 384, 448, 512, 640, 768, 896, 1024, 1280, 1536, 1792, 2048, 2560, 3072,
    3584, 4224, 8320, 16512, 33024, 65792,
];
const CLASSES: usize = SIZES.len();
/// Sizes up to this one are found in a table.
const SMALL: usize = 4224;
/// Bytes of a batch, about.
const BATCH: usize = 8192;
/// Blocks that a batch of small ones has at least: as many as a lane's limbo frees at once, so that
/// what is freed there in one sweep and used up one by one does not pass through the depot.
const SWEEP: usize = crate::limbo::MOST;
/// Bytes asked of the system at once.
const CHUNK: usize = 1 << 20;

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

/// Blocks that a list has before they are a full batch.
const fn full(class: usize) -> u32 {
    let least = if SIZES[class] <= SMALL { SWEEP } else { 2 };
    let blocks = BATCH / SIZES[class];
    if blocks < least { least as u32 } else { blocks as u32 }
}

/// `block`, which the system gave, counted if it gave any.
fn large(size: usize, block: *mut u8) -> *mut u8 {
    if !block.is_null() {
        count_large(size as isize);
    }
    block
}

/// So many bytes more of large blocks.
fn count_large(bytes: isize) {
    MINE.with(|mine| mine.count(bytes));
}

/// The class of `layout`; none if the system serves it.
#[inline]
fn class_of(layout: Layout) -> Option<usize> {
    let unit = layout.align().max(LINE);
    // A layout rounded up to its alignment does not overflow, by its own contract.
    let size = (layout.size().max(1) + (unit - 1)) & !(unit - 1);
    if unit > STRICTEST || size > SIZES[CLASSES - 1] {
        return None;
    }
    if size <= SMALL {
        return Some(usize::from(CLASS_OF[(size - 1) / LINE]));
    }
    (0..CLASSES).rev().take_while(|class| SIZES[*class] >= size).last()
}

/// What lies in a block that nobody uses.
struct Free {
    next: *mut Free,
    /// In the first block of a batch: how many it has, and the next batch of a depot.
    len: u32,
    next_batch: *mut Free,
}

/// A thread's blocks of one class.
struct Magazine {
    head: Cell<*mut Free>,
    len: Cell<u32>,
    /// A full batch, or null.
    spare: Cell<*mut Free>,
}

struct Magazines {
    classes: [Magazine; CLASSES],
    state: Cell<State>,
    /// Which of [`TALLIES`] it counts in, if it has counted.
    tally: Cell<Option<u8>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// Nothing is given back at the thread's end yet.
    Fresh,
    Running,
    /// The thread ends: what it still frees goes to the depots at once.
    Over,
    /// What it frees is used no more.
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

/// Gives a thread's blocks to the depots when it ends.
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

/// Batches of one class that no thread has.
struct Depot(*mut Free);
// SAFETY: the blocks belong to whoever holds the lock of the depot.
unsafe impl Send for Depot {}

static DEPOTS: [Padded<Mutex<Depot>>; CLASSES] =
    [const { Padded(Mutex::new(Depot(ptr::null_mut()))) }; CLASSES];

/// Memory of the system that was not made into blocks yet.
struct Chunk {
    at: *mut u8,
    left: usize,
}
// SAFETY: the memory belongs to whoever holds the lock.
unsafe impl Send for Chunk {}

static REST: Padded<Mutex<Chunk>> = Padded(Mutex::new(Chunk { at: ptr::null_mut(), left: 0 }));

/// Threads that count where nobody else does.
const MOST_TALLIES: usize = 64;

/// Bytes that threads took, less those they gave back: of blocks, which they use or have in their
/// lists, and of large ones. Who gives back need not be who took, so only the sum tells anything.
static TALLIES: [Padded<AtomicIsize>; MOST_TALLIES] =
    [const { Padded(AtomicIsize::new(0)) }; MOST_TALLIES];

/// Threads that were given a tally.
static COUNTING: AtomicUsize = AtomicUsize::new(0);

/// Threads begin as [`State::Forgetful`].
static FORGETFUL: AtomicBool = AtomicBool::new(false);

fn locked<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing panics under these locks.
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The heap, to be named as a program's `#[global_allocator]`.
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
    /// Bytes in use, and of blocks that threads keep for themselves: some hundred kilobytes for each
    /// thread at most.
    pub fn in_use() -> usize {
        let sum: isize = TALLIES.iter().map(|tally| tally.0.load(Ordering::Relaxed)).sum();
        // Given back in a tally that was summed up, taken in one that was not yet.
        usize::try_from(sum).unwrap_or(0)
    }

    /// From now on, what this thread frees, and what threads do that begin later, is not used again.
    /// For tools that compare what operations touched one after another: an address then means one
    /// object for good.
    pub fn forget_what_is_freed() {
        FORGETFUL.store(true, Ordering::Relaxed);
        MINE.with(|mine| mine.state.set(State::Forgetful));
    }
}

// SAFETY: `alloc` gives blocks of a class's size, which is no less than asked for, at multiples of
// what alignment was asked for; none twice before it comes back. A block comes back under the class
// that it was taken from, for the class is told by the layout alone.
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
            // SAFETY: the block is of this class, and its owner lets go of it.
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
            // SAFETY: the caller's promise. The system knows what is zero already.
            return large(layout.size(), unsafe { System.alloc_zeroed(layout) });
        }
        // SAFETY: the caller's promise.
        let block = unsafe { self.alloc(layout) };
        if !block.is_null() {
            // SAFETY: the block has as many bytes, and is ours.
            unsafe { block.write_bytes(0, layout.size()) };
        }
        block
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller promises that the size, rounded up to the alignment, is no overflow.
        let new = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        match (class_of(layout), class_of(new)) {
            (Some(old), Some(new)) if old == new => return block,
            (None, None) => {
                // SAFETY: the caller's promise, and both are the system's.
                let moved = unsafe { System.realloc(block, layout, size) };
                if !moved.is_null() {
                    count_large(-(layout.size() as isize));
                }
                return large(size, moved);
            }
            _ => {}
        }
        // SAFETY: the caller's promise: the size is not zero.
        let moved = unsafe { self.alloc(new) };
        if !moved.is_null() {
            // SAFETY: both have as many bytes; the old one is the caller's no more.
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
    /// `block` is of the class, and nobody uses it.
    #[inline]
    unsafe fn give(&self, class: usize, block: *mut Free) {
        let magazine = &self.classes[class];
        let len = magazine.len.get();
        if len >= full(class) || self.state.get() != State::Running {
            // SAFETY: the caller's promise.
            return unsafe { self.spill(class, block) };
        }
        // SAFETY: the caller's promise; a block is as large as a line and aligned to one.
        unsafe { magazine.push(block) };
    }

    /// The list of `class` is empty: a batch for it, and a block of that; null if there is no memory.
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
            // SAFETY: the first block of a batch that is this thread's now.
            self.count(unsafe { bytes_of(class, batch) });
        }
        // SAFETY: the first block of a batch that is this thread's now.
        magazine.len.set(unsafe { (*batch).len });
        let block = magazine.pop(batch);
        if self.state.get() == State::Over {
            self.empty(class);
        }
        block
    }

    /// As [`Magazines::give`], where the list of `class` may be a full batch, or the thread new or at
    /// its end.
    ///
    /// # Safety
    /// As there.
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

    /// Gives everything to the depot.
    fn empty(&self, class: usize) {
        let magazine = &self.classes[class];
        for batch in [magazine.close(), magazine.spare.replace(ptr::null_mut())] {
            if !batch.is_null() {
                self.give_back(class, batch);
            }
        }
    }

    /// Lets go of a batch.
    fn give_back(&self, class: usize, batch: *mut Free) {
        // SAFETY: the first block of a batch, still the thread's own.
        self.count(-unsafe { bytes_of(class, batch) });
        locked(&DEPOTS[class]).give(batch);
    }

    /// So many bytes more are taken.
    fn count(&self, bytes: isize) {
        let tally = self.tally.get().unwrap_or_else(|| {
            let tally = (COUNTING.fetch_add(1, Ordering::Relaxed) % MOST_TALLIES) as u8;
            self.tally.set(Some(tally));
            tally
        });
        TALLIES[usize::from(tally)].0.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Sees to it that the thread's end gives back what it has.
    fn note_end(&self) {
        if self.state.get() == State::Fresh {
            // What that allocates is `libc`'s, not ours.
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
    /// Takes `head`, the first of the list, which is not empty.
    #[inline]
    fn pop(&self, head: *mut Free) -> *mut u8 {
        // SAFETY: a block in the list is nobody else's, and its link was set when it came.
        self.head.set(unsafe { (*head).next });
        self.len.set(self.len.get() - 1);
        head.cast()
    }

    /// # Safety
    /// `block` is of the class, and nobody uses it.
    #[inline]
    unsafe fn push(&self, block: *mut Free) {
        // SAFETY: the caller's promise; a block is as large as a line and aligned to one.
        unsafe { (*block).next = self.head.get() };
        self.head.set(block);
        self.len.set(self.len.get() + 1);
    }

    /// Takes the whole list as a batch; null if it is empty.
    fn close(&self) -> *mut Free {
        let batch = self.head.replace(ptr::null_mut());
        let len = self.len.replace(0);
        if !batch.is_null() {
            // SAFETY: the first block of the list.
            unsafe { (*batch).len = len };
        }
        batch
    }
}

/// Bytes of a batch.
///
/// # Safety
/// `batch` is the first block of one, which is the calling thread's.
unsafe fn bytes_of(class: usize, batch: *mut Free) -> isize {
    // SAFETY: the caller's promise.
    unsafe { (*batch).len as isize * SIZES[class] as isize }
}

impl Depot {
    fn take(&mut self) -> *mut Free {
        let batch = self.0;
        if !batch.is_null() {
            // SAFETY: a batch in the depot is its, and was linked when it came.
            self.0 = unsafe { (*batch).next_batch };
        }
        batch
    }

    fn give(&mut self, batch: *mut Free) {
        // SAFETY: the giver's first block, which is the depot's now.
        unsafe { (*batch).next_batch = self.0 };
        self.0 = batch;
    }
}

/// A new batch of `class`; null if there is no memory.
fn carve(class: usize) -> *mut Free {
    let (size, len) = (SIZES[class], full(class) as usize);
    let bytes = (size * len).next_multiple_of(STRICTEST);
    let start = {
        let mut rest = locked(&REST);
        if rest.left < bytes {
            // SAFETY: neither size nor alignment is zero.
            let chunk = unsafe { System.alloc(Layout::from_size_align_unchecked(CHUNK, 4096)) };
            if chunk.is_null() {
                return ptr::null_mut();
            }
            // What was left of the former one is less than a batch, and lost.
            *rest = Chunk { at: chunk, left: CHUNK };
        }
        let start = rest.at;
        // SAFETY: that many bytes are left.
        rest.at = unsafe { start.add(bytes) };
        rest.left -= bytes;
        start
    };
    let mut head: *mut Free = ptr::null_mut();
    for n in (0..len).rev() {
        // SAFETY: the n-th part of the batch, which is nobody else's, aligned to a line.
        unsafe {
            let block = start.add(n * size).cast::<Free>();
            block.write(Free { next: head, len: len as u32, next_batch: ptr::null_mut() });
            head = block;
        }
    }
    head
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::sync::unscheduled::Barrier;

    fn layout(size: usize, align: usize) -> Layout {
        Layout::from_size_align(size, align).expect("a small layout")
    }

    #[test]
    fn a_class_holds_what_is_asked_for_and_wastes_a_quarter_at_most() {
        for size in 1..=SIZES[CLASSES - 1] {
            let class = class_of(layout(size, 8)).expect("not too large");
            let given = SIZES[class];
            assert!(given >= size);
            // Beyond, there are few of them.
            if size <= SMALL {
                assert!(given * 3 <= size.next_multiple_of(64) * 4, "{given} for {size}");
            }
            assert!(class == 0 || SIZES[class - 1] < size, "{size} has a smaller class");
        }
        assert_eq!(class_of(layout(SIZES[CLASSES - 1] + 1, 8)), None);
        assert_eq!(class_of(layout(64, 256)), None);
        for lines in 1..33 {
            let class = class_of(layout(lines * 128, 128)).expect("not too large");
            assert_eq!(SIZES[class] % 128, 0);
        }
        for (class, size) in SIZES.iter().enumerate() {
            assert!(size.is_multiple_of(if class < 7 { 64 } else { 128 }));
        }
    }

    /// A block with a pattern of its own.
    struct Block {
        at: *mut u8,
        layout: Layout,
        pattern: u8,
    }
    // SAFETY: a block belongs to whoever has it.
    unsafe impl Send for Block {}

    impl Block {
        fn new(random: &mut fastrand::Rng) -> Block {
            let align = 1 << random.u32(0..9);
            let size = match random.u8(..) {
                0 => random.usize(70_000..100_000),
                power => random.usize(1..=2 << (power % 12)),
            };
            let layout = layout(size, align);
            let pattern = random.u8(..);
            // SAFETY: the size is not zero, and the bytes written are the block's.
            unsafe {
                let at = match random.bool() {
                    true => LineHeap.alloc(layout),
                    false => {
                        let at = LineHeap.alloc_zeroed(layout);
                        assert!((0..layout.size()).all(|n| *at.add(n) == 0));
                        at
                    }
                };
                let lines = if class_of(layout).is_some() { LINE } else { 1 };
                assert_eq!(at.addr() % align.max(lines), 0);
                at.write_bytes(pattern, layout.size());
                Block { at, layout, pattern }
            }
        }

        fn resized(self, size: usize) -> Block {
            let old = self.layout.size().min(size);
            let layout = layout(size, self.layout.align());
            // SAFETY: the block is ours, the size is not zero.
            unsafe {
                let at = LineHeap.realloc(self.at, self.layout, size);
                assert!((0..old).all(|n| *at.add(n) == self.pattern));
                at.write_bytes(self.pattern, size);
                Block { at, layout, pattern: self.pattern }
            }
        }

        fn end(self) {
            // SAFETY: the block is ours.
            unsafe {
                assert!((0..self.layout.size()).all(|n| *self.at.add(n) == self.pattern));
                LineHeap.dealloc(self.at, self.layout);
            }
        }
    }

    #[test]
    fn no_block_is_given_twice_whoever_frees_it() {
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let exchange: Mutex<Vec<Block>> = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let exchange = &exchange;
                scope.spawn(move || {
                    let mut random = fastrand::Rng::with_seed(seed ^ thread);
                    let mut mine = Vec::new();
                    for _ in 0..if cfg!(miri) { 200 } else { 10_000 } {
                        match random.u8(..5) {
                            0 | 1 => mine.push(Block::new(&mut random)),
                            2 if !mine.is_empty() => {
                                let block: Block = mine.swap_remove(random.usize(..mine.len()));
                                mine.push(block.resized(random.usize(1..9000)));
                            }
                            3 if !mine.is_empty() => {
                                let block = mine.swap_remove(random.usize(..mine.len()));
                                locked(exchange).push(block);
                            }
                            _ => {
                                let block = locked(exchange).pop();
                                block.into_iter().for_each(Block::end);
                            }
                        }
                    }
                    mine.into_iter().for_each(Block::end);
                });
            }
        });
        locked(&exchange).drain(..).for_each(Block::end);
    }

    #[test]
    fn what_a_thread_had_is_used_again_after_its_end() {
        // A class that no other test of this process uses.
        let layout = layout(30_000, 8);
        let class = class_of(layout).expect("not too large");
        let round = move || {
            // SAFETY: the size is not zero; freed as it was allocated.
            unsafe {
                let blocks: Vec<_> = (0..8).map(|_| LineHeap.alloc(layout)).collect();
                blocks.iter().for_each(|block| LineHeap.dealloc(*block, layout));
                blocks.into_iter().map(|block| block.addr()).collect::<Vec<_>>()
            }
        };
        let first: std::collections::HashSet<usize> =
            std::thread::spawn(round).join().expect("no panic").into_iter().collect();
        assert_eq!(first.len(), 8);
        assert!(!locked(&DEPOTS[class]).0.is_null());
        let again = std::thread::spawn(round).join().expect("no panic");
        assert!(again.iter().all(|block| first.contains(block)));
    }

    #[test]
    fn what_is_freed_after_the_end_of_a_forgetful_thread_is_used_no_more() {
        // A class that no other test of this process uses.
        let layout = layout(60_000, 8);
        let thread = move || {
            MINE.with(|mine| mine.state.set(State::Forgetful));
            // SAFETY: the size is not zero; freed as it was allocated.
            unsafe {
                let first = LineHeap.alloc(layout);
                drop(End);
                LineHeap.dealloc(first, layout);
                assert_ne!(LineHeap.alloc(layout), first);
            }
        };
        std::thread::spawn(thread).join().expect("no panic");
    }

    #[test]
    fn threads_count_large_blocks_on_lines_of_their_own() {
        let layout = layout(200_000, 8);
        let both_run = Barrier::new(2);
        let tally = || {
            // SAFETY: the size is not zero; freed as it was allocated.
            unsafe { LineHeap.dealloc(LineHeap.alloc(layout), layout) };
            both_run.wait();
            MINE.with(|mine| mine.tally.get()).expect("it has counted")
        };
        std::thread::scope(|scope| {
            let [one, other] = [scope.spawn(tally), scope.spawn(tally)];
            assert_ne!(one.join().expect("no panic"), other.join().expect("no panic"));
        });
    }

    #[test]
    fn a_thread_takes_what_it_gave_last() {
        let layout = layout(100, 8);
        // SAFETY: the size is not zero; freed as it was allocated.
        unsafe {
            let first = LineHeap.alloc(layout);
            LineHeap.dealloc(first, layout);
            let second = LineHeap.alloc(layout);
            assert_eq!(first, second);
            LineHeap.dealloc(second, layout);
        }
    }
}
