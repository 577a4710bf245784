//! Damaged images: errors that name what is damaged, and never a panic, a hang or a wild write.

use lanefs_suites::hostile::kinds::{CLEAN, CRASHED, Kind};
use lanefs_suites::hostile::victim::{Left, Victim};
use lanefs_suites::hostile::{PLAIN, judge, random_images};
use lanefs_suites::random::{in_parallel, seeds};

fn each(left: Left, kinds: &[Kind]) {
    let Some(base) = Victim::make(PLAIN, 16, left) else { return };
    let mut wrong = Vec::new();
    for kind in kinds {
        let victim = base.fork();
        (kind.damage)(&victim);
        match judge(&victim, kind.name) {
            Err(why) => wrong.push(format!("{}: {why}", kind.name)),
            Ok(outcome) if kind.says.is_empty() || outcome.says(kind.says) => {}
            Ok(outcome) => {
                let few: Vec<_> = outcome.errors.iter().take(5).collect();
                wrong.push(format!("{}: nothing says {:?}: {few:?}", kind.name, kind.says));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_kind_of_damage_is_named() {
    each(Left::Clean, CLEAN);
}

#[test]
fn every_kind_of_damage_to_a_log_is_survived() {
    each(Left::Crashed, CRASHED);
}

#[test]
fn an_image_without_damage_gives_no_errors() {
    for options in [PLAIN, "-b 1024 -J size=1", "-b 4096 -J size=4"] {
        let Some(victim) = Victim::make(options, 24, Left::Clean) else { return };
        let outcome = judge(&victim, "no damage").expect("it holds");
        // What the exercise itself provokes: it uses some names twice.
        let expected = |error: &&String| !error.contains("no space") && *error != "file exists";
        let errors: Vec<_> = outcome.errors.iter().filter(expected).collect();
        assert!(outcome.mounted && errors.is_empty(), "{options}: {errors:?}");
    }
}

#[test]
fn what_is_no_file_system_is_refused() {
    let Some(victim) = Victim::make(PLAIN, 16, Left::Clean) else { return };
    for len in [0, 1, 1023, 1024, 2047, 2048, 100_000, 1 << 20, victim.len() - 1] {
        let outcome = lanefs_suites::hostile::judge_device(victim.truncated(len), "truncated");
        let outcome = outcome.expect("it holds");
        assert!(!outcome.mounted, "{len} bytes are too few");
    }
    let noise = victim.fork();
    let mut rng = fastrand::Rng::with_seed(5);
    noise.put(0, &(0..1 << 20).map(|_| rng.u8(..)).collect::<Vec<_>>());
    assert!(!judge(&noise, "noise").expect("it holds").mounted);
}

fn bytes_changed(seed: u64, count: u64) {
    let judged = random_images(seed, count).unwrap_or_else(|why| panic!("{why}"));
    println!("seed {seed}: {judged:?}");
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
