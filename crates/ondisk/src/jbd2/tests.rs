//! Tests one corruption for each check. Also tests that every variant of the log can be encoded and
//! decoded.

use super::*;
use crate::checksum::Seed;
use crate::types::{Block, BlockSize};

const UUID: [u8; 16] = [5; 16];

fn formats() -> Vec<LogFormat> {
    let seed = Seed::of_uuid(&UUID);
    let checksums = [
        LogChecksums::None,
        LogChecksums::Transaction,
        LogChecksums::V2(seed),
        LogChecksums::V3(seed),
    ];
    let mut formats = Vec::new();
    for size in [1024, 4096] {
        let block_size = BlockSize::new(size).unwrap();
        for checksums in checksums {
            for numbers in [BlockNumbers::Bits32, BlockNumbers::Bits64] {
                formats.push(LogFormat { block_size, checksums, numbers });
            }
        }
    }
    formats
}

fn v3() -> LogFormat {
    LogFormat {
        block_size: BlockSize::new(1024).unwrap(),
        checksums: LogChecksums::V3(Seed::of_uuid(&UUID)),
        numbers: BlockNumbers::Bits64,
    }
}

fn journal() -> JournalSuperblock {
    let mut journal = JournalSuperblock::new(BlockSize::new(1024).unwrap(), 4096, UUID);
    journal.set_features(JournalCompat::empty(), JournalIncompat::CSUM_V3 | JournalIncompat::BIT64);
    journal
}

fn decode_journal(bytes: &[u8]) -> Result<JournalSuperblock, Cause> {
    JournalSuperblock::decode(bytes, BlockSize::new(1024).unwrap(), 4096)
}

/// Makes `change` in a valid journal superblock, and corrects the checksum. Returns the cause of
/// the error with which the superblock is refused.
fn journal_broken(change: fn(&mut [u8])) -> Cause {
    let mut bytes = journal().encode();
    change(&mut bytes);
    bytes[0xfc..0x100].fill(0);
    let sum = Seed::START.chain(&bytes).value();
    bytes[0xfc..0x100].copy_from_slice(&sum.to_be_bytes());
    decode_journal(&bytes).unwrap_err()
}

#[test]
fn transaction_numbers_compare_across_the_wrap() {
    assert!(Sequence(u32::MAX).is_before(Sequence(u32::MAX).next()));
    assert!(!Sequence(0).is_before(Sequence(u32::MAX)));
    assert!(!Sequence(7).is_before(Sequence(7)));
}

#[test]
fn a_block_without_magic_or_of_unknown_kind_is_no_log_block() {
    let mut block = [0; 1024];
    assert_eq!(Header::decode(&block), None);
    let header = Header { kind: BlockKind::Revoke, sequence: Sequence(9) };
    header.encode_into(&mut block);
    assert_eq!(Header::decode(&block), Some(header));
    block[7] = 6;
    assert_eq!(Header::decode(&block), None);
    assert_eq!(Header::decode(&block[..11]), None);
}

#[test]
fn a_full_descriptor_reads_back_in_every_flavour() {
    for format in formats() {
        let count = format.tags_per_descriptor();
        let copies: Vec<Vec<u8>> =
            (0..count).map(|n| vec![n as u8; format.block_size.bytes()]).collect();
        let images: Vec<Image<'_>> = copies
            .iter()
            .enumerate()
            .map(|(n, copy)| Image {
                block: Block(1 << 20 | n as u64),
                copy,
                flags: if n % 3 == 0 { TagFlags::ESCAPE } else { TagFlags::empty() },
            })
            .collect();
        let block = encode_descriptor(&images, Sequence(9), &UUID, &format);
        let tags: Vec<Tag> = Tags::decode(&block, &format).unwrap().collect();
        assert_eq!(tags.len(), count, "{format:?}");
        for (tag, image) in tags.iter().zip(&images) {
            assert_eq!(tag.block, image.block);
            assert_eq!(tag.flags & TagFlags::ESCAPE, image.flags);
            tag.check(image.copy, Sequence(9), &format).unwrap();
            if matches!(format.checksums, LogChecksums::V2(_) | LogChecksums::V3(_)) {
                tag.check(image.copy, Sequence(10), &format).unwrap_err();
            }
        }
        assert!(!tags[0].flags.contains(TagFlags::SAME_UUID));
        assert!(tags[count - 1].flags.contains(TagFlags::LAST));
    }
}

