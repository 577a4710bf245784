//! The fast-commit suite runs a workload with many fsyncs on a file system with `fast_commit`,
//! records all writes, and checks crash states.
//!
//! An fsync makes a promise only for its own file, so after a crash each file is checked
//! separately. Its names, mode and size must be as they were after one of its own changes: the last
//! one that was promised, the last one that had started, or one between them. Each word of 8 bytes
//! in the file must be as it was after one of these changes; if one of these changes left the file
//! too short to contain the word, the word may also be zero. No other file may exist. Three
//! programs replay the log: Lanefs, e2fsck and the kernel.

mod file_history;
mod findings;
mod states;
mod workload;

pub use findings::Findings;
pub use workload::Wrap;

use crate::together::Bases;
use lanefs_device::RecordingDevice;
use states::check_states;
use std::sync::Arc;
use workload::{with_directories, work};

/// The images, each given by its options for mke2fs and its size.
pub const OPTIONS: [(&str, &str); 4] = [
    ("-b 1024 -J size=2 -N 400 -O fast_commit", "14M"),
    ("-b 4096 -J size=6 -N 400 -O fast_commit,^orphan_file", "24M"),
    ("-b 4096 -J size=6 -N 400 -O fast_commit -I 128", "24M"),
    ("-b 1024 -J size=2 -N 400 -O fast_commit,^metadata_csum,^64bit,^orphan_file -I 128", "14M"),
];

/// Runs `ops` operations and checks crash states at about `cuts` positions, each of which lies
/// between two device events. The file system uses the device that `wrap` returns; tests use `wrap`
/// to plant a fault that the checks must find.
///
/// # Errors
/// Returns the first state in which a check fails.
pub fn check(seed: u64, ops: usize, cuts: usize, wrap: Wrap<'_>) -> Result<Findings, String> {
    let (options, size) = OPTIONS[(seed % OPTIONS.len() as u64) as usize];
    let told = |why| format!("seed {seed} ({options}): {why}");
    let Some(image) = Bases::default().fresh(options, size) else {
        return Ok(Findings::default());
    };
    let image = with_directories(image).map_err(told)?;
    let base = image.fork();
    let device = Arc::new(RecordingDevice::since(base, Arc::new(image)));
    let mut found = Findings::default();
    let workload = work(seed, ops, &device, wrap, &mut found).map_err(told)?;
    check_states(seed, &workload, cuts, &mut found).map_err(told)?;
    Ok(found)
}
