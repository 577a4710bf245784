//! Checks the log, and provides a view of the image as a replay of the log would leave it.
//!
//! The view is computed without using the file system's replay code, and nothing is written to the
//! device.

use crate::fault::Fault;
use crate::field::{Feature, Field};
use crate::groups::Groups;
use crate::mapping::Runs;
use crate::place::Place;
use crate::record::Record;
use crate::report::Collector;
use crate::volume::Volume;
use lanefs_device::{Device, OverlayDevice};
use lanefs_ondisk::extent::Extent;
use lanefs_ondisk::features::{Compat, Incompat};
use lanefs_ondisk::jbd2::{
    BlockKind, Cause, Commit, FastChange, FastCommits, FastNext, Header, JournalSuperblock,
    LogChecksums, LogFormat, Revokes, Sequence, Tag, TagFlags, Tags, unescape,
};
use lanefs_ondisk::superblock::{JournalPlace, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock};
use lanefs_ondisk::{Block, BlockSize, FileBlock, Ino};
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

/// The largest number of bytes that a replay may keep in memory.
const MOST_REPLAYED: u64 = 1 << 30;

/// The longest log that mke2fs makes, in blocks.
const LONGEST: u32 = 10_240_000;
/// The offset of `s_nr_users` in the journal's superblock.
const USERS: usize = 0x40;

/// The journal file of an image.
struct Log<'a> {
    volume: &'a Volume,
    /// The blocks of the log, by their positions in the file.
    runs: Runs,
    /// The size of the file in blocks.
    blocks: u32,
    superblock: JournalSuperblock,
}

/// Returns whether the log is on another device and has to be replayed.
pub fn needs_replay_elsewhere(volume: &Volume) -> bool {
    volume.superblock().has_journal_elsewhere() && volume.incompat(Incompat::RECOVER)
}

/// Checks the journal. If the log has to be replayed, returns a view of the device after the
/// replay.
pub fn check(volume: &Volume, groups: &Groups, report: &Collector) -> Option<Arc<dyn Device>> {
    let needs_replay = volume.incompat(Incompat::RECOVER);
    let ino = match volume.superblock().journal() {
        Some(JournalPlace::Inode(ino)) => ino,
        // If the log is on another device, the caller replays it before the check.
        Some(JournalPlace::Device(_)) => return None,
        None => {
            if needs_replay {
                report.add(Place::Superblock, Fault::Feature { feature: Feature::HasJournal });
            }
            return None;
        }
    };
    let log = match Log::open(volume, groups, ino) {
        Ok(log) => log,
        Err(fault) => {
            report.add(Place::Journal, fault);
            return None;
        }
    };
    if let Err(what) = log.runs.fill(log.blocks) {
        report.add(Place::Journal, Fault::Special { ino: ino.0, what });
    }
    if log.superblock.errno() != 0 {
        let found = u64::from(log.superblock.errno().unsigned_abs());
        report.add(Place::Journal, Fault::Field { field: Field::JournalError, found });
    }
    match (log.superblock.start(), needs_replay) {
        (None, true) => {
            report.add(Place::Journal, Fault::Replayed { blocks: 0 });
            None
        }
        (None, false) => None,
        (Some(_), false) => {
            report.add(Place::Journal, Fault::StaleLog);
            None
        }
        (Some(start), true) => replay(&log, start, report),
    }
}

fn replay(log: &Log<'_>, start: u32, report: &Collector) -> Option<Arc<dyn Device>> {
    let overlay = OverlayDevice::new(log.volume.device().clone(), MOST_REPLAYED);
    let replayed = log.scan(start).and_then(|found| log.replay(&found, &overlay, report));
    match replayed {
        Ok((blocks, lost)) => {
            report.add(Place::Journal, Fault::Replayed { blocks });
            if let Some(why) = lost {
                report.add(Place::Journal, Fault::LogDamaged { why });
            }
            Some(Arc::new(overlay))
        }
        Err(why) => {
            report.add(Place::Journal, Fault::NoReplay { why });
            None
        }
    }
}

/// The blocks of the log.
pub struct LogBlocks {
    /// The inode of the journal.
    pub ino: Ino,
    runs: Runs,
}

