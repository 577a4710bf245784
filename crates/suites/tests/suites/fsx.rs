//! Random operations on one file, whose bytes are compared after each operation.

use lanefs_suites::fsx::check;
use lanefs_suites::image::Mappings;
use lanefs_suites::random::{in_parallel, seeds};
use lanefs_suites::together::Bases;

#[test]
fn a_file_keeps_its_bytes_through_a_thousand_operations() {
    let bases = Bases::default();
    for seed in seeds(3) {
        println!("seed {seed}");
        check(&bases, seed, 1000).unwrap_or_else(|why| panic!("{why}"));
    }
}

#[test]
#[ignore = "long: 8 seeds of 20,000 operations"]
fn a_file_keeps_its_bytes_through_many_operations() {
    let bases = Bases::default();
    in_parallel(seeds(8), |seed| {
        println!("seed {seed}");
        check(&bases, seed, 20_000).unwrap_or_else(|why| panic!("{why}"));
    });
}

#[test]
fn a_bit_flipped_in_the_file_is_found() {
    use lanefs_suites::fsx::Fsx;
    use lanefs_suites::planted::{Bug, Planted};
    use std::sync::Arc;
    let Some(overlay) = Bases::default().fresh("-b 1024", "32M") else { return };
    // With this seed all metadata stays in memory. Otherwise a flipped bit in metadata could be
    // found before one in the file.
    let run =
        Fsx::new(2, Mappings::Extents, Arc::new(Planted::new(Bug::FlippedBit, Arc::new(overlay))))
            .and_then(|fsx| fsx.run(3000));
    let why = run.expect_err("the flipped bit is seen");
    assert!(why.contains("should be"), "{why}");
}
