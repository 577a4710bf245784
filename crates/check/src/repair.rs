//! Repairs an image in memory, without questions, like e2fsck -y. The result is a plan of blocks to
//! write.
//!
//! A round checks the image and mends the faults of one stage; the next round checks again. In this
//! way the checker decides when a repair is complete, and a fault that is only a consequence of
//! another fault disappears when that other fault is mended. Planning writes nothing to the device:
//! all changes are made in views in memory, and the caller writes them to the device
//! (`lanefs_offline::mend`).

mod attributes;
mod compare;
mod copies;
mod counts;
mod inode_offsets;
mod inodes;
mod log;
mod mender;
mod names;
mod orphans;
mod paths;
mod quotas;
mod salvage;
mod shared;
mod stage;
mod tree;
mod volume;

pub use mender::{Action, Shared};

use crate::checker::{self, Error, Options};
use crate::harm::Harm;
use crate::journal;
use crate::report::Report;
use crate::superblock;
use crate::volume::Volume;
use compare::{MOST_CHANGED, MOST_FINDINGS, silent};
use lanefs_device::{Device, DeviceError, OverlayDevice};
use lanefs_ondisk::superblock::{RawSuperblock, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE};
use lanefs_ondisk::{Block, BlockSize};
use mender::{Fast, Mender};
use stage::Stage;
use std::collections::BTreeSet;
use std::sync::Arc;
use volume::{asking_for_replay, put_superblock};
use zerocopy::FromBytes;

/// The largest number of rounds. Even an image of random bytes takes few rounds, because a round
/// mends all faults of a stage.
const MOST_ROUNDS: usize = 100;

/// A block with its new content.
pub type Write = (Block, Vec<u8>);

/// The plan of a repair.
pub struct Plan {
    /// The report of the first check, which is made after the replay of the log.
    pub before: Report,
    /// The actions of the repair, in order.
    pub actions: Vec<Action>,
    /// The report of the last check: the faults that are left, and the parts that are not checked.
    pub after: Report,
    /// Whether the repair can be written to the image's log as one transaction.
    pub has_log: bool,
    log_head: Option<Block>,
    base: Arc<dyn Device>,
    /// The image after the changes that are safe to write in place: damaged superblocks and
    /// descriptors are overwritten with their copies, and the log is replayed.
    recovered: Arc<OverlayDevice>,
    repaired: Arc<OverlayDevice>,
    block_size: BlockSize,
}

impl Plan {
    /// Returns whether faults are left.
    pub fn leaves_faults(&self) -> bool {
        self.after.left_out > 0 || self.after.findings.iter().any(|f| f.harm() != Harm::Note)
    }

    /// Returns the blocks to write in place before the blocks of [`Plan::repair`]. After a replay,
    /// the last three are the superblock, which asks for a replay, the head of the log, and the
    /// superblock, which no longer asks. The caller must write each of these three only when all
    /// blocks before it are durable. In this order, nothing is lost if the writing is interrupted
    /// or repeated.
    ///
    /// # Errors
    /// The errors of the device.
    pub fn recovery(&self) -> Result<Vec<Write>, DeviceError> {
        let mut writes = differing(&*self.base, &self.recovered, self.block_size)?;
        let superblock = Block(SUPERBLOCK_OFFSET >> self.block_size.bits());
        writes.sort_by_key(|(block, _)| (*block == superblock, Some(*block) == self.log_head));
        // The newest superblock may be only in the log, so it is written before the log is emptied.
        if let [.., (head, _), (last, bytes)] = &writes[..]
            && Some(*head) == self.log_head
            && *last == superblock
        {
            let (mut bytes, at) = (bytes.clone(), SUPERBLOCK_OFFSET as usize % bytes.len());
            if let Some(bytes) = bytes.get_mut(at..at + SUPERBLOCK_SIZE)
                && let Ok(raw) = RawSuperblock::read_from_bytes(bytes)
                && let Some(asking) = asking_for_replay(&raw)
            {
                bytes.copy_from_slice(&asking.encode());
            }
            writes.insert(writes.len() - 2, (superblock, bytes));
        }
        Ok(writes)
    }

