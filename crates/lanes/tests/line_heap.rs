//! Runs a program on [`LineHeap`]. Its threads start and terminate, and they allocate, resize, send
//! and free blocks while the heap is trimmed. Each block must keep its contents. These tests also
//! run with sanitizers (`docs/testing.md`).
#![cfg(not(any(loom, shuttle)))]

use lanefs_lanes::LineHeap;
use lanefs_lanes::sync::unscheduled::Barrier;
use lanefs_lanes::sync::unscheduled::mpsc::{Receiver, Sender, channel};
use std::cell::Cell;
use std::time::{Duration, Instant};

#[global_allocator]
static HEAP: LineHeap = LineHeap;

/// A block in which each word is `mark`.
struct Parcel {
    mark: u64,
    words: Vec<u64>,
}

impl Parcel {
    fn new(random: &mut fastrand::Rng) -> Parcel {
        let mark = random.u64(..);
        // Small sizes are as frequent as large ones. A few sizes are so large that the system
        // allocates the block.
        let most = 2 << random.u32(..14);
        let len = 1 + random.usize(..most);
        Parcel { mark, words: vec![mark; len] }
    }

    /// Changes the parcel's length, with the heap's `realloc`.
    fn resize(&mut self, random: &mut fastrand::Rng) {
        let len = 1 + random.usize(..self.words.len() * 2);
        self.words.resize(len, self.mark);
        self.words.shrink_to_fit();
    }

    fn check(&self) {
        assert!(self.words.iter().all(|word| *word == self.mark), "another wrote here");
    }
}

/// Runs a thread that keeps or sends its allocations, and checks and frees the allocations that it
/// receives.
fn live(seed: u64, mine: &Receiver<Parcel>, others: &[Sender<Parcel>]) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut kept: Vec<Parcel> = Vec::new();
    for _ in 0..2000 {
        match random.u8(..6) {
            0 | 1 => kept.push(Parcel::new(&mut random)),
            2 if !kept.is_empty() => {
                let at = random.usize(..kept.len());
                kept[at].resize(&mut random);
            }
            3 | 4 if !kept.is_empty() => {
                let parcel = kept.swap_remove(random.usize(..kept.len()));
                parcel.check();
                // If the receiving thread has terminated, the block is freed here.
                let _ = others[random.usize(..others.len())].send(parcel);
            }
            _ => mine.try_iter().take(4).for_each(|parcel| parcel.check()),
        }
        if kept.len() > 64 {
            kept.drain(..32).for_each(|parcel| parcel.check());
        }
    }
    mine.try_iter().chain(kept).for_each(|parcel| parcel.check());
}

/// Runs one generation of threads after another, until `over` returns true for the number of
/// generations that have run.
fn generations(over: impl Fn(u64) -> bool) {
    let first = match std::env::var("LANEFS_SEED") {
        Ok(text) => text.parse().expect("a number"),
        Err(_) => fastrand::u64(..),
    };
    println!("LANEFS_SEED={first}");
    let mut generation = 0;
    let trimmed = Cell::new(0);
    while !over(generation) {
        let seed = first.wrapping_add(generation);
        let (senders, receivers): (Vec<_>, Vec<_>) = (0..4).map(|_| channel()).unzip();
        std::thread::scope(|scope| {
            let threads = receivers.into_iter().enumerate().map(|(me, mine)| {
                let others = senders.clone();
                scope.spawn(move || live(seed ^ (me as u64) << 56, &mine, &others))
            });
            let threads: Vec<_> = threads.collect();
            while threads.iter().any(|thread| !thread.is_finished()) {
                trimmed.set(trimmed.get() + LineHeap::trim());
            }
        });
        generation += 1;
    }
    println!("{generation} generations of threads, {} KiB trimmed", trimmed.get() >> 10);
}

#[test]
fn blocks_of_threads_keep_their_contents() {
    generations(|generation| generation == 20);
}

