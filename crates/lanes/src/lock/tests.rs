use super::*;
use crate::contention::contention;
use std::time::Duration;

#[test]
fn locks_taken_in_ascending_rank_are_fine() {
    let journal = Mutex::new(Rank::Journal, 1);
    let guard = RwLock::new(Rank::Guard, 2);
    let (a, b) = (journal.lock(), guard.write());
    assert_eq!((*a, *b), (1, 2));
}

#[cfg(debug_assertions)]
#[test]
#[should_panic(expected = "lock order: taking Journal while holding Guard")]
fn a_lock_taken_out_of_order_panics_and_names_both_ranks() {
    let journal = Mutex::new(Rank::Journal, ());
    let guard = Mutex::new(Rank::Guard, ());
    let _g = guard.lock();
    let _j = journal.lock();
}

#[cfg(debug_assertions)]
#[test]
#[should_panic(expected = "lock order: taking Guard while holding Guard")]
fn two_locks_of_one_rank_panic() {
    let (a, b) = (Mutex::new(Rank::Guard, ()), Mutex::new(Rank::Guard, ()));
    let _a = a.lock();
    let _b = b.lock();
}

#[cfg(debug_assertions)]
#[test]
#[should_panic(expected = "lock order: taking Journal while holding Guard")]
fn a_tried_lock_is_exempt_but_counts_as_held() {
    let guards = [Mutex::new(Rank::Guard, ()), Mutex::new(Rank::Guard, ())];
    let journal = Mutex::new(Rank::Journal, ());
    let first = guards[0].lock();
    let _second = guards[1].try_lock().expect("nobody has it");
    drop(first);
    let _j = journal.lock();
}

#[cfg(debug_assertions)]
#[test]
#[should_panic(expected = "lock order: waiting for a condition while holding Guard")]
fn waiting_for_a_condition_with_a_state_guard_panics() {
    let (guard, journal) = (Mutex::new(Rank::Guard, ()), Mutex::new(Rank::Journal, ()));
    let mut journal = journal.lock();
    let _guard = guard.lock();
    Condvar::new().wait_for(&mut journal, Duration::from_millis(1));
}

#[test]
fn a_released_lock_is_no_longer_held() {
    let journal = Mutex::new(Rank::Journal, ());
    let guard = Mutex::new(Rank::Guard, ());
    drop(guard.lock());
    drop(journal.lock());
}

#[test]
fn a_contended_wait_is_counted_and_timed() {
    let of = || contention().into_iter().find(|c| c.rank == Rank::Topology).expect("a rank");
    let before = of();
    let lock = Mutex::new(Rank::Topology, ());
    // On a busy machine, the other thread may try to take the lock only after it was released.
    // The test then tries again.
    while of().waits == before.waits {
        std::thread::scope(|s| {
            let held = lock.lock();
            s.spawn(|| drop(lock.lock()));
            std::thread::sleep(Duration::from_millis(10));
            drop(held);
        });
    }
    assert!(of().nanos > before.nanos);
}

#[test]
fn a_wait_without_a_wake_up_times_out() {
    let lock = Mutex::new(Rank::Guard, ());
    let mut held = lock.lock();
    assert!(!Condvar::new().wait_for(&mut held, Duration::from_millis(1)));
}
