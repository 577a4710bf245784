//! Runs in which the n-th read, write or flush fails.

use lanefs_suites::faults::check;
use lanefs_suites::random::{in_parallel, seeds};

fn run(seed: u64, len: usize, most: u64) {
    let done = check(seed, len, most).unwrap_or_else(|why| panic!("{why}"));
    println!("seed {seed}: {done} faults");
}

#[test]
fn a_few_faults_are_reported_and_lose_nothing() {
    for seed in seeds(2) {
        run(seed, 60, 8);
    }
}

#[test]
#[ignore = "long: every read, write and flush of some workloads"]
fn every_fault_is_reported_and_loses_nothing() {
    in_parallel(seeds(4), |seed| run(seed, 150, 250));
}
