//! The limits of one owner, and the usage that is compared with them.
//!
//! This usage is counted only for an owner with limits, and only in a mount that obeys limits. All
//! threads that work for such an owner share the counts, since together they must not exceed the
//! limits.

use crate::attr::now;
use lanefs_journal::Tid;
use lanefs_lanes::sync::Arc;
use lanefs_lanes::sync::atomic::{AtomicU64, Ordering};
use lanefs_lanes::{Map, Mutex, Pin, Rank};
use lanefs_ondisk::quota::{BLOCK, BLOCKS_OF_AN_ID, Kind, Limits, Quota, QuotaFile, Usage};
use lanefs_ondisk::{Block, Ino, inode as disk};
use std::collections::{BTreeMap, BTreeSet};

/// For how many seconds soft limits may be exceeded.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Grace {
    pub(crate) bytes: u64,
    pub(crate) inodes: u64,
}

/// An owner's limits.
pub(crate) struct Limited {
    grace: Grace,
    live: Mutex<Live>,
}

struct Live {
    /// The entry; its usage includes operations that are not committed yet.
    quota: Quota,
    /// The reservations of operations in progress, by the inode that they change.
    held: BTreeMap<Ino, Holding>,
}

/// What operations in progress have reserved for one inode.
#[derive(Default)]
struct Holding {
    reserved: Usage,
    /// The part of `reserved` that the owner's usage includes already. Without it, this part would
    /// be counted twice until the operation ends, and others would be refused below the limit.
    used: Usage,
}

/// The space and inodes that an operation in progress has reserved for an inode. When the inode's
/// usage grows, the reservation shrinks by as much. Dropping this value gives back the rest.
pub(crate) struct Held {
    owner: Arc<Limited>,
    ino: Ino,
    amount: Usage,
}

impl Limited {
    pub(crate) fn new(quota: Quota, grace: Grace) -> Limited {
        let live = Live { quota, held: BTreeMap::new() };
        Limited { grace, live: Mutex::new(Rank::LaneList, live) }
    }

    /// Reserves for the inode `ino`: `inodes` inodes, and up to `most` units of `unit` bytes, as
    /// many as the limits permit at the time `now`, in seconds. Returns the reservation and its
    /// number of units. Returns `None` if the limits do not permit all wanted inodes, or do not
    /// permit even one of the wanted units.
    pub(crate) fn hold(
        self: &Arc<Self>,
        ino: Ino,
        Wanted { inodes, unit, units: most }: Wanted,
        now: u64,
    ) -> Option<(Held, u64)> {
        let mut live = self.live.lock();
        let Limits { kib_hard, kib_soft, inodes_hard, inodes_soft } = live.quota.limits;
        let used =
            live.held.values().fold(live.quota.usage, |sum, held| plus(sum, held.not_used()));
        let is_over = |until: u64| until != 0 && now >= until;
        let space = limit_now(kib_hard, kib_soft, is_over(live.quota.bytes_until));
        let room = space.saturating_mul(1024).saturating_sub(used.bytes);
        let units = most.min(room / unit.max(1));
        let numbers = limit_now(inodes_hard, inodes_soft, is_over(live.quota.inodes_until));
        if (most > 0 && units == 0) || (inodes > 0 && numbers.saturating_sub(used.inodes) < inodes)
        {
            return None;
        }
        let amount = Usage { bytes: units * unit, inodes };
        let holding = live.held.entry(ino).or_default();
        holding.reserved = plus(holding.reserved, amount);
        Some((Held { owner: self.clone(), ino, amount }, units))
    }

