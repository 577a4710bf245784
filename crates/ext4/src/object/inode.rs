//! Implements the inode in memory: two locks, snapshots for readers, and the hold count.

use crate::alloc::WorkPlace;
use crate::attr::{Attr, DirId, Rdev, Rights};
use crate::cache::{Cache, Cached, Evicted, Used};
use crate::crypt::InodeCrypt;
use crate::object::dirty::{Captured, CapturedRecord, Dirty, Handle, Journaled, RawRecord, Record};
use crate::object::mount_ref::{FOREIGN, Known, MapSlot, MountRef, WindowSlot};
use crate::object::state::{Concerns, FastPart, InodeState, LaneDeltas, StoredXattrs};
use crate::object::table::TableRef;
use crate::quota::Counted;
use crate::verity::Verity;
use lanefs_journal::Tid;
use lanefs_lanes::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use lanefs_lanes::sync::{Arc, OnceLock};
use lanefs_lanes::{
    Hold, Holdable, Holds, LaneArc, Lines, Mutex, Pin, Rank, SeqCell, SharedLock, Shares,
};
use lanefs_ondisk::inode::InodeFlags;
use lanefs_ondisk::{FileType, Ino, Time, inode as disk};
use lanefs_plan::{Error, InvalidArgument};
use std::ops::Deref;

/// An inode in memory.
///
/// # Locking
///
/// Most changes hold the *operation lock* `op` exclusively. Reads of data, scans, most writes of
/// data, and changes of one name in a directory hold it shared. It is held across I/O and waits.
/// The *state guard* `state` is a leaf. It is taken by the committer and, inside a handle, by
/// *Apply*: the last step of an operation, which changes objects in memory. `attr` and `map` are
/// snapshots that Apply replaces. A reader of `attr` needs neither lock; a reader of `map` holds
/// `op` but not the guard. A write that holds `op` shared also takes `growth` if it extends the
/// file, and `mapping` while it maps the blocks that it has written.
///
/// # Layout
///
/// A path walk through a directory, or opening a file, reads only the first cache lines, which
/// hardly ever change. Changes of the inode write the lines from `LineStart` on.
#[repr(C)]
pub struct Inode {
    pub(crate) ino: Ino,
    pub(crate) generation: u32,
    pub(crate) file_type: FileType,
    used: Used,
    pub(crate) mount: LaneArc<MountRef<Inode>>,
    /// The inode-table block that contains the inode's record, pinned as long as this inode lives.
    pub(crate) table: TableRef,
    pub(crate) offset: usize,
    /// The part of `attr` that is needed to walk a path; written under `state`.
    rights: SeqCell<Rights>,
    /// The target of a symbolic link, set when it is first read; it never changes.
    pub(crate) target: OnceLock<Lines>,
    /// The extended attributes in the inode and its attribute block, loaded when first needed.
    /// Stored and cleared under `state`.
    pub(crate) xattrs: lanefs_lanes::Cached<StoredXattrs>,
    /// The encryption context and the cipher, set when an encrypted inode first needs them.
    pub(crate) crypt: OnceLock<Box<InodeCrypt>>,
    /// Set after a look-up that found no file capabilities, so that writes do not search the
    /// attributes each time. Set under `op`; cleared with each change of an attribute, under `op`
    /// exclusively.
    pub(crate) lacks_capability: AtomicBool,
    /// Whether the file was found in an encrypted directory that has another encryption policy than
    /// the file, so that the file must not be opened. No lock protects this flag, because no other
    /// field depends on it.
    pub(crate) has_foreign_policy: AtomicBool,
    /// The descriptor of a verity file, set when the file is first read; it never changes.
    pub(crate) verity: OnceLock<Box<Verity>>,
    /// For a directory: the lanes' deltas of changed names.
    pub(crate) deltas: LaneDeltas,
    /// Where the inode's first blocks are allocated. For a directory: where new files in it are
    /// placed.
    pub(crate) place: WorkPlace,
    changes: LineStart,
    pub(crate) op: SharedLock,
    /// For a directory of several blocks without an index: where a name was found last.
    pub(crate) last_found: AtomicU32,
    /// Held by writes that extend the file while they hold `op` shared. Appends hold this lock
    /// exclusively, as do writes that first zero a part beyond the end. The other writes that
    /// extend the file hold it shared.
    pub(crate) growth: SharedLock,
    /// A thread that holds `op` shared takes this lock to change the mappings, so that only one
    /// such thread changes them at a time.
    pub(crate) mapping: Mutex<()>,
    /// The attributes for stat(2); written under `state`.
    attr: SeqCell<Attr>,
    /// All mappings. They are loaded under `op` when they are first needed, replaced by Apply, and
    /// dropped by eviction.
    pub(crate) map: MapSlot,
    /// Lets one thread at a time load `map`.
    pub(crate) loading: Mutex<()>,
    pub(crate) state: Mutex<InodeState>,
    /// Blocks claimed in advance for a growing file.
    pub(crate) window: WindowSlot,
    /// The last transaction that changed anything in this inode; `data_synced_by` is the last one
    /// that changed anything needed to read the inode's data. A transaction's number is stored in
    /// these two fields only by a thread with a handle of that transaction, so the numbers never
    /// decrease.
    pub(crate) synced_by: AtomicU64,
    pub(crate) data_synced_by: AtomicU64,
    /// The last transaction that changed this inode in a way that fast commits do not express
    /// (`object/commit.rs`). For a directory, a change of its names counts too.
    pub(crate) unfit_in: AtomicU64,
    /// The last transaction that moved blocks of the file to other offsets in the file. Stored and
    /// read under `op`.
    pub(crate) moved_in: AtomicU64,
    /// The flush that the inode's last data write needs ([`lanefs_journal::FlushMark`]).
    pub(crate) flush_mark: AtomicU64,
    pub(crate) holds: Holds,
    /// The look-ups of a FUSE kernel ([`Fs::hold`](crate::Fs::hold)), which `holds` counts too. The
    /// number decreases only under the guard. After eviction, [`Known`] keeps it.
    known: AtomicU64,
}

