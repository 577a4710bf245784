//! Makes a journal on a separate device, and attaches it to a file system.

use super::MkfsError;
use crate::error::{Error, InvalidArgument, UnfitJournal};
use lanefs_device::Device;
use lanefs_ondisk::features::Compat;
use lanefs_ondisk::jbd2::JournalSuperblock;
use lanefs_ondisk::superblock::{
    JournalDevice, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, State, Superblock,
};
use lanefs_ondisk::{BlockSize, Corruption};

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
    let blocks = device.len() >> block_size.bits();
    let count = u32::try_from(blocks).map_err(|_| MkfsError::TooLarge { blocks })?;
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

/// Makes `journal` the journal of the file system on `device`, as `mke2fs -J device=` does. The
/// file system must be clean and have no journal. `number` is the device number by which the kernel
/// finds the journal, encoded as in the superblock, or 0 if the journal is in a file.
///
/// First the file system is recorded in the journal, then the journal in the file system. So after
/// a crash between the two the file system has no journal, and the same call completes the change.
///
/// # Errors
/// [`Error::JournalDevice`] if `journal` is not a journal, has another block size, or belongs to
/// another file system; [`Error::InvalidArgument`] if the file system is not clean or has a
/// journal.
pub fn attach_journal(device: &dyn Device, journal: &dyn Device, number: u32) -> Result<(), Error> {
    let mut bytes = vec![0; SUPERBLOCK_SIZE];
    device.read_at(SUPERBLOCK_OFFSET, &mut bytes)?;
    let superblock = Superblock::decode(&bytes)?;
    if superblock.journal().is_some() || !superblock.state().contains(State::VALID) {
        return Err(InvalidArgument::NotAttachable.into());
    }
    journal.read_at(SUPERBLOCK_OFFSET, &mut bytes)?;
    let unfit = |why| Error::JournalDevice { uuid: [0; 16], why };
    let found = JournalDevice::decode(&bytes)
        .map_err(|damage| unfit(UnfitJournal::NotAJournal { damage }))?;
    let unfit = |why| Error::JournalDevice { uuid: found.uuid, why };
    let size = superblock.geometry().block_size();
    if found.block_size != size {
        let (found, needs) = (found.block_size.bytes(), size.bytes());
        return Err(unfit(UnfitJournal::BlockSize { found, needs }));
    }
    let at = found.journal_superblock().0 << size.bits();
    let mut head = vec![0; size.bytes()];
    journal.read_at(at, &mut head)?;
    let blocks = u32::try_from(found.blocks).unwrap_or(u32::MAX);
    let mut log = JournalSuperblock::decode(&head, size, blocks)
        .map_err(|cause| Corruption::Journal { block: 0, cause })?;
    let is_ours = log.users() == [superblock.uuid()];
    if log.user_count() != 0 && !is_ours {
        return Err(unfit(UnfitJournal::Shared));
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
) -> Result<(), Error> {
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
