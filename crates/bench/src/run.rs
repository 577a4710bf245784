//! Runs workloads on targets that alternate slice by slice.

use crate::cpu::{Cpu, Reading};
use crate::error::{Error, Result};
use crate::figures::{Figures, Measured, Outcome};
use crate::plan::Plan;
use crate::race::race;
use crate::target::{Server, Target};
use crate::target_tree::TargetTree;
use crate::threads::one_by_one;
use crate::worker::{Assignment, Worker};
use crate::workload::Workload;
use crate::workloads;
use std::time::{Duration, Instant};

/// Measures the workloads of `plan` on `targets`, and calls `each` after every workload. If the run
/// is stopped, returns the results of the complete slices, and omits workloads without a complete
/// slice.
pub fn run(plan: &Plan, targets: &[Target], mut each: impl FnMut(&Measured)) -> Vec<Measured> {
    let mut all = Vec::new();
    for &workload in &plan.workloads {
        for &threads in &plan.threads {
            if plan.stop.is_asked() {
                return all;
            }
            let outcomes = take_turns(plan, workload, threads, targets);
            let (workload, unit) = (workload.name(), workload.unit());
            let measured = Measured { workload, unit, threads, outcomes };
            let is_empty = |(_, outcome): &(_, Outcome)| outcome.rates().is_empty();
            if plan.stop.is_asked() && measured.outcomes.iter().all(is_empty) {
                return all;
            }
            each(&measured);
            all.push(measured);
        }
    }
    all
}

/// Returns the part of the CPU time that counts for `place`. If the target's data is in this
/// process's memory, the kernel's loop device threads do not count, since they serve other targets.
fn charged(spent: Cpu, place: &dyn TargetTree) -> Cpu {
    match place.is_in_memory() {
        true => Cpu { loop_devices: Duration::ZERO, ..spent },
        false => spent,
    }
}

/// How many names are tried for a new directory.
const MOST_LEFT: u32 = 1000;

/// The state of one target while one workload runs.
struct TargetRun<'a> {
    target: &'a Target,
    /// The directory for this workload; `None` until it is created.
    dir: Option<String>,
    workers: Vec<Box<dyn Worker + 'a>>,
    figures: Figures,
    state: State,
}

enum State {
    Running,
    Failed(String),
    Interrupted,
    NotThere,
}

impl State {
    fn after(error: &Error) -> State {
        match error {
            Error::Interrupted => State::Interrupted,
            error => State::Failed(error.to_string()),
        }
    }
}

fn take_turns(
    plan: &Plan,
    workload: Workload,
    threads: u32,
    targets: &[Target],
) -> Vec<(String, Outcome)> {
    let begin = |target| TargetRun::begin(plan, workload, threads, target);
    let mut runs: Vec<TargetRun<'_>> = targets.iter().map(begin).collect();
    // The order of the targets differs in each slice. Otherwise the delayed work of a target, such
    // as writeback, would always affect the same target, namely the next one in the order.
    let mut order: Vec<usize> = (0..runs.len()).collect();
    for slice in 0..plan.slices {
        fastrand::Rng::with_seed(slice.into()).shuffle(&mut order);
        for &at in &order {
            let run = &mut runs[at];
            if let State::Running = run.state
                && let Err(error) = run.turn(plan)
            {
                run.state = State::after(&error);
            }
        }
    }
    runs.into_iter().map(TargetRun::end).collect()
}

impl<'a> TargetRun<'a> {
    fn begin(plan: &'a Plan, workload: Workload, threads: u32, target: &'a Target) -> Self {
        let mut run = TargetRun {
            target,
            dir: None,
            workers: Vec::new(),
            figures: Figures { cpu: Some(Cpu::default()), ..Figures::default() },
            state: State::NotThere,
        };
        if workload.fits(&*target.place) {
            run.state = match run.start(workload, threads, plan) {
                Ok(()) => State::Running,
                Err(error) => State::after(&error),
            };
        }
        run
    }

    fn start(&mut self, workload: Workload, threads: u32, plan: &'a Plan) -> Result<()> {
        plan.stop.check()?;
        let (place, scale, stop) = (&*self.target.place, &plan.scale, &*plan.stop);
        let new_files = crate::plan::new_files(scale.new_files, threads);
        let dir = new_dir(place, &format!("bench-{workload}-{threads}"))?;
        self.dir = Some(dir.clone());
        self.workers = one_by_one(0..threads, |thread| {
            let (own, shared) = (format!("{dir}/t{thread}"), dir.clone());
            place.make_dir(&own)?;
            let given = Assignment { place, shared, own, thread, scale, new_files, stop };
            workloads::start(workload, given)
        })?;
        Ok(())
    }

