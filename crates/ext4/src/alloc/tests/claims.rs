//! Tests that single runs and inodes are claimed, allocated and freed correctly.

use crate::alloc::regions::Caller;
use crate::alloc::tests::*;
use lanefs_lanes::Lane;
use lanefs_ondisk::superblock::RawSuperblock;
use std::time::Instant;

const SMALL: &[&str] = &["-b", "1024"];

#[test]
fn a_claim_starts_at_its_goal_and_goes_back_when_dropped() {
    let Some(f) = Fixture::new(32, SMALL) else { return };
    let free = f.groups.free_counts();
    let goal = f.claim(9000, 10).unwrap().start();
    let claim = f.claim(goal.0 + 100, 10).unwrap();
    assert_eq!((claim.start(), claim.len()), (Block(goal.0 + 100), 10));
    let behind = f.claim(goal.0 + 100, 10).unwrap();
    assert_eq!(behind.start(), Block(goal.0 + 110), "the next that is free");
    drop((claim, behind));
    assert_eq!(f.claim(goal.0 + 100, 20).unwrap().start(), Block(goal.0 + 100));
    assert_eq!(f.groups.free_counts(), free);
}

#[test]
fn a_dropped_part_of_a_split_claim_is_free_again() {
    let Some(f) = Fixture::new(32, SMALL) else { return };
    let total = f.groups.space().total();
    let mut claim = f.claim(9000, 100).unwrap();
    let front = claim.split_front(30);
    assert_eq!((front.len(), claim.len(), claim.start().0 - front.start().0), (30, 70, 30));
    let at = front.start();
    drop(front);
    assert_eq!(f.groups.space().total(), total - 70);
    assert_eq!(f.claim(at.0, 40).unwrap().start().0, at.0 + 100, "only 30 are free there");
    drop(claim);
    assert_eq!(f.groups.space().total(), total);
}

#[test]
fn blocks_freed_in_the_transaction_that_allocated_them_are_free_at_once() {
    let Some(f) = Fixture::new(32, SMALL) else { return };
    let mut tx = Transaction::new(5);
    let claim = f.claim(9000, 8).unwrap();
    let at = claim.start();
    f.groups.allocate(&mut tx, claim);
    f.groups.free_blocks(&mut tx, at, 8).unwrap();
    assert_eq!(f.groups.pending(), 0);
    assert_eq!(f.claim(at.0, 8).unwrap().start(), at);
    assert!(tx.released.is_empty());
}

#[test]
fn other_blocks_are_free_once_the_transaction_is_durable() {
    let Some(f) = Fixture::new(32, SMALL) else { return };
    let mut tx = Transaction::new(5);
    let claim = f.claim(9000, 8).unwrap();
    let at = claim.start();
    f.groups.allocate(&mut tx, claim);
    f.commit(tx);
    let mut tx = Transaction::new(6);
    f.groups.free_blocks(&mut tx, Block(at.0 + 2), 4).unwrap();
    assert_eq!((f.groups.pending(), tx.charged), (4, 2));
    assert_ne!(f.claim(at.0 + 2, 4).unwrap().start().0, at.0 + 2);
    f.commit(tx);
    assert_eq!(f.groups.pending(), 0);
    assert_eq!(f.claim(at.0 + 2, 4).unwrap().start().0, at.0 + 2);
}

#[test]
fn every_block_can_be_claimed_and_the_reserve_by_the_privileged() {
    let setup = Setup { reserved: 1000, ..setup(Arc::new(Scaling)) };
    let Some(f) = Fixture::set_up(32, SMALL, setup) else { return };
    let free = f.groups.free_counts().0;
    let mut all = Vec::new();
    while let Ok(claim) = f.claim(1, 700) {
        all.push(claim);
    }
    let held = |all: &[Claim]| all.iter().map(|claim| u64::from(claim.len())).sum::<u64>();
    assert_eq!(held(&all), free - 1000);
    assert!(matches!(f.claim(1, 1), Err(Error::NoSpace)));
    while let Ok(claim) = f.claim_as(1, 700, Privilege::Root) {
        all.push(claim);
    }
    assert_eq!(held(&all), free);
    let mut seen: Vec<(u64, u64)> = all
        .iter()
        .map(|claim| (claim.start().0, claim.start().0 + u64::from(claim.len())))
        .collect();
    seen.sort();
    assert!(seen.windows(2).all(|two| two[0].1 <= two[1].0), "no block twice");
    all.clear();
    assert_eq!(f.groups.space().total(), free);
    assert!(f.claim(1, 4000).unwrap().len() >= 4000, "a long run again");
}

