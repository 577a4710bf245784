//! Checks that the tracer records all accesses, and no others.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

use lanefs_lanes::sync::unscheduled::atomic::{AtomicU64, Ordering};
use lanefs_lanes::sync::unscheduled::{Mutex, RwLock};
use lanefs_trace::{Bus, Footprint, Granule, Line, Transfers, Workers, conflicts, record};
use std::cell::UnsafeCell;
use std::sync::Arc;

/// Runs `work` twice on each of two threads, with the number of the thread as the argument. Returns
/// the footprint of each thread's second run.
fn both(work: impl Fn(usize) + Send + Sync) -> (Footprint, Footprint) {
    let work = &work;
    Workers::with(
        2,
        |number| number,
        |workers| {
            let run = |me: &mut usize| {
                work(*me);
                record(|| work(*me)).expect("this machine is supported").1
            };
            (workers.on(0, run), workers.on(1, run))
        },
    )
}

fn shared_lines(work: impl Fn(usize) + Send + Sync) -> usize {
    let (one, two) = both(work);
    assert!(one.instructions() > 0);
    conflicts(&one, &two).len()
}

/// Words of 8 bytes. Word `at` is 64 bytes after word `at - 8`, so these two words are on different
/// lines.
#[repr(align(128))]
struct Words([AtomicU64; 32]);

