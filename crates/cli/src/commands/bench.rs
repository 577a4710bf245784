//! `lanefs bench`

mod efficiency;
mod interruption;
mod output;
mod progress;
mod seeds;
mod task;

use crate::cli::{Failure, Report, complain, plain};
use interruption::Interruption;
use lanefs_bench::{
    Chapter, Ending, Machine, Measured, Mix, Mounting, Peers, Plan, Record, Scale, StripeWake,
    Target, TargetSpec, Tree, Workload,
};
use lanefs_ext4::Policies;
use output::Output;
use progress::Progress;
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;
use std::time::Duration;
use task::{Task, What};

/// Measures Lanefs and other mounted file systems with the same workloads
///
/// Each workload runs on all targets in turn, in short slices. The table shows, for each target, the
/// rate (median, smallest and largest slice), the ratio to the first target, the latency, and the CPU
/// time per operation. CPU time counts this process, the FUSE server and the kernel's threads.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Workloads:
  create, stat, remove, open-close, create-unlink, create-stat-remove, create-unlink-shared,
  anonymous, tree-diff, readdir-stat, fallocate2, rename, readdir, direct-read (or randread),
  direct-write (or overwrite), seq-read, seq-write, append, fsync, untar, git-status, statfs,
  mix (a random mixture of the others, see --mix)

Two sets of workloads with targets of their own:
  seeds        compares the older kernels' locking policies with the present ones, on images in
               memory, with 1 to 64 threads. To run a part, add workloads, fsmark (files on RAID-5)
               or S1 to S5.
  efficiency   operations per second of CPU time: the library beside the kernel's ext4. Needs root.
               To run a part, add workloads.

Targets:
  lib:ram                        the library on a new image in memory
  lib:raid5, lib:raid5=N         the library on a new RAID-5 array of 4 or N members in memory
  lib:IMAGE, lib:md:MEMBER,...   the library on an existing image or array
  dir:PATH                       a directory of a mounted file system

An interrupted run removes the files it made, prints the results so far, and exits with 130 (SIGINT)
or 143 (SIGTERM).

Examples:
  lanefs bench
  lanefs bench create stat --target lib:ram --target dir:/mnt --threads 1,2,4
  lanefs bench create --policies before,after --threads 1,2,4,8
  lanefs bench randread overwrite --file-size 256 --access-size 64 --threads 1,4
  lanefs bench mix --mix randread=70,overwrite=30 --threads 1,2,4
  lanefs bench fsync --target lib:raid5 --policies stripe_wake=all,stripe_wake=one --threads 64
  lanefs bench seeds --seconds 1 --report seeds.html
  lanefs bench seeds create-unlink-shared --threads 1,64
  lanefs bench seeds S4 --json fsmark.json
  lanefs bench fsync direct-write --target lib:ram --target lib:raid5=5
  lanefs bench efficiency --threads 1,2
  lanefs bench --peers --json figures.json --report figures.html")]
