//! A run in progress, and the steps that are the same in all tasks.

use crate::command::arguments::Arguments;
use crate::command::task::{Arrays, Output};
use crate::figures::Measured;
use crate::library::Mounting;
use crate::machine::Machine;
use crate::peers::Peers;
use crate::plan::Plan;
use crate::raid::{FsMark, FsMarkLine, FsMarkPlan};
use crate::record::Chapter;
use crate::seeds::{Seed, SeedPlan};
use crate::stop::Stop;
use crate::target::Target;
use crate::workload::Workload;
use lanefs_fuse::daemon::Signals;
use lanefs_lanes::sync::Arc;
use lanefs_lanes::sync::atomic::{AtomicU32, Ordering};
use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Where a run prints.
pub trait Console {
    /// Prints results on standard output.
    fn print(&self, text: &str);
    /// Prints a message on standard error.
    fn tell(&self, text: &str);
    /// Prints a failure on standard error. The command fails at its end.
    fn fail(&self, failure: &str);
}

pub(super) struct Run<'a> {
    pub(super) arguments: &'a Arguments,
    pub(super) console: &'a dyn Console,
    /// The path of this program, if it runs in a private mount namespace.
    pub(super) program: Option<PathBuf>,
    pub(super) interruption: Interruption,
    pub(super) output: Output,
}

