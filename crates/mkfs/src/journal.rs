//! Chooses the size and the position of the journal.

use crate::options::{JournalSize, MkfsOptions};
use crate::report::MkfsError;
use crate::runs::Runs;
use lanefs_device::Device;
use lanefs_ondisk::features::{Compat, Features};
use lanefs_ondisk::jbd2::JournalSuperblock;
use lanefs_ondisk::superblock::{
    Geometry, JournalDevice, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, State, Superblock,
};
use lanefs_ondisk::{BlockSize, Corruption, Group, UnfitJournal};

/// `JBD2_MIN_JOURNAL_BLOCKS`.
pub(crate) const LEAST_BLOCKS: u32 = 1024;

/// The length of the journal; both numbers are 0 if there is no journal.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct JournalLength {
    /// The number of all blocks of the journal.
    pub blocks: u32,
    /// The number of blocks for fast commits, at the journal's end. The journal's superblock
    /// records this number.
    pub fast_commit_blocks: u32,
}

impl JournalLength {
    /// Returns the journal's length in a file system of `blocks` blocks with these features. If the
    /// options do not specify the length of the log, which excludes the blocks for fast commits,
    /// the log has `by_size` blocks.
    pub(crate) fn choose(
        options: &MkfsOptions,
        features: Features,
        block_size: BlockSize,
        blocks: u64,
        by_size: u32,
    ) -> JournalLength {
        let log = match options.journal.in_blocks(block_size) {
            _ if !features.compat.contains(Compat::HAS_JOURNAL) => 0,
            JournalSize::None | JournalSize::Bytes(_) => 0,
            JournalSize::BySize => by_size,
            JournalSize::Blocks(blocks) => blocks,
        };
        if log == 0 {
            return JournalLength::default();
        }
        let fast = match options.fast_commit_bytes {
            _ if !features.compat.contains(Compat::FAST_COMMIT) => 0,
            None | Some(0) => fast_commit_blocks(blocks),
            Some(bytes) => u32::try_from(bytes >> block_size.bits()).unwrap_or(u32::MAX),
        };
        JournalLength { blocks: log.saturating_add(fast), fast_commit_blocks: fast }
    }
}

/// Returns the default length of a journal in blocks, without its blocks for fast commits, in a
/// file system of `blocks` blocks; 0 if the file system is too small for a journal.
pub(crate) fn default_blocks(blocks: u64) -> u32 {
    const SIZES: [(u64, u32); 8] = [
        (2 << 10, 0),
        (32 << 10, 1 << 10),
        (256 << 10, 4 << 10),
        (512 << 10, 8 << 10),
        (4 << 20, 16 << 10),
        (8 << 20, 32 << 10),
        (16 << 20, 64 << 10),
        (32 << 20, 128 << 10),
    ];
    SIZES.iter().find(|(below, _)| blocks < *below).map_or(256 << 10, |&(_, size)| size)
}

/// Returns how many blocks a journal has for fast commits by default, in addition to its log. The
/// file system has `blocks` blocks. The number is a 64th of the default journal length, even if the
/// journal has another length (observed from mke2fs).
pub(crate) fn fast_commit_blocks(blocks: u64) -> u32 {
    default_blocks(blocks).max(LEAST_BLOCKS) / 64
}

/// Returns the block at which the search for the journal's blocks starts: the first block of a
/// group near the middle, so that seeks to the journal are short. Chooses the group with the most
/// room among the middle group and its neighbours. But if the file system has flexible groups of
/// `n` groups each, and the number of the middle group is above `n`, chooses between two other
/// groups: the first group with free blocks in or after the middle flexible group, and the group
/// that follows it.
pub(crate) fn goal(geometry: &Geometry, used: &Runs) -> u64 {
    let middle = lanefs_ondisk::Block(geometry.block_count() / 2);
    let middle = geometry.group_of(middle).map_or(0, |(group, _)| group.0);
    let flex = geometry.flex_size();
    let first = if flex > 1 && middle > flex {
        let first = geometry.flex_first_group(Group(middle)).0;
        let mut groups = first..geometry.group_count();
        groups.find(|&group| free_in(geometry, used, group) > 0).unwrap_or(0)
    } else {
        middle.saturating_sub(1)
    };
    let from = if flex > 1 && middle > flex { first } else { middle };
    let last = (from + 1).min(geometry.group_count() - 1);
    let mut best = (first, free_in(geometry, used, first));
    for group in first + 1..=last {
        let free = free_in(geometry, used, group);
        if free > best.1 {
            best = (group, free);
        }
    }
    geometry.group_first_block(Group(best.0)).map_or(0, |block| block.0)
}

fn free_in(geometry: &Geometry, used: &Runs, group: u32) -> u64 {
    let (Some(first), Some(last)) =
        (geometry.group_first_block(Group(group)), geometry.group_last_block(Group(group)))
    else {
        return 0;
    };
    let range = first.0..last.0 + 1;
    let taken: u64 = used.used_in(range.clone()).map(|run| run.end - run.start).sum();
    range.end - range.start - taken
}

// Makes a journal on a separate device, and attaches it to a file system.

