//! Recovers the log: restores the inode of the journal, and replays the log.

use super::compare::{MOST_CHANGED, silent};
use super::inode_offsets::{BLOCK, FLAGS, LINKS, set_size};
use super::mender::{Action, Fast, put16, put32};
use super::salvage::EXTENT_MAGIC;
use super::volume::{asking_for_replay, clear_recovery, put_superblock};
use crate::bytes::le16;
use crate::checker::Error;
use crate::fault::Fault;
use crate::groups::Groups;
use crate::journal::{self, Replayed};
use crate::mapping::Runs;
use crate::named::{self, BACKUP_BLOCKS};
use crate::place::Place;
use crate::record::Record;
use crate::superblock;
use crate::volume::Volume;
use lanefs_device::{Device, OverlayDevice};
use lanefs_ondisk::extent::Extent;
use lanefs_ondisk::features::Incompat;
use lanefs_ondisk::inode::{self, InodeFlags};
use lanefs_ondisk::superblock::{JournalPlace, Superblock};
use lanefs_ondisk::{FileBlock, FileType, Ino};
use std::sync::Arc;

/// The action of a repair that loses fast commits.
pub const LOST: &str = "its fast commits are lost: what they change is damaged";

/// Restores the inode of the journal, and the number of the log's first block. A log that became
/// readable only later would be replayed over the repair.
pub fn restore(device: &Arc<OverlayDevice>, volume: &Volume, actions: &mut Vec<Action>) {
    restore_inode(device, volume, actions);
    let found = journal::mended_head(volume, &Groups::read(volume, &silent()));
    if let Some((at, head)) = found
        && device.write_at(at, &head.encode()).is_ok()
    {
        let what = "its first block, length or room for fast commits is corrected".into();
        actions.push(Action { place: Place::Journal, what });
    }
}

/// Replays a log that needs it, and that an earlier round of the repair has made readable.
pub fn replay_again(
    device: &Arc<OverlayDevice>,
    fast: Fast<'_>,
    actions: &mut Vec<Action>,
) -> Result<bool, Error> {
    let Ok((superblock, _)) = superblock::open(&**device, &silent()) else { return Ok(false) };
    replay(device, &Volume::new(device.clone(), superblock), fast, actions)
}

/// If the inode of the journal is damaged, restores its mapping from the copy in the superblock. If
/// the copy is not valid, and the inode only has blocks beyond its size, corrects the size.
fn restore_inode(device: &Arc<OverlayDevice>, volume: &Volume, actions: &mut Vec<Action>) {
    let Some(JournalPlace::Inode(ino)) = volume.superblock().journal() else { return };
    let groups = Groups::read(volume, &silent());
    if journal::has_whole_file(volume, &groups, ino) {
        return;
    }
    let found = groups.inode_at(volume, ino).zip(groups.read_inode(volume, ino));
    let Some((at, old)) = found else { return };
    let restored = from_copy(volume, &old).filter(|bytes| has_log(volume, ino, bytes));
    let lengthened = || lengthened(volume, ino, &old).filter(|bytes| has_log(volume, ino, bytes));
    let (bytes, what) = match restored {
        Some(bytes) => (Some(bytes), "its inode is restored from the superblock"),
        None => (lengthened(), "its size is corrected"),
    };
    if let Some(mut bytes) = bytes.filter(|bytes| *bytes != old)
        && inode::seal(&mut bytes, ino, volume.checksums).is_ok()
        && device.write_at(at, &bytes).is_ok()
    {
        actions.push(Action { place: Place::Journal, what: what.into() });
    }
}

