//! Detects fast commits, which Lanefs neither writes nor replays.

use super::header::Sequence;

const TAG_HEAD: u16 = 0x0009;
const HEAD_LEN: u16 = 8;

/// Returns the transaction of the fast commits in an area; `None` if there are none. `block` is the
/// first block of the area (see [`super::JournalSuperblock::fast_commit_area`]).
///
/// Fast commits are valid only if their transaction comes after the last complete one in the log.
/// Unlike the rest of the journal, fast commits are little endian.
///
/// Source: kernel documentation, "ext4 journal", *Fast commits*.
pub fn fast_commit_head(block: &[u8]) -> Option<Sequence> {
    let half = |at: usize| Some(u16::from_le_bytes(block.get(at..at + 2)?.try_into().ok()?));
    if half(0)? != TAG_HEAD || half(2)? < HEAD_LEN {
        return None;
    }
    let tid = block.get(8..12)?.try_into().ok()?;
    Some(Sequence(u32::from_le_bytes(tid)))
}
