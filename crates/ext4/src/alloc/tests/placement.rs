//! Tests where new blocks and inodes are placed, and how much work the searches do.

use super::*;
use crate::alloc::caller::Caller;
use lanefs_lanes::Lane;
use lanefs_ondisk::superblock::RawSuperblock;
use std::time::Instant;

/// Clients 1 and 2 create inodes in turn, each client in its own directory. Returns the groups of
/// the inodes.
fn groups_of_two(f: &Fixture, dirs: [u32; 2], rounds: u32) -> Vec<[Group; 2]> {
    let places = [WorkPlace::default(), WorkPlace::default()];
    let create = |n: usize| {
        work_for(Some(n as u32 + 1));
        f.claim_inode_in(&places[n], FileType::Regular, dirs[n]).expect("room").group()
    };
    (0..rounds).map(|_| [create(0), create(1)]).collect()
}

#[test]
fn clients_that_meet_in_a_group_move_apart() {
    let Some(f) = Fixture::new(2048, &["-b", "1024"]) else { return };
    let ino = |index| f.geometry.ino_at(Group(100), index).expect("a group").0;
    let all = groups_of_two(&f, [ino(3), ino(4)], 100);
    assert_eq!(all[0], [Group(100); 2], "near their directories at first");
    let two = all[99];
    assert!(two[0] != two[1] && all[40..].iter().all(|later| *later == two), "{all:?}");
    assert!(two.contains(&Group(100)), "one of them may stay");
    let moved = two.iter().position(|group| *group != Group(100)).expect("the other moved");
    work_for(Some(moved as u32 + 1));
    assert!(f.groups.region_of(Caller::current()).contains(&two[moved].0));
}

#[test]
fn one_client_stays_near_its_directories_whichever_threads_serve_it() {
    let Some(f) = Fixture::new(2048, &["-b", "1024"]) else { return };
    let dirs: Vec<(u32, WorkPlace)> = (0..4)
        .map(|index| f.geometry.ino_at(Group(100), index).expect("a group").0)
        .map(|ino| (ino, WorkPlace::default()))
        .collect();
    let create = |n: usize| {
        work_for(Some(7));
        let (ino, place) = &dirs[n % 4];
        f.claim_inode_in(place, FileType::Regular, *ino).expect("room").group()
    };
    // This thread and the one that it spawns live at the same time, so their lanes differ.
    std::thread::scope(|s| {
        for n in 0..100 {
            assert_eq!(create(n), Group(100));
            let served = s.spawn(move || (create(n + 1), Lane::current()));
            let (group, lane) = served.join().expect("no panic");
            assert_eq!((group, lane != Lane::current()), (Group(100), true));
        }
    });
}

#[test]
fn consecutive_commands_do_not_move_apart() {
    let Some(f) = Fixture::new(2048, &["-b", "1024"]) else { return };
    let places = [WorkPlace::default(), WorkPlace::default()];
    for n in 0..60 {
        work_for(Some(1000 + n));
        let ino = f.geometry.ino_at(Group(100), n % 2).expect("a group").0;
        let claim = f.claim_inode_in(&places[n as usize % 2], FileType::Regular, ino);
        assert_eq!(claim.expect("room").group(), Group(100));
    }
}

#[test]
fn many_clients_of_one_directory_get_groups_of_their_own() {
    let Some(f) = Fixture::new(2048, &["-b", "1024"]) else { return };
    let (ino, place) = (f.geometry.ino_at(Group(100), 3).expect("a group").0, WorkPlace::default());
    let create = |client| {
        work_for(Some(client));
        f.claim_inode_in(&place, FileType::Regular, ino).expect("room").group()
    };
    (0..20).for_each(|n| _ = create(n % 4));
    let groups: std::collections::BTreeSet<Group> = (0..4).map(create).collect();
    assert_eq!(groups.len(), 4);
}

