//! The suites with an array of level 5 below: whole, without a member, and during rebuilds.

use lanefs_device::Device;
use lanefs_suites::array::{Health, OnArray};
use lanefs_suites::fsx::Fsx;
use lanefs_suites::image::Image;
use lanefs_suites::random::{in_parallel, seeds};
use lanefs_suites::together::{Bases, Judge};
use std::sync::Arc;

const HEALTHS: [Health; 3] = [Health::Whole, Health::Degraded, Health::Rebuilding];

fn story(bases: &Bases, health: Health, seed: u64, len: usize) {
    println!("{health:?}, seed {seed}");
    let wrap = move |device| -> Arc<dyn Device> { Arc::new(OnArray::new(device, health, seed)) };
    let judge = Judge { bases, wrap: &wrap };
    judge.judge_seed(seed, len).unwrap_or_else(|why| panic!("{health:?}: {why}"));
}

fn one_file(bases: &Bases, health: Health, seed: u64, count: u32) {
    println!("{health:?}, seed {seed}");
    let Some(overlay) = bases.fresh("-b 1024", "32M") else { return };
    let overlay = Arc::new(overlay);
    let device = Arc::new(OnArray::new(overlay.clone(), health, seed));
    let run = Fsx::new(seed, device).and_then(|fsx| fsx.run(count));
    run.unwrap_or_else(|why| panic!("{health:?}, seed {seed}: {why}"));
    let image = Image::empty();
    overlay.to_file(image.path()).expect("the image is written");
    image.assert_clean(&format!("{health:?}, seed {seed}"));
}

#[test]
fn a_few_stories_on_arrays_end_as_the_model_says() {
    let bases = Bases::default();
    for (health, seed) in HEALTHS.into_iter().zip(seeds(3)) {
        story(&bases, health, seed, 60);
    }
}

#[test]
fn a_file_on_arrays_keeps_its_bytes() {
    let bases = Bases::default();
    for (health, seed) in HEALTHS.into_iter().zip(seeds(3)) {
        one_file(&bases, health, seed, 300);
    }
}

#[test]
#[ignore = "long: many stories on arrays of every health"]
fn stories_on_arrays_end_as_the_model_says() {
    let bases = Bases::default();
    in_parallel(seeds(24), |seed| story(&bases, HEALTHS[seed as usize % 3], seed, 300));
}

#[test]
#[ignore = "long: 5,000 operations on arrays of every health"]
fn a_file_on_arrays_keeps_its_bytes_through_many_operations() {
    let bases = Bases::default();
    in_parallel(seeds(12), |seed| one_file(&bases, HEALTHS[seed as usize % 3], seed, 5_000));
}
