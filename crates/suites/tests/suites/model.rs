//! Random operations of four threads, compared with a model in memory.

use lanefs_device::Device;
use lanefs_suites::planted::{Bug, Planted};
use lanefs_suites::random::{in_parallel, seeds};
use lanefs_suites::together::{Bases, Runner, scenario};
use std::sync::Arc;

fn plain(device: Arc<dyn Device>) -> Arc<dyn Device> {
    device
}

#[test]
fn a_few_sequences_end_as_the_model_says() {
    let bases = Bases::default();
    let runner = Runner { bases: &bases, wrap: &plain };
    for seed in seeds(4) {
        println!("seed {seed}");
        runner.check_seed(seed, 150).unwrap_or_else(|why| panic!("{why}"));
    }
}

#[test]
#[ignore = "long: 200 seeds, 500 operations of four threads each"]
fn two_hundred_sequences_end_as_the_model_says() {
    let bases = Bases::default();
    let runner = Runner { bases: &bases, wrap: &plain };
    in_parallel(seeds(200), |seed| {
        println!("seed {seed}");
        runner.check_seed(seed, 500).unwrap_or_else(|why| panic!("{why}"));
    });
}

#[test]
fn a_bit_flipped_in_file_data_is_found_and_the_sequence_shrinks() {
    let bases = Bases::default();
    let flip = |device| -> Arc<dyn Device> { Arc::new(Planted::new(Bug::FlippedBit, device)) };
    let runner = Runner { bases: &bases, wrap: &flip };
    let scenario = scenario(7, 200);
    let ops = |sequences: &[Vec<_>]| sequences.iter().map(Vec::len).sum::<usize>();
    let before = ops(&scenario.sequences);
    let why = runner.run(&scenario).expect_err("the flipped bit is seen");
    let (short, why) = runner.shrink(scenario, why);
    assert!(ops(&short.sequences) < before / 4, "{why}: {}", short.describe());
}
