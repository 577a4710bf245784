//! The mounted file system.

use crate::alloc::{Claim, Found, Groups, Request};
use crate::attr::now;
use crate::object::dirty::{Credits, Deferred, Dirty, Handle, RawRecord};
use crate::object::fast_commits::FastCommits;
use crate::object::inode::{Inode, InodeRef, Inodes, Parts};
use crate::object::meta::{MetaCache, MetaSource};
use crate::object::mount_ref::{FOREIGN, MountRef, SMALL};
use crate::object::orphan::{Orphans, SuperState};
use crate::object::table::{TableRef, Tables};
use crate::options::{Access, MountOptions, OnError};
use crate::verity::VerifiedBlocks;
use crate::volume::{BlockReader, MetaKind, Volume};
use lanefs_journal::{FlushMark, Journal};
use lanefs_lanes::sync::Arc;
use lanefs_lanes::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use lanefs_lanes::{LaneArc, LineHeap, MAX_LANES, Mutex, Padded, PerLane, Pin};
use lanefs_ondisk::inode::InodeFlags;
use lanefs_ondisk::superblock::{ErrorCode, ErrorRecord, Superblock};
use lanefs_ondisk::{Block, Corruption, Group, Ino, inode as disk};
use lanefs_plan::Expected;
use lanefs_plan::{Error, Fault};

/// How many commits a claim waits for before it fails. A commit makes freed blocks available, but
/// other claims may take them first, so one commit may not suffice.
const MOST_COMMITS: u32 = 3;

/// A mounted file system. All its operations take `&self`, and any number of threads may call them.
///
/// Its fields are the floors below: objects in memory, allocators, journal, and what never changes.
/// This file loads and evicts objects, `commit.rs` captures them; the operations are in `ops/`.
pub struct Fs {
    /// The handle that [`LaneArc::new`] returned; this handle keeps the reference counts of all
    /// lanes in memory.
    pub(crate) mount: LaneArc<MountRef<Inode>>,
    pub(crate) volume: Volume,
    pub(crate) journal: Journal<Dirty, Deferred>,
    pub(crate) groups: Groups,
    pub(crate) inodes: Inodes,
    pub(crate) tables: Tables,
    pub(crate) meta: MetaCache,
    pub(crate) orphans: Orphans,
    pub(crate) superblock: SuperState,
    /// `None` if the mount writes no fast commits.
    pub(crate) fast: Option<FastCommits>,
    /// Limits the caches.
    pub(crate) pressure: Pressure,
    /// The verified blocks of the hash trees of verity files.
    pub(crate) verified: VerifiedBlocks,
    /// The options of the mount; `access` is the access that was granted.
    pub(crate) options: MountOptions,
    pub(crate) read_only: AtomicBool,
    /// Is set while the mount deletes the orphans that the previous mount left. Only then can
    /// inodes without links be loaded.
    pub(crate) finishing_orphans: AtomicBool,
    /// Held while a directory moves to another parent, so that the check for loops stays valid.
    pub(crate) topology: Padded<Mutex<()>>,
    /// Held while the file system becomes larger. [rank Topology, never held together with
    /// `topology`]
    pub(crate) growing: Padded<Mutex<()>>,
}

impl BlockReader for Fs {
    fn read_block(&self, block: Block) -> Result<Arc<[u8]>, Error> {
        if let Some(image) = self.journal.image(block)? {
            return Ok(image);
        }
        self.volume.read(block)
    }

    fn damaged(&self, error: &Error) {
        self.note_error(error);
    }

    fn over_limit(&self) {
        if self.options.access == Access::ReadWrite {
            self.journal.request_commit();
        }
    }
}

impl Fs {
    /// Returns the root directory.
    pub fn root(&self) -> Result<InodeRef, Error> {
        self.get(Ino::ROOT, None)
    }

    /// Returns the inode with number `ino` if it is in memory. Takes no reference. The inode may be
    /// deleted and the number reused as soon as this returns, so the caller must check afterwards
    /// that the name still refers to this number.
    #[inline]
    pub fn peek<'p>(&'p self, pin: &'p Pin, ino: Ino) -> Option<&'p Arc<Inode>> {
        self.inodes.peek(pin, ino)
    }