    /// Counts a change of an inode's usage from `less` to `more` at the time `now`. The inode's
    /// reservations shrink by what is now used. The grace time of a soft limit starts when the
    /// usage exceeds the limit, and is cleared when the usage no longer exceeds it.
    pub(crate) fn change(&self, ino: Ino, less: Usage, more: Usage, now: u64) {
        let mut live = self.live.lock();
        if let Some(holding) = live.held.get_mut(&ino) {
            holding.used = least(plus(holding.used, minus(more, less)), holding.reserved);
        }
        let quota = &mut live.quota;
        let Usage { bytes, inodes } = quota.usage;
        quota.usage = Usage {
            bytes: bytes.saturating_add(more.bytes).saturating_sub(less.bytes),
            inodes: inodes.saturating_add(more.inodes).saturating_sub(less.inodes),
        };
        let soft = quota.limits.kib_soft.saturating_mul(1024);
        quota.bytes_until =
            until(soft, quota.usage.bytes, quota.bytes_until, now, self.grace.bytes);
        let soft = quota.limits.inodes_soft;
        quota.inodes_until =
            until(soft, quota.usage.inodes, quota.inodes_until, now, self.grace.inodes);
    }

    /// Sets the limits that are obeyed from now on.
    pub(crate) fn set(&self, limits: Limits) {
        let mut live = self.live.lock();
        live.quota = limited(live.quota, limits);
    }

    /// Returns the end of the grace time for bytes, and the end of the grace time for inodes.
    pub(crate) fn ends(&self) -> (u64, u64) {
        let live = self.live.lock();
        (live.quota.bytes_until, live.quota.inodes_until)
    }
}

impl Held {
    /// Keeps `units` units of `unit` bytes, and gives back the rest of the reserved space.
    pub(crate) fn keep(&mut self, units: u64, unit: u64) {
        let kept = units.saturating_mul(unit).min(self.amount.bytes);
        let more = Usage { bytes: self.amount.bytes - kept, inodes: 0 };
        let mut live = self.owner.live.lock();
        if let Some(holding) = live.held.get_mut(&self.ino) {
            holding.reserved = minus(holding.reserved, more);
        }
        self.amount.bytes = kept;
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut live = self.owner.live.lock();
        let Some(holding) = live.held.get_mut(&self.ino) else { return };
        // Several operations may have reserved for the inode, and `used` does not say whose
        // reservation is used. It is taken to be this one. At worst, a used part of another one is
        // counted twice until that operation ends.
        holding.reserved = minus(holding.reserved, self.amount);
        holding.used = minus(holding.used, self.amount);
        if holding.reserved == Usage::default() {
            live.held.remove(&self.ino);
        }
    }
}

impl Holding {
    fn not_used(&self) -> Usage {
        minus(self.reserved, self.used)
    }
}

fn plus(a: Usage, b: Usage) -> Usage {
    let bytes = a.bytes.saturating_add(b.bytes);
    Usage { bytes, inodes: a.inodes.saturating_add(b.inodes) }
}

fn minus(a: Usage, b: Usage) -> Usage {
    let bytes = a.bytes.saturating_sub(b.bytes);
    Usage { bytes, inodes: a.inodes.saturating_sub(b.inodes) }
}

fn least(a: Usage, b: Usage) -> Usage {
    Usage { bytes: a.bytes.min(b.bytes), inodes: a.inodes.min(b.inodes) }
}

/// Returns the limit that applies now; `u64::MAX` if there is none. The soft limit applies after
/// its grace time has ended.
fn limit_now(hard: u64, soft: u64, is_over: bool) -> u64 {
    let hard = if hard == 0 { u64::MAX } else { hard };
    if is_over && soft != 0 { hard.min(soft) } else { hard }
}

/// Returns the time at which the grace period ends, for the usage after a change; 0 if that usage
/// does not exceed the soft limit.
fn until(soft: u64, used: u64, before: u64, now: u64, grace: u64) -> u64 {
    match (soft == 0 || used <= soft, before) {
        (true, _) => 0,
        (false, 0) => now.saturating_add(grace),
        (false, before) => before,
    }
}

// One quota file of a mount.

