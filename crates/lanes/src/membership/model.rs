//! Models of membership for the checkers: there are no members while `swap` runs, no thread waits
//! for ever, and every fence is needed.

use super::*;
use crate::sync::{Arc, thread};

/// The work of the first transaction's members. When that transaction closes, `swap` must see this
/// work finished.
#[cfg(loom)]
struct Work(loom::cell::UnsafeCell<u32>);

#[cfg(shuttle)]
struct Work(crate::sync::unscheduled::atomic::AtomicBool);

#[cfg(loom)]
impl Work {
    fn new() -> Work {
        Work(loom::cell::UnsafeCell::new(0))
    }
    fn done_by_member(&self) {
        // SAFETY: loom's cell checks the exclusion that makes this sound.
        self.0.with_mut(|work| unsafe { *work += 1 });
    }
    fn seen_by_closer(&self) {
        self.0.with(|_| ());
    }
}

#[cfg(shuttle)]
impl Work {
    fn new() -> Work {
        Work(crate::sync::unscheduled::atomic::AtomicBool::new(false))
    }
    fn done_by_member(&self) {
        self.0.store(true, Ordering::SeqCst);
        thread::yield_now();
        self.0.store(false, Ordering::SeqCst);
    }
    fn seen_by_closer(&self) {
        assert!(!self.0.load(Ordering::SeqCst), "a member is at work while the lists are swapped");
    }
}

fn one_joiner_per_lane_and_a_closer() {
    let membership = Arc::new(Membership::new(1));
    let works = Arc::new([Work::new(), Work::new()]);
    let joiners: Vec<_> = (0..2)
        .map(|me| {
            let (membership, works) = (membership.clone(), works.clone());
            thread::spawn(move || {
                let member = membership.join();
                if member.tid() == 1 {
                    works[me].done_by_member();
                }
            })
        })
        .collect();
    membership.close(|tid| {
        assert_eq!(tid, 1);
        works.iter().for_each(Work::seen_by_closer);
    });
    for joiner in joiners {
        joiner.join().expect("no panic");
    }
    assert_eq!(membership.running(), 2);
}

#[cfg(loom)]
mod loom_tests {
    use super::*;

    #[test]
    fn loom_no_thread_is_a_member_during_the_swap_or_left_waiting() {
        crate::schedules::check(3, one_joiner_per_lane_and_a_closer);
    }
}

#[cfg(shuttle)]
mod shuttle_tests {
    use super::*;

    #[test]
    fn shuttle_many_joiners_and_two_closers_all_finish() {
        let model = || {
            let membership = Arc::new(Membership::new(1));
            let threads: Vec<_> = (0..6)
                .map(|me| {
                    let membership = membership.clone();
                    thread::spawn(move || {
                        for _ in 0..3 {
                            if me < 2 {
                                membership.close(|_| ());
                            } else {
                                drop(membership.join());
                            }
                        }
                    })
                })
                .collect();
            threads.into_iter().for_each(|t| t.join().expect("no panic"));
            assert_eq!(membership.running(), 7);
        };
        shuttle::check_random(model, 2000);
        shuttle::check_random(one_joiner_per_lane_and_a_closer, 2000);
    }
}