    /// Returns whether inodes have room for nanoseconds in their times.
    pub fn has_fine_times(&self) -> bool {
        self.volume.geometry().inode_size() > 128
    }

    /// Returns whether directories can ignore the case of names (feature `casefold`).
    pub fn has_casefold(&self) -> bool {
        self.volume.folding.is_some()
    }

    /// Returns whether there can be verity files (feature `verity`).
    pub fn has_verity(&self) -> bool {
        self.volume.has_verity
    }

    /// Returns the error that aborted the journal since the mount, if there was one.
    pub fn failure(&self) -> Option<Error> {
        self.journal.cause().map(Error::from)
    }

    /// Returns the superblock as the last commit left it.
    pub fn superblock(&self) -> Superblock {
        self.superblock.snapshot()
    }

    /// Returns the journal's statistics since the mount.
    pub fn journal_statistics(&self) -> lanefs_journal::Statistics {
        self.journal.statistics()
    }

    /// Returns whether the file system cannot be changed: the mount is read-only, or became so
    /// after an error.
    pub fn is_read_only(&self) -> bool {
        // The committer sets `read_only` a moment after the abort. This function must return true
        // to a caller that saw the abort, so it checks the journal too.
        self.read_only.load(Ordering::Acquire)
            || self.journal.is_aborted()
            || self.check_process().is_err()
    }

    /// Fails in a child of fork(2). Called before a lock is taken that another thread may hold for
    /// longer, because the child lacks that thread.
    #[inline]
    pub(crate) fn check_process(&self) -> Result<(), Error> {
        self.journal.check_process().map_err(|_| Error::Forked)
    }

    /// Fails if the file system cannot be changed.
    ///
    /// # Errors
    /// [`Error::ReadOnly`], or [`Error::Forked`] in a child of fork(2).
    pub fn check_writable(&self) -> Result<(), Error> {
        self.check_process()?;
        if self.is_read_only() { Err(Error::ReadOnly) } else { Ok(()) }
    }

    pub(crate) fn become_read_only(&self) {
        self.read_only.store(true, Ordering::Release);
    }

