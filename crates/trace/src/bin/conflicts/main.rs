//! Prints a matrix of the pairs of operations that share cache lines, and a table of the lines that
//! operations move between many threads.

mod known;
mod matrix;
mod operations;
mod reason;
mod rounds;
mod served;
mod setting;
mod stage;
mod steady;
mod table;

use clap::Parser;
use lanefs::device::RamDevice;
use lanefs::{FileSystem, FormatOptions, OpenOptions};
use lanefs_lanes::LineHeap;
use lanefs_lanes::sync::unscheduled::Mutex;
use lanefs_mkfs::Contents;
use lanefs_trace::{Granule, Recorder, Workers};
use matrix::Pair;
use reason::Reasons;
use rounds::Session;
use setting::Setting;
use stage::Stage;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use steady::SteadyRow;
use table::Row;

/// The heap that the servers of file systems use.
#[global_allocator]
static HEAP: LineHeap = LineHeap;

/// Traces the operations of the library on live threads, and finds the cache lines that the
/// operations share.
///
/// The image is on a RAM device and has a journal. The tool counts accesses that happen in every
/// operation. Work that is done once for many operations (refills of a lane's stash, ticks of the
/// clock) is counted separately.
#[derive(Parser)]
#[command(after_help = "\
Exit codes: 0 done, 1 a pair conflicts that --known does not have, or a failure, 2 wrong usage.

Examples:
  lanefs-conflicts --reasons --json conflicts.json          # all, some twenty minutes
  lanefs-conflicts --settings file --threads 0 --reasons    # the matrix of one setting
  lanefs-conflicts --settings directories --rounds 0 --threads 2,64   # the table alone
  lanefs-conflicts --only mkdir,rmdir --threads 64 --reasons
  lanefs-conflicts --settings directories --steady 200 --threads 8 --only create,unlink --reasons
  lanefs-conflicts --settings names --threads 0 --pairs-of-lines      # granules of 128 bytes")]
struct Arguments {
    /// Settings to trace; all except small if none is given.
    #[arg(long, value_enum, value_delimiter = ',')]
    settings: Vec<Setting>,
    /// Numbers of threads for the table; 0 for no table.
    #[arg(long, value_delimiter = ',', default_value = "2,8,64")]
    threads: Vec<usize>,
    /// Number of rounds to trace for each pair; 0 for no matrix.
    #[arg(long, default_value_t = 2)]
    rounds: usize,
    /// Trace only operations whose names contain one of these words, or are `=WORD`.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Compare pairs of lines (128 bytes), which processors fetch together.
    #[arg(long)]
    pairs_of_lines: bool,
    /// Instead of printing the matrix and the table, trace this many operations of each thread in
    /// turn, and count every line that moves. Nothing is counted separately, freed memory is used
    /// again, and tables have their usual sizes. Takes some milliseconds for each operation of each
    /// thread.
    #[arg(long, value_name = "OPERATIONS")]
    steady: Option<usize>,
    /// With --steady: before each traced operation, each thread runs this many untraced ones, so
    /// that the traced ones are spread over whole transactions.
    #[arg(long, value_name = "OPERATIONS", default_value_t = 0, requires = "steady")]
    between: usize,
    /// Print why lines are shared.
    #[arg(long)]
    reasons: bool,
    /// Write all results to this file.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Fail if a pair that is not in this list shares lines.
    #[arg(long)]
    known: Option<PathBuf>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if !lanefs_trace::is_supported() {
        println!("skipped: {}", lanefs_trace::Unsupported);
        return ExitCode::SUCCESS;
    }
    match run(&arguments) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("lanefs-conflicts: {error}");
            ExitCode::FAILURE
        }
    }
}

type AnyError = Box<dyn std::error::Error>;

fn run(arguments: &Arguments) -> Result<ExitCode, AnyError> {
    // Operations are traced one after another, so memory that one operation frees and another
    // allocates would look shared.
    if arguments.steady.is_none() {
        LineHeap::forget_what_is_freed();
    }
    lanefs_lanes::fix_hash_keys();
    let is_known = |only: &&String| {
        operations::OPERATIONS.iter().any(|op| operations::selects(only, op.name))
            || served::is_known(only)
    };
    if let Some(only) = arguments.only.iter().find(|only| !is_known(only)) {
        return Err(format!("--only {only}: there is no such operation").into());
    }
    let fs = file_system(arguments)?;
    let counts: Vec<usize> = arguments.threads.iter().copied().filter(|n| *n > 0).collect();
    let threads = counts.iter().copied().max().unwrap_or(0).max(2);
    let (pairs, rows, steady) = Workers::with(
        threads,
        |me| Stage::new(&fs, me),
        |workers| -> Result<_, AnyError> {
            let recorder = Mutex::new(Recorder::new()?);
            let session = Session { fs: &fs, workers, recorder };
            if let Some(each) = arguments.steady {
                return Ok((vec![], vec![], trace_steady(&session, arguments, &counts, each)));
            }
            let (pairs, rows) = trace_all(&session, arguments, &counts)?;
            Ok((pairs, rows, vec![]))
        },
    )?;
    fs.close()?;
    if let Some(path) = &arguments.json {
        let found = serde_json::json!({ "pairs": pairs, "threads": rows, "steady": steady });
        std::fs::write(path, serde_json::to_string_pretty(&found)?)?;
    }
    match &arguments.known {
        Some(path) => known::check(path, &pairs),
        None => Ok(ExitCode::SUCCESS),
    }
}

