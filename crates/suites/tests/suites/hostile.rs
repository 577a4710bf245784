//! Damaged images. They must lead to errors that name the damage, and never to a panic, a hang or a
//! write outside the file system.

use lanefs_suites::hostile::exercise::Outcome;
use lanefs_suites::hostile::extremes::{CHANGED_BY_LOG, Extreme, LARGEST};
use lanefs_suites::hostile::kernel;
use lanefs_suites::hostile::kinds::{self, CLEAN, CRASHED, Kind, MAPS};
use lanefs_suites::hostile::target::{Left, Target};
use lanefs_suites::hostile::{
    BLOCK_MAPS, PLAIN, VERITY, check, check_image, each_kind, random_images,
};
use lanefs_suites::random::{in_parallel, seeds};

fn each(options: &str, left: Left, kinds: &[Kind]) {
    each_kind(options, left, kinds).unwrap_or_else(|why| panic!("{why}"));
}

#[test]
fn every_kind_of_damage_is_named() {
    each(PLAIN, Left::Clean, CLEAN);
}

#[test]
fn every_kind_of_damage_to_a_log_is_survived() {
    each(PLAIN, Left::Crashed, CRASHED);
}

#[test]
fn every_kind_of_damage_to_a_block_map_is_named() {
    each(BLOCK_MAPS, Left::Clean, MAPS);
}

#[test]
fn every_kind_of_damage_to_a_verity_file_is_named() {
    each(VERITY, Left::Clean, kinds::VERITY);
}

fn each_extreme(extremes: &[Extreme]) {
    let mut wrong = Vec::new();
    for Extreme { name, says, make } in extremes {
        let Some(image) = make() else { return };
        let begun = std::time::Instant::now();
        match check_image(&image, name) {
            Err(why) => wrong.push(format!("{name}: {why}")),
            Ok(outcome) if says.is_empty() && outcome.mounted => {}
            Ok(outcome) if !says.is_empty() && outcome.says(says) => {}
            Ok(outcome) => wrong.push(format!("{name}: nothing says {says:?}: {outcome:?}")),
        }
        println!("{name}: {:?}", begun.elapsed());
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_largest_counts_on_sparse_files_end_in_bounded_time_and_memory() {
    each_extreme(LARGEST);
}

#[test]
fn a_superblock_that_the_log_changes_is_checked() {
    each_extreme(CHANGED_BY_LOG);
}

#[test]
fn an_image_without_damage_gives_no_errors() {
    for options in [PLAIN, BLOCK_MAPS, "-b 1024 -J size=1", "-b 4096 -J size=4"] {
        let Some(target) = Target::make(options, 24, Left::Clean) else { return };
        let outcome = check(&target, "no damage").expect("it holds");
        // These errors also occur without damage, because the operations use some names twice, and
        // files with block maps cannot have unwritten blocks.
        let own = ["file exists", "operation not supported"];
        let own = if options == BLOCK_MAPS { &own[..] } else { &own[..1] };
        let expected =
            |error: &&String| !error.contains("no space") && !own.contains(&error.as_str());
        let errors: Vec<_> = outcome.errors.iter().filter(expected).collect();
        assert!(outcome.mounted && errors.is_empty(), "{options}: {errors:?}");
    }
}

#[test]
fn images_without_a_file_system_are_refused() {
    let Some(target) = Target::make(PLAIN, 16, Left::Clean) else { return };
    for len in [0, 1, 1023, 1024, 2047, 2048, 100_000, 1 << 20, target.len() - 1] {
        let outcome = lanefs_suites::hostile::check_device(target.truncated(len), "truncated");
        let outcome = outcome.expect("it holds");
        assert!(!outcome.mounted, "{len} bytes are too few");
    }
    let noise = target.fork();
    let mut rng = fastrand::Rng::with_seed(5);
    noise.put(0, &(0..1 << 20).map(|_| rng.u8(..)).collect::<Vec<_>>());
    assert!(!check(&noise, "noise").expect("it holds").mounted);
}

fn bytes_changed(seed: u64, count: u64) {
    let totals = random_images(seed, count).unwrap_or_else(|why| panic!("{why}"));
    println!("seed {seed}: {totals:?}");
}

#[test]
fn a_few_bytes_changed_at_random_do_no_harm() {
    for seed in seeds(4) {
        bytes_changed(seed, 20);
    }
}

#[test]
#[ignore = "long: thousands of damaged images"]
fn bytes_changed_at_random_do_no_harm() {
    in_parallel(seeds(8), |seed| bytes_changed(seed, 500));
}

/// Every kind of damage has a row in the table in docs/results.
#[test]
fn every_kind_is_a_row_of_the_table() {
    let table = include_str!("../../../../docs/results/damaged-images.md");
    let kinds = CLEAN.iter().chain(CRASHED).chain(kinds::VERITY).map(|kind| kind.name);
    let extremes = LARGEST.iter().chain(CHANGED_BY_LOG).map(|extreme| extreme.name);
    for name in kinds.chain(extremes) {
        assert!(table.contains(&format!("\n| {name} |")), "{name} is not in the table");
    }
}

/// Describes how Lanefs reacts to a damaged image. Quotes an error that contains the words `says`.
/// If there is no such error, quotes an error that reports damage, if there is one.
fn said(says: &str, totals: Result<Outcome, String>) -> String {
    match totals {
        Err(why) => format!("**{why}**"),
        Ok(outcome) if !outcome.given_twice.is_empty() => {
            "**mounts: gives numbers of open inodes again**".into()
        }
        Ok(outcome) => {
            let first =
                outcome.errors.iter().find(|error| !says.is_empty() && error.contains(says));
            let mounts = if outcome.mounted { "mounts" } else { "refuses" };
            let other = outcome.errors.iter().find(|error| error.contains("damaged"));
            match first.or(other) {
                Some(error) => format!("{mounts}: {}", error.replace('|', "/")),
                None => mounts.into(),
            }
        }
    }
}

#[test]
#[ignore = "long: prints the table of kinds, mounting every kind with the kernel's ext4"]
fn the_table_of_kinds_is_printed() {
    // This test runs only on request, because the images may crash the kernel.
    if std::env::var_os("LANEFS_HOSTILE_TABLE").is_none() {
        return;
    }
    let folder = lanefs_suites::image::folder();
    let path = folder.path().join("hostile");
    let row = |name: &str, ours: String, path: &std::path::Path| {
        let kernel = kernel::says(path).unwrap_or_else(|| "not asked".into());
        println!("| {name} | {ours} | {kernel} |");
    };
    for (options, left, kinds) in [
        (PLAIN, Left::Clean, CLEAN),
        (PLAIN, Left::Crashed, CRASHED),
        (VERITY, Left::Clean, kinds::VERITY),
    ] {
        let Some(base) = Target::make(options, 16, left) else { return };
        for kind in kinds {
            let target = base.fork();
            (kind.damage)(&target);
            target.device().to_file(&path).expect("the image");
            row(kind.name, said(kind.says, check(&target, kind.name)), &path);
        }
    }
    for extreme in CHANGED_BY_LOG {
        let Some(image) = (extreme.make)() else { return };
        let ours = said(extreme.says, check_image(&image, extreme.name));
        row(extreme.name, ours, image.path());
    }
    for extreme in LARGEST {
        // The kernel does not mount these images in this test, because they have gigabytes of
        // descriptors, all zeros. The kernel reads all descriptors into memory before it checks the
        // first one.
        let Some(image) = (extreme.make)() else { return };
        let ours = said(extreme.says, check_image(&image, extreme.name));
        println!("| {} | {ours} | not asked |", extreme.name);
    }
}