    /// Joins the running transaction with the credits of all parts that the handle applies.
    pub(crate) fn join(&self, credits: Credits) -> Result<Handle<'_>, Error> {
        self.check_writable()?;
        let Credits { mut blocks, owners } = credits;
        if let Some(quotas) = self.mount.quotas() {
            blocks = blocks.saturating_add(owners.saturating_mul(quotas.ledgers().count() as u32));
        }
        match self.journal.join(blocks) {
            // The file system became read-only after the check above.
            Err(lanefs_journal::Error::Stopped) => Err(Error::ReadOnly),
            joined => Ok(joined?),
        }
    }

    /// Handles an error that no caller receives. If the error reports damage, records it in the
    /// superblock, and makes the mount read-only if its options require it.
    pub(crate) fn note_error(&self, error: &Error) {
        let Fault::Image { ino, block } = error.fault() else { return };
        self.superblock.note_error(ErrorRecord {
            time: now().secs.try_into().unwrap_or(0),
            ino: ino.map_or(0, |ino| ino.0),
            block: block.map_or(0, |block| block.0),
            function: "lanefs".into(),
            line: 0,
            code: ErrorCode::Damage,
        });
        if self.options.on_error == OnError::ReadOnly {
            self.become_read_only();
        }
    }

    /// Notes that data of the inode was written to the device: to mapped blocks, or to blocks that
    /// a handle maps later.
    pub(crate) fn note_data(&self, inode: &Inode) {
        let FlushMark(mark) = self.journal.note_write();
        // The mark is written only if it must increase, which happens once per flush. So most calls
        // do not write its cache line, which all writers of the file share.
        if inode.flush_mark.load(Ordering::Relaxed) < mark {
            inode.flush_mark.fetch_max(mark, Ordering::Release);
        }
    }

    /// Claims blocks. If the claim fails, waits until the other claims under way have finished,
    /// gives all windows back, and tries again while new claims are held back. If that fails too,
    /// and freed blocks wait for a commit, waits for the commit and tries again. During the commit,
    /// new claims are not held back. The caller holds no handle.
    pub(crate) fn claim_blocks(&self, request: &Request) -> Result<Found<'_>, Error> {
        match self.groups.claim_blocks(self, request, None) {
            Err(Error::NoSpace) => {}
            other => return other,
        }
        let mut commits = 0;
        loop {
            let alone = self.groups.alone();
            self.drop_windows();
            // The number of pending blocks is read before the claim. If it were read after a failed
            // claim, blocks that have just become available would no longer count as pending, and
            // the claim would not be repeated.
            let pending = self.groups.pending() > 0;
            match self.groups.claim_blocks(self, request, Some(&alone)) {
                Err(Error::NoSpace) if pending && commits < MOST_COMMITS => commits += 1,
                other => return other,
            }
            drop(alone);
            self.journal.settle(self.journal.running())?;
        }
    }

    /// Claims one block near an inode. The claim may use the reserve for root, because the inode
    /// needs the block in any case.
    pub(crate) fn claim_first_block(&self, ino: Ino) -> Result<Claim, Error> {
        let group = self.volume.inode_place(ino)?.group;
        let goal = self.volume.geometry().group_first_block(group).unwrap_or_default();
        Ok(self.claim_blocks(&Request::for_metadata(goal, 1))?.into_claim())
    }

    /// Claims the block of an inode's attributes.
    ///
    /// # Errors
    /// [`Error::NotSupported`] in revision 0, whose superblock cannot have the feature `ext_attr`:
    /// e2fsck then ignores such blocks.
    pub(crate) fn claim_xattr_block(&self, ino: Ino) -> Result<Claim, Error> {
        match self.volume.can_add_features {
            true => self.claim_first_block(ino),
            false => Err(Error::NotSupported),
        }
    }

    /// Gives every preallocation window back. Looks only at inodes that have one, and returns their
    /// number.
    pub(crate) fn drop_windows(&self) -> usize {
        let listed = self.mount.totals.windows.listed();
        for ino in &listed {
            if let Some(inode) = self.inodes.get(*ino) {
                inode.window.give_back();
            }
        }
        listed.len()
    }

    /// Apply: frees blocks. If the bitmaps show that some of the blocks are free already, the file
    /// system on disk was damaged before. The damage is only noted, because the operation can no
    /// longer fail.
    pub(crate) fn free_run(&self, handle: &mut Handle<'_>, start: Block, len: u32) {
        if let Err(error) = self.groups.free_blocks(handle, start, len) {
            self.note_error(&error);
        }
    }
}

// Loads inodes and other objects into memory by number.

impl MetaSource for Fs {
    fn load(&self, block: Block, kind: MetaKind) -> Result<Arc<[u8]>, Error> {
        let read = || {
            kind.check_place(&self.volume, block)?;
            let bytes = self.read_block(block)?;
            kind.verify(&self.volume, block, &bytes, |ino| self.flags_of(ino))?;
            Ok(bytes)
        };
        read().inspect_err(|error| self.note_error(error))
    }

    fn loaded(&self) {
        self.note_load();
    }
}

impl Fs {
    /// Returns a reference to inode `ino`, read from disk if necessary. Fails with [`Error::Stale`]
    /// if the inode is free or holds the value of an attribute, or if `generation` is given and is
    /// not the inode's generation. To look up a name, use [`Fs::find`] instead, because the number
    /// in a directory entry may be reused before this call.
    pub fn get(&self, ino: Ino, generation: Option<u32>) -> Result<InodeRef, Error> {
        if !self.volume.is_for_names(ino) {
            let cause = disk::Cause::NoSuchInode;
            return Err(Corruption::Inode { ino, cause }.into());
        }
        let held = self.get_any(ino, generation)?;
        let flags = InodeFlags::from_bits_retain(held.rights().flags);
        if flags.contains(InodeFlags::EA_INODE) && self.volume.value_seed.is_some() {
            // No name refers to an inode that holds the value of an attribute. If the caller has
            // the number from a directory entry, either the number was reused since, or the image
            // is damaged; `Fs::find` finds out which.
            return Err(Error::Stale);
        }
        Ok(held)
    }

