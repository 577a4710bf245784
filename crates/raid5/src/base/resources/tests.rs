//! Tests of `resources.rs`.

use super::*;
use lanefs_lanes::sync::atomic::{AtomicUsize, Ordering};

fn contend(wake: StripeWake) -> crate::base::Statistics {
    let (budget, counters) = (RowBudget::new(2, wake), Counters::new());
    let inside = AtomicUsize::new(0);
    std::thread::scope(|s| {
        for thread in 0..12u64 {
            let (budget, counters, inside) = (&budget, &counters, &inside);
            s.spawn(move || {
                for round in 0..50 {
                    let _unit = budget.take(thread * 50 + round, counters);
                    assert!(inside.fetch_add(1, Ordering::SeqCst) < 2);
                    std::thread::sleep(std::time::Duration::from_micros(20));
                    inside.fetch_sub(1, Ordering::SeqCst);
                }
            });
        }
    });
    assert!(budget.none_taken());
    counters.sums()
}

#[test]
fn waking_one_wakes_at_most_one_for_each_unit_freed() {
    let one = contend(StripeWake::One);
    assert_eq!(one.units_freed, 600);
    assert!(one.budget_waits > 0);
    assert!(one.budget_wake_ups <= one.units_freed, "{one:?}");
}

#[test]
fn waking_all_wakes_more_threads_than_units() {
    // On a busy machine, threads may find a unit before they have to wait.
    let mut rounds = (0..20).map(|_| contend(StripeWake::All));
    let herd = rounds.find(|all| {
        assert_eq!(all.units_freed, 600);
        all.budget_wake_ups > 2 * all.units_freed
    });
    assert!(herd.is_some(), "20 rounds without it");
}
