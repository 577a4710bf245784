//! Counts the faults of a view of an image, so that a repair can choose between two views.

use super::stage::Stage;
use crate::checker::{self, Options};
use crate::fault::Fault;
use crate::report::{Collector, Finding, Report};
use lanefs_device::Device;
use lanefs_ondisk::group_desc::Cause;
use std::sync::Arc;

/// The largest total size of the changes that are kept in memory, in bytes.
pub const MOST_CHANGED: u64 = 4 << 30;
/// The largest number of findings that one round keeps; a later round finds the rest.
pub const MOST_FINDINGS: usize = 10_000;

/// Counts the faults of a view of the image, except wrong counts and bitmaps, and wrong checksums
/// of descriptors. For a view without a root directory, returns the largest possible number,
/// because an image with an empty inode table would otherwise have few faults.
pub fn faults(device: Arc<dyn Device>) -> u64 {
    match findings(device) {
        Some(report) => {
            if report.findings.iter().any(|finding| finding.fault == Fault::NoRoot) {
                return u64::MAX;
            }
            let is_fault = |finding: &&Finding| {
                let is_sum = matches!(finding.fault, Fault::Descriptor(Cause::Checksum { .. }));
                Stage::of(finding).is_some_and(|stage| stage != Stage::Counts) && !is_sum
            };
            report.findings.iter().filter(is_fault).count() as u64 + report.left_out
        }
        None => u64::MAX,
    }
}

/// Checks a view of the image.
pub fn findings(device: Arc<dyn Device>) -> Option<Report> {
    let options = Options { threads: 1, memory: u64::MAX, findings: MOST_FINDINGS };
    checker::check(device, &options, &|_| {}).ok()
}

/// A collector that discards all findings.
pub fn silent() -> Collector {
    Collector::new(0)
}
