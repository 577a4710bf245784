//! The arguments of `lanefs bench`.

use crate::library::Mounting;
use crate::mix::Mix;
use crate::older::{Policies, UnknownPolicy};
use crate::scale::Scale;
use crate::target::TargetSpec;
use crate::tree::Tree;
use crate::workload::Workload;
use lanefs_raid5::StripeWake;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// Measures Lanefs and other mounted file systems with the same workloads
///
/// Each workload runs on all targets in turn, in short slices. The table shows, for each target,
/// the rate (median, smallest and largest slice), the ratio to the first target, the latency, and
/// the CPU time per operation. CPU time counts this process, the FUSE server and the kernel's
/// threads.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Workloads:
  create, stat, remove, open-close, open-close-shared, create-unlink, create-stat-remove,
  create-unlink-shared, anonymous, tree-diff, readdir-stat, fallocate2, rename, readdir,
  direct-read (or randread), direct-write (or overwrite), seq-read, seq-write, append, fsync,
  untar, git-status, statfs, mix (a random mixture of the others, see --mix)

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

An interrupted run removes the files it made and prints the results so far.

Exit codes: 0 success, 1 failure, 2 wrong usage, 130 interrupted by SIGINT, 143 by SIGTERM.

Examples:
  lanefs bench
  lanefs bench create stat --target lib:ram --target dir:/mnt --threads 1,2,4
  lanefs bench create --policies before,after --threads 1,2,4,8
  lanefs bench randread overwrite --file-size 256 --access-size 64 --threads 1,4
  lanefs bench mix --mix randread=70,overwrite=30 --threads 1,2,4
  lanefs bench fsync --target lib:raid5 --policies stripe_wake=all,stripe_wake=one --threads 64
  lanefs bench seeds --seconds 1 --report seeds.html
  lanefs bench seeds create-unlink-shared --threads 1,64
  lanefs bench seeds S1 --log 512 --threads 48
  lanefs bench seeds S4 --json fsmark.json
  lanefs bench fsync direct-write --target lib:ram --target lib:raid5=5
  lanefs bench efficiency --threads 1,2
  lanefs bench --peers --json figures.json --report figures.html")]
pub struct Arguments {
    /// Workloads to run [default: all]; or one of the sets `seeds` and `efficiency`, optionally
    /// followed by the parts of the set to run
    #[arg(value_name = "WORKLOAD")]
    pub(super) what: Vec<What>,
    /// File system to measure: lib:ram, lib:raid5[=N], lib:IMAGE, lib:md:MEMBER,... or dir:PATH.
    /// Can be repeated [default: lib:ram, or none with --peers]
    #[arg(long = "target", value_name = "TARGET")]
    pub(super) targets: Vec<TargetSpec>,
    /// Numbers of threads, each measured separately [default: 1; seeds: 1,2,4,8,16,32,64]
    #[arg(long, value_name = "N,...", value_delimiter = ',',
        value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(super) threads: Vec<u32>,
    /// Seconds to measure each workload on each target, all slices together
    #[arg(long, value_name = "S", default_value = "2", value_parser = parse_seconds,
        allow_negative_numbers = true)]
    pub(super) seconds: Duration,
    /// Number of slices into which the time of a measurement is divided
    #[arg(long, value_name = "N", default_value = "5",
        value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(super) slices: u32,
    /// Locking policies for lib:ram and lib:raid5, each measured as a separate target: before
    /// (older kernels), after (Lanefs), or single policies joined by +, as in
    /// overwrite=exclusive+busy_group=wait. lib:raid5 also has stripe_wake=all|one
    #[arg(long, value_name = "P,...", value_delimiter = ',')]
    pub(super) policies: Vec<NamedPolicies>,
    /// Limit of the cache memory of each lib: target, in MiB
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    pub(super) cache: Option<u64>,
    /// Number of files for stat, readdir and other workloads that read directories [default: 1000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub(super) files: Option<u32>,
    /// File size for workloads that read or write data, in MiB [default: 64]
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    pub(super) file_size: Option<u64>,
    /// Size of each read or write of direct-read, direct-write, append and fsync, in KiB, a
    /// multiple of 4 [default: 4]
    #[arg(long, value_name = "KIB", value_parser = parse_access)]
    pub(super) access_size: Option<u64>,
    /// Workloads of mix and their shares [default:
    /// stat=50,open-close=20,create-unlink=20,append=10]
    #[arg(long, value_name = "WORKLOAD=SHARE,...")]
    pub(super) mix: Option<Mix>,
    /// Size of the journal in each image of seeds, in MiB [default: as mke2fs chooses]
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(4..=1024))]
    pub(super) log: Option<u64>,
    /// Number of files in the source tree of untar and git-status [default: 2000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(super) tree_files: Option<u32>,
    /// Also measure a Lanefs mount, the library, the kernel's ext4, fuse2fs, xfs and tmpfs, all in
    /// memory. These targets come first, and are removed at the end. Needs root
    #[arg(long)]
    pub(super) peers: bool,
    /// Write all results to this file, as JSON
    #[arg(long, value_name = "FILE")]
    pub(super) json: Option<PathBuf>,
    /// Write tables and plots to this file, as HTML
    #[arg(long, value_name = "FILE")]
    pub(super) report: Option<PathBuf>,
    /// This process already runs in a private mount namespace
    #[arg(long, hide = true)]
    pub(super) private_mounts: bool,
}

