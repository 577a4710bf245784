//! Random changes of metadata, judged by the checker and by e2fsck.
//!
//! A change alters one bit, one field or one whole part of a clean image; the checksum of the part
//! is corrected or left as it was. The two judges must agree on whether the changed image is clean.
//! `verdicts` lists the faults that e2fsck is known to miss, with the reasons. Changes that cause
//! one of these faults are counted.

mod change;
mod contents;
mod corpus;
mod cut;
mod parts;
mod repair;
mod verdicts;

use crate::random::in_parallel;
use change::{Change, MOST_SHOWN, TOGETHER};
use corpus::Base;
use lanefs_lanes::sync::unscheduled::Mutex;
use std::collections::BTreeMap;
use std::fmt;

pub use change::{choose, put, rng_of};
pub use corpus::{Corpus, Extent, limit};
pub use cut::{Cuts, cut};
pub use parts::{Kind, Part, Parts};
pub use repair::{Repairs, repair};
pub use verdicts::Verdicts;

/// How often the verdicts of the two judges agreed or differed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
    /// The number of changes that were judged.
    pub changes: u64,
    /// The number of changes after which both judges found the image clean.
    pub clean: u64,
    /// For each known reason why e2fsck misses a fault: how many changes caused such a fault, which
    /// only the checker found.
    pub missed: BTreeMap<&'static str, u64>,
}

impl Tally {
    fn add(&mut self, other: &Tally) {
        self.changes += other.changes;
        self.clean += other.clean;
        for (why, count) in &other.missed {
            *self.missed.entry(why).or_default() += count;
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} changes, {} of them harmless", self.changes, self.clean)?;
        self.missed.iter().try_for_each(|(why, count)| write!(f, "; {count}: {why}"))
    }
}

/// Makes `changes` changes on the images of `corpus`, on all processors.
///
/// # Errors
/// The error describes the changes after which the verdicts of the judges differ.
pub fn check(corpus: &Corpus, seed: u64, changes: u64) -> Result<Tally, String> {
    let bases = corpus.bases();
    if bases.is_empty() {
        return Ok(Tally::default());
    }
    let found = Mutex::new((Tally::default(), Vec::new()));
    in_parallel((0..changes.div_ceil(TOGETHER)).collect(), |job| {
        let base = &bases[(job % bases.len() as u64) as usize];
        let (tally, differences) = many(base, seed, job, TOGETHER.min(changes - job * TOGETHER));
        let mut found = found.lock().unwrap_or_else(|poison| poison.into_inner());
        found.0.add(&tally);
        found.1.extend(differences);
    });
    let (tally, differences) = found.into_inner().unwrap_or_else(|poison| poison.into_inner());
    if differences.is_empty() {
        return Ok(tally);
    }
    let shown: Vec<_> = differences.iter().take(MOST_SHOWN).cloned().collect();
    Err(format!("{} of {} changes:\n{}", differences.len(), tally.changes, shown.join("\n")))
}

/// Makes the changes of one job. Each change is undone before the next one.
fn many(base: &Base, seed: u64, job: u64, count: u64) -> (Tally, Vec<String>) {
    let (mut tally, mut differences) = (Tally::default(), Vec::new());
    let work = base.copy();
    let file = std::fs::OpenOptions::new().write(true).open(work.path()).expect("the copy opens");
    for n in 0..count {
        let mut rng = rng_of(seed, job, n);
        let change = change::choose(&mut rng, base.device(), base.parts());
        put(&file, change.writes.iter().map(|(at, bytes)| (*at, bytes.clone())));
        let verdicts = Verdicts::of(work.path());
        put(&file, change.writes.iter().map(|(at, bytes)| (*at, base.bytes(*at, bytes.len()))));
        tally.changes += 1;
        compare(&mut tally, &mut differences, base, &change, &verdicts);
    }
    (tally, differences)
}

fn compare(
    tally: &mut Tally,
    differences: &mut Vec<String>,
    base: &Base,
    change: &Change,
    verdicts: &Verdicts,
) {
    match (verdicts.agree(), verdicts.known()) {
        (true, _) => tally.clean += u64::from(verdicts.is_clean_for_lanefs()),
        (false, Some(why)) => *tally.missed.entry(why).or_default() += 1,
        (false, None) => {
            differences.push(format!("mke2fs {}: {}", base.options(), verdicts.show(change)));
        }
    }
}