/// When the inode number of a new inode became free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NumberFreed {
    /// The number became free in an earlier transaction, or was never used.
    Earlier,
    /// The number became free in the transaction that creates the new inode.
    Now,
}

/// Makes the next field start a cache line.
#[repr(align(64))]
struct LineStart;

/// Holds the parts from which an [`Inode`] is created.
pub(crate) struct Parts<'a> {
    pub(crate) ino: Ino,
    pub(crate) file_type: FileType,
    pub(crate) mount: LaneArc<MountRef<Inode>>,
    pub(crate) table: TableRef,
    pub(crate) offset: usize,
    pub(crate) disk: &'a disk::Inode,
    pub(crate) raw: RawRecord,
}

impl Inode {
    /// Creates an inode in memory, with one hold.
    #[inline]
    pub(crate) fn new(parts: Parts<'_>) -> Inode {
        let Parts { ino, file_type, mount, table, offset, disk, raw } = parts;
        let attr = attr_of(ino, file_type, disk);
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
            crypt: OnceLock::new(),
            lacks_capability: AtomicBool::new(false),
            has_foreign_policy: AtomicBool::new(false),
            verity: OnceLock::new(),
            xattrs: lanefs_lanes::Cached::default(),
            deltas: LaneDeltas::default(),
            place: WorkPlace::default(),
            changes: LineStart,
            op: SharedLock::new(Rank::Operation, u64::from(ino.0)),
            last_found: AtomicU32::new(0),
            growth: SharedLock::new(Rank::Growth, u64::from(ino.0)),
            mapping: Mutex::new(Rank::Mapping, ()),
            attr: SeqCell::new(attr),
            map: MapSlot::default(),
            loading: Mutex::new(Rank::InodeLoad, ()),
            state: Mutex::new(Rank::Guard, InodeState::new(disk.clone(), raw)),
            window: WindowSlot::new(),
            synced_by: AtomicU64::new(0),
            data_synced_by: AtomicU64::new(0),
            unfit_in: AtomicU64::new(0),
            moved_in: AtomicU64::new(0),
            flush_mark: AtomicU64::new(0),
            holds: Holds::new(1),
            known: AtomicU64::new(0),
        }
    }

    /// Returns the inode number.
    pub fn ino(&self) -> Ino {
        self.ino
    }

    /// Returns the generation, which differs from those of earlier inodes of the same number.
    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// Returns an identifier that no other directory has.
    pub fn dir_id(&self) -> DirId {
        DirId { ino: self.ino, generation: self.generation }
    }

    /// Returns the file type.
    pub fn file_type(&self) -> FileType {
        self.file_type
    }

    /// Returns the attributes for stat(2). Usually takes no lock. If several lanes have changed
    /// names since the last call, this takes the guard, so the caller must not hold a guard.
    #[inline]
    pub fn attr(&self) -> Attr {
        if self.deltas.are_any() {
            self.fold_and_publish();
        }
        self.attr.load()
    }

    #[cold]
    fn fold_and_publish(&self) {
        let mut state = self.state.lock();
        if self.fold(&mut state) {
            self.publish_names_changed(&state.disk);
        }
    }

    /// Returns the attributes without the lanes' deltas. If several lanes change names in a
    /// directory, the directory's times and link count may be out of date here. So this function is
    /// only for callers that do not need these attributes. Takes no lock.
    pub fn snapshot(&self) -> Attr {
        self.attr.load()
    }

    /// Returns the link count, as in [`Inode::snapshot`].
    pub(crate) fn links(&self) -> u32 {
        (self.attr.word(Attr::LINKS) >> 32) as u32
    }

    /// Returns the size in bytes.
    pub(crate) fn size(&self) -> u64 {
        self.attr.word(Attr::SIZE)
    }

    /// Returns the project to which the inode belongs. Takes the guard.
    pub fn project(&self) -> u32 {
        self.state.lock().disk.projid
    }

    /// Folds the lanes' deltas into the inode. Returns whether there were deltas.
    fn fold(&self, state: &mut InodeState) -> bool {
        let Some(delta) = self.deltas.take() else { return false };
        state.names_changed(delta.changes, delta.at);
        state.count_subdirectories(delta.links);
        true
    }

    /// Notes a use, so that the inode stays in memory for a while. (Taking a hold notes a use too.)
    #[inline]
    pub fn note_use(&self) {
        self.used.note();
    }

    /// Counts `n` look-ups of a FUSE kernel. The caller holds the inode.
    #[inline]
    pub(crate) fn know(&self, n: u64) {
        // The number of holds increases first: while it is larger than `known`, the inode stays.
        let held = self.holds.add(n);
        debug_assert!(held, "a held inode is not dead");
        self.known.fetch_add(n, Ordering::Release);
    }

    /// Returns the attributes that access checks need. Takes no lock, and reads only cache lines
    /// that are not written when names or data change.
    #[inline]
    pub fn rights(&self) -> Rights {
        self.rights.load()
    }

    /// Publishes the attributes of `disk`. The caller holds the guard.
    #[inline]
    pub(crate) fn publish(&self, disk: &disk::Inode) {
        let attr = self.attr_of(disk);
        self.attr.store_in_order(attr);
        if attr.rights() != self.rights.load() {
            self.rights.store_in_order(attr.rights());
        }
    }

    /// Does the same as [`Inode::publish`] if only the link count, `mtime` and `ctime` have
    /// changed, as after each change of a name in a directory.
    #[inline]
    pub(crate) fn publish_names_changed(&self, disk: &disk::Inode) {
        self.attr.store_words_in_order(self.attr_of(disk).names_changed());
        debug_assert_eq!(self.attr.load(), self.attr_of(disk), "another attribute changed");
    }

    /// Fails if the inode is not a regular file.
    pub(crate) fn check_regular(&self) -> Result<(), Error> {
        match self.file_type {
            FileType::Regular => Ok(()),
            FileType::Directory => Err(Error::IsDirectory),
            _ => Err(InvalidArgument::NotRegularFile.into()),
        }
    }

    /// Apply: changes the inode under its guard and publishes the new attributes.
    pub(crate) fn change<R>(
        self: &Arc<Self>,
        handle: &mut Handle<'_>,
        concerns: Concerns,
        change: impl FnOnce(&mut InodeState) -> R,
    ) -> R {
        self.change_part(handle, concerns, FastPart::None, change)
    }

    /// Works like [`Inode::change`], for a change that a fast commit can record.
    pub(crate) fn change_part<R>(
        self: &Arc<Self>,
        handle: &mut Handle<'_>,
        concerns: Concerns,
        part: FastPart,
        change: impl FnOnce(&mut InodeState) -> R,
    ) -> R {
        self.change_state(handle, concerns, part, |state| {
            let result = change(state);
            self.publish(&state.disk);
            result
        })
    }

    /// Apply: changes the inode under its guard. `change` publishes the attributes that other
    /// threads must see.
    pub(crate) fn change_state<R>(
        self: &Arc<Self>,
        handle: &mut Handle<'_>,
        concerns: Concerns,
        part: FastPart,
        change: impl FnOnce(&mut InodeState) -> R,
    ) -> R {
        handle.changes(self.table.block);
        let tid = handle.tid();
        let quotas = self.mount.quotas();
        let mut state = self.state.lock();
        self.fold(&mut state);
        let before = quotas.map(|_| Counted::of(&state.disk));
        let InodeState { disk, raw, tracked, freed, .. } = &mut *state;
        let newly = tracked.touch(tid, || Record::of(disk, raw, *freed));
        if newly {
            // All handles that counted links in the previous transaction have left that
            // transaction, so none of them can still add a subdirectory.
            state.owed = 0;
        }
        self.note_synced_by(tid, concerns);
        // The inode is put on the transaction's list before the change becomes visible. Otherwise a
        // thread that saw the change could call fsync while nothing is listed. The commit would
        // then do nothing, and would not wait for this handle.
        if newly {
            state.listed = Some(handle.dirty(Dirty::Object(self.clone())));
        }
        let size = state.disk.size;
        let result = change(&mut state);
        if self.mount.has_fast_commits() {
            // If the file shrinks, the rest of its last block is zeroed only after the commit, so a
            // fast commit cannot express the change.
            let part = if state.disk.size < size { FastPart::None } else { part };
            self.note_for_fast_commits(&mut state, tid, &part);
        }
        let after = quotas.map(|_| counted(&state));
        drop(state);
        if let (Some(quotas), Some(before), Some(after)) = (quotas, before, after) {
            let pin = lanefs_lanes::pin();
            for (ledger, id) in quotas.counting(&before.owners, &after.owners) {
                handle.changes((ledger.kind, id));
                handle.charge(ledger.is_charged_now(&pin, tid, id).into());
            }
            quotas.note_change(self.ino, &before, &after);
        }
        if newly && self.table.is_charged_now(tid) {
            handle.charge(1);
        }
        result
    }

    /// Records that an fsync of this inode must wait for `tid`. Called before other threads can see
    /// a change in `tid`, because a thread that saw the change may sync it. The caller has a handle
    /// of `tid`.
    fn note_synced_by(&self, tid: Tid, concerns: Concerns) {
        self.synced_by.store(tid.0, Ordering::Release);
        if concerns == Concerns::Data {
            self.data_synced_by.store(tid.0, Ordering::Release);
        }
    }

    /// Apply: makes an fsync of this directory wait for `tid`, before other threads can see that
    /// one of its names changed. The caller then calls [`crate::name::links::names_changed`].
    pub(crate) fn name_changes(&self, tid: Tid) {
        // If the directory is on the list of `tid`, and lanes may therefore add to their deltas of
        // this directory, an earlier change has already stored `tid`. So in a contended directory,
        // lanes only read here.
        if !self.deltas.are_listed(tid) {
            self.note_synced_by(tid, Concerns::Data);
        }
    }

    /// Apply: notes that a new inode has taken the number of this freed inode. If this inode was
    /// freed in the same transaction, the new inode's record stands for both inodes, and this
    /// object is taken off the transaction's list. If it stayed listed, creating and removing a
    /// file repeatedly would fill the memory until the next commit. Returns which transaction freed
    /// the number.
    pub(crate) fn note_reused(&self, handle: &mut Handle<'_>) -> NumberFreed {
        let mut state = self.state.lock();
        debug_assert!(state.freed, "{}: two inodes of one number", self.ino);
        if state.tracked.dirty() != Some(handle.tid()) {
            return NumberFreed::Earlier;
        }
        let InodeState { disk, raw, tracked, freed, .. } = &mut *state;
        tracked.bury(handle.tid(), || Record::of(disk, raw, *freed));
        let listed = state.listed.take();
        drop(state);
        // The list may have held the last reference to this object, so the reference is not dropped
        // under the object's guard.
        drop(listed.and_then(|listed| handle.take_off(listed)));
        NumberFreed::Now
    }

    /// Returns whether commits no longer need this object: no transaction waits for its image, and
    /// the last transaction that changed it is settled. The guard is held. As long as a commit
    /// needs the object, the object has state that a reloaded object would lack: the transaction
    /// that an fsync must wait for, and the note that the rest of the last block must still be
    /// zeroed.
    pub(crate) fn is_settled(&self, state: &InodeState, settled: Tid) -> bool {
        let owed = Tid(self.synced_by.load(Ordering::Relaxed)) > settled;
        state.tracked.is_clean() && !owed
    }

    /// Takes the record as of `tid`; `None` if it was taken already.
    fn take(&self, tid: Tid) -> Option<Box<Record>> {
        let mut state = self.state.lock();
        if self.fold(&mut state) {
            self.publish_names_changed(&state.disk);
        }
        let InodeState { disk, raw, tracked, freed, .. } = &mut *state;
        tracked.take(tid, || Record::of(disk, raw, *freed))
    }

    #[inline(always)]
    pub(crate) fn attr_of(&self, disk: &disk::Inode) -> Attr {
        attr_of(self.ino, self.file_type, disk)
    }
}