/// A quota file, which the committer writes.
pub(crate) struct Ledger {
    pub(crate) kind: Kind,
    /// The inode of the file.
    pub(crate) ino: Ino,
    block_size: usize,
    /// The ids that have an entry, and the ids for which the running transaction adds an entry.
    known: Map<u64, Arc<Owner>>,
    /// Whether the mount obeys the limits in this file.
    obeys: bool,
    /// [rank Load, inside handles too; never held across I/O]
    stored: Mutex<Stored>,
}

/// An id in a quota file.
#[derive(Default)]
struct Owner {
    /// The last transaction that was charged a credit for the entry's block.
    charged: AtomicU64,
    /// The limits of the id, if the mount obeys them.
    limits: Option<Arc<Limited>>,
}

struct Stored {
    file: QuotaFile,
    /// The blocks of the file system in which the file is stored.
    blocks: Vec<Block>,
    /// The number of spare blocks of 1 KiB that are promised to new ids, until the committer adds
    /// these ids.
    promised: u32,
}

impl Ledger {
    /// Creates the ledger of a file that is stored in `blocks`.
    pub(crate) fn new(
        (kind, ino): (Kind, Ino),
        file: QuotaFile,
        blocks: Vec<Block>,
        block_size: usize,
    ) -> Ledger {
        let known = Map::with_capacity(64);
        for id in file.ids() {
            known.insert(u64::from(id), Arc::default());
        }
        let stored = Mutex::new(Rank::Load, Stored { file, blocks, promised: 0 });
        Ledger { kind, ino, block_size, known, obeys: false, stored }
    }

    /// Called at mount. From then on, the mount obeys the limits in the file.
    pub(crate) fn obey_limits(&mut self) {
        self.obeys = true;
        let stored = self.stored.lock();
        let (bytes, inodes) = stored.file.grace();
        let grace = Grace { bytes: bytes.into(), inodes: inodes.into() };
        for (id, quota) in entries(&stored.file) {
            if quota.limits != Limits::default() {
                let limits = Some(Arc::new(Limited::new(quota, grace)));
                let owner = Owner { charged: AtomicU64::new(0), limits };
                self.known.insert(u64::from(id), Arc::new(owner));
            }
        }
    }

    /// Returns the limits of an id, if the mount obeys limits and the id has limits.
    pub(crate) fn limits_of(&self, id: u32) -> Option<Arc<Limited>> {
        if !self.obeys {
            return None;
        }
        let pin = lanefs_lanes::pin();
        self.known.find(&pin, &u64::from(id)).and_then(|owner| owner.limits.clone())
    }

    /// Sets the limits of an id in the file. The caller has a handle in which it listed the id as
    /// [`Dirty::NewOwner`](crate::object::dirty::Dirty). A mount that obeys limits obeys the new
    /// limits immediately if the id had limits at mount; otherwise only the next mount obeys them.
    pub(crate) fn set_limits(&self, id: u32, limits: Limits) {
        let mut stored = self.stored.lock();
        let mut quota = limited(stored.file.get(id).unwrap_or_default(), limits);
        if let Some(live) = self.limits_of(id) {
            live.set(limits);
            (quota.bytes_until, quota.inodes_until) = live.ends();
        }
        stored.file.set(id, &quota);
    }

    /// Returns whether the id has an entry, or the running transaction adds an entry for it.
    pub(crate) fn knows(&self, id: u32) -> bool {
        self.known.with(&lanefs_lanes::pin(), &u64::from(id), |_| ()).is_some()
    }

    /// Returns whether the caller must charge a credit to transaction `tid`, for the block that
    /// contains the id's entry. Of all calls for the same id and transaction, only the first
    /// returns true.
    pub(crate) fn is_charged_now(&self, pin: &Pin, tid: Tid, id: u32) -> bool {
        let Some(owner) = self.known.find(pin, &u64::from(id)) else { return false };
        let charged = &owner.charged;
        charged.load(Ordering::Relaxed) != tid.0 && charged.swap(tid.0, Ordering::Relaxed) != tid.0
    }

