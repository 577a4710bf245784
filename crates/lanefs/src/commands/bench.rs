//! `lanefs bench`

use crate::cli::{Failure, Report};
use lanefs_bench::{Machine, Peers, Plan, Scale, Target, TargetSpec, Tree, Workload};
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Measures Lanefs, and what else is mounted, with the same workloads
///
/// Targets take turns in short slices; told are median, smallest and largest of the slices, how many
/// times as fast as the first target that was in the same slice, and the CPU time of one operation,
/// the server's included.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Workloads: create, stat, remove, open-close, create-unlink, rename, readdir, direct-read, direct-write,
seq-read, seq-write, append, fsync, untar, git-status, statfs.

Examples:
  lanefs bench
  lanefs bench create stat --target lib:ram --target dir:/mnt --threads 1,2,4
  lanefs bench --peers --json figures.json")]
pub struct Arguments {
    /// What to measure; all if none is given
    #[arg(value_name = "WORKLOAD")]
    workloads: Vec<Workload>,
    /// On what: lib:ram, lib:IMAGE, dir:PATH; again for more (lib:ram if there is nothing else)
    #[arg(long = "target", value_name = "TARGET")]
    targets: Vec<TargetSpec>,
    /// With how many threads; each is measured for itself
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "1",
        value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: Vec<u32>,
    /// Measured seconds of each workload on each target, in all slices
    #[arg(long, value_name = "S", default_value = "2", value_parser = parse_seconds)]
    seconds: Duration,
    /// In how many slices
    #[arg(long, value_name = "N", default_value = "5",
        value_parser = clap::value_parser!(u32).range(1..=1000))]
    slices: u32,
    /// Files of the source tree for untar and git-status
    #[arg(long, value_name = "N", default_value = "2000",
        value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    tree_files: u32,
    /// Also on Lanefs mounted and as a library, and on the kernel's ext4, fuse2fs, xfs and tmpfs, all
    /// in memory (root); they come first, and are gone afterwards
    #[arg(long)]
    peers: bool,
    /// Write all figures here
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// This process has a mount namespace of its own already
    #[arg(long, hide = true)]
    private_mounts: bool,
}

/// Measures.
pub fn run(arguments: &Arguments) -> ExitCode {
    let report = Report::new("bench");
    if let Err(failure) = measure(arguments, &report) {
        report.fail(failure);
    }
    report.exit()
}

fn measure(arguments: &Arguments, report: &Report) -> Result<(), Failure> {
    let failure = |error: lanefs_bench::Error| Failure::new("cannot measure", error);
    let mut peers = None;
    let mut targets = Vec::new();
    if arguments.peers {
        let program = std::env::current_exe()
            .map_err(|error| Failure::host("the path of this program", &error))?;
        if !arguments.private_mounts {
            let words = std::env::args_os().skip(1).chain([OsString::from("--private-mounts")]);
            return Err(failure(lanefs_bench::enter_private_mounts(&program, words)));
        }
        let (found, missing) = set_up(&mut peers, &program).map_err(failure)?;
        targets.extend(found);
        missing.iter().for_each(|error| eprintln!("lanefs bench: not measured: {error}"));
    }
    for spec in wanted(arguments) {
        targets.push(Target::open(&spec).map_err(failure)?);
    }
    let plan = plan(arguments);
    let before = Machine::now();
    let tree = &plan.scale.tree;
    let mut head = format!("{before}\n");
    head += &format!(
        "{} slices of {:?} in turn; source tree: {} files, {} KiB\n",
        plan.slices,
        plan.slice,
        tree.files(),
        tree.bytes() / 1024
    );
    report.printed(print(&head));
    let all = lanefs_bench::run(&plan, &targets, |measured| {
        report.printed(print(&lanefs_bench::table(measured)));
        for (name, outcome) in &measured.outcomes {
            if let lanefs_bench::Outcome::Failed(why) = outcome {
                report.fail(Failure::new(format!("{} on {name}", measured.workload), why));
            }
        }
    });
    let after = Machine::now();
    report.printed(print(&format!("at the end: {after}\n")));
    // Before the mounts are taken from under them.
    drop(targets);
    drop(peers);
    match &arguments.json {
        Some(path) => save(path, &lanefs_bench::json(&before, &after, &all)),
        None => Ok(()),
    }
}

fn set_up(
    peers: &mut Option<Peers>,
    program: &Path,
) -> lanefs_bench::Result<(Vec<Target>, Vec<lanefs_bench::Error>)> {
    peers.insert(Peers::new()?).set_up(program)
}

fn wanted(arguments: &Arguments) -> Vec<TargetSpec> {
    if arguments.targets.is_empty() && !arguments.peers {
        return vec![TargetSpec::Ram];
    }
    arguments.targets.clone()
}

fn plan(arguments: &Arguments) -> Plan {
    let workloads = match &arguments.workloads[..] {
        [] => Workload::ALL.to_vec(),
        some => some.to_vec(),
    };
    let needs_tree = |workload| matches!(workload, Workload::Untar | Workload::GitStatus);
    let tree = if workloads.iter().copied().any(needs_tree) {
        Tree::of_this_machine(arguments.tree_files)
    } else {
        Tree::default()
    };
    Plan {
        workloads,
        threads: arguments.threads.clone(),
        slices: arguments.slices,
        slice: arguments.seconds / arguments.slices,
        scale: Scale::full(tree),
    }
}

fn save(path: &Path, value: &serde_json::Value) -> Result<(), Failure> {
    std::fs::write(path, format!("{value:#}\n"))
        .map_err(|error| Failure::host(path.display(), &error))
}

fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

fn parse_seconds(text: &str) -> Result<Duration, String> {
    let bad = || format!("'{text}' is not a number of seconds between 0.001 and 86400");
    let seconds: f64 = text.parse().map_err(|_| bad())?;
    if !(0.001..=86_400.0).contains(&seconds) {
        return Err(bad());
    }
    Ok(Duration::from_secs_f64(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        bench: Arguments,
    }

    fn parse(line: &str) -> Result<Arguments, clap::Error> {
        let words = std::iter::once("bench").chain(line.split_whitespace());
        Line::try_parse_from(words).map(|line| line.bench)
    }

    #[test]
    fn nothing_asked_for_is_everything_on_the_library_in_ram() {
        let arguments = parse("").unwrap();
        assert_eq!(wanted(&arguments), [TargetSpec::Ram]);
        assert_eq!(arguments.threads, [1]);
        let peers = parse("--peers create").unwrap();
        assert!(wanted(&peers).is_empty());
        assert_eq!(plan(&peers).workloads, [Workload::Create]);
    }

    #[test]
    fn lists_and_seconds_are_understood() {
        let line = "stat --threads 1,2,16 --seconds 0.5 --slices 2 --target lib:a --target dir:/b";
        let arguments = parse(line).unwrap();
        assert_eq!(arguments.threads, [1, 2, 16]);
        assert_eq!(wanted(&arguments).len(), 2);
        assert_eq!(plan(&arguments).slice, Duration::from_millis(250));
    }

    #[test]
    fn nonsense_is_refused() {
        let wrong = [
            "creat",
            "--threads 0",
            "--threads 1,x",
            "--seconds 0",
            "--seconds NaN",
            "--seconds -1",
            "--slices 0",
            "--target ram",
        ];
        for line in wrong {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
