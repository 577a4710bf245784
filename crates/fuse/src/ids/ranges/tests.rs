use super::*;
use proptest::prelude::*;

fn ranges(list: &[(u32, u32, u32)]) -> Result<Ranges, RangeError> {
    let mut ranges = Ranges::default();
    for &(shown, stored, count) in list {
        ranges.add(Range::new(shown, stored, count)?)?;
    }
    Ok(ranges)
}

#[test]
fn ids_outside_of_the_ranges_are_unmapped() {
    let map = ranges(&[(1000, 0, 1), (100_000, 1, 65536)]).unwrap();
    assert_eq!(
        [0, 1, 65536, 65537].map(|id| map.shown(id)),
        [Some(1000), Some(100_000), Some(165_535), None]
    );
    assert_eq!([999, 1000, 1001, 100_000].map(|id| map.stored(id)), [None, Some(0), None, Some(1)]);
    assert_eq!((map.shown(u32::MAX), map.stored(u32::MAX)), (None, None));
}

#[test]
fn ranges_that_overlap_or_have_no_ids_are_refused() {
    assert_eq!(ranges(&[(0, 0, 10), (9, 100, 1)]), Err(RangeError::Overlap));
    assert_eq!(ranges(&[(0, 0, 10), (100, 9, 1)]), Err(RangeError::Overlap));
    assert!(ranges(&[(0, 0, 10), (10, 10, 1)]).is_ok());
    assert_eq!(ranges(&[(0, 0, 0)]), Err(RangeError::Extent));
    for edge in [u32::MAX, u32::MAX - 1] {
        assert_eq!(ranges(&[(edge, 0, 1)]), Err(RangeError::Extent));
        assert_eq!(ranges(&[(0, edge, 1)]), Err(RangeError::Extent));
    }
    assert!(ranges(&[(0, 0, END)]).is_ok());
}

#[test]
fn a_range_is_three_numbers() {
    assert_eq!("1000:0:1".parse(), Range::new(1000, 0, 1));
    for text in ["", "1000", "1000:0", "1000:0:1:2", "a:0:1", "-1:0:1", "1:0:4294967296"] {
        assert_eq!(text.parse::<Range>(), Err(RangeError::Syntax), "{text}");
    }
}

/// Generates ids that often lie near 0, near the edges of ranges, or near the largest id.
fn id() -> impl Strategy<Value = u32> {
    prop_oneof![0..40u32, END - 20..=u32::MAX, any::<u32>()]
}

fn any_ranges() -> impl Strategy<Value = Ranges> {
    let range = (id(), id(), prop_oneof![1..9u32, any::<u32>()]);
    prop::collection::vec(range, 0..6).prop_map(|list| {
        let mut ranges = Ranges::default();
        for (shown, stored, count) in list {
            // Ranges that are refused are left out.
            let _ = Range::new(shown, stored, count).and_then(|range| ranges.add(range));
        }
        ranges
    })
}

proptest! {
    #[test]
    fn mapping_there_and_back_is_the_same_id(map in any_ranges(), id in id()) {
        if let Some(shown) = map.shown(id) {
            prop_assert!(shown < END);
            prop_assert_eq!(map.stored(shown), Some(id));
        }
        if let Some(stored) = map.stored(id) {
            prop_assert!(stored < END);
            prop_assert_eq!(map.shown(stored), Some(id));
        }
    }

    #[test]
    fn two_ids_are_never_mapped_to_one(map in any_ranges(), a in id(), b in id()) {
        prop_assume!(a != b);
        prop_assert!(map.shown(a).is_none() || map.shown(a) != map.shown(b));
        prop_assert!(map.stored(a).is_none() || map.stored(a) != map.stored(b));
    }

    #[test]
    fn text_of_any_kind_is_a_range_or_an_error(text in "[0-9:ugb ]{0,20}") {
        let _ = text.parse::<Range>();
    }
}
