//! The first pass: finds the transactions in the log.

use super::reader::Reader;
use crate::error::Error;
use lanefs_ondisk::jbd2::{
    BlockKind, Cause, Commit, Header, LogChecksums, Revokes, Sequence, Tags, TransactionChecksum,
};

/// A transaction with a commit block.
#[derive(Debug)]
pub(super) struct Transaction {
    pub(super) sequence: Sequence,
    /// The log blocks that contain its descriptors; each descriptor is followed by its copies.
    pub(super) descriptors: Vec<u32>,
    /// The log blocks that are the transaction's revoke blocks.
    pub(super) revokes: Vec<u32>,
    /// The position of the transaction's commit block in the log.
    commit: u32,
    time: (u64, u32),
}

/// The committed transactions, oldest first.
#[derive(Debug)]
pub(super) struct Scanned {
    first: Sequence,
    pub(super) transactions: Vec<Transaction>,
}

impl Scanned {
    /// Returns the number of the first transaction that is not in the log.
    pub(super) fn end(&self) -> Sequence {
        self.transactions.last().map_or(self.first, |t| t.sequence.next())
    }

    /// Returns the log block after the last transaction, in a log that starts at `start`.
    pub(super) fn head(&self, reader: &Reader<'_>, start: u32) -> u32 {
        self.transactions.last().map_or(start, |t| reader.after(t.commit, 1))
    }
}

/// What the log contains where a transaction is expected.
enum Found {
    Committed(Transaction),
    /// No transaction, or one without a commit block.
    Nothing,
    /// A part of a transaction, with a wrong checksum or count.
    Damaged {
        at: u32,
        cause: Cause,
    },
}

/// Follows the log from block `start`, where transaction `first` is expected.
pub(super) fn scan(reader: &Reader<'_>, start: u32, first: Sequence) -> Result<Scanned, Error> {
    let mut log = Scanned { first, transactions: Vec::new() };
    let mut at = start;
    // If the scan comes round to the start of the log again, the log ends there.
    let mut left = reader.size();
    loop {
        match transaction(reader, at, log.end(), &mut left)? {
            Found::Committed(found) => {
                at = reader.after(found.commit, 1);
                log.transactions.push(found);
            }
            Found::Nothing => return Ok(log),
            Found::Damaged { at, cause } => {
                if was_committed(reader, at, &log)? {
                    return Err(Reader::corruption(at, cause));
                }
                return Ok(log);
            }
        }
    }
}

/// Reads the transaction `sequence` from log block `at` on, but no more than `left` blocks.
fn transaction(
    reader: &Reader<'_>,
    mut at: u32,
    sequence: Sequence,
    left: &mut u32,
) -> Result<Found, Error> {
    let (mut descriptors, mut revokes) = (Vec::new(), Vec::new());
    let mut sum = TransactionChecksum::new();
    let is_summed = reader.format.checksums == LogChecksums::Transaction;
    while *left > 0 {
        let block = reader.read(at)?;
        let Some(header) = Header::decode(&block).filter(|h| h.sequence == sequence) else {
            return Ok(Found::Nothing);
        };
        let mut taken = 1;
        match header.kind {
            BlockKind::Descriptor => {
                let tags = match Tags::decode(&block, &reader.format) {
                    Ok(tags) => tags.count() as u32,
                    Err(cause) => return Ok(Found::Damaged { at, cause }),
                };
                if tags >= *left {
                    return Ok(Found::Nothing);
                }
                descriptors.push(at);
                if is_summed {
                    sum.add(&block);
                    for n in 1..=tags {
                        sum.add(&reader.read(reader.after(at, n))?);
                    }
                }
                taken += tags;
            }
            BlockKind::Revoke => {
                if let Err(cause) = Revokes::decode(&block, &reader.format) {
                    return Ok(Found::Damaged { at, cause });
                }
                revokes.push(at);
            }
            BlockKind::Commit => {
                let commit = match Commit::decode(&block, &reader.format) {
                    Ok(commit) => commit,
                    Err(cause) => return Ok(Found::Damaged { at, cause }),
                };
                let expected = sum.value();
                if let Some(found) = commit.transaction.filter(|found| *found != expected) {
                    let cause = Cause::Checksum { found, expected };
                    return Ok(Found::Damaged { at, cause });
                }
                *left -= 1;
                let time = (commit.secs, commit.nanos);
                let found = Transaction { sequence, descriptors, revokes, commit: at, time };
                return Ok(Found::Committed(found));
            }
            BlockKind::SuperblockV1 | BlockKind::SuperblockV2 => return Ok(Found::Nothing),
        }
        *left -= taken;
        at = reader.after(at, taken);
    }
    Ok(Found::Nothing)
}

/// Returns whether the transaction after `log` was committed, although its log block `damaged` is
/// damaged. It was committed if a correct commit block of this transaction or of the next one
/// follows. An older log may have used the same transaction numbers, before they were reset. Its
/// commit blocks do not count; they are recognised by a time before that of the last transaction of
/// `log`.
///
/// Between two header blocks of these transactions there are at most as many copies as a descriptor
/// can list. So the search stops after that many blocks without a header, and is cheap even if a
/// long log has no further transaction.
fn was_committed(reader: &Reader<'_>, damaged: u32, log: &Scanned) -> Result<bool, Error> {
    if matches!(reader.format.checksums, LogChecksums::None) {
        // Without checksums a block may look like a correct commit block by chance. The only damage
        // that is noticed in a log without checksums is a wrong count.
        return Ok(false);
    }
    let lost = log.end();
    let since = log.transactions.last().map_or((0, 0), |t| t.time);
    // The largest distance from a descriptor to the header block after its copies. A descriptor
    // whose first tag has no uuid has room for two more tags than `tags_per_descriptor` says.
    let gap = reader.format.tags_per_descriptor() as u32 + 3;
    let (mut n, mut end) = (1, gap);
    while n <= end && n < reader.size() {
        let block = reader.read(reader.after(damaged, n))?;
        n += 1;
        let counts = |header: &Header| [lost, lost.next()].contains(&header.sequence);
        if Header::decode(&block).filter(counts).is_none() {
            continue;
        }
        end = n.saturating_add(gap);
        let Ok(commit) = Commit::decode(&block, &reader.format) else { continue };
        if (commit.secs, commit.nanos) >= since {
            return Ok(true);
        }
    }
    Ok(false)
}
