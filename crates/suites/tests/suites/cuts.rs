//! Power cuts during commands that change a whole image. The tests of `crates/offline` cut the
//! power at every write of each change.

use lanefs_device::Device;
use lanefs_suites::cuts::{check, many};
use lanefs_suites::image::Image;
use lanefs_suites::planted::{Bug, Planted};
use lanefs_suites::random::seeds;
use std::sync::Arc;

#[test]
#[ignore = "long: 1,000 states"]
fn commands_whose_power_was_cut_are_finished_by_another_run() {
    let seed = seeds(1)[0];
    let tally = many(seed, 1_000, &|_| ()).unwrap_or_else(|why| panic!("{why}"));
    println!("seed {seed}: {tally}");
}

/// The descriptor of the only group describes the larger group, and the superblock the smaller one,
/// or the other way round.
#[test]
fn resizes_of_one_group_that_were_cut_are_mounted() {
    for name in ["resize, larger, one group", "resize, smaller, one group"] {
        let checked = check(name, 1, &|device| device);
        println!("{}", checked.unwrap_or_else(|why| panic!("{why}")));
    }
}

/// Before e2fsck replays the log, it checks the descriptors of all groups that the superblock
/// counts. So a growth must write the descriptors of new groups before it changes the superblock.
#[test]
fn a_growth_that_was_cut_is_completed_by_e2fsck_too() {
    let checked = check("resize, larger, meta_bg", 1, &|device| device);
    println!("{}", checked.unwrap_or_else(|why| panic!("{why}")));
}

#[test]
fn a_missing_flush_in_an_edit_is_found() {
    if Image::make("-b 1024", "4M").is_none() {
        return;
    }
    let lost = |device| -> Arc<dyn Device> { Arc::new(Planted::new(Bug::LostFlush, device)) };
    let found = (1..4).any(|seed| check("edit", seed, &lost).is_err());
    assert!(found, "a suite that does not see a lost flush is blind");
}
