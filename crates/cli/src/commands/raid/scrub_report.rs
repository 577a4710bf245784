//! The result of a scrub as JSON, for the user and between the server of a mount and a command.

use lanefs_raid5::ScrubReport;
use serde_json::{Value, json};

/// Returns the result of a scrub as JSON.
pub fn report_json(found: &ScrubReport, repaired: bool) -> Value {
    json!({
        "rows": found.rows,
        "skipped_rows": found.skipped,
        "wrong_rows": found.wrong_rows,
        "wrong_blocks": found.wrong_blocks,
        "unreadable_blocks": found.unreadable_blocks,
        "repaired": repaired,
    })
}

/// Decodes the result of [`report_json`].
pub fn from_json(facts: &Value) -> Option<ScrubReport> {
    let number = |name: &str| facts.get(name)?.as_u64();
    Some(ScrubReport {
        rows: number("rows")?,
        skipped: number("skipped_rows")?,
        wrong_rows: number("wrong_rows")?,
        wrong_blocks: number("wrong_blocks")?,
        unreadable_blocks: number("unreadable_blocks")?,
    })
}