/// Returns what an inode adds to the usage of its owners. After its number was freed, it adds
/// nothing.
fn counted(state: &InodeState) -> Counted {
    let counted = Counted::of(&state.disk);
    if state.freed { counted.nothing() } else { counted }
}

/// Returns the public attributes of a decoded inode.
#[inline(always)]
pub(crate) fn attr_of(ino: Ino, file_type: FileType, disk: &disk::Inode) -> Attr {
    let rdev = match file_type {
        FileType::CharDevice | FileType::BlockDevice => {
            let device = disk.device_number();
            Rdev { major: device.major, minor: device.minor }
        }
        _ => Rdev::default(),
    };
    // An inode of 128 bytes stores whole seconds only, but times from the clock have nanoseconds.
    let kept = |time: Time| if disk.has_fine_times() { time } else { Time { nanos: 0, ..time } };
    // As in the kernel, data in the inode counts as allocated space, so that no program takes this
    // data for a hole.
    let inside =
        match file_type == FileType::Regular && disk.flags.contains(InodeFlags::INLINE_DATA) {
            true => disk.size.div_ceil(512),
            false => 0,
        };
    Attr {
        ino,
        generation: disk.generation,
        file_type,
        permissions: disk.mode & 0xfff,
        links: u32::from(disk.links),
        uid: disk.uid,
        gid: disk.gid,
        size: disk.size,
        sectors: disk.sectors.saturating_add(inside),
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
        // The operation lock is held so that the last name is not removed while the holds are
        // counted.
        let Some(_quiet) = self.op.try_exclusive() else { return Evicted::Nothing };
        // The inode becomes dead while the guard is held. A change needs a hold and the guard, so
        // no change is under way at that time. If another thread holds the guard, that thread is
        // using the inode. So eviction does not wait for the guard, and the inode stays.
        let Some(state) = self.state.try_lock() else { return Evicted::Nothing };
        let known = self.known.load(Ordering::Acquire);
        // An orphan whose deletion failed is not evicted, because only this object records where
        // its entry is in the orphan file or list.
        let idle = self.is_settled(&state, settled) && state.orphan.is_none();
        if !idle || !(state.freed || lanefs_lanes::evict(self, known)) {
            drop(state);
            // The mappings of a quota file change without the operation lock.
            let Some(_mapping) = self.mapping.try_lock() else { return Evicted::Nothing };
            return self.map.forget_if_large(&self.mount.totals);
        }
        if !state.freed && known > 0 {
            // The guard is still held, and `Inodes::forget` and the next load wait for it.
            let is_foreign = self.has_foreign_policy.load(Ordering::Acquire);
            self.mount.known.put(self.ino, if is_foreign { known | FOREIGN } else { known });
        }
        drop(state);
        // The inode has no holds, so the flush mark no longer changes. The mark is saved before any
        // thread can load the inode again.
        let mark = self.flush_mark.load(Ordering::Acquire);
        self.mount.totals.evicted_mark.0.fetch_max(mark, Ordering::Release);
        // The preallocation window is given back here, because the inode's destructor may run much
        // later.
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
        Some(&self.mount.shares)
    }
}