    /// Does the same as [`Fs::get`], but also for the file system's internal files and for
    /// inodes that hold the value of an attribute.
    pub(crate) fn get_any(&self, ino: Ino, generation: Option<u32>) -> Result<InodeRef, Error> {
        self.check_process()?;
        let mut was_loaded = false;
        let load = || {
            was_loaded = true;
            self.load_inode(ino)
        };
        let held = self.inodes.hold_or_load(ino, load)?;
        if was_loaded {
            self.note_load();
        }
        match generation {
            Some(wanted) if wanted != held.generation => Err(Error::Stale),
            _ => Ok(held),
        }
    }

    fn load_inode(&self, ino: Ino) -> Result<InodeRef, Error> {
        let place = self.volume.inode_place(ino)?;
        let table = self.table_block(place.group, place.table_block)?;
        let base = self.tables.base(&table, self)?;
        let raw = self.volume.record_in(&base, place.offset).expected()?;
        let mut decoded =
            disk::Inode::decode(raw, ino, self.volume.geometry(), self.volume.checksums)
                .map_err(Error::from)
                .inspect_err(|error| self.note_error(error))?;
        if decoded.extra_isize == 0 {
            // As in the kernel, the fields that the inode has room for are used from now on.
            decoded.extra_isize = self.volume.extra_isize;
        }
        if decoded.links == 0 && !self.finishing_orphans.load(Ordering::Acquire) {
            return Err(Error::Stale);
        }
        let raw = RawRecord::read(raw);
        let inode = self.new_inode(ino, table, place.offset, &decoded, raw)?;
        // Data that was written through the previous, evicted object may still need a flush.
        let mark = self.inodes.get(ino).map_or(0, |dead| {
            // Its eviction has put the kernel's look-ups aside as soon as the guard is free.
            drop(dead.state.lock());
            dead.flush_mark.load(Ordering::Acquire)
        });
        let mark = mark.max(self.mount.totals.evicted_mark.0.load(Ordering::Acquire));
        inode.flush_mark.store(mark, Ordering::Relaxed);
        let known = self.mount.known.take(ino);
        inode.has_foreign_policy.store(known & FOREIGN != 0, Ordering::Relaxed);
        inode.know(known & !FOREIGN);
        self.inodes.insert(inode.clone(), |_| ());
        Ok(InodeRef::adopt(inode))
    }

    /// Creates an inode object, which has one hold and is in no map yet.
    #[inline]
    pub(crate) fn new_inode(
        &self,
        ino: Ino,
        table: TableRef,
        offset: usize,
        disk: &disk::Inode,
        raw: RawRecord,
    ) -> Result<Arc<Inode>, Error> {
        let file_type = disk.file_type().ok_or_else(|| Error::Stale)?;
        let mount = self.mount.clone();
        let parts = Parts { ino, file_type, mount, table, offset, disk, raw };
        Ok(Arc::new(Inode::new(parts)))
    }

    /// Returns block `index` of a group's inode table; the block need not be loaded yet.
    pub(crate) fn table_block(&self, group: Group, index: u32) -> Result<TableRef, Error> {
        self.tables.get(group, index, self.volume.table_block(group, index)?)
    }

    /// Returns the flags of a directory in memory. The caller reads the directory's blocks, and
    /// therefore holds the directory's operation lock.
    fn flags_of(&self, ino: Ino) -> InodeFlags {
        let flags = self.inodes.get(ino).map_or(0, |dir| dir.rights().flags);
        InodeFlags::from_bits_retain(flags)
    }
}

// Decides which caches are too large, and evicts objects from them.

impl Fs {
    /// Counts an inode or a metadata block that was loaded or created. Checks the caches once every
    /// [`LOOK`] calls. The caller holds no lock ranked after [`lanefs_lanes::Rank::InodeLoad`].
    pub(crate) fn note_load(&self) {
        if is_time_to_look(self.pressure.loads.mine()) {
            self.look_at_caches(true);
        }
    }

    /// Counts a reference that was dropped while the caches are over their cap, and checks the
    /// caches as [`Fs::note_load`] does. Asks for no commit: a program that holds more than the cap
    /// would else commit all the time.
    pub(crate) fn note_drop(&self) {
        if is_time_to_look(self.pressure.drops.mine()) {
            self.look_at_caches(false);
        }
    }

