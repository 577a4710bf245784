//! The reference from an inode to its mount, and the lanes' counts of references to inodes.
//!
//! Every inode refers to its mount, and dropping the last reference to a nameless inode calls the
//! mount. Neither the reference nor the call may write a cache line that lanes share. So each lane
//! has its own reference to the mount, and its own counts of the references to inodes.

use crate::alloc::Claim;
use crate::cache::Evicted;
use crate::quota::Quotas;
use lanefs_lanes::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use lanefs_lanes::sync::{Arc, OnceLock, Weak};
use lanefs_lanes::{
    Holdable, Lane, LaneArc, LaneCounter, Mutex, Padded, PerLane, Pin, Rank, Shares, Slot,
};
use lanefs_ondisk::Ino;
use lanefs_plan::extent::Map;
use std::collections::{BTreeSet, HashMap};

/// Called when the last reference to a nameless object is dropped.
pub(crate) trait LastReference<T>: Send + Sync {
    /// Handles an object that has lost its last reference and has no name. The caller holds no
    /// operation lock.
    fn last_reference_dropped(&self, object: &Arc<T>);

    /// Evicts objects from time to time. Called after a reference was dropped while the caches were
    /// over their cap, with no lock ranked after [`lanefs_lanes::Rank::InodeLoad`] held.
    fn dropped_over_cap(&self);
}

/// An inode's view of its mount. `T` is the type of the inodes.
pub(crate) struct MountRef<T: Holdable> {
    /// The lanes' references to the mount, set as soon as the mount exists.
    lanes: OnceLock<PerLane<Weak<LaneRef<T>>>>,
    /// The lanes' counts of references to inodes.
    pub(crate) shares: Shares<T>,
    pub(crate) totals: LaneArc<Totals>,
    pub(crate) known: Known,
    /// Whether the last look at the caches found them over their cap. Written only if it changes.
    pub(crate) is_over_cap: AtomicBool,
    /// The quotas, set at mount if the file system keeps them.
    quotas: OnceLock<Quotas>,
    /// Set at mount if the mount writes fast commits.
    fast_commits: OnceLock<()>,
}

/// A lane's reference to the mount, on cache lines that contain nothing else.
#[repr(align(128))]
struct LaneRef<T>(Arc<dyn LastReference<T>>);

/// Owns the lanes' references on behalf of the mount. After this value is dropped, inodes no longer
/// refer to the mount.
pub(crate) struct LaneRefs<T: Holdable> {
    _lanes: PerLane<Arc<LaneRef<T>>>,
    mount: LaneArc<MountRef<T>>,
}

impl<T: Holdable> MountRef<T> {
    pub(crate) fn new() -> LaneArc<MountRef<T>> {
        let shares = Shares::new();
        let (lanes, quotas, fast_commits) = (OnceLock::new(), OnceLock::new(), OnceLock::new());
        let (totals, known) = (Totals::new(), Known::new());
        let is_over_cap = AtomicBool::new(false);
        LaneArc::new(MountRef { lanes, shares, totals, known, is_over_cap, quotas, fast_commits })
    }

    /// Returns the quotas, if the file system keeps them and can be written.
    #[inline]
    pub(crate) fn quotas(&self) -> Option<&Quotas> {
        self.quotas.get()
    }

    /// Keeps `quotas` from now on.
    pub(crate) fn keep(&self, quotas: Quotas) {
        let kept = self.quotas.set(quotas);
        debug_assert!(kept.is_ok(), "quotas are read once");
    }

    /// Returns whether changes of inodes are noted for fast commits.
    #[inline]
    pub(crate) fn has_fast_commits(&self) -> bool {
        self.fast_commits.get().is_some()
    }

    /// From this call on, changes of inodes are noted for fast commits.
    pub(crate) fn note_fast_commits(&self) {
        let noted = self.fast_commits.set(());
        debug_assert!(noted.is_ok(), "a mount decides once");
    }

    /// Tells the mount that the last reference to the nameless `object` was dropped. Does nothing
    /// if the mount is gone.
    pub(crate) fn last_reference_dropped(&self, object: &Arc<T>) {
        self.tell(|mount| mount.last_reference_dropped(object));
    }

