//! Targets take turns, slice by slice.

use crate::statistics::Summary;
use crate::workload::{Seat, Step, Worker};
use crate::{Result, Scale, Server, Target, Workload, cpu};
use lanefs_lanes::sync::thread;
use std::time::{Duration, Instant};

/// What is to be measured.
#[derive(Debug, Clone)]
pub struct Plan {
    /// In this order.
    pub workloads: Vec<Workload>,
    /// How many threads; each count is measured for itself.
    pub threads: Vec<u32>,
    /// How often each target has its turn.
    pub slices: u32,
    /// How long a turn is.
    pub slice: Duration,
    /// How large things are.
    pub scale: Scale,
}

/// What one workload gave with one number of threads: an outcome for each target.
#[derive(Debug)]
pub struct Measured {
    /// The workload.
    pub workload: Workload,
    /// Threads.
    pub threads: u32,
    /// In the order of the targets: name, and what became of it.
    pub outcomes: Vec<(String, Outcome)>,
}

/// What became of a workload on a target.
#[derive(Debug)]
pub enum Outcome {
    /// It ran.
    Ran {
        /// Operations per second, slice by slice.
        rates: Vec<f64>,
        /// CPU time of one operation, this process and the server, if the host tells.
        cpu_per_op: Option<Duration>,
    },
    /// It failed; why.
    Failed(String),
    /// It cannot be run there.
    NotThere,
}

impl Outcome {
    /// Operations per second.
    pub fn rate(&self) -> Option<Summary> {
        Summary::of(self.rates().iter().copied())
    }

    /// How many times as fast as `first`, slice by slice.
    pub fn ratio_to(&self, first: &Outcome) -> Option<Summary> {
        Summary::of_ratios(self.rates(), first.rates())
    }

    /// Slice by slice; empty if it did not run.
    pub fn rates(&self) -> &[f64] {
        match self {
            Outcome::Ran { rates, .. } => rates,
            Outcome::Failed(_) | Outcome::NotThere => &[],
        }
    }
}

/// Measures what `plan` says on `targets`; `each` hears of every workload when it is done.
pub fn run(plan: &Plan, targets: &[Target], mut each: impl FnMut(&Measured)) -> Vec<Measured> {
    let mut all = Vec::new();
    for &workload in &plan.workloads {
        for &threads in &plan.threads {
            let outcomes = take_turns(plan, workload, threads, targets);
            let measured = Measured { workload, threads, outcomes };
            each(&measured);
            all.push(measured);
        }
    }
    all
}

/// A target in the run of one workload.
struct Contestant<'a> {
    target: &'a Target,
    /// The directory for this workload.
    dir: String,
    workers: Vec<Box<dyn Worker + 'a>>,
    rates: Vec<f64>,
    operations: u64,
    cpu: Option<Duration>,
    state: State,
}

enum State {
    Running,
    Failed(String),
    NotThere,
}

fn take_turns(
    plan: &Plan,
    workload: Workload,
    threads: u32,
    targets: &[Target],
) -> Vec<(String, Outcome)> {
    let begin = |target| Contestant::begin(plan, workload, threads, target);
    let mut contestants: Vec<Contestant<'_>> = targets.iter().map(begin).collect();
    for _ in 0..plan.slices {
        for contestant in &mut contestants {
            if let State::Running = contestant.state
                && let Err(error) = contestant.turn(plan.slice)
            {
                contestant.state = State::Failed(error.to_string());
            }
        }
    }
    contestants.into_iter().map(Contestant::end).collect()
}

impl<'a> Contestant<'a> {
    fn begin(plan: &'a Plan, workload: Workload, threads: u32, target: &'a Target) -> Self {
        let mut contestant = Contestant {
            target,
            dir: format!("bench-{workload}-{threads}"),
            workers: Vec::new(),
            rates: Vec::new(),
            operations: 0,
            cpu: Some(Duration::ZERO),
            state: State::NotThere,
        };
        if workload.fits(&*target.place) {
            contestant.state = match contestant.sit(workload, threads, &plan.scale) {
                Ok(()) => State::Running,
                Err(error) => State::Failed(error.to_string()),
            };
        }
        contestant
    }

    fn sit(&mut self, workload: Workload, threads: u32, scale: &'a Scale) -> Result<()> {
        let place = &*self.target.place;
        place.make_dir(&self.dir)?;
        for thread in 0..threads {
            let own = format!("{}/t{thread}", self.dir);
            place.make_dir(&own)?;
            let seat = Seat { place, shared: self.dir.clone(), own, thread, scale };
            self.workers.push(workload.sit(seat)?);
        }
        Ok(())
    }

    fn turn(&mut self, slice: Duration) -> Result<()> {
        let place = &*self.target.place;
        for worker in &mut self.workers {
            worker.prepare(Instant::now() + slice)?;
        }
        place.settle()?;
        let cpu_before = self.cpu_now();
        let (operations, time) = race(&mut self.workers, slice)?;
        let cpu_after = self.cpu_now();
        let spent = cpu_after.zip(cpu_before).map(|(after, before)| after.saturating_sub(before));
        self.cpu = self.cpu.zip(spent).map(|(sum, spent)| sum + spent);
        self.operations += operations;
        if operations > 0 {
            self.rates.push(operations as f64 / time.as_secs_f64().max(1e-9));
        }
        for worker in &mut self.workers {
            worker.clean()?;
        }
        place.settle()
    }

    fn cpu_now(&self) -> Option<Duration> {
        let own = cpu::of_this_process()?;
        match self.target.server {
            Server::None => Some(own),
            Server::Process(pid) => Some(own + cpu::of_process(pid)?),
        }
    }