#[test]
fn the_longest_run_is_found_when_nothing_long_is_left() {
    let Some(f) = Fixture::new(32, SMALL) else { return };
    let mut all = Vec::new();
    while let Ok(claim) = f.claim(1, 100) {
        all.push(claim);
    }
    // The group has one free run of 37 blocks among free runs of 2 blocks.
    for (i, claim) in all.iter_mut().enumerate() {
        let keep = claim.len().saturating_sub(if i == 111 { 37 } else { 2 });
        let front = claim.split_front(keep);
        *claim = front;
    }
    let request = |at_least| Request {
        goal: Block(1),
        want: 100,
        ahead: 0,
        at_least,
        privilege: Privilege::Ordinary,
        stream: None,
        owner: None,
    };
    let best = f.groups.claim(&f.device, &request(30)).unwrap();
    assert_eq!(best.len(), 37);
    let any = f.groups.claim(&f.device, &request(30)).unwrap();
    assert!(any.len() >= 1 && any.len() < 30, "anything at last");
}

#[test]
fn a_goal_outside_of_the_file_system_means_anywhere() {
    let Some(f) = Fixture::new(32, SMALL) else { return };
    for goal in [0, 32 << 10, u64::MAX] {
        assert_eq!(f.claim(goal, 5).unwrap().len(), 5);
    }
}

#[test]
fn inodes_come_in_order_and_reserved_ones_never() {
    let Some(f) = Fixture::new(32, SMALL) else { return };
    let first = f.claim_inode(FileType::Regular, 2).unwrap();
    let second = f.claim_inode(FileType::Regular, 2).unwrap();
    assert!(first.ino() >= f.geometry.first_ino());
    assert_eq!((first.group(), second.ino().0), (Group(0), first.ino().0 + 1));
    let mut tx = Transaction::new(3);
    let (ino, before) = (first.ino(), f.groups.free_counts());
    f.groups.allocate_inode(&mut tx, first, FileType::Regular);
    assert_eq!(f.groups.free_counts().1, before.1 - 1);
    f.groups.free_inode(&mut tx, ino, FileType::Regular).unwrap();
    assert_eq!(f.groups.free_counts(), before);
    assert_eq!(f.claim_inode(FileType::Regular, 2).unwrap().ino(), ino, "claimable at once");
    assert!(f.groups.free_inode(&mut tx, Ino(2), FileType::Directory).is_err());
}

#[test]
fn every_inode_can_be_claimed() {
    let Some(f) = Fixture::new(16, SMALL) else { return };
    let mut all = Vec::new();
    while let Ok(claim) = f.claim_inode(FileType::Regular, 2) {
        all.push(claim);
    }
    assert_eq!(all.len() as u64, f.groups.free_counts().1);
    let mut numbers: Vec<u32> = all.iter().map(|claim| claim.ino().0).collect();
    numbers.sort();
    numbers.dedup();
    assert_eq!(numbers.len(), all.len());
    let some = all.swap_remove(77).ino();
    assert_eq!(f.claim_inode(FileType::Directory, 2).unwrap().ino(), some);
}

#[test]
fn two_step_claims_and_waiting_choosers_give_the_same_without_competitors() {
    let Some(f) = Fixture::set_up(32, SMALL, setup(Arc::new(Waiting))) else { return };
    let one = f.claim_inode(FileType::Directory, 2).unwrap();
    let two = f.claim_inode(FileType::Directory, 2).unwrap();
    assert_eq!((one.group(), two.group()), (Group(0), Group(0)));
    let long = f.claim(1, 8000).unwrap();
    let next = f.claim(1, 8000).unwrap();
    assert!(long.len() == 8000 || next.len() == 8000 || long.start() != next.start());
}

// Tests where new blocks and inodes are placed, and how much work the searches do.

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
pub(crate) fn imagined_with(
    count: u32,
    change: &dyn Fn(u32, &mut GroupDesc),
) -> (Groups, Geometry) {
    imagined_set_up(count, setup(Arc::new(Scaling)), change)
}

/// Does the same as [`imagined_with`], but with the settings `setup`.
pub(crate) fn imagined_set_up(
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
    assert!(size_of::<lanefs_lanes::Padded<crate::alloc::bitmaps::Cell>>() <= 256);
}