    /// Tells the mount that a reference was dropped, if the caches are over their cap.
    #[inline]
    pub(crate) fn reference_dropped(&self) {
        if self.is_over_cap.load(Ordering::Relaxed) {
            self.tell(|mount| mount.dropped_over_cap());
        }
    }

    #[cold]
    fn tell(&self, what: impl FnOnce(&dyn LastReference<T>)) {
        let mount = self.lanes.get().and_then(|lanes| lanes.mine().upgrade());
        if let Some(mount) = mount {
            what(&*mount.0);
        }
    }
}

impl<T: Holdable> LaneRefs<T> {
    /// Creates each lane's reference to the mount `to`, and enters these references in `mount`.
    pub(crate) fn new(
        mount: &LaneArc<MountRef<T>>,
        to: &Arc<impl LastReference<T> + 'static>,
    ) -> LaneRefs<T> {
        let lanes = PerLane::new(|_| Arc::new(LaneRef(to.clone())));
        let weak = PerLane::new(|lane| Arc::downgrade(lanes.of(lane)));
        let opened = mount.lanes.set(weak);
        debug_assert!(opened.is_ok(), "a mount has one set of lane references");
        LaneRefs { _lanes: lanes, mount: mount.clone() }
    }
}

impl<T: Holdable> Drop for LaneRefs<T> {
    fn drop(&mut self) {
        // The lanes' counts keep inodes in memory, these inodes keep the `MountRef` in memory, and
        // the `MountRef` contains the counts. Without this call, none of them would ever be freed.
        self.mount.shares.clear();
    }
}

// Keeps totals over all inodes of a mount.

/// Holds counts over all inodes of a mount.
pub(crate) struct Totals {
    /// The number of directories in memory that keep deltas by lane.
    contended: AtomicUsize,
    /// The newest flush that the data of any evicted inode needs. It is kept here because a flush
    /// mark must not be lost when its inode is evicted. Written only by eviction.
    pub(crate) evicted_mark: Padded<AtomicU64>,
    /// The size of large mappings in bytes.
    pub(crate) mapped: LaneCounter,
    pub(crate) windows: LaneArc<Windows>,
}

/// The largest number of directories in memory that keep deltas by lane. The deltas of a directory
/// take about 8 KiB.
const MOST_CONTENDED: usize = 4096;

/// A permit for one directory to keep deltas by lane. The permit is returned when this value is
/// dropped.
pub(crate) struct Permit(LaneArc<Totals>);

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.contended.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Totals {
    pub(crate) fn new() -> LaneArc<Totals> {
        LaneArc::new(Totals {
            contended: AtomicUsize::new(0),
            evicted_mark: Padded(AtomicU64::new(0)),
            mapped: LaneCounter::new(0),
            windows: Windows::new(),
        })
    }

    /// Returns a permit for one more directory, or `None` if all are in use.
    pub(crate) fn permit(totals: &LaneArc<Totals>) -> Option<Permit> {
        let more = |taken: usize| (taken < MOST_CONTENDED).then_some(taken + 1);
        let taken = totals.contended.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        taken.ok().map(|_| Permit(totals.clone()))
    }
}

/// The number of shards of [`Known`], a power of two.
const SHARDS: usize = if cfg!(any(loom, shuttle)) { 1 } else { 256 };

/// The bit of a count in [`Known`] that keeps the mark `Inode::has_foreign_policy`: a kernel that
/// knows a file opens it without another look-up.
pub(crate) const FOREIGN: u64 = 1 << 63;

/// Keeps the look-ups of a FUSE kernel for inodes that were evicted: it knows a node until it
/// forgets it. The generation need not be kept: an inode that the kernel knows is not deleted, so
/// the generation on disk stays.
pub(crate) struct Known {
    /// [rank Bucket]
    shards: Box<[Padded<Shard>]>,
    /// The look-ups that a kernel forgot without having them; 0 unless one of the two counts
    /// wrongly.
    unknown: AtomicU64,
}

type Shard = Mutex<HashMap<Ino, u64>>;

impl Known {
    fn new() -> Known {
        let shard = |_| Padded(Mutex::new(Rank::Bucket, HashMap::new()));
        Known { shards: (0..SHARDS).map(shard).collect(), unknown: AtomicU64::new(0) }
    }