    /// Evicts objects if the caches are too large; with `may_commit`, asks for a commit if they
    /// stay so. This is a separate function because the tool that traces shared cache lines
    /// (`crates/trace`) recognises rare work by the function's name.
    #[cold]
    #[inline(never)]
    fn look_at_caches(&self, may_commit: bool) {
        // The counts of all lanes are read only when the loads may have taken all of the room.
        let looks = &self.pressure.looks.0;
        if looks.fetch_sub(1, Ordering::Relaxed) > 0 {
            return;
        }
        if self.evict_some().is_none() {
            let room = self.room_left() / LOOK;
            return looks.store(room.min(MAX_LANES as u64).cast_signed(), Ordering::Relaxed);
        }
        lanefs_lanes::advance();
        LineHeap::trim_some();
        let is_over_cap = self.mount.is_over_cap.load(Ordering::Relaxed);
        if may_commit && is_over_cap && self.options.access == Access::ReadWrite {
            self.journal.request_commit();
        }
    }

    /// Evicts up to [`MOST`] objects of each kind that takes more than 7/8 of its part of the cap,
    /// and visits at most [`BUCKETS`] buckets for each kind. Returns the number of evicted objects.
    /// `None` if no kind takes so much; table blocks without contents do not count for this result.
    fn evict_some(&self) -> Option<usize> {
        let settled = self.journal.settled();
        let Pressure { inodes, meta, tables, .. } = &self.pressure;
        let wanted = |excess: u64| excess.min(MOST) as usize;
        let too_many = [
            wanted(inodes.excess(self.inodes_and_mappings())),
            wanted(meta.excess(self.metadata_there())),
            wanted(tables.excess(self.tables.loaded())),
        ];
        let mut evicted = 0;
        // Inodes are evicted first, because an inode in memory keeps its table block in memory.
        if too_many[0] > 0 {
            evicted += self.inodes.evict(too_many[0], BUCKETS, settled);
        }
        if too_many[1] > 0 {
            evicted += self.meta.blocks.evict(too_many[1], BUCKETS, settled);
        }
        // A table block takes memory even without its contents, so it counts as at least half a
        // table block with contents.
        let left = tables.excess(self.tables.blocks.len() / 2);
        let too_many_tables = too_many[2].max(wanted(left));
        if too_many_tables > 0 {
            evicted += self.tables.blocks.evict(too_many_tables, BUCKETS, settled);
        }
        let any = too_many.iter().any(|many| *many > 0);
        let is_over = any
            && (inodes.is_over(self.inodes_and_mappings())
                || meta.is_over(self.metadata_there())
                || tables.is_over(self.tables.loaded()));
        if self.mount.is_over_cap.load(Ordering::Relaxed) != is_over {
            self.mount.is_over_cap.store(is_over, Ordering::Relaxed);
        }
        any.then_some(evicted)
    }

    /// Returns the number of objects that may be loaded until some have to be evicted.
    fn room_left(&self) -> u64 {
        let Pressure { inodes, meta, tables, .. } = &self.pressure;
        let loaded = self.tables.loaded().max(self.tables.blocks.len() / 2);
        let room = inodes.left(self.inodes_and_mappings()).min(meta.left(self.metadata_there()));
        room.min(tables.left(loaded))
    }

    /// Returns the number of inodes in memory, plus the memory of large mappings in units of one
    /// inode.
    fn inodes_and_mappings(&self) -> usize {
        let mapped = u64::try_from(self.mount.totals.mapped.sum()).unwrap_or(0);
        self.inodes.len() + (mapped / INODE) as usize
    }

    /// Returns the number of metadata blocks in memory, plus the memory of groups' bitmaps in units
    /// of one block.
    fn metadata_there(&self) -> usize {
        let bitmaps = self.groups.bitmaps.bytes().div_ceil(self.pressure.meta.bytes);
        self.meta.blocks.len() + bitmaps as usize
    }

    /// Committer: evicts objects that the commit has made clean, if there are too many, as long as
    /// every second object can go. Runs at most eight times a second, because an fsync must not
    /// wait for it each time.
    pub(crate) fn reclaim_after_commit(&self) {
        let now = lanefs_lanes::coarse_now();
        let eighth = now.secs.cast_unsigned().wrapping_mul(8) + u64::from(now.nanos / 125_000_000);
        if self.pressure.eighth.swap(eighth, Ordering::Relaxed) != eighth {
            // What these rounds leave is for `reclaim`.
            self.evict_rounds(MOST_ROUNDS, 0);
        }
    }

