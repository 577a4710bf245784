//! Writes the log on the device, for the committer.

use crate::config::Log;
use crate::error::Error;
use crate::flusher::Flusher;
use crate::in_place;
use crate::limits::Density;
use crate::log_blocks::{self, Captured};
use crate::log_map::LogMap;
use crate::ring::Ring;
use crate::tid::Tid;
use lanefs_device::Device;
use lanefs_lanes::sync::Arc;
use lanefs_lanes::{CoarseTime, coarse_now};
use lanefs_ondisk::jbd2::{
    FastChange, FastPlace, JournalCompat, JournalIncompat, JournalSuperblock, JournalVersion,
    LogFormat, encode_fast_commit,
};
use lanefs_ondisk::{Block, BlockSize, Unsupported};
use std::ops::Range;

/// A log that can be written: its state, and its superblock as it is, or will be, on the device.
pub(crate) struct LogWriter {
    /// The device of the log, if it is not the device of the file system.
    apart: Option<Arc<dyn Device>>,
    map: LogMap,
    superblock: JournalSuperblock,
    format: LogFormat,
    block_size: BlockSize,
    pub(crate) ring: Ring,
    /// The blocks of the journal that fast commits may use; empty if no fast commits are written.
    fast_area: Range<u32>,
    /// The transaction to which the fast commits in the area belong, and the number of blocks that
    /// they take.
    fast_used: Option<(Tid, u32)>,
    /// The time of the last commit. The time of a commit is never before the time of the previous
    /// one, since recovery uses the time to recognise blocks of an older log.
    last_commit: CoarseTime,
}

/// The error that an abort records, as the kernel's jbd2 does (kernel documentation, "Journal
/// (jbd2)", `s_errno`).
const EIO: i32 = 5;

/// The start of the log, as recorded in the journal superblock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tail {
    /// There is nothing to replay; the log continues with this transaction.
    Empty { next: Tid },
    /// Replay starts at this log block, with this transaction.
    At { start: u32, tid: Tid },
}

impl LogWriter {
    /// Creates a writer for an empty log; writes nothing yet.
    pub(crate) fn new(device: &dyn Device, bits: BlockSize, log: Log) -> Result<LogWriter, Error> {
        let Log { device: apart, map, mut superblock, features } = log;
        superblock.support()?;
        if superblock.version() == JournalVersion::V1 {
            return Err(Unsupported { what: "writing a journal of version 1".into() }.into());
        }
        if superblock.start().is_some() {
            return Err(Error::NeedsRecovery);
        }
        if map.len() < superblock.blocks() {
            return Err(Error::BadLogMap { log_block: map.len() });
        }
        let fast = features & JournalIncompat::FAST_COMMIT;
        let kept = JournalIncompat::REVOKE | JournalIncompat::BIT64 | fast;
        let wanted = JournalIncompat::BIT64 | JournalIncompat::CSUM_V3;
        let mut incompat = superblock.incompat() & kept | features & wanted;
        if superblock.has_room_for_fast_commits() {
            incompat |= fast;
        }
        // Without `BIT64`, a tag has no room for block numbers from 2^32 on.
        incompat.set(
            JournalIncompat::BIT64,
            incompat.contains(JournalIncompat::BIT64)
                || device.len() >> bits.bits() > u64::from(u32::MAX),
        );
        let compat = superblock.compat() - JournalCompat::CHECKSUM;
        superblock.set_features(compat, incompat);
        let area = superblock.log_area();
        let mut fast_area = if fast.is_empty() { 0..0 } else { superblock.fast_commit_area() };
        // The last block of the area stays unused, because if a fast commit fills this block,
        // e2fsck (1.47.0) reads past the journal and drops the whole log.
        fast_area.end = fast_area.end.saturating_sub(1);
        Ok(LogWriter {
            fast_area,
            fast_used: None,
            apart,
            format: superblock.format(),
            ring: Ring::new(area.start, area.end, superblock.head()),
            map,
            superblock,
            block_size: bits,
            last_commit: CoarseTime { secs: 0, nanos: 0 },
        })
    }

    /// Returns the first transaction to write. One number is skipped, as in the kernel, because the
    /// log may have blocks of an uncommitted transaction with that number.
    pub(crate) fn first(&self) -> Tid {
        Tid::first(self.superblock.sequence().next())
    }

    pub(crate) fn density(&self) -> Density {
        Density {
            tags: self.format.tags_per_descriptor() as u32,
            revokes: self.format.revokes_per_block() as u32,
        }
    }

    pub(crate) fn contains(&self, block: Block) -> bool {
        self.map.contains(block)
    }

