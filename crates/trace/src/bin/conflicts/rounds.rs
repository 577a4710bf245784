//! Rounds of operations on live threads, all but the last few untraced.

use crate::operations::Operation;
use crate::setting::Setting;
use crate::stage::Stage;
use lanefs::FileSystem;
use lanefs_lanes::sync::unscheduled::{Mutex, PoisonError};
use lanefs_trace::{Footprint, Recorder, Workers};

/// Untraced rounds before the traced ones: caches fill, tables grow, stashes are drawn.
const WARM: usize = 2;

/// Names that each thread makes and removes before anything is traced in a shared directory.
const MINGLING: usize = 40;

/// The threads of a run, each on its stage.
pub struct Session<'c, 'fs> {
    pub fs: &'fs FileSystem,
    pub workers: &'c Workers<'c, Stage<'fs>>,
    pub recorder: Mutex<Recorder>,
}

impl Session<'_, '_> {
    /// Moves all threads to their directories in `setting`.
    pub fn enter(&self, setting: Setting) {
        for thread in 0..self.workers.threads() {
            self.workers.on(thread, |stage| stage.enter(setting));
        }
        if matches!(setting, Setting::Names | Setting::Small) {
            // In turns, so that the directories count as contended, and long enough after the last
            // split for their locks to be read without a shared line.
            for _ in 0..MINGLING {
                for thread in 0..self.workers.threads() {
                    self.workers.on(thread, Stage::mingle);
                }
            }
        }
    }

    /// The lines that each of the first `threads` threads touches in each of `rounds` rounds of
    /// `operation`, while no commit runs: `[round][thread]`.
    pub fn run(
        &self,
        operation: &'static Operation,
        threads: usize,
        rounds: usize,
    ) -> Vec<Vec<Footprint>> {
        self.fs.sync().expect("a RAM device does not fail");
        for _ in 0..WARM {
            self.prepare(operation, threads);
            for thread in 0..threads {
                self.workers.on(thread, |stage| (operation.act)(stage));
            }
        }
        (0..rounds)
            .map(|_| {
                self.prepare(operation, threads);
                (0..threads).map(|thread| self.trace(operation, thread)).collect()
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

    fn trace(&self, operation: &'static Operation, thread: usize) -> Footprint {
        let mut recorder = self.recorder.lock().unwrap_or_else(PoisonError::into_inner);
        let steps = &mut *recorder;
        self.workers.on(thread, |stage| steps.step(|| (operation.act)(stage)));
        recorder.footprint()
    }
}
