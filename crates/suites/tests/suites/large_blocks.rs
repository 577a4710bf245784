//! File systems with blocks larger than a page. The kernels of most machines do not mount them, so
//! e2fsck, debugfs and mke2fs are the judges.

use lanefs_suites::changes::{self, Corpus, Extent};
use lanefs_suites::hostile::target::Left;
use lanefs_suites::hostile::{Totals, random_images_on};
use lanefs_suites::random::{in_parallel, seeds};
use lanefs_suites::sample;
use lanefs_suites::together::Bases;

/// Images with a log: options for mke2fs, and the size.
const SETS: [(&str, &str); 6] = [
    ("-b 65536", "224M"),
    ("-b 8192", "96M"),
    ("-b 65536 -g 1024 -O ^metadata_csum,uninit_bg,^64bit", "224M"),
    ("-b 32768 -O ^orphan_file,^metadata_csum_seed,inline_data", "128M"),
    ("-t ext3 -b 16384", "96M"),
    ("-t ext3 -b 65536", "224M"),
];

fn hostile(seed: u64, count: u64) -> Totals {
    let (options, left) = match seed % 4 {
        0 => ("-b 65536 -O ^metadata_csum,^metadata_csum_seed", Left::Clean),
        1 => ("-b 65536 -J size=64 -O ^metadata_csum,^metadata_csum_seed", Left::Crashed),
        2 => ("-b 8192 -J size=8 -O ^metadata_csum,^metadata_csum_seed", Left::Crashed),
        _ => ("-t ext3 -b 16384", Left::Clean),
    };
    let checked = random_images_on((options, 200), left, seed, count);
    checked.unwrap_or_else(|why| panic!("{why}"))
}

#[test]
fn four_threads_leave_the_tree_of_the_model() {
    let bases = Bases::default();
    SETS.into_iter().zip(seeds(6)).for_each(|(set, seed)| sample::model(&bases, set, seed, 60));
}

#[test]
fn a_file_keeps_its_bytes() {
    let bases = Bases::default();
    SETS.into_iter().zip(seeds(6)).for_each(|(set, seed)| sample::fsx(&bases, set, seed, 300));
}

#[test]
fn promises_are_kept_at_a_few_crashes() {
    SETS.into_iter().zip(seeds(2)).for_each(|(set, seed)| sample::crash(set, seed, 40, 6));
}

#[test]
fn a_few_damaged_images_do_no_harm() {
    seeds(4).into_iter().for_each(|seed| println!("{:?}", hostile(seed, 4)));
}

#[test]
fn the_checker_and_e2fsck_agree_on_a_few_changes() {
    for seed in seeds(1) {
        println!("seed {seed}");
        let tally = changes::check(&Corpus::make(Extent::LargeBlocks), seed, 30);
        println!("{}", tally.unwrap_or_else(|why| panic!("seed {seed}: {why}")));
    }
}

#[test]
#[ignore = "long: all sets"]
fn all_suites_hold_with_all_block_sizes() {
    in_parallel(seeds(6), |seed| {
        let (bases, set) = (Bases::default(), (seed % 6) as usize);
        sample::model(&bases, SETS[set], seed, 300);
        sample::fsx(&bases, SETS[set], seed, 4000);
        sample::crash(SETS[set], seed, 150, 60);
        println!("{:?}", hostile(seed, 40));
    });
}
