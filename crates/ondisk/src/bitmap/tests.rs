//! Makes the same searches and changes in a bitmap and in a plain list of bits, and compares the
//! results.

use super::*;
use proptest::prelude::*;
use std::ops::Range;

fn bitmap(bits: &[bool]) -> Bitmap {
    let mut bitmap = Bitmap::new(bits.len() as u32);
    for bit in (0..bits.len()).filter(|&n| bits[n]) {
        bitmap.set(bit as u32, 1).unwrap();
    }
    bitmap
}

fn plain_runs(bits: &[bool], range: Range<u32>) -> Vec<Range<u32>> {
    let mut runs: Vec<Range<u32>> = Vec::new();
    for n in range.start..range.end.min(bits.len() as u32) {
        if bits[n as usize] {
            continue;
        }
        match runs.last_mut() {
            Some(run) if run.end == n => run.end += 1,
            _ => runs.push(n..n + 1),
        }
    }
    runs
}

/// Generates runs of bits rather than single bits, so that long runs occur.
fn some_bits() -> impl Strategy<Value = Vec<bool>> {
    prop::collection::vec((any::<bool>(), 1usize..200), 1..20)
        .prop_map(|runs| runs.iter().flat_map(|&(bit, len)| vec![bit; len]).collect())
}

#[test]
fn changes_are_all_or_nothing() {
    let mut bitmap = Bitmap::new(100);
    bitmap.set(60, 10).unwrap();
    let before = bitmap.clone();
    assert_eq!(bitmap.set(50, 11), Err(Cause::AlreadySet { bit: 60 }));
    assert_eq!(bitmap.clear(60, 11), Err(Cause::AlreadyClear { bit: 70 }));
    assert_eq!(bitmap.set(90, 11), Err(Cause::BeyondEnd { start: 90, len: 11 }));
    assert_eq!(bitmap.clear(u32::MAX, 2), Err(Cause::BeyondEnd { start: u32::MAX, len: 2 }));
    assert_eq!(bitmap, before);
    bitmap.clear(60, 10).unwrap();
    assert_eq!(bitmap, Bitmap::new(100));
}

#[test]
fn bits_after_the_last_one_count_as_used() {
    let bitmap = Bitmap::new(12);
    assert_eq!(bitmap.count_clear(), 12);
    assert!(bitmap.get(12) && bitmap.get(1000));
    let mut bytes = [0; 4];
    bitmap.write_to(&mut bytes);
    assert_eq!(bytes, [0, 0xf0, 0xff, 0xff]);
    assert_eq!(Bitmap::from_bytes(&[0], 12).count_clear(), 8);
}

proptest! {
    #[test]
    fn searches_find_what_a_plain_list_has(
        bits in some_bits(),
        from in 0u32..4000,
        len in 0u32..4000,
        want in 1u32..300,
    ) {
        let bitmap = bitmap(&bits);
        let total = bits.len() as u32;
        let range = from..from + len;
        let within: Vec<u32> = range.clone().filter(|&n| n < total).collect();
        let first = |value| within.iter().copied().find(|&n| bits[n as usize] == value);
        prop_assert_eq!(bitmap.next_clear(range.clone()), first(false));
        prop_assert_eq!(bitmap.next_set(range.clone()), first(true));
        let runs = plain_runs(&bits, range.clone());
        let found: Vec<_> = bitmap.clear_runs(range.clone()).collect();
        prop_assert_eq!(&found, &runs);
        let longest = runs.iter().map(|r| r.len()).max();
        prop_assert_eq!(bitmap.longest_clear_run(range.clone()).map(|r| r.len()), longest);
        let tail = plain_runs(&bits, from..total);
        let run = tail.iter().find(|r| r.start < range.end && r.len() >= want as usize);
        prop_assert_eq!(bitmap.next_clear_run(range.clone(), want), run.cloned());
    }

    #[test]
    fn counts_and_bytes_agree_with_a_plain_list(bits in some_bits()) {
        let bitmap = bitmap(&bits);
        let total = bits.len() as u32;
        prop_assert_eq!(bitmap.count_clear() as usize, bits.iter().filter(|&&b| !b).count());
        let mut bytes = vec![0; 1024];
        bitmap.write_to(&mut bytes);
        prop_assert_eq!(&Bitmap::from_bytes(&bytes, total), &bitmap);
        let mut whole = Bitmap::new(total);
        whole.union(&bitmap);
        prop_assert_eq!(whole, bitmap);
    }
}
