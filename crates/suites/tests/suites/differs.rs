//! Repairs by Lanefs keep what repairs by e2fsck keep.

use lanefs_suites::differs::{Selection, run};
use lanefs_suites::random::seeds;

fn expect_no_new(selection: &Selection) {
    let tally = run(selection);
    println!("seed {}: {tally}", selection.seed);
    assert!(tally.classes.is_empty(), "seed {}: {:#?}", selection.seed, tally.classes);
}

#[test]
#[ignore = "long: a thousand damaged images"]
fn repairs_keep_what_e2fsck_keeps() {
    for seed in seeds(1) {
        expect_no_new(&Selection { seed, images: 1450, ..Selection::default() });
    }
}

#[test]
#[ignore = "long: repairs that are interrupted at thousands of writes"]
fn a_repair_that_is_killed_at_any_write_and_run_again_ends_in_the_same_tree() {
    for seed in seeds(1) {
        let with_cuts = true;
        let first = 700;
        expect_no_new(&Selection { seed, first, images: 50, with_cuts, ..Selection::default() });
    }
}
