//! Tests random replacements, compared with a plain table of blocks.

use crate::extent::tests::*;

const FILE: u32 = 2000;

/// Returns a few ascending extents in `range`, some adjacent, some with holes between them.
fn random_extents(rng: &mut fastrand::Rng, range: &Range<u32>, physical: &mut u64) -> Vec<Extent> {
    let mut with = Vec::new();
    let mut at = range.start;
    for _ in 0..rng.usize(0..10) {
        at = at.saturating_add(if rng.bool() { 0 } else { rng.u32(0..4) });
        if at >= range.end {
            break;
        }
        let len = rng.u32(1..=(range.end - at).min(9));
        let state = if rng.u32(0..3) > 0 { State::Written } else { State::Unwritten };
        *physical += if rng.bool() { 0 } else { 3 };
        with.push(extent(at, len, *physical, state));
        *physical += u64::from(len);
        at += len;
    }
    with
}

/// Returns a range in the first or in the last blocks that a file can have; it may be empty.
fn random_range(rng: &mut fastrand::Rng) -> Range<u32> {
    let end = if rng.u32(0..6) == 0 { END } else { FILE };
    let start = end - rng.u32(0..=FILE);
    let most = if rng.u32(0..8) == 0 { FILE } else { 30 };
    start..rng.u32(start..=start.saturating_add(most).min(end))
}

fn deepest_of_random_replacements(node_max: u16, rounds: usize, rng: &mut fastrand::Rng) -> u16 {
    let (mut tree, mut map, mut table) = (Tree::new(node_max), Map::empty(), Table::new());
    let (mut physical, mut deepest) = (100, 0);
    for round in 0..rounds {
        let range = random_range(rng);
        // Alternates between growing and shrinking, so that trees become deep and then flat again.
        let shrinks = (round / 150) % 2 == 1 && rng.u32(0..4) > 0;
        let with = match shrinks {
            true => Vec::new(),
            false => random_extents(rng, &range, &mut physical),
        };
        tree.replace(range.clone(), &with);
        map = map.replace(range.clone(), &with);
        replace_in(&mut table, range, &with);
        let loaded = tree.load();
        assert_eq!(table_of(loaded.iter()), table, "the tree after round {round}");
        assert_eq!(table_of(map.iter()), table, "the map after round {round}");
        assert_eq!((map.blocks(), loaded.blocks()), (table.len() as u64, table.len() as u64));
        assert_eq!(map.count(), map.iter().count() as u64);
        assert!(map.count() <= loaded.count(), "the map merges at least as much as the tree");
        deepest = deepest.max(tree.depth());
    }
    tree.replace(0..END, &[]);
    assert_eq!((tree.root, tree.blocks.len()), (EMPTY_ROOT, 0), "every node was freed");
    deepest
}

#[test]
fn random_replacements_leave_what_a_table_leaves() {
    let mut rng = seeded("random_replacements");
    assert!(deepest_of_random_replacements(4, 1500, &mut rng) >= 3);
    assert!(deepest_of_random_replacements(5, 1500, &mut rng) >= 3);
    assert!(deepest_of_random_replacements(7, 1500, &mut rng) >= 2);
    deepest_of_random_replacements(84, 600, &mut rng);
}

#[test]
fn a_map_answers_as_a_table_does() {
    let mut rng = seeded("a_map_answers");
    let (mut map, mut table, mut physical) = (Map::empty(), Table::new(), 100);
    for _ in 0..3000 {
        let range = random_range(&mut rng);
        let with = random_extents(&mut rng, &range, &mut physical);
        let gone = overlapping(&map, range.clone());
        let before = map.clone();
        map = map.replace(range.clone(), &with);
        assert_eq!(overlapping(&before, range.clone()), gone, "a snapshot does not change");
        let cut = table.range(range.clone()).map(|(at, there)| (*at, *there)).collect::<Table>();
        assert_eq!(table_of(gone), cut);
        replace_in(&mut table, range, &with);

        let at = rng.u32(0..FILE + 50);
        let next = table.range(at..).next().map_or(END, |(next, _)| *next);
        match map.find(FileBlock(at)) {
            Mapping::Hole { len } => assert_eq!(at + len, next),
            Mapping::Mapped { block, len, state } => {
                for i in 0..len {
                    assert_eq!(table.get(&(at + i)), Some(&(block.0 + u64::from(i), state)));
                }
            }
        }
        let data = table.range(at..).find(|(_, (_, state))| *state == State::Written);
        assert_eq!(map.seek_data(FileBlock(at)), data.map(|(at, _)| FileBlock(*at)));
        let written = |at| matches!(table.get(&at), Some((_, State::Written)));
        assert_eq!(map.seek_hole(FileBlock(at)).0, (at..).find(|at| !written(*at)).unwrap_or(END));
        assert_eq!(map.last().map(|last| last.end() - 1), table.keys().last().copied());
        let from: Vec<Extent> = map.iter().filter(|extent| extent.end() > at).collect();
        assert_eq!(map.iter_from(FileBlock(at)).collect::<Vec<_>>(), from);
    }
}