/// A hold on an inode. As long as the hold exists, the inode stays in memory, and its blocks are
/// not freed even if its last name is removed. Dropping the last hold of an inode without names
/// frees the inode, and takes the inode's operation lock for this. So the thread that drops a hold
/// must not hold an operation lock.
///
/// Holds of several lanes on one inode share no cache line ([`Hold`]).
pub struct InodeRef {
    hold: Hold<Inode>,
}

impl InodeRef {
    /// Takes a hold on `inode`, or returns `None` if it is dead.
    pub(crate) fn new(inode: &Arc<Inode>) -> Option<InodeRef> {
        Some(InodeRef { hold: Hold::take(inode)? })
    }

    /// Takes a hold on an inode that was found under a pin (`Fs::peek`), or returns `None` if it is
    /// dead because it was evicted or freed since then. The pin must be dropped before the hold.
    pub fn found(inode: &Arc<Inode>) -> Option<InodeRef> {
        let held = InodeRef::new(inode)?;
        inode.note_use();
        Some(held)
    }

    /// Takes over a hold that is already counted in the inode's hold count.
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
            // If the mount is gone, the orphan record stays, and the next mount deletes the inode.
            self.mount.last_reference_dropped(self);
        } else {
            self.mount.reference_dropped();
        }
    }
}

