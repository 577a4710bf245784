use super::*;

const BLOCK: usize = 256;
/// No file has this block.
const END: u32 = u32::MAX;

fn record(tag: u16, value: &[u8]) -> Vec<u8> {
    let len = value.len() as u16;
    [&tag.to_le_bytes()[..], &len.to_le_bytes(), value].concat()
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Returns an area of whole blocks that has one fast commit of transaction 7 for each list of
/// records.
fn area(commits: &[&[Vec<u8>]]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (n, records) in commits.iter().enumerate() {
        let start = bytes.len();
        if n == 0 {
            bytes.extend(record(HEAD, &words(&[0, 7])));
        }
        for record in *records {
            let left = BLOCK - bytes.len() % BLOCK;
            if left < record.len() {
                bytes.extend(self::record(PAD, &vec![0; left - PREFIX]));
            }
            bytes.extend(record);
        }
        let mut left = BLOCK - bytes.len() % BLOCK;
        if left < PREFIX + 8 {
            bytes.extend(self::record(PAD, &vec![0; left - PREFIX]));
            left = BLOCK;
        }
        let mut tail = record(TAIL, &vec![0; left - PREFIX]);
        tail[PREFIX] = 7;
        let sum = Seed::from_raw(0).chain(&bytes[start..]).chain(&tail[..PREFIX + 4]).value();
        tail[PREFIX + 4..PREFIX + 8].copy_from_slice(&sum.to_le_bytes());
        bytes.extend(tail);
    }
    bytes
}

fn read(bytes: &[u8], expected: u32) -> Result<(u32, Vec<FastChange>), FastFault> {
    let mut commits = FastCommits::new(Sequence(expected));
    for block in bytes.chunks(BLOCK) {
        if commits.add(block)? == FastNext::End {
            break;
        }
    }
    Ok((commits.count(), commits.into_changes()))
}

fn name(tag: u16, name: &[u8]) -> Vec<u8> {
    record(tag, &[&words(&[12, 13]), name].concat())
}

fn range(start: u32, len: u32) -> Vec<u8> {
    record(DEL_RANGE, &words(&[13, start, len]))
}

#[test]
fn every_kind_of_change_is_read_in_order() {
    let mut added = words(&[13, 4, 0, 0x9000]);
    added[8..12].copy_from_slice(&[2, 0x80, 1, 0]);
    let written = [&words(&[13, 4])[..], &[2, 0, 0, 0], &words(&[0x9000])].concat();
    let first = [range(5, u32::MAX), record(ADD_RANGE, &added), record(ADD_RANGE, &written)];
    let inode = record(INODE, &[&words(&[13])[..], &[7; 128]].concat());
    let second = [inode, name(CREAT, b"a"), name(LINK, b"b"), name(UNLINK, b"c")];
    let (count, changes) = read(&area(&[&first, &second]), 7).unwrap();
    let ino = Ino(13);
    let named = |name: &[u8]| FastName { parent: Ino(12), ino, name: name.to_vec() };
    let block = Block(0x9000);
    assert_eq!(count, 2);
    assert_eq!(
        changes,
        [
            FastChange::RemoveRange { ino, range: 5..END },
            FastChange::AddRange {
                ino,
                range: 4..6,
                block: Block((1 << 32) + 0x9000),
                is_written: false
            },
            FastChange::AddRange { ino, range: 4..6, block, is_written: true },
            FastChange::Inode { ino, record: vec![7; 128] },
            FastChange::Create(named(b"a")),
            FastChange::Link(named(b"b")),
            FastChange::Unlink(named(b"c")),
        ]
    );
}

#[test]
fn the_ranges_of_an_inode_come_after_its_record() {
    let inode = record(INODE, &[&words(&[13])[..], &[7; 128]].concat());
    let other = record(DEL_RANGE, &words(&[14, 9, 1]));
    let first = [range(1, 1), name(LINK, b"b"), other, range(2, 1), inode, range(3, 1)];
    let (_, changes) = read(&area(&[&first, &[range(4, 1)]]), 7).unwrap();
    let kinds: Vec<_> = changes
        .iter()
        .map(|change| match change {
            FastChange::RemoveRange { ino, range } => (ino.0, range.start),
            FastChange::Inode { ino, .. } => (ino.0, 0),
            _ => (0, 0),
        })
        .collect();
    assert_eq!(kinds, [(0, 0), (14, 9), (13, 0), (13, 1), (13, 2), (13, 3), (13, 4)]);
}

#[test]
fn only_whole_fast_commits_after_the_expected_transaction_count() {
    let whole = area(&[&[range(1, 1)], &[range(2, 1), name(LINK, &[b'n'; 220])]]);
    let [first, all] = [BLOCK, whole.len()];
    assert_eq!(all, 3 * BLOCK);
    let count = |bytes: &[u8], expected| read(bytes, expected).map(|(count, _)| count);
    assert_eq!(count(&whole, 7), Ok(2));
    assert_eq!(count(&whole, 8), Ok(0));
    assert_eq!(count(&whole[..first], 7), Ok(1));
    assert_eq!(count(&whole[..2 * BLOCK], 7), Ok(1), "the tail was not written");
    assert_eq!(count(&[0; 2 * BLOCK], 0), Ok(0));
    // The loop damages each byte of the `HEAD`, of the range, and of the fields of the `TAIL`.
    for at in 0..12 + 16 + 12 {
        let mut broken = whole.clone();
        broken[at] ^= 0x40;
        match count(&broken, 7) {
            Err(FastFault::Features { .. }) => assert!((4..8).contains(&at), "byte {at}"),
            found => assert_eq!(found, Ok(0), "byte {at}"),
        }
    }
    let mut broken = whole.clone();
    broken[2 * BLOCK - 10] ^= 0x40;
    assert_eq!(count(&broken, 7), Ok(1), "the second one is damaged");
}

#[test]
fn lengths_beyond_the_block_end_the_area() {
    for (at, len) in [(2, 253u16), (2, u16::MAX), (14, 241), (30, 225)] {
        let mut hostile = area(&[&[range(1, 1)]]);
        hostile[at..at + 2].copy_from_slice(&len.to_le_bytes());
        assert_eq!(read(&hostile, 7), Ok((0, Vec::new())), "{len} at {at}");
    }
}

#[test]
fn each_fault_of_a_whole_fast_commit_has_its_cause() {
    let cause_of = |record: Vec<u8>| match read(&area(&[&[record]]), 7) {
        Err(FastFault::Damaged { block: 0, cause }) => cause,
        other => panic!("{other:?}"),
    };
    let offset = 12;
    let length = |tag, len| Cause::FastLength { offset, tag, len };
    assert_eq!(cause_of(record(10, &[0; 4])), Cause::FastTag { offset, tag: 10 });
    assert_eq!(cause_of(record(ADD_RANGE, &[0; 15])), length(ADD_RANGE, 15));
    assert_eq!(cause_of(record(DEL_RANGE, &[0; 13])), length(DEL_RANGE, 13));
    assert_eq!(cause_of(record(INODE, &[0; 80])), length(INODE, 80));
    assert_eq!(cause_of(record(INODE, &[])), length(INODE, 0));
    for (start, len) in [(0, 0), (END, 1)] {
        assert_eq!(cause_of(range(start, len)), Cause::FastRange { offset });
    }
    assert_eq!(cause_of(record(ADD_RANGE, &[0; 16])), Cause::FastRange { offset });
    for bad in [&b""[..], b".", b"..", b"a/b", b"a\0"] {
        for tag in [CREAT, LINK, UNLINK] {
            assert_eq!(cause_of(name(tag, bad)), Cause::FastName { offset });
        }
    }
    assert_eq!(cause_of(record(CREAT, &[0; 7])), Cause::FastName { offset });
}

#[test]
fn a_head_with_unknown_features_is_refused() {
    let mut bytes = area(&[&[range(1, 1)]]);
    bytes[4] = 2;
    assert_eq!(read(&bytes, 7), Err(FastFault::Features { found: 2 }));
}

use super::super::{FastCommits, FastNext};
use crate::types::{Block, Ino};

fn size() -> BlockSize {
    BlockSize::new(1024).unwrap()
}

fn named(name: &[u8]) -> FastName {
    FastName { parent: Ino(12), ino: Ino(13), name: name.to_vec() }
}

fn every_kind() -> Vec<FastChange> {
    let (ino, block) = (Ino(13), Block((3 << 32) + 0x9000));
    vec![
        FastChange::Inode { ino, record: (0..160).collect() },
        FastChange::AddRange { ino, range: 4..4 + WRITTEN_MAX, block, is_written: true },
        FastChange::AddRange { ino, range: 4..3 + WRITTEN_MAX, block, is_written: false },
        FastChange::RemoveRange { ino, range: 5..u32::MAX },
        FastChange::Create(named(&[b'n'; 255])),
        FastChange::Link(named(b"b")),
        FastChange::Unlink(named(b"c")),
    ]
}

fn read_back(bytes: &[u8]) -> (u32, Vec<FastChange>) {
    let mut commits = FastCommits::new(Sequence(7));
    for block in bytes.chunks(1024) {
        if commits.add(block).unwrap() == FastNext::End {
            break;
        }
    }
    (commits.count(), commits.into_changes())
}

#[test]
fn written_records_are_read_again_for_every_length_of_the_first_ones() {
    for names in 0..40 {
        for len in 1..=255 {
            let mut changes = every_kind();
            changes.extend((0..names).map(|_| FastChange::Link(named(&vec![b'x'; len]))));
            let first = encode_fast_commit(&changes, Sequence(7), FastPlace::First, size());
            let more = encode_fast_commit(&changes, Sequence(7), FastPlace::Later, size());
            let bytes = [first.unwrap(), more.unwrap()].concat();
            assert!(bytes.len().is_multiple_of(1024));
            let (count, found) = read_back(&bytes);
            assert_eq!((count, found.len()), (2, 2 * changes.len()), "{names} of {len}");
            assert_eq!(found[..changes.len()], changes[..]);
            assert_eq!(found[changes.len()..], changes[..]);
        }
    }
}

#[test]
fn changes_that_no_record_can_express_are_refused() {
    let (ino, block) = (Ino(13), Block(9));
    let long = WRITTEN_MAX + 1;
    let add = |range, block, is_written| FastChange::AddRange { ino, range, block, is_written };
    for change in [
        add(0..long, block, true),
        add(0..WRITTEN_MAX, block, false),
        add(3..3, block, true),
        add(0..1, Block(1 << 48), true),
        FastChange::Inode { ino, record: vec![0; 1013] },
    ] {
        let encoded = encode_fast_commit(
            std::slice::from_ref(&change),
            Sequence(7),
            FastPlace::First,
            size(),
        );
        assert_eq!(encoded, None, "{change:?}");
    }
}