    /// Returns the blocks that the repair changes after the log was replayed. They must be written
    /// atomically: all of them or none.
    ///
    /// # Errors
    /// The errors of the device.
    pub fn repair(&self) -> Result<Vec<Write>, DeviceError> {
        differing(&*self.recovered, &self.repaired, self.block_size)
    }

    /// Returns the block size.
    pub fn block_size(&self) -> BlockSize {
        self.block_size
    }

    /// Returns a view of the image as the repair leaves it.
    pub fn view(&self) -> Arc<dyn Device> {
        self.repaired.clone()
    }
}

/// Plans the repair of the file system on `device`.
///
/// # Errors
/// [`Error`] if the device has no valid superblock, has a log that the caller has to replay first,
/// or needs more changes than a plan keeps in memory.
pub fn plan(device: Arc<dyn Device>, shared: Shared) -> Result<Plan, Error> {
    plan_within(device, shared, MOST_CHANGED)
}

/// Plans the repair of a file system whose fast commits cannot be replayed as it is:
/// [`Error::FastCommits`]. What leads to the log is restored, then `replace` replaces the fast
/// commits. If it returns false, that is tried again after all else is mended, and if it returns
/// false again, the fast commits are lost. All of this happens in memory, and the plan is not for
/// the log.
///
/// # Errors
/// Those of [`plan`].
pub fn plan_around(
    device: Arc<dyn Device>,
    shared: Shared,
    mut replace: impl FnMut(&Arc<dyn Device>) -> bool,
) -> Result<Plan, Error> {
    let new_view = || Arc::new(OverlayDevice::new(device.clone(), MOST_CHANGED));
    let over = |view, fast| plan_over(device.clone(), view, shared, MOST_CHANGED, fast);
    let view = new_view();
    let mut actions = Vec::new();
    let (head, _) = copies::recover(&view, Fast::Kept, &mut actions)?;
    let kept = Arc::new(view.fork());
    let below: Arc<dyn Device> = view.clone();
    if replace(&below) {
        let mut plan = over(view, Fast::Refused)?;
        plan.actions.splice(0..0, actions);
        plan.has_log = false;
        return Ok(plan);
    }
    // Their blocks and inodes seem to be free.
    let (superblock, _) = superblock::open(&*kept, &silent()).map_err(Error::NoSuperblock)?;
    let changes = journal::fast_changes(&Volume::new(kept.clone(), superblock));
    let mut mended = over(new_view(), Fast::Lost(&changes))?;
    mended.has_log = false;
    let again = new_view();
    let mut with_fast_commits = || {
        let bits = mended.block_size.bits();
        for (block, bytes) in mended.recovery().ok()?.into_iter().chain(mended.repair().ok()?) {
            again.write_at(block.0 << bits, &bytes).ok()?;
        }
        // The log has its fast commits again.
        let mut bytes = vec![0; mended.block_size.bytes()];
        kept.read_at(head?.0 << bits, &mut bytes).ok()?;
        again.write_at(head?.0 << bits, &bytes).ok()?;
        let (superblock, _) = superblock::open(&*again, &silent()).ok()?;
        put_superblock(&*again, &asking_for_replay(superblock.raw())?);
        let below: Arc<dyn Device> = again.clone();
        replace(&below).then_some(())
    };
    if with_fast_commits().is_none() {
        return Ok(mended);
    }
    let mut plan = over(again, Fast::Refused)?;
    mended.actions.retain(|action| action.what != log::LOST);
    plan.actions.splice(0..0, mended.actions);
    (plan.before, plan.has_log) = (mended.before, false);
    Ok(plan)
}

