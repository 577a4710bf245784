//! `lanefs bench`

mod efficiency;
mod progress;
mod seeds;

use crate::cli::{Failure, Report, complain};
use lanefs_bench::{
    Chapter, Machine, Measured, Mounting, Peers, Plan, Scale, Target, TargetSpec, Tree, Workload,
};
use lanefs_ext4::Policies;
use progress::Progress;
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;
use std::time::Duration;

/// Measures Lanefs, and what else is mounted, with the same workloads
///
/// Targets take turns in short slices; told are median, smallest and largest of the slices, how many
/// times as fast as the first target that was in the same slice, latency, and the CPU time of one
/// operation: of this process, the server, and the threads of the kernel.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Workloads: create, stat, remove, open-close, create-unlink, create-stat-remove, create-unlink-shared,
anonymous, tree-diff, readdir-stat, fallocate2, rename, readdir, direct-read, direct-write, seq-read,
seq-write, append, fsync, untar, git-status, statfs.

seeds: what the policies of before cost, in turn with those of now, on devices in memory with 1 to 64
workers; workloads behind it leave out the others. efficiency: operations for each second of CPU time, the library beside the kernel's ext4 (root).

Examples:
  lanefs bench
  lanefs bench create stat --target lib:ram --target dir:/mnt --threads 1,2,4
  lanefs bench create --policies before,after --threads 1,2,4,8
  lanefs bench seeds --seconds 1 --report seeds.html
  lanefs bench seeds create-unlink-shared --threads 1,64
  lanefs bench efficiency --threads 1,2
  lanefs bench --peers --json figures.json --report figures.html")]
pub struct Arguments {
    /// What to measure; all workloads if none is given; or `seeds`, of all or of some workloads; or
    /// `efficiency` alone
    #[arg(value_name = "WORKLOAD")]
    what: Vec<What>,
    /// On what: lib:ram, lib:IMAGE, dir:PATH; again for more (lib:ram if there is nothing else)
    #[arg(long = "target", value_name = "TARGET")]
    targets: Vec<TargetSpec>,
    /// With how many threads; each is measured for itself [default: 1; seeds: 1,2,4,8,16,32,64]
    #[arg(long, value_name = "N,...", value_delimiter = ',',
        value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: Vec<u32>,
    /// Measured seconds of each workload on each target, in all slices
    #[arg(long, value_name = "S", default_value = "2", value_parser = parse_seconds)]
    seconds: Duration,
    /// In how many slices
    #[arg(long, value_name = "N", default_value = "5",
        value_parser = clap::value_parser!(u32).range(1..=1000))]
    slices: u32,
    /// With these policies, each a target of its own: before, after, or some with + between them, as
    /// overwrite=exclusive+busy_group=wait (for lib:ram)
    #[arg(long, value_name = "P,...", value_delimiter = ',')]
    policies: Vec<NamedPolicies>,
    /// The most memory for the caches of lib: targets, in MiB
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    cache: Option<u64>,
    /// Files in a directory or tree that is looked at
    #[arg(long, value_name = "N", default_value = "1000",
        value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    files: u32,
    /// Size of a file whose data is read or written, in MiB
    #[arg(long, value_name = "MIB", default_value = "64",
        value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    file_size: u64,
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
    /// Write tables and plots here, as one HTML file
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// This process has a mount namespace of its own already
    #[arg(long, hide = true)]
    private_mounts: bool,
}

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Workload(Workload),
    Seeds,
    Efficiency,
}

impl What {
    fn workload(&self) -> Option<Workload> {
        match self {
            What::Workload(workload) => Some(*workload),
            What::Seeds | What::Efficiency => None,
        }
    }
}

impl FromStr for What {
    type Err = String;
    fn from_str(text: &str) -> Result<What, String> {
        match text {
            "seeds" => Ok(What::Seeds),
            "efficiency" => Ok(What::Efficiency),
            _ => text.parse().map(What::Workload),
        }
    }
}

/// Policies, as they were called.
#[derive(Debug, Clone, PartialEq, Eq)]
struct NamedPolicies {
    name: String,
    policies: Policies,
}

impl FromStr for NamedPolicies {
    type Err = lanefs_ext4::UnknownPolicy;
    fn from_str(text: &str) -> Result<NamedPolicies, Self::Err> {
        Ok(NamedPolicies { name: text.into(), policies: text.parse()? })
    }
}

/// Measures.
pub fn run(arguments: &Arguments) -> ExitCode {
    let report = Report::new("bench");
    if let Err(failure) = measure(arguments, &report) {
        report.fail(failure);
    }
    report.exit()
}

fn failure(error: lanefs_bench::Error) -> Failure {
    Failure::new("cannot measure", error)
}

fn measure(arguments: &Arguments, report: &Report) -> Result<(), Failure> {
    let workloads: Vec<Workload> = arguments.what.iter().filter_map(What::workload).collect();
    match arguments.what[..] {
        [What::Seeds, ..] if workloads.len() + 1 == arguments.what.len() => {
            seeds::measure(arguments, &workloads, report)
        }
        [What::Efficiency] => efficiency::measure(arguments, report),
        _ if workloads.len() == arguments.what.len() => measure_workloads(arguments, report),
        _ => Err(Failure::new(
            "what to measure",
            "seeds comes first, with workloads of seeds at most; efficiency stands alone",
        )),
    }
}

