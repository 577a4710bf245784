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
    // The data block is block 2, the blocks of the tree are 3, 4 and 5.
    assert_eq!(decode(5 * BLOCK + 12, 4), Cause::Reference { block: 5, to: 4 });
    assert_eq!(decode(5 * BLOCK + 20, 2), Cause::Missing { block: 2, id: 5 });
    assert_eq!(decode(2 * BLOCK + 8, 3), Cause::Entries { block: 2, found: 3, expected: 2 });
    assert_eq!(decode(5 * BLOCK + 12, 0), Cause::Entries { block: 2, found: 2, expected: 1 });
    assert_eq!(decode(28, 4), Cause::FreeList { block: 4 });
    assert_eq!(decode(2 * BLOCK, 2), Cause::FreeList { block: 2 });
    assert_eq!(decode(2 * BLOCK + 4, 9), Cause::FreeList { block: 2 });
}