    /// Evicts all that is too much, on the thread that commits at intervals; at most once a second.
    pub(crate) fn reclaim(&self) {
        let now = lanefs_lanes::coarse_now().secs.cast_unsigned();
        if self.pressure.second.swap(now, Ordering::Relaxed) != now {
            let (inodes, blocks, tables) = self.cached();
            let there = inodes + blocks + tables;
            // A round visits `BUCKETS` of at least 16,384 buckets, and the first sweep over all of
            // them only clears the marks of use.
            self.evict_rounds(33 + there / 128, 32 + there / 512);
        }
    }

    /// Evicts in rounds, since one object can have the memory of many, until nothing is too much.
    /// At most `poor` rounds may evict less than half of [`MOST`] objects.
    fn evict_rounds(&self, rounds: usize, mut poor: usize) {
        for _ in 0..rounds {
            let Some(evicted) = self.evict_some() else { break };
            let is_poor = usize::from(evicted < MOST as usize / 2);
            let Some(left) = poor.checked_sub(is_poor) else { break };
            poor = left;
        }
        LineHeap::trim_some();
    }

    /// Returns how many inodes, metadata blocks and inode-table blocks are in memory.
    pub fn cached(&self) -> (usize, usize, usize) {
        (self.inodes.len(), self.meta.blocks.len(), self.tables.blocks.len())
    }

    /// Returns the size of the caches in bytes. Images are included, but names are not.
    pub(crate) fn cached_bytes(&self) -> u64 {
        let Pressure { inodes, meta, tables, .. } = &self.pressure;
        self.inodes_and_mappings() as u64 * inodes.bytes
            + self.metadata_there() as u64 * meta.bytes
            + self.tables.loaded() as u64 * tables.bytes
            + self.journal.image_bytes()
    }
}

// Keeps the caches within their cap.
//
// | part of the cap | for |
// |---|---|
// | 1/4 | inodes: the objects, their records, their mappings, and their nodes in the inode map |
// | 3/16 | inode-table blocks |
// | 3/16 | metadata blocks with reader copies and name indices; bitmaps, at most 1/16 of the cap |
// | 1/4 | images that wait to be written in place, at most 64 MiB (`journal`) |
// | 1/8 | names (`vfs`) |
//
// The memory cost of each object is known, including the allocator's overhead; a test compares it
// with the heap. Threads that load objects also evict: after every 64 loads (`LOOK`) a lane
// compares the caches with their parts of the cap, unless there was much room at the last such
// comparison by any lane. The lane evicts the excess ([`crate::cache`]). Dirty objects cannot be
// evicted. So if too few objects were evicted, a commit is requested, which makes dirty objects
// clean. After an eviction the heap is trimmed, which gives memory back only if the program has
// chosen [`LineHeap`] as its allocator.

/// The number of loads of one lane between two checks of the caches.
pub(crate) const LOOK: u64 = if cfg!(shuttle) { 2 } else { 64 };

/// The largest number of objects that one check evicts. Between two checks, a lane loads fewer
/// objects than this, so eviction keeps up.
pub(crate) const MOST: u64 = 4 * LOOK;

/// The largest number of checks after one commit.
const MOST_ROUNDS: usize = 32;

/// The largest number of buckets that one check visits.
pub(crate) const BUCKETS: usize = if cfg!(shuttle) { 8 } else { 1024 };

/// The size of an inode in bytes: the object, its node in the map, its record, a few mappings,
/// and the allocator's overhead. The memory of larger mappings is counted separately, in units of
/// this size (`Fs::inodes_and_mappings`).
pub(crate) const INODE: u64 = size_of::<Inode>() as u64 + 64 + 256 + SMALL;

/// The size in bytes of a metadata block, or a block of an inode table, without its contents.
const BLOCK: u64 = 448;

/// The block size divided by the size of the index of a block's names. With usual names the index
/// takes a quarter of the block size.
const NAMES: u64 = 4;