#[test]
fn a_full_revoke_block_reads_back_in_every_flavour() {
    for format in formats() {
        let blocks: Vec<Block> = (0..format.revokes_per_block() as u64).map(Block).collect();
        let bytes = encode_revoke(&blocks, Sequence(9), &format);
        let read: Vec<Block> = Revokes::decode(&bytes, &format).unwrap().collect();
        assert_eq!(read, blocks, "{format:?}");
    }
}

#[test]
fn commits_read_back_in_every_flavour() {
    for format in formats() {
        let transaction = (format.checksums == LogChecksums::Transaction).then_some(77);
        let commit = Commit { sequence: Sequence(3), secs: 1 << 33, nanos: 5, transaction };
        assert_eq!(Commit::decode(&commit.encode(&format), &format), Ok(commit));
    }
}

#[test]
fn escaping_hides_the_magic_and_comes_undone() {
    let mut copy = vec![1; 1024];
    assert!(!needs_escape(&copy));
    copy[..4].copy_from_slice(&MAGIC.to_be_bytes());
    let old = copy.clone();
    assert!(needs_escape(&copy));
    escape(&mut copy);
    assert!(!needs_escape(&copy));
    unescape(&mut copy);
    assert_eq!(copy, old);
}

#[test]
fn a_descriptor_without_a_last_tag_ends_with_its_block() {
    let mut block = vec![0; 1024];
    Header { kind: BlockKind::Descriptor, sequence: Sequence(1) }.encode_into(&mut block);
    v3().seal_block(&mut block);
    // Zeros are decoded as tags of block 0, each followed by a uuid.
    assert_eq!(Tags::decode(&block, &v3()).unwrap().count(), 32);
}

#[test]
fn a_changed_log_block_is_found() {
    let format = v3();
    let copy = vec![0; 1024];
    let image = Image { block: Block(7), copy: &copy, flags: TagFlags::empty() };
    let mut descriptor = encode_descriptor(&[image], Sequence(1), &UUID, &format);
    descriptor[500] ^= 1;
    let cause = Tags::decode(&descriptor, &format).unwrap_err();
    assert!(matches!(cause, Cause::Checksum { .. }));
    let mut revoke = encode_revoke(&[Block(7)], Sequence(1), &format);
    revoke[500] ^= 1;
    let cause = Revokes::decode(&revoke, &format).unwrap_err();
    assert!(matches!(cause, Cause::Checksum { .. }));
    let commit = Commit { sequence: Sequence(3), secs: 0, nanos: 0, transaction: None };
    let mut commit = commit.encode(&format);
    commit[0x3b] ^= 1;
    let cause = Commit::decode(&commit, &format).unwrap_err();
    assert!(matches!(cause, Cause::Checksum { .. }));
}

#[test]
fn blocks_of_the_wrong_kind_or_length_are_refused() {
    let format = v3();
    let revoke = encode_revoke(&[Block(7)], Sequence(1), &format);
    assert_eq!(
        Tags::decode(&revoke, &format).unwrap_err(),
        Cause::WrongKind { expected: BlockKind::Descriptor }
    );
    assert_eq!(
        Commit::decode(&revoke, &format).unwrap_err(),
        Cause::WrongKind { expected: BlockKind::Commit }
    );
    assert_eq!(Revokes::decode(&revoke[..512], &format).unwrap_err(), Cause::Length { len: 512 });
    assert_eq!(decode_journal(&revoke).unwrap_err(), Cause::NotASuperblock);
}

#[test]
fn a_revoke_count_beyond_the_block_is_corruption() {
    for count in [0, 15, 1021, u32::MAX] {
        let mut revoke = encode_revoke(&[Block(7)], Sequence(1), &v3());
        revoke[12..16].copy_from_slice(&count.to_be_bytes());
        v3().seal_block(&mut revoke);
        assert_eq!(Revokes::decode(&revoke, &v3()).unwrap_err(), Cause::RevokeCount { count });
    }
}

