//! The crash suite runs a workload on a recording device. In every crash state that the recording
//! allows, every promised change must be present, and no change that the workload did not make.
//!
//! One thread runs the workload, so the tree after a crash must be the tree after *some* operation:
//! not before the last promised one, and not after the last one that had started. Each word of data
//! names the file, operation and position it was written for (see [`words`]).

pub mod checker;
mod digest;
pub mod states;
mod tally;
mod volume;
pub mod workload;

pub use checker::{Checker, Ways};
pub use tally::{Findings, Tally};
pub use volume::many;
pub use workload::{History, record};

use crate::together::Bases;
use lanefs_device::{Device, Kept};
use std::collections::HashSet;
use std::sync::Arc;

/// The options for mke2fs: small logs, so that they wrap and are checkpointed.
pub const OPTIONS: [(&str, &str); 4] = [
    ("-b 1024 -J size=1 -N 600", "14M"),
    ("-b 4096 -J size=4 -N 600", "20M"),
    ("-b 1024 -J size=1 -N 600 -O ^orphan_file,^metadata_csum_seed", "14M"),
    ("-b 1024 -J size=1 -N 600 -O ^metadata_csum,^orphan_file,^64bit", "14M"),
];

/// The cuts of a recording to check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cuts {
    /// All cuts.
    Every,
    /// About this many cuts, evenly spaced.
    About(usize),
}

/// Records a workload of `ops` operations and checks its crash states, all of them by e2fsck too.
///
/// # Errors
/// Returns the first state in which a check fails.
pub fn check(seed: u64, ops: usize, cuts: Cuts) -> Result<Findings, String> {
    let tally = Tally::new(1);
    check_workload(&Bases::default(), seed, ops, cuts, &tally)?;
    Ok(tally.findings())
}

/// Does the same as [`check`], and counts in `tally`.
fn check_workload(
    bases: &Bases,
    seed: u64,
    ops: usize,
    cuts: Cuts,
    tally: &Tally,
) -> Result<(), String> {
    let (options, size) = OPTIONS[(seed % 4) as usize];
    let told = |why| format!("seed {seed} ({options}): {why}");
    let Some(image) = bases.fresh(options, size) else { return Ok(()) };
    let plain = |device: Arc<dyn Device>| device;
    let history = record(image, seed, ops, &plain).map_err(|why| told(format!("before: {why}")))?;
    let mut checker = Checker::new(&history, tally).map_err(told)?;
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
    checker.check_cuts(&cuts, &ways).map_err(told)
}

/// Returns bytes for a file at an offset that is a multiple of 8: each 8 bytes name the file, the
/// operation that wrote them and the position in the file.
pub fn words(id: u64, op: usize, offset: u64, len: usize) -> Vec<u8> {
    let word = |n: usize| (id << 48) | ((op as u64) << 32) | (offset / 8 + n as u64);
    (0..len / 8).flat_map(|n| word(n).to_le_bytes()).collect()
}

/// Returns the operation that wrote a word of file `id` at `offset`; `Some(0)` for zeros; `None` if
/// the word belongs to another file or position.
pub fn writer(word: u64, id: u64, offset: u64) -> Option<usize> {
    match word {
        0 => Some(0),
        _ if word >> 48 == id && word & 0xffff_ffff == offset / 8 => {
            Some((word >> 32) as usize & 0xffff)
        }
        _ => None,
    }
}