/// Returns the inode with the mapping and the size that the superblock has copies of.
fn from_copy(volume: &Volume, old: &[u8]) -> Option<Vec<u8>> {
    let raw = volume.raw();
    if raw.s_jnl_backup_type != BACKUP_BLOCKS {
        return None;
    }
    let mut bytes = old.to_vec();
    let [words @ .., high, low] = &raw.s_jnl_blocks;
    for (n, word) in words.iter().enumerate() {
        put32(&mut bytes, BLOCK + n * 4, word.get());
    }
    set_size(&mut bytes, u64::from(high.get()) << 32 | u64::from(low.get()));
    put16(&mut bytes, 0, FileType::Regular.mode_bits() | 0o600);
    put16(&mut bytes, LINKS, 1);
    let is_tree = le16(&bytes, BLOCK) == EXTENT_MAGIC;
    put32(&mut bytes, FLAGS, if is_tree { InodeFlags::EXTENTS.bits() } else { 0 });
    Some(bytes)
}

/// Returns the inode of a log that has further blocks right after its end, with its true size.
fn lengthened(volume: &Volume, ino: Ino, old: &[u8]) -> Option<Vec<u8>> {
    let record = Record::decode(old);
    let end = Runs::of(volume, ino, &record).extents().last().map_or(0, Extent::end);
    let size = u64::from(end) << volume.geometry.block_size().bits();
    let mut bytes = old.to_vec();
    set_size(&mut bytes, size);
    (size > record.size()).then_some(bytes)
}

/// Returns whether an inode has all blocks of a log, and no others.
fn has_log(volume: &Volume, ino: Ino, bytes: &[u8]) -> bool {
    let record = Record::decode(bytes);
    let runs = Runs::of(volume, ino, &record);
    let blocks = record.size() >> volume.geometry.block_size().bits();
    let is_whole = u32::try_from(blocks).is_ok_and(|n| n > 0 && runs.fill(n).is_ok());
    let head = runs.block(FileBlock(0)).and_then(|at| volume.read_block(at).ok());
    is_whole && head.is_some_and(|bytes| named::is_log(&bytes))
}

/// Replays the log if it is not empty. Afterwards the superblock no longer asks for a replay,
/// unless the log keeps fast commits. Returns whether a log was replayed for which the superblock
/// did not ask: if that is interrupted, a mount drops the rest of the log.
pub fn replay(
    device: &Arc<OverlayDevice>,
    volume: &Volume,
    fast: Fast<'_>,
    actions: &mut Vec<Action>,
) -> Result<bool, Error> {
    if journal::needs_replay_elsewhere(volume) {
        return Err(Error::LogElsewhere);
    }
    let report = silent();
    let groups = Groups::read(volume, &report);
    let below: Arc<dyn Device> = device.clone();
    let scratch = OverlayDevice::new(below, MOST_CHANGED);
    let Replayed::Done { blocks, lost } =
        journal::replay_onto(volume, &groups, &scratch, fast == Fast::Kept, &report)
    else {
        // If the log is damaged, the next check reports that fault.
        return Ok(false);
    };
    let has_fast = !report.into_report(Default::default()).unchecked.is_empty();
    match fast {
        Fast::Refused if has_fast => return Err(Error::FastCommits),
        Fast::Lost(_) if has_fast => {
            actions.push(Action { place: Place::Journal, what: LOST.into() });
        }
        _ => {}
    }
    for (at, bytes) in scratch.changes() {
        let len = (device.len() - at).min(bytes.len() as u64) as usize;
        let _ = device.write_at(at, bytes.get(..len).unwrap_or_default());
    }
    // A damaged log may write anything over the superblock.
    let replayed = superblock::read_primary(&**device).ok();
    let mut raw = replayed.as_ref().unwrap_or(volume.superblock()).raw().clone();
    clear_recovery(&mut raw);
    let asking = asking_for_replay(&raw).filter(|_| fast == Fast::Kept);
    if let Some(superblock) = asking.or(Superblock::from_raw(raw).ok()) {
        put_superblock(&**device, &superblock);
    }
    let what = format!("replayed: {blocks} blocks");
    actions.push(Action { place: Place::Journal, what });
    if let Some(why) = lost {
        let what = Fault::LogDamaged { why }.to_string();
        actions.push(Action { place: Place::Journal, what });
    }
    Ok(!volume.incompat(Incompat::RECOVER))
}