pub struct Arguments {
    /// Workloads to run [default: all]; or `seeds` or `efficiency`, then the parts of it to run
    #[arg(value_name = "WORKLOAD")]
    what: Vec<What>,
    /// File system to measure: lib:ram, lib:raid5[=N], lib:IMAGE, lib:md:MEMBER,... or dir:PATH. Can be
    /// repeated [default: lib:ram, or none with --peers]
    #[arg(long = "target", value_name = "TARGET")]
    targets: Vec<TargetSpec>,
    /// Numbers of threads, each measured separately [default: 1; seeds: 1,2,4,8,16,32,64]
    #[arg(long, value_name = "N,...", value_delimiter = ',',
        value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: Vec<u32>,
    /// Seconds to measure each workload on each target, all slices together
    #[arg(long, value_name = "S", default_value = "2", value_parser = parse_seconds,
        allow_negative_numbers = true)]
    seconds: Duration,
    /// Number of slices that these seconds are divided into
    #[arg(long, value_name = "N", default_value = "5",
        value_parser = clap::value_parser!(u32).range(1..=1000))]
    slices: u32,
    /// Locking policies, each measured as a separate target, for lib:ram and lib:raid5: before (older
    /// kernels), after (Lanefs), or single ones joined by +, as in overwrite=exclusive+busy_group=wait.
    /// lib:raid5 has stripe_wake=all|one too
    #[arg(long, value_name = "P,...", value_delimiter = ',')]
    policies: Vec<NamedPolicies>,
    /// Limit of the cache memory of each lib: target, in MiB
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    cache: Option<u64>,
    /// Number of files for stat, readdir and other workloads that read directories [default: 1000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    files: Option<u32>,
    /// File size for workloads that read or write data, in MiB [default: 64]
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    file_size: Option<u64>,
    /// Bytes per read or write of direct-read, direct-write, append and fsync, in KiB, a multiple of 4
    /// [default: 4]
    #[arg(long, value_name = "KIB", value_parser = parse_access)]
    access_size: Option<u64>,
    /// Workloads of mix and their shares [default: stat=50,open-close=20,create-unlink=20,append=10]
    #[arg(long, value_name = "WORKLOAD=SHARE,...")]
    mix: Option<Mix>,
    /// Number of files in the source tree of untar and git-status [default: 2000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    tree_files: Option<u32>,
    /// Also measure a Lanefs mount, the library, the kernel's ext4, fuse2fs, xfs and tmpfs, all in
    /// memory. They are the first targets and are removed at the end. Needs root
    #[arg(long)]
    peers: bool,
    /// Write all results to this file, as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write tables and plots to this file, as HTML
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// This process already runs in a private mount namespace
    #[arg(long, hide = true)]
    private_mounts: bool,
}

/// One set of policies of `--policies`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct NamedPolicies {
    name: String,
    policies: Policies,
    /// The policy of the array below, if there is one.
    stripe_wake: StripeWake,
    /// Only `stripe_wake` is given.
    is_of_arrays: bool,
}

impl FromStr for NamedPolicies {
    type Err = String;
    fn from_str(text: &str) -> Result<NamedPolicies, String> {
        let (mut stripe_wake, mut others) = (StripeWake::default(), Vec::new());
        for word in text.split('+') {
            match word {
                "stripe_wake=all" => stripe_wake = StripeWake::All,
                "stripe_wake=one" => stripe_wake = StripeWake::One,
                other if other.split('=').next() == Some("stripe_wake") => {
                    return Err("stripe_wake is all or one".into());
                }
                set => {
                    stripe_wake = match set {
                        "before" => StripeWake::All,
                        "after" => StripeWake::One,
                        _ => stripe_wake,
                    };
                    others.push(set);
                }
            }
        }
        let policies = match &others[..] {
            [] => Policies::default(),
            some => some.join("+").parse().map_err(|error: lanefs_ext4::UnknownPolicy| {
                format!("{error}; lib:raid5 has stripe_wake=one|all too")
            })?,
        };
        Ok(NamedPolicies {
            name: text.into(),
            policies,
            stripe_wake,
            is_of_arrays: others.is_empty(),
        })
    }
}

/// Runs `lanefs bench`.
pub fn run(arguments: &Arguments) -> ExitCode {
    let task = match Task::of(arguments) {
        Ok(task) => task,
        Err(why) => return refuse(&why),
    };
    let report = Report::new("bench");
    match begin(arguments, &task, &report) {
        Err(failure) => {
            report.fail(failure);
            report.exit()
        }
        Ok(run) => {
            let code = run.measure(&task);
            code.unwrap_or_else(|| report.exit())
        }
    }
}

/// Prints a usage error in the form that clap uses; the exit code is 2.
fn refuse(why: &str) -> ExitCode {
    let error = clap::Error::raw(clap::error::ErrorKind::ArgumentConflict, format!("{why}\n"));
    // Standard error may be closed; the exit code still reports the failure.
    let _ = error.print();
    ExitCode::from(2)
}