#[test]
fn files_of_clients_that_meet_get_their_next_first_blocks_elsewhere() {
    let Some(f) = Fixture::new(2048, &["-b", "1024"]) else { return };
    let goal = f.geometry.group_first_block(Group(100)).expect("a group");
    let claim = |client: u32| {
        work_for(Some(client));
        claim_for(&f, goal, Ino(100 + client))
    };
    let moves: Vec<Group> = (0..40).filter_map(|n| claim(n % 2)).collect();
    assert!(!moves.is_empty() && !moves.contains(&Group(100)), "{moves:?}");
    work_for(None);
    assert!(
        (0..40).all(|n| claim_for(&f, goal, Ino(500 + n)).is_none()),
        "an unknown client meets none"
    );
}

/// Claims 8 blocks at `goal` for the file `owner`. Returns the group in which the file should place
/// its next blocks, if another client works in the goal's group too.
fn claim_for(f: &Fixture, goal: Block, owner: Ino) -> Option<Group> {
    let request = Request {
        goal,
        want: 8,
        ahead: 0,
        at_least: 8,
        privilege: Privilege::Ordinary,
        stream: None,
        owner: Some(owner),
    };
    f.groups.claim_blocks(&f.device, &request, None).expect("room").elsewhere
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
fn a_busy_group_is_skipped_or_waited_for() {
    let both: [Arc<dyn Allocation>; 2] = [Arc::new(Scaling), Arc::new(Waiting)];
    for allocation in both {
        let waits = allocation.busy_group() == Wait::Wait;
        let Some(f) = Fixture::set_up(64, &["-b", "1024"], setup(allocation)) else { return };
        let goal = f.geometry.group_first_block(Group(5)).expect("a group").0 + 4000;
        let parent = f.geometry.ino_at(Group(5), 0).expect("a group");
        drop(f.claim(goal, 1).expect("room"));
        let (blocks, inode) = std::thread::scope(|s| {
            let guard = f.groups.shared.state(Group(5));
            let claims = s.spawn(|| {
                let blocks = f.claim(goal, 10).expect("room");
                (blocks.start(), f.claim_inode(FileType::Regular, parent.0).expect("room").group())
            });
            if waits {
                std::thread::sleep(std::time::Duration::from_millis(20));
                assert!(!claims.is_finished());
                drop(guard);
                return claims.join().expect("no panic");
            }
            claims.join().expect("no panic")
        });
        let elsewhere = f.geometry.group_of(blocks).map(|(group, _)| group) != Some(Group(5));
        assert_eq!(elsewhere, !waits);
        assert_eq!(inode != Group(5), !waits);
    }
}

/// Creates `count` groups without an image. The test must not cause a bitmap to be read, because
/// there is none.
fn imagined(count: u32) -> (Groups, Geometry) {
    imagined_with(count, &|_, _| ())
}

/// Does the same as [`imagined`], but `change` edits the descriptors.
pub(super) fn imagined_with(
    count: u32,
    change: &dyn Fn(u32, &mut GroupDesc),
) -> (Groups, Geometry) {
    imagined_set_up(count, setup(Arc::new(Scaling)), change)
}

/// Does the same as [`imagined_with`], but with the settings `setup`.
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
    // incompat: filetype, meta_bg, extents, 64bit, flex_bg; ro_compat: sparse_super, gdt_csum
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
                owner: None,
            };
            groups.claim(&Nothing, &request).expect("room")
        };
        // The groups of the goals are full. According to the summaries, all other groups except the
        // last ten have only runs of a few blocks.
        let mut full = Vec::new();
        for group in 0..7 {
            let free = groups.shared.state(Group(group)).desc.free_blocks;
            full.push(claim(group.into(), free, 1));
            assert!(!groups.shared.summaries.has_blocks(group));
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
    // With either number of groups a search takes microseconds, whereas each scan of a million
    // groups would take milliseconds.
    assert!(times[1] < times[0] * 50 + std::time::Duration::from_millis(50), "{times:?}");
}

#[test]
fn a_group_that_was_never_used_takes_little_memory() {
    // A million groups take at most 256 MB.
    assert!(size_of::<lanefs_lanes::Padded<super::super::shared::Cell>>() <= 256);
}
