//! Tests of `members.rs`.

use super::*;
use lanefs_device::RamDevice;

fn member(len: u64) -> Member {
    let device = Arc::new(RamDevice::create(len).unwrap());
    Member { device, data_offset: 0, log: None, recovered: u64::MAX, bad_blocks: None }
}

#[test]
fn a_member_counts_for_the_rows_that_it_has() {
    let members = Members::new(3);
    assert_eq!(members.not_in_sync(), Slots::below(3));
    members.put(0, member(4096), u64::MAX).unwrap();
    members.put(1, member(8192), 5).unwrap();
    assert_eq!(members.missing(4), Slots::one(2));
    assert_eq!(members.missing(5), [1, 2].into_iter().collect());
    assert_eq!(members.standing(0), Standing::InSync);
    assert_eq!(members.standing(1), Standing::Rebuilding { row: 5 });
    let taken = members.check_vacant(1);
    assert!(matches!(taken, Err(ArrayError::SlotTaken { slot: 1 })));
    let id = members.present(1).unwrap().id;
    assert!(members.advance(id, 6));
    assert!(members.of_row(1, 5).is_some());
    assert!(members.advance(id, 3), "another rebuild of the same member is behind");
    assert_eq!(members.standing(1), Standing::Rebuilding { row: 6 });
    members.remove(1);
    assert!(members.present(1).is_none());
    members.put(1, member(1), 0).unwrap();
    assert!(members.of_row(1, 0).is_none());
    assert_eq!(members.present(1).unwrap().device.len(), 1);
    assert!(matches!(members.put(3, member(1), 0), Err(ArrayError::NoSuchSlot { slot: 3 })));
}

#[test]
fn a_removed_member_is_neither_restored_nor_mistaken_for_the_next() {
    let members = Members::new(3);
    members.put(1, member(8192), 5).unwrap();
    let old = members.present(1).unwrap().id;
    members.remove(1);
    assert!(!members.advance(old, 6));
    assert_eq!(members.standing(1), Standing::Missing);
    members.put(1, member(8192), 0).unwrap();
    assert!(!members.advance(old, u64::MAX));
    assert_eq!(members.standing(1), Standing::Rebuilding { row: 0 });
    assert!(members.still(old).is_none());
    let new = members.present(1).unwrap().id;
    assert!(members.still(new).is_some());
}
