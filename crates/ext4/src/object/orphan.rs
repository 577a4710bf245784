//! Records orphans: inodes that the next mount must delete, or finish truncating, after a crash.
//!
//! With the feature `orphan_file` their numbers are stored in slots of the orphan file, where each
//! lane starts its search for a free slot at a different block. Without the feature, or when the
//! file is full, each lane has a list in memory. At capture the committer chains all lists through
//! the inodes' deletion times (the legacy list).

use crate::object::dirty::{Dirty, Handle};
use crate::object::inode::Inode;
use crate::object::meta::MetaRef;
use crate::object::record::OrphanSlot;
use crate::object::state::Concerns;
use lanefs_journal::{Tid, Tracked};
use lanefs_lanes::sync::{Arc, OnceLock};
use lanefs_lanes::{Lane, LaneCounter, Mutex, PerLane, Rank};
use lanefs_ondisk::{Ino, orphan as disk};
use std::collections::{BTreeMap, HashMap};

/// Holds the orphans of a mount.
pub(crate) struct Orphans {
    /// The blocks of the orphan file, pinned; not set without the feature.
    file: OnceLock<Vec<MetaRef>>,
    /// The number of entries in the orphan file.
    file_entries: LaneCounter,
    /// [guard] Each lane's part of the legacy list.
    lists: PerLane<Mutex<List>>,
    /// The list as it was last captured. [used by the committer only]
    chained: Mutex<Chained>,
}

/// A lane's part of the legacy list.
struct List {
    /// The inodes in order of insertion. The order is stable, so few records change from one commit
    /// to the next: an insertion or removal changes only the record of the inode and the record of
    /// the inode that points to it.
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
    /// The parts by lane number; the newest entry of a part is last.
    parts: BTreeMap<usize, Vec<Ino>>,
    /// For each inode, the number of the next inode in the chain, as stored in the inode's record.
    next: HashMap<Ino, Ino>,
}

/// The result of chaining the legacy list again.
pub(crate) struct Chain {
    /// The newest entry, for the superblock; 0 if the list is empty.
    pub(crate) head: Ino,
    /// Inodes whose record must be changed.
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

    /// Returns the blocks of the orphan file.
    fn blocks(&self) -> &[MetaRef] {
        self.file.get().map_or(&[], Vec::as_slice)
    }

    /// Pins the blocks of the orphan file, which have `entries` entries in total. Called once, at
    /// mount, before any inode is deleted.
    pub(crate) fn set_file(&self, blocks: Vec<MetaRef>, entries: usize) {
        let set = self.file.set(blocks);
        debug_assert!(set.is_ok(), "the orphan file is opened once");
        self.file_entries.add(entries as i64);
    }

    /// Returns whether the orphan file was read.
    pub(crate) fn has_file(&self) -> bool {
        self.file.get().is_some()
    }

    /// Returns whether the orphan file has entries.
    pub(crate) fn are_in_file(&self) -> bool {
        self.file_entries.sum() > 0
    }

    /// At mount: adds inodes that are already on the list on disk, and returns their positions in
    /// the list.
    pub(crate) fn adopt_list(&self, inos: impl Iterator<Item = Ino>) -> Vec<(Ino, OrphanSlot)> {
        let lane = Lane::current();
        let mut list = self.lists.of(lane).lock();
        let places =
            inos.map(|ino| (ino, OrphanSlot::List { lane, number: list.push(ino) })).collect();
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

    /// Committer: chains the lists that [`Orphans::take_list`] took.
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

    /// Committer: returns the number that `ino`'s record must have as its deletion time.
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
        // One credit is charged for the record of the inode that points to this inode in the chain,
        // because that record changes too.
        handle.charge(1);
        result
    }

    /// Apply: records `inode` as an orphan, if it is not recorded yet. Uses at most 3 credits.
    pub(crate) fn add(&self, handle: &mut Handle<'_>, inode: &Arc<Inode>) {
        if inode.state.lock().orphan.is_some() {
            return;
        }
        let place = self.take_slot(handle, inode.ino).unwrap_or_else(|| {
            let lane = Lane::current();
            let number = self.change_list(handle, lane, |list| list.push(inode.ino));
            OrphanSlot::List { lane, number }
        });
        inode.change(handle, Concerns::Attributes, |state| {
            state.orphan = Some(place);
            state.disk.dtime = 0;
        });
    }

    /// Apply: removes the record of an inode whose truncation, or other work that a crash would have
    /// left to the next mount, is finished. An inode without a name stays an orphan. Uses at most 3
    /// credits.
    ///
    /// # Locking
    /// The caller holds the operation lock exclusively, so that the inode neither gets nor loses a
    /// name meanwhile.
    pub(crate) fn finish(&self, handle: &mut Handle<'_>, inode: &Arc<Inode>) {
        if inode.links() > 0 {
            self.remove(handle, inode);
        }
    }

    /// Apply: removes the orphan record of `inode`, which gets a name or is deleted. Uses at most 3
    /// credits.
    pub(crate) fn remove(&self, handle: &mut Handle<'_>, inode: &Arc<Inode>) {
        let Some(place) = inode.state.lock().orphan else { return };
        match place {
            OrphanSlot::File { block, slot } => {
                self.blocks()[block].change(handle, |data| {
                    disk::set_slot(Arc::make_mut(data), slot, None);
                });
                self.file_entries.add(-1);
            }
            OrphanSlot::List { lane, number } => {
                self.change_list(handle, lane, |list| list.inos.remove(&number));
            }
        }
        inode.change(handle, Concerns::Attributes, |state| {
            state.orphan = None;
            state.disk.dtime = 0;
        });
    }

    /// Writes `ino` into a free slot, trying the lane's own block first.
    fn take_slot(&self, handle: &mut Handle<'_>, ino: Ino) -> Option<OrphanSlot> {
        let blocks = self.blocks().len();
        for n in 0..blocks {
            let block = (Lane::current().index() + n) % blocks;
            if disk::free_slot(&self.blocks()[block].data()).is_none() {
                continue;
            }
            let slot = self.blocks()[block].change(handle, |data| {
                let slot = disk::free_slot(data)?;
                disk::set_slot(Arc::make_mut(data), slot, Some(ino));
                Some(slot)
            });
            if let Some(slot) = slot {
                self.file_entries.add(1);
                return Some(OrphanSlot::File { block, slot });
            }
        }
        None
    }
}
