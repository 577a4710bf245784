//! The name cache as one table and one list in order of use, under one lock.
//!
//! What most file systems in user space have, written as well as it can be: constant time, no
//! allocation but the name's. It is here to be measured against.

use super::{NameCache, Sighting};
use lanefs_ext4::{DirId, Named, Names};
use lanefs_lanes::{Mutex, Pin, Rank};
use std::collections::HashMap;
use std::sync::Arc;

/// A slot's number, or none.
type Link = Option<usize>;

struct Slot {
    dir: DirId,
    name: Arc<[u8]>,
    leads_to: Option<Named>,
    /// The count of publications when this one was made.
    mark: u64,
    newer: Link,
    older: Link,
}

#[derive(Default)]
struct Table {
    /// Where each name is; a map in the map, so that a look-up needs no key of its own.
    places: HashMap<DirId, HashMap<Arc<[u8]>, usize>>,
    slots: Vec<Slot>,
    newest: Link,
    oldest: Link,
    capacity: usize,
    published: u64,
}

/// A name cache behind one lock.
pub struct GlobalNames {
    table: Mutex<Table>,
}

impl GlobalNames {
    /// A cache of at most `entries` names.
    pub fn new(entries: usize) -> GlobalNames {
        let table = Table { capacity: entries.max(1), ..Table::default() };
        GlobalNames { table: Mutex::new(Rank::Bucket, table) }
    }
}

impl Table {
    fn place(&self, dir: DirId, name: &[u8]) -> Link {
        self.places.get(&dir)?.get(name).copied()
    }

    fn unlink(&mut self, at: usize) {
        let (newer, older) = (self.slots[at].newer, self.slots[at].older);
        match newer {
            Some(n) => self.slots[n].older = older,
            None => self.newest = older,
        }
        match older {
            Some(o) => self.slots[o].newer = newer,
            None => self.oldest = newer,
        }
    }

    fn push_newest(&mut self, at: usize) {
        self.slots[at].newer = None;
        self.slots[at].older = self.newest;
        match self.newest {
            Some(n) => self.slots[n].newer = Some(at),
            None => self.oldest = Some(at),
        }
        self.newest = Some(at);
    }

    fn use_now(&mut self, at: usize) {
        if self.newest != Some(at) {
            self.unlink(at);
            self.push_newest(at);
        }
    }

    /// A slot for a new name: a fresh one, or the oldest, whose name is forgotten.
    fn insert(&mut self, dir: DirId, name: &[u8], leads_to: Option<Named>) {
        let name: Arc<[u8]> = name.into();
        let slot = Slot {
            dir,
            name: name.clone(),
            leads_to,
            mark: self.published,
            newer: None,
            older: None,
        };
        let at = match self.oldest {
            Some(oldest) if self.slots.len() >= self.capacity => {
                self.unlink(oldest);
                let old = std::mem::replace(&mut self.slots[oldest], slot);
                if let Some(names) = self.places.get_mut(&old.dir) {
                    names.remove(&old.name);
                    if names.is_empty() {
                        self.places.remove(&old.dir);
                    }
                }
                oldest
            }
            _ => {
                self.slots.push(slot);
                self.slots.len() - 1
            }
        };
        self.push_newest(at);
        self.places.entry(dir).or_default().insert(name, at);
    }
}

impl Names for GlobalNames {
    fn publish(&self, dir: DirId, name: &[u8], entry: Option<Named>) {
        let mut table = self.table.lock();
        table.published += 1;
        match table.place(dir, name) {
            Some(at) => {
                table.slots[at].leads_to = entry;
                table.slots[at].mark = table.published;
                table.use_now(at);
            }
            None => table.insert(dir, name, entry),
        }
    }

    fn forget(&self, _: DirId) {
        // Nobody asks for a generation that is gone; its entries are the oldest soon.
    }
}

impl NameCache for GlobalNames {
    fn sight(&self, _: &Pin, dir: DirId, name: &[u8]) -> Sighting {
        let mut table = self.table.lock();
        match table.place(dir, name) {
            Some(at) => {
                table.use_now(at);
                let slot = &table.slots[at];
                Sighting { known: slot.leads_to.into(), mark: slot.mark }
            }
            None => Sighting::NONE,
        }
    }
}
