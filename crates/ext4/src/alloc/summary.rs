//! Summaries of the groups, which a search reads without taking the groups' guards.

use lanefs_lanes::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use lanefs_lanes::{Growing, Latest, NumberSet, Padded};

/// Number of groups whose summaries share cache lines.
pub(crate) const GROUPS_A_LINE: usize = 8;

/// Number of orders. The order of a run is the base-2 logarithm of its length, rounded down.
const ORDERS: usize = 20;

/// The summary of a group, at most 16 bytes. Written under the group's guard and read without a
/// lock, so it may be outdated. It has no counts, so most claims do not change it. Neighbouring
/// groups share a cache line. Callers that work in these groups read the line often, but write it
/// seldom.
#[derive(Debug, Default)]
struct Summary {
    /// Whether the group has blocks that are not taken.
    has_blocks: AtomicBool,
    has_inodes: AtomicBool,
    /// An upper bound for the order of the longest run, plus one; 0 only if the group has no run.
    level: AtomicU8,
    /// Whether the group has a directory, or had one since the mount. Never cleared, so that
    /// creating and removing directories does not write the cache line again.
    has_directory: AtomicBool,
}
#[cfg(not(any(loom, shuttle)))] // the checkers' atomics are larger
const _: () = assert!(size_of::<Padded<[Summary; GROUPS_A_LINE]>>() == 128);

/// The summaries of all groups, and sets that index them. A search reads them without a lock, so
/// they may be outdated.
#[derive(Debug)]
pub struct Summaries {
    lines: Growing<Padded<[Summary; GROUPS_A_LINE]>>,
    groups: Latest<u32>,
    /// For each order, the groups with a run of this order or longer.
    orders: Vec<NumberSet>,
    /// Groups with free inodes.
    inodes: NumberSet,
}

/// Returns the order of a run of `len` blocks.
pub(crate) fn order_of(len: u32) -> u32 {
    len.max(1).ilog2()
}

/// Returns the least order whose runs all have at least `len` blocks.
pub(crate) fn order_for(len: u32) -> u32 {
    len.max(1).next_power_of_two().trailing_zeros()
}

/// Stores `new` unless the flag has this value already; returns whether the flag changed.
fn changes(flag: &AtomicBool, new: bool) -> bool {
    let differs = flag.load(Ordering::Relaxed) != new;
    if differs {
        flag.store(new, Ordering::Relaxed);
    }
    differs
}

impl Summaries {
    /// Creates the summaries of `groups` groups; all groups count as full.
    pub(crate) fn new(groups: u32) -> Summaries {
        let lines = (groups as usize).div_ceil(GROUPS_A_LINE);
        Summaries {
            lines: (0..lines).map(|_| Padded::default()).collect(),
            groups: Latest::new(groups),
            orders: (0..ORDERS).map(|_| NumberSet::new(groups)).collect(),
            inodes: NumberSet::new(groups),
        }
    }

    /// Returns the number of groups.
    pub fn groups(&self) -> u32 {
        *self.groups.get()
    }

    /// Makes room for the summaries of `groups` groups; the new groups count as full, and no search
    /// looks at them before [`Summaries::show`].
    pub(crate) fn grow(&self, groups: u32) {
        let lines = (groups as usize).div_ceil(GROUPS_A_LINE);
        self.lines.extend((self.lines.len()..lines).map(|_| Padded::default()));
        self.orders.iter().chain([&self.inodes]).for_each(|set| set.grow(groups));
    }

    /// Lets searches look at the first `groups` groups.
    pub(crate) fn show(&self, groups: u32) {
        self.groups.set(groups);
    }

    fn of(&self, group: u32) -> &Summary {
        let group = group as usize;
        &self.lines[group / GROUPS_A_LINE].0[group % GROUPS_A_LINE]
    }

    /// Returns whether the group has blocks that are not taken; may be outdated.
    pub(crate) fn has_blocks(&self, group: u32) -> bool {
        self.of(group).has_blocks.load(Ordering::Relaxed)
    }

    /// Returns whether the group has inodes that are not taken; may be outdated.
    pub fn has_inodes(&self, group: u32) -> bool {
        self.of(group).has_inodes.load(Ordering::Relaxed)
    }