// Keeps the inodes in memory by number: looks them up, loads them, takes holds on them, and evicts
// them.

/// The set of inodes in memory.
pub(crate) struct Inodes {
    cache: Cache<Inode>,
}

impl Inodes {
    /// Creates an empty set whose map grows only after about `room` inodes were added.
    pub(crate) fn new(room: usize) -> Inodes {
        Inodes { cache: Cache::new(room, Rank::InodeLoad) }
    }

    /// Returns the inode with this number, without a hold. The reference is valid as long as `pin`
    /// lives, but the inode may be deleted, and its number reused, as soon as this returns.
    #[inline]
    pub(crate) fn peek<'p>(&'p self, pin: &'p Pin, ino: Ino) -> Option<&'p Arc<Inode>> {
        self.cache.find(pin, u64::from(ino.0))
    }

    /// Returns the inode with this number, without a hold.
    pub(crate) fn get(&self, ino: Ino) -> Option<Arc<Inode>> {
        self.peek(&lanefs_lanes::pin(), ino).cloned()
    }

    /// Makes the number of `inode` refer to `inode`, and runs `look` on the inode to which the
    /// number referred before.
    pub(crate) fn insert(&self, inode: Arc<Inode>, look: impl FnOnce(&Inode)) {
        self.cache.insert(inode, look);
    }

