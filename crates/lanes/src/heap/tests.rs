use super::classes::{CHUNK, LINE, PAGE, SMALL, SPANS};
use super::depot::Depot;
use super::*;
use crate::sync::unscheduled::{Barrier, Mutex};

fn layout(size: usize, align: usize) -> Layout {
    Layout::from_size_align(size, align).expect("a small layout")
}

#[test]
fn a_class_holds_what_is_asked_for_and_wastes_a_quarter_at_most() {
    for size in 1..=SIZES[CLASSES - 1] {
        let class = class_of(layout(size, 8)).expect("not too large");
        let given = SIZES[class];
        assert!(given >= size);
        // Sizes above `SMALL` have only few classes, so more than a quarter of a block may stay
        // unused.
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

/// A block filled with its own pattern.
struct Block {
    at: *mut u8,
    layout: Layout,
    pattern: u8,
}
// SAFETY: a `Block` has one owner at a time, and any thread may free memory of the heap.
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
        // SAFETY: the size is not zero, and the written bytes are in the block.
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
        // SAFETY: the block belongs to this value, and the size is not zero.
        unsafe {
            let at = LineHeap.realloc(self.at, self.layout, size);
            assert!((0..old).all(|n| *at.add(n) == self.pattern));
            at.write_bytes(self.pattern, size);
            Block { at, layout, pattern: self.pattern }
        }
    }

    fn end(self) {
        // SAFETY: the block belongs to this value.
        unsafe {
            assert!((0..self.layout.size()).all(|n| *self.at.add(n) == self.pattern));
            LineHeap.dealloc(self.at, self.layout);
        }
    }
}