#[test]
fn a_map_of_many_extents_is_changed_at_any_place() {
    let mut rng = seeded("a_map_of_many");
    let all = (0..100_000).map(|i| extent(i * 2, 1, 10 + u64::from(i) * 2, State::Written));
    let mut map =
        all.fold(Map::empty(), |map, extent| map.replace(extent.start.0..extent.end(), &[extent]));
    assert_eq!(map.count(), 100_000);
    for _ in 0..1000 {
        let i = rng.u32(0..100_000);
        map = map.replace(i * 2..i * 2 + 1, &[]);
        assert!(matches!(map.find(FileBlock(i * 2)), Mapping::Hole { .. }));
        let back = extent(i * 2, 1, 10 + u64::from(i) * 2, State::Written);
        map = map.replace(i * 2..i * 2 + 1, &[back]);
        assert_eq!(map.count(), 100_000);
    }
    let map = map.replace(1..199_998, &[]);
    assert_eq!(map.iter().map(|extent| extent.start.0).collect::<Vec<_>>(), [0, 199_998]);
}

#[test]
fn a_file_that_grows_leaves_full_leaves_behind() {
    let mut tree = Tree::new(84);
    for i in 0..84 * 20 {
        tree.replace(i..i + 1, &[extent(i, 1, 10 + u64::from(i) * 2, State::Written)]);
    }
    assert_eq!((tree.depth(), tree.load().count()), (2, 84 * 20));
    assert_eq!(tree.blocks.len(), 20 + 1);
}

#[test]
fn contiguous_appends_become_extents_of_full_length() {
    let mut tree = Tree::new(84);
    for i in 0..20u32 {
        tree.replace(
            i * 5000..i * 5000 + 5000,
            &[extent(i * 5000, 5000, 10 + u64::from(i) * 5000, State::Written)],
        );
    }
    let lens: Vec<u32> = tree.load().iter().map(|extent| extent.len).collect();
    assert_eq!(lens, [30000, 30000, 30000, 10000]);
}

#[test]
fn an_extent_longer_than_the_format_allows_becomes_several() {
    let (mut tree, long) = (Tree::new(84), extent(7, 1 << 20, 100, State::Unwritten));
    tree.replace(7..7 + (1 << 20), &[long]);
    let map = Map::empty().replace(7..7 + (1 << 20), &[long]);
    for map in [tree.load(), map] {
        assert_eq!((map.blocks(), map.count()), (1 << 20, 33));
        assert!(map.iter().all(|extent| extent.len <= 32767));
    }
}

#[test]
fn the_last_block_of_the_largest_file_can_be_mapped() {
    let mut tree = Tree::new(84);
    tree.replace(END - 1..END, &[extent(END - 1, 1, 100, State::Written)]);
    let map = tree.load();
    assert_eq!(map.last().map(|last| last.end()), Some(END));
    assert_eq!(map.find(FileBlock(END)), Mapping::Hole { len: 0 });
    assert_eq!(map.seek_hole(FileBlock(END - 1)), FileBlock(END));
}

#[test]
fn a_change_in_place_writes_one_node() {
    let mut tree = Tree::new(84);
    for i in 0..2000 {
        tree.replace(i..i + 1, &[extent(i, 1, 10 + u64::from(i) * 2, State::Unwritten)]);
    }
    let with = [extent(1000, 1, 10 + 2000, State::Written)];
    let plan = plan_replace(&tree.root, &tree, &tree.limits, 1000..1001, &with).expect("right");
    assert_eq!((plan.nodes_written(), plan.nodes_needed(), plan.freed().len()), (1, 0, 0));
    assert_eq!(plan.place(&[]).root, tree.root);
}
