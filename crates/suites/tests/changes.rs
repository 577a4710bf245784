//! The checker and e2fsck agree on images with one change of metadata.

use lanefs_suites::changes::{Corpus, Extent, check};
use lanefs_suites::random::seeds;

#[test]
fn the_checker_and_e2fsck_agree_on_a_few_changes() {
    for seed in seeds(1) {
        println!("seed {seed}");
        let tally = check(&Corpus::make(Extent::Sample), seed, 100);
        println!("{}", tally.unwrap_or_else(|why| panic!("seed {seed}: {why}")));
    }
}

#[test]
#[ignore = "long: every form of image"]
fn the_checker_and_e2fsck_agree_on_changes_of_every_format() {
    for seed in seeds(1) {
        println!("seed {seed}");
        let tally = check(&Corpus::make(Extent::Whole), seed, 800);
        println!("{}", tally.unwrap_or_else(|why| panic!("seed {seed}: {why}")));
    }
}
