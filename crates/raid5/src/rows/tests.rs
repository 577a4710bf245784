//! Tests of `rows.rs`.

use super::*;
use lanefs_lanes::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

fn span(row: u64, from: u64, to: u64, mode: Mode) -> Span {
    Span { row, from, to, mode }
}

fn waits(locks: &RowLocks, wanted: Span) -> bool {
    let got = AtomicBool::new(false);
    std::thread::scope(|s| {
        let keep = locks.lock(span(wanted.row, 4096, 8192, Mode::Shared));
        let thread = s.spawn(|| {
            drop(locks.lock(wanted));
            got.store(true, Ordering::SeqCst);
        });
        std::thread::sleep(Duration::from_millis(20));
        let waited = !got.load(Ordering::SeqCst);
        drop(keep);
        thread.join().unwrap();
        waited
    })
}

#[test]
fn only_conflicting_ranges_wait() {
    let locks = RowLocks::new();
    assert!(waits(&locks, span(7, 0, 8192, Mode::Exclusive)));
    assert!(!waits(&locks, span(7, 0, 8192, Mode::Shared)));
    assert!(!waits(&locks, span(7, 8192, 9000, Mode::Exclusive)));
    assert!(!waits(&locks, span(7, 0, 4096, Mode::Exclusive)));
}

#[test]
fn rows_side_by_side_share_no_cache_line() {
    let locks = RowLocks::new();
    let at: Vec<usize> =
        (0..SHARDS as u64).map(|row| std::ptr::from_ref(locks.shard(row)).addr()).collect();
    assert!(at.iter().all(|a| a % 128 == 0));
    assert!(at.windows(2).all(|w| w[1] - w[0] >= 128 + size_of::<Shard>() / 128 * 128));
}

#[test]
fn many_threads_on_few_ranges_exclude_each_other_and_all_finish() {
    let seed = 41;
    println!("seed {seed}");
    let locks = RowLocks::new();
    let inside: Vec<AtomicUsize> = (0..8).map(|_| AtomicUsize::new(0)).collect();
    std::thread::scope(|s| {
        for thread in 0..6 {
            let (locks, inside) = (&locks, &inside);
            s.spawn(move || {
                let mut rng = fastrand::Rng::with_seed(seed + thread);
                for _ in 0..2000 {
                    let from = rng.u64(..8);
                    let to = rng.u64(from + 1..=8);
                    let mode = if rng.u8(..3) == 0 { Mode::Shared } else { Mode::Exclusive };
                    let mine = if mode == Mode::Shared { 1 } else { 100 };
                    let _hold = locks.lock(span(3, from, to, mode));
                    for cell in &inside[from as usize..to as usize] {
                        let others = cell.fetch_add(mine, Ordering::SeqCst);
                        assert!(if mine == 100 { others == 0 } else { others < 100 });
                    }
                    for cell in &inside[from as usize..to as usize] {
                        cell.fetch_sub(mine, Ordering::SeqCst);
                    }
                }
            });
        }
    });
    assert!(locks.shard(3).lock().held.iter().all(Option::is_none));
}
