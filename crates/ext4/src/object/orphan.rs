//! Orphans: inodes that a crash must not leak or leave half truncated.
//!
//! With the feature `orphan_file` their numbers stand in slots of the orphan file, where lanes use
//! different blocks. Without it, or when the file is full, each lane has a list in memory, and the
//! committer chains all of them through the inodes' deletion times at capture (the legacy list).

use crate::Error;
use crate::fs::Fs;
use crate::object::commit::{Dirty, Handle};
use crate::object::inode::{Concerns, Inode, InodeRef};
use crate::object::meta::{MetaKind, MetaRef};
use crate::plan::extent;
use lanefs_journal::{Tid, Tracked};
use lanefs_lanes::sync::atomic::Ordering;
use lanefs_lanes::sync::{Arc, OnceLock};
use lanefs_lanes::{Lane, LaneCounter, Mutex, PerLane, Rank};
use lanefs_lanes::{Nameless, set_nameless};
use lanefs_ondisk::features::RoCompat;
use lanefs_ondisk::inode::Cause;
use lanefs_ondisk::superblock::OrphanEntries;
use lanefs_ondisk::{Block, Corruption, FileBlock, FileType, Ino, orphan as disk};
use std::collections::{BTreeMap, HashMap, HashSet};

/// Where an orphan stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// Slot `slot` of block `block` of the orphan file.
    File { block: usize, slot: usize },
    /// The list of `lane`, as its entry `number`.
    List { lane: Lane, number: u64 },
}

/// The orphans of a mount.
pub(crate) struct Orphans {
    /// The blocks of the orphan file, pinned; none without the feature.
    pub(crate) file: OnceLock<Vec<MetaRef>>,
    /// Entries in the orphan file.
    file_entries: LaneCounter,
    /// [guard] The legacy list, each lane's part.
    lists: PerLane<Mutex<List>>,
    /// [committer]
    chained: Mutex<Chained>,
}

/// A lane's part of the legacy list.
struct List {
    /// By the order in which they came. It stays, so that few records change from chain to chain:
    /// with one that comes or goes, its own and that of the one after it.
    inos: BTreeMap<u64, Ino>,
    next: u64,
    tracked: Tracked<Vec<Ino>>,
}

impl List {
    fn push(&mut self, ino: Ino) -> u64 {
        let number = self.next;
        self.next += 1;
        self.inos.insert(number, ino);
        number
    }
}

fn image(inos: &BTreeMap<u64, Ino>) -> Vec<Ino> {
    inos.values().copied().collect()
}

/// The legacy list as last captured.
#[derive(Default)]
struct Chained {
    /// The parts, by the lanes' numbers; the newest last.
    parts: BTreeMap<usize, Vec<Ino>>,
    /// What the inodes' records say of the chain: the number after.
    next: HashMap<Ino, Ino>,
}

/// The legacy list as it was chained anew.
pub(crate) struct Chain {
    /// The newest, for the superblock; 0 if there is none.
    pub(crate) head: Ino,
    /// Inodes whose record must say something else now.
    pub(crate) changed: Vec<Ino>,
}

impl Orphans {
    pub(crate) fn new() -> Orphans {
        let list = || List { inos: BTreeMap::new(), next: 0, tracked: Tracked::new() };
        Orphans {
            file: OnceLock::new(),
            file_entries: LaneCounter::new(0),
            lists: PerLane::new(|_| Mutex::new(Rank::Guard, list())),
            chained: Mutex::new(Rank::Journal, Chained::default()),
        }
    }

    /// The blocks of the orphan file.
    fn blocks(&self) -> &[MetaRef] {
        self.file.get().map_or(&[], Vec::as_slice)
    }

    /// At mount: these are on the list already, and chained so on the disk. Their places.
    fn adopt_list(&self, inos: impl Iterator<Item = Ino>) -> Vec<(Ino, Place)> {
        let lane = Lane::current();
        let mut list = self.lists.of(lane).lock();
        let places = inos.map(|ino| (ino, Place::List { lane, number: list.push(ino) })).collect();
        let part = image(&list.inos);
        drop(list);
        self.chained.lock().parts.insert(lane.index(), part);
        self.chain();
        places
    }

