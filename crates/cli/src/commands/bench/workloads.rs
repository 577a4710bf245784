//! `lanefs bench WORKLOAD...`

use super::progress::Progress;
use super::run::{Run, failure, print};
use crate::cli::{Failure, complain};
use lanefs_bench::{Chapter, Machine, Peers, Target, Workload};
use std::path::Path;

impl Run<'_> {
    /// Measures these workloads on all targets.
    pub(super) fn workloads(
        &self,
        workloads: &[Workload],
        before: &Machine,
    ) -> Result<Vec<Chapter>, Failure> {
        let arguments = self.arguments;
        let mut peers = None;
        let mut targets = Vec::new();
        if let Some(program) = &self.program {
            let (found, missing) = self.set_up(&mut peers, program).map_err(failure)?;
            targets.extend(found);
            for error in missing {
                complain(format_args!("lanefs bench: not measured: {error}"));
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
        head += &format!("\n{}", lanefs_bench::table_head(&names));
        self.report.printed(print(&head));
        let mut progress = Progress::new(&plan.workloads, &plan.threads);
        let all = lanefs_bench::run(&plan, &targets, |measured| {
            self.show(&mut progress, measured, &lanefs_bench::table(measured));
        });
        drop(progress);
        self.report.printed(print(&lanefs_bench::table_foot(&plan.threads)));
        // The targets hold files open in the mounts of `peers`, so the targets are dropped first.
        drop(targets);
        drop(peers);
        Ok(lanefs_bench::chapters(all))
    }

    fn set_up(
        &self,
        peers: &mut Option<Peers>,
        program: &Path,
    ) -> lanefs_bench::Result<(Vec<Target>, Vec<lanefs_bench::Error>)> {
        peers.insert(Peers::new(self.interruption.stop())?).set_up(program)
    }
}
