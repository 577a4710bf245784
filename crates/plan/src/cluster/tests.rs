//! Checks which clusters a change takes and frees, against a table of single blocks.

use crate::cluster::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const FILE: u32 = 96;
const FOUR: Clusters = Clusters::new(2);

fn extent(start: u32, len: u32, block: u64) -> Extent {
    Extent { start: FileBlock(start), len, block: Block(block), state: State::Written }
}

/// A file whose mapped blocks and clusters are kept one by one.
#[derive(Default)]
struct Naive {
    /// The physical cluster of each logical cluster in use.
    clusters: BTreeMap<u32, u64>,
    mapped: BTreeSet<u32>,
    next: u64,
}

impl Naive {
    /// Unmaps a range. Returns the freed physical clusters, and whether an unmapped block lies in
    /// a cluster that stays in use.
    fn unmap(&mut self, range: &Range<u32>, bits: u32) -> (BTreeSet<u64>, bool) {
        let gone: Vec<u32> = range.clone().filter(|block| self.mapped.remove(block)).collect();
        let used: BTreeSet<u32> = self.mapped.iter().map(|block| block >> bits).collect();
        let (kept, freed): (BTreeMap<u32, u64>, _) =
            std::mem::take(&mut self.clusters).into_iter().partition(|(n, _)| used.contains(n));
        self.clusters = kept;
        let keeps = gone.iter().any(|block| used.contains(&(block >> bits)));
        (freed.into_values().collect(), keeps)
    }

    /// Maps all holes of a range. Returns the number of new clusters.
    fn map(&mut self, range: &Range<u32>, bits: u32) -> u32 {
        let before = self.clusters.len();
        for block in range.clone() {
            self.mapped.insert(block);
            let next = &mut self.next;
            self.clusters.entry(block >> bits).or_insert_with(|| {
                *next += 1;
                *next
            });
        }
        (self.clusters.len() - before) as u32
    }

    fn place(&self, block: u32, bits: u32) -> u64 {
        (self.clusters[&(block >> bits)] << bits) + u64::from(block & ((1 << bits) - 1))
    }
}

/// Fills the holes of `range` as [`fill`] says, with the clusters that `naive` assigns to the file
/// blocks. Returns the extents and the number of new clusters.
fn filled(
    map: &Map,
    naive: &Naive,
    range: &Range<u32>,
    clusters: Clusters,
) -> Result<(Vec<Extent>, u32), TestCaseError> {
    let (mut with, mut taken, mut at) = (Vec::new(), 0, range.start);
    while at < range.end {
        let mapped = overlapping(map, at..range.end);
        if let Some(first) = mapped.first().filter(|first| first.start.0 == at) {
            with.push(*first);
            at = first.end();
            continue;
        }
        let hole = at..mapped.first().map_or(range.end, |next| next.start.0);
        let to = match fill(map, &hole, clusters) {
            Filling::InUse { block, len } => {
                prop_assert_eq!(block.0, naive.place(at, clusters.bits()));
                at + len
            }
            Filling::New { start, clusters: n } => {
                prop_assert_eq!(start, clusters.floor(at));
                taken += n;
                (start + (n << clusters.bits())).min(hole.end)
            }
        };
        prop_assert!(to > at && to <= hole.end);
        for block in at..to {
            with.push(extent(block, 1, naive.place(block, clusters.bits())));
        }
        at = to;
    }
    Ok((with, taken))
}

proptest! {
    #[test]
    fn clusters_are_taken_and_freed_as_a_table_of_blocks_says(
        bits in 0u32..5,
        steps in proptest::collection::vec((any::<bool>(), 0..FILE, 1u32..40), 1..40),
    ) {
        let clusters = Clusters::new(bits);
        let (mut map, mut naive) = (Map::empty(), Naive::default());
        for (takes, start, len) in steps {
            let range = start..start + len;
            if takes {
                let added = naive.map(&range, bits);
                let (with, taken) = filled(&map, &naive, &range, clusters)?;
                let usage = usage(&map, &range, &with, clusters);
                prop_assert_eq!((usage.added, taken), (added, added));
                prop_assert_eq!((usage.freed, usage.unmapped), (vec![], vec![]));
                map = map.replace(range, &with);
            } else {
                let (freed, keeps) = naive.unmap(&range, bits);
                let usage = usage(&map, &range, &[], clusters);
                let found: Vec<u64> = usage
                    .freed
                    .iter()
                    .flat_map(|e| (0..e.len >> bits).map(|n| (e.block.0 >> bits) + u64::from(n)))
                    .collect();
                prop_assert_eq!(found.len(), freed.len(), "each cluster is freed once");
                prop_assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), freed);
                prop_assert_eq!((usage.added, usage.keeps_unmapped), (0, keeps));
                prop_assert_eq!(usage.unmapped, overlapping(&map, range.clone()));
                map = map.replace(range, &[]);
            }
            prop_assert_eq!(misplaced(&map, clusters), None);
        }
    }

    #[test]
    fn parked_extents_keep_their_places_in_their_clusters(
        bits in 0u32..5,
        start in 0u32..100,
        pieces in proptest::collection::vec((0u32..20, 1u32..20), 1..20),
    ) {
        let clusters = Clusters::new(bits);
        // The file has a physical cluster for each logical cluster, in the same order.
        let (mut from, mut removed) = (0, Vec::new());
        for (gap, len) in pieces {
            removed.push(extent(from + gap, len, 1600 + u64::from(from + gap)));
            from += gap + len;
        }
        let (mut map, mut end, mut last) = (Map::empty(), clusters.ceil(start), None);
        for one in &removed {
            let at = place_behind(last.as_ref(), end, one, clusters).expect("room");
            prop_assert!(at >= end && at - end < 2 * clusters.blocks());
            map = map.replace(at..at + one.len, &[extent(at, one.len, one.block.0)]);
            (end, last) = (at + one.len, Some(*one));
        }
        prop_assert_eq!(misplaced(&map, clusters), None);
        let all = usage(&map, &(0..end), &[], clusters).freed;
        let whole: BTreeSet<u32> = removed
            .iter()
            .flat_map(|e| e.start.0..e.end())
            .map(|block| block >> bits)
            .collect();
        prop_assert_eq!(total(&all) >> bits, whole.len() as u32, "each cluster once");
    }
}

#[test]
fn a_hole_ends_where_a_cluster_in_use_begins() {
    let map = Map::empty().replace(0..FILE, &[extent(1, 1, 41), extent(14, 2, 86)]);
    let fill = |hole: Range<u32>| fill(&map, &hole, FOUR);
    assert_eq!(fill(0..1), Filling::InUse { block: Block(40), len: 1 });
    assert_eq!(fill(2..14), Filling::InUse { block: Block(42), len: 2 });
    assert_eq!(fill(5..14), Filling::New { start: 4, clusters: 2 });
    assert_eq!(fill(12..14), Filling::InUse { block: Block(84), len: 2 });
    assert_eq!(fill(16..18), Filling::New { start: 16, clusters: 1 });
}

#[test]
fn extents_outside_of_their_clusters_are_misplaced() {
    let misplaced = |extents: &[Extent]| {
        super::misplaced(&Map::empty().replace(0..FILE, extents), FOUR).map(|e| e.start.0)
    };
    assert_eq!(misplaced(&[extent(0, 2, 40), extent(3, 6, 43)]), None);
    assert_eq!(misplaced(&[extent(0, 2, 41)]), Some(0), "another place in the cluster");
    assert_eq!(misplaced(&[extent(0, 2, 40), extent(2, 2, 46)]), Some(2), "a divided cluster");
}
