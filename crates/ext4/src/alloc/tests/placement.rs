//! Tests the places of new blocks and inodes, and the cost of the search.

use super::*;
use lanefs_lanes::Lane;
use lanefs_ondisk::superblock::RawSuperblock;
use std::time::Instant;

#[test]
fn directories_of_different_lanes_go_to_different_groups() {
    let Some(f) = Fixture::new(2048, &["-b", "1024"]) else { return };
    let places = || {
        let group = |_| f.claim_inode(FileType::Directory, 2).expect("room").group();
        ((0..4).map(group).collect::<Vec<Group>>(), Lane::current())
    };
    let barrier = lanefs_lanes::sync::unscheduled::Barrier::new(8);
    let all: Vec<_> = std::thread::scope(|s| {
        let both = || {
            let found = places();
            barrier.wait();
            found
        };
        let threads: Vec<_> = (0..8).map(|_| s.spawn(both)).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    for (i, (groups, lane)) in all.iter().enumerate() {
        assert!(groups.windows(2).all(|two| two[0] != two[1]), "the next goes to the next group");
        for (others, other) in &all[i + 1..] {
            assert!(lane == other || groups.iter().all(|group| !others.contains(group)));
        }
    }
}

#[test]
fn a_file_goes_to_the_group_of_its_directory() {
    let Some(f) = Fixture::new(64, &["-b", "1024"]) else { return };
    for group in [0, 3, 7] {
        let parent = f.geometry.ino_at(Group(group), 5).expect("a group");
        let claim = f.claim_inode(FileType::Regular, parent.0).expect("room");
        assert_eq!(claim.group(), Group(group));
    }
}

#[test]
fn a_busy_group_is_skipped_and_with_the_waiting_policy_waited_for() {
    for busy_group in [BusyGroup::Skip, BusyGroup::Wait] {
        let policies = Policies { busy_group, ..Policies::default() };
        let Some(f) = Fixture::with(64, &["-b", "1024"], 0, policies) else { return };
        let goal = f.geometry.group_first_block(Group(5)).expect("a group").0 + 4000;
        let parent = f.geometry.ino_at(Group(5), 0).expect("a group");
        drop(f.claim(goal, 1).expect("room"));
        let (blocks, inode) = std::thread::scope(|s| {
            let guard = f.groups.shared.state(Group(5));
            let claims = s.spawn(|| {
                let blocks = f.claim(goal, 10).expect("room");
                (blocks.start(), f.claim_inode(FileType::Regular, parent.0).expect("room").group())
            });
            if busy_group == BusyGroup::Wait {
                std::thread::sleep(std::time::Duration::from_millis(20));
                assert!(!claims.is_finished());
                drop(guard);
                return claims.join().expect("no panic");
            }
            claims.join().expect("no panic")
        });
        let elsewhere = f.geometry.group_of(blocks).map(|(group, _)| group) != Some(Group(5));
        assert_eq!(elsewhere, busy_group == BusyGroup::Skip);
        assert_eq!(inode != Group(5), busy_group == BusyGroup::Skip);
    }
}

/// Creates the groups of an image with `count` groups that does not exist; no bitmap is read.
fn imagined(count: u32) -> (Groups, Geometry) {
    imagined_with(count, &|_, _| ())
}

/// Like [`imagined`], with descriptors that `change` edits.
pub(super) fn imagined_with(
    count: u32,
    change: &dyn Fn(u32, &mut GroupDesc),
) -> (Groups, Geometry) {
    let policies = Policies::default();
    imagined_set_up(count, Setup { reserved: 0, policies, row: 0, bitmap_bytes: u64::MAX }, change)
}

/// Like [`imagined_with`], with given settings.
pub(super) fn imagined_set_up(
    count: u32,
    setup: Setup,
    change: &dyn Fn(u32, &mut GroupDesc),
) -> (Groups, Geometry) {
    const PER_GROUP: u32 = 8192;
    let mut raw = RawSuperblock::zeroed();
    raw.s_magic.set(0xef53);
    raw.s_rev_level.set(1);
    raw.s_first_data_block.set(1);
    raw.s_blocks_per_group.set(PER_GROUP);
    raw.s_clusters_per_group.set(PER_GROUP);
    raw.s_inodes_per_group.set(64);
    raw.s_inodes_count.set(64 * count);
    raw.s_inode_size.set(256);
    raw.s_first_ino.set(11);
    raw.s_desc_size.set(64);
    let blocks = 1 + u64::from(PER_GROUP) * u64::from(count);
    raw.s_blocks_count_lo.set(blocks as u32);
    raw.s_blocks_count_hi.set((blocks >> 32) as u32);
    // extents, 64bit, flex_bg, meta_bg; sparse_super, gdt_csum
    raw.s_feature_incompat.set(0x2 | 0x40 | 0x80 | 0x200 | 0x10);
    raw.s_feature_ro_compat.set(0x1 | 0x10);
    let superblock = Superblock::from_raw(raw).expect("a superblock");
    let geometry = superblock.geometry();
    let descriptors = (0..count).map(|group| {
        let first = geometry.group_first_block(Group(group)).expect("a group").0;
        let start = first + u64::from(geometry.group_overhead(Group(group)));
        let table = geometry.itable_blocks();
        let mut desc = GroupDesc {
            block_bitmap: Block(start),
            inode_bitmap: Block(start + 1),
            inode_table: Block(start + 2),
            free_blocks: PER_GROUP - geometry.group_overhead(Group(group)) - 2 - table,
            free_inodes: 64,
            used_dirs: 0,
            itable_unused: 64,
            flags: lanefs_ondisk::group_desc::GroupFlags::from_bits_retain(3),
            block_bitmap_csum: 0,
            inode_bitmap_csum: 0,
            exclude_bitmap: Block(0),
        };
        change(group, &mut desc);
        desc
    });
    let descriptors: Vec<GroupDesc> = descriptors.collect();
    let system = Arc::new(SystemBlocks::new(&geometry, &descriptors, []));
    (Groups::new(geometry, superblock.checksums(), descriptors, system, setup), geometry)
}

struct Nothing;

impl BlockReader for Nothing {
    fn read_block(&self, block: Block) -> Result<Arc<[u8]>, Error> {
        panic!("{block} is read, though no group was ever initialised")
    }
}

#[test]
fn a_million_groups_allocate_as_fast_as_a_hundred() {
    let mut times = Vec::new();
    for count in [100, 1_000_000] {
        let (groups, geometry) = imagined(count);
        let last = geometry.group_first_block(Group(count - 1)).expect("a group").0;
        let mut claims = Vec::new();
        let claim = |group: u64, want, at_least| {
            let goal = Block(group * 8192 + 1);
            let request = Request {
                goal,
                want,
                ahead: 0,
                at_least,
                privilege: Privilege::Ordinary,
                stream: None,
            };
            groups.claim(&Nothing, &request).expect("room")
        };
        // The groups of the goals are full, and all other groups except the last ten seem to have
        // short runs only.
        let mut full = Vec::new();
        for group in 0..7 {
            full.push(claim(group.into(), groups.shared.summaries.open_blocks(group), 1));
            assert_eq!(groups.shared.summaries.open_blocks(group), 0);
        }
        for group in 7..count - 10 {
            groups.shared.summaries.set_longest(group, 3);
        }
        let begun = Instant::now();
        for i in 0..200u64 {
            claims.push(claim(i % 7, 100, 100));
        }
        times.push(begun.elapsed());
        assert!(claims.iter().all(|claim| claim.start().0 + 10 * 8192 > last));
        assert!(claims.iter().all(|claim| claim.len() == 100));
    }
    // Both take microseconds; a scan of a million groups would take milliseconds each time.
    assert!(times[1] < times[0] * 50 + std::time::Duration::from_millis(50), "{times:?}");
}

#[test]
fn a_group_that_was_never_used_takes_little_memory() {
    // A million groups take at most 256 MB.
    assert!(size_of::<lanefs_lanes::Padded<super::super::shared::Cell>>() <= 256);
}