impl Words {
    fn new() -> Words {
        Words(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

#[test]
fn a_counter_of_two_threads_is_truly_shared() {
    let words = Words::new();
    let add = |_| assert!(words.0[0].fetch_add(1, Ordering::Relaxed) < 9);
    let (one, two) = both(add);
    let found = conflicts(&one, &two);
    assert_eq!(found.len(), 1, "{found:?}");
    let address = words.0[0].as_ptr() as u64;
    assert_eq!(found[0].line.0, address / 64);
    assert_eq!(found[0].first.writes[0].address, address);
}

#[test]
fn neighbours_on_one_line_are_falsely_shared() {
    let words = Words::new();
    assert_eq!(shared_lines(|me| words.0[me].store(1, Ordering::Relaxed)), 1);
}

#[test]
fn words_on_lines_of_their_own_are_shared_in_pairs_of_lines_only() {
    let words = Words::new();
    let (one, two) = both(|me| words.0[8 * me].store(1, Ordering::Relaxed));
    assert_eq!(conflicts(&one, &two).len(), 0);
    let pair = |footprint: &Footprint| footprint.in_granules(Granule::Pair);
    assert_eq!(conflicts(&pair(&one), &pair(&two)).len(), 1);
    let (one, two) = both(|me| words.0[16 * me].store(1, Ordering::Relaxed));
    assert_eq!(conflicts(&pair(&one), &pair(&two)).len(), 0);
}

#[test]
fn a_write_that_straddles_lines_touches_both() {
    #[repr(C, align(128))]
    struct Straddling([u8; 256]);
    struct Racy(UnsafeCell<Straddling>);
    // SAFETY: only one worker runs at a time.
    unsafe impl Sync for Racy {}
    let bytes = Racy(UnsafeCell::new(Straddling([0; 256])));
    let bytes = &bytes;
    let (one, two) = both(move |_| {
        // SAFETY: bytes 60 to 67 are inside the array, and no other thread runs concurrently.
        unsafe { bytes.0.get().cast::<u8>().add(60).cast::<u64>().write_unaligned(7) }
    });
    assert_eq!(conflicts(&one, &two).len(), 2);
}

#[test]
fn lines_that_are_only_read_are_not_shared() {
    let words = Words::new();
    let read = |_| assert_eq!(words.0[0].load(Ordering::SeqCst), 0);
    assert_eq!(shared_lines(read), 0);
}

#[test]
fn the_allocator_keeps_threads_apart() {
    assert_eq!(shared_lines(|me| drop(std::hint::black_box(vec![me; 50]))), 0);
}

#[test]
fn a_mutex_is_a_shared_line() {
    let mutex = Box::new(Mutex::new(0_u64));
    assert!(shared_lines(|_| *mutex.lock().expect("not poisoned") += 1) >= 1);
}

#[test]
fn a_read_lock_is_a_shared_line() {
    let lock = Box::new(RwLock::new(0_u64));
    let read = |_| assert_eq!(*lock.read().expect("not poisoned"), 0);
    let (one, two) = both(read);
    assert!(conflicts(&one, &two).iter().any(|c| c.first.is_written() && c.second.is_written()));
}

#[test]
fn a_clone_of_an_arc_is_a_shared_line() {
    let shared = Arc::new(7);
    assert_eq!(shared_lines(|_| drop(std::hint::black_box(shared.clone()))), 1);
}

#[test]
fn a_try_lock_that_fails_is_a_shared_line() {
    let mutex = Box::new(Mutex::new(0_u64));
    let held = mutex.lock().expect("not poisoned");
    let try_it = |_| assert!(std::hint::black_box(mutex.try_lock()).is_err());
    let (one, two) = both(try_it);
    let found = conflicts(&one, &two);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].second.is_written());
    drop(held);
}

#[test]
fn a_copy_by_a_string_instruction_is_followed() {
    let target = Words::new();
    let (one, two) = both(|_| {
        let source = [1_u64; 16];
        // SAFETY: 128 bytes of the source go to the first 128 of the target. Only one worker runs
        // at a time, so no other thread reads or writes them.
        unsafe {
            std::arch::asm!("rep movsb", inout("rcx") 128_usize => _,
                inout("rsi") source.as_ptr() => _, inout("rdi") target.0.as_ptr() => _);
        }
    });
    assert_eq!(conflicts(&one, &two).len(), 2);
}

#[test]
fn the_calls_that_led_to_a_conflict_are_known() {
    #[inline(never)]
    fn outer(words: &Words) {
        inner(words);
        std::hint::black_box(0);
    }
    #[inline(never)]
    fn inner(words: &Words) {
        words.0[0].store(std::hint::black_box(3), Ordering::SeqCst);
    }
    let words = Words::new();
    let (one, two) = both(|_| outer(&words));
    let found = conflicts(&one, &two);
    let site = &found[0].first.writes[0];
    let mut symbols = lanefs_trace::Symbols::new();
    let mut names: Vec<String> = Vec::new();
    for ip in site.calls.iter().rev().chain([&site.ip]) {
        names.extend(symbols.frames(*ip).iter().map(|frame| frame.function.clone()));
    }
    assert!(names.iter().any(|name| name.contains("outer")), "{names:?}");
    assert!(names.iter().any(|name| name.contains("inner")), "{names:?}");
}

#[test]
fn a_line_that_goes_round_moves_once_for_each_operation() {
    let words = Words::new();
    let words = &words;
    let mut transfers = Transfers::default();
    let mut bus = Bus::new();
    Workers::with(
        4,
        |number| number,
        |workers| {
            for round in 0..3 {
                for thread in 0..4 {
                    let footprint = workers.on(thread, move |me: &mut usize| {
                        record(|| {
                            words.0[16].fetch_add(1, Ordering::Relaxed);
                            words.0[*me].load(Ordering::Relaxed)
                        })
                        .expect("this machine is supported")
                        .1
                    });
                    let mut cold = Transfers::default();
                    let counted = if round == 0 { &mut cold } else { &mut transfers };
                    bus.run(thread, &footprint, counted);
                }
            }
        },
    );
    assert_eq!((transfers.total(), transfers.hottest()), (8, 8));
}

#[test]
fn after_a_write_each_reader_moves_the_line() {
    let words = Words::new();
    let words = &words;
    let mut bus = Bus::new();
    let mut moved = Vec::new();
    Workers::with(
        4,
        |number| number,
        |workers| {
            for thread in [0, 1, 2, 3, 0, 1, 2, 3, 3] {
                let access = move |me: &mut usize| match *me {
                    0 => words.0[0].store(1, Ordering::Relaxed),
                    _ => assert!(words.0[0].load(Ordering::Relaxed) == 1),
                };
                let traced = move |me: &mut usize| {
                    record(|| access(me)).expect("this machine is supported").1
                };
                let footprint = workers.on(thread, traced);
                let lines = bus.moves(thread, &footprint);
                moved.push(lines.contains(&Line(words.0[0].as_ptr() as u64 / 64)));
            }
        },
    );
    assert_eq!(moved, [false, true, true, true, true, true, true, true, false]);
}

#[test]
fn system_calls_are_counted() {
    let (_, footprint) = record(std::thread::yield_now).expect("this machine is supported");
    assert_eq!(footprint.system_calls(), 1);
}
