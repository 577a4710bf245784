//! The image store, which keeps the images of metadata blocks that are not yet written in place.
//!
//! A block's image is in the store from its capture until it is written in place. A block can have
//! two versions. A checkpoint may write the *durable* version, whose transaction is committed. The
//! *pending* version belongs to the transaction that is being committed, and must not be written in
//! place before the commit block of this transaction is durable. Readers get the newest version.
//!
//! *Invariant*: only the committer changes the store, so an entry that the committer has read stays
//! the same until the committer writes the entry.

use crate::tid::Tid;
use lanefs_lanes::Map;
use lanefs_lanes::sync::Arc;
use lanefs_lanes::sync::atomic::{AtomicU64, Ordering};
use lanefs_ondisk::Block;

/// A block's bytes as of a transaction.
#[derive(Debug, Clone)]
struct Version {
    tid: Tid,
    bytes: Arc<[u8]>,
}

#[derive(Debug, Clone, Default)]
struct Entry {
    durable: Option<Version>,
    pending: Option<Version>,
}

pub(crate) struct Store {
    entries: Map<Block, Entry>,
    /// The total size of all versions in bytes; only the committer writes this counter.
    bytes: AtomicU64,
}

impl Store {
    pub(crate) fn new() -> Store {
        Store { entries: Map::new(), bytes: AtomicU64::new(0) }
    }

    /// Returns the newest image.
    pub(crate) fn newest(&self, block: Block) -> Option<Arc<[u8]>> {
        let entry = self.entries.get(&block)?;
        entry.pending.or(entry.durable).map(|version| version.bytes)
    }

    /// Returns the durable image of a block if it is of `upto` or an earlier transaction. A
    /// checkpoint up to `upto` writes this image.
    pub(crate) fn durable(&self, block: Block, upto: Tid) -> Option<Arc<[u8]>> {
        let version = self.entries.get(&block)?.durable?;
        (version.tid <= upto).then_some(version.bytes)
    }

    /// Returns the total size of all images in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Adds `bytes` as the pending image of `block` in `tid`, and replaces an earlier pending one.
    pub(crate) fn push(&self, block: Block, tid: Tid, bytes: Arc<[u8]>) {
        self.change(block, |entry| entry.pending = Some(Version { tid, bytes }));
    }

    /// Makes the pending image durable, after its transaction became durable.
    pub(crate) fn promote(&self, block: Block) {
        self.change(block, |entry| {
            if let Some(version) = entry.pending.take() {
                entry.durable = Some(version);
            }
        });
    }

    /// Drops the durable image of a freed block, so that no checkpoint writes it any more.
    pub(crate) fn revoke(&self, block: Block) {
        self.change(block, |entry| entry.durable = None);
    }

    /// Drops the durable image after it was written in place, if it is of `upto` or an earlier
    /// transaction.
    pub(crate) fn note_in_place(&self, block: Block, upto: Tid) {
        self.change(block, |entry| {
            entry.durable.take_if(|version| version.tid <= upto);
        });
    }

    fn change(&self, block: Block, change: impl FnOnce(&mut Entry)) {
        let mut entry = self.entries.get(&block).unwrap_or_default();
        let before = entry.bytes();
        change(&mut entry);
        self.bytes.fetch_add(entry.bytes().wrapping_sub(before), Ordering::Relaxed);
        if entry.durable.is_none() && entry.pending.is_none() {
            self.entries.remove_if(&block, |_| true);
        } else {
            self.entries.insert(block, entry);
        }
    }
}

impl Entry {
    fn bytes(&self) -> u64 {
        [&self.durable, &self.pending].into_iter().flatten().map(|v| v.bytes.len() as u64).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(byte: u8) -> Arc<[u8]> {
        Arc::from([byte; 4])
    }

    #[test]
    fn readers_see_the_pending_image_and_checkpoints_the_durable_one() {
        let (store, block) = (Store::new(), Block(9));
        store.push(block, Tid(1), image(1));
        assert_eq!(store.durable(block, Tid(1)), None);
        store.promote(block);
        store.push(block, Tid(2), image(2));
        assert_eq!(store.newest(block), Some(image(2)));
        assert_eq!(store.durable(block, Tid(1)), Some(image(1)));
        assert_eq!(store.bytes(), 8);
        store.note_in_place(block, Tid(1));
        assert_eq!(store.newest(block), Some(image(2)));
        store.promote(block);
        assert_eq!(store.durable(block, Tid(1)), None, "a later transaction holds it");
        assert_eq!(store.durable(block, Tid(2)), Some(image(2)));
        store.revoke(block);
        assert_eq!(store.newest(block), None);
        assert_eq!(store.bytes(), 0);
        assert!(store.entries.is_empty());
    }
}