    fn shard(&self, ino: Ino) -> &Shard {
        let spread = u64::from(ino.0).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        &self.shards[spread as usize % SHARDS]
    }

    /// Eviction: keeps the `n` look-ups of `ino`, which may have the bit [`FOREIGN`].
    pub(crate) fn put(&self, ino: Ino, n: u64) {
        let before = self.shard(ino).lock().insert(ino, n);
        debug_assert!(before.is_none(), "an inode is evicted once");
    }

    /// Loading: returns the look-ups of `ino`, perhaps with [`FOREIGN`], and keeps them no longer.
    pub(crate) fn take(&self, ino: Ino) -> u64 {
        let mut shard = self.shard(ino).lock();
        let (n, len) = (shard.remove(&ino).unwrap_or(0), shard.len());
        if len < shard.capacity() / 4 {
            shard.shrink_to(2 * len);
        }
        n
    }

    /// Removes `n` look-ups of `ino`.
    pub(crate) fn forget(&self, ino: Ino, n: u64) {
        let kept = self.take(ino);
        let known = self.clamp(n, kept & !FOREIGN);
        if kept & !FOREIGN > known {
            self.put(ino, kept - known);
        }
    }

    /// Returns how many of `n` look-ups to forget if `known` are known, and counts the others.
    pub(crate) fn clamp(&self, n: u64, known: u64) -> u64 {
        if n > known {
            self.unknown.fetch_add(n - known, Ordering::Relaxed);
        }
        n.min(known)
    }

    /// Returns how many look-ups a kernel forgot that it did not have.
    pub(crate) fn unknown(&self) -> u64 {
        self.unknown.load(Ordering::Relaxed)
    }

    /// Returns the number of inodes, and the size of the tables in bytes.
    pub(crate) fn size(&self) -> (usize, usize) {
        let (mut inodes, mut bytes) = (0, 0);
        for shard in &self.shards {
            let shard = shard.lock();
            inodes += shard.len();
            // One byte of control for each slot, of which 7 of 8 can be used.
            bytes += shard.capacity().div_ceil(7) * 8 * (size_of::<(Ino, u64)>() + 1);
        }
        (inodes, bytes)
    }
}

// Stores an inode's mappings. Reading them needs no lock besides the operation lock. They count
// against the memory cap. Under memory pressure they are dropped. When they are needed again, they
// are read from the extent tree or block map.
//
// *Locking*: a thread that drops mappings holds the inode's operation lock exclusively, and also
// `Inode::mapping` if the inode has holds. A thread that stores mappings holds the operation lock
// exclusively, or holds both the operation lock in shared mode and `Inode::mapping`. The loader
// holds both the operation lock in shared mode and `Inode::loading`. A reader holds the operation
// lock in either mode. For a quota file, `Inode::mapping` alone takes the place of the operation
// lock.

/// The size in bytes of a few extents; `object::pressure` assumes that every inode has mappings of
/// this size.
pub(crate) const SMALL: u64 = 192;

/// Holds the mappings of one inode; empty until they are first needed, and after they were dropped.
#[derive(Default)]
pub(crate) struct MapSlot {
    map: Slot<Map>,
    /// The number of bytes that the mappings take beyond [`SMALL`]. [`Totals::mapped`] includes
    /// this number.
    counted: AtomicU64,
}

impl MapSlot {
    pub(crate) fn get<'p>(&'p self, pin: &'p Pin) -> Option<&'p Map> {
        self.map.get(pin)
    }

    pub(crate) fn store(&self, map: Map, totals: &Totals) {
        let bytes = map.bytes().saturating_sub(SMALL);
        self.map.store(map);
        self.count(bytes, totals);
    }

    /// Drops the mappings if they are larger than [`SMALL`].
    pub(crate) fn forget_if_large(&self, totals: &Totals) -> Evicted {
        if self.counted.load(Ordering::Relaxed) == 0 {
            return Evicted::Nothing;
        }
        self.map.clear();
        self.count(0, totals);
        Evicted::Contents
    }

