//! Assigns each caller its region of groups, and new directories their groups.

use super::caller::Caller;
use lanefs_lanes::MAX_LANES;
use std::ops::Range;

/// Returns the region of `caller`: the groups in which it places inodes and blocks when other
/// callers work near the usual place. Regions of different callers do not overlap if there are at
/// least as many groups as [`MAX_LANES`], rounded up to a power of two. The bits of the caller's
/// number, in reverse order, are the number of its region. So the first lanes get regions far
/// apart: at halves, quarters and eighths of the file system.
pub(crate) fn of(caller: Caller, groups: u32) -> Range<u32> {
    let lanes = MAX_LANES.next_power_of_two();
    let bits = lanes.trailing_zeros();
    let place = match bits {
        0 => 0,
        bits => caller.index().reverse_bits() >> (32 - bits),
    };
    let border = |place: u32| (u64::from(place) * u64::from(groups) / lanes as u64) as u32;
    let (start, end) = (border(place), border(place + 1));
    start..end.max(start + 1)
}

/// Returns the group for a new directory at the top of a tree; `before` is the number of such
/// directories that exist already. The group is far from the groups of the existing directories. It
/// is in the middle of a caller's region, because that caller uses the start of the region first.
pub(crate) fn top(before: u32, groups: u32) -> u32 {
    let fraction = u64::from(before.reverse_bits());
    let middle = groups / (2 * MAX_LANES as u32);
    (((fraction * u64::from(groups)) >> 32) as u32 + middle) % groups
}

/// Returns the group for a new directory whose parent is in group `parent` and has `before`
/// subdirectories already. Takes the groups after `parent` in turn, so that siblings are near each
/// other but in different groups.
pub(crate) fn below(parent: u32, before: u32, groups: u32) -> u32 {
    ((u64::from(parent) + 1 + u64::from(before)) % u64::from(groups)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_cover_all_groups_and_meet_only_if_groups_are_few() {
        for groups in [1, 3, 8, 63, 64, 100, 1000, 1_000_000] {
            let mut regions: Vec<Range<u32>> =
                Caller::all().map(|caller| of(caller, groups)).collect();
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
}
