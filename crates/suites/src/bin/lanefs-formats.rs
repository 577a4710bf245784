//! Runs all suites on all formats, and prints a table with one row for each format.
//!
//! ```text
//! cargo run --profile stress -p lanefs-suites --bin lanefs-formats -- [OPTIONS] [WORD]
//! ```
//!
//! With WORD, runs the suites only on formats whose options contain that word. `--share 0.1` runs a
//! tenth of the operations, and `--seed 5` chooses different operations.
#![forbid(unsafe_code)]

use clap::Parser;
use lanefs_lanes::{Mutex, Rank};
use lanefs_suites::formats::{self, Format, Kernel, both_ways};
use lanefs_suites::random::in_parallel;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

/// Runs all suites on all formats.
#[derive(Parser)]
struct Arguments {
    /// The seed for the first format; each further format gets the next seed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The fraction of the operations to run; 1 runs all of them.
    #[arg(long, default_value_t = 1.0)]
    share: f64,
    /// Run only formats whose options contain this word.
    word: Option<String>,
}

/// The counts of operations in one format.
struct Counts {
    model: usize,
    bytes: u32,
    crash: (usize, usize),
}

impl Counts {
    fn of(share: f64) -> Counts {
        let many = |full: u32| ((f64::from(full) * share) as u32).max(full / 20);
        let crash = (many(150) as usize, many(40) as usize);
        Counts { model: many(300) as usize, bytes: many(4000), crash }
    }
}

/// The cells of a row, or the message of a failure.
type Row = Result<String, String>;

fn main() -> ExitCode {
    let Arguments { seed, share, word } = Arguments::parse();
    let counts = Counts::of(share);
    let wanted = |format: &Format| word.as_ref().is_none_or(|word| format.options.contains(word));
    let formats: Vec<Format> = formats::all().filter(wanted).collect();
    let rows = Mutex::new(Rank::Bucket, vec![None; formats.len()]);
    in_parallel((0..formats.len() as u64).collect(), |n| {
        let format = formats[n as usize];
        let row = row(format, seed + n, &counts);
        eprintln!("{}: {}", format.options, row.as_ref().map_or("FAIL", |_| "ok"));
        rows.lock()[n as usize] = Some(row);
    });
    println!("| options of mke2fs | size | kernel | model | fsx | crash states |");
    println!("|---|---|---|---|---|---|");
    let rows = rows.into_inner();
    let mut failures = Vec::new();
    for (format, row) in formats.iter().zip(rows.into_iter().flatten()) {
        let cells = row.unwrap_or_else(|why| {
            failures.push(format!("{}: {why}", format.options));
            "FAIL | | |".into()
        });
        println!("| `{}` | {} | {cells} |", format.options, format.size);
    }
    failures.iter().for_each(|why| println!("FAIL: {why}"));
    match failures.is_empty() {
        true => {
            let (model, bytes) = (counts.model, counts.bytes);
            println!(
                "PASS: {} formats, seeds from {seed}, {model} operations of each thread, \
                 {bytes} of fsx",
                formats.len()
            );
            ExitCode::SUCCESS
        }
        false => ExitCode::FAILURE,
    }
}

/// Runs the suites on one format.
fn row(format: Format, seed: u64, counts: &Counts) -> Row {
    let kernel = catch_unwind(AssertUnwindSafe(|| both_ways(format, format.scale())));
    let kernel = kernel.map_err(|panic| {
        panic.downcast_ref::<String>().map_or("a panic", String::as_str).to_string()
    })?;
    let kernel = match kernel {
        Some(Kernel::Writes) => "writes",
        Some(Kernel::Reads) => "reads",
        Some(Kernel::Refuses) => "refuses",
        None => "skipped",
    };
    format.model(seed, counts.model).map_err(|why| format!("model: {why}"))?;
    format.bytes(seed, counts.bytes).map_err(|why| format!("fsx: {why}"))?;
    let (ops, cuts) = counts.crash;
    let crashes = match format.without_crashes() {
        Some(reason) => reason.to_string(),
        None => {
            let states = format.crashes(seed, ops, cuts);
            states.map_err(|why| format!("crash, seed {seed}: {why}"))?.to_string()
        }
    };
    Ok(format!("{kernel} | yes | yes | {crashes}"))
}