#[test]
#[ignore = "long: stress, for sanitizers too"]
fn blocks_of_many_threads_keep_their_contents() {
    let seconds = std::env::var("LANEFS_SECONDS").ok().and_then(|text| text.parse().ok());
    let end = Instant::now() + Duration::from_secs(seconds.unwrap_or(5));
    generations(|_| Instant::now() >= end);
}

/// Sizes of small blocks, including the smallest and the largest.
const SIZES: [usize; 8] = [64, 200, 448, 1000, 2048, 4224, 8200, 65_792];
/// The number of threads that allocate, and the bytes that they allocate together.
const MAKERS: usize = 4;
const BYTES: usize = 64 << 20;

/// Returns the blocks of one thread. Together they have the thread's share of [`BYTES`], divided
/// equally among the sizes. Each block is filled with its mark.
fn make(maker: usize) -> Vec<Box<[u8]>> {
    let of_size = |size: usize| (0..BYTES / MAKERS / SIZES.len() / size).map(move |_| size);
    let sizes = SIZES.iter().flat_map(|size| of_size(*size));
    sizes.enumerate().map(|(n, size)| vec![mark(maker, n); size].into()).collect()
}

fn mark(maker: usize, n: usize) -> u8 {
    (n * MAKERS + maker) as u8
}

fn check(maker: usize, n: usize, block: &[u8]) {
    assert!(block.iter().all(|byte| *byte == mark(maker, n)), "another wrote here");
}

/// Returns the process's anonymous memory in bytes.
fn anonymous_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("a readable status");
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    number.map(|kib: usize| kib << 10).expect("a number")
}

/// The work of one thread. Twice, the thread allocates many blocks, keeps one in 1,000 of them, and
/// sends the others to the next thread, which frees them.
fn make_and_free(
    maker: usize,
    full: &Barrier,
    next: &Sender<Vec<Box<[u8]>>>,
    mine: &Receiver<Vec<Box<[u8]>>>,
) {
    for _ in 0..2 {
        let (mut given, mut kept) = (Vec::new(), Vec::new());
        for (n, block) in make(maker).into_iter().enumerate() {
            match n % 1000 {
                0 => kept.push((n, block)),
                _ => given.push(block),
            }
        }
        kept.iter().for_each(|(n, block)| check(maker, *n, block));
        next.send(given).expect("a receiver");
        let given = mine.recv().expect("a sender");
        let from = (maker + MAKERS - 1) % MAKERS;
        let numbers = (0..).filter(|n| n % 1000 != 0);
        numbers.zip(&given).for_each(|(n, block)| check(from, n, block));
        full.wait();
        // At this point the main thread reads the memory in use.
        full.wait();
        drop(given);
        full.wait();
        // At this point the main thread trims and reads again.
        full.wait();
        kept.iter().for_each(|(n, block)| check(maker, *n, block));
    }
}

#[test]
fn small_blocks_that_are_free_go_back_to_the_system() {
    let full = Barrier::new(MAKERS + 1);
    let mut seen = Vec::new();
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..MAKERS).map(|_| channel()).unzip();
    std::thread::scope(|scope| {
        for (maker, mine) in receivers.into_iter().enumerate() {
            let (full, next) = (&full, senders[(maker + 1) % MAKERS].clone());
            scope.spawn(move || make_and_free(maker, full, &next, &mine));
        }
        for _ in 0..2 {
            full.wait();
            let before = anonymous_bytes();
            full.wait();
            full.wait();
            let end = Instant::now() + Duration::from_secs(10);
            // While another test of this process trims, a trim here does nothing.
            let mut trimmed = 0;
            let begun = Instant::now();
            while anonymous_bytes() + BYTES / 4 * 3 > before && Instant::now() < end {
                trimmed += LineHeap::trim();
            }
            let (after, took) = (anonymous_bytes(), begun.elapsed());
            println!("{before} bytes, {after} after {trimmed} were trimmed in {took:?}");
            full.wait();
            seen.push((before, after));
        }
    });
    for (before, after) in seen {
        assert!(after + BYTES / 4 * 3 <= before, "{before} bytes, {after} after");
    }
}
