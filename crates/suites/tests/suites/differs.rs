//! Repairs by Lanefs keep what repairs by e2fsck keep.

use lanefs_suites::differs::{Cuts, Selection, Tally, run};
use lanefs_suites::random::seeds;

/// Returns the counts of a run without failures. Without mke2fs there are no images, and `None`.
fn expect_no_new(selection: &Selection) -> Option<Tally> {
    let (tally, seed) = (run(selection), selection.seed);
    println!("seed {seed}: {tally}");
    assert!(tally.classes.is_empty(), "seed {seed}: {:#?}", tally.classes);
    if tally.images == 0 {
        return None;
    }
    // A suite that damages nothing, or whose judge gives up, finds nothing.
    assert_eq!(tally.images, selection.images, "seed {seed}");
    assert!(tally.all_faulty() * 2 > tally.images, "seed {seed}: {tally}");
    assert!((tally.refused + tally.unfinished) * 10 < tally.images, "seed {seed}: {tally}");
    let accepted: u64 = tally.accepted.values().map(|class| class.count).sum();
    assert!(accepted * 20 < tally.images, "seed {seed}: {tally}");
    Some(tally)
}

#[test]
#[ignore = "long: a thousand damaged images"]
fn repairs_keep_what_e2fsck_keeps() {
    for seed in seeds(1) {
        let tally = expect_no_new(&Selection { seed, images: 1450, ..Selection::default() });
        let generators = tally.map_or(5, |tally| tally.faulty.len());
        assert_eq!(generators, 5, "seed {seed}");
    }
}

#[test]
#[ignore = "long: repairs that are interrupted at thousands of writes"]
fn a_repair_that_is_killed_at_any_write_and_run_again_ends_in_the_same_tree() {
    for seed in seeds(1) {
        let with_cuts = true;
        let first = 700;
        let selection = Selection { seed, first, images: 50, with_cuts, ..Selection::default() };
        let Some(tally) = expect_no_new(&selection) else { continue };
        let Cuts { logged, undone } = tally.cuts;
        assert!(logged.0 > 10 && undone.0 > 20, "seed {seed}: {tally}");
        assert!(logged.1 > logged.0 && undone.1 > undone.0, "seed {seed}: {tally}");
    }
}