/// Checks everything that can be checked before measuring starts.
fn begin<'a>(
    arguments: &'a Arguments,
    task: &Task,
    report: &'a Report,
) -> Result<Run<'a>, Failure> {
    let program = match arguments.peers || matches!(task, Task::Efficiency(_)) {
        true => Some(enter_private_mounts(arguments)?),
        false => None,
    };
    let interruption = Interruption::watch().map_err(|error| Failure::host("signals", &error))?;
    let output = Output::open(arguments)?;
    Ok(Run { arguments, report, program, interruption, output })
}

fn failure(error: lanefs_bench::Error) -> Failure {
    Failure::new("cannot measure", plain(&error.to_string()))
}

/// A run in progress.
struct Run<'a> {
    arguments: &'a Arguments,
    report: &'a Report,
    /// The path of this program, if it runs in a private mount namespace.
    program: Option<PathBuf>,
    interruption: Interruption,
    output: Output,
}

impl Run<'_> {
    /// Runs the measurements, prints and saves them. Returns the exit code if a signal interrupted
    /// the run.
    fn measure(self, task: &Task) -> Option<ExitCode> {
        let before = Machine::now();
        let measured = match task {
            Task::Workloads(workloads) => self.workloads(workloads, &before),
            Task::Seeds(seeds, arrays) => self.seeds(seeds, *arrays, &before),
            Task::Efficiency(workloads) => self.efficiency(workloads, &before),
        };
        let after = Machine::now();
        let Run { report, interruption, output, .. } = self;
        let chapters = match measured {
            Ok(chapters) => chapters,
            // An interruption of the set-up by the signal is not a failure.
            Err(_) if interruption.came() => Vec::new(),
            Err(failure) => {
                report.fail(failure);
                return None;
            }
        };
        let ending = match interruption.came() {
            true => Ending::Interrupted,
            false => Ending::Complete,
        };
        let last = match ending {
            Ending::Complete => format!("at the end: {after}\n"),
            Ending::Interrupted => {
                format!("interrupted, some workloads are not measured: {after}\n")
            }
        };
        report.printed(print(&last));
        if !chapters.is_empty() {
            let record = Record { command: command(), before, after, ending, chapters };
            report.check(output.save(&record));
        }
        interruption.exit()
    }

    /// Prints one result and advances the progress line.
    fn show(&self, progress: &mut Progress, measured: &Measured, text: &str) {
        progress.clear();
        self.report.printed(print(text));
        for (name, outcome) in &measured.outcomes {
            if let lanefs_bench::Outcome::Failed(why) = outcome {
                self.report
                    .fail(Failure::new(format!("{} on {name}", measured.workload), plain(why)));
            }
        }
        progress.next();
    }

    fn workloads(&self, workloads: &[Workload], before: &Machine) -> Result<Vec<Chapter>, Failure> {
        let arguments = self.arguments;
        let mut peers = None;
        let mut targets = Vec::new();
        if let Some(program) = &self.program {
            let (found, missing) = self.set_up(&mut peers, program).map_err(failure)?;
            targets.extend(found);
            for error in missing {
                complain(format_args!("lanefs bench: not measured: {error}"));
            }
        }
        let plan = self.plan(workloads.to_vec(), &[1]);
        for (spec, name, how) in arguments.wanted() {
            let target = Target::open(&spec, how, plan.room()).map_err(failure)?;
            let name = name.map_or(target.name.clone(), |name| format!("{} {name}", target.name));
            targets.push(target.named(name));
        }
        let tree = &plan.scale.tree;
        let mut head = format!("{before}\n{} slices of {:?} in turn", plan.slices, plan.slice);
        if tree.files() > 0 {
            head += &format!("; source tree: {} files, {} KiB", tree.files(), tree.bytes() / 1024);
        }
        let names: Vec<&str> = targets.iter().map(|target| target.name.as_str()).collect();
        head += &format!("\n{}", lanefs_bench::table_head(&names));
        self.report.printed(print(&head));
        let mut progress = Progress::new(&plan.workloads, &plan.threads);
        let all = lanefs_bench::run(&plan, &targets, |measured| {
            self.show(&mut progress, measured, &lanefs_bench::table(measured));
        });
        drop(progress);
        self.report.printed(print(&lanefs_bench::table_foot(&plan.threads)));
        // The targets hold files open in the mounts of `peers`.
        drop(targets);
        drop(peers);
        Ok(lanefs_bench::chapters(all))
    }

    fn set_up(
        &self,
        peers: &mut Option<Peers>,
        program: &Path,
    ) -> lanefs_bench::Result<(Vec<Target>, Vec<lanefs_bench::Error>)> {
        peers.insert(Peers::new(self.interruption.stop())?).set_up(program)
    }

    fn plan(&self, workloads: Vec<Workload>, threads: &[u32]) -> Plan {
        let arguments = self.arguments;
        Plan {
            threads: arguments.threads(threads),
            slices: arguments.slices,
            slice: arguments.slice(),
            scale: arguments.scale(&workloads),
            stop: self.interruption.stop(),
            workloads,
        }
    }
}

