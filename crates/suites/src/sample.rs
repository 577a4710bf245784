//! Runs one suite with one set of options. For use in tests: if the suite fails, the functions
//! panic with the report.

use crate::crash::{self, Cuts};
use crate::fsx;
use crate::sequence::Mix;
use crate::together::{Bases, Runner, scenario_on};

/// The options for mke2fs, and the size of the image.
pub type OptionSet = (&'static str, &'static str);

/// Runs `len` operations on each of four threads, and compares the results with the model.
///
/// # Panics
/// If the suite finds a fault.
pub fn model(bases: &Bases, set: OptionSet, seed: u64, len: usize) {
    println!("seed {seed} with {}", set.0);
    let runner = Runner { bases, wrap: &|device| device };
    let mix = if seed.is_multiple_of(2) { Mix::ManySmall } else { Mix::FewLarge };
    runner.check(scenario_on(set, mix, seed, len)).unwrap_or_else(|why| panic!("{why}"));
}

/// Runs `count` operations on one file, and compares its bytes after each.
///
/// # Panics
/// If the suite finds a fault.
pub fn fsx(bases: &Bases, set: OptionSet, seed: u64, count: u32) {
    println!("seed {seed} with {}", set.0);
    fsx::check_on(bases, set, seed, count).unwrap_or_else(|why| panic!("{why}"));
}

/// Runs a workload of `ops` operations, and checks about `cuts` of its crash states.
///
/// # Panics
/// If the suite finds a fault.
pub fn crash(set: OptionSet, seed: u64, ops: usize, cuts: usize) {
    println!("seed {seed} with {}", set.0);
    let found = crash::check_on(set, seed, ops, Cuts::About(cuts));
    println!("{}", found.unwrap_or_else(|why| panic!("{why}")));
}
