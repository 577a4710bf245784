//! Interrupts repairs at each write. An interrupted repair is completed by a second repair, or
//! reverted with the undo file.

use super::change::{self, Change, rng_of};
use super::contents::{File, files};
use super::corpus::{Base, Corpus};
use super::repair::compare;
use lanefs_check::repair::{Shared, plan};
use lanefs_check::{Options, Verdict, check};
use lanefs_device::{Device, Duration, Fault, FaultyDevice, Operation, OverlayDevice, RamDevice};
use lanefs_offline::{Repair, Undo};
use lanefs_ondisk::Ino;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

const CAP: u64 = 1 << 30;

/// How many repairs were tried, and how often they were interrupted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cuts {
    /// The number of repairs that were written through the log, and the number of writes at which
    /// they were interrupted.
    pub logged: (u64, u64),
    /// The number of repairs with an undo file, and the number of writes at which they were
    /// interrupted.
    pub undone: (u64, u64),
}

impl fmt::Display for Cuts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ((repairs, writes), (undone, cuts)) = (self.logged, self.undone);
        write!(f, "{repairs} repairs through the log cut at {writes} writes; ")?;
        write!(f, "{undone} repairs with an undo file cut at {cuts} writes")
    }
}

/// Repairs images, each with a single change, and interrupts each repair at each write.
///
/// # Errors
/// Describes an interruption after which the image was not repaired or a file had changed.
pub fn cut(corpus: &Corpus, seed: u64, changes: u64) -> Result<Cuts, String> {
    let mut cuts = Cuts::default();
    for base in corpus.bases() {
        let whole = files(base.device()).expect("a clean image");
        for n in 0..changes {
            let change = change::choose(&mut rng_of(seed, 0, n), base.device(), base.parts());
            let trial = Trial { base, whole: &whole, change: &change };
            trial
                .run(&mut cuts)
                .map_err(|why| format!("mke2fs {}: {change}: {why}", base.options()))?;
        }
    }
    Ok(cuts)
}

struct Trial<'a> {
    base: &'a Base,
    whole: &'a BTreeMap<Ino, File>,
    change: &'a Change,
}

impl Trial<'_> {
    fn run(&self, cuts: &mut Cuts) -> Result<(), String> {
        let copy = self.base.copy();
        let damaged = RamDevice::from_file(copy.path()).expect("the copy is read");
        for (at, bytes) in &self.change.writes {
            damaged.write_at(*at, bytes).expect("in memory");
        }
        let damaged: Arc<dyn Device> = Arc::new(damaged);
        let Ok(first) = plan(damaged.clone(), Shared::Clone) else { return Ok(()) };
        let repair = blocks(&first);
        let writes = repair.recovery.len() + repair.blocks.len();
        if first.leaves_faults() || writes == 0 {
            return Ok(());
        }
        let undo = repair.undo(&*damaged).map_err(|error| error.to_string())?;
        cuts.undone.0 += 1;
        for nth in 1..=writes as u64 {
            cuts.undone.1 += 1;
            undone(&damaged, &repair, &undo, nth)?;
        }
        if !first.has_log || !repair.fits_log(&damaged) {
            return Ok(());
        }
        cuts.logged.0 += 1;
        let count = {
            let counted = Arc::new(FaultyDevice::new(view(&damaged), None));
            let device: Arc<dyn Device> = counted.clone();
            repair.write_to_log(&device).map_err(|error| error.to_string())?;
            counted.count(Operation::Write)
        };
        for nth in 1..=count {
            cuts.logged.1 += 1;
            self.logged(&damaged, &repair, nth).map_err(|why| format!("write {nth}: {why}"))?;
        }
        Ok(())
    }

    /// Writes a repair through the log and interrupts it at its `nth` write. Then repairs the image
    /// again.
    fn logged(&self, damaged: &Arc<dyn Device>, repair: &Repair, nth: u64) -> Result<(), String> {
        let target = view(damaged);
        let cut: Arc<dyn Device> = Arc::new(FaultyDevice::new(target.clone(), Some(fault(nth))));
        if repair.write_to_log(&cut).is_ok() {
            return Err("the cut repair did not fail".into());
        }
        let again = plan(target.clone(), Shared::Clone).map_err(|error| error.to_string())?;
        if again.leaves_faults() {
            return Err(format!("faults are left: {:?}", again.after.findings));
        }
        let repair = blocks(&again);
        repair.write_in_place(&*target).map_err(|error| error.to_string())?;
        let options = Options { threads: 1, ..Options::default() };
        let report = check(target.clone(), &options, &|_| {}).map_err(|error| error.to_string())?;
        if report.verdict() != Verdict::Clean {
            return Err(format!("not clean: {:?}", report.findings));
        }
        compare(&*target, self.whole, self.change, self.base)
    }
}

/// Writes a repair in place and interrupts it at its `nth` write. Then restores the old blocks from
/// the undo file.
fn undone(damaged: &Arc<dyn Device>, repair: &Repair, undo: &Undo, nth: u64) -> Result<(), String> {
    let target = view(damaged);
    let cut = FaultyDevice::new(target.clone(), Some(fault(nth)));
    if repair.write_in_place(&cut).is_ok() {
        return Err(format!("write {nth}: the cut repair did not fail"));
    }
    let file = Undo::decode(&undo.encode()).map_err(|error| error.to_string())?;
    file.apply(&*target).map_err(|error| error.to_string())?;
    let now = repair.undo(&*target).map_err(|error| error.to_string())?;
    if &now == undo { Ok(()) } else { Err(format!("write {nth}: not all old blocks are back")) }
}

fn view(damaged: &Arc<dyn Device>) -> Arc<dyn Device> {
    Arc::new(OverlayDevice::new(damaged.clone(), CAP))
}

fn fault(nth: u64) -> Fault {
    Fault { operation: Operation::Write, nth, duration: Duration::FromThenOn }
}

fn blocks(plan: &lanefs_check::repair::Plan) -> Repair {
    let recovery = plan.recovery().expect("in memory");
    let blocks = plan.repair().expect("in memory");
    Repair { recovery, blocks, block_size: plan.block_size() }
}