#[test]
fn every_check_of_the_journal_superblock_has_its_cause() {
    assert!(decode_journal(&journal().encode()).is_ok());
    assert_eq!(
        journal_broken(|b| b[0x0c..0x10].copy_from_slice(&4096u32.to_be_bytes())),
        Cause::BlockSize { found: 4096 }
    );
    assert_eq!(
        journal_broken(|b| b[0x10..0x14].copy_from_slice(&4097u32.to_be_bytes())),
        Cause::BeyondFile { blocks: 4097, file_blocks: 4096 }
    );
    assert_eq!(
        journal_broken(|b| b[0x10..0x14].copy_from_slice(&1023u32.to_be_bytes())),
        Cause::TooShort { blocks: 1023 }
    );
    assert_eq!(
        journal_broken(|b| b[0x14..0x18].copy_from_slice(&3076u32.to_be_bytes())),
        Cause::TooShort { blocks: 4096 }
    );
    assert_eq!(journal_broken(|b| b[0x14..0x18].fill(0)), Cause::First { first: 0 });
    assert_eq!(
        journal_broken(|b| b[0x1c..0x20].copy_from_slice(&4096u32.to_be_bytes())),
        Cause::Start { start: 4096 }
    );
    assert_eq!(journal_broken(|b| b[0x50] = 1), Cause::ChecksumType { found: 1 });
    assert_eq!(journal_broken(|b| b[0x2b] |= 8), Cause::ChecksumKinds);
    let mut bytes = journal().encode();
    bytes[0x60] ^= 1;
    assert!(matches!(decode_journal(&bytes).unwrap_err(), Cause::Checksum { .. }));
    assert_eq!(decode_journal(&bytes[..1000]).unwrap_err(), Cause::Length { len: 1000 });
}

#[test]
fn the_log_of_a_file_begins_at_block_1() {
    let decode = |bytes: &[u8], blocks| {
        JournalSuperblock::decode_in_file(bytes, BlockSize::new(1024).unwrap(), blocks)
    };
    let mut plain = JournalSuperblock::new(BlockSize::new(1024).unwrap(), 4096, UUID);
    plain.set_start(Some(1));
    for first in [0, 2, 4096, u32::MAX] {
        let mut bytes = plain.encode();
        bytes[0x14..0x18].copy_from_slice(&first.to_be_bytes());
        assert!(decode_journal(&bytes).is_err());
        assert_eq!(decode(&bytes, 4096).unwrap().encode(), plain.encode());
        assert!(decode(&bytes, 4095).is_err());
    }
    let mut bytes = plain.encode();
    bytes[0x10..0x14].copy_from_slice(&1023u32.to_be_bytes());
    assert_eq!(decode(&bytes, 4096).unwrap().encode(), plain.encode());
    let mut wide = journal();
    wide.set_features(JournalCompat::empty(), JournalIncompat::FAST_COMMIT);
    let bytes = wide.with_fast_commit_blocks(0x2000).encode();
    assert!(decode_journal(&bytes).is_err());
    assert_eq!(decode(&bytes, 4096).unwrap().log_area(), 1..4096);
    let mut bytes = journal().encode();
    bytes[0x14] ^= 1;
    assert!(matches!(decode(&bytes, 4096).unwrap_err(), Cause::Checksum { .. }));
}

#[test]
fn unknown_journal_features_are_not_supported() {
    let mut journal = journal();
    journal.support().unwrap();
    journal.set_features(JournalCompat::empty(), JournalIncompat::from_bits_retain(0x80));
    assert!(journal.support().is_err());
}

#[test]
fn the_fast_commit_area_is_not_part_of_the_log() {
    let mut journal = journal();
    assert_eq!((journal.log_area(), journal.fast_commit_area()), (1..4096, 4096..4096));
    journal.set_features(JournalCompat::empty(), JournalIncompat::FAST_COMMIT);
    assert_eq!((journal.log_area(), journal.fast_commit_area()), (1..3840, 3841..4096));
}

mod hostile {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_bytes_make_a_reader_panic_or_read_without_end(
            mut bytes in prop::collection::vec(any::<u8>(), 1024..=1024),
            kind in 1u8..=5,
        ) {
            bytes[..8].copy_from_slice(&[0xc0, 0x3b, 0x39, 0x98, 0, 0, 0, kind]);
            let _ = decode_journal(&bytes);
            for format in formats().into_iter().filter(|f| f.block_size.bytes() == 1024) {
                if format.checksums.seed().is_some() {
                    format.seal_block(&mut bytes);
                }
                let _ = Commit::decode(&bytes, &format);
                if let Ok(tags) = Tags::decode(&bytes, &format) {
                    prop_assert!(tags.count() <= 127);
                }
                if let Ok(revokes) = Revokes::decode(&bytes, &format) {
                    prop_assert!(revokes.count() <= 252);
                }
            }
        }
    }
}