    /// Committer: takes the lane's part of the list as of `tid`.
    pub(crate) fn take_list(&self, tid: Tid, lane: Lane) {
        let mut list = self.lists.of(lane).lock();
        let List { inos, tracked, .. } = &mut *list;
        let taken = tracked.take(tid, || image(inos));
        drop(list);
        if let Some(part) = taken {
            self.chained.lock().parts.insert(lane.index(), part);
        }
    }

    /// Committer: chains the parts that were taken.
    pub(crate) fn chain(&self) -> Chain {
        let mut chained = self.chained.lock();
        let mut next = HashMap::new();
        let mut head = Ino(0);
        for ino in chained.parts.values().flatten() {
            next.insert(*ino, head);
            head = *ino;
        }
        let is_new = |(ino, to): &(&Ino, &Ino)| chained.next.get(ino) != Some(*to);
        let mut changed: Vec<Ino> = next.iter().filter(is_new).map(|(ino, _)| *ino).collect();
        changed.sort();
        chained.next = next;
        Chain { head, changed }
    }

    /// Committer: the number that `ino`'s record must have as its deletion time.
    pub(crate) fn next_of(&self, ino: Ino) -> Option<Ino> {
        self.chained.lock().next.get(&ino).copied()
    }

    fn change_list<R>(
        &self,
        handle: &mut Handle<'_>,
        lane: Lane,
        change: impl FnOnce(&mut List) -> R,
    ) -> R {
        let mut list = self.lists.of(lane).lock();
        let List { inos, tracked, .. } = &mut *list;
        let newly = tracked.touch(handle.tid(), || image(inos));
        let result = change(&mut list);
        drop(list);
        if newly {
            handle.dirty(Dirty::OrphanList(lane));
        }
        // The inode after it in the chain changes its record too.
        handle.charge(1);
        result
    }
}

impl Fs {
    /// Apply: records `inode` as an orphan, if it is not one already. At most 3 credits.
    pub(crate) fn add_orphan(&self, handle: &mut Handle<'_>, inode: &Arc<Inode>) {
        if inode.state.lock().orphan.is_some() {
            return;
        }
        let place = self.take_slot(handle, inode.ino).unwrap_or_else(|| {
            let lane = Lane::current();
            let number = self.orphans.change_list(handle, lane, |list| list.push(inode.ino));
            Place::List { lane, number }
        });
        inode.change(handle, Concerns::Attributes, |state| {
            state.orphan = Some(place);
            state.disk.dtime = 0;
        });
    }

    /// Apply: it is no orphan any more. At most 3 credits.
    pub(crate) fn remove_orphan(&self, handle: &mut Handle<'_>, inode: &Arc<Inode>) {
        let Some(place) = inode.state.lock().orphan else { return };
        match place {
            Place::File { block, slot } => {
                self.orphans.blocks()[block].change(handle, |data| {
                    disk::set_slot(Arc::make_mut(data), slot, None);
                });
                self.orphans.file_entries.add(-1);
            }
            Place::List { lane, number } => {
                self.orphans.change_list(handle, lane, |list| list.inos.remove(&number));
            }
        }
        inode.change(handle, Concerns::Attributes, |state| {
            state.orphan = None;
            state.disk.dtime = 0;
        });
    }

    /// Writes `ino` into a free slot: blocks are tried from the lane's own on.
    fn take_slot(&self, handle: &mut Handle<'_>, ino: Ino) -> Option<Place> {
        let blocks = self.orphans.blocks().len();
        for n in 0..blocks {
            let block = (Lane::current().index() + n) % blocks;
            if disk::free_slot(&self.orphans.blocks()[block].data()).is_none() {
                continue;
            }
            let slot = self.orphans.blocks()[block].change(handle, |data| {
                let slot = disk::free_slot(data)?;
                disk::set_slot(Arc::make_mut(data), slot, Some(ino));
                Some(slot)
            });
            if let Some(slot) = slot {
                self.orphans.file_entries.add(1);
                return Some(Place::File { block, slot });
            }
        }
        None
    }

    /// At mount: opens the orphan file, deletes the inodes without names and finishes the
    /// truncations that the last mount left, from the file and from the legacy list.
    pub(crate) fn finish_orphans(&self, file: Option<Ino>, head: Option<Ino>) -> Result<(), Error> {
        self.finishing_orphans.store(true, Ordering::Release);
        let result = self.finish_found(file, head);
        self.finishing_orphans.store(false, Ordering::Release);
        result
    }

