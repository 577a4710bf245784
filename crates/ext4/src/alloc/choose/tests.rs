use super::*;
use lanefs_ondisk::superblock::RawSuperblock;
use std::cell::RefCell;
use std::convert::Infallible;

/// A file system in which each group has one run of free blocks.
struct Fake {
    runs: Vec<u32>,
    busy: Vec<bool>,
    tried: RefCell<Vec<(u32, Wait)>>,
    looked: std::cell::Cell<u32>,
}

impl Fake {
    fn new(runs: &[u32]) -> Fake {
        let (runs, busy) = (runs.to_vec(), vec![false; runs.len()]);
        Fake { runs, busy, tried: RefCell::default(), looked: std::cell::Cell::default() }
    }

    /// Chooses a run, and returns its group and length.
    fn choose(&self, group: u32, want: u32, at_least: u32) -> Option<(u32, u32)> {
        let goal = Goal { group, if_busy: 3, if_lacking: group + 1 };
        let Ok(run) = choose(self, goal, Ask::in_turn(0, want, at_least), Wait::Skip);
        run
    }

    fn tried(&self) -> Vec<u32> {
        self.tried.take().into_iter().map(|(group, _)| group).collect()
    }
}

impl Candidates for Fake {
    type Ask = Ask;
    type Claim = (u32, u32);
    type Error = Infallible;

    fn groups(&self) -> u32 {
        self.runs.len() as u32
    }

    fn has_any(&self, group: u32) -> bool {
        self.looked.set(self.looked.get() + 1);
        self.runs[group as usize] > 0
    }

    fn next(&self, ask: &Ask, from: u32) -> Option<u32> {
        (from..self.groups()).find(|group| {
            let run = self.runs[*group as usize];
            run > 0 && order_of(run) >= ask.order
        })
    }

    fn attempt(
        &self,
        group: u32,
        ask: &Ask,
        wait: Wait,
    ) -> Result<Attempt<(u32, u32)>, Infallible> {
        self.tried.borrow_mut().push((group, wait));
        if self.busy[group as usize] && wait == Wait::Skip {
            return Ok(Attempt::Busy);
        }
        let len = self.runs[group as usize].min(ask.want);
        let least = ask.least.min(ask.least_at_goal);
        Ok(if len > 0 && len >= least { Attempt::Taken((group, len)) } else { Attempt::Lacking })
    }
}

#[test]
fn the_goal_comes_first_and_then_the_next_group_with_room_for_all() {
    let fake = Fake::new(&[100, 10, 20, 64, 100]);
    assert_eq!(fake.choose(1, 10, 10), Some((1, 10)));
    assert_eq!(fake.choose(1, 50, 50), Some((3, 50)));
    assert_eq!(fake.choose(1, 65, 65), Some((4, 65)), "a lower order may do too");
    assert_eq!(fake.choose(4, 20, 20), Some((4, 20)));
}

#[test]
fn less_than_wanted_is_taken_from_the_best_group_and_not_under_the_least() {
    let fake = Fake::new(&[8, 10, 20, 33, 9]);
    assert_eq!(fake.choose(0, 100, 30), Some((3, 33)));
    assert_eq!(fake.choose(0, 100, 8), Some((0, 8)), "the goal is better still");
    let small = Fake::new(&[0, 3, 5, 0, 1]);
    assert_eq!(small.choose(0, 100, 50), Some((1, 3)), "anything at last");
    assert_eq!(Fake::new(&[0, 0]).choose(1, 1, 1), None);
}

#[test]
fn busy_groups_are_skipped_and_waited_for_at_last() {
    let mut fake = Fake::new(&[100; 6]);
    fake.busy = vec![true, false, false, true, false, false];
    assert_eq!(fake.choose(0, 10, 10), Some((4, 10)), "from the group for busy goals on");
    assert_eq!(fake.tried(), [0, 3, 4]);
    fake.busy = vec![true; 6];
    assert_eq!(fake.choose(1, 10, 10), Some((3, 10)));
    assert_eq!(fake.tried.borrow().last(), Some(&(3, Wait::Wait)));
}

#[test]
fn a_million_groups_cost_no_more_tries_than_a_hundred() {
    for groups in [100, 1_000_000] {
        let mut runs = vec![5; groups];
        runs[groups - 1] = 4096;
        let fake = Fake::new(&runs);
        assert_eq!(fake.choose(0, 4096, 4096), Some((groups as u32 - 1, 4096)));
        assert_eq!(fake.tried().len(), 2);
    }
}

#[test]
fn the_last_resort_finds_the_one_group_that_is_not_full_without_looking_at_the_others() {
    let mut runs = vec![0; 1_000_000];
    runs[999_998] = 3;
    let fake = Fake::new(&runs);
    assert_eq!(fake.choose(5, 64, 64), Some((999_998, 3)));
    assert_eq!(fake.looked.get(), 0, "at groups that the index does not know");
    assert!(fake.tried().len() < 4);
}

#[test]
fn if_searches_wait_no_group_is_skipped() {
    let mut fake = Fake::new(&[100; 4]);
    fake.busy[2] = true;
    let goal = Goal { group: 2, if_busy: 0, if_lacking: 3 };
    let Ok(run) = choose(&fake, goal, Ask::in_turn(0, 10, 10), Wait::Wait);
    assert_eq!(run, Some((2, 10)));
}

fn superblock(stride: u16, width: u32) -> Superblock {
    let mut raw = RawSuperblock::zeroed();
    raw.s_magic.set(0xef53);
    raw.s_rev_level.set(1);
    raw.s_log_block_size.set(2);
    raw.s_log_cluster_size.set(2);
    raw.s_blocks_per_group.set(32_768);
    raw.s_clusters_per_group.set(32_768);
    raw.s_inodes_per_group.set(64);
    raw.s_inodes_count.set(64);
    raw.s_inode_size.set(256);
    raw.s_first_ino.set(11);
    raw.s_blocks_count_lo.set(32_768);
    raw.s_raid_stride.set(stride);
    raw.s_raid_stripe_width.set(width);
    Superblock::from_raw(raw).expect("a superblock")
}

#[test]
fn the_option_comes_first_then_the_superblock_then_the_device() {
    let row = 20 * 4096;
    assert_eq!(stripe_of(&superblock(16, 48), 7, row), 7);
    assert_eq!(stripe_of(&superblock(16, 48), 0, row), 48);
    assert_eq!(stripe_of(&superblock(16, 0), 0, row), 16);
    assert_eq!(stripe_of(&superblock(0, 0), 0, row), 20);
    assert_eq!(stripe_of(&superblock(0, 0), 0, 0), 0);
}

#[test]
fn a_stripe_longer_than_a_group_or_of_one_block_is_ignored() {
    assert_eq!(stripe_of(&superblock(16, 48), 32_769, 0), 48);
    assert_eq!(stripe_of(&superblock(16, u32::MAX), 0, 0), 16);
    assert_eq!(stripe_of(&superblock(0, 0), 0, u64::MAX), 0);
    assert_eq!(stripe_of(&superblock(16, 1), 0, 0), 0);
}
