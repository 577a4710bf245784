//! Replays a log that was not closed cleanly.
//!
//! Recovery makes three passes, and writes nothing before the checks of all three have succeeded:
//! 1. *scan*: follow the transactions from the tail to the last one with a commit block;
//! 2. *revoke*: collect the blocks that must not be replayed, each with the last transaction that
//!    freed it;
//! 3. *replay*: check the copies, then write the newest copy of each block in place.
//!
//! Supports any variant of jbd2. A log may have no checksums, one checksum per transaction, or
//! checksums of version 2 or 3, and block numbers of 32 or 64 bits. Replaying twice has the same
//! effect as replaying once, so after a crash during recovery the whole log is simply replayed
//! again, unless [`mark_empty`] has already moved the tail.
//!
//! *Where a log ends.* The log ends at the first block that does not belong to the expected
//! transaction. If the commit block, a descriptor or a revoke block of a transaction has a wrong
//! checksum, a crash has probably interrupted that transaction, and the log ends before it. But if
//! later commit blocks prove that the transaction was committed, the wrong checksum is corruption.
//! A wrong copy in a committed transaction is corruption too. (With `async_commit` the commit block
//! may reach the device before the copies. So if the last transaction has a wrong copy, this
//! transaction is dropped.)
//!
//! *Fast commits* change files and names, not blocks, so only the file system can replay them: see
//! [`Replay::fast_changes`]. [`put`] then replaces them by a transaction.

mod fast;
mod input;
mod put;
mod reader;
mod replay;
mod revoke;
mod scan;

use crate::error::Error;
use crate::log::superblock_offset;
use crate::log_map::LogMap;
pub use input::Input;
use lanefs_device::Device;
use lanefs_ondisk::jbd2::{FastChange, Header, JournalSuperblock, Sequence};
use lanefs_ondisk::{Block, BlockSize, Unsupported};
pub use put::{FastImages, check_fits, put};
use reader::Reader;

/// The result of a recovery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recovered {
    /// Number of replayed transactions.
    pub transactions: u32,
    /// Number of blocks written.
    pub blocks: u64,
    /// Number of copies that were not written because their block was freed later.
    pub revoked: u64,
    /// Number of fast commits.
    pub fast_commits: u32,
    /// The number after that of the last transaction, to be stored in the journal superblock.
    pub sequence: Sequence,
}

/// The checked writes of a replay; nothing is written yet.
pub struct Replay<'a> {
    /// `None` for an empty log.
    copies: Option<(Reader<'a>, replay::Plan)>,
    found: Recovered,
    /// The log block after the last transaction.
    head: u32,
    fast: Vec<FastChange>,
}

/// Reads and checks the whole log of `input`: does the first two passes, checks the copies, and
/// selects the newest copy of each block.
///
/// # Errors
/// [`Error::Corruption`] and [`Error::WildBlock`] if the log is damaged, [`Error::Unsupported`] if
/// it uses an unknown feature, and [`Error::Device`] if a read fails.
pub fn plan<'a>(input: &Input<'a>) -> Result<Replay<'a>, Error> {
    input.superblock.support()?;
    if input.map.len() < input.superblock.blocks() {
        return Err(Error::BadLogMap { log_block: input.map.len() });
    }
    let sequence = input.superblock.sequence();
    let mut found = Recovered { transactions: 0, blocks: 0, revoked: 0, fast_commits: 0, sequence };
    let Some(start) = input.superblock.start() else {
        return Ok(Replay { copies: None, found, head: 0, fast: Vec::new() });
    };
    let reader = Reader::new(input);
    let mut log = scan::scan(&reader, start, sequence)?;
    let plan = replay::plan(&reader, &mut log, input)?;
    let fast = fast::read(&reader, input.superblock, log.end())?;
    found.transactions = log.transactions.len() as u32;
    found.revoked = plan.revoked;
    found.fast_commits = fast.count();
    found.sequence = log.end();
    let head = log.head(&reader, start);
    Ok(Replay { copies: Some((reader, plan)), found, head, fast: fast.into_changes() })
}

impl Replay<'_> {
    /// Returns the content that `block` will have, if the log has a copy of it.
    ///
    /// # Errors
    /// [`Error::Device`].
    pub fn contents(&self, block: Block) -> Result<Option<Vec<u8>>, Error> {
        let Some((reader, plan)) = &self.copies else { return Ok(None) };
        plan.contents(reader, block)
    }

    /// Returns the number of the transaction after the last one in the log.
    pub fn end(&self) -> Sequence {
        self.found.sequence
    }

    /// Returns the log block after the last transaction.
    pub fn head(&self) -> u32 {
        self.head
    }

    /// Returns the changes of the fast commits. The file system has to make these changes after the
    /// copies are written, because [`Replay::write`] does not make them.
    pub fn fast_changes(&self) -> &[FastChange] {
        &self.fast
    }

    /// Writes the copies to `target`, which is the device from which the log was read, or an
    /// overlay of that device for a mount that writes nothing. Flushes `target`. The log is not
    /// changed until [`mark_empty`] is called.
    ///
    /// # Errors
    /// [`Error::Device`].
    pub fn write(&self, target: &dyn Device) -> Result<Recovered, Error> {
        self.write_ordered(target, None)
    }

    /// Works as [`Replay::write`], but writes the copy of block `last` after a flush of all other
    /// copies.
    ///
    /// # Errors
    /// [`Error::Device`].
    pub fn write_ordered(
        &self,
        target: &dyn Device,
        last: Option<Block>,
    ) -> Result<Recovered, Error> {
        let Some((reader, plan)) = &self.copies else { return Ok(self.found) };
        let blocks = replay::write(reader, plan, target, last)?;
        Ok(Recovered { blocks, ..self.found })
    }
}

/// Replays the log of `input` to `target`, with [`plan`] and [`Replay::write`].
///
/// # Errors
/// The errors of [`plan`] and of [`Replay::write`]; [`Error::Unsupported`] for a log with fast
/// commits. A failure of [`plan`] leaves `target` unchanged.
pub fn recover(input: &Input<'_>, target: &dyn Device) -> Result<Recovered, Error> {
    let replay = plan(input)?;
    if !replay.fast.is_empty() {
        return Err(Unsupported { what: "fast_commit: the file system replays them".into() }.into());
    }
    replay.write(target)
}

/// Returns the latest number in the log: in its superblock, or in the header of any block. New
/// transactions of a log that is dropped without a replay must have later numbers. Otherwise a
/// later replay could go on from a new transaction to an old one. Blocks that cannot be read are
/// left out.
pub fn latest_number(input: &Input<'_>) -> Sequence {
    let reader = Reader::new(input);
    let blocks = 1..input.superblock.blocks();
    let numbers = blocks.filter_map(|at| Header::number(&reader.read(at).ok()?));
    numbers.fold(input.superblock.sequence(), Sequence::latest)
}

/// Records on the log's device, durably, that the log is empty and continues after `sequence`,
/// which is [`Recovered::sequence`]. Called only after all replayed blocks are durable.
///
/// # Errors
/// [`Error::Device`]; the log is then unchanged or empty.
pub fn mark_empty(
    device: &dyn Device,
    map: &LogMap,
    block_size: BlockSize,
    superblock: &mut JournalSuperblock,
    sequence: Sequence,
) -> Result<(), Error> {
    superblock.set_start(None);
    superblock.set_sequence(sequence);
    device.write_durable_at(superblock_offset(map, block_size), &superblock.encode())?;
    Ok(())
}
