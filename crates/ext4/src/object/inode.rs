//! An inode in memory: two locks, snapshots that are read without either, and the hold word.

use crate::attr::{Attr, Rdev, Rights};
use crate::cache::{Cached, Evicted, Used};
use crate::names::DirId;
use crate::object::contended::LaneDeltas;
use crate::object::dirty::{Captured, CapturedRecord, Dirty, Handle, Journaled};
use crate::object::map_slot::MapSlot;
use crate::object::mount_ref::MountRef;
use crate::object::record::{RawRecord, Record};
use crate::object::state::{Concerns, InodeState, StoredXattrs};
use crate::object::table::TableRef;
use crate::object::window::WindowSlot;
use lanefs_journal::Tid;
use lanefs_lanes::sync::atomic::{AtomicU64, Ordering};
use lanefs_lanes::sync::{Arc, OnceLock};
use lanefs_lanes::{
    Hold, Holdable, Holds, LaneArc, Lines, Mutex, Rank, SeqCell, SharedLock, Shares,
};
use lanefs_ondisk::inode::{self as disk, InodeFlags};
use lanefs_ondisk::{FileType, Ino, Time};
use std::ops::Deref;

/// An inode in memory.
///
/// # Locking
///
/// The *operation lock* `op` is held exclusively by changes, shared by data reads, overwrites and
/// scans, across I/O and waits. The *state guard* `state` is a leaf: taken by Apply inside a handle
/// and by the committer. `attr` and `map` are snapshots that Apply replaces: read with neither.
///
/// # Layout
///
/// Who only passes through a directory, or opens a file, reads the first lines, which hardly ever
/// change; changes write those behind [`LineStart`].
#[repr(C)]
pub struct Inode {
    pub(crate) ino: Ino,
    pub(crate) generation: u32,
    pub(crate) file_type: FileType,
    used: Used,
    pub(crate) mount: LaneArc<MountRef<Inode>>,
    /// The inode-table block its record is in, pinned as long as this lives, and the place in it.
    pub(crate) table: TableRef,
    pub(crate) offset: usize,
    /// Of `attr` what walks ask for; written under `state`.
    rights: SeqCell<Rights>,
    /// Where a symbolic link leads, once somebody asked: that never changes.
    pub(crate) target: OnceLock<Lines>,
    /// The attributes in the inode and its attribute block, once they were needed. Stored and
    /// cleared under `state`.
    pub(crate) xattrs: lanefs_lanes::Cached<StoredXattrs>,
    /// Of a directory: what lanes keep of names that they changed.
    pub(crate) deltas: LaneDeltas,
    changes: LineStart,
    pub(crate) op: SharedLock,
    /// Written under `state`.
    attr: SeqCell<Attr>,
    /// All mappings, once they were needed; loaded under `op`, replaced by Apply, forgotten by eviction.
    pub(crate) map: MapSlot,
    /// One loader of `map` at a time.
    pub(crate) loading: Mutex<()>,
    pub(crate) state: Mutex<InodeState>,
    /// Blocks claimed ahead of a growing file; taken and put back under `op` held exclusively.
    pub(crate) window: WindowSlot,
    /// The last transaction that changed anything of this inode, and anything needed to read its data.
    /// Written under `state`.
    pub(crate) synced_by: AtomicU64,
    pub(crate) data_synced_by: AtomicU64,
    /// The flush that its last data write needs ([`lanefs_journal::FlushMark`]).
    pub(crate) flush_mark: AtomicU64,
    pub(crate) holds: Holds,
}

/// What follows it begins a cache line.
#[repr(align(64))]
struct LineStart;

/// What a new object of an inode is made from.
pub(crate) struct Parts {
    pub(crate) ino: Ino,
    pub(crate) file_type: FileType,
    pub(crate) mount: LaneArc<MountRef<Inode>>,
    pub(crate) table: TableRef,
    pub(crate) offset: usize,
    pub(crate) disk: disk::Inode,
    pub(crate) raw: RawRecord,
}

impl Inode {
    /// An inode in memory, with one hold.
    pub(crate) fn new(parts: Parts) -> Inode {
        let Parts { ino, file_type, mount, table, offset, disk, raw } = parts;
        let attr = attr_of(ino, file_type, &disk);
        let state = InodeState::new(disk, raw);
        Inode {
            ino,
            generation: attr.generation,
            file_type,
            used: Used::new(),
            mount,
            table,
            offset,
            rights: SeqCell::new(attr.rights()),
            target: OnceLock::new(),
            xattrs: lanefs_lanes::Cached::default(),
            deltas: LaneDeltas::default(),
            changes: LineStart,
            op: SharedLock::new(Rank::Operation, u64::from(ino.0)),
            attr: SeqCell::new(attr),
            map: MapSlot::default(),
            loading: Mutex::new(Rank::InodeLoad, ()),
            state: Mutex::new(Rank::Guard, state),
            window: WindowSlot::new(),
            synced_by: AtomicU64::new(0),
            data_synced_by: AtomicU64::new(0),
            flush_mark: AtomicU64::new(0),
            holds: Holds::new(1),
        }
    }