impl LogBlocks {
    /// Finds the log's blocks; `None` if the image has no log, or if the log is damaged.
    pub fn of(volume: &Volume, groups: &Groups) -> Option<LogBlocks> {
        let Some(JournalPlace::Inode(ino)) = volume.superblock().journal() else { return None };
        Some(LogBlocks { ino, runs: Log::open(volume, groups, ino).ok()?.runs })
    }

    /// Returns the block that holds the log's superblock.
    pub fn head(&self) -> Option<Block> {
        self.runs.block(FileBlock(0))
    }

    /// Returns whether one of `blocks` is in the log.
    pub fn overlaps(&self, blocks: &Range<u64>) -> bool {
        overlaps(&self.runs, blocks)
    }
}

/// If the superblock of the log is damaged in nothing but the number of the log's first block, its
/// length, or its room for fast commits, returns its offset, and the superblock with right fields.
pub fn mended_head(volume: &Volume, groups: &Groups) -> Option<(u64, JournalSuperblock)> {
    let Some(JournalPlace::Inode(ino)) = volume.superblock().journal() else { return None };
    let Err(Fault::Journal(_)) = Log::open(volume, groups, ino) else { return None };
    let log = Log::open_with(volume, groups, ino, JournalSuperblock::decode_in_file).ok()?;
    Some((log.head_at(), log.superblock))
}

/// Returns the changes of the fast commits in a log that has nothing else.
pub fn fast_changes(volume: &Volume) -> Vec<FastChange> {
    let Some(JournalPlace::Inode(ino)) = volume.superblock().journal() else { return Vec::new() };
    let groups = Groups::read(volume, &Collector::new(0));
    let Ok(log) = Log::open(volume, &groups, ino) else { return Vec::new() };
    log.fast_commits(log.superblock.sequence()).0.into_changes()
}

/// Returns whether the file of the log has all of its blocks, whatever they hold.
pub fn has_whole_file(volume: &Volume, groups: &Groups, ino: Ino) -> bool {
    match Log::open(volume, groups, ino) {
        Ok(log) => log.runs.fill(log.blocks).is_ok(),
        Err(fault) => !matches!(fault, Fault::Special { .. } | Fault::Unreadable),
    }
}

fn overlaps(runs: &Runs, blocks: &Range<u64>) -> bool {
    runs.extents().iter().any(|extent| {
        extent.block.0 < blocks.end && blocks.start < extent.block.0 + u64::from(extent.len)
    })
}

/// Returns the latest number of a transaction in the headers of the log's first `blocks` blocks,
/// whatever the state of the log.
pub fn latest_number(volume: &Volume, runs: &Runs, blocks: u32) -> Option<Sequence> {
    let number = |at| {
        let block = runs.block(FileBlock(at))?;
        Header::number(&volume.read_block(block).ok()?)
    };
    (1..blocks.min(LONGEST)).filter_map(number).reduce(Sequence::latest)
}

/// The result of [`replay_onto`].
pub enum Replayed {
    /// The log needs no replay.
    Empty,
    /// The log was replayed; it is marked empty.
    Done {
        /// The number of blocks that the replay wrote.
        blocks: u64,
        /// Why a part of the log was left out, if it was.
        lost: Option<String>,
    },
    /// The log cannot be replayed.
    Damaged,
}

