//! Assigns each lane its home region of groups.

use lanefs_lanes::{Lane, MAX_LANES};
use std::ops::Range;

/// Groups whose summaries share cache lines: regions start at multiples of it if there are enough
/// groups.
const LINE: u32 = super::summary::GROUPS_A_LINE as u32;

/// Returns the groups in which `lane` places new directories and files, of `groups` in all. Regions
/// of different lanes overlap only if there are fewer groups than lanes. Lanes are numbered from 0
/// on, so the first lanes get regions far apart: at halves, quarters, eighths.
pub(crate) fn home(lane: Lane, groups: u32) -> Range<u32> {
    let lanes = MAX_LANES.next_power_of_two();
    let bits = lanes.trailing_zeros();
    let place = match bits {
        0 => 0,
        bits => (lane.index() as u32).reverse_bits() >> (32 - bits),
    };
    let border = |place: u32| {
        let at = (u64::from(place) * u64::from(groups) / lanes as u64) as u32;
        if groups >= LINE * lanes as u32 && at < groups { at / LINE * LINE } else { at }
    };
    let (start, end) = (border(place), border(place + 1));
    start..end.max(start + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_cover_all_groups_and_meet_only_if_groups_are_few() {
        for groups in [1, 3, 8, 63, 64, 100, 1000, 1_000_000] {
            let mut homes: Vec<Range<u32>> = Lane::all().map(|lane| home(lane, groups)).collect();
            homes.sort_by_key(|home| (home.start, home.end));
            assert!(homes.iter().all(|home| !home.is_empty() && home.end <= groups));
            if groups as usize >= MAX_LANES {
                assert_eq!((homes[0].start, homes[MAX_LANES - 1].end), (0, groups));
                assert!(homes.windows(2).all(|two| two[0].end == two[1].start));
            }
        }
    }

    #[test]
    fn the_first_lanes_are_far_apart() {
        let starts: Vec<u32> = Lane::all().take(4).map(|lane| home(lane, 6400).start).collect();
        assert_eq!(starts, [0, 3200, 1600, 4800]);
    }
}
