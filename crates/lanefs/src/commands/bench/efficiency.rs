//! `lanefs bench efficiency`

use super::progress::Progress;
use super::{Arguments, enter_private_mounts, failure, print, save, scale, tell_failures, threads};
use crate::cli::{Failure, Report};
use lanefs_bench::{AIMS, Machine, Mounting, Peers, Plan, Target, Tree, Workload};

/// Bytes of each image, as the kernel's: memory is taken only where it is written.
const IMAGE: u64 = 2 << 30;

/// Measures what operations cost beside the kernel's ext4.
pub fn measure(arguments: &Arguments, report: &Report) -> Result<(), Failure> {
    enter_private_mounts(arguments)?;
    let mut peers = Peers::new().map_err(failure)?;
    let library = Target::in_memory(IMAGE, Mounting::default()).map_err(failure)?;
    let kernel = peers.kernel_ext4().map_err(failure)?;
    let targets = [library, kernel];
    let workloads: Vec<Workload> = AIMS.iter().map(|aim| aim.workload).collect();
    let plan = Plan {
        workloads,
        threads: threads(arguments, &[1, 2]),
        slices: arguments.slices,
        slice: arguments.seconds / arguments.slices,
        scale: scale(arguments, Tree::default()),
    };
    let before = Machine::now();
    report.printed(print(&format!(
        "{before}\n{} slices of {:?} in turn; the library on a device in memory, the kernel's ext4 on a \
         loop device in memory\n{}",
        plan.slices,
        plan.slice,
        lanefs_bench::efficiency_head()
    )));
    let mut progress = Progress::new(&plan.workloads, &plan.threads);
    let all = lanefs_bench::run(&plan, &targets, |measured| {
        progress.clear();
        report.printed(print(&lanefs_bench::efficiency_line(measured)));
        tell_failures(measured, report);
        progress.next();
    });
    let after = Machine::now();
    report.printed(print(&format!("{}at the end: {after}\n", lanefs_bench::efficiency_foot())));
    // Before the mounts are taken from under them.
    drop(targets);
    drop(peers);
    save(arguments, &before, &after, &lanefs_bench::chapters(&all))
}