/// Replays the log on `target`, a writable view of the volume's device, and marks the log empty
/// there, whether or not the file system's superblock asks for a replay, as in e2fsck. The caller
/// updates that superblock. With `keeps_fast`, the log keeps its fast commits, and begins where the
/// next transaction would be.
pub fn replay_onto(
    volume: &Volume,
    groups: &Groups,
    target: &dyn Device,
    keeps_fast: bool,
    report: &Collector,
) -> Replayed {
    let Some(JournalPlace::Inode(ino)) = volume.superblock().journal() else {
        return Replayed::Empty;
    };
    let Ok(log) = Log::open(volume, groups, ino) else { return Replayed::Damaged };
    let Some(start) = log.superblock.start() else {
        let asks = volume.incompat(Incompat::RECOVER);
        return if asks { Replayed::Done { blocks: 0, lost: None } } else { Replayed::Empty };
    };
    let Ok(found) = log.scan(start) else { return Replayed::Damaged };
    let Ok((blocks, lost)) = log.replay(&found, target, report) else { return Replayed::Damaged };
    let mut superblock = log.superblock.clone();
    if keeps_fast && log.has_fast_commits(&found) {
        superblock.set_start(Some(found.head));
        superblock.set_sequence(found.end);
    } else {
        superblock.set_start(None);
        let latest = latest_number(volume, &log.runs, log.superblock.blocks());
        superblock.set_sequence(latest.map_or(found.end, |latest| found.end.latest(latest)).next());
    }
    match target.write_at(log.head_at(), &superblock.encode()) {
        Ok(()) => Replayed::Done { blocks, lost },
        Err(_) => Replayed::Damaged,
    }
}

impl<'a> Log<'a> {
    /// Opens a log. Its file may have holes, or blocks beyond its size: the log is read as far as
    /// the file has its blocks, as the kernel does.
    fn open(volume: &'a Volume, groups: &Groups, ino: Ino) -> Result<Log<'a>, Fault> {
        Log::open_with(volume, groups, ino, JournalSuperblock::decode)
    }

    fn open_with(
        volume: &'a Volume,
        groups: &Groups,
        ino: Ino,
        decode: fn(&[u8], BlockSize, u32) -> Result<JournalSuperblock, Cause>,
    ) -> Result<Log<'a>, Fault> {
        let lost = |what| Fault::Special { ino: ino.0, what };
        let bytes = groups.read_inode(volume, ino).ok_or(lost("its inode cannot be read"))?;
        let record = Record::decode(&bytes);
        if record.links == 0 || !record.maps_blocks() {
            return Err(lost("its inode is not a file with a log"));
        }
        let runs = Runs::of(volume, ino, &record);
        let blocks = record.size() >> volume.geometry.block_size().bits();
        let first = runs.block(FileBlock(0)).ok_or(lost("the log has no blocks"))?;
        let bytes = volume.read_block(first).map_err(|_| Fault::Unreadable)?;
        let blocks = u32::try_from(blocks).unwrap_or(u32::MAX);
        // If the size is what is damaged, the file has the rest of the log.
        let mapped = runs.extents().last().map_or(0, Extent::end).max(blocks);
        let superblock =
            decode(&bytes, volume.geometry.block_size(), mapped).map_err(Fault::Journal)?;
        let users = bytes.get(USERS..).and_then(|rest| rest.first_chunk());
        let found = users.map_or(0, |word| u32::from_be_bytes(*word)).into();
        if found > 1 {
            return Err(Fault::Field { field: Field::JournalUsers, found });
        }
        superblock.support().map_err(|why| Fault::NoReplay { why: why.to_string() })?;
        debug_assert!(volume.compat(Compat::HAS_JOURNAL));
        Ok(Log { volume, runs, blocks, superblock })
    }

    /// Returns the offset of the log's superblock.
    fn head_at(&self) -> u64 {
        let first = self.runs.block(FileBlock(0)).unwrap_or_default();
        first.0 << self.volume.geometry.block_size().bits()
    }

    fn read(&self, at: u32) -> Result<Vec<u8>, String> {
        let block = self.runs.block(FileBlock(at)).ok_or(format!("log block {at} is a hole"))?;
        self.volume.read_block(block).map_err(|error| error.to_string())
    }

    /// Returns the log block that is `n` blocks after `at`; after the last block, the log continues
    /// at its start.
    fn after(&self, at: u32, n: u32) -> u32 {
        let area = self.superblock.log_area();
        let size = u64::from(area.end.saturating_sub(area.start)).max(1);
        let from_start = u64::from(at.saturating_sub(area.start)) + u64::from(n);
        area.start + (from_start % size) as u32
    }

