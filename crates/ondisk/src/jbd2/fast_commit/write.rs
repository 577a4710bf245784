//! Encodes a fast commit.

use super::{
    ADD_RANGE, CREAT, DEL_RANGE, FastChange, FastName, HEAD, INODE, LINK, PAD, PREFIX, TAIL,
    UNLINK, WRITTEN_MAX,
};
use crate::checksum::Seed;
use crate::jbd2::header::Sequence;
use crate::types::BlockSize;

/// The position of a fast commit among those of its transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FastPlace {
    /// At the start of the area, with `HEAD`.
    First,
    /// After another fast commit.
    Later,
}

/// Encodes a fast commit with `changes` in transaction `sequence` as whole blocks. Returns `None`
/// if a change cannot be a record, because a name or an inode is too long for a block, or because a
/// range cannot be an extent.
pub fn encode_fast_commit(
    changes: &[FastChange],
    sequence: Sequence,
    place: FastPlace,
    block_size: BlockSize,
) -> Option<Vec<u8>> {
    let size = block_size.bytes();
    let mut bytes = Vec::new();
    if place == FastPlace::First {
        put(&mut bytes, size, HEAD, &words(&[0, sequence.0]))?;
    }
    for change in changes {
        let (tag, value) = record(change)?;
        put(&mut bytes, size, tag, &value)?;
    }
    put(&mut bytes, size, TAIL, &words(&[sequence.0, 0]))?;
    let sum_at = bytes.len().checked_sub(4)?;
    // The length in `TAIL` includes all bytes up to the end of its block.
    let end = bytes.len().next_multiple_of(size);
    let len_at = sum_at.checked_sub(4 + 2)?;
    let len = u16::try_from(end - (len_at + 2)).ok()?;
    bytes.get_mut(len_at..len_at + 2)?.copy_from_slice(&len.to_le_bytes());
    let sum = Seed::from_raw(0).chain(bytes.get(..sum_at)?).value();
    bytes.get_mut(sum_at..)?.copy_from_slice(&sum.to_le_bytes());
    bytes.resize(end, 0);
    Some(bytes)
}

/// Adds a record. No record crosses the end of a block, and each block keeps room for a padding
/// record.
fn put(bytes: &mut Vec<u8>, size: usize, tag: u16, value: &[u8]) -> Option<()> {
    let len = PREFIX + value.len();
    if len + PREFIX > size {
        return None;
    }
    let left = size - bytes.len() % size;
    if len + PREFIX > left {
        let padding = left - PREFIX;
        bytes.extend(PAD.to_le_bytes());
        bytes.extend(u16::try_from(padding).ok()?.to_le_bytes());
        bytes.resize(bytes.len() + padding, 0);
    }
    bytes.extend(tag.to_le_bytes());
    bytes.extend(u16::try_from(value.len()).ok()?.to_le_bytes());
    bytes.extend(value);
    Some(())
}

/// Returns the tag and the value of a change.
fn record(change: &FastChange) -> Option<(u16, Vec<u8>)> {
    Some(match change {
        FastChange::AddRange { ino, range, block, is_written } => {
            let len = range.end.checked_sub(range.start)?;
            let most = if *is_written { WRITTEN_MAX } else { WRITTEN_MAX - 1 };
            if len == 0 || len > most {
                return None;
            }
            let len = u16::try_from(if *is_written { len } else { len + WRITTEN_MAX }).ok()?;
            let high = u16::try_from(block.0 >> 32).ok()?;
            let mut value = words(&[ino.0, range.start]);
            value.extend(len.to_le_bytes());
            value.extend(high.to_le_bytes());
            value.extend((block.0 as u32).to_le_bytes());
            (ADD_RANGE, value)
        }
        FastChange::RemoveRange { ino, range } => {
            (DEL_RANGE, words(&[ino.0, range.start, range.end.checked_sub(range.start)?]))
        }
        FastChange::Create(name) => (CREAT, named(name)),
        FastChange::Link(name) => (LINK, named(name)),
        FastChange::Unlink(name) => (UNLINK, named(name)),
        FastChange::Inode { ino, record } => {
            let mut value = words(&[ino.0]);
            value.extend(record);
            (INODE, value)
        }
    })
}

fn named(name: &FastName) -> Vec<u8> {
    let mut value = words(&[name.parent.0, name.ino.0]);
    value.extend(&name.name);
    value
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use super::super::{FastCommits, FastNext};
    use super::*;
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

    fn read(bytes: &[u8]) -> (u32, Vec<FastChange>) {
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
                let (count, found) = read(&bytes);
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
}
