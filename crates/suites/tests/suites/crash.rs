//! Crash states of workloads. Lanefs and e2fsck must recover them, and promises must be kept.

use lanefs_device::{Device, Kept};
use lanefs_suites::crash::{Checker, Cuts, OPTIONS, Tally, Ways, check, many, record};
use lanefs_suites::planted::{Bug, Planted};
use lanefs_suites::random::seeds;
use lanefs_suites::together::Bases;
use std::sync::Arc;

fn run(seed: u64, ops: usize, cuts: Cuts) {
    let found = check(seed, ops, cuts).unwrap_or_else(|why| panic!("{why}"));
    println!("seed {seed}: {found}");
}

#[test]
fn promises_are_kept_at_a_few_crashes() {
    for seed in seeds(2) {
        run(seed, 120, Cuts::About(25));
    }
}

#[test]
#[ignore = "long: 5,000 distinct crash states"]
fn promises_are_kept_at_thousands_of_crashes() {
    let seed = seeds(1)[0];
    println!("first seed {seed}");
    let found = many(seed, 5_000, None, &|_| ()).unwrap_or_else(|why| panic!("{why}"));
    println!("{found}");
}

#[test]
fn a_missing_flush_is_found() {
    let found = (1..20).any(|seed| {
        let (options, size) = OPTIONS[0];
        let Some(image) = Bases::default().fresh(options, size) else { return true };
        let lost = |device| -> Arc<dyn Device> { Arc::new(Planted::new(Bug::LostFlush, device)) };
        let history = record(image, options, seed, 80, &lost).expect("the workload");
        let tally = Tally::new(1);
        let mut checker = Checker::new(&history, &tally).expect("the recording is read");
        let last = checker.cuts();
        let cuts: Vec<usize> = (last / 2..=last).step_by(20).collect();
        let ways = |cut| Ways { kept: vec![Kept::Some { seed: cut as u64 }], again: 0 };
        checker.check_cuts(&cuts, &ways).is_err()
    });
    assert!(found, "a suite that does not see a lost flush is blind");
}
