//! Reads the fast commits after the last transaction.

use super::reader::Reader;
use crate::error::Error;
use lanefs_ondisk::Unsupported;
use lanefs_ondisk::jbd2::{FastCommits, FastFault, FastNext, JournalSuperblock, Sequence};

/// The largest number of bytes of fast commits that recovery reads. The area for fast commits has
/// at most 256 blocks, unless an option of mke2fs (`-J fast_commit_size`) sets another size.
const MOST_BYTES: usize = 64 << 20;

/// Reads the fast commits that belong to `end`, the number after the last transaction in the log.
pub(super) fn read(
    reader: &Reader<'_>,
    superblock: &JournalSuperblock,
    end: Sequence,
) -> Result<FastCommits, Error> {
    let mut commits = FastCommits::new(end);
    let area = superblock.fast_commit_area();
    for (at, n) in area.clone().zip(1..) {
        let block = reader.read(at)?;
        if block.len().saturating_mul(n) > MOST_BYTES {
            let what = format!("fast_commit: more than {} MiB of them", MOST_BYTES >> 20);
            return Err(Unsupported { what }.into());
        }
        match commits.add(&block) {
            Ok(FastNext::Read) => {}
            Ok(FastNext::End) => break,
            Err(FastFault::Damaged { block, cause }) => {
                return Err(Reader::corruption(area.start.saturating_add(block), cause));
            }
            Err(fault) => {
                return Err(Unsupported { what: format!("fast_commit: {fault}") }.into());
            }
        }
    }
    Ok(commits)
}
