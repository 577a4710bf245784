//! Tests the eviction of bitmaps. The cap allows only a few bitmaps in memory.

use super::placement::imagined_set_up;
use super::*;
use lanefs_lanes::sync::atomic::{AtomicU64, Ordering};

/// A reader that, when the cap is exceeded, evicts all bitmaps that are not held. (The real reader
/// requests a commit, which then evicts them.)
struct Committing<'g> {
    groups: &'g Groups,
    rounds: AtomicU64,
}

impl BlockReader for Committing<'_> {
    fn read_block(&self, block: Block) -> Result<Arc<[u8]>, Error> {
        panic!("{block} is read, though no group was ever initialised")
    }

    fn over_limit(&self) {
        let before = self.rounds.fetch_add(1, Ordering::Relaxed);
        assert!(before < 100, "what was just read was taken away 100 times");
        // A used group gets a second chance, but not a third.
        (0..3).for_each(|_| self.groups.bitmaps.committed(Tid(1)));
    }
}

#[test]
fn bitmaps_just_read_are_not_evicted_before_their_use() {
    let setup = Setup { bitmap_bytes: 0, ..setup(Arc::new(Scaling)) };
    let (groups, _) = imagined_set_up(64, setup, &|_, _| ());
    let read = Committing { groups: &groups, rounds: AtomicU64::new(0) };
    let held = (0..64).map(|group| groups.bitmaps.load(&read, Group(group)).expect("no damage"));
    let held: Vec<_> = held.collect();
    assert!(read.rounds.load(Ordering::Relaxed) > 0, "there was room for all");
    drop(held);
    assert_eq!(groups.bitmaps.bytes(), 64 * groups.shared.bitmap_bytes());
}