    fn turn(&mut self, plan: &Plan) -> Result<()> {
        plan.stop.check()?;
        let (place, slice) = (&*self.target.place, plan.slice);
        one_by_one(&mut self.workers, |worker| worker.prepare(Instant::now() + slice))?;
        place.settle()?;
        let server = match self.target.server {
            Server::None => None,
            Server::Process(pid) => Some(pid),
        };
        let waits = lanefs_lanes::contention();
        let counted = place.counted();
        let before = Reading::before(server);
        let raced = race(&mut self.workers, slice, &plan.stop)?;
        let after = Reading::after(server);
        let figures = &mut self.figures;
        figures.add_waits(&waits, &lanefs_lanes::contention());
        figures.add_counts(&counted, &place.counted(), raced.operations);
        figures.cpu = match (figures.cpu, before, after) {
            (Some(mut sum), Some(before), Some(after)) => {
                sum += charged(&after - &before, place);
                Some(sum)
            }
            _ => None,
        };
        if self.target.in_this_process() {
            figures.memory = figures.memory.max(own_memory());
        }
        figures.operations += raced.operations;
        figures.latencies.add(&raced.latencies);
        if raced.operations > 0 {
            figures.rates.push(raced.operations as f64 / raced.time.as_secs_f64().max(1e-9));
        }
        for worker in &mut self.workers {
            worker.clean()?;
        }
        place.settle()
    }

    fn end(mut self) -> (String, Outcome) {
        // Open files are closed first, because a file that is removed while it is open still takes
        // space.
        self.workers.clear();
        if let Some(dir) = &self.dir {
            let removed = self.target.place.remove_tree(dir);
            if let (State::Running | State::Interrupted, Err(error)) = (&self.state, removed) {
                self.state = State::Failed(error.to_string());
            }
        }
        let outcome = match self.state {
            State::Failed(why) => Outcome::Failed(why),
            State::NotThere => Outcome::NotThere,
            State::Interrupted if self.figures.rates.is_empty() => Outcome::Interrupted,
            State::Running | State::Interrupted => Outcome::Ran(Box::new(self.figures)),
        };
        (self.target.name.clone(), outcome)
    }
}

/// Creates a directory of this name. If the user or an interrupted run has already created an entry
/// of this name, appends a number. The directory must be new because it is removed after the run.
fn new_dir(place: &dyn TargetTree, name: &str) -> Result<String> {
    let mut tried = place.make_dir(name).map(|()| name.to_owned());
    for number in 2..=MOST_LEFT {
        match &tried {
            Err(error) if error.says_exists() => {}
            _ => return tried,
        }
        let numbered = format!("{name}.{number}");
        tried = place.make_dir(&numbered).map(|()| numbered);
    }
    tried
}