    /// Returns whether there are spare blocks for one more id.
    pub(crate) fn has_room(&self) -> bool {
        let stored = self.stored.lock();
        stored.file.spare_blocks() >= stored.promised.saturating_add(BLOCKS_OF_AN_ID)
    }

    /// Returns the length of the file in bytes, and the number of unused bytes in its last block.
    pub(crate) fn len(&self) -> (usize, usize) {
        let stored = self.stored.lock();
        let len = stored.file.bytes().len();
        (len, stored.blocks.len() * self.block_size - len)
    }

    /// Apply: adds bytes at the end of the file, in a new block or in the rest of the last block.
    pub(crate) fn grow(&self, bytes: usize, block: Option<Block>) {
        let mut stored = self.stored.lock();
        stored.file.grow(bytes);
        stored.blocks.extend(block);
    }

    /// Apply: notes that the committer adds `id` in the running transaction. The caller makes sure
    /// that [`Ledger::has_room`] has returned true to this thread, and that no other thread has
    /// added an id since then.
    pub(crate) fn promise(&self, id: u32) {
        self.stored.lock().promised += BLOCKS_OF_AN_ID;
        self.known.insert(u64::from(id), Arc::default());
    }

    /// Runs `f` on the file as the last commit left it.
    pub(crate) fn with_file<R>(&self, f: impl FnOnce(&QuotaFile) -> R) -> R {
        f(&self.stored.lock().file)
    }

    /// Committer: changes the file, and adds the images of the changed blocks to `images`.
    pub(crate) fn fold(&self, fold: &Fold, images: &mut BTreeMap<Block, Arc<[u8]>>) {
        let mut stored = self.stored.lock();
        let Stored { file, blocks, promised } = &mut *stored;
        for id in fold.new_owners(self.kind) {
            // `new_owners` also returns ids whose limits were set, which have an entry already.
            if file.get(id).is_none() {
                let added = file.add(id);
                debug_assert!(added, "room was made before the id was added");
                *promised = promised.saturating_sub(BLOCKS_OF_AN_ID);
            }
        }
        for (id, change) in fold.changes(self.kind) {
            // An inode that existed before the mount may have an owner without an entry, if the
            // quota file was wrong. Then the quota file stays wrong.
            if let Some(mut quota) = file.get(id) {
                quota.usage = change.of(quota.usage);
                quota = limited(quota, quota.limits);
                if let Some(limits) = self.limits_of(id) {
                    (quota.bytes_until, quota.inodes_until) = limits.ends();
                }
                file.set(id, &quota);
            }
        }
        let changed: BTreeSet<usize> =
            file.take_changed().iter().map(|n| *n as usize * BLOCK / self.block_size).collect();
        for n in changed {
            let Some(block) = blocks.get(n) else { continue };
            let start = n * self.block_size;
            let end = (start + self.block_size).min(file.bytes().len());
            let mut image = file.bytes().get(start..end).unwrap_or_default().to_vec();
            image.resize(self.block_size, 0);
            images.insert(*block, image.into());
        }
    }
}

// The changes of usage in one transaction.

/// Collects the changes that a transaction makes to the usage of each owner.
#[derive(Default)]
pub(crate) struct Fold {
    /// The ids for which the transaction adds an entry.
    new: Vec<(Kind, u32)>,
    changes: BTreeMap<(usize, u32), Change>,
}

/// The change of one owner's usage; negative if the usage decreases.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Change {
    bytes: i128,
    inodes: i64,
}

impl Fold {
    /// Notes that the transaction adds an entry for an id, unless the id has one.
    pub(crate) fn add_owner(&mut self, kind: Kind, id: u32) {
        self.new.push((kind, id));
    }

