//! The suites on a RAID-5 array, with all members present, with one member missing, and during
//! rebuilds.

use lanefs_suites::array::{Health, check_file, check_model};
use lanefs_suites::random::{in_parallel, seeds};
use lanefs_suites::together::Bases;

fn sequence(bases: &Bases, health: Health, seed: u64, len: usize) {
    println!("{health:?}, seed {seed}");
    check_model(bases, health, seed, len).unwrap_or_else(|why| panic!("{why}"));
}

fn one_file(bases: &Bases, health: Health, seed: u64, count: u32) {
    println!("{health:?}, seed {seed}");
    check_file(bases, health, seed, count).unwrap_or_else(|why| panic!("{why}"));
}

#[test]
fn a_few_sequences_on_arrays_end_as_the_model_says() {
    let bases = Bases::default();
    for (health, seed) in Health::ALL.into_iter().zip(seeds(3)) {
        sequence(&bases, health, seed, 60);
    }
}

#[test]
fn a_file_on_arrays_keeps_its_bytes() {
    let bases = Bases::default();
    for (health, seed) in Health::ALL.into_iter().zip(seeds(3)) {
        one_file(&bases, health, seed, 300);
    }
}

#[test]
#[ignore = "long: many sequences on arrays of every health"]
fn sequences_on_arrays_end_as_the_model_says() {
    let bases = Bases::default();
    in_parallel(seeds(24), |seed| sequence(&bases, Health::ALL[seed as usize % 3], seed, 300));
}

#[test]
#[ignore = "long: 5,000 operations on arrays of every health"]
fn a_file_on_arrays_keeps_its_bytes_through_many_operations() {
    let bases = Bases::default();
    in_parallel(seeds(12), |seed| one_file(&bases, Health::ALL[seed as usize % 3], seed, 5_000));
}