/// Returns the command line of this run.
fn command() -> String {
    let words = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
    let words: Vec<String> = words.filter(|word| word != PRIVATE_MOUNTS).collect();
    format!("lanefs {}", words.join(" "))
}

/// The option with which this program calls itself in a private mount namespace.
const PRIVATE_MOUNTS: &str = "--private-mounts";

/// Returns the path of this program if it already has a private mount namespace. Otherwise replaces the
/// process by the same command in one.
fn enter_private_mounts(arguments: &Arguments) -> Result<PathBuf, Failure> {
    let program = std::env::current_exe()
        .map_err(|error| Failure::host("the path of this program", &error))?;
    if arguments.private_mounts {
        return Ok(program);
    }
    let words = std::env::args_os().skip(1).chain([OsString::from(PRIVATE_MOUNTS)]);
    Err(failure(lanefs_bench::enter_private_mounts(&program, words)))
}

impl Arguments {
    /// Returns the given targets, or the default.
    fn specs(&self) -> Vec<TargetSpec> {
        match self.targets[..] {
            [] if !self.peers || !self.policies.is_empty() => vec![TargetSpec::Ram],
            _ => self.targets.clone(),
        }
    }

    /// Returns these targets for each set of policies, with the mount options of the library.
    fn wanted(&self) -> Vec<(TargetSpec, Option<String>, Mounting)> {
        let cache_bytes = self.cache.map(|mib| mib << 20);
        let mut wanted = Vec::new();
        for spec in self.specs() {
            if !spec.is_in_memory() || self.policies.is_empty() {
                wanted.push((spec, None, Mounting { cache_bytes, ..Mounting::default() }));
                continue;
            }
            wanted.extend(self.policies.iter().map(|named| {
                let NamedPolicies { policies, stripe_wake, .. } = *named;
                let how = Mounting { policies, cache_bytes, stripe_wake };
                (spec.clone(), Some(named.name.clone()), how)
            }));
        }
        wanted
    }

    fn threads(&self, default: &[u32]) -> Vec<u32> {
        match &self.threads[..] {
            [] => default.to_vec(),
            some => some.to_vec(),
        }
    }

    fn slice(&self) -> Duration {
        self.seconds / self.slices
    }

    fn scale(&self, workloads: &[Workload]) -> Scale {
        let tree = match workloads.iter().copied().any(Workload::needs_tree) {
            true => Tree::of_this_machine(self.tree_files.unwrap_or(TREE_FILES)),
            false => Tree::default(),
        };
        let usual = Scale::full(tree);
        Scale {
            files: self.files.unwrap_or(FILES),
            file_bytes: self.file_size.unwrap_or(FILE_SIZE) << 20,
            access_bytes: self.access_size.map_or(usual.access_bytes, |kib| kib << 10),
            mix: self.mix.clone().unwrap_or(usual.mix),
            ..usual
        }
    }
}

