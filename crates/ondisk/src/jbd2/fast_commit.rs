//! Detects fast commits, which Lanefs neither writes nor replays.
//!
//! The area has records of a tag, a length and a value, little endian. A fast commit is some records
//! and a `TAIL` with a checksum of all of them; the first one starts with `HEAD`. No record crosses a
//! block: a padding record fills the block, and `TAIL` has a length up to the end of its block.
//!
//! Source: kernel documentation, "ext4 journal", *Fast commits*, and logs of the kernel (6.18).

use super::header::Sequence;
use crate::checksum::Seed;

const ADD_RANGE: u16 = 1;
const TAIL: u16 = 8;
const HEAD: u16 = 9;
/// A record's tag and length.
const PREFIX: usize = 4;

/// The part of an area that was read so far.
struct Scan {
    expected: Sequence,
    sum: Seed,
    has_head: bool,
}

/// The result of reading a block.
enum Shows {
    /// The records so far may be those of a fast commit.
    Part,
    /// A whole fast commit, or one in a format that is not known.
    FastCommit,
    /// No fast commit.
    Nothing,
}

/// Returns whether `blocks`, an area for fast commits, starts with a whole fast commit after the
/// transaction before `expected`. A crash leaves a part of a fast commit, which was not
/// acknowledged. Reads no more blocks than needed.
///
/// A head with unknown features counts as a fast commit, since the format of the rest is not known.
///
/// # Errors
/// The first error of `blocks`.
pub fn holds_fast_commit<E>(
    blocks: impl IntoIterator<Item = Result<Vec<u8>, E>>,
    expected: Sequence,
) -> Result<bool, E> {
    // The checksum starts with zero, unlike the others of the journal.
    let mut scan = Scan { expected, sum: Seed::from_raw(0), has_head: false };
    for block in blocks {
        match scan.block(&block?) {
            Shows::Part => {}
            Shows::FastCommit => return Ok(true),
            Shows::Nothing => return Ok(false),
        }
    }
    Ok(false)
}

impl Scan {
    fn block(&mut self, block: &[u8]) -> Shows {
        let mut rest = block;
        while rest.len() >= PREFIX {
            let shown = self.record(&mut rest);
            if !matches!(shown, Shows::Part) {
                return shown;
            }
        }
        Shows::Part
    }

    /// Reads one record, and removes it from `rest`.
    fn record(&mut self, rest: &mut &[u8]) -> Shows {
        let (Some(tag), Some(len)) = (half_at(rest, 0), half_at(rest, 2)) else {
            return Shows::Nothing;
        };
        let Some((record, after)) = rest.split_at_checked(PREFIX + usize::from(len)) else {
            return Shows::Nothing;
        };
        let word = |at: usize| word_at(record, PREFIX + at);
        match tag {
            HEAD if !self.has_head => {
                if word(4) != Some(self.expected.0) {
                    return Shows::Nothing;
                }
                if word(0) != Some(0) {
                    return Shows::FastCommit;
                }
                self.has_head = true;
            }
            TAIL if self.has_head => {
                let summed = record.get(..PREFIX + 4).unwrap_or_default();
                let is_whole = word(0) == Some(self.expected.0)
                    && word(4) == Some(self.sum.chain(summed).value());
                return if is_whole { Shows::FastCommit } else { Shows::Nothing };
            }
            ADD_RANGE..TAIL if self.has_head => {}
            _ => return Shows::Nothing,
        }
        self.sum = self.sum.chain(record);
        *rest = after;
        Shows::Part
    }
}

fn half_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn word_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    const BLOCK: usize = 64;

    fn record(tag: u16, value: &[u8]) -> Vec<u8> {
        let len = value.len() as u16;
        [&tag.to_le_bytes()[..], &len.to_le_bytes(), value].concat()
    }

    /// Returns a fast commit of transaction 7 in two blocks: a head, padding, a range, a tail.
    fn area() -> Vec<u8> {
        let mut bytes = record(HEAD, &[0, 0, 0, 0, 7, 0, 0, 0]);
        let pad = BLOCK - bytes.len() - PREFIX;
        bytes.extend(record(7, &vec![0; pad]));
        bytes.extend(record(ADD_RANGE, &[1; 16]));
        let mut tail = vec![0; BLOCK - 20 - PREFIX];
        tail[0] = 7;
        let mut tail = record(TAIL, &tail);
        let sum = Seed::from_raw(0).chain(&bytes).chain(&tail[..PREFIX + 4]).value();
        tail[PREFIX + 4..PREFIX + 8].copy_from_slice(&sum.to_le_bytes());
        bytes.extend(tail);
        bytes
    }

    fn holds(bytes: &[u8], expected: u32) -> bool {
        let blocks = bytes.chunks(BLOCK).map(|block| Ok::<_, Infallible>(block.to_vec()));
        let Ok(holds) = holds_fast_commit(blocks, Sequence(expected));
        holds
    }

    #[test]
    fn a_whole_fast_commit_of_the_expected_transaction_counts_and_no_other() {
        let whole = area();
        assert_eq!(whole.len(), 2 * BLOCK);
        assert!(holds(&whole, 7));
        assert!(!holds(&whole, 8));
        assert!(!holds(&whole[..BLOCK], 7), "the second block was not written");
        assert!(!holds(&[0; 2 * BLOCK], 0));
        for at in 0..BLOCK + 20 + PREFIX + 8 {
            // A head with unknown features counts, whatever follows.
            let is_feature = (4..8).contains(&at);
            let mut broken = whole.clone();
            broken[at] ^= 0x40;
            assert_eq!(holds(&broken, 7), is_feature, "byte {at}");
        }
    }

    #[test]
    fn lengths_beyond_the_block_end_the_scan() {
        for (at, len) in [(2, 61u16), (2, u16::MAX), (14, 49), (BLOCK + 2, 61), (BLOCK + 22, 41)] {
            let mut hostile = area();
            hostile[at..at + 2].copy_from_slice(&len.to_le_bytes());
            assert!(!holds(&hostile, 7), "{len} at {at}");
        }
    }

    #[test]
    fn an_error_of_reading_is_returned() {
        let blocks = [Ok(area()[..BLOCK].to_vec()), Err("unreadable")];
        assert_eq!(holds_fast_commit(blocks, Sequence(7)), Err("unreadable"));
    }
}
