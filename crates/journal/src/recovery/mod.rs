//! Replaying a log that was not closed cleanly.
//!
//! Three passes, and nothing is written before all of them agree:
//! 1. *scan*: follow the transactions from the tail to the last one with a commit block;
//! 2. *revoke*: collect the blocks that must not be replayed, and up to which transaction;
//! 3. *replay*: check the copies that count, then write the newest copy of each block in place.
//!
//! Any flavour of jbd2: without checksums, with one per transaction, with v2 or v3; numbers of 32
//! or 64 bits. Replaying twice has the same effect as replaying once, so a crash during recovery is
//! harmless until [`mark_empty`] has moved the tail.
//!
//! *Where a log ends.* At the first block that does not belong to the expected transaction. If the
//! commit block, a descriptor or a revoke block of a transaction has a wrong checksum, a crash is
//! taken to have interrupted that transaction, unless the log holds commit blocks which prove that
//! it was committed: then it is corruption, as is a wrong copy in a committed transaction. (With
//! `async_commit` the commit block may be there before the copies, so there the last transaction is
//! dropped.)

mod reader;
mod replay;
mod revoke;
mod scan;

use crate::log::superblock_offset;
use crate::{Error, LogMap};
use lanefs_device::Device;
use lanefs_ondisk::jbd2::{JournalSuperblock, Sequence, fast_commit_head};
use lanefs_ondisk::{Block, BlockSize, Unsupported};
use reader::Reader;

/// A log to be replayed, and the file system it belongs to.
#[derive(Clone, Copy)]
pub struct Input<'a> {
    /// The device of the log; read only.
    pub device: &'a dyn Device,
    /// Where the log lies on it.
    pub map: &'a LogMap,
    /// The checked journal superblock.
    pub superblock: &'a JournalSuperblock,
    /// Blocks of the file system: nothing is written beyond.
    pub blocks: u64,
}

/// The result of a recovery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recovered {
    /// Transactions replayed.
    pub transactions: u32,
    /// Blocks written.
    pub blocks: u64,
    /// Copies left out because their block was freed later.
    pub revoked: u64,
    /// The transaction after the last one: the next number for the journal superblock.
    pub sequence: Sequence,
}

/// The writes of a replay: checked, and nothing written yet.
pub struct Replay<'a> {
    /// `None` for an empty log.
    copies: Option<(Reader<'a>, replay::Plan)>,
    found: Recovered,
}

/// Reads and checks the whole log of `input`: the first two passes, and the choice of the copies
/// that count.
///
/// # Errors
/// [`Error::Corruption`] and [`Error::WildBlock`] if the log is damaged, [`Error::Unsupported`] if
/// it uses something unknown or holds fast commits, [`Error::Device`].
pub fn plan<'a>(input: &Input<'a>) -> Result<Replay<'a>, Error> {
    input.superblock.support()?;
    if input.map.len() < input.superblock.blocks() {
        return Err(Error::BadLogMap { log_block: input.map.len() });
    }
    let sequence = input.superblock.sequence();
    let mut found = Recovered { transactions: 0, blocks: 0, revoked: 0, sequence };
    let Some(start) = input.superblock.start() else {
        return Ok(Replay { copies: None, found });
    };
    let reader = Reader::new(input);
    let mut log = scan::scan(&reader, start, sequence)?;
    refuse_fast_commits(&reader, input.superblock, log.end())?;
    let plan = replay::plan(&reader, &mut log, input)?;
    found.transactions = log.transactions.len() as u32;
    found.revoked = plan.revoked;
    found.sequence = log.end();
    Ok(Replay { copies: Some((reader, plan)), found })
}

impl Replay<'_> {
    /// The contents that `block` will have, if the log has a copy of it.
    ///
    /// # Errors
    /// [`Error::Device`].
    pub fn contents(&self, block: Block) -> Result<Option<Vec<u8>>, Error> {
        let Some((reader, plan)) = &self.copies else { return Ok(None) };
        plan.contents(reader, block)
    }

    /// Writes the copies onto `target`: the same device, or an overlay of it for a mount that
    /// writes nothing. Flushes `target`; the log stays as it is until [`mark_empty`].
    ///
    /// # Errors
    /// [`Error::Device`].
    pub fn write(&self, target: &dyn Device) -> Result<Recovered, Error> {
        let Some((reader, plan)) = &self.copies else { return Ok(self.found) };
        let blocks = replay::write(reader, plan, target)?;
        target.flush()?;
        Ok(Recovered { blocks, ..self.found })
    }
}

/// Replays the log of `input` onto `target`: [`plan`] and [`Replay::write`].
///
/// # Errors
/// Those of both. A failure of [`plan`] leaves `target` unwritten.
pub fn recover(input: &Input<'_>, target: &dyn Device) -> Result<Recovered, Error> {
    plan(input)?.write(target)
}

/// Records on the device, durably, that the log is empty and goes on after `sequence`, which is
/// [`Recovered::sequence`]. Only after everything replayed is durable.
///
/// # Errors
/// [`Error::Device`]; the log is then as before, or empty.
pub fn mark_empty(
    device: &dyn Device,
    map: &LogMap,
    block_size: BlockSize,
    superblock: &mut JournalSuperblock,
    sequence: Sequence,
) -> Result<(), Error> {
    superblock.set_start(None);
    superblock.set_sequence(sequence);
    device.write_durable_at(superblock_offset(map, block_size)?, &superblock.encode())?;
    Ok(())
}

/// Fast commits on top of the last transaction are changes that Lanefs cannot replay; leaving them
/// out would lose what an fsync promised.
fn refuse_fast_commits(
    reader: &Reader<'_>,
    superblock: &JournalSuperblock,
    end: Sequence,
) -> Result<(), Error> {
    let area = superblock.fast_commit_area();
    if area.is_empty() || fast_commit_head(&reader.read(area.start)?) != Some(end) {
        return Ok(());
    }
    Err(Unsupported { what: "fast_commit: the journal holds fast commits".into() }.into())
}
