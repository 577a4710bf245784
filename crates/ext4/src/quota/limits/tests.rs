use super::*;

const FILE: Ino = Ino(12);
const OTHER: Ino = Ino(13);
const GRACE: Grace = Grace { bytes: 100, inodes: 50 };

fn owner_with(limits: Limits) -> Arc<Limited> {
    Arc::new(Limited::new(Quota { limits, ..Quota::default() }, GRACE))
}

fn use_up(owner: &Arc<Limited>, bytes: u64, now: u64) {
    owner.change(FILE, Usage::default(), Usage { bytes, inodes: 0 }, now);
}

fn wanted(inodes: u64, unit: u64, units: u64) -> Wanted {
    Wanted { inodes, unit, units }
}

#[test]
fn no_more_is_held_than_the_hard_limit_leaves() {
    let owner = owner_with(Limits { kib_hard: 10, inodes_hard: 1, ..Limits::default() });
    let (first, units) = owner.hold(FILE, wanted(1, 4096, 5), 0).expect("room");
    assert_eq!(units, 2);
    assert!(owner.hold(FILE, wanted(1, 1024, 0), 0).is_none(), "one inode");
    assert!(owner.hold(FILE, wanted(0, 4096, 1), 0).is_none(), "2 KiB are left");
    assert_eq!(owner.hold(FILE, wanted(0, 1024, 9), 0).expect("room").1, 2);
    use_up(&owner, 4096, 0);
    drop(first);
    assert_eq!(owner.hold(FILE, wanted(1, 1024, 9), 0).expect("room").1, 6);
}

#[test]
fn a_soft_limit_holds_after_its_grace_time() {
    let owner = owner_with(Limits { kib_soft: 4, kib_hard: 100, ..Limits::default() });
    use_up(&owner, 5000, 1000);
    assert_eq!(owner.ends(), (1100, 0));
    use_up(&owner, 1000, 1050);
    assert_eq!(owner.ends(), (1100, 0));
    assert!(owner.hold(FILE, wanted(0, 1024, 1), 1099).is_some());
    assert!(owner.hold(FILE, wanted(0, 1024, 1), 1100).is_none());
    owner.change(FILE, Usage { bytes: 1904, inodes: 0 }, Usage::default(), 1200);
    assert_eq!(owner.ends(), (0, 0));
    assert!(owner.hold(FILE, wanted(0, 1024, 1), 1200).is_some());
}

#[test]
fn what_an_operation_has_used_is_not_held_too() {
    let owner = owner_with(Limits { kib_hard: 8, inodes_hard: 2, ..Limits::default() });
    let (mut first, _) = owner.hold(FILE, wanted(1, 1024, 4), 0).expect("room");
    owner.change(FILE, Usage::default(), Usage { bytes: 3072, inodes: 1 }, 0);
    assert_eq!(owner.hold(OTHER, wanted(1, 1024, 9), 0).expect("room").1, 4);
    first.keep(3, 1024);
    let (other, units) = owner.hold(OTHER, wanted(1, 1024, 9), 0).expect("room");
    assert_eq!(units, 5);
    assert!(owner.hold(FILE, wanted(0, 1024, 1), 0).is_none());
    drop((first, other));
    assert_eq!(owner.hold(FILE, wanted(1, 1024, 9), 0).expect("room").1, 5);
}

#[test]
fn what_one_operation_has_used_does_not_end_the_reservation_of_another() {
    let owner = owner_with(Limits { kib_hard: 8, ..Limits::default() });
    let (first, _) = owner.hold(FILE, wanted(0, 1024, 4), 0).expect("room");
    let (second, _) = owner.hold(FILE, wanted(0, 1024, 4), 0).expect("room");
    use_up(&owner, 4096, 0);
    drop(first);
    assert!(owner.hold(FILE, wanted(0, 1024, 1), 0).is_none());
    drop(second);
    assert_eq!(owner.hold(FILE, wanted(0, 1024, 9), 0).expect("room").1, 4);
}

#[test]
fn a_limit_above_the_usage_ends_the_grace_time() {
    let mut quota = Quota { bytes_until: 9, inodes_until: 9, ..Quota::default() };
    quota.usage.bytes = 2048;
    quota.usage.inodes = 3;
    let limits = Limits { kib_soft: 1, inodes_soft: 3, ..Limits::default() };
    let after = limited(quota, limits);
    assert_eq!((after.bytes_until, after.inodes_until), (9, 0));
}