    /// Runs `visit` on all inodes; may miss inodes that are added or removed meanwhile.
    pub(crate) fn for_each(&self, visit: impl FnMut(&Arc<Inode>)) {
        self.cache.for_each(visit);
    }

    /// Returns the inodes in memory that have lost their last name.
    pub(crate) fn nameless(&self) -> Vec<Arc<Inode>> {
        let mut found = Vec::new();
        self.for_each(|inode| {
            if inode.holds.is_nameless() {
                found.push(inode.clone());
            }
        });
        found
    }

    /// Returns a hold on the inode if it is in memory. [`Error::Stale`] if it was deleted.
    fn cached(&self, ino: Ino) -> Result<Option<InodeRef>, Error> {
        let found = self.cache.hold(u64::from(ino.0), |inode| {
            Some(InodeRef::new(inode).ok_or_else(|| inode.clone()))
        });
        // A dead object without links means that the inode was deleted or is being deleted, and
        // that no inode has this number until a new inode takes it. A dead object with links was
        // only evicted.
        match found {
            None => Ok(None),
            Some(Ok(held)) => Ok(Some(held)),
            Some(Err(dead)) if dead.links() == 0 => Err(Error::Stale),
            Some(Err(_)) => Ok(None),
        }
    }

    /// Returns a hold on an inode. If the inode is not in memory, `load` creates and inserts it.
    /// Only one thread at a time runs `load` for a number.
    pub(crate) fn hold_or_load(
        &self,
        ino: Ino,
        load: impl FnOnce() -> Result<InodeRef, Error>,
    ) -> Result<InodeRef, Error> {
        self.cache.hold_or_load(u64::from(ino.0), || self.cached(ino), load)
    }

