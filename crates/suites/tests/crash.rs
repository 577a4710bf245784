//! Crash states of workloads: recovered by Lanefs and by e2fsck, promises kept.

use lanefs_device::{Device, Kept, RamDevice};
use lanefs_suites::crash::{Cuts, Judge, OPTIONS, judge, record};
use lanefs_suites::image::Image;
use lanefs_suites::planted::{Bug, Planted};
use lanefs_suites::random::{in_parallel, seeds};
use std::sync::Arc;

fn run(seed: u64, steps: usize, cuts: Cuts) {
    let found = judge(seed, steps, cuts).unwrap_or_else(|why| panic!("{why}"));
    println!("seed {seed}: {found:?}");
}

#[test]
fn promises_are_kept_at_a_few_crashes() {
    for seed in seeds(2) {
        run(seed, 120, Cuts::About(25));
    }
}

#[test]
#[ignore = "long: hundreds of crash states of each workload"]
fn promises_are_kept_at_many_crashes() {
    in_parallel(seeds(8), |seed| run(seed, 600, Cuts::About(50)));
}

#[test]
fn a_flush_that_never_was_is_found() {
    let found = (1..20).any(|seed| {
        let (options, size) = OPTIONS[0];
        let Some(image) = Image::make(options, size) else { return true };
        let ram = RamDevice::from_file(image.path()).expect("the image is read");
        let lost = |device| -> Arc<dyn Device> { Arc::new(Planted::new(Bug::LostFlush, device)) };
        let history = record(ram, seed, 80, &lost).expect("the workload");
        let judge = Judge::new(&history);
        let last = judge.cuts();
        let cuts: Vec<usize> = (last / 2..=last).step_by(20).collect();
        judge.judge(&cuts, &|cut| vec![Kept::Some { seed: cut as u64 }]).is_err()
    });
    assert!(found, "a suite that does not see a lost flush is blind");
}
