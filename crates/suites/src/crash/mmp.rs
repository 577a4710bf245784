//! The mmp block in crash states.

use lanefs_device::{Device, OverlayDevice};
use lanefs_ext4::Exclusive;
use lanefs_ondisk::features::Incompat;
use lanefs_ondisk::mmp::{Mmp, Use};
use lanefs_ondisk::superblock::Superblock;
use std::sync::Arc;
use std::time::Duration;

/// If the previous mount crashed, the next mount waits for at least this time.
const SHORTEST_WAIT: Duration = Duration::from_secs(22);

/// The state of the mmp block; `Whole` if the image has no such block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MmpBlock {
    Whole,
    /// Lanefs refuses the next mount, as the kernel does, until e2fsck has repaired the block.
    Torn,
}

/// Checks that the next mount waits if, and only if, the mmp block marks the file system as in use.
/// The block must mark it as in use whenever the superblock says that the log has to be replayed,
/// because another computer may then still be using the file system. `base` is the superblock
/// before the workload.
pub(super) fn check(state: &OverlayDevice, base: &Superblock) -> Result<(), String> {
    let Some((.., Ok(mmp))) = read(state, base)? else { return Ok(()) };
    let mut bytes = [0; 1024];
    state.read_at(1024, &mut bytes).map_err(|e| e.to_string())?;
    let Ok(superblock) = Superblock::decode(&bytes) else { return Ok(()) };
    let wait = Exclusive::expected_wait(&(Arc::new(state.fork()) as Arc<dyn Device>));
    let waits = wait.is_some_and(|(time, _)| time >= SHORTEST_WAIT);
    let must_wait = superblock.features().incompat.contains(Incompat::RECOVER);
    match waits == (mmp.state != Use::Clean) && waits >= must_wait {
        true => Ok(()),
        false => Err(format!("a mount would wait: {waits}, with {mmp:?}")),
    }
}

/// Marks the file system as unused, as `tune2fs -f -E clear_mmp` does. The crashed mount left the
/// file system marked as in use, so programs would wait without this step.
pub(super) fn release(state: &OverlayDevice, base: &Superblock) -> Result<MmpBlock, String> {
    let Some((offset, mut bytes, mmp)) = read(state, base)? else { return Ok(MmpBlock::Whole) };
    let Ok(mmp) = mmp else { return Ok(MmpBlock::Torn) };
    let unused = Mmp { state: Use::Clean, ..mmp };
    unused.encode_into(&mut bytes, base.checksums()).map_err(|e| e.to_string())?;
    state.write_at(offset, &bytes).map_err(|e| e.to_string())?;
    Ok(MmpBlock::Whole)
}

/// The offset of the block, its bytes, and its decoded fields.
type Found = (u64, Vec<u8>, Result<Mmp, lanefs_ondisk::mmp::Cause>);

fn read(state: &OverlayDevice, base: &Superblock) -> Result<Option<Found>, String> {
    let Some(block) = base.mmp_block() else { return Ok(None) };
    let size = base.geometry().block_size().bytes();
    let (offset, mut bytes) = (block.0 * size as u64, vec![0; size]);
    state.read_at(offset, &mut bytes).map_err(|e| e.to_string())?;
    let mmp = Mmp::decode(&bytes, base.checksums());
    Ok(Some((offset, bytes, mmp)))
}