    /// Returns the number of log blocks of a transaction with this many images and revokes.
    pub(crate) fn size(&self, images: usize, revokes: usize) -> Result<u32, Error> {
        let size = log_blocks::size(&self.format, images, revokes);
        let max = self.ring.size() - 1;
        match u32::try_from(size) {
            Ok(size) if size <= max => Ok(size),
            // Credits prevent transactions that are too large for the log.
            _ => Err(Error::TooBig { credits: u32::try_from(size).unwrap_or(u32::MAX), max }),
        }
    }

    /// Writes the blocks of `tid`, except the commit block, to the head of the log; writes the
    /// superblock if the log's start or features change. Nothing is durable yet. Returns the number
    /// of log blocks written.
    pub(crate) fn write(
        &mut self,
        device: &dyn Device,
        tid: Tid,
        images: &[Captured],
        revokes: &[Block],
    ) -> Result<u32, Error> {
        let revokes_first =
            !revokes.is_empty() && !self.superblock.incompat().contains(JournalIncompat::REVOKE);
        let starts = self.superblock.start().is_none();
        if revokes_first {
            self.superblock.add_revoke();
        }
        if starts {
            self.set_tail(Tail::At { start: self.ring.place(0), tid });
        }
        if starts || revokes_first {
            // The superblock is written before the flush that precedes the commit block. Otherwise
            // a crash could leave the commit block without this superblock, and recovery would
            // treat the log as empty.
            let log = self.apart.as_deref().unwrap_or(device);
            log.write_at(self.superblock_offset(), &self.superblock.encode())?;
        }
        self.write_blocks(device, tid, images, revokes)
    }

    /// Writes the blocks of `tid` to the head of the log; writes neither the commit block nor the
    /// superblock.
    pub(crate) fn write_blocks(
        &self,
        device: &dyn Device,
        tid: Tid,
        images: &[Captured],
        revokes: &[Block],
    ) -> Result<u32, Error> {
        let blocks =
            log_blocks::blocks(&self.format, &self.superblock.uuid(), tid, images, revokes);
        let placed: Vec<Captured> = (0u32..)
            .zip(blocks)
            .map(|(n, bytes)| Ok((self.place(n)?, bytes)))
            .collect::<Result<_, Error>>()?;
        let log = self.apart.as_deref().unwrap_or(device);
        in_place::each_run(self.block_size, &placed, |at, bufs| log.write_log_at(at, bufs))?;
        Ok(placed.len() as u32)
    }

    /// Flushes the log's own device, if it has one. Only the committer writes and flushes this
    /// device, so the host reports a lost write to the committer and to no other thread.
    pub(crate) fn flush(&self) -> Result<(), Error> {
        Ok(self.apart.as_ref().map_or(Ok(()), |log| log.flush())?)
    }

    /// Durably writes the commit block of transaction `tid`. The block's place is `after` log
    /// blocks after the head. Once the block is durable, the transaction is committed.
    pub(crate) fn commit(&mut self, flusher: &Flusher, tid: Tid, after: u32) -> Result<(), Error> {
        self.last_commit = self.last_commit.max(coarse_now());
        let block = log_blocks::commit_block(&self.format, tid, self.last_commit);
        let offset = self.place(after)?.0 << self.block_size.bits();
        self.write_durable(flusher, offset, &block)
    }

    /// Returns whether the running transaction may have fast commits. This is so if the log has an
    /// area for them, and if the superblock on the device says where the log starts, because
    /// otherwise recovery does not read the area.
    pub(crate) fn takes_fast_commits(&self) -> bool {
        !self.fast_area.is_empty() && self.is_marked()
    }

    /// Writes a fast commit with `changes` after the earlier fast commits of `tid`, the running
    /// transaction. The data to which the changes refer must be durable. The fast commit is durable
    /// when this returns. Returns the number of blocks of the fast commit. Returns `None`, and
    /// writes nothing, if the area has no room or a change cannot be encoded as a record.
    pub(crate) fn write_fast_commit(
        &mut self,
        device: &dyn Device,
        flusher: &Flusher,
        tid: Tid,
        changes: &[FastChange],
    ) -> Result<Option<u32>, Error> {
        let used = self.fast_used.filter(|(of, _)| *of == tid).map_or(0, |(_, used)| used);
        let place = if used == 0 { FastPlace::First } else { FastPlace::Later };
        let Some(bytes) = encode_fast_commit(changes, tid.sequence(), place, self.block_size)
        else {
            return Ok(None);
        };
        let len = u32::try_from(bytes.len() >> self.block_size.bits()).unwrap_or(u32::MAX);
        let start = self.fast_area.start + used;
        if len > self.fast_area.end.saturating_sub(start) {
            return Ok(None);
        }
        // If only a part of a fast commit reached the device, recovery stops before that fast
        // commit. So the blocks of a fast commit may be written in any order.
        self.write_durable_run(device, flusher, start, &bytes)?;
        self.fast_used = Some((tid, used + len));
        Ok(Some(len))
    }