    /// The number.
    pub fn ino(&self) -> Ino {
        self.ino
    }

    /// Tells it from an earlier inode of the same number.
    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// Tells this directory from any other.
    pub fn dir_id(&self) -> DirId {
        DirId { ino: self.ino, generation: self.generation }
    }

    /// What it is.
    pub fn file_type(&self) -> FileType {
        self.file_type
    }

    /// What stat(2) tells. Takes no lock, unless several lanes changed names in it since somebody
    /// asked last; a guard may not be held.
    pub fn attr(&self) -> Attr {
        if self.deltas.are_any() {
            let mut state = self.state.lock();
            if self.fold(&mut state) {
                self.publish(&state.disk);
            }
        }
        self.attr.load()
    }

    /// As [`Inode::attr`], but of a directory in which several lanes change names, times and links
    /// may be older: for who asks for the rest, and never meets them. Takes no lock.
    pub fn snapshot(&self) -> Attr {
        self.attr.load()
    }

    /// The links alone, as [`Inode::snapshot`] would have them.
    pub(crate) fn links(&self) -> u32 {
        (self.attr.word(Attr::LINKS) >> 32) as u32
    }

    /// The size alone, in bytes.
    pub(crate) fn size(&self) -> u64 {
        self.attr.word(Attr::SIZE)
    }

    /// The sectors that it takes, each of 512 bytes.
    pub(crate) fn sectors(&self) -> u64 {
        self.attr.word(Attr::SECTORS)
    }

    /// Whether it is mapped by extents.
    pub(crate) fn has_extents(&self) -> bool {
        InodeFlags::from_bits_retain(self.rights().flags).contains(InodeFlags::EXTENTS)
    }

    /// Folds the lanes' deltas into the inode; true if there were any.
    fn fold(&self, state: &mut InodeState) -> bool {
        let Some(delta) = self.deltas.take() else { return false };
        state.names_changed(delta.changes, delta.at);
        state.count_subdirectories(delta.links);
        true
    }

    /// It was looked at: it stays in memory for a while. (A hold notes that by itself.)
    pub fn note_use(&self) {
        self.used.note();
    }

    /// What decides who may use it; takes no lock, and is not written when names or data change.
    pub fn rights(&self) -> Rights {
        self.rights.load()
    }

    /// Publishes the attributes of `disk`; under the guard.
    pub(crate) fn publish(&self, disk: &disk::Inode) {
        let attr = self.attr_of(disk);
        self.attr.store_in_order(attr);
        if attr.rights() != self.rights.load() {
            self.rights.store_in_order(attr.rights());
        }
    }

    /// Apply: changes the inode under its guard and publishes the new attributes.
    pub(crate) fn change<R>(
        self: &Arc<Self>,
        handle: &mut Handle<'_>,
        concerns: Concerns,
        change: impl FnOnce(&mut InodeState) -> R,
    ) -> R {
        let tid = handle.tid();
        let mut state = self.state.lock();
        self.fold(&mut state);
        let InodeState { disk, raw, tracked, freed, .. } = &mut *state;
        let newly = tracked.touch(tid, || Record::of(disk, raw, *freed));
        if newly {
            // All who counted in the transaction before have left it.
            state.owed = 0;
        }
        let result = change(&mut state);
        self.publish(&state.disk);
        if newly {
            state.listed = Some(handle.dirty(Dirty::Object(self.clone())));
        }
        self.synced_by.store(tid.0, Ordering::Release);
        if concerns == Concerns::Data {
            self.data_synced_by.store(tid.0, Ordering::Release);
        }
        drop(state);
        if newly && self.table.is_charged_now(tid) {
            handle.charge(1);
        }
        result
    }

    /// Apply: a new inode has taken the number of this one, which was freed. If that was in the same
    /// transaction, the record of the new one stands for both, and nothing is left of this one: or
    /// making and removing a file over and over would fill the memory until the next commit.
    pub(crate) fn is_succeeded(&self, handle: &mut Handle<'_>) {
        let mut state = self.state.lock();
        debug_assert!(state.freed, "{}: two inodes of one number", self.ino);
        if state.tracked.dirty() != Some(handle.tid()) {
            return;
        }
        let InodeState { disk, raw, tracked, freed, .. } = &mut *state;
        tracked.bury(handle.tid(), || Record::of(disk, raw, *freed));
        let listed = state.listed.take();
        drop(state);
        // What comes off the list may be the last reference: not let go of under its own guard.
        drop(listed.and_then(|listed| handle.take_off(listed)));
    }

    /// Whether commits have no more use for this object, whose guard is held: no transaction waits for
    /// its image, and the last one that changed it is settled. Until then the object knows what a
    /// reloaded one would not: what an fsync has to wait for, and the tail that is yet to be zeroed.
    pub(crate) fn is_settled(&self, state: &InodeState, settled: Tid) -> bool {
        let owed = Tid(self.synced_by.load(Ordering::Relaxed)) > settled;
        state.tracked.is_clean() && !owed
    }

