//! Splits a row's strips so that they fit in one log entry or one header.

use crate::slots::Slots;
use crate::strip::Strip;

/// The largest number of entries that one write has in a log header. It is half of what a header
/// can hold, so that entries of other writes fit in too.
const PARTS: usize = lanefs_ondisk::md::ppl::MAX_ENTRIES / 2;

/// The largest number of data bytes in one entry, whose byte count has 32 bits.
const PER_ENTRY: u64 = 1 << 31;

/// Groups strips so that the partial parity of each group is at most `most` bytes. A strip that
/// writes all chunks (`all`) has no partial parity.
pub(crate) fn loads(strips: Vec<Strip>, all: Slots, most: u64) -> Vec<Vec<Strip>> {
    let mut loads: Vec<Vec<Strip>> = vec![Vec::new()];
    let mut bytes = 0;
    let cut = |strip: Strip| match strip.written == all {
        true => strip.cut(PER_ENTRY / all.count() as u64),
        false => strip.cut(most),
    };
    for strip in strips.into_iter().flat_map(cut) {
        let more = if strip.written == all { 0 } else { strip.len() };
        let full = loads.last().is_some_and(|l| bytes + more > most || l.len() >= PARTS);
        if full {
            loads.push(Vec::new());
            bytes = 0;
        }
        bytes += more;
        if let Some(load) = loads.last_mut() {
            load.push(strip);
        }
    }
    loads
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn entries_count_their_data_in_32_bits_whatever_is_written() {
        for (count, len) in [(2, 65536), (4, 1 << 30), (31, 1 << 30)] {
            let all = Slots::below(count);
            let whole = Strip { from: 0, to: len, written: all, partial: Slots::NONE };
            let loads = loads(vec![whole], all, 1 << 17);
            let strips: Vec<Strip> = loads.concat();
            assert_eq!(strips.iter().map(Strip::len).sum::<u64>(), len);
            assert!(strips.iter().all(|s| u32::try_from(s.len() * count as u64).is_ok()));
            assert_eq!(strips.len(), if len == 65536 { 1 } else { strips.len().max(2) });
        }
    }
}