/// One set of policies from `--policies`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NamedPolicies {
    pub(super) name: String,
    pub(super) policies: Policies,
    /// The policy of the array below the file system, if there is an array.
    pub(super) stripe_wake: StripeWake,
    /// Whether the text of the set names no policy except `stripe_wake`.
    pub(super) is_of_arrays: bool,
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
            some => some.join("+").parse().map_err(|error: UnknownPolicy| {
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

impl Arguments {
    /// Returns the given targets, or the default.
    pub(super) fn specs(&self) -> Vec<TargetSpec> {
        match self.targets[..] {
            [] if !self.peers || !self.policies.is_empty() => vec![TargetSpec::Ram],
            _ => self.targets.clone(),
        }
    }

    /// Returns the targets, each with the library's mount options. If `--policies` is given, a
    /// target in memory is returned once for each set of policies.
    pub(super) fn wanted(&self) -> Vec<(TargetSpec, Option<String>, Mounting)> {
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

    pub(super) fn threads(&self, default: &[u32]) -> Vec<u32> {
        match &self.threads[..] {
            [] => default.to_vec(),
            some => some.to_vec(),
        }
    }

    pub(super) fn slice(&self) -> Duration {
        self.seconds / self.slices
    }

    pub(super) fn scale(&self, workloads: &[Workload]) -> Scale {
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
pub(super) const FILE_SIZE: u64 = 64;
const TREE_FILES: u32 = 2000;

/// Limits of `--access-size` in KiB. The size must be a multiple of the page size.
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

/// One argument: a workload, a set of workloads or a part of a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// One workload.
    Workload(Workload),
    /// The workloads of all seeds (docs/seeds.md), each run with the older and the present locking
    /// policies.
    Seeds,
    /// One seed, given by its name.
    Seed(&'static str),
    /// The workload of S4.
    FsMark,
    /// CPU time per operation, compared with the kernel's ext4.
    Efficiency,
}

/// The name of each seed.
const SEEDS: [&str; 5] = ["S1", "S2", "S3", "S4", "S5"];

impl FromStr for What {
    type Err = String;
    fn from_str(text: &str) -> Result<What, String> {
        match text {
            "seeds" => return Ok(What::Seeds),
            "efficiency" => return Ok(What::Efficiency),
            "fsmark" => return Ok(What::FsMark),
            _ => {}
        }
        if let Some(name) = SEEDS.into_iter().find(|name| name.eq_ignore_ascii_case(text)) {
            return Ok(What::Seed(name));
        }
        text.parse().map(What::Workload).map_err(|error: String| {
            format!("{error}; or seeds (then workloads, fsmark or S1 to S5), or efficiency")
        })
    }
}