    fn end(mut self) -> (String, Outcome) {
        // Open files first: what is open is not gone when it is removed.
        self.workers.clear();
        if !matches!(self.state, State::NotThere) {
            let removed = self.target.place.remove_tree(&self.dir);
            if let (State::Running, Err(error)) = (&self.state, removed) {
                self.state = State::Failed(error.to_string());
            }
        }
        let outcome = match self.state {
            State::Failed(why) => Outcome::Failed(why),
            State::NotThere => Outcome::NotThere,
            State::Running => {
                let count = u32::try_from(self.operations).unwrap_or(u32::MAX);
                Outcome::Ran {
                    rates: self.rates,
                    cpu_per_op: self.cpu.and_then(|cpu| cpu.checked_div(count)),
                }
            }
        };
        (self.target.name.clone(), outcome)
    }
}

/// Runs all workers at once for `slice`; gives the operations of all, and how long the slowest
/// took.
fn race(workers: &mut [Box<dyn Worker + '_>], slice: Duration) -> Result<(u64, Duration)> {
    // They start together because they all sleep until then: what they would wait on otherwise
    // would be shared.
    let start = Instant::now() + Duration::from_millis(2);
    let runs = thread::scope(|scope| {
        let threads: Vec<_> = workers
            .iter_mut()
            .map(|worker| scope.spawn(move || work(&mut **worker, start, slice)))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect::<Result<Vec<_>>>()
    })?;
    let operations = runs.iter().map(|(operations, _)| operations).sum();
    let time = runs.iter().map(|(_, time)| *time).max().unwrap_or_default();
    Ok((operations, time))
}

/// Operations that pass unseen by the clock: at most so many, at most for about so long.
const UNWATCHED: u64 = 64;
const UNWATCHED_TIME: Duration = Duration::from_micros(50);

fn work(worker: &mut dyn Worker, start: Instant, slice: Duration) -> Result<(u64, Duration)> {
    thread::sleep(start.saturating_duration_since(Instant::now()));
    let begun = Instant::now();
    let (mut operations, mut batch, mut seen) = (0, 1, begun);
    loop {
        for _ in 0..batch {
            if worker.step()? == Step::NothingLeft {
                return Ok((operations, begun.elapsed()));
            }
            operations += 1;
        }
        let now = Instant::now();
        if now - begun >= slice {
            return Ok((operations, now - begun));
        }
        // A clock is not read for nothing where an operation takes less than a microsecond.
        batch = if now - seen < UNWATCHED_TIME { (batch * 2).min(UNWATCHED) } else { 1 };
        seen = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Tree;
    use lanefs_lanes::sync::Arc;

    fn tiny() -> Plan {
        let tree = Arc::new(Tree::made_up(45));
        Plan {
            workloads: Workload::ALL.to_vec(),
            threads: vec![2],
            slices: 2,
            slice: Duration::from_millis(5),
            scale: Scale { files: 20, new_files: 50, file_bytes: 2 << 20, tree },
        }
    }

    /// A directory where syncfs is quick, if there is one.
    fn in_memory() -> tempfile::TempDir {
        tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
    }

    fn has_mke2fs() -> bool {
        let there = crate::peers::program("mke2fs").is_some();
        if !there {
            println!("skipped: there is no mke2fs (package e2fsprogs)");
        }
        there
    }

    #[test]
    fn every_workload_runs_on_the_library_in_ram() {
        if !has_mke2fs() {
            return;
        }
        let target = Target::in_memory(64 << 20).unwrap();
        let free = target.place.free_blocks().unwrap();
        let targets = [target];
        for measured in run(&tiny(), &targets, |_| {}) {
            let what = format!("{} with {} threads", measured.workload, measured.threads);
            let [(name, outcome)] = &measured.outcomes[..] else { panic!("{what}") };
            assert_eq!(name, "lib:ram");
            match outcome {
                Outcome::NotThere => assert_eq!(measured.workload, Workload::GitStatus),
                Outcome::Ran { rates, .. } => {
                    assert_eq!(rates.len(), 2, "{what}");
                    assert!(outcome.rate().unwrap().min > 0.0, "{what}");
                }
                Outcome::Failed(why) => panic!("{what}: {why}"),
            }
        }
        // Nothing is left behind but blocks of the root directory and of groups first used.
        let left = free.abs_diff(targets[0].place.free_blocks().unwrap());
        assert!(left < 64, "{left} blocks");
        assert_eq!(targets[0].place.list(".").unwrap(), 1, "lost+found alone");
    }

    #[test]
    fn every_workload_runs_on_a_directory() {
        let dir = in_memory();
        let place = Box::new(crate::HostDirectory::open(dir.path()).unwrap());
        let targets = [Target { name: "dir".into(), place, server: Server::None }];
        let mut plan = tiny();
        if crate::peers::program("git").is_none() {
            println!("skipped: there is no git");
            plan.workloads.retain(|workload| *workload != Workload::GitStatus);
        }
        for measured in run(&plan, &targets, |_| {}) {
            let (_, outcome) = &measured.outcomes[0];
            assert!(outcome.rate().is_some(), "{}: {outcome:?}", measured.workload);
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_failure_on_one_target_does_not_stop_the_others() {
        let (good, gone) = (in_memory(), in_memory());
        let open = |dir: &tempfile::TempDir| Target {
            name: "dir".into(),
            place: Box::new(crate::HostDirectory::open(dir.path()).unwrap()),
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