    /// Removes `n` look-ups of a FUSE kernel, which `aside` counts for inodes that are not in
    /// memory. Returns the inode if it must be deleted.
    pub(crate) fn forget(&self, ino: Ino, n: u64, aside: &Known) -> Option<Arc<Inode>> {
        self.forget_in_memory(ino, n, aside).unwrap_or_else(|| {
            // Without this lock, a load could take the count from `aside` before the second look.
            let _loader = self.cache.loader(u64::from(ino.0)).lock();
            self.forget_in_memory(ino, n, aside).unwrap_or_else(|| {
                aside.forget(ino, n);
                None
            })
        })
    }

    /// Does the same as [`Inodes::forget`] for an inode in memory; `None` if it is not there.
    fn forget_in_memory(&self, ino: Ino, n: u64, aside: &Known) -> Option<Option<Arc<Inode>>> {
        let inode = self.get(ino)?;
        let state = inode.state.lock();
        if inode.holds.is_dead() {
            return None;
        }
        // A kernel that forgets more than it knows must not end the holds of others.
        let n = aside.clamp(n, inode.known.load(Ordering::Acquire));
        inode.known.fetch_sub(n, Ordering::Release);
        let ended = inode.holds.subtract(n);
        drop(state);
        Some(ended.then_some(inode))
    }

    /// Looks at up to `buckets` buckets, evicts up to `wanted` inodes, and returns the number of
    /// evicted inodes. `settled` is the last transaction that is settled, that is, whose work after
    /// the commit is done.
    pub(crate) fn evict(&self, wanted: usize, buckets: usize, settled: Tid) -> usize {
        self.cache.evict(wanted, buckets, settled)
    }

    /// Returns the number of inodes in memory.
    pub(crate) fn len(&self) -> usize {
        self.cache.len()
    }
}
