//! Writes a repair that was planned elsewhere. If the process is killed at any write, the damage
//! does not become worse.
//!
//! - *With an undo file*: the old and the new content of every block is in the file, durably,
//!   before the first block is written in place. [`Undo::apply`] puts the old blocks back, and
//!   [`Undo::redo`] writes the new ones.
//! - *Through the log*: all blocks of the repair are one transaction of the image's own log. After
//!   a crash, either a replay completes the transaction, or the log has no transaction. If a
//!   recovery of the image would change blocks, these blocks are written in place before the
//!   transaction. If a crash leaves only some of these blocks written, the next repair still starts
//!   from the same contents, because the log is marked empty only after all other blocks of the
//!   recovery are durable.

use crate::error::{Error, JournalNeed};
use crate::undo::Undo;
use lanefs_device::{Device, OverlayDevice};
use lanefs_ext4::Expected;
use lanefs_ext4::{Primary, Wholeness, log};
use lanefs_journal::{Log, Single};
use lanefs_ondisk::features::RoCompat;
use lanefs_ondisk::superblock::{
    JournalPlace, OrphanEntries, Recovery, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock,
};
use lanefs_ondisk::{Block, BlockSize};
use std::sync::Arc;

const OVERLAY_CAP: u64 = 4 << 30;
/// The number of blocks at the end of a recovery that are written one after another, each durably:
/// the superblock, which asks for a replay, the head of the log, which marks the log empty, and the
/// superblock, which no longer asks for a replay.
const ORDERED: usize = 3;

/// The blocks of a repair, with their new contents.
#[derive(Debug, Clone)]
pub struct Repair {
    /// Blocks of the recovery, which are written first, in this order.
    pub recovery: Vec<(Block, Vec<u8>)>,
    /// Blocks of the repair, which are written all or not at all.
    pub blocks: Vec<(Block, Vec<u8>)>,
    /// The block size of the file system.
    pub block_size: BlockSize,
}

impl Repair {
    /// Returns the old and the new content of all blocks. The superblock's block is among them: it
    /// shows whether somebody else has written to the file system since.
    ///
    /// # Errors
    /// The errors of the device.
    pub fn undo(&self, device: &dyn Device) -> Result<Undo, Error> {
        let bits = self.block_size.bits();
        let writes = self.recovery.iter().chain(&self.blocks);
        let writes = writes.map(|(block, new)| (block.0 << bits, Some(new)));
        let superblock = (SUPERBLOCK_OFFSET >> bits << bits, None);
        Undo::read(device, [superblock].into_iter().chain(writes), self.block_size.bytes())
    }

    /// Returns whether the blocks of the repair can be written as one transaction of the image's
    /// log.
    pub fn fits_log(&self, device: &Arc<dyn Device>) -> bool {
        let view: Arc<dyn Device> = Arc::new(OverlayDevice::new(device.clone(), OVERLAY_CAP));
        self.write_recovery(&*view).is_ok()
            && (self.blocks.is_empty() || self.through_log(&*view).is_ok())
    }

    /// Writes the repair through the log.
    ///
    /// # Errors
    /// [`Error::Journal`] if the log cannot be used for this repair, and [`Error::Ext4`] if the
    /// repair does not fit into the log. In both cases only the recovery was written.
    /// [`Error::Ext4`] also if the device fails.
    pub fn write_to_log(&self, device: &Arc<dyn Device>) -> Result<(), Error> {
        self.write_recovery(&**device)?;
        if self.blocks.is_empty() {
            return Ok(());
        }
        let Transaction { log, images, found, after } = self.through_log(&**device)?;
        write_superblock(&**device, &with_recovery(&found, Recovery::Needed))?;
        let committed = Single::commit(device.clone(), self.block_size, log, images)?;
        committed.checkpoint()?;
        write_superblock(&**device, &after)
    }

    /// Writes the repair in place, without an undo file.
    ///
    /// # Errors
    /// The errors of the device.
    pub fn write_in_place(&self, device: &dyn Device) -> Result<(), Error> {
        self.write_recovery(device)?;
        write(device, self.block_size, &self.blocks)?;
        Ok(device.flush()?)
    }

    fn write_recovery(&self, device: &dyn Device) -> Result<(), Error> {
        let (any, ordered) = self.recovery.split_at(self.recovery.len().saturating_sub(ORDERED));
        write(device, self.block_size, any)?;
        device.flush()?;
        for one in ordered.chunks(1) {
            write(device, self.block_size, one)?;
            device.flush()?;
        }
        Ok(())
    }

    /// Prepares the transaction. The recovery must have been written to `device` before.
    fn through_log(&self, device: &dyn Device) -> Result<Transaction, Error> {
        let Primary { superblock: found, wholeness } = Primary::read(device)?;
        let Some(JournalPlace::Inode(ino)) = found.journal() else {
            return Err(JournalNeed::Missing.into());
        };
        if wholeness != Wholeness::Whole {
            return Err(JournalNeed::TornSuperblock.into());
        }
        let log = log::find(device, &found, ino)?;
        let home = found.geometry().super_block();
        let at = SUPERBLOCK_OFFSET as usize % self.block_size.bytes();
        let mut after = found.clone();
        let mut images: Vec<(Block, Arc<[u8]>)> = Vec::new();
        for (block, bytes) in &self.blocks {
            let mut bytes = bytes.clone();
            if *block == home {
                let record = bytes.get_mut(at..at + SUPERBLOCK_SIZE);
                let record = record.expected()?;
                after = Superblock::decode(record)?;
                found.check_next(&after)?;
                record.copy_from_slice(&with_recovery(&after, Recovery::Needed).encode());
            }
            images.push((*block, bytes.into()));
        }
        if !after.agrees_with(&found) || after.journal() != found.journal() {
            return Err(JournalNeed::RepairsSuperblock.into());
        }
        if log.superblock.start().is_some() || images.iter().any(|(at, _)| log.map.contains(*at)) {
            return Err(JournalNeed::RepairsLog.into());
        }
        Single::check_fits(device, self.block_size, log.clone(), images.len())?;
        Ok(Transaction { log, images, found, after })
    }
}

struct Transaction {
    log: Log,
    images: Vec<(Block, Arc<[u8]>)>,
    found: Superblock,
    after: Superblock,
}

fn write(
    device: &dyn Device,
    block_size: BlockSize,
    blocks: &[(Block, Vec<u8>)],
) -> Result<(), Error> {
    for (block, bytes) in blocks {
        device.write_at(block.0 << block_size.bits(), bytes)?;
    }
    Ok(())
}

fn write_superblock(device: &dyn Device, superblock: &Superblock) -> Result<(), Error> {
    device.write_at(SUPERBLOCK_OFFSET, &superblock.encode())?;
    Ok(device.flush()?)
}

fn with_recovery(superblock: &Superblock, recovery: Recovery) -> Superblock {
    let mut superblock = superblock.clone();
    let present = superblock.features().ro_compat.contains(RoCompat::ORPHAN_PRESENT);
    let orphans = if present { OrphanEntries::Present } else { OrphanEntries::Absent };
    superblock.set_dirty_features(recovery, orphans);
    superblock
}
