//! `lanefs bench efficiency`

use super::progress::Progress;
use super::run::{Run, failure, print};
use crate::cli::Failure;
use lanefs_bench::{Chapter, Machine, Mounting, Peers, Target, Workload};

/// Size of the library's image in bytes. The image of the kernel's ext4, which [`Peers`] makes, has
/// the same size. A block takes no memory until it is written.
const IMAGE: u64 = 2 << 30;

impl Run<'_> {
    /// Measures the CPU time of operations, compared with the kernel's ext4.
    pub(super) fn efficiency(
        &self,
        workloads: &[Workload],
        before: &Machine,
    ) -> Result<Vec<Chapter>, Failure> {
        let mut peers = Peers::new(self.interruption.stop()).map_err(failure)?;
        let library = Target::in_memory(IMAGE, Mounting::default()).map_err(failure)?;
        let kernel = peers.kernel_ext4().map_err(failure)?;
        let targets = [library, kernel];
        let plan = self.plan(workloads.to_vec(), &[1, 2]);
        self.report.printed(print(&format!(
            "{before}\n{} slices of {:?} in turn; the library on a device in memory, the kernel's ext4 on \
             a loop device in memory\n{}",
            plan.slices,
            plan.slice,
            lanefs_bench::efficiency_head()
        )));
        let mut progress = Progress::new(&plan.workloads, &plan.threads);
        let all = lanefs_bench::run(&plan, &targets, |measured| {
            self.show(&mut progress, measured, &lanefs_bench::efficiency_line(measured));
        });
        self.report.printed(print(&lanefs_bench::efficiency_foot()));
        // The targets hold files open in the mounts, so the targets are dropped first.
        drop(targets);
        drop(peers);
        Ok(lanefs_bench::chapters(all))
    }
}
