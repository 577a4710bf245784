//! Checks symbolic links, whose target is in the block field, in a block, or inline.

use crate::attributes;
use crate::bytes::le16;
use crate::fault::Fault;
use crate::mapping::Runs;
use crate::record::Record;
use crate::run::Run;
use lanefs_ondisk::inode::InodeFlags;
use lanefs_ondisk::{FileBlock, Ino};

/// The smallest size of a link whose target is in a block.
pub const SHORTEST_IN_BLOCK: u64 = 60;

/// Checks that the target has the length that the inode's size field states, and contains no NUL.
pub fn check(run: &Run<'_>, ino: Ino, record: &Record, bytes: &[u8]) -> Result<(), Fault> {
    let frozen = InodeFlags::IMMUTABLE | InodeFlags::APPEND;
    if record.size_hi != 0 || record.size_lo == 0 || record.flags.intersects(frozen) {
        return Err(Fault::LinkTarget);
    }
    let target = target(run, ino, record, bytes).ok_or(Fault::LinkTarget)?;
    let len = match record.flags.contains(InodeFlags::ENCRYPT) {
        // An encrypted target begins with its length.
        true => usize::from(le16(&target, 0)) + 2,
        false => target.iter().position(|byte| *byte == 0).ok_or(Fault::LinkTarget)?,
    };
    (len as u64 == record.size()).then_some(()).ok_or(Fault::LinkTarget)
}

/// Returns the bytes that hold the target and the NUL after it.
fn target(run: &Run<'_>, ino: Ino, record: &Record, bytes: &[u8]) -> Option<Vec<u8>> {
    if record.flags.contains(InodeFlags::INLINE_DATA) {
        let rest = attributes::inline_data(run, record, bytes)?;
        return Some([record.block.as_slice(), rest, &[0]].concat());
    }
    if record.is_fast_symlink() {
        return Some(record.block.to_vec());
    }
    let runs = Runs::of(run.volume, ino, record);
    let [only] = runs.extents() else { return None };
    let is_whole = only.start == FileBlock(0) && only.len == 1;
    // Readers look for a shorter target in the block field.
    let sizes = SHORTEST_IN_BLOCK..run.volume.block_bytes() as u64;
    if !is_whole || !sizes.contains(&record.size()) {
        return None;
    }
    run.volume.read_block(only.block).ok()
}
