//! Repairs of images with random changes of metadata. Both judges must find the repaired image
//! clean, and every file whose metadata the change did not touch must have its old contents.

use super::change::{self, Change, MOST_SHOWN, TOGETHER, put, rng_of};
use super::contents::{File, files};
use super::corpus::{Base, Corpus};
use super::verdicts::Verdicts;
use crate::image::Image;
use crate::random::in_parallel;
use lanefs_check::repair::{Plan, Shared, plan};
use lanefs_device::{Access, Device, FileDevice, OpenOptions};
use lanefs_lanes::sync::unscheduled::Mutex;
use lanefs_ondisk::Ino;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// The suite accepts that `MOST_LEFT` images still have faults after their repair, plus one for
/// each `MOST_LEFT_SHARE` repaired images. Faults remain in images that have neither a valid
/// superblock nor a valid copy of it, and in images with quotas.
const MOST_LEFT: u64 = 4;
const MOST_LEFT_SHARE: u64 = 40;

/// Counts of the results of repairs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Repairs {
    /// The number of images that were repaired.
    pub images: u64,
    /// The number of images in which the repair changed nothing, because they were clean.
    pub clean: u64,
    /// The key is the first fault that a repair left in an image; the value is the number of such
    /// images.
    pub left: BTreeMap<String, u64>,
}

impl fmt::Display for Repairs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} changed images repaired, {} of them were clean", self.images, self.clean)?;
        self.left.iter().try_for_each(|(fault, count)| write!(f, "; {count} left: {fault}"))
    }
}

impl Repairs {
    fn add(&mut self, other: Repairs) {
        self.images += other.images;
        self.clean += other.clean;
        for (fault, count) in other.left {
            *self.left.entry(fault).or_default() += count;
        }
    }
}

/// Makes `changes` changes on the images of `corpus`, and repairs the image after each change.
///
/// # Errors
/// Describes the images that are not clean after the repair, and the files that changed.
pub fn repair(corpus: &Corpus, seed: u64, changes: u64) -> Result<Repairs, String> {
    let bases = corpus.bases();
    if bases.is_empty() {
        return Ok(Repairs::default());
    }
    let found = Mutex::new((Repairs::default(), Vec::new()));
    in_parallel((0..changes.div_ceil(TOGETHER)).collect(), |job| {
        let base = &bases[(job % bases.len() as u64) as usize];
        let (repairs, wrong) = many(base, seed, job, TOGETHER.min(changes - job * TOGETHER));
        let mut found = found.lock().unwrap_or_else(|poison| poison.into_inner());
        found.0.add(repairs);
        found.1.extend(wrong);
    });
    let (repairs, wrong) = found.into_inner().unwrap_or_else(|poison| poison.into_inner());
    let left: u64 = repairs.left.values().sum();
    if wrong.is_empty() && left > MOST_LEFT + repairs.images / MOST_LEFT_SHARE {
        return Err(format!("too many images have faults that are left: {repairs}"));
    }
    if wrong.is_empty() {
        return Ok(repairs);
    }
    let shown: Vec<_> = wrong.iter().take(MOST_SHOWN).cloned().collect();
    Err(format!("{} of {} repairs:\n{}", wrong.len(), repairs.images, shown.join("\n")))
}

fn many(base: &Base, seed: u64, job: u64, count: u64) -> (Repairs, Vec<String>) {
    let (mut repairs, mut wrong) = (Repairs::default(), Vec::new());
    let whole = files(base.device()).expect("a clean image");
    let work = base.copy();
    let file = std::fs::OpenOptions::new().write(true).open(work.path()).expect("the copy opens");
    for n in 0..count {
        let mut rng = rng_of(seed, job, n);
        let change = change::choose(&mut rng, base.device(), base.parts());
        put(&file, change.writes.iter().map(|(at, bytes)| (*at, bytes.clone())));
        let mut written = Vec::new();
        repairs.images += 1;
        if let Err(why) = one(&work, base, &whole, &change, &mut repairs, &mut written) {
            wrong.push(format!("mke2fs {}: {change}\n{why}", base.options()));
        }
        written.extend(change.writes.iter().map(|(at, bytes)| (*at, bytes.len())));
        put(&file, written.into_iter().map(|(at, len)| (at, base.bytes(at, len))));
    }
    (repairs, wrong)
}