/// The largest number of objects for which a new map has room. With this room, two objects rarely
/// share a bucket if the file system has few files.
const ROOM: u64 = if cfg!(shuttle) { 0 } else { 1 << 15 };

/// Returns how many names fit into the names' part of a cap of `bytes`. A name costs an entry of
/// one cache line, and its share of a bucket.
pub fn names_within(bytes: u64) -> usize {
    usize::try_from(bytes / 8 / 112).unwrap_or(usize::MAX)
}

/// Returns the largest total size in bytes of the images that wait to be written in place.
pub(crate) fn images_within(bytes: u64) -> u64 {
    (bytes / 4).clamp(1 << 20, 64 << 20)
}

/// Returns the part of the cap, in bytes, that groups' bitmaps may take. It is included in the part
/// for metadata blocks.
pub(crate) fn bitmaps_within(bytes: u64) -> u64 {
    bytes / 16
}

/// Counts an event, and returns whether the lane checks the caches now. Two threads of one lane may
/// count two events as one: the count only determines how often the caches are checked, and an
/// exact count would cost a locked instruction per event.
fn is_time_to_look(counter: &AtomicU64) -> bool {
    let count = counter.load(Ordering::Relaxed);
    counter.store(count.wrapping_add(1), Ordering::Relaxed);
    count.is_multiple_of(LOOK)
}

/// Holds the limits of the caches, and counts the loads between two checks of the caches.
pub(crate) struct Pressure {
    pub(crate) inodes: Share,
    pub(crate) meta: Share,
    pub(crate) tables: Share,
    /// The number of objects that each lane loaded.
    pub(crate) loads: PerLane<AtomicU64>,
    /// The number of references that each lane dropped while the caches were over their cap. Loads
    /// have a count of their own: where each load is followed by a drop, every check by a common
    /// count could fall on a drop, and no commit would be requested.
    pub(crate) drops: PerLane<AtomicU64>,
    /// How often lanes may still skip a check of the caches, since a check reads the counts of all
    /// lanes. Zero or less if there is little room.
    pub(crate) looks: Padded<AtomicI64>,
    /// The time, in eighths of a second, at which a commit last reclaimed memory. Only the
    /// committer uses it.
    pub(crate) eighth: AtomicU64,
    /// The second in which [`Fs::reclaim`] last ran.
    pub(crate) second: AtomicU64,
}

/// The part of the cap for one kind of object.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Share {
    /// The number of objects that fit.
    most: u64,
    /// The size of each object in bytes.
    pub(crate) bytes: u64,
}

impl Share {
    fn new(part: u64, bytes: u64) -> Share {
        Share { most: part / bytes, bytes }
    }

    /// Returns the number of objects to evict if `there` objects are in memory. An eighth of the
    /// limit is kept free for objects that other lanes load meanwhile.
    pub(crate) fn excess(self, there: usize) -> u64 {
        (there as u64).saturating_sub(self.most - self.most / 8)
    }

    fn left(self, there: usize) -> u64 {
        (self.most - self.most / 8).saturating_sub(there as u64)
    }

    pub(crate) fn is_over(self, there: usize) -> bool {
        there as u64 > self.most
    }

    /// Returns the number of objects for which a new map gets room.
    fn room(self) -> usize {
        self.most.min(ROOM) as usize
    }
}

impl Pressure {
    /// Creates the limits for caches of `cap` bytes and blocks of `block` bytes.
    pub(crate) fn new(cap: u64, block: u64) -> Pressure {
        let sixteenth = cap / 16;
        Pressure {
            inodes: Share::new(4 * sixteenth, INODE),
            // A block takes memory for the contents, the copy for readers and an index of the
            // names.
            meta: Share::new(3 * sixteenth, 2 * block + block / NAMES + BLOCK),
            tables: Share::new(3 * sixteenth, block + BLOCK),
            loads: PerLane::new(|_| AtomicU64::new(0)),
            drops: PerLane::new(|_| AtomicU64::new(0)),
            looks: Padded(AtomicI64::new(0)),
            eighth: AtomicU64::new(0),
            second: AtomicU64::new(0),
        }
    }

    /// Returns the number of inodes and the number of metadata blocks for which new maps need room.
    pub(crate) fn room(&self) -> (usize, usize) {
        (self.inodes.room(), self.meta.room())
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