    pub(crate) fn add(&mut self, disk: &disk::Inode) {
        self.change(disk, 1);
    }

    pub(crate) fn subtract(&mut self, disk: &disk::Inode) {
        self.change(disk, -1);
    }

    fn change(&mut self, disk: &disk::Inode, sign: i64) {
        for (kind, id) in owners(disk).into_iter().enumerate() {
            let Some(id) = id else { continue };
            let change = self.changes.entry((kind, id)).or_default();
            change.inodes += sign;
            change.bytes += i128::from(sign) * i128::from(disk.sectors) * 512;
        }
    }

    /// Returns the ids of a kind that were given to [`Fold::add_owner`].
    pub(crate) fn new_owners(&self, kind: Kind) -> impl Iterator<Item = u32> {
        self.new.iter().filter(move |(of, _)| *of == kind).map(|(_, id)| *id)
    }

    /// Returns the owners of a kind whose usage changes, each with the change of its usage.
    pub(crate) fn changes(&self, kind: Kind) -> impl Iterator<Item = (u32, Change)> {
        let all = (kind.index(), 0)..=(kind.index(), u32::MAX);
        let changed = |(_, change): &(_, &Change)| **change != Change::default();
        self.changes.range(all).filter(changed).map(|(&(_, id), change)| (id, *change))
    }
}

impl Change {
    /// Returns the usage after the change. If the usage on disk was too small, the result is 0
    /// instead of a negative number.
    pub(crate) fn of(&self, usage: Usage) -> Usage {
        let bytes = (i128::from(usage.bytes) + self.bytes).clamp(0, i128::from(u64::MAX));
        Usage { bytes: bytes as u64, inodes: usage.inodes.saturating_add_signed(self.inodes) }
    }
}

// The usage that an inode adds to its owners.

/// The ids of an inode's owners, in the order of [`Kind`]; `None` for a kind of owner that does not
/// matter to the caller.
pub(crate) type Owners = [Option<u32>; 3];

/// The usage that an inode adds to its owners.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Counted {
    pub(crate) owners: Owners,
    pub(crate) usage: Usage,
}

impl Counted {
    /// Returns the usage of an inode.
    pub(crate) fn of(disk: &disk::Inode) -> Counted {
        let usage = Usage { bytes: disk.sectors.saturating_mul(512), inodes: 1 };
        Counted { owners: owners(disk), usage }
    }

    /// Returns a usage of zero for these owners. This is the usage of an inode that does not exist.
    pub(crate) fn nothing(self) -> Counted {
        Counted { usage: Usage::default(), ..self }
    }
}

/// The inodes and the space that an operation will use.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted {
    pub(crate) inodes: u64,
    /// The bytes of one unit of space.
    pub(crate) unit: u64,
    pub(crate) units: u64,
}

/// Returns the owners of an inode.
pub(crate) fn owners(disk: &disk::Inode) -> Owners {
    [Some(disk.uid), Some(disk.gid), Some(disk.projid)]
}

/// Returns the time in seconds since 1970.
pub(crate) fn seconds() -> u64 {
    now().secs.try_into().unwrap_or(0)
}

/// Returns the entry with new limits. If the usage no longer exceeds a limit, the grace time of
/// that limit is cleared.
pub(crate) fn limited(mut quota: Quota, limits: Limits) -> Quota {
    quota.limits = limits;
    if quota.usage.bytes <= limits.kib_soft.saturating_mul(1024) || limits.kib_soft == 0 {
        quota.bytes_until = 0;
    }
    if quota.usage.inodes <= limits.inodes_soft || limits.inodes_soft == 0 {
        quota.inodes_until = 0;
    }
    quota
}

/// The entries of a quota file.
pub(crate) fn entries(file: &QuotaFile) -> Vec<(u32, Quota)> {
    file.ids().into_iter().filter_map(|id| Some((id, file.get(id)?))).collect()
}

#[cfg(test)]
mod tests;