    /// Writes the newest intact copy of each block to `target`. Returns how many blocks were
    /// written, and the first damage, if there is any. As e2fsck does, leaves out damaged copies,
    /// and everything from the first damaged transaction on.
    fn replay(
        &self,
        found: &Scanned,
        target: &dyn Device,
        report: &Collector,
    ) -> Result<(u64, Option<String>), String> {
        let format = self.superblock.format();
        let end = self.end_after(found);
        let mut lost = None;
        let mut newest: BTreeMap<Block, (u32, Tag)> = BTreeMap::new();
        for copy in &found.copies {
            let revoked = found.revoked.get(&copy.tag.block);
            if revoked.is_some_and(|by| !by.is_before(copy.sequence)) {
                continue;
            }
            let bytes = self.read(copy.at)?;
            let sum = copy.tag.check(&bytes, copy.sequence, &format);
            let why = match sum.map_err(|cause| cause.to_string()) {
                Ok(()) if self.may_write(copy.tag.block, end) => {
                    newest.insert(copy.tag.block, (copy.at, copy.tag));
                    continue;
                }
                Ok(()) => "it belongs into the log itself, or beyond the end".into(),
                Err(why) => why,
            };
            lost.get_or_insert(format!(
                "the copy of {} in log block {}: {why}",
                copy.tag.block, copy.at
            ));
        }
        lost = found.lost.clone().or(lost);
        if self.has_fast_commits(found) {
            report.unchecked("fast commits in the log");
        }
        for (block, (at, tag)) in &newest {
            let mut bytes = self.read(*at)?;
            if tag.flags.contains(TagFlags::ESCAPE) {
                unescape(&mut bytes);
            }
            let offset = block.0 << self.volume.geometry.block_size().bits();
            target.write_at(offset, &bytes).map_err(|error| error.to_string())?;
        }
        Ok((newest.len() as u64, lost))
    }

    /// Returns whether a replay may write a block: it is in the file system, which has `end` blocks
    /// after the replay, and not in the log.
    fn may_write(&self, block: Block, end: u64) -> bool {
        block.0 < end && !overlaps(&self.runs, &(block.0..block.0 + 1))
    }

    /// Returns the number of blocks of the file system after the replay. If the file system grew,
    /// the log has the larger superblock, and blocks that only the larger file system has.
    fn end_after(&self, found: &Scanned) -> u64 {
        let (own, geometry) = (self.volume.superblock(), &self.volume.geometry);
        let bits = geometry.block_size().bits();
        let at = SUPERBLOCK_OFFSET as usize % self.volume.block_bytes();
        let is_it = |copy: &&Copy| copy.tag.block == geometry.super_block();
        let next = found.copies.iter().rfind(is_it).and_then(|copy| {
            let bytes = self.read(copy.at).ok()?;
            Superblock::decode(bytes.get(at..at + SUPERBLOCK_SIZE)?).ok()
        });
        let next = next.filter(|next| own.check_next(next).is_ok());
        let blocks = next.map_or(0, |next| next.geometry().block_count());
        blocks.min(self.volume.device().len() >> bits).max(geometry.block_count())
    }

    /// Returns whether a complete fast commit follows the last transaction. The checker does not
    /// replay fast commits: see `lanefs_ext4::log::replace_fast_commits`. They are useless without
    /// that transaction, but as e2fsck does, it may lack damaged copies.
    fn has_fast_commits(&self, found: &Scanned) -> bool {
        let (commits, is_damaged) = self.fast_commits(found.end);
        found.lost.is_none() && (is_damaged || commits.count() > 0)
    }

    /// Reads the fast commits of transaction `end`, and whether one is damaged or unreadable.
    fn fast_commits(&self, end: Sequence) -> (FastCommits, bool) {
        let mut commits = FastCommits::new(end);
        for at in self.superblock.fast_commit_area() {
            match self.read(at).map(|block| commits.add(&block)) {
                Ok(Ok(FastNext::Read)) => {}
                Ok(Ok(FastNext::End)) => break,
                Ok(Err(_)) | Err(_) => return (commits, true),
            }
        }
        (commits, false)
    }

