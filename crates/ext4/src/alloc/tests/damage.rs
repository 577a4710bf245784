//! Tests damaged bitmaps and descriptors, and files that map metadata blocks.

use super::*;
use lanefs_ondisk::Corruption;
use lanefs_ondisk::bitmap::Cause;
use lanefs_ondisk::group_desc::GroupFlags;

fn cause<T>(result: Result<T, Error>) -> (Group, Cause) {
    match result {
        Err(Error::Corruption(Corruption::Bitmap { group, cause })) => (group, cause),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it was damaged"),
    }
}

/// Changes the bytes of a block.
fn change(f: &Fixture, block: Block, change: impl FnOnce(&mut [u8])) {
    let mut bytes = f.device.read_block(block).expect("readable").to_vec();
    change(&mut bytes);
    f.device.write(block, &bytes);
}

#[test]
fn a_damaged_group_is_reported_once_and_not_used() {
    let Some(f) = Fixture::new(32, &["-b", "1024"]) else { return };
    assert!(!f.descriptors[0].flags.contains(GroupFlags::BLOCK_UNINIT), "it is read");
    change(&f, f.descriptors[0].block_bitmap, |bytes| bytes[1000] ^= 4);
    let goal = 6000;
    let (group, found) = cause(f.claim(goal, 10));
    assert!(group == Group(0) && matches!(found, Cause::Checksum { .. }));
    let total = f.groups.space().total();
    let others = f.descriptors[1..].iter().map(|desc| u64::from(desc.free_blocks)).sum::<u64>();
    assert_eq!(total, others);
    let claim = f.claim(goal, 10).expect("other groups are right");
    assert_ne!(f.geometry.group_of(claim.start()).map(|(group, _)| group), Some(Group(0)));
    assert!(matches!(cause(f.groups.bitmaps.load(&f.device, Group(0))).1, Cause::Checksum { .. }));
    drop(claim);
    let mut all = Vec::new();
    while let Ok(claim) = f.claim(goal, 3000) {
        all.push(claim);
    }
    assert_eq!(all.iter().map(|claim| u64::from(claim.len())).sum::<u64>(), total);
}

#[test]
fn free_metadata_and_wrong_counts_are_damage_even_without_checksums() {
    let options = ["-b", "1024", "-O", "^metadata_csum,^uninit_bg,^64bit,^resize_inode"];
    let Some(f) = Fixture::new(32, &options) else { return };
    // The bits of a metadata block and of a free block are swapped, so that the free count stays
    // right.
    let (group, bit) = f.geometry.group_of(f.descriptors[2].inode_table).expect("a group");
    let bitmap = f.descriptors[group.0 as usize].block_bitmap;
    change(&f, bitmap, |bytes| {
        bytes[bit as usize / 8] ^= 1 << (bit % 8);
        let other = bytes.iter().rposition(|byte| *byte == 0).expect("eight free blocks");
        bytes[other] ^= 1;
    });
    assert_eq!(
        cause(f.groups.bitmaps.load(&f.device, group)),
        (group, Cause::MetadataClear { bit })
    );

    change(&f, f.descriptors[3].block_bitmap, |bytes| {
        let free = bytes.iter().rposition(|byte| *byte == 0).expect("eight free blocks");
        bytes[free] = 1;
    });
    let (_, found) = cause(f.groups.bitmaps.load(&f.device, Group(3)));
    assert!(matches!(found, Cause::FreeCount { .. }));
}

#[test]
fn a_second_free_is_reported_and_frees_the_rest() {
    let Some(f) = Fixture::new(32, &["-b", "1024"]) else { return };
    let mut tx = Transaction::new(5);
    let claim = f.claim(9500, 6).expect("room");
    let at = claim.start();
    f.groups.allocate(&mut tx, claim);
    f.groups.free_blocks(&mut tx, Block(at.0 + 2), 2).expect("allocated");
    let (_, found) = cause(f.groups.free_blocks(&mut tx, at, 6));
    let bit = f.geometry.group_of(at).expect("a group").1 + 2;
    assert_eq!(found, Cause::AlreadyClear { bit });
    assert_eq!(f.claim(at.0, 6).expect("room").start(), at);
    let ino = f.claim_inode(FileType::Regular, 2).expect("room").ino();
    assert!(f.groups.free_inode(&mut tx, ino, FileType::Regular).is_err());
}

#[test]
fn the_file_systems_own_blocks_are_not_freed() {
    let Some(f) = Fixture::new(32, &["-b", "1024"]) else { return };
    let _hold = f.groups.bitmaps.load(&f.device, Group(0)).expect("right");
    let mut tx = Transaction::new(5);
    for block in [Block(1), f.descriptors[0].block_bitmap, f.descriptors[3].inode_table] {
        assert!(f.groups.is_metadata(block, 1));
        let (_, found) = cause(f.groups.free_blocks(&mut tx, block, 1));
        assert!(matches!(found, Cause::MetadataFreed { .. }));
    }
    for (start, len) in [(0, 1), (32 << 10, 1), ((32 << 10) - 2, 3), (u64::MAX, 2)] {
        cause(f.groups.free_blocks(&mut tx, Block(start), len));
    }
    assert!(tx.groups.is_empty());
}
