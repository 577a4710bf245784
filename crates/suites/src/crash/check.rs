//! Checks the crash states of one workload.

use super::checker::{Checker, Ways};
use super::tally::{Findings, Tally};
use super::workload::{options_of, record};
use crate::together::Bases;
use lanefs_device::{Device, Kept};
use std::collections::HashSet;
use std::sync::Arc;

/// Which cuts are checked. A cut is a position between two events of a recording, at which a crash
/// is simulated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cuts {
    /// All cuts.
    Every,
    /// About this many cuts, evenly spaced.
    About(usize),
}

/// Records a workload of `ops` operations and checks its crash states. e2fsck checks all of them
/// too.
///
/// # Errors
/// Returns the first state in which a check fails.
pub fn check(seed: u64, ops: usize, cuts: Cuts) -> Result<Findings, String> {
    let tally = Tally::new(1);
    check_workload(&Bases::default(), options_of(seed), seed, ops, cuts, &tally)?;
    Ok(tally.findings())
}

/// Works like [`check`], on an image that mke2fs makes with `set`: options and a size.
///
/// # Errors
/// Returns the first state in which a check fails.
pub fn check_on(
    set: (&'static str, &'static str),
    seed: u64,
    ops: usize,
    cuts: Cuts,
) -> Result<Findings, String> {
    let tally = Tally::new(1);
    check_workload(&Bases::default(), set, seed, ops, cuts, &tally)?;
    Ok(tally.findings())
}

/// Works like [`check_on`], and adds the counts to `tally`.
pub(super) fn check_workload(
    bases: &Bases,
    (options, size): (&'static str, &'static str),
    seed: u64,
    ops: usize,
    cuts: Cuts,
    tally: &Tally,
) -> Result<(), String> {
    let described = |why| format!("seed {seed} ({options}): {why}");
    let Some(image) = bases.fresh(options, size) else { return Ok(()) };
    let plain = |device: Arc<dyn Device>| device;
    let history = record(image, options, seed, ops, &plain)
        .map_err(|why| described(format!("before: {why}")))?;
    let mut checker = Checker::new(&history, tally).map_err(described)?;
    let every = match cuts {
        Cuts::Every => 1,
        Cuts::About(count) => (checker.cuts() / count).max(1),
    };
    let mut rng = fastrand::Rng::with_seed(seed);
    let cuts: Vec<usize> = (rng.usize(..every)..=checker.cuts()).step_by(every).collect();
    let durable: HashSet<usize> =
        cuts.iter().copied().filter(|cut| checker.is_durable(*cut)).collect();
    let ways = |cut: usize| {
        let seed = seed << 32 | (cut as u64) << 2;
        let mut kept = Vec::new();
        if durable.contains(&cut) {
            kept.push(Kept::Unended { seed });
        }
        kept.extend([Kept::Some { seed }, Kept::Torn { seed }, Kept::Torn { seed: seed + 1 }]);
        if cut.is_multiple_of(3) {
            kept.extend([Kept::All, Kept::None]);
        }
        Ways { kept, again: if (cut / every).is_multiple_of(16) { 6 } else { 0 } }
    };
    checker.check_cuts(&cuts, &ways).map_err(described)
}
