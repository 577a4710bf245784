use super::*;

fn spacious() -> QuotaFile {
    let mut file = QuotaFile::new(Kind::User);
    file.grow(64 * BLOCK);
    file
}

fn usage(bytes: u64) -> Quota {
    Quota { usage: Usage { bytes, inodes: bytes + 1 }, ..Quota::default() }
}

#[test]
fn entries_are_found_again_after_decoding() {
    let mut file = spacious();
    let ids = [0, 1, 255, 256, 65_536, 1 << 24, u32::MAX, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17];
    for id in ids {
        assert!(file.add(id), "{id}");
        assert!(file.set(id, &usage(id.into())));
    }
    let again = QuotaFile::decode(file.bytes().to_vec(), Kind::User).expect("sound");
    for id in ids {
        assert_eq!(again.get(id), Some(usage(id.into())));
    }
    assert_eq!(again.ids().len(), ids.len());
    assert_eq!(again.get(18), None);
    assert_eq!(again.open, file.open);
}

#[test]
fn an_entry_of_root_without_usage_stays_an_entry() {
    let mut file = spacious();
    assert!(file.add(0));
    let again = QuotaFile::decode(file.bytes().to_vec(), Kind::User).expect("sound");
    assert_eq!(again.get(0), Some(Quota::default()));
}

#[test]
fn an_id_without_room_changes_nothing() {
    let mut file = QuotaFile::new(Kind::Group);
    file.grow(3 * BLOCK);
    let before = file.clone();
    assert!(!file.add(5));
    assert_eq!(file, before);
}

#[test]
fn adding_an_id_changes_no_more_blocks_than_it_says() {
    let mut file = spacious();
    for id in (0..12u32).map(|n| n << 24).chain(0..5) {
        file.take_changed();
        assert!(file.add(id));
        assert!(file.take_changed().len() <= CHANGES_OF_AN_ID as usize, "{id}");
    }
}

#[test]
fn every_check_of_a_quota_file_has_its_cause() {
    let mut good = spacious();
    assert!(good.add(3) && good.add(4));
    let decode = |at: usize, word: u32| {
        let mut bytes = good.bytes().to_vec();
        bytes[at..at + 4].copy_from_slice(&word.to_le_bytes());
        QuotaFile::decode(bytes, Kind::User).expect_err("damaged")
    };
    assert_eq!(QuotaFile::decode(vec![0; 2047], Kind::User), Err(Cause::Length { len: 2047 }));
    assert_eq!(decode(0, 1), Cause::Header { magic: 1, version: 1 });
    assert_eq!(decode(4, 0), Cause::Header { magic: 0xd9c0_1f11, version: 0 });
    assert_eq!(decode(20, 67), Cause::Blocks { blocks: 67, has: 66 });
    assert_eq!(decode(20, 1), Cause::Blocks { blocks: 1, has: 66 });
    assert_eq!(decode(BLOCK, 40), Cause::Reference { block: 1, to: 40 });
    assert_eq!(decode(BLOCK, 1), Cause::Reference { block: 1, to: 1 });
    // Block 2 is the data block; blocks 3, 4 and 5 belong to the tree.
    assert_eq!(decode(5 * BLOCK + 12, 4), Cause::Reference { block: 5, to: 4 });
    assert_eq!(decode(5 * BLOCK + 20, 2), Cause::Missing { block: 2, id: 5 });
    assert_eq!(decode(2 * BLOCK + 8, 3), Cause::Entries { block: 2, found: 3, expected: 2 });
    assert_eq!(decode(5 * BLOCK + 12, 0), Cause::Entries { block: 2, found: 2, expected: 1 });
    assert_eq!(decode(24, 66), Cause::FreeList { block: 66 });
    assert_eq!(decode(28, 4), Cause::FreeList { block: 4 });
    assert_eq!(decode(2 * BLOCK, 2), Cause::FreeList { block: 2 });
    assert_eq!(decode(2 * BLOCK + 4, 9), Cause::FreeList { block: 2 });
}

fn limited(id: u32) -> Quota {
    let limits = Limits { kib_hard: u64::from(id) + 1, ..Limits::default() };
    Quota { usage: Usage { bytes: 1024, inodes: 1 }, limits, ..Quota::default() }
}

/// Returns the bytes of a file with these ids.
fn file_of(ids: &[u32]) -> Vec<u8> {
    let mut file = QuotaFile::new(Kind::User);
    file.set_grace((5, 6));
    for id in ids {
        file.grow(4 * BLOCK);
        assert!(file.add(*id) && file.set(*id, &limited(*id)));
    }
    file.bytes().to_vec()
}

fn salvage(bytes: Vec<u8>) -> Salvaged {
    Salvaged::read(bytes, Kind::User, |_, quota| quota.usage.inodes == 1)
}

#[test]
fn a_sound_file_gives_all_entries() {
    let ids = [0, 7, 300, 1 << 24, u32::MAX];
    let salvaged = salvage(file_of(&ids));
    assert_eq!(salvaged.grace, Some((5, 6)));
    assert_eq!(salvaged.entries, ids.map(|id| (id, limited(id))).into());
}

#[test]
fn a_lost_root_loses_no_entry() {
    let ids: Vec<u32> = (0..40).map(|n| n * 1000).collect();
    for block in [HEAD, ROOT] {
        let mut bytes = file_of(&ids);
        bytes[block as usize * BLOCK..][..BLOCK].fill(0xff);
        let salvaged = salvage(bytes);
        assert_eq!(salvaged.entries.len(), ids.len(), "block {block}");
        assert!(salvaged.entries.iter().all(|(id, quota)| *quota == limited(*id)));
        assert_eq!(salvaged.grace.is_none(), block == HEAD);
    }
}

#[test]
fn an_entry_out_of_the_tree_counts_only_with_the_right_usage() {
    let mut bytes = file_of(&[7]);
    bytes[BLOCK..2 * BLOCK].fill(0);
    assert!(Salvaged::read(bytes, Kind::User, |_, _| false).entries.is_empty());
}

#[test]
fn any_bytes_are_read_without_a_fault() {
    let mut rng = fastrand::Rng::with_seed(5);
    for _ in 0..50 {
        let mut bytes = file_of(&[1, 2, 3, 70_000]);
        for _ in 0..200 {
            let at = rng.usize(..bytes.len());
            bytes[at] = rng.u8(..);
        }
        bytes.truncate(rng.usize(..bytes.len()));
        let salvaged = Salvaged::read(bytes, Kind::User, |_, _| true);
        assert!(salvaged.entries.len() <= 14 * 20);
    }
}