    /// Reads the transactions of the log in order, up to the last one that has a commit block.
    fn scan(&self, start: u32) -> Result<Scanned, String> {
        let format = self.superblock.format();
        let area = self.superblock.log_area();
        let mut left = area.end.saturating_sub(area.start).min(LONGEST);
        let mut found = Scanned::new(self.superblock.sequence(), start);
        let mut open = Open::default();
        let mut at = start;
        while left > 0 {
            let block = self.read(at)?;
            let Some(header) = Header::decode(&block) else { break };
            if header.sequence != found.end {
                break;
            }
            match open.add(self, at, header, &block, &format, &mut found) {
                Ok(Some(used)) => {
                    left = left.saturating_sub(used);
                    at = self.after(at, used);
                    if header.kind == BlockKind::Commit {
                        found.head = at;
                    }
                }
                Ok(None) => break,
                // A transaction that was not committed is not a loss.
                Err(cause) => {
                    if self.was_committed(at, &found)? {
                        found.lost = Some(format!("a transaction in log block {at}: {cause}"));
                    }
                    break;
                }
            }
        }
        Ok(found)
    }

    /// Returns whether the transaction after `found`, which is damaged in log block `damaged`, was
    /// committed: a commit block of this transaction or of the next one follows. A commit block
    /// that is older than the last transaction of `found` belongs to an older log. The search ends
    /// when more blocks in a row have no header than one descriptor can have copies.
    fn was_committed(&self, damaged: u32, found: &Scanned) -> Result<bool, String> {
        let format = self.superblock.format();
        if format.checksums == LogChecksums::None {
            return Ok(false);
        }
        let area = self.superblock.log_area();
        let gap = format.tags_per_descriptor() as u32 + 3;
        let (mut n, mut end) = (1, gap);
        while n <= end && n < area.end.saturating_sub(area.start) {
            let block = self.read(self.after(damaged, n))?;
            n += 1;
            let is_next =
                |header: &Header| [found.end, found.end.next()].contains(&header.sequence);
            if Header::decode(&block).filter(is_next).is_none() {
                continue;
            }
            end = n.saturating_add(gap);
            let commit = Commit::decode(&block, &format);
            if commit.is_ok_and(|commit| (commit.secs, commit.nanos) >= found.time) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// The committed part of a log.
struct Scanned {
    copies: Vec<Copy>,
    /// For each revoked block, the last transaction that revoked it.
    revoked: HashMap<Block, Sequence>,
    /// The last transaction's sequence number plus one.
    end: Sequence,
    /// The log block after the last transaction.
    head: u32,
    /// The time of the last transaction.
    time: (u64, u32),
    /// Why further committed transactions cannot be read, if there are any.
    lost: Option<String>,
}

impl Scanned {
    fn new(end: Sequence, head: u32) -> Scanned {
        let (copies, revoked) = (Vec::new(), HashMap::new());
        Scanned { copies, revoked, end, head, time: (0, 0), lost: None }
    }
}

struct Copy {
    at: u32,
    tag: Tag,
    sequence: Sequence,
}

/// A transaction whose commit block has not been read yet.
#[derive(Default)]
struct Open {
    copies: Vec<Copy>,
    revoked: Vec<Block>,
}

impl Open {
    /// Adds a descriptor, revoke or commit block. Returns how many log blocks this block and the
    /// logged copies after it take; `None` if the log ends here.
    fn add(
        &mut self,
        log: &Log<'_>,
        at: u32,
        header: Header,
        block: &[u8],
        format: &LogFormat,
        found: &mut Scanned,
    ) -> Result<Option<u32>, Cause> {
        Ok(match header.kind {
            BlockKind::Descriptor => {
                let mut used = 1;
                for tag in Tags::decode(block, format)? {
                    let at = log.after(at, used);
                    self.copies.push(Copy { at, tag, sequence: header.sequence });
                    used += 1;
                }
                Some(used)
            }
            BlockKind::Revoke => {
                self.revoked.extend(Revokes::decode(block, format)?);
                Some(1)
            }
            BlockKind::Commit => {
                let commit = Commit::decode(block, format)?;
                found.copies.append(&mut self.copies);
                let sequence = header.sequence;
                found.revoked.extend(self.revoked.drain(..).map(|block| (block, sequence)));
                found.end = sequence.next();
                found.time = (commit.secs, commit.nanos);
                Some(1)
            }
            BlockKind::SuperblockV1 | BlockKind::SuperblockV2 => None,
        })
    }
}
