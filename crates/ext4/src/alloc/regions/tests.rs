use super::*;

#[test]
fn regions_cover_all_groups_and_meet_only_if_groups_are_few() {
    for groups in [1, 3, 8, 63, 64, 100, 1000, 1_000_000] {
        let mut regions: Vec<Range<u32>> = Caller::all().map(|caller| of(caller, groups)).collect();
        regions.sort_by_key(|region| (region.start, region.end));
        assert!(regions.iter().all(|region| !region.is_empty() && region.end <= groups));
        if groups as usize >= MAX_LANES {
            assert_eq!((regions[0].start, regions[MAX_LANES - 1].end), (0, groups));
            assert!(regions.windows(2).all(|two| two[0].end == two[1].start));
        }
    }
}

#[test]
fn the_first_lanes_are_far_apart() {
    let starts: Vec<u32> = Caller::all().take(4).map(|caller| of(caller, 6400).start).collect();
    assert_eq!(starts, [0, 3200, 1600, 4800]);
}

#[test]
fn directories_at_the_top_are_far_apart_and_those_below_are_neighbours() {
    let top: Vec<u32> = (0..4).map(|n| top(n, 512)).collect();
    assert_eq!(top, [4, 260, 132, 388]);
    let below: Vec<u32> = (0..4).map(|n| below(508, n, 512)).collect();
    assert_eq!(below, [509, 510, 511, 0]);
    let all: std::collections::BTreeSet<u32> = (0..64).map(|n| super::top(n, 64)).collect();
    assert_eq!(all.len(), 64, "a group each");
}
