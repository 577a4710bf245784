//! A program on [`LineHeap`]: threads make, resize, hand over and free, come and go, and what each
//! wrote stays as it was. Sanitizers judge it too (`docs/testing.md`).
#![cfg(not(any(loom, shuttle)))]

use lanefs_lanes::LineHeap;
use lanefs_lanes::sync::unscheduled::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

#[global_allocator]
static HEAP: LineHeap = LineHeap;

/// Bytes with a mark at both ends, and some in between.
struct Parcel {
    mark: u64,
    words: Vec<u64>,
}

impl Parcel {
    fn new(random: &mut fastrand::Rng) -> Parcel {
        let mark = random.u64(..);
        // As often small as large; one in some is the system's.
        let most = 2 << random.u32(..14);
        let len = 1 + random.usize(..most);
        Parcel { mark, words: vec![mark; len] }
    }

    /// Longer or shorter, by way of the heap's `realloc`.
    fn resize(&mut self, random: &mut fastrand::Rng) {
        let len = 1 + random.usize(..self.words.len() * 2);
        self.words.resize(len, self.mark);
        self.words.shrink_to_fit();
    }

    fn check(&self) {
        assert!(self.words.iter().all(|word| *word == self.mark), "another wrote here");
    }
}

/// A thread's life: what it makes it keeps or sends on, what it is sent it checks and frees.
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
                // Who has ended takes nothing: then it is freed here.
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

/// One generation of threads after another, until `over` says of their number that it is enough.
fn generations(over: impl Fn(u64) -> bool) {
    let first = match std::env::var("LANEFS_SEED") {
        Ok(text) => text.parse().expect("a number"),
        Err(_) => fastrand::u64(..),
    };
    println!("LANEFS_SEED={first}");
    let mut generation = 0;
    while !over(generation) {
        let seed = first.wrapping_add(generation);
        let (senders, receivers): (Vec<_>, Vec<_>) = (0..4).map(|_| channel()).unzip();
        std::thread::scope(|scope| {
            for (me, mine) in receivers.into_iter().enumerate() {
                let others = senders.clone();
                scope.spawn(move || live(seed ^ (me as u64) << 56, &mine, &others));
            }
        });
        generation += 1;
    }
    println!("{generation} generations of threads");
}

#[test]
fn what_threads_of_a_program_write_stays_as_it_was() {
    generations(|generation| generation == 20);
}

#[test]
#[ignore = "long: stress, for sanitizers too"]
fn what_many_threads_of_a_program_write_stays_as_it_was() {
    let seconds = std::env::var("LANEFS_SECONDS").ok().and_then(|text| text.parse().ok());
    let end = Instant::now() + Duration::from_secs(seconds.unwrap_or(5));
    generations(|_| Instant::now() >= end);
}
