//! `lanefs bench seeds`

use super::progress::Progress;
use super::{Arguments, failure, print, save, tell_failures, threads};
use crate::cli::{Failure, Report};
use lanefs_bench::raid::{FsMark, FsMarkLine, FsMarkPlan};
use lanefs_bench::{Chapter, Machine, Measured, Seed, SeedPlan, Workload};

const WORKERS: [u32; 7] = [1, 2, 4, 8, 16, 32, 64];
/// Bytes of each image; memory is taken only where it is written.
const IMAGE: u64 = 2 << 30;

/// Measures all seeds, or those with one of the workloads `only`.
pub fn measure(arguments: &Arguments, only: &[Workload], report: &Report) -> Result<(), Failure> {
    let plan = SeedPlan {
        threads: threads(arguments, &WORKERS),
        slices: arguments.slices,
        slice: arguments.seconds / arguments.slices,
        image: IMAGE,
    };
    let mut seeds = Seed::all();
    if let Some(other) = only.iter().find(|w| !seeds.iter().any(|seed| seed.workload == **w)) {
        let known: Vec<&str> = seeds.iter().map(|seed| seed.workload.name()).collect();
        let why = format!("no seed has this workload; there are {}", known.join(", "));
        return Err(Failure::new(other.to_string(), why));
    }
    if !only.is_empty() {
        seeds.retain(|seed| only.contains(&seed.workload));
    }
    let before = Machine::now();
    report.printed(print(&format!(
        "{before}\n{} slices of {:?} in turn; images of {} GiB in groups of 32 MiB, in memory\n",
        plan.slices,
        plan.slice,
        IMAGE >> 30
    )));
    let mut results: Vec<(String, Vec<Measured>)> = Vec::new();
    for seed in &seeds {
        report.printed(print(&lanefs_bench::seed_head(seed)));
        let mut progress = Progress::new(&[seed.workload], &plan.threads);
        let mut one = None;
        let measured = lanefs_bench::run_seed(seed, &plan, |measured| {
            progress.clear();
            let alone = one.get_or_insert_with(|| lanefs_bench::alone(measured));
            report.printed(print(&lanefs_bench::seed_lines(measured, alone)));
            tell_failures(measured, report);
            progress.next();
        });
        let title = format!("{} {}: {}", seed.name, seed.workload, seed.about);
        results.push((title, measured.map_err(failure)?));
    }
    report.printed(print(&lanefs_bench::seed_foot(&plan)));
    if only.is_empty() {
        arrays(arguments, report)?;
    }
    let after = Machine::now();
    report.printed(print(&format!("at the end: {after}\n")));
    let chapters: Vec<Chapter<'_>> = results
        .iter()
        .map(|(title, all)| Chapter { title: title.clone(), measured: all.iter().collect() })
        .collect();
    save(arguments, &before, &after, &chapters)
}

/// S4, which is not in the file system but in the array below it.
fn arrays(arguments: &Arguments, report: &Report) -> Result<(), Failure> {
    let plan = FsMarkPlan {
        threads: threads(arguments, &FsMarkPlan::default().threads),
        slices: arguments.slices,
        // Long enough for files of 64 workers: a slice of a few milliseconds would end before one.
        slice: (arguments.seconds / arguments.slices).max(FsMarkPlan::LEAST_SLICE),
        ..FsMarkPlan::default()
    };
    report.printed(print(&format!("\n{}", FsMark::head(&plan))));
    let each = |line: &FsMarkLine| report.printed(print(&format!("{}\n", line.text())));
    FsMark::run(&plan, each).map_err(failure)?;
    Ok(())
}
