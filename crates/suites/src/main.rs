//! The long forms of the suites, which run seed after seed until the time is spent or something
//! fails.
#![forbid(unsafe_code)]

use clap::Parser;
use lanefs_suites::array::{Health, check_file, check_model};
use lanefs_suites::changes::{self, Corpus, Extent};
use lanefs_suites::crash::{self, Cuts};
use lanefs_suites::differs::{self, Selection};
use lanefs_suites::hostile::target::Left;
use lanefs_suites::hostile::{self, kinds};
use lanefs_suites::together::{Bases, Runner, scenario};
use lanefs_suites::{cuts, fast_commits, faults, fsx};
use std::fmt::Display;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Runs the suites of Lanefs with new seeds until the time is spent.
#[derive(Parser)]
struct Arguments {
    /// The number of seconds for all suites together.
    #[arg(long, default_value_t = 600)]
    seconds: u64,
    /// The first seed, which by default is taken from the clock. Each round of a suite uses the
    /// next seed.
    #[arg(long)]
    seed: Option<u64>,
    /// The largest number of rounds of each suite.
    #[arg(long, default_value_t = u64::MAX)]
    rounds: u64,
    /// Check only crash states, on all processors, until this many distinct states are checked.
    #[arg(long)]
    states: Option<u64>,
    /// Run only the suite `changes`, which compares the checker with e2fsck. It makes this many
    /// changes of metadata, on all processors.
    #[arg(long)]
    changes: Option<u64>,
    /// Run only repairs: repair this many images with changed metadata, on all processors.
    #[arg(long)]
    repairs: Option<u64>,
    /// Run only the comparison of repairs with those of e2fsck: damage this many images, on all
    /// processors.
    #[arg(long, value_name = "IMAGES")]
    repair_differs: Option<u64>,
    /// With --repair-differs: the number of the first image. To make one image again, give its seed
    /// and number.
    #[arg(long, value_name = "NUMBER", default_value_t = 0, requires = "repair_differs")]
    first_image: u64,
    /// With --repair-differs: also interrupt each repair at each of its writes, and run it again.
    #[arg(long, requires = "repair_differs")]
    cuts: bool,
    /// With --repair-differs: write one damaged image of each class of failures to this folder.
    #[arg(long, value_name = "FOLDER", requires = "repair_differs")]
    keep: Option<PathBuf>,
    /// Run only power cuts during recover, tune, resize, trim and edit, on all processors, until
    /// this many distinct states are checked.
    #[arg(long, value_name = "STATES")]
    power_cuts: Option<u64>,
    /// If a sequence of random operations fails, report it without looking for a shorter sequence
    /// that fails too.
    #[arg(long)]
    no_shrink: bool,
    /// Run only these suites.
    suites: Vec<Suite>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Suite {
    /// Four threads against a model in memory.
    Model,
    /// One file, byte for byte.
    Fsx,
    /// Crash states at many cuts of a recorded workload.
    Crash,
    /// Crash states with fast commits, replayed by three programs.
    FastCommits,
    /// Runs in which a read, write or flush fails.
    Faults,
    /// Damaged images.
    Hostile,
    /// The suites `model` and `fsx` on arrays: whole, degraded, rebuilding.
    Arrays,
    /// Changes of metadata, which the checker and e2fsck must judge alike.
    Changes,
}

const ALL: [Suite; 8] = [
    Suite::Model,
    Suite::Fsx,
    Suite::Crash,
    Suite::FastCommits,
    Suite::Faults,
    Suite::Hostile,
    Suite::Arrays,
    Suite::Changes,
];

/// Runs one round of a suite. Returns a summary, or the failure.
fn round(suite: Suite, seed: u64, bases: &Bases, shrink: bool) -> Result<String, String> {
    Ok(match suite {
        Suite::Model => {
            let runner = Runner { bases, wrap: &|device| device };
            for seed in seed * 10..seed * 10 + 10 {
                if shrink {
                    runner.check_seed(seed, 500)?;
                } else {
                    let run = runner.run(&scenario(seed, 500));
                    run.map_err(|why| format!("sequence {seed}: {why}"))?;
                }
            }
            "10 sequences of four threads".into()
        }
        Suite::Fsx => {
            fsx::check(bases, seed, 20_000)?;
            "20,000 operations".into()
        }
        Suite::Arrays => {
            for health in Health::ALL {
                check_model(bases, health, seed, 500)?;
                check_file(bases, health, seed, 5_000)?;
            }
            "3 sequences of four threads, and 15,000 operations on files".into()
        }
        Suite::Crash => crash::check(seed, 500, Cuts::About(300))?.to_string(),
        Suite::FastCommits => fast_commits::check(seed, 300, 80, &|device| device)?.to_string(),
        Suite::Faults => format!("{} faults", faults::check(seed, 120, u64::MAX)?),
        Suite::Changes => changes::check(&Corpus::make(Extent::Sample), seed, 400)?.to_string(),
        Suite::Hostile => {
            let verity = hostile::each_kind(hostile::VERITY, Left::Clean, kinds::VERITY)?;
            let totals = hostile::random_images(seed, 500)?;
            format!("{verity} kinds of damage to a verity file, {totals:?}")
        }
    })
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let suites = if arguments.suites.is_empty() { ALL.to_vec() } else { arguments.suites };
    let first = arguments.seed.unwrap_or_else(by_the_clock);
    let end = Instant::now() + Duration::from_secs(arguments.seconds);
    let bases = Bases::default();
    let mut done = 0u64;
    println!("first seed {first}");
    if let Some(states) = arguments.states {
        return crash_states(first, states);
    }
    if let Some(changes) = arguments.changes {
        let ended = |corpus: &Corpus| changes::check(corpus, first, changes);
        return many_changes("changes", first, ended);
    }
    if let Some(changes) = arguments.repairs {
        let ended = |corpus: &Corpus| changes::repair(corpus, first, changes);
        return many_changes("repairs", first, ended);
    }
    if let Some(images) = arguments.repair_differs {
        let (seed, first, keep) = (first, arguments.first_image, arguments.keep);
        let with_cuts = arguments.cuts;
        return repair_differs(&Selection { seed, first, images, with_cuts, keep });
    }
    if let Some(states) = arguments.power_cuts {
        return power_cuts(first, states);
    }
    for n in 0..arguments.rounds {
        for suite in &suites {
            if done >= suites.len() as u64 && Instant::now() >= end {
                println!("PASS: {done} rounds, seeds {first} to {}", first + n);
                return ExitCode::SUCCESS;
            }
            let seed = first + n;
            progress(&format!("{suite:?}, seed {seed}"));
            match round(*suite, seed, &bases, !arguments.no_shrink) {
                Ok(what) => println!("{suite:?}, seed {seed}: {what}"),
                Err(why) => {
                    println!("FAIL: {suite:?}, seed {seed}, after {n} rounds without: {why}");
                    return ExitCode::FAILURE;
                }
            }
            done += 1;
        }
    }
    println!("PASS: {done} rounds, seeds {first} to {}", first + arguments.rounds - 1);
    ExitCode::SUCCESS
}

/// Checks many thousands of crash states.
fn crash_states(seed: u64, states: u64) -> ExitCode {
    let begun = Instant::now();
    let told =
        |findings: &crash::Findings| progress(&format!("{} crash states", findings.states()));
    let ended = crash::many(seed, states, None, &told);
    let seconds = begun.elapsed().as_secs();
    match ended {
        Ok(findings) => {
            println!("PASS: {findings}; first seed {seed}, {seconds} s");
            ExitCode::SUCCESS
        }
        Err(why) => {
            println!("FAIL: crash states, first seed {seed}, {seconds} s, {why}");
            ExitCode::FAILURE
        }
    }
}

/// Compares repairs with those of e2fsck.
fn repair_differs(selection: &Selection) -> ExitCode {
    let begun = Instant::now();
    let tally = differs::run(selection);
    let (seed, seconds) = (selection.seed, begun.elapsed().as_secs());
    let passed = tally.classes.is_empty();
    println!("{}: seed {seed}, {seconds} s: {tally}", if passed { "PASS" } else { "FAIL" });
    if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Cuts the power during commands that change a whole image.
fn power_cuts(seed: u64, states: u64) -> ExitCode {
    let begun = Instant::now();
    let told = |tally: &cuts::Tally| progress(&format!("{} power cuts", tally.states()));
    let ended = cuts::many(seed, states, &told);
    let seconds = begun.elapsed().as_secs();
    match ended {
        Ok(tally) => {
            println!("PASS: {tally}\nfirst seed {seed}, {seconds} s");
            ExitCode::SUCCESS
        }
        Err(why) => {
            println!("FAIL: power cuts, first seed {seed}, {seconds} s, {why}");
            ExitCode::FAILURE
        }
    }
}

/// Makes clean images of all formats and calls `make`, which changes (and perhaps repairs) these
/// images. Prints the result.
fn many_changes<T: Display>(
    what: &str,
    seed: u64,
    make: impl FnOnce(&Corpus) -> Result<T, String>,
) -> ExitCode {
    let begun = Instant::now();
    let ended = make(&Corpus::make(Extent::Whole));
    let seconds = begun.elapsed().as_secs();
    match ended {
        Ok(tally) => {
            println!("PASS: {tally}; seed {seed}, {seconds} s");
            ExitCode::SUCCESS
        }
        Err(why) => {
            println!("FAIL: {what}, seed {seed}, {seconds} s, {why}");
            ExitCode::FAILURE
        }
    }
}

/// Prints the current task on a terminal.
fn progress(what: &str) {
    if std::io::stderr().is_terminal() {
        eprint!("\r\x1b[K{what} …\r");
        let _ = std::io::stderr().flush();
    }
}

fn by_the_clock() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(1, |since| since.as_secs() % 1_000_000)
}
