//! Interrupts repairs at each write. An interrupted repair is completed by a second repair, or
//! reverted with the undo file.

use super::ours::{blocks, checked, repair};
use super::subject::{Damage, Subject};
use super::tree::{Name, Tree};
use lanefs_check::Verdict;
use lanefs_check::repair::{Shared, plan};
use lanefs_device::{Device, Duration, Fault, FaultyDevice, Operation, OverlayDevice};
use lanefs_offline::{Repair, Undo};
use std::fmt;
use std::sync::Arc;

const CAP: u64 = 1 << 30;
/// What a power cut writes as a whole or not at all.
const SECTOR: usize = 512;

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

impl Cuts {
    pub(super) fn add(&mut self, other: Cuts) {
        for (own, more) in [(&mut self.logged, other.logged), (&mut self.undone, other.undone)] {
            *own = (own.0 + more.0, own.1 + more.1);
        }
    }
}

impl fmt::Display for Cuts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ((repairs, writes), (undone, cuts)) = (self.logged, self.undone);
        write!(f, "{repairs} repairs through the log cut at {writes} writes; ")?;
        write!(f, "{undone} repairs with an undo file cut at {cuts} writes")
    }
}

/// Repairs a damaged image, and interrupts the repair at each write.
///
/// # Errors
/// Describes an interruption after which another repair does not end in the same tree.
pub fn cut(subject: &Subject, damage: &Damage) -> Result<Cuts, String> {
    let mut cuts = Cuts::default();
    let damaged = OverlayDevice::new(subject.device.clone(), CAP);
    for (at, bytes) in &damage.writes {
        damaged.write_at(*at, bytes).expect("in memory");
    }
    let Ok(whole) = repair(&damaged) else { return Ok(cuts) };
    let Some(tree) = Tree::of(&whole.view).filter(|_| whole.found.is_empty()) else {
        return Ok(cuts);
    };
    let damaged: Arc<dyn Device> = Arc::new(damaged);
    let damaged = without_fast_commits(&damaged)?;
    let Ok(first) = plan(damaged.clone(), Shared::Clone) else { return Ok(cuts) };
    let repair = blocks(&first);
    let writes = repair.recovery.len() + repair.blocks.len();
    if writes == 0 {
        return Ok(cuts);
    }
    let undo = repair.undo(&*damaged).map_err(|error| error.to_string())?;
    cuts.undone.0 += 1;
    cuts.undone.1 += undone(&damaged, &repair, &undo)?;
    if !first.has_log || !repair.fits_log(&damaged) {
        return Ok(cuts);
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
        logged(&damaged, &repair, nth, &tree).map_err(|why| format!("write {nth}: {why}"))?;
    }
    Ok(cuts)
}

/// Returns a view in which a transaction replaces the fast commits. Cuts of that step are not made
/// here.
fn without_fast_commits(damaged: &Arc<dyn Device>) -> Result<Arc<dyn Device>, String> {
    let view = view(damaged);
    // A log that cannot be read is repaired without it.
    drop(lanefs_ext4::log::replace_fast_commits(&view, None));
    Ok(view)
}

/// Writes a repair through the log and interrupts it at its `nth` write. Then repairs the image
/// again.
fn logged(damaged: &Arc<dyn Device>, first: &Repair, nth: u64, tree: &Tree) -> Result<(), String> {
    let target = Arc::new(OverlayDevice::new(damaged.clone(), CAP));
    let cut: Arc<dyn Device> = Arc::new(FaultyDevice::new(target.clone(), Some(fault(nth))));
    if first.write_to_log(&cut).is_ok() {
        return Err("the cut repair did not fail".into());
    }
    let again = repair(&target).map_err(|(class, why)| format!("{class}: {why}"))?;
    if let Some((class, why)) = again.found.first() {
        return Err(format!("{class}: {why}"));
    }
    let report = checked(Arc::new(again.view.fork()))?;
    if report.verdict() != Verdict::Clean {
        return Err(format!("not clean: {:?}", report.findings));
    }
    let now = Tree::of(&again.view).ok_or("not readable")?;
    let is_same = now.reachable == tree.reachable
        && names(&now).eq(names(tree))
        && tree.reachable.iter().all(|ino| now.nodes.get(ino) == tree.nodes.get(ino));
    if is_same { Ok(()) } else { Err("another tree than that of the whole repair".into()) }
}

fn names(tree: &Tree) -> impl Iterator<Item = (&Name, u32)> {
    tree.names.iter().map(|(name, (ino, _))| (name, *ino))
}

/// Writes a repair in place with an undo file, and interrupts it at each sector of each write.
/// Completes a copy of the image as another run does, and restores another copy. Returns the number
/// of interruptions.
fn undone(damaged: &Arc<dyn Device>, repair: &Repair, undo: &Undo) -> Result<u64, String> {
    let text = |error: lanefs_offline::Error| error.to_string();
    let whole = view(damaged);
    repair.write_in_place(&*whole).map_err(text)?;
    let report = checked(whole.clone())?;
    if report.verdict() != Verdict::Clean {
        return Err(format!("not clean: {:?}", report.findings));
    }
    let file = Undo::decode(&undo.encode()).map_err(text)?;
    let written = OverlayDevice::new(damaged.clone(), CAP);
    file.redo(&written).map_err(text)?;
    let within = |at: u64, bytes: &[u8]| bytes.len().min((damaged.len() - at) as usize);
    let changes = written.changes();
    let writes: Vec<_> = changes.iter().map(|(at, it)| (*at, &it[..within(*at, it)])).collect();
    let is_equal = |one: &dyn Device, other: &dyn Device| {
        writes.iter().all(|(at, bytes)| read(one, *at, bytes) == read(other, *at, bytes))
    };
    let target = view(damaged);
    let mut count = 0;
    for (at, bytes) in &writes {
        for (at, sector) in (*at..).step_by(SECTOR).zip(bytes.chunks(SECTOR)) {
            if read(&*target, at, sector) == sector {
                continue;
            }
            target.write_at(at, sector).map_err(|error| error.to_string())?;
            count += 1;
            let is_known = file.is_interrupted(&*target).map_err(text)?;
            if is_known == is_equal(&*target, &*whole) {
                return Err(format!("at {at}: the undo file says {is_known}"));
            }
            let (completed, restored) = (view(&target), view(&target));
            file.redo(&*completed).map_err(text)?;
            file.apply(&*restored).map_err(text)?;
            if !is_equal(&*completed, &*whole) || !is_equal(&*restored, &**damaged) {
                return Err(format!("at {at}: not all blocks are new, or old"));
            }
        }
    }
    Ok(count)
}

fn read(device: &dyn Device, at: u64, like: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; like.len()];
    device.read_at(at, &mut bytes).expect("in memory");
    bytes
}

fn view(damaged: &Arc<dyn Device>) -> Arc<dyn Device> {
    Arc::new(OverlayDevice::new(damaged.clone(), CAP))
}

fn fault(nth: u64) -> Fault {
    Fault { operation: Operation::Write, nth, duration: Duration::FromThenOn }
}