/// Returns the anonymous memory of this process. The contents of devices in memory do not count,
/// because these devices are memfd files.
fn own_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    Some(line.split_ascii_whitespace().next()?.parse::<u64>().ok()? << 10)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::library::Mounting;
    use crate::older::Policies;
    use crate::scale::Scale;
    use crate::stop::Stop;
    use crate::target::TargetSpec;
    use crate::tree::Tree;
    use lanefs_lanes::sync::Arc;

    fn tiny() -> Plan {
        let tree = Arc::new(Tree::made_up(45));
        Plan {
            workloads: Workload::ALL.to_vec(),
            threads: vec![2],
            slices: 2,
            slice: Duration::from_millis(5),
            scale: Scale {
                files: 20,
                new_files: 50,
                file_bytes: 2 << 20,
                access_bytes: 8 << 10,
                mix: "direct-read=5,direct-write=5,stat=3,create-unlink=1,append=1"
                    .parse()
                    .unwrap(),
                tree,
            },
            stop: Arc::default(),
        }
    }

    /// Returns a temporary directory. It is in memory if the machine allows that, because syncfs is
    /// quick there.
    fn in_memory() -> tempfile::TempDir {
        tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
    }

    fn has_mke2fs() -> bool {
        let there = crate::programs::program("mke2fs").is_some();
        if !there {
            println!("skipped: there is no mke2fs (package e2fsprogs)");
        }
        there
    }

    #[test]
    fn existing_files_with_the_name_of_a_benchmarks_directory_are_kept() {
        let dir = in_memory();
        let mine = dir.path().join("bench-create-2");
        std::fs::create_dir(&mine).unwrap();
        std::fs::write(mine.join("precious"), "contents").unwrap();
        std::fs::write(dir.path().join("bench-create-2.2"), "a file").unwrap();
        let spec = TargetSpec::Directory(dir.path().into());
        let targets = [Target::open(&spec, Mounting::default(), 0).unwrap()];
        let plan = Plan { workloads: vec![Workload::Create], ..tiny() };
        let measured = run(&plan, &targets, |_| {});
        assert!(matches!(measured[0].outcomes[0].1, Outcome::Ran(_)), "{measured:?}");
        assert_eq!(std::fs::read(mine.join("precious")).unwrap(), b"contents");
        let mut left: Vec<_> =
            dir.path().read_dir().unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["bench-create-2", "bench-create-2.2"]);
    }

    #[test]
    fn every_workload_runs_on_the_library_in_ram_with_both_sets_of_policies() {
        if !has_mke2fs() {
            return;
        }
        runs_on_the_library(Mounting::default());
        runs_on_the_library(Mounting {
            policies: Policies::before(),
            cache_bytes: Some(1 << 20),
            ..Mounting::default()
        });
    }

    #[test]
    fn every_workload_runs_on_an_array_in_memory_and_its_members_are_counted() {
        let target = Target::on_array(5, 96 << 20, Mounting::default()).unwrap();
        assert_eq!(target.name, "lib:raid5=5");
        let measured = runs_on(target);
        let counted = |workload: Workload, name: &str| {
            let measured = measured.iter().find(|m| m.workload == workload.name()).unwrap();
            let figures = measured.outcomes[0].1.figures().unwrap();
            let count = figures.counts.iter().find(|count| count.name == name);
            count.map_or(0.0, |count| count.value)
        };
        assert!(counted(Workload::DirectWrite, "data_writes") >= 1.0);
        assert!(counted(Workload::DirectRead, "data_reads") >= 0.9);
        assert!(counted(Workload::DirectRead, "parity_reads") < 0.1);
    }

    #[test]
    fn targets_in_memory_are_not_charged_for_loop_devices() {
        let spent = Cpu { loop_devices: Duration::from_micros(46), ..Cpu::default() };
        let dir = in_memory();
        let host = crate::host::HostDirectory::open(dir.path()).unwrap();
        assert_eq!(charged(spent, &host).loop_devices, spent.loop_devices);
        for target in [
            Target::in_memory(64 << 20, Mounting::default()).unwrap(),
            Target::on_array(4, 96 << 20, Mounting::default()).unwrap(),
        ] {
            assert!(charged(spent, &*target.place).loop_devices.is_zero(), "{}", target.name);
        }
    }

    fn runs_on_the_library(how: Mounting) {
        runs_on(Target::in_memory(64 << 20, how).unwrap());
    }

    fn runs_on(target: Target) -> Vec<Measured> {
        let called = target.name.clone();
        let free = target.place.free_blocks().unwrap();
        let targets = [target];
        let all = run(&tiny(), &targets, |_| {});
        for measured in &all {
            let what = format!("{} with {} threads", measured.workload, measured.threads);
            let [(name, outcome)] = &measured.outcomes[..] else { panic!("{what}") };
            assert_eq!(*name, called);
            match outcome {
                Outcome::NotThere => assert_eq!(measured.workload, Workload::GitStatus.name()),
                Outcome::Ran(figures) => {
                    assert_eq!(figures.rates.len(), 2, "{what}");
                    assert!(outcome.rate().unwrap().min > 0.0, "{what}");
                }
                Outcome::Failed(why) => panic!("{what}: {why}"),
                Outcome::Interrupted => panic!("{what}: interrupted"),
            }
        }
        // The files of all workloads were removed, so nearly all blocks are free again.
        let left = free.abs_diff(targets[0].place.free_blocks().unwrap());
        assert!(left < 64, "{left} blocks");
        assert_eq!(targets[0].place.list(".").unwrap(), 1, "lost+found alone");
        all
    }

    #[test]
    fn every_workload_runs_on_a_directory() {
        let dir = in_memory();
        let place = Box::new(crate::host::HostDirectory::open(dir.path()).unwrap());
        let targets = [Target { name: "dir".into(), place, server: Server::None }];
        let mut plan = tiny();
        if crate::programs::program("git").is_none() {
            println!("skipped: there is no git");
            plan.workloads.retain(|workload| *workload != Workload::GitStatus);
        }
        for measured in run(&plan, &targets, |_| {}) {
            let (_, outcome) = &measured.outcomes[0];
            assert!(outcome.rate().is_some(), "{}: {outcome:?}", measured.workload);
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    /// A tree that asks the run to stop after a number of created files.
    struct Stopping {
        place: crate::host::HostDirectory,
        stop: Arc<Stop>,
        left: lanefs_lanes::sync::atomic::AtomicU64,
    }

    impl TargetTree for Stopping {
        fn make_dir(&self, path: &str) -> Result<()> {
            self.place.make_dir(path)
        }
        fn open<'a>(
            &'a self,
            path: &str,
            how: crate::target_tree::How,
        ) -> Result<Box<dyn crate::target_tree::Opened + 'a>> {
            use lanefs_lanes::sync::atomic::Ordering;
            if self.left.fetch_sub(1, Ordering::Relaxed) == 1 {
                self.stop.ask();
            }
            self.place.open(path, how)
        }
        fn stat(&self, path: &str) -> Result<u64> {
            self.place.stat(path)
        }
        fn make_unnamed<'a>(
            &'a self,
            dir: &str,
        ) -> Result<Box<dyn crate::target_tree::Opened + 'a>> {
            self.place.make_unnamed(dir)
        }
        fn remove(&self, path: &str) -> Result<()> {
            self.place.remove(path)
        }
        fn rename(&self, from: &str, to: &str) -> Result<()> {
            self.place.rename(from, to)
        }
        fn list(&self, path: &str) -> Result<u64> {
            self.place.list(path)
        }
        fn names(&self, path: &str) -> Result<Vec<String>> {
            self.place.names(path)
        }
        fn free_blocks(&self) -> Result<u64> {
            self.place.free_blocks()
        }
        fn remove_tree(&self, path: &str) -> Result<()> {
            self.place.remove_tree(path)
        }
        fn settle(&self) -> Result<()> {
            self.place.settle()
        }
    }

    /// Returns the results of a run that is stopped after `files` files were created.
    fn stopped_after(files: u64, workload: Workload) -> Vec<Measured> {
        let dir = in_memory();
        let plan = Plan {
            workloads: vec![workload, Workload::Stat],
            threads: vec![1],
            slices: 1000,
            ..tiny()
        };
        let place = Box::new(Stopping {
            place: crate::host::HostDirectory::open(dir.path()).unwrap(),
            stop: plan.stop.clone(),
            left: files.into(),
        });
        let targets = [Target { name: "dir".into(), place, server: Server::None }];
        let measured = run(&plan, &targets, |_| {});
        assert_eq!(dir.path().read_dir().unwrap().count(), 0, "nothing is left");
        measured
    }

    #[test]
    fn a_stopped_run_reports_its_whole_slices_and_leaves_no_files() {
        // The run is stopped before the first slice, while it creates the files to be read.
        assert!(stopped_after(7, Workload::Stat).is_empty());
        // Each slice creates 50 files, so the run is stopped in the fourth slice.
        let measured = stopped_after(170, Workload::Create);
        assert_eq!(measured.len(), 1);
        assert_eq!(measured[0].workload, "create");
        let slices = measured[0].outcomes[0].1.rates().len();
        assert!((1..1000).contains(&slices), "{slices} slices");
    }

    #[test]
    fn a_failure_on_one_target_does_not_stop_the_others() {
        let (good, gone) = (in_memory(), in_memory());
        let open = |dir: &tempfile::TempDir| Target {
            name: "dir".into(),
            place: Box::new(crate::host::HostDirectory::open(dir.path()).unwrap()),
            server: Server::None,
        };
        let targets = [open(&gone), open(&good)];
        drop(gone);
        let mut plan = tiny();
        plan.workloads = vec![Workload::Create];
        let measured = run(&plan, &targets, |_| {});
        assert!(matches!(measured[0].outcomes[0].1, Outcome::Failed(_)));
        assert!(measured[0].outcomes[1].1.rate().is_some());
    }
}