    fn finish_found(&self, file: Option<Ino>, head: Option<Ino>) -> Result<(), Error> {
        let mut found = Vec::new();
        if let Some(ino) = file {
            found.extend(self.open_orphan_file(ino)?);
        }
        // Held from here on: evicted and looked for again it would pass for one that was deleted.
        let list = self.read_list(head)?;
        found.extend(self.orphans.adopt_list(list.iter().map(|inode| inode.ino)));
        let mut held = Vec::new();
        for (ino, place) in found {
            let inode = self.orphan(ino)?;
            let mut state = inode.state.lock();
            let twice = state.orphan.replace(place).is_some();
            state.disk.dtime = 0;
            drop(state);
            if twice {
                return Err(Corruption::Inode { ino, cause: Cause::OrphanLoop }.into());
            }
            held.push(inode);
        }
        drop(list);
        // All are marked before the first is ended: the end of one rewrites the chain.
        for inode in held {
            if inode.attr().links == 0 {
                set_nameless(&inode, Nameless::Yes);
                continue;
            }
            let _exclusive = inode.op.exclusive();
            let block_size = self.geometry.block_size().bytes() as u64;
            let keep = inode.attr().size.div_ceil(block_size);
            if inode.file_type == FileType::Regular {
                self.free_from(&inode, u32::try_from(keep).unwrap_or(u32::MAX))?;
            }
            let mut handle = self.join(6)?;
            self.remove_orphan(&mut handle, &inode);
        }
        Ok(())
    }

    /// An inode that the disk says is an orphan.
    fn orphan(&self, ino: Ino) -> Result<InodeRef, Error> {
        self.get(ino, None).map_err(|error| match error {
            Error::Stale => Corruption::Inode { ino, cause: Cause::NoOrphan }.into(),
            error => error,
        })
    }

    /// Pins the blocks of the orphan file; the entries found in it.
    fn open_orphan_file(&self, ino: Ino) -> Result<Vec<(Ino, Place)>, Error> {
        let file = self.get_any(ino, None)?;
        let blocks = file.attr().size >> self.geometry.block_size().bits();
        let end = u32::try_from(blocks).unwrap_or(u32::MAX);
        let mut found = Vec::new();
        let mut pinned = Vec::new();
        // By what is mapped, since the size may lie.
        let extents = self.with_map(&file, |map| extent::overlapping(map, 0..end))?;
        let mapped = extents
            .iter()
            .flat_map(|e| (0..e.len).map(|at| (e.start.0 + at, Block(e.block.0 + u64::from(at)))));
        for (n, block) in mapped {
            let kind = MetaKind::Orphans { ino, generation: file.generation, block: FileBlock(n) };
            let block = self.meta.get(self, block, kind)?;
            let seed = disk::OrphanSeed::new(self.checksums, ino, file.generation);
            let entries = disk::OrphanBlock::decode(&block.data(), block.block, seed)
                .map_err(|cause| Corruption::OrphanFile { ino, block: FileBlock(n), cause })?;
            for (slot, orphan) in entries.orphans() {
                found.push((orphan, Place::File { block: pinned.len(), slot }));
                self.orphans.file_entries.add(1);
            }
            pinned.push(block);
        }
        // Set once, before anything is deleted.
        let _ = self.orphans.file.set(pinned);
        Ok(found)
    }

    /// The legacy list, the newest first on the disk: oldest first here.
    fn read_list(&self, head: Option<Ino>) -> Result<Vec<InodeRef>, Error> {
        let mut found = Vec::new();
        let mut seen = HashSet::new();
        let mut next = head;
        while let Some(ino) = next {
            if !seen.insert(ino) {
                return Err(Corruption::Inode { ino, cause: Cause::OrphanLoop }.into());
            }
            let inode = self.orphan(ino)?;
            let dtime = inode.state.lock().disk.dtime;
            found.push(inode);
            next = (dtime != 0).then_some(Ino(dtime));
        }
        found.reverse();
        Ok(found)
    }

    /// Whether the orphan file still has entries: inodes that were open without a name at close, or
    /// what a mount left that could not read all of the file.
    pub(crate) fn orphans_left(&self) -> OrphanEntries {
        let unread = self.orphans.file.get().is_none()
            && self.superblock.snapshot().features().ro_compat.contains(RoCompat::ORPHAN_PRESENT);
        match unread || self.orphans.file_entries.sum() > 0 {
            true => OrphanEntries::Present,
            false => OrphanEntries::Absent,
        }
    }
}
