//! The result of a scrub as JSON, for the user and between the server of a mount and a command.

use lanefs_raid5::ScrubReport;
use serde::{Deserialize, Serialize};

/// The result of a scrub.
#[derive(Serialize, Deserialize)]
pub struct Scrubbed {
    #[serde(flatten, with = "Counts")]
    pub found: ScrubReport,
    pub repaired: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "ScrubReport")]
struct Counts {
    rows: u64,
    #[serde(rename = "skipped_rows")]
    skipped: u64,
    wrong_rows: u64,
    wrong_blocks: u64,
    unreadable_blocks: u64,
}