/// Mounts a new image in memory, with more groups than lanes. The mount commits only on request,
/// since a commit belongs to no single operation.
fn file_system(arguments: &Arguments) -> Result<FileSystem, AnyError> {
    let device = Arc::new(RamDevice::create(64 << 30)?);
    let options = FormatOptions::new().contents(Contents::Zeros);
    FileSystem::format(&*device, &options)?;
    let mut options = OpenOptions::new().commit_interval(Duration::from_secs(3600));
    if arguments.steady.is_none() {
        // With this many slots, two names of the run are unlikely to be in the same bucket of the
        // name cache.
        options = options.cached_names(1 << 22);
    }
    Ok(FileSystem::open_device(device, &options)?)
}

fn trace_all(
    session: &Session<'_, '_>,
    arguments: &Arguments,
    counts: &[usize],
) -> Result<(Vec<Pair>, Vec<Row>), AnyError> {
    let granule = if arguments.pairs_of_lines { Granule::Pair } else { Granule::Line };
    let settings = match &*arguments.settings {
        [] => Setting::USUAL,
        some => some,
    };
    let mut reasons = Reasons::new();
    let (mut pairs, mut rows) = (Vec::new(), Vec::new());
    let only = &arguments.only;
    for &setting in settings {
        println!("\n== {} ==", setting.title());
        if setting.is_served() {
            if arguments.rounds > 0 {
                let found = served::trace(&mut reasons, setting, granule, only, arguments.rounds)?;
                report(&found, arguments);
                pairs.extend(found);
            }
            continue;
        }
        if arguments.rounds > 0 {
            let found =
                matrix::trace(session, &mut reasons, setting, granule, only, arguments.rounds);
            report(&found, arguments);
            pairs.extend(found);
        }
        if !counts.is_empty() {
            println!("{:>28} threads instr. transfers hottest apart syscalls", "");
            let each = |row: &Row| print_row(row, arguments);
            rows.extend(table::trace(session, &mut reasons, setting, granule, only, counts, each));
        }
    }
    summarise(&pairs);
    Ok((pairs, rows))
}

fn trace_steady(
    session: &Session<'_, '_>,
    arguments: &Arguments,
    counts: &[usize],
    each: usize,
) -> Vec<SteadyRow> {
    let mut reasons = Reasons::new();
    let settings = match &*arguments.settings {
        [] => &[Setting::Directories],
        some => some,
    };
    let mut rows = Vec::new();
    for &setting in settings.iter().filter(|setting| !setting.is_served()) {
        println!("\n== {}: {each} operations of each thread in turn ==", setting.title());
        println!("{:>28} threads instr. transfers preparation moving commits", "");
        for &threads in counts {
            let report = |row: &SteadyRow| print_steady(row, arguments);
            let only = &arguments.only;
            let counts = (each, arguments.between);
            rows.extend(steady::trace(
                session,
                &mut reasons,
                setting,
                only,
                threads,
                counts,
                report,
            ));
        }
    }
    rows
}

fn print_steady(row: &SteadyRow, arguments: &Arguments) {
    println!("{row}");
    if arguments.reasons {
        row.reasons.iter().for_each(|(moves, reason)| println!("  {moves:.3}\n{reason}"));
    }
}

fn print_row(row: &Row, arguments: &Arguments) {
    let Row { operation, threads, instructions, transfers, hottest, apart, system_calls, .. } = row;
    println!(
        "{operation:>28} {threads:>7} {instructions:>6} {transfers:>9.2} {hottest:>7.2} \
         {apart:>5.2} {system_calls:>8.2}"
    );
    if let (true, Some(reason)) = (arguments.reasons, &row.reason) {
        println!("{reason}");
    }
}

fn report(pairs: &[Pair], arguments: &Arguments) {
    matrix::print(pairs);
    if !arguments.reasons {
        return;
    }
    // The pairs are grouped by reason, because one shared line affects many pairs.
    let mut by_reason: BTreeMap<_, Vec<String>> = BTreeMap::new();
    for pair in pairs {
        for reason in &pair.reasons {
            let name = format!("{} | {}", pair.first, pair.second);
            by_reason.entry(reason).or_default().push(name);
        }
    }
    let mut by_reason: Vec<_> = by_reason.into_iter().collect();
    by_reason.sort_by_key(|(_, pairs)| std::cmp::Reverse(pairs.len()));
    for (reason, pairs) in by_reason {
        println!(
            "{reason}\n      {} pairs: {}",
            pairs.len(),
            pairs[..pairs.len().min(6)].join("; ")
        );
    }
}

fn summarise(pairs: &[Pair]) {
    if pairs.is_empty() {
        return;
    }
    println!();
    for setting in Setting::ALL {
        let of: Vec<&Pair> = pairs.iter().filter(|pair| pair.setting == setting).collect();
        if of.is_empty() {
            continue;
        }
        let free = of.iter().filter(|pair| pair.lines == 0).count();
        println!("{:>44}: {free} of {} pairs free", setting.title(), of.len());
    }
    let free = pairs.iter().filter(|pair| pair.lines == 0).count();
    let share = 100.0 * free as f64 / pairs.len() as f64;
    println!("{:>44}: {free} of {} pairs free, {share:.1} %", "in all", pairs.len());
}