#[test]
fn no_block_is_given_twice_when_any_thread_frees_it() {
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
                            // Sizes below 8000 bytes, since other tests count the blocks of larger
                            // classes.
                            mine.push(block.resized(random.usize(1..8000)));
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
fn blocks_of_an_ended_thread_are_used_again() {
    // A class that no other test of this process uses.
    let layout = layout(30_000, 8);
    let class = class_of(layout).expect("not too large");
    let round = move || {
        // SAFETY: the size is not zero; the block is freed with the same layout.
        unsafe {
            let blocks: Vec<_> = (0..8).map(|_| LineHeap.alloc(layout)).collect();
            blocks.iter().for_each(|block| LineHeap.dealloc(*block, layout));
            blocks.into_iter().map(|block| block.addr()).collect::<Vec<_>>()
        }
    };
    let first: std::collections::HashSet<usize> =
        std::thread::spawn(round).join().expect("no panic").into_iter().collect();
    assert_eq!(first.len(), 8);
    assert!(!locked(&DEPOTS[class]).is_empty());
    let again = std::thread::spawn(round).join().expect("no panic");
    assert!(again.iter().all(|block| first.contains(block)));
}

#[test]
fn blocks_freed_after_the_end_of_a_forgetful_thread_are_not_used_again() {
    // A class that no other test of this process uses.
    let layout = layout(60_000, 8);
    let thread = move || {
        MINE.with(|mine| mine.state.set(State::Forgetful));
        // SAFETY: the size is not zero; the block is freed with the same layout.
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
        // SAFETY: the size is not zero; the block is freed with the same layout.
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
    // SAFETY: the size is not zero; the block is freed with the same layout.
    unsafe {
        let first = LineHeap.alloc(layout);
        LineHeap.dealloc(first, layout);
        let second = LineHeap.alloc(layout);
        assert_eq!(first, second);
        LineHeap.dealloc(second, layout);
    }
}

#[test]
fn spans_are_whole_pages_of_blocks_with_a_sixteenth_unused_at_most() {
    for (span, size) in SPANS.iter().zip(SIZES) {
        assert!(span.bytes.is_multiple_of(PAGE) && span.blocks > 0);
        assert!((span.bytes - span.blocks * size) * 16 <= span.bytes, "{size}");
        assert!(PAGE + span.in_chunk * span.bytes <= CHUNK);
        assert!(PAGE + (span.in_chunk + 1) * span.bytes > CHUNK);
    }
}

/// Trims `class`. A trim does nothing while a trim of another test runs, so it is repeated until it
/// gives memory back.
fn trimmed(class: usize) -> usize {
    let tries = (0..1_000_000).map(|_| trim::trim(std::iter::once(class)));
    tries.inspect(|_| std::thread::yield_now()).find(|bytes| *bytes > 0).unwrap_or(0)
}

#[test]
#[cfg(not(miri))]
fn a_trim_gives_free_spans_back_and_leaves_those_with_a_block_in_use() {
    // A class that no other test of this process uses.
    let layout = layout(16_500, 8);
    let class = class_of(layout).expect("not too large");
    let span = SPANS[class];
    let all = 4 * span.in_chunk * span.blocks;
    // Allocates and fills as many blocks as four chunks hold.
    let make = move || -> Vec<usize> {
        // SAFETY: the size is not zero, and the written bytes are in the block.
        let block = |n: usize| unsafe {
            let block = LineHeap.alloc(layout);
            block.write_bytes(n as u8, layout.size());
            block.expose_provenance()
        };
        (0..all).map(block).collect()
    };
    let check = move |n: usize, block: usize| {
        let block = ptr::with_exposed_provenance_mut::<u8>(block);
        // SAFETY: the block is used only by this thread.
        assert!(unsafe { (0..layout.size()).all(|at| *block.add(at) == n as u8) });
    };
    let free = move |block: usize| {
        // SAFETY: the block was allocated with this layout, and is freed once.
        unsafe { LineHeap.dealloc(ptr::with_exposed_provenance_mut(block), layout) };
    };
    // One block in every other span of the first chunk stays in use.
    let (blocks, kept) = std::thread::spawn(move || {
        let blocks = make();
        let kept =
            |n: &usize| *n < span.in_chunk * span.blocks && n.is_multiple_of(2 * span.blocks);
        (0..all).filter(|n| !kept(n)).for_each(|n| free(blocks[n]));
        let kept: Vec<usize> = (0..all).filter(kept).collect();
        (blocks, kept)
    })
    .join()
    .expect("no panic");
    let in_use = kept.len() * span.bytes;
    let given_back = trimmed(class);
    assert_eq!(given_back, all / span.blocks * span.bytes - in_use);
    assert_eq!(trim::trim(std::iter::once(class)), 0, "again");
    kept.iter().for_each(|n| check(*n, blocks[*n]));
    // Spans that the trim gave back are divided into blocks again, and no block in use is allocated
    // twice.
    let again = std::thread::spawn(move || {
        let blocks = make();
        blocks.iter().enumerate().for_each(|(n, block)| check(n, *block));
        blocks.iter().for_each(|block| free(*block));
        blocks
    })
    .join()
    .expect("no panic");
    let again: std::collections::HashSet<usize> = again.into_iter().collect();
    assert_eq!(again.len(), all);
    for n in kept {
        assert!(!again.contains(&blocks[n]));
        check(n, blocks[n]);
        free(blocks[n]);
    }
}

#[test]
fn a_trim_is_due_once_much_more_is_free_than_the_last_one_kept() {
    let free = |len| {
        Box::into_raw(Box::new(Free { next: ptr::null_mut(), len, next_batch: ptr::null_mut() }))
    };
    let mut depot = Depot::new();
    depot.give(free(100));
    assert!(depot.is_due(0, 100 * 64) && !depot.is_due(0, 101 * 64));
    let batch = depot.take_all();
    depot.give_all(batch, batch, 100);
    assert!(!depot.is_due(0, 64), "just done");
    depot.give(free(30));
    assert!(depot.is_due(0, 5 * 64) && !depot.is_due(0, 6 * 64), "a quarter of 100 more, and five");
    // All blocks that the trim kept are taken out. Blocks that are given back later then count as
    // freed since the trim.
    let second = depot.take();
    let first = depot.take();
    assert!(!depot.is_due(0, 64));
    depot.give(first);
    assert!(depot.is_due(0, 100 * 64));
    // SAFETY: both come from boxes, and are in no list that is used again.
    unsafe { (drop(Box::from_raw(first)), drop(Box::from_raw(second))) };
}
