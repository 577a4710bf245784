//! The crash suite: a workload on a recording device, and at every crash state that the recording
//! allows, what was promised must be there and nothing else.
//!
//! The workload is told by one thread, so what survives a crash must be the tree as it was after
//! *some* step: not before the last one that was promised, not after the last one that was begun.
//! Data says of itself which file, step and place it was written for (see [`words`]).

pub mod judge;
pub mod workload;

pub use judge::{Findings, Judge};
pub use workload::{History, record};

use crate::image::Image;
use lanefs_device::{Device, Kept, RamDevice};
use std::sync::Arc;

/// What mke2fs is asked for: small logs, so that they wrap and are checkpointed.
pub const OPTIONS: [(&str, &str); 4] = [
    ("-b 1024 -J size=1 -N 600", "14M"),
    ("-b 4096 -J size=4 -N 600", "20M"),
    ("-b 1024 -J size=1 -N 600 -O ^orphan_file,^metadata_csum_seed", "14M"),
    ("-b 1024 -J size=1 -N 600 -O ^metadata_csum,^orphan_file,^64bit", "14M"),
];

/// How many cuts of a recording are looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cuts {
    /// All.
    Every,
    /// About this many, evenly.
    About(usize),
}

/// Records a workload of `steps` steps and judges its crash states.
pub fn judge(seed: u64, steps: usize, cuts: Cuts) -> Result<Findings, String> {
    let (options, size) = OPTIONS[(seed % 4) as usize];
    let told = |why| format!("seed {seed} ({options}): {why}");
    let Some(image) = Image::make(options, size) else { return Ok(Findings::default()) };
    let ram = RamDevice::from_file(image.path()).map_err(|e| told(e.to_string()))?;
    let plain = |device: Arc<dyn Device>| device;
    let history = record(ram, seed, steps, &plain).map_err(|why| told(format!("before: {why}")))?;
    let judge = Judge::new(&history);
    let every = match cuts {
        Cuts::Every => 1,
        Cuts::About(count) => (judge.cuts() / count).max(1),
    };
    let mut rng = fastrand::Rng::with_seed(seed);
    let cuts: Vec<usize> = (rng.usize(..every)..=judge.cuts()).step_by(every).collect();
    let ways = |cut: usize| {
        let seed = seed << 32 | cut as u64;
        let some = match cut % 2 {
            0 => Kept::Some { seed },
            _ => Kept::Torn { seed },
        };
        if cut.is_multiple_of(5) { vec![Kept::All, Kept::None, some] } else { vec![some] }
    };
    judge.judge(&cuts, &ways).map_err(told)?;
    for cut in cuts.iter().step_by(cuts.len().div_ceil(6)) {
        judge.crash_twice(*cut, Kept::Some { seed }, seed).map_err(told)?;
    }
    Ok(judge.findings())
}

/// The bytes for a file at an offset that is a multiple of 8: each 8 bytes name the file, the step
/// that wrote them and the place in the file.
pub fn words(id: u64, step: usize, offset: u64, len: usize) -> Vec<u8> {
    let word = |n: usize| (id << 48) | ((step as u64) << 32) | (offset / 8 + n as u64);
    (0..len / 8).flat_map(|n| word(n).to_le_bytes()).collect()
}

/// The step that wrote a word of file `id` at `offset`; `Some(0)` for zeros; `None` if the word
/// belongs to something else.
pub fn writer(word: u64, id: u64, offset: u64) -> Option<usize> {
    match word {
        0 => Some(0),
        _ if word >> 48 == id && word & 0xffff_ffff == offset / 8 => {
            Some((word >> 32) as usize & 0xffff)
        }
        _ => None,
    }
}