/// Makes an empty journal that takes up the whole of `device`, as `mke2fs -O journal_dev` does. The
/// old contents are lost. `time` is in seconds since 1970.
///
/// # Errors
/// [`MkfsError::TooSmall`] for fewer than 1,024 blocks; [`MkfsError::TooLarge`] for 2^32 blocks or
/// more; [`MkfsError::Device`].
pub fn make_journal_device(
    device: &dyn Device,
    block_size: BlockSize,
    uuid: [u8; 16],
    time: u32,
) -> Result<(), MkfsError> {
    let count = journal_device_blocks(device.len(), block_size)?;
    let blocks = u64::from(count);
    let found = JournalDevice { uuid, block_size, blocks };
    let (bytes, at) = (found.encode(time), found.journal_superblock());
    let mut log = JournalSuperblock::of_device(block_size, count, uuid, at);
    log = JournalSuperblock::decode(&log.encode(), block_size, count)
        .map_err(|_| MkfsError::TooSmall { bytes: device.len() })?;
    // The device is zeroed, because otherwise a recovery could mistake blocks of an old log for
    // blocks of the new log.
    device.write_zeros(0, blocks << block_size.bits())?;
    device.write_at(at.0 << block_size.bits(), &log.encode())?;
    device.flush()?;
    device.write_at(SUPERBLOCK_OFFSET, &bytes)?;
    device.flush()?;
    Ok(())
}

/// Returns the number of blocks of a journal that takes up a device of `len` bytes.
///
/// # Errors
/// [`MkfsError::TooLarge`] for 2^32 blocks or more.
pub fn journal_device_blocks(len: u64, block_size: BlockSize) -> Result<u32, MkfsError> {
    let blocks = len >> block_size.bits();
    u32::try_from(blocks).map_err(|_| MkfsError::TooLarge { blocks })
}

/// Makes `journal` the journal of the file system on `device`, as `mke2fs -J device=` does. The
/// file system must be clean and have no journal. `number` is the device number by which the kernel
/// finds the journal, encoded as in the superblock, or 0 if the journal is in a file.
///
/// First the file system is recorded in the journal, then the journal in the file system. So after
/// a crash between the two the file system has no journal, and the same call completes the change.
///
/// # Errors
/// [`MkfsError::Unfit`] if `journal` is not a journal, has another block size, or belongs to
/// another file system; [`MkfsError::NotAttachable`] if the file system is not clean or has a
/// journal.
pub fn attach_journal(
    device: &dyn Device,
    journal: &dyn Device,
    number: u32,
) -> Result<(), MkfsError> {
    let mut bytes = vec![0; SUPERBLOCK_SIZE];
    device.read_at(SUPERBLOCK_OFFSET, &mut bytes)?;
    let superblock = Superblock::decode(&bytes).map_err(MkfsError::Damaged)?;
    if superblock.journal().is_some() || !superblock.state().contains(State::VALID) {
        return Err(MkfsError::NotAttachable);
    }
    journal.read_at(SUPERBLOCK_OFFSET, &mut bytes)?;
    let found =
        JournalDevice::decode(&bytes).map_err(|damage| UnfitJournal::NotAJournal { damage })?;
    let size = superblock.geometry().block_size();
    if found.block_size != size {
        let (found, needs) = (found.block_size.bytes(), size.bytes());
        return Err(UnfitJournal::BlockSize { found, needs }.into());
    }
    let at = found.journal_superblock().0 << size.bits();
    let mut head = vec![0; size.bytes()];
    journal.read_at(at, &mut head)?;
    let blocks = u32::try_from(found.blocks).unwrap_or(u32::MAX);
    let mut log = JournalSuperblock::decode(&head, size, blocks)
        .map_err(|cause| MkfsError::Damaged(Corruption::Journal { block: 0, cause }))?;
    let is_ours = log.users() == [superblock.uuid()];
    if log.user_count() != 0 && !is_ours {
        return Err(UnfitJournal::Shared.into());
    }
    log.set_user(superblock.uuid());
    journal.write_durable_at(at, &log.encode())?;
    name_journal(device, &superblock, found.uuid, number)
}

/// Records the journal in the backups of the superblock, and then in the primary superblock.
fn name_journal(
    device: &dyn Device,
    superblock: &Superblock,
    uuid: [u8; 16],
    number: u32,
) -> Result<(), MkfsError> {
    let mut raw = superblock.raw().clone();
    raw.s_feature_compat.set(raw.s_feature_compat.get() | Compat::HAS_JOURNAL.bits());
    raw.s_journal_inum.set(0);
    raw.s_journal_dev.set(number);
    raw.s_journal_uuid = uuid;
    let named = Superblock::from_raw(raw)?;
    let geometry = named.geometry();
    for group in geometry.backups() {
        let Some(start) = geometry.group_first_block(group) else { continue };
        let mut raw = named.raw().clone();
        raw.s_block_group_nr.set(group.0 as u16);
        let backup = Superblock::from_raw(raw)?;
        device.write_at(start.0 << geometry.block_size().bits(), &backup.encode())?;
    }
    device.flush()?;
    device.write_at(SUPERBLOCK_OFFSET, &named.encode())?;
    Ok(device.flush()?)
}
