//! Runs rounds of operations on the threads; only the last few are traced.

use crate::operations::Operation;
use crate::setting::Setting;
use crate::stage::Stage;
use lanefs::FileSystem;
use lanefs_lanes::sync::unscheduled::{Mutex, PoisonError};
use lanefs_trace::{Footprint, Recorder, Workers};

/// The number of untraced rounds before the traced ones. They fill the caches and the lanes'
/// stashes, and grow the tables.
const WARM: usize = 2;

/// The number of names that each thread creates and removes in a shared directory before tracing.
const MINGLING: usize = 40;

/// The threads of a run, each with its stage.
pub struct Session<'c, 'fs> {
    pub fs: &'fs FileSystem,
    pub workers: &'c Workers<'c, Stage<'fs>>,
    pub recorder: Mutex<Recorder>,
}

impl Session<'_, '_> {
    /// Moves all threads to their directories in `setting`.
    pub fn enter(&self, setting: Setting) {
        if setting == Setting::Made {
            let threads = self.workers.threads();
            self.workers.on(0, move |stage| (0..threads).for_each(|me| stage.make_for(me)));
        }
        for thread in 0..self.workers.threads() {
            self.workers.on(thread, |stage| stage.enter(setting));
        }
        if matches!(setting, Setting::Names | Setting::AnyNames | Setting::Small) {
            // The threads alternate, so that the directories count as contended. `MINGLING` is so
            // large that many rounds still follow the last split of a leaf. After these rounds,
            // each lane again has a line of its own, on which it counts its shared holds of the
            // locks.
            //
            // After each thread, the thread before it works once more. If the threads always came
            // in the same order, the allocator would take them for clients that come one after
            // another. Such clients get no block groups of their own.
            for _ in 0..MINGLING {
                for thread in 0..self.workers.threads() {
                    self.workers.on(thread, Stage::mingle);
                    self.workers.on(thread.saturating_sub(1), Stage::mingle);
                }
            }
        }
    }

    /// Returns the lines that each of the first `threads` threads touches in each of `rounds`
    /// rounds of `operation`, as `[round][thread]`. No commit runs meanwhile.
    pub fn run(
        &self,
        operation: &'static Operation,
        threads: usize,
        rounds: usize,
    ) -> Vec<Vec<Footprint>> {
        self.warm(operation, threads, WARM);
        (0..rounds)
            .map(|_| {
                self.prepare(operation, threads);
                (0..threads).map(|thread| self.trace(thread, operation.act)).collect()
            })
            .collect()
    }

    fn prepare(&self, operation: &'static Operation, threads: usize) {
        for thread in 0..threads {
            self.workers.on(thread, |stage| {
                stage.next_round();
                (operation.prepare)(stage);
            });
        }
    }

    /// Commits, and runs untraced rounds of `operation`.
    pub fn warm(&self, operation: &'static Operation, threads: usize, rounds: usize) {
        self.fs.sync().expect("a RAM device does not fail");
        self.untraced(operation, threads, rounds);
    }

    /// Runs untraced rounds of `operation`.
    pub fn untraced(&self, operation: &'static Operation, threads: usize, rounds: usize) {
        for _ in 0..rounds {
            self.prepare(operation, threads);
            for thread in 0..threads {
                self.workers.on(thread, |stage| (operation.act)(stage));
            }
        }
    }

    /// Runs more untraced rounds on each thread than on the thread before it, as threads that run by
    /// themselves do. Otherwise all threads would do their occasional work in the same round.
    pub fn stagger(&self, operation: &'static Operation, threads: usize) {
        for first in 1..threads {
            for thread in first..threads {
                self.workers.on(thread, |stage| {
                    stage.next_round();
                    (operation.prepare)(stage);
                    (operation.act)(stage);
                });
            }
        }
    }

    /// Returns the lines that `work` touches on a thread.
    pub fn trace(&self, thread: usize, work: fn(&mut Stage<'_>)) -> Footprint {
        let mut recorder = self.recorder.lock().unwrap_or_else(PoisonError::into_inner);
        let steps = &mut *recorder;
        self.workers.on(thread, |stage| steps.step(|| work(stage)));
        recorder.footprint()
    }
}