impl Run<'_> {
    /// Prints one result and advances the progress line.
    pub(super) fn show(&self, progress: &mut Progress, measured: &Measured, text: &str) {
        progress.clear();
        self.console.print(text);
        for (name, outcome) in &measured.outcomes {
            if let crate::figures::Outcome::Failed(why) = outcome {
                self.console.fail(&format!("{} on {name}: {why}", measured.workload));
            }
        }
        progress.next();
    }

    pub(super) fn plan(&self, workloads: Vec<Workload>, threads: &[u32]) -> Plan {
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

pub(super) fn failure(error: crate::error::Error) -> String {
    format!("cannot measure: {error}")
}

/// A second signal within this time counts as the same signal, because timeout(1) and make(1) send
/// each signal twice: to the process, and to its whole process group.
const TOGETHER: Duration = Duration::from_secs(1);

/// Watches for SIGINT, SIGTERM and SIGHUP. After the first signal, the run removes its files. A
/// later signal terminates the process at once.
pub struct Interruption {
    stop: Arc<Stop>,
    /// The number of the received signal, or 0.
    signal: Arc<AtomicU32>,
}

impl Interruption {
    /// Starts watching. Must be called before other threads and programs start, because they
    /// inherit the blocked signals.
    ///
    /// # Errors
    /// If the host refuses to set the signal mask or to create the thread.
    pub fn watch() -> io::Result<Interruption> {
        let signals = Signals::block_unless_ignored()?;
        let watched = Interruption { stop: Arc::default(), signal: Arc::new(AtomicU32::new(0)) };
        let (stop, signal) = (watched.stop.clone(), watched.signal.clone());
        std::thread::Builder::new().name("signals".into()).spawn(move || {
            let first = signals.wait();
            signal.store(first.unsigned_abs(), Ordering::Relaxed);
            stop.ask();
            if io::stderr().is_terminal() {
                // Start on a new line, after the progress line or the terminal's "^C".
                eprintln!();
            }
            // A closed standard error is ignored.
            let _ = writeln!(
                io::stderr(),
                "lanefs bench: interrupted: removing temporary files and mounts (a second signal \
                 ends at once)"
            );
            let since = Instant::now();
            loop {
                let again = signals.wait();
                if since.elapsed() >= TOGETHER {
                    std::process::exit(128 + again);
                }
            }
        })?;
        Ok(watched)
    }

    /// Returns the flag that the run checks.
    pub fn stop(&self) -> Arc<Stop> {
        self.stop.clone()
    }

    /// Returns whether a signal was received.
    pub fn came(&self) -> bool {
        self.stop.is_asked()
    }

    /// Returns the exit code after a signal, 128 plus its number as in shells; `None` without a
    /// signal.
    pub fn exit(&self) -> Option<u8> {
        match self.signal.load(Ordering::Relaxed) {
            0 => None,
            signal => Some(u8::try_from(128 + signal).unwrap_or(u8::MAX)),
        }
    }
}

/// A line on standard error that each step overwrites. Prints nothing unless standard error is a
/// terminal.
pub struct Progress {
    steps: Vec<String>,
    done: usize,
    begun: Instant,
    shown: bool,
}

impl Progress {
    /// Starts at the first step. A step is one workload with one number of threads.
    pub fn new(workloads: &[impl Display], threads: &[u32]) -> Progress {
        let steps = workloads.iter().flat_map(|workload| {
            threads.iter().map(move |count| format!("{workload}, threads: {count}"))
        });
        let shown = std::io::stderr().is_terminal();
        let progress = Progress { steps: steps.collect(), done: 0, begun: Instant::now(), shown };
        progress.show();
        progress
    }

    /// Erases the line, so that a result can be printed.
    pub fn clear(&self) {
        if self.shown {
            eprint!("\r\x1b[K");
        }
    }

    /// Advances by one step.
    pub fn next(&mut self) {
        self.done += 1;
        self.show();
    }

    fn show(&self) {
        let Some(step) = self.steps.get(self.done) else { return };
        if !self.shown {
            return;
        }
        let (done, all) = (self.done, self.steps.len());
        let passed = self.begun.elapsed().as_secs();
        let left = match done {
            0 => String::new(),
            done => format!(", about {} s left", passed * (all - done) as u64 / done as u64),
        };
        eprint!("\r\x1b[K[{}/{all}] {step}{left}", done + 1);
        // Errors of the progress line are ignored.
        let _ = std::io::stderr().flush();
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        // Without this call, an interrupted run would leave its progress line on the terminal.
        self.clear();
    }
}

impl Run<'_> {
    /// Measures these workloads on all targets.
    pub(super) fn workloads(
        &self,
        workloads: &[Workload],
        before: &Machine,
    ) -> Result<Vec<Chapter>, String> {
        let arguments = self.arguments;
        let mut peers = None;
        let mut targets = Vec::new();
        if let Some(program) = &self.program {
            let (found, missing) = self.set_up(&mut peers, program).map_err(failure)?;
            targets.extend(found);
            for error in missing {
                self.console.tell(&format!("lanefs bench: not measured: {error}"));
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
        head += &format!("\n{}", crate::report::table_head(&names));
        self.console.print(&head);
        let mut progress = Progress::new(&plan.workloads, &plan.threads);
        let all = crate::run::run(&plan, &targets, |measured| {
            self.show(&mut progress, measured, &crate::report::table(measured));
        });
        drop(progress);
        self.console.print(&crate::report::table_foot(&plan.threads));
        // The targets hold files open in the mounts of `peers`, so the targets are dropped first.
        drop(targets);
        drop(peers);
        Ok(crate::record::chapters(all))
    }

    fn set_up(
        &self,
        peers: &mut Option<Peers>,
        program: &Path,
    ) -> crate::error::Result<(Vec<Target>, Vec<crate::error::Error>)> {
        peers.insert(Peers::new(self.interruption.stop())?).set_up(program)
    }
}

impl Run<'_> {
    /// Measures the CPU time of operations, compared with the kernel's ext4.
    pub(super) fn efficiency(
        &self,
        workloads: &[Workload],
        before: &Machine,
    ) -> Result<Vec<Chapter>, String> {
        let mut peers = Peers::new(self.interruption.stop()).map_err(failure)?;
        let library = Target::in_memory(IMAGE, Mounting::default()).map_err(failure)?;
        let kernel = peers.kernel_ext4().map_err(failure)?;
        let targets = [library, kernel];
        let plan = self.plan(workloads.to_vec(), &[1, 2]);
        self.console.print(&format!(
            "{before}\n{} slices of {:?} in turn; the library on a device in memory, the kernel's ext4 on \
             a loop device in memory\n{}",
            plan.slices,
            plan.slice,
            crate::efficiency::efficiency_head()
        ));
        let mut progress = Progress::new(&plan.workloads, &plan.threads);
        let all = crate::run::run(&plan, &targets, |measured| {
            self.show(&mut progress, measured, &crate::efficiency::efficiency_line(measured));
        });
        self.console.print(&crate::efficiency::efficiency_foot());
        // The targets hold files open in the mounts, so the targets are dropped first.
        drop(targets);
        drop(peers);
        Ok(crate::record::chapters(all))
    }
}

// `lanefs bench seeds`: measures the seeds S1 to S5. A seed is a change that removed a contended
// lock from the kernel's storage stack (docs/seeds.md).

const WORKERS: [u32; 7] = [1, 2, 4, 8, 16, 32, 64];
/// Size of each image in bytes. A block takes no memory until it is written.
const IMAGE: u64 = 2 << 30;

impl Run<'_> {
    /// Measures `seeds`, which concern the file system, and S4 if `arrays` requests it.
    pub(super) fn seeds(
        &self,
        seeds: &[Seed],
        arrays: Arrays,
        before: &Machine,
    ) -> Result<Vec<Chapter>, String> {
        let plan = SeedPlan {
            threads: self.arguments.threads(&WORKERS),
            slices: self.arguments.slices,
            slice: self.arguments.slice(),
            image: IMAGE,
            log: self.arguments.log,
            stop: self.interruption.stop(),
        };
        self.console.print(&format!("{before}\n"));
        let mut chapters = Vec::new();
        if !seeds.is_empty() {
            self.console.print(&format!(
                "{} slices of {:?} in turn; images of {} GiB in groups of 32 MiB, in memory\n",
                plan.slices,
                plan.slice,
                IMAGE >> 30
            ));
            for seed in seeds {
                match self.seed(seed, &plan) {
                    Err(crate::error::Error::Interrupted) => break,
                    Err(error) => return Err(failure(error)),
                    Ok(measured) if measured.is_empty() => {}
                    Ok(measured) => {
                        let title = format!("{} {}: {}", seed.name, seed.workload, seed.about);
                        chapters.push(Chapter { title, measured });
                    }
                }
            }
            self.console.print(&crate::seeds::seed_foot(&plan));
        }
        if arrays == Arrays::Measured && !self.interruption.came() {
            chapters.extend(self.arrays()?);
        }
        Ok(chapters)
    }

    fn seed(&self, seed: &Seed, plan: &SeedPlan) -> crate::error::Result<Vec<Measured>> {
        plan.stop.check()?;
        self.console.print(&crate::seeds::seed_head(seed));
        let mut progress = Progress::new(&[seed.workload.name()], &plan.threads);
        let mut one = None;
        crate::seeds::run_seed(seed, plan, |measured| {
            let alone = one.get_or_insert_with(|| crate::seeds::alone(measured));
            self.show(&mut progress, measured, &crate::seeds::seed_lines(measured, alone));
        })
    }

    /// Measures S4, the seed that concerns the array below the file system.
    fn arrays(&self) -> Result<Vec<Chapter>, String> {
        let plan = FsMarkPlan {
            threads: self.arguments.threads(&FsMarkPlan::default().threads),
            slices: self.arguments.slices,
            // In a slice of a few milliseconds, 64 threads could not even write one file each.
            slice: self.arguments.slice().max(FsMarkPlan::LEAST_SLICE),
            stop: self.interruption.stop(),
            ..FsMarkPlan::default()
        };
        self.console.print(&format!("\n{}", FsMark::head(&plan)));
        let each = |line: &FsMarkLine| self.console.print(&format!("{}\n", line.text()));
        let lines = FsMark::run(&plan, each).map_err(failure)?;
        Ok(FsMarkLine::chapters(&lines))
    }
}