/// Repairs one changed image. Adds to `written` the offset and length of each write of the repair.
fn one(
    work: &Image,
    base: &Base,
    whole: &BTreeMap<Ino, File>,
    change: &Change,
    repairs: &mut Repairs,
    written: &mut Vec<(u64, usize)>,
) -> Result<(), String> {
    let open = || FileDevice::open(work.path(), Access::ReadWrite, OpenOptions::default());
    let device = Arc::new(open().expect("the copy opens"));
    let plan = match plan(device.clone(), Shared::Clone) {
        Ok(plan) => plan,
        Err(error) => {
            println!("left: mke2fs {}: {change}: {error}", base.options());
            *repairs.left.entry(error.to_string()).or_default() += 1;
            return Ok(());
        }
    };
    let writes = writes(&plan);
    let bits = plan.block_size().bits();
    for (block, bytes) in &writes {
        written.push((block.0 << bits, bytes.len()));
        device.write_at(block.0 << bits, bytes).expect("the copy is written");
    }
    repairs.clean += u64::from(writes.is_empty());
    if plan.leaves_faults() {
        let fault = plan.after.findings.iter().find(|f| f.harm() != lanefs_check::Harm::Note);
        println!("left: mke2fs {}: {change}\n{}", base.options(), shown(&plan));
        plan.after.findings.iter().take(8).for_each(|finding| println!("    ! {finding}"));
        let fault = fault.map(|finding| finding.fault.to_string()).unwrap_or_default();
        *repairs.left.entry(fault).or_default() += 1;
        return Ok(());
    }
    if let Some(feature) = plan.after.unchecked.first() {
        // The change has set a feature bit in the superblock, and neither judge knows this feature.
        println!("left: mke2fs {}: {change}: {feature}", base.options());
        *repairs.left.entry(feature.to_string()).or_default() += 1;
        return Ok(());
    }
    let done = shown(&plan);
    // The judges lock the image, so it must be closed before they run.
    drop((plan, device));
    let verdicts = Verdicts::of(work.path());
    if !verdicts.is_clean_for_e2fsck() || !verdicts.is_clean_for_lanefs() {
        return Err(verdicts.show(change) + &done);
    }
    let device = open().expect("the copy opens");
    compare(&device, whole, change, base).map_err(|why| format!("  {why}\n{done}"))
}

fn writes(plan: &Plan) -> Vec<lanefs_check::repair::Write> {
    let mut writes = plan.recovery().expect("readable");
    writes.extend(plan.repair().expect("readable"));
    writes
}

fn shown(plan: &Plan) -> String {
    plan.actions.iter().take(20).map(|action| format!("    {action}\n")).collect()
}

/// Compares the files whose metadata the change did not touch.
pub(super) fn compare(
    device: &dyn Device,
    whole: &BTreeMap<Ino, File>,
    change: &Change,
    base: &Base,
) -> Result<(), String> {
    let now = files(device).ok_or("the repaired image is not readable")?;
    for (ino, before) in whole {
        let is_touched = change.writes.iter().any(|(at, bytes)| {
            let end = at + bytes.len() as u64;
            let old = base.bytes(*at, bytes.len());
            before.metadata.iter().any(|range| {
                let from = range.start.max(*at);
                let to = range.end.min(end);
                from < to && {
                    let (from, to) = ((from - at) as usize, (to - at) as usize);
                    old[from..to] != bytes[from..to]
                }
            })
        });
        if is_touched {
            continue;
        }
        match now.get(ino) {
            None => return Err(format!("{ino} is lost")),
            Some(now) if now.content != before.content => {
                return Err(format!("{ino} changed: {:?} to {:?}", before.content, now.content));
            }
            Some(_) => {}
        }
    }
    Ok(())
}