fn measure_workloads(arguments: &Arguments, report: &Report) -> Result<(), Failure> {
    let mut peers = None;
    let mut targets = Vec::new();
    if arguments.peers {
        let program = enter_private_mounts(arguments)?;
        let (found, missing) = set_up(&mut peers, &program).map_err(failure)?;
        targets.extend(found);
        for error in missing {
            complain(format_args!("lanefs bench: not measured: {error}"));
        }
    }
    let most = threads(arguments, &[1]).into_iter().max().unwrap_or(1);
    let files = u64::from(arguments.files) * u64::from(most);
    for (spec, name, how) in wanted(arguments) {
        let target = Target::open(&spec, how, files).map_err(failure)?;
        let name = name.map_or(target.name.clone(), |name| format!("{} {name}", target.name));
        targets.push(target.named(name));
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
    let mut progress = Progress::new(&plan.workloads, &plan.threads);
    let all = lanefs_bench::run(&plan, &targets, |measured| {
        progress.clear();
        report.printed(print(&lanefs_bench::table(measured)));
        tell_failures(measured, report);
        progress.next();
    });
    let after = Machine::now();
    report.printed(print(&format!("at the end: {after}\n")));
    // Before the mounts are taken from under them.
    drop(targets);
    drop(peers);
    save(arguments, &before, &after, &lanefs_bench::chapters(&all))
}

/// In a mount namespace of its own, this process goes on; any other is replaced by one that is. The
/// path of this program.
fn enter_private_mounts(arguments: &Arguments) -> Result<PathBuf, Failure> {
    let program = std::env::current_exe()
        .map_err(|error| Failure::host("the path of this program", &error))?;
    if arguments.private_mounts {
        return Ok(program);
    }
    let words = std::env::args_os().skip(1).chain([OsString::from("--private-mounts")]);
    Err(failure(lanefs_bench::enter_private_mounts(&program, words)))
}

fn tell_failures(measured: &Measured, report: &Report) {
    for (name, outcome) in &measured.outcomes {
        if let lanefs_bench::Outcome::Failed(why) = outcome {
            report.fail(Failure::new(format!("{} on {name}", measured.workload), why));
        }
    }
}

fn set_up(
    peers: &mut Option<Peers>,
    program: &Path,
) -> lanefs_bench::Result<(Vec<Target>, Vec<lanefs_bench::Error>)> {
    peers.insert(Peers::new()?).set_up(program)
}

/// The targets that were named, and how those of the library are mounted.
fn wanted(arguments: &Arguments) -> Vec<(TargetSpec, Option<String>, Mounting)> {
    let specs = match arguments.targets[..] {
        [] if !arguments.peers || !arguments.policies.is_empty() => vec![TargetSpec::Ram],
        _ => arguments.targets.clone(),
    };
    let cache_bytes = arguments.cache.map(|mib| mib << 20);
    let mut wanted = Vec::new();
    for spec in specs {
        if spec != TargetSpec::Ram || arguments.policies.is_empty() {
            wanted.push((spec, None, Mounting { cache_bytes, ..Mounting::default() }));
            continue;
        }
        wanted.extend(arguments.policies.iter().map(|named| {
            let how = Mounting { policies: named.policies, cache_bytes };
            (spec.clone(), Some(named.name.clone()), how)
        }));
    }
    wanted
}

fn threads(arguments: &Arguments, default: &[u32]) -> Vec<u32> {
    match &arguments.threads[..] {
        [] => default.to_vec(),
        some => some.to_vec(),
    }
}

fn plan(arguments: &Arguments) -> Plan {
    let workloads = match &arguments.what[..] {
        [] => Workload::ALL.to_vec(),
        some => some
            .iter()
            .filter_map(|what| match what {
                What::Workload(workload) => Some(*workload),
                What::Seeds | What::Efficiency => None,
            })
            .collect(),
    };
    let needs_tree = |workload| matches!(workload, Workload::Untar | Workload::GitStatus);
    let tree = if workloads.iter().copied().any(needs_tree) {
        Tree::of_this_machine(arguments.tree_files)
    } else {
        Tree::default()
    };
    Plan {
        workloads,
        threads: threads(arguments, &[1]),
        slices: arguments.slices,
        slice: arguments.seconds / arguments.slices,
        scale: scale(arguments, tree),
    }
}

fn scale(arguments: &Arguments, tree: Tree) -> Scale {
    let file_bytes = arguments.file_size << 20;
    Scale { files: arguments.files, file_bytes, ..Scale::full(tree) }
}

/// Writes the files that were asked for.
fn save(
    arguments: &Arguments,
    before: &Machine,
    after: &Machine,
    chapters: &[Chapter<'_>],
) -> Result<(), Failure> {
    let write = |path: &Path, text: String| {
        std::fs::write(path, text).map_err(|error| Failure::host(path.display(), &error))
    };
    if let Some(path) = &arguments.json {
        write(path, format!("{:#}\n", lanefs_bench::json(before, after, chapters)))?;
    }
    if let Some(path) = &arguments.report {
        let words: Vec<String> = std::env::args_os()
            .skip(1)
            .map(|word| word.to_string_lossy().into_owned())
            .filter(|word| word != "--private-mounts")
            .collect();
        let command = format!("lanefs {}", words.join(" "));
        write(path, lanefs_bench::html(&command, before, after, chapters))?;
    }
    Ok(())
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
        assert_eq!(wanted(&arguments), [(TargetSpec::Ram, None, Mounting::default())]);
        assert_eq!(plan(&arguments).threads, [1]);
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
    fn each_set_of_policies_is_a_target() {
        let arguments =
            parse("create --policies before,after,overwrite=exclusive --cache 64").unwrap();
        let wanted = wanted(&arguments);
        assert_eq!(wanted.len(), 3);
        assert_eq!(wanted[0].1.as_deref(), Some("before"));
        assert_eq!(wanted[0].2.policies, Policies::before());
        assert!(wanted.iter().all(|(_, _, how)| how.cache_bytes == Some(64 << 20)));
        assert_eq!(parse("seeds").unwrap().what, [What::Seeds]);
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
            "--policies now",
        ];
        for line in wrong {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
