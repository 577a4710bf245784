use super::*;
use crate::world::atomic::{AtomicBool, AtomicU64};

#[test]
fn many_threads_exclude_each_other() {
    static WORD: LockWord = LockWord::new();
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let add = || {
        for _ in 0..2000 {
            WORD.lock();
            // A load and a store instead of one atomic step, so that an addition by another
            // thread in between would be lost.
            let count = COUNT.load(Ordering::Relaxed);
            COUNT.store(count + 1, Ordering::Relaxed);
            WORD.unlock();
        }
    };
    std::thread::scope(|s| (0..16).for_each(|_| drop(s.spawn(add))));
    assert_eq!(COUNT.load(Ordering::Relaxed), 16 * 2000);
    assert_eq!(WORD.word.load(Ordering::Relaxed), 0);
}

#[test]
fn a_waiter_gets_the_lock_from_threads_that_take_it_again_at_once() {
    static WORD: LockWord = LockWord::new();
    let over = AtomicBool::new(false);
    let take_again = || {
        while !over.load(Ordering::Relaxed) {
            WORD.lock();
            std::thread::yield_now();
            WORD.unlock();
        }
    };
    std::thread::scope(|s| {
        (0..3).for_each(|_| drop(s.spawn(take_again)));
        for _ in 0..50 {
            WORD.lock();
            WORD.unlock();
        }
        over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_reserved_lock_goes_to_no_other_thread() {
    let word = LockWord { word: FutexWord::new(RESERVED | WOKEN | SLEEPER) };
    assert!(!word.try_lock());
    let waiter = Waiter { counted: SLEEPER, marks: RESERVED | WOKEN, woken: PATIENCE };
    assert!(waiter.may_take(RESERVED | WOKEN | SLEEPER));
    assert_eq!(waiter.taking(RESERVED | WOKEN | SLEEPER), HELD);
    assert!(!Waiter::default().may_take(RESERVED));
}

#[test]
fn a_thread_woken_often_without_getting_the_lock_reserves_it() {
    let woken = |times| Waiter { counted: SLEEPER, marks: WOKEN, woken: times };
    let word = HELD | WOKEN | SLEEPER;
    assert_eq!(woken(1).sleeping(word, PATIENCE), (HELD | SLEEPER, 0));
    assert_eq!(woken(PATIENCE).sleeping(word, PATIENCE), (word | RESERVED, WOKEN | RESERVED));
    assert_eq!(woken(PATIENCE).sleeping(word | RESERVED, PATIENCE), (HELD | RESERVED | SLEEPER, 0));
}