    /// Sets the number of bytes beyond [`SMALL`]. For most files the number stays zero, and then
    /// this function writes nothing.
    fn count(&self, bytes: u64, totals: &Totals) {
        let before = self.counted.load(Ordering::Relaxed);
        if before != bytes {
            self.counted.store(bytes, Ordering::Relaxed);
            totals.mapped.add(bytes.cast_signed().wrapping_sub(before.cast_signed()));
        }
    }
}

// Keeps preallocation windows (blocks claimed in advance for growing files) and lists of the
// inodes that have a window.

/// Holds blocks claimed in advance: `claim` starts with the block for file block `next`.
pub(crate) struct Window {
    next: u32,
    claim: Claim,
    _listed: Listed,
}

impl Window {
    /// Creates a window for inode `ino`, and lists the inode in `windows`.
    fn new(windows: &LaneArc<Windows>, ino: Ino, next: u32, claim: Claim) -> Box<Window> {
        Box::new(Window { next, claim, _listed: Listed::new(windows, ino) })
    }
}

/// Holds an inode's window, if it has one.
pub(crate) struct WindowSlot {
    /// The window, boxed because few inodes have one.
    window: Mutex<Option<Box<Window>>>,
    /// Is set if there is a window. Closing a file reads this first, and usually takes no lock.
    is_there: AtomicBool,
}

impl WindowSlot {
    pub(crate) fn new() -> WindowSlot {
        WindowSlot { window: Mutex::new(Rank::Window, None), is_there: AtomicBool::new(false) }
    }

    /// Claims up to `len` blocks of the window if the window continues at `at`; otherwise gives the
    /// window back. All of this happens under the window's lock, so a thread that takes the lock
    /// finds each block either in the window, or claimed, or free.
    pub(crate) fn claim(&self, at: u32, len: u32) -> Option<Claim> {
        if !self.is_there.load(Ordering::Acquire) {
            return None;
        }
        let mut slot = self.window.lock();
        if let Some(window) = &mut *slot
            && window.next == at
            && window.claim.len() > len
        {
            window.next += len;
            return Some(window.claim.split_front(len));
        }
        self.is_there.store(false, Ordering::Relaxed);
        slot.take().filter(|window| window.next == at).map(|window| window.claim)
    }

    /// Gives the window back.
    pub(crate) fn give_back(&self) {
        // A window that another thread stores at this moment is not given back, because that thread
        // still writes to the file.
        if self.is_there.load(Ordering::Acquire) {
            let mut slot = self.window.lock();
            *slot = None;
            // The flag is cleared last, because another thread that sees the cleared flag relies on
            // the window having been given back.
            self.is_there.store(false, Ordering::Release);
        }
    }

    /// Stores a new window for inode `ino`, and gives back the window of a concurrent write, if
    /// there is one.
    pub(crate) fn put(&self, windows: &LaneArc<Windows>, ino: Ino, next: u32, claim: Claim) {
        let mut window = self.window.lock();
        // The old window is dropped before the new one is created. A lane lists an inode only once,
        // so dropping the old window later would take the inode off the list.
        *window = None;
        *window = Some(Window::new(windows, ino, next, claim));
        self.is_there.store(true, Ordering::Release);
    }
}

/// Lists the inodes that have a window, by the lane that claimed the window. When space is short,
/// only these inodes are visited.
pub(crate) struct Windows {
    /// [rank LaneList]
    lists: PerLane<Mutex<BTreeSet<Ino>>>,
}

impl Windows {
    pub(crate) fn new() -> LaneArc<Windows> {
        let lists = PerLane::new(|_| Mutex::new(Rank::LaneList, BTreeSet::new()));
        LaneArc::new(Windows { lists })
    }

    /// Returns all listed inodes.
    pub(crate) fn listed(&self) -> Vec<Ino> {
        let mut all = Vec::new();
        for list in self.lists.iter() {
            all.extend(list.lock().iter());
        }
        all
    }
}

/// Keeps the inode of a window on a lane's list for as long as the window exists.
struct Listed {
    windows: LaneArc<Windows>,
    lane: Lane,
    ino: Ino,
}

impl Listed {
    fn new(windows: &LaneArc<Windows>, ino: Ino) -> Listed {
        let lane = Lane::current();
        windows.lists.of(lane).lock().insert(ino);
        Listed { windows: windows.clone(), lane, ino }
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.windows.lists.of(self.lane).lock().remove(&self.ino);
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