    /// Returns whether the group has blocks and inodes that are not taken; may be outdated.
    pub(crate) fn has_room(&self, group: u32) -> bool {
        self.has_blocks(group) && self.has_inodes(group)
    }

    /// Returns whether the group has a directory, or had one since the mount.
    pub(crate) fn has_directory(&self, group: u32) -> bool {
        self.of(group).has_directory.load(Ordering::Relaxed)
    }

    /// Notes that the group has a directory. Needs no guard.
    pub(crate) fn set_directory(&self, group: u32) {
        changes(&self.of(group).has_directory, true);
    }

    /// Returns an upper bound for the length of the group's runs.
    ///
    /// # Locking
    /// The bound is valid as long as the group's guard is held.
    pub fn bound(&self, group: u32) -> u32 {
        (1 << self.of(group).level.load(Ordering::Relaxed)) - 1
    }

    /// Returns the next group at `from` or later that may have a run of `order` or longer.
    pub fn next_with_order(&self, order: u32, from: u32) -> Option<u32> {
        self.orders.get(order as usize)?.next(from)
    }

    /// Returns the next group at `from` or later that may have free inodes.
    pub fn next_with_inodes(&self, from: u32) -> Option<u32> {
        self.inodes.next(from)
    }

    /// Notes the number of blocks that are not taken.
    ///
    /// # Locking
    /// Callers of this function and of the three functions below hold the group's guard.
    pub(crate) fn set_open_blocks(&self, group: u32, blocks: u32) {
        changes(&self.of(group).has_blocks, blocks > 0);
    }

    /// Notes the number of inodes that are not taken.
    pub(crate) fn set_open_inodes(&self, group: u32, inodes: u32) {
        if changes(&self.of(group).has_inodes, inodes > 0) {
            match inodes {
                0 => self.inodes.remove(group),
                _ => self.inodes.insert(group),
            }
        }
    }

    /// Notes that the group has a run of `len` blocks, unless a longer run is known.
    pub(crate) fn raise(&self, group: u32, len: u32) {
        let level = self.of(group).level.load(Ordering::Relaxed);
        if len > 0 && order_of(len) as u8 + 1 > level {
            self.set_level(group, level, order_of(len) as u8 + 1);
        }
    }

    /// Notes that the longest run of the group has `len` blocks.
    pub(crate) fn set_longest(&self, group: u32, len: u32) {
        let level = self.of(group).level.load(Ordering::Relaxed);
        let new = if len == 0 { 0 } else { order_of(len) as u8 + 1 };
        if new != level {
            self.set_level(group, level, new);
        }
    }

    fn set_level(&self, group: u32, old: u8, new: u8) {
        self.of(group).level.store(new, Ordering::Relaxed);
        let (old, new) = (usize::from(old).min(ORDERS), usize::from(new).min(ORDERS));
        self.orders.iter().take(new).skip(old).for_each(|set| set.insert(group));
        self.orders.iter().take(old).skip(new).for_each(|set| set.remove(group));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_found_by_their_free_space() {
        let all = Summaries::new(100);
        all.set_longest(7, 1000);
        all.raise(50, 16);
        assert_eq!(all.next_with_order(4, 0), Some(7));
        assert_eq!(all.next_with_order(4, 8), Some(50));
        assert_eq!(all.next_with_order(5, 8), None);
        all.set_longest(7, 15);
        assert_eq!(all.next_with_order(4, 0), Some(50));
        assert_eq!(all.next_with_order(3, 0), Some(7));
        all.raise(7, 3);
        assert_eq!(all.next_with_order(3, 0), Some(7), "a longer run stays known");
        all.set_longest(7, 0);
        assert_eq!(all.next_with_order(0, 0), Some(50));
        assert_eq!((all.bound(7), all.bound(50)), (0, 31));
    }

    #[test]
    fn orders_round_free_space_down_and_requests_up() {
        assert_eq!((order_of(1), order_of(7), order_of(8)), (0, 2, 3));
        assert_eq!((order_for(1), order_for(7), order_for(8), order_for(9)), (0, 3, 3, 4));
    }
}