    /// Writes consecutive log blocks, durably.
    fn write_durable_run(
        &self,
        device: &dyn Device,
        flusher: &Flusher,
        mut at: u32,
        mut bytes: &[u8],
    ) -> Result<(), Error> {
        let log = self.apart.as_deref().unwrap_or(device);
        let mut is_whole = true;
        while !bytes.is_empty() {
            let (place, blocks) = self.map.place(at).ok_or(Error::BadLogMap { log_block: at })?;
            let (offset, len) = (place.0 << self.block_size.bits(), u64::from(blocks));
            let len = bytes.len().min(usize::try_from(len << self.block_size.bits()).unwrap_or(0));
            let (piece, rest) = bytes.split_at(len);
            if is_whole && rest.is_empty() {
                return self.write_durable(flusher, offset, piece);
            }
            log.write_log_at(offset, &[piece])?;
            (at, bytes, is_whole) = (at.saturating_add(blocks), rest, false);
        }
        match &self.apart {
            Some(log) => Ok(log.flush()?),
            None => Ok(flusher.flush()?),
        }
    }

    /// Moves the log's tail, durably. The blocks before the tail may be overwritten afterwards.
    pub(crate) fn move_tail(&mut self, flusher: &Flusher, tail: Tail) -> Result<(), Error> {
        self.set_tail(tail);
        self.write_durable(flusher, self.superblock_offset(), &self.superblock.encode())
    }

    /// Records durably in the journal superblock that the journal was aborted. The next mount and
    /// e2fsck read this record. The other fields are written as they are in memory. So if an
    /// earlier attempt to write a new start of the log failed, this call may write that start.
    pub(crate) fn record_abort(&mut self, device: &dyn Device) -> Result<(), Error> {
        self.superblock.set_errno(-EIO);
        self.write_superblock(device)
    }

    /// Clears the record that an earlier mount aborted the journal, after the file system's
    /// superblock has recorded the error.
    pub(crate) fn forget_abort(&mut self, device: &dyn Device) -> Result<(), Error> {
        self.superblock.set_errno(0);
        self.write_superblock(device)
    }

    fn write_superblock(&self, device: &dyn Device) -> Result<(), Error> {
        let log = self.apart.as_deref().unwrap_or(device);
        Ok(log.write_durable_at(self.superblock_offset(), &self.superblock.encode())?)
    }

    fn write_durable(&self, flusher: &Flusher, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        match &self.apart {
            Some(log) => Ok(log.write_log_durable_at(offset, bytes)?),
            None => Ok(flusher.write_durable(offset, bytes)?),
        }
    }

    /// Returns whether the superblock on the device indicates transactions to replay.
    pub(crate) fn is_marked(&self) -> bool {
        self.superblock.start().is_some()
    }

    /// Makes the log start at its head with `tid`, and clears the feature of fast commits, durably
    /// and in one write.
    pub(crate) fn start_without_fast_commits(
        &mut self,
        flusher: &Flusher,
        tid: Tid,
    ) -> Result<(), Error> {
        self.fast_area = 0..0;
        let incompat = self.superblock.incompat() - JournalIncompat::FAST_COMMIT;
        self.superblock.set_features(self.superblock.compat(), incompat);
        self.move_tail(flusher, Tail::At { start: self.ring.place(0), tid })
    }

    fn set_tail(&mut self, tail: Tail) {
        match tail {
            Tail::Empty { next } => {
                self.superblock.set_start(None);
                self.superblock.set_head(self.ring.place(0));
                self.superblock.set_sequence(next.sequence());
            }
            Tail::At { start, tid } => {
                self.superblock.set_start(Some(start));
                self.superblock.set_sequence(tid.sequence());
            }
        }
        if !self.fast_area.is_empty() {
            // An empty log does not have the feature of fast commits, as in the kernel. So programs
            // that do not know the feature can read the log.
            let mut incompat = self.superblock.incompat();
            incompat.set(JournalIncompat::FAST_COMMIT, self.is_marked());
            self.superblock.set_features(self.superblock.compat(), incompat);
        }
    }

    fn place(&self, n: u32) -> Result<Block, Error> {
        let log_block = self.ring.place(n);
        let place = self.map.place(log_block).ok_or(Error::BadLogMap { log_block })?;
        Ok(place.0)
    }

    fn superblock_offset(&self) -> u64 {
        superblock_offset(&self.map, self.block_size)
    }
}

/// Returns the byte offset of the journal superblock on the log's device.
pub(crate) fn superblock_offset(map: &LogMap, block_size: BlockSize) -> u64 {
    map.superblock().0 << block_size.bits()
}
