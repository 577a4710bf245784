//! Runs the benchmarks of the seeds (see `docs/seeds.md`). Each workload runs on images in memory,
//! and alternates between the locking policies of older kernels, of later kernels and of Lanefs.

use crate::error::Result;
use crate::figures::{Figures, Measured, Outcome};
use crate::library::Mounting;
use crate::machine::Machine;
use crate::older::{
    BusyGroup, GroupSearch, InodeClaiming, NameCachePolicy, Overwrite, Placement, Policies,
    StreamGoal,
};
use crate::plan::Plan;
use crate::report::{factor, short};
use crate::scale::Scale;
use crate::statistics::Summary;
use crate::stop::Stop;
use crate::target::Target;
use crate::workload::Workload;
use lanefs_lanes::sync::Arc;
use std::fmt::Write;
use std::time::Duration;

/// A seed, and the workload that shows its effect.
#[derive(Debug, Clone)]
pub struct Seed {
    /// The name, from `S1` to `S5`.
    pub name: &'static str,
    /// The workload.
    pub workload: Workload,
    /// The lock or resource under contention.
    pub about: &'static str,
    /// The policies that are compared, by name. The first is the policy of older kernels, the last
    /// is the default.
    pub steps: Vec<(&'static str, Mounting)>,
}

/// Cache limit in bytes that causes memory pressure. It is a fraction of the size of the data that
/// the workload reads.
const PRESSED: u64 = 2 << 20;

/// The size in bytes of the file that S3 reads and overwrites. The change to XFS that corresponds
/// to S3 was measured with the same size. The file takes at most half of the image.
const FILE: u64 = 1 << 30;

impl Seed {
    /// Returns the seeds of the file system itself, without the seed of the array.
    pub fn all() -> Vec<Seed> {
        let after = Policies::default();
        // Threads contend only if they allocate from the same group. With these policies, all
        // threads allocate from the group of their common parent directory.
        let meeting = Policies {
            placement: Placement::Shared,
            busy_group: BusyGroup::Wait,
            stream_goal: StreamGoal::Global,
            group_search: GroupSearch::Scan,
            ..after
        };
        let waiting =
            Policies { placement: Placement::Shared, busy_group: BusyGroup::Wait, ..after };
        // S2 corresponds to two kernel patches. The first only skips busy groups, and the second
        // gives each inode its own goal.
        let skipping = Policies { busy_group: BusyGroup::Skip, ..meeting };
        let own_goals = Policies { stream_goal: StreamGoal::Inode, ..skipping };
        let claiming = Policies { inode_claim: InodeClaiming::TwoStep, ..waiting };
        let inodes = steps(&[("two-step", claiming), ("one-step", waiting), ("lanes", after)]);
        let blocks = steps(&[
            ("wait", meeting),
            ("skip", skipping),
            ("hashed", Policies { stream_goal: StreamGoal::Hashed, ..skipping }),
            ("goals", own_goals),
            ("index", Policies { group_search: GroupSearch::Index, ..own_goals }),
            ("lanes", after),
        ]);
        let exclusive = Policies { overwrite: Overwrite::Exclusive, ..after };
        let data = steps(&[("exclusive", exclusive), ("shared", after)]);
        let one_lock = Policies { name_cache: NameCachePolicy::Global, ..after };
        let names = steps(&[("one lock", one_lock), ("lanes", after)]);
        let pressed = names
            .iter()
            .map(|(name, how)| (*name, Mounting { cache_bytes: Some(PRESSED), ..*how }))
            .collect();
        let seed = |name, workload, about, steps: &Vec<_>| Seed {
            name,
            workload,
            about,
            steps: steps.clone(),
        };
        vec![
            seed(
                "S1",
                Workload::CreateStatRemove,
                "inode allocation: workers in directories of their own (mdtest -F -C -r -u)",
                &inodes,
            ),
            seed("S1", Workload::Create, "the same, creating alone (mdtest -C)", &inodes),
            seed("S1", Workload::Stat, "the same, reading attributes alone (mdtest -T)", &inodes),
            seed("S1", Workload::Remove, "the same, removing alone (mdtest -r)", &inodes),
            seed(
                "S2",
                Workload::Fallocate2,
                "block allocation: 8 KiB appended by fallocate up to 1 MiB, truncated, again",
                &blocks,
            ),
            seed(
                "S3",
                Workload::DirectWrite,
                "overwrite: 4 KiB at random pages of one preallocated file of 1 GiB",
                &data,
            ),
            seed(
                "S3",
                Workload::DirectRead,
                "randread: what S3's writes are compared with; reads were always shared",
                &data,
            ),
            seed("S5", Workload::OpenClose, "open and close, own directories", &names),
            seed("S5", Workload::OpenCloseShared, "open and close, one directory", &names),
            seed("S5", Workload::CreateUnlink, "create and unlink, own directories", &names),
            seed("S5", Workload::CreateUnlinkShared, "create and unlink, one directory", &names),
            seed("S5", Workload::TreeDiff, "lstat of every file of an own tree (git diff)", &names),
            seed("S5", Workload::Anonymous, "files without a name, opened and closed", &names),
            seed("S5", Workload::TreeDiff, "the same with caches of 2 MiB: reclaim", &pressed),
        ]
    }
}

fn steps(named: &[(&'static str, Policies)]) -> Vec<(&'static str, Mounting)> {
    named
        .iter()
        .map(|(name, policies)| (*name, Mounting { policies: *policies, ..Mounting::default() }))
        .collect()
}

/// How the benchmarks of the seeds (see `docs/seeds.md`) run.
#[derive(Debug, Clone)]
pub struct SeedPlan {
    /// Numbers of threads, each measured separately.
    pub threads: Vec<u32>,
    /// Number of slices for each policy.
    pub slices: u32,
    /// Length of a slice.
    pub slice: Duration,
    /// The size of each image in bytes.
    pub image: u64,
    /// The size of each image's journal in MiB; `None` means the default of mke2fs.
    pub log: Option<u64>,
    /// Ends the run early.
    pub stop: Arc<Stop>,
}

/// Measures one seed. Calls `each` with the results of every number of threads.
///
/// # Errors
/// If an image cannot be created, or the run is stopped early.
pub fn run_seed(
    seed: &Seed,
    plan: &SeedPlan,
    mut each: impl FnMut(&Measured),
) -> Result<Vec<Measured>> {
    let mut targets = Vec::new();
    for (name, how) in &seed.steps {
        plan.stop.check()?;
        targets.push(Target::with_many_groups(plan.image, plan.log, *how)?.named(*name));
    }
    let plan = Plan {
        workloads: vec![seed.workload],
        threads: plan.threads.clone(),
        slices: plan.slices,
        slice: plan.slice,
        scale: Scale {
            file_bytes: FILE.min(plan.image / 2),
            ..Scale::full(crate::tree::Tree::default())
        },
        stop: plan.stop.clone(),
    };
    Ok(crate::run(&plan, &targets, |measured| each(measured)))
}

/// Returns the heading of a seed.
pub fn seed_head(seed: &Seed) -> String {
    let columns = format!(
        "{:>8} {:<10}{:>12}{:>12}{:>8}  {:<22}{:>8}  {}",
        "workers",
        "policy",
        "ops/s",
        "per worker",
        "of one",
        "times before",
        "us CPU",
        "lock waits: count, total, mean"
    );
    format!("\n{} {}: {}\n{columns}\n", seed.name, seed.workload, seed.about)
}

/// Returns the median rate of each policy, if `measured` is the measurement with a single thread;
/// otherwise an empty list.
pub fn alone(measured: &Measured) -> Vec<Option<f64>> {
    let rate = |outcome: &Outcome| outcome.rate().map(|rate| rate.median);
    match measured.threads {
        1 => measured.outcomes.iter().map(|(_, outcome)| rate(outcome)).collect(),
        _ => Vec::new(),
    }
}

/// Returns the lines for one number of threads. `alone` has the rate of each policy with a single
/// thread.
pub fn seed_lines(measured: &Measured, alone: &[Option<f64>]) -> String {
    let mut text = String::new();
    let threads = measured.threads;
    let first = measured.outcomes.first().map(|(_, outcome)| outcome);
    for (n, (name, outcome)) in measured.outcomes.iter().enumerate() {
        let line = match outcome {
            Outcome::Failed(why) => format!("failed: {why}"),
            Outcome::NotThere => "-".into(),
            Outcome::Interrupted => "interrupted".into(),
            Outcome::Ran(figures) => {
                let one = alone.get(n).copied().flatten();
                line(figures, threads, one, first.and_then(|first| outcome.ratio_to(first)))
            }
        };
        let oversubscribed = if threads as usize > Machine::processors() { "*" } else { "" };
        let workers = if n == 0 { format!("{threads}{oversubscribed}") } else { String::new() };
        // Writing to a string does not fail.
        let _ = writeln!(text, "{workers:>8} {name:<10}{line}");
    }
    text
}

fn line(figures: &Figures, threads: u32, alone: Option<f64>, ratio: Option<Summary>) -> String {
    let Some(rate) = Summary::of(figures.rates.iter().copied()) else {
        return "nothing was done in the time".into();
    };
    let each = rate.median / f64::from(threads);
    let share = alone.map_or(String::new(), |one| format!("{:.0} %", 100.0 * each / one));
    let ratio = ratio.map_or(String::new(), |ratio| {
        format!("{} ({}..{})", factor(ratio.median), factor(ratio.min), factor(ratio.max))
    });
    let micros = |nanos: f64| short(nanos / 1000.0);
    let cpu = figures.cpu_per_op().map(|cpu| micros(cpu.processes.as_nanos() as f64));
    let waits: Vec<String> = figures
        .waits
        .iter()
        .filter(|of| of.waits > 0)
        .map(|of| {
            let total = of.nanos as f64;
            let mean = micros(total / of.waits as f64);
            format!("{:?} {}, {} ms, {mean} us", of.rank, of.waits, short(total / 1e6))
        })
        .collect();
    format!(
        "{:>12}{:>12}{share:>8}  {ratio:<22}{:>8}  {}",
        short(rate.median),
        short(each),
        cpu.unwrap_or_default(),
        if waits.is_empty() { "none".into() } else { waits.join("; ") }
    )
}

/// Returns the text that explains the tables of all seeds. It is printed below the tables.
pub fn seed_foot(plan: &SeedPlan) -> String {
    let processors = Machine::processors();
    let mut text = String::from(
        "\nratios slice by slice against the first policy, with the smallest and the largest; \
         'of one': of what one worker does alone\n",
    );
    if plan.threads.iter().any(|threads| *threads as usize > processors) {
        let _ = writeln!(
            text,
            "* more workers than the {processors} processors: they take turns, so they cannot be \
             faster than {processors} workers, but their waits for locks still show"
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_seed_ends_with_the_default() {
        let seeds = Seed::all();
        for name in ["S1", "S2", "S3", "S5"] {
            assert!(seeds.iter().any(|seed| seed.name == name), "{name}");
        }
        for seed in seeds {
            let (_, last) = seed.steps.last().expect("steps");
            assert_eq!(last.policies, Policies::default(), "{seed:?}");
            assert_ne!(seed.steps[0].1.policies, last.policies, "{seed:?}");
        }
    }

    #[test]
    fn a_seed_is_measured_and_reported_with_its_waits() {
        if crate::programs::program("mke2fs").is_none() {
            println!("skipped: there is no mke2fs (package e2fsprogs)");
            return;
        }
        let plan = SeedPlan {
            threads: vec![1, 4],
            slices: 2,
            slice: Duration::from_millis(10),
            image: 256 << 20,
            log: Some(16),
            stop: Arc::default(),
        };
        let seed = Seed::all().into_iter().find(|seed| seed.workload == Workload::OpenClose);
        let mut text = String::new();
        let all = run_seed(&seed.expect("S5"), &plan, |measured| {
            text += &seed_lines(measured, &alone(measured));
        })
        .expect("images");
        assert_eq!(all.len(), 2);
        assert!(all.iter().all(|m| m.outcomes.iter().all(|(_, o)| o.rate().is_some())), "{text}");
        assert!(text.contains("one lock") && text.contains("lanes"), "{text}");
    }
}
