//! `lanefs bench seeds`: measures the seeds S1 to S5. A seed is a change that removed a contended
//! lock from the kernel's storage stack (docs/seeds.md).

use super::progress::Progress;
use super::run::{Run, failure, print};
use super::task::Arrays;
use crate::cli::Failure;
use lanefs_bench::raid::{FsMark, FsMarkLine, FsMarkPlan};
use lanefs_bench::{Chapter, Machine, Measured, Seed, SeedPlan};

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
    ) -> Result<Vec<Chapter>, Failure> {
        let plan = SeedPlan {
            threads: self.arguments.threads(&WORKERS),
            slices: self.arguments.slices,
            slice: self.arguments.slice(),
            image: IMAGE,
            log: self.arguments.log,
            stop: self.interruption.stop(),
        };
        self.report.printed(print(&format!("{before}\n")));
        let mut chapters = Vec::new();
        if !seeds.is_empty() {
            self.report.printed(print(&format!(
                "{} slices of {:?} in turn; images of {} GiB in groups of 32 MiB, in memory\n",
                plan.slices,
                plan.slice,
                IMAGE >> 30
            )));
            for seed in seeds {
                match self.seed(seed, &plan) {
                    Err(lanefs_bench::Error::Interrupted) => break,
                    Err(error) => return Err(failure(error)),
                    Ok(measured) if measured.is_empty() => {}
                    Ok(measured) => {
                        let title = format!("{} {}: {}", seed.name, seed.workload, seed.about);
                        chapters.push(Chapter { title, measured });
                    }
                }
            }
            self.report.printed(print(&lanefs_bench::seed_foot(&plan)));
        }
        if arrays == Arrays::Measured && !self.interruption.came() {
            chapters.extend(self.arrays()?);
        }
        Ok(chapters)
    }

    fn seed(&self, seed: &Seed, plan: &SeedPlan) -> lanefs_bench::Result<Vec<Measured>> {
        plan.stop.check()?;
        self.report.printed(print(&lanefs_bench::seed_head(seed)));
        let mut progress = Progress::new(&[seed.workload.name()], &plan.threads);
        let mut one = None;
        lanefs_bench::run_seed(seed, plan, |measured| {
            let alone = one.get_or_insert_with(|| lanefs_bench::alone(measured));
            self.show(&mut progress, measured, &lanefs_bench::seed_lines(measured, alone));
        })
    }

    /// Measures S4, the seed that concerns the array below the file system.
    fn arrays(&self) -> Result<Vec<Chapter>, Failure> {
        let plan = FsMarkPlan {
            threads: self.arguments.threads(&FsMarkPlan::default().threads),
            slices: self.arguments.slices,
            // In a slice of a few milliseconds, 64 threads could not even write one file each.
            slice: self.arguments.slice().max(FsMarkPlan::LEAST_SLICE),
            stop: self.interruption.stop(),
            ..FsMarkPlan::default()
        };
        self.report.printed(print(&format!("\n{}", FsMark::head(&plan))));
        let each = |line: &FsMarkLine| self.report.printed(print(&format!("{}\n", line.text())));
        let lines = FsMark::run(&plan, each).map_err(failure)?;
        Ok(FsMarkLine::chapters(&lines))
    }
}