    /// The record as of `tid`.
    fn take(&self, tid: Tid) -> Option<Box<Record>> {
        let mut state = self.state.lock();
        if self.fold(&mut state) {
            self.publish(&state.disk);
        }
        let InodeState { disk, raw, tracked, freed, .. } = &mut *state;
        tracked.take(tid, || Record::of(disk, raw, *freed))
    }

    pub(crate) fn attr_of(&self, disk: &disk::Inode) -> Attr {
        attr_of(self.ino, self.file_type, disk)
    }
}

/// The public attributes of a decoded inode.
pub(crate) fn attr_of(ino: Ino, file_type: FileType, disk: &disk::Inode) -> Attr {
    let rdev = match file_type {
        FileType::CharDevice | FileType::BlockDevice => {
            let device = disk.device_number();
            Rdev { major: device.major, minor: device.minor }
        }
        _ => Rdev::default(),
    };
    // The clock is finer than the times of an inode of 128 bytes.
    let kept = |time: Time| if disk.has_fine_times() { time } else { Time { nanos: 0, ..time } };
    Attr {
        ino,
        generation: disk.generation,
        file_type,
        permissions: disk.mode & 0xfff,
        links: u32::from(disk.links),
        uid: disk.uid,
        gid: disk.gid,
        size: disk.size,
        sectors: disk.sectors,
        rdev,
        atime: kept(disk.atime),
        mtime: kept(disk.mtime),
        ctime: kept(disk.ctime),
        crtime: disk.crtime,
        flags: disk.flags.bits(),
    }
}

impl Journaled for Inode {
    fn capture(&self, tid: Tid, into: &mut Captured<'_>) {
        if let Some(record) = self.take(tid) {
            let table = self.table.clone();
            into.record(self.ino, CapturedRecord { record, table, offset: self.offset });
        }
    }
}

impl Cached for Inode {
    fn number(&self) -> u64 {
        u64::from(self.ino.0)
    }

    fn used(&self) -> &Used {
        &self.used
    }

    fn evict(self: &Arc<Self>, settled: Tid) -> Evicted {
        // The last name may not be taken away while the holds are counted.
        let Some(_quiet) = self.op.try_exclusive() else { return Evicted::Nothing };
        // Dead under the guard: a change needs a hold, and takes the guard.
        let state = self.state.lock();
        // An orphan that could not be ended keeps its place in the file or list.
        let idle = self.is_settled(&state, settled) && state.orphan.is_none();
        if !idle || !(state.freed || lanefs_lanes::evict(self)) {
            drop(state);
            return self.map.forget_if_large(&self.mount.totals);
        }
        drop(state);
        // Without holds this is its last mark; kept before the loader misses it.
        let mark = self.flush_mark.load(Ordering::Acquire);
        self.mount.totals.evicted_mark.0.fetch_max(mark, Ordering::Release);
        // Not left to the destructor, which may run much later.
        self.window.give_back();
        self.map.forget_if_large(&self.mount.totals);
        Evicted::Object
    }
}

impl Holdable for Inode {
    fn holds(&self) -> &Holds {
        &self.holds
    }
    fn shares(&self) -> Option<&Shares<Inode>> {
        self.mount.shares()
    }
}

/// A hold on an inode: while it lives the inode stays in memory, and its blocks are not freed even
/// if its last name goes. Dropping the last hold of an inode without names frees it, which takes
/// its operation lock: not to be dropped with an operation lock held.
///
/// Holds of several lanes on one inode share no line ([`Hold`]).
pub struct InodeRef {
    hold: Hold<Inode>,
}

impl InodeRef {
    /// A hold on `inode`, or `None` if it is dead.
    pub(crate) fn new(inode: &Arc<Inode>) -> Option<InodeRef> {
        Some(InodeRef { hold: Hold::take(inode)? })
    }

    /// A hold on an inode that was found under a pin (`Fs::peek`), or `None` if it is dead: it was
    /// evicted or freed since. To be dropped after the pin.
    pub fn found(inode: &Arc<Inode>) -> Option<InodeRef> {
        let held = InodeRef::new(inode)?;
        inode.note_use();
        Some(held)
    }

    /// Takes over a hold that was counted in the inode's word already.
    pub(crate) fn adopt(inode: Arc<Inode>) -> InodeRef {
        InodeRef { hold: Hold::adopt(inode) }
    }
}

impl Deref for InodeRef {
    type Target = Arc<Inode>;
    fn deref(&self) -> &Arc<Inode> {
        &self.hold
    }
}

impl Clone for InodeRef {
    fn clone(&self) -> InodeRef {
        match InodeRef::new(self) {
            Some(hold) => hold,
            None => unreachable!("a held inode is not dead"),
        }
    }
}

impl Drop for InodeRef {
    fn drop(&mut self) {
        if self.hold.release() {
            // The mount may be gone: then the orphan record stays, and the next mount deletes it.
            self.mount.last_reference_dropped(self);
        }
    }
}