/// Defaults: number of files, file size in MiB, number of files in the source tree.
const FILES: u32 = 1000;
const FILE_SIZE: u64 = 64;
const TREE_FILES: u32 = 2000;

fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Limits of `--access-size` in KiB; it is a multiple of the page size.
const PAGE: u64 = 4;
const MOST_AT_ONCE: u64 = 1 << 16;

fn parse_access(text: &str) -> Result<u64, String> {
    let kib = text.parse().ok().filter(|kib: &u64| kib.is_multiple_of(PAGE));
    kib.filter(|kib| (PAGE..=MOST_AT_ONCE).contains(kib))
        .ok_or_else(|| format!("'{text}' is not a multiple of {PAGE} up to {MOST_AT_ONCE}"))
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
    fn the_default_is_all_workloads_on_the_library_in_memory() {
        let arguments = parse("").unwrap();
        assert_eq!(arguments.wanted(), [(TargetSpec::Ram, None, Mounting::default())]);
        assert_eq!(arguments.threads(&[1]), [1]);
        let peers = parse("--peers create").unwrap();
        assert!(peers.wanted().is_empty());
        let task = Task::of(&peers).unwrap();
        assert!(matches!(task, Task::Workloads(w) if w == [Workload::Create]));
    }

    #[test]
    fn lists_and_seconds_are_understood() {
        let line = "stat --threads 1,2,16 --seconds 0.5 --slices 2 --target lib:a --target dir:/b";
        let arguments = parse(line).unwrap();
        assert_eq!(arguments.threads, [1, 2, 16]);
        assert_eq!(arguments.wanted().len(), 2);
        assert_eq!(arguments.slice(), Duration::from_millis(250));
    }

    #[test]
    fn each_set_of_policies_is_a_target() {
        let arguments =
            parse("create --policies before,after,overwrite=exclusive --cache 64").unwrap();
        let wanted = arguments.wanted();
        assert_eq!(wanted.len(), 3);
        assert_eq!(wanted[0].1.as_deref(), Some("before"));
        assert_eq!(wanted[0].2.policies, Policies::before());
        assert!(wanted.iter().all(|(_, _, how)| how.cache_bytes == Some(64 << 20)));
    }

    #[test]
    fn invalid_arguments_are_refused() {
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
            "--policies stripe_wake=some",
            "--access-size 3",
            "--mix stat",
        ];
        for line in wrong {
            assert!(parse(line).is_err(), "{line}");
        }
    }

    #[test]
    fn stripe_wake_is_a_policy_of_arrays() {
        let policies = |line: &str| {
            let arguments = parse(line).unwrap();
            arguments.wanted().into_iter().map(|(_, _, how)| how).collect::<Vec<_>>()
        };
        let wanted = policies(
            "fsync --target lib:raid5 --policies before,after,stripe_wake=all,before+stripe_wake=one",
        );
        let wakes: Vec<StripeWake> = wanted.iter().map(|how| how.stripe_wake).collect();
        assert_eq!(wakes, [StripeWake::All, StripeWake::One, StripeWake::All, StripeWake::One]);
        assert_eq!(wanted[2].policies, Policies::default());
        assert_eq!(wanted[3].policies, Policies::before());
    }

    fn refusal(line: &str) -> String {
        Task::of(&parse(line).unwrap()).expect_err(line)
    }

    #[test]
    fn options_without_effect_are_refused() {
        let refused = [
            ("seeds --target lib:ram", "--target: seeds has its own targets"),
            ("seeds --policies before", "--policies: seeds"),
            ("seeds S3 --cache 64", "--cache: seeds"),
            ("seeds --files 10", "--files: seeds"),
            ("seeds --peers", "--peers: seeds"),
            ("efficiency --target dir:/", "--target: efficiency has its own targets"),
            ("efficiency stat --file-size 1", "--file-size: only used by "),
            ("create --files 10", "--files: only used by stat"),
            ("stat --tree-files 10", "--tree-files: only used by untar, git-status"),
            ("stat --target dir:/ --cache 64", "--cache: only lib: targets"),
            ("stat --target lib:a --policies before", "--policies: only lib:ram and lib:raid5"),
            ("stat --peers --cache 64", "--cache: only lib:"),
            ("stat --policies stripe_wake=all", "--policies: stripe_wake is only for lib:raid5"),
            ("stat --access-size 8", "--access-size: only used by"),
            ("stat --mix stat=1", "--mix: only used by mix"),
            ("mix --mix stat=1 --access-size 8", "--access-size: only used by"),
            (
                "overwrite --file-size 1 --access-size 2048",
                "--access-size: larger than the file size of 1 MiB",
            ),
            ("stat --json a --report a", "--json and --report: the same file"),
        ];
        for (line, why) in refused {
            assert!(refusal(line).starts_with(why), "{line}: {}", refusal(line));
        }
        for fine in [
            "--files 10 --file-size 1 --tree-files 5 --cache 1 --policies before",
            "stat --peers --policies before",
            "stat --target dir:/ --target lib:raid5 --cache 64 --policies before",
            "efficiency stat --files 10",
            "--mix stat=3,append=1 --access-size 8",
            "mix --mix stat=3,append=1 --access-size 8 --files 10",
            "fsync --target lib:ram --target lib:raid5 --policies stripe_wake=all,after",
            "readdir-stat --files 10 --target lib:md:a,b,c --cache 1",
        ] {
            Task::of(&parse(fine).unwrap()).expect(fine);
        }
    }

    #[test]
    fn seeds_are_chosen_by_workload_or_by_name() {
        let names = |line: &str| match Task::of(&parse(line).unwrap()).expect(line) {
            Task::Seeds(seeds, arrays) => {
                let names = seeds.iter().map(|seed| format!("{} {}", seed.name, seed.workload));
                (names.collect::<Vec<_>>(), arrays == task::Arrays::Measured)
            }
            other => panic!("{line}: {other:?}"),
        };
        assert_eq!(names("seeds S4"), (vec![], true));
        assert_eq!(names("seeds fsmark"), (vec![], true));
        assert_eq!(names("seeds s3").0, ["S3 direct-write", "S3 direct-read"]);
        assert_eq!(names("seeds tree-diff").0, ["S5 tree-diff", "S5 tree-diff"]);
        assert_eq!(names("seeds S1 fsmark"), (vec!["S1 create-stat-remove".into()], true));
        assert!(names("seeds").1 && names("seeds").0.len() == 10);
        let known = "S1 create-stat-remove, S2 fallocate2, S3 direct-read, S3 direct-write, \
                     S4 fsmark, S5 anonymous, S5 create-unlink, S5 create-unlink-shared, \
                     S5 open-close, S5 tree-diff";
        assert_eq!(refusal("seeds stat"), format!("stat: no such seed; there are {known}"));
    }

    #[test]
    fn efficiency_accepts_only_its_own_workloads() {
        assert!(
            refusal("efficiency create")
                .starts_with("create: not a workload of efficiency; there are create-unlink, ")
        );
        let some = Task::of(&parse("efficiency stat fallocate2").unwrap()).unwrap();
        let wanted = [Workload::Stat, Workload::Fallocate2];
        assert!(matches!(some, Task::Efficiency(w) if w == wanted));
        assert!(refusal("stat seeds").contains("comes first"));
        assert!(refusal("stat S4").contains("lanefs bench seeds S4"));
        assert!(refusal("fsmark").contains("lanefs bench seeds fsmark"));
    }
}
