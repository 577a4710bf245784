//! Searches for runs of clear bits.

use lanefs_ondisk::bitmap::Bitmap;
use std::ops::Range;

/// What a search for a run found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// As many clear bits as were wanted, from here.
    Fit(u32),
    /// The longest run is shorter; its length is 0 if no bit is clear.
    Longest { start: u32, len: u32 },
}

/// The first run of `want` clear bits that starts at `from` or later; if there is none, the first
/// from the start on; if there is none either, the longest of all.
pub(crate) fn find(bitmap: &Bitmap, from: u32, want: u32) -> Found {
    let mut longest = Found::Longest { start: 0, len: 0 };
    for part in [from..bitmap.bits(), 0..from] {
        let begins = bitmap.clear_runs(part.start..bitmap.bits());
        for run in begins.take_while(|run| run.start < part.end) {
            let found = run.end - run.start;
            if found >= want {
                return Found::Fit(run.start);
            }
            if let Found::Longest { len, .. } = longest
                && found > len
            {
                longest = Found::Longest { start: run.start, len: found };
            }
        }
    }
    longest
}

/// Clear bits from `at` on, at most `most`.
pub(crate) fn clear_at(bitmap: &Bitmap, at: u32, most: u32) -> u32 {
    let end = at.saturating_add(most).min(bitmap.bits());
    bitmap.next_set(at..end).unwrap_or(end).saturating_sub(at)
}

/// The run of clear bits that `at` is in; empty if it is set.
pub(crate) fn around(bitmap: &Bitmap, at: u32) -> Range<u32> {
    const STEP: u32 = u64::BITS;
    let end = at + clear_at(bitmap, at, u32::MAX - at);
    if end == at {
        return at..at;
    }
    let mut start = at;
    while start > 0 {
        let step = start.saturating_sub(1) / STEP * STEP;
        let Some(mut set) = bitmap.next_set(step..start) else {
            start = step;
            continue;
        };
        while let Some(later) = bitmap.next_set(set + 1..start) {
            set = later;
        }
        return set + 1..end;
    }
    0..end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_found_as_in_a_list_of_bits() {
        let seed = fastrand::u64(..);
        eprintln!("seed {seed}");
        let mut rng = fastrand::Rng::with_seed(seed);
        for len in [1, 63, 64, 65, 200, 1000] {
            let mut list = vec![false; len as usize];
            for _ in 0..300 {
                let start = rng.usize(0..len as usize);
                let end = (start + rng.usize(0..90)).min(len as usize);
                list[start..end].fill(rng.bool());
                let mut bitmap = Bitmap::new(len);
                (0..len).filter(|i| list[*i as usize]).for_each(|i| bitmap.fill(i..i + 1));
                check(&bitmap, &list, &mut rng);
            }
        }
    }

    fn check(bitmap: &Bitmap, list: &[bool], rng: &mut fastrand::Rng) {
        let len = list.len() as u32;
        let at = rng.u32(0..len);
        let mut run = at..at;
        if !list[at as usize] {
            while run.start > 0 && !list[run.start as usize - 1] {
                run.start -= 1;
            }
            while run.end < len && !list[run.end as usize] {
                run.end += 1;
            }
        }
        assert_eq!(around(bitmap, at), run);
        let most = rng.u32(1..40);
        assert_eq!(clear_at(bitmap, at, most), (run.end - at).min(most));

        let want = rng.u32(1..40);
        let clear =
            |start: u32, n: u32| start + n <= len && (start..start + n).all(|i| !list[i as usize]);
        let begins = |i: &u32| *i == at || *i == 0 || list[*i as usize - 1];
        let fit = (at..len).chain(0..at).filter(begins).find(|i| clear(*i, want));
        match find(bitmap, at, want) {
            Found::Fit(start) => assert_eq!(Some(start), fit),
            Found::Longest { start, len: n } => {
                assert!(fit.is_none() && n < want && clear(start, n));
                assert!((0..len).all(|i| !clear(i, n + 1)));
            }
        }
    }
}