/// Plans a repair that changes at most `most` bytes.
///
/// # Errors
/// Those of [`plan`].
pub fn plan_within(device: Arc<dyn Device>, shared: Shared, most: u64) -> Result<Plan, Error> {
    let recovered = Arc::new(OverlayDevice::new(device.clone(), most));
    plan_over(device, recovered, shared, most, Fast::Refused)
}

/// Plans a repair that begins with `recovered`, a view of `device`.
fn plan_over(
    device: Arc<dyn Device>,
    recovered: Arc<OverlayDevice>,
    shared: Shared,
    most: u64,
    fast: Fast<'_>,
) -> Result<Plan, Error> {
    let mut actions = Vec::new();
    let (log_head, is_unasked) = copies::recover(&recovered, fast, &mut actions)?;
    let block_size = copies::block_size(&*recovered)?;
    let below: Arc<dyn Device> = recovered.clone();
    let repaired = Arc::new(OverlayDevice::new(below, most));
    let (mut before, mut has_log) = (None, log_head.is_some() && !is_unasked);
    let mut rounds = 0;
    let after = loop {
        has_log &= !log::replay_again(&repaired, fast, &mut actions)?;
        let round = round(&repaired, (shared, fast), rounds < MOST_ROUNDS, &mut actions)?;
        if before.is_none() {
            has_log &= !round.touches_log;
            before = Some(round.report.clone());
        }
        rounds += 1;
        if !round.changed {
            break round.report;
        }
    };
    let before = before.unwrap_or_default();
    Ok(Plan {
        before,
        actions,
        after,
        has_log,
        log_head,
        base: device,
        recovered,
        repaired,
        block_size,
    })
}

struct Round {
    report: Report,
    changed: bool,
    /// Whether the repair cannot be written through the log (see `Mender::log_is_damaged`).
    touches_log: bool,
}

fn round(
    device: &Arc<OverlayDevice>,
    (shared, fast): (Shared, Fast<'_>),
    mends: bool,
    actions: &mut Vec<Action>,
) -> Result<Round, Error> {
    // The checks run on one thread, so that the same image always leads to the same plan.
    let options = Options { threads: 1, memory: u64::MAX, findings: MOST_FINDINGS };
    let (mut changed, mut touches_log, mut is_full) = (false, false, false);
    let view: Arc<dyn Device> = device.clone();
    let report = checker::inspect(view, &options, &|_| {}, &mut |run, parents, findings| {
        let mut mender = Mender::new(run, parents, device, (shared, fast), findings, actions);
        touches_log = mender.log_is_damaged();
        // If a group's inode table cannot be found, the group seems to have no inodes, and names
        // that refer to them seem wrong.
        let has_tables = mender.has_tables();
        for stage in Stage::ALL {
            if mends && !changed && (has_tables || stage == Stage::Volume) {
                mender.mend(stage);
                changed = mender.changed;
            }
        }
        if mends && !changed && !mender.findings.iter().any(|f| Stage::of(f).is_some()) {
            mender.finish();
            changed = mender.changed;
        }
        is_full = mender.is_full;
    })?;
    if is_full {
        return Err(Error::TooManyChanges);
    }
    Ok(Round { report, changed, touches_log })
}

/// Returns the blocks of `above` that differ from `below`.
fn differing(
    below: &dyn Device,
    above: &OverlayDevice,
    block_size: BlockSize,
) -> Result<Vec<Write>, DeviceError> {
    let bits = block_size.bits();
    let end = below.len() >> bits;
    let mut blocks = BTreeSet::new();
    for (at, bytes) in above.changes() {
        let last = (at + bytes.len() as u64 - 1) >> bits;
        blocks.extend((at >> bits..=last).filter(|block| *block < end));
    }
    let mut writes = Vec::new();
    for block in blocks {
        let (mut old, mut new) = (vec![0; block_size.bytes()], vec![0; block_size.bytes()]);
        below.read_at(block << bits, &mut old)?;
        above.read_at(block << bits, &mut new)?;
        if old != new {
            writes.push((Block(block), new));
        }
    }
    Ok(writes)
}
