use super::*;

#[test]
fn runs_that_touch_become_one() {
    let mut runs = Runs::new(100);
    runs.take(10, 5);
    runs.take(20, 5);
    runs.take(15, 5);
    assert!(runs.used_in(0..100).eq(std::iter::once(10..25)));
    assert!(runs.used_in(12..14).eq(std::iter::once(12..14)));
    assert_eq!(runs.next_free(12), Some(25..100));
    assert_eq!(runs.next_free(3), Some(3..10));
    assert!(runs.is_free(25, 75) && !runs.is_free(25, 76) && !runs.is_free(9, 2));
}

#[test]
fn a_place_must_lie_within_and_be_long_enough() {
    let mut runs = Runs::new(100);
    runs.take(4, 4);
    assert_eq!(runs.first_fit(0..100, 4), Some(0));
    assert_eq!(runs.first_fit(1..100, 4), Some(8));
    assert_eq!(runs.first_fit(1..11, 4), None);
    runs.take(8, 92);
    assert_eq!(runs.first_fit(1..100, 4), None);
    assert_eq!(runs.next_free(50), None);
}

#[test]
fn runs_are_rounded_to_clusters() {
    let mut runs = Runs::new(100);
    runs.take(1, 4);
    runs.take(6, 1);
    runs.take(17, 1);
    runs.round_to(Clusters::new(2));
    assert_eq!(runs.used_in(0..100).collect::<Vec<_>>(), [0..8, 16..20]);
    assert_eq!(runs.next_free(10), Some(8..16));
    runs.take(8, 5);
    assert_eq!(runs.next_free(0), Some(20..100));
}

#[test]
fn blocks_that_are_given_back_split_their_run() {
    let mut runs = Runs::new(100);
    runs.take(10, 20);
    runs.give(15, 5);
    assert_eq!(runs.next_free(10), Some(15..20));
    assert_eq!(runs.used_in(0..100).collect::<Vec<_>>(), [10..15, 20..30]);
    runs.give(10, 5);
    runs.give(20, 10);
    assert_eq!(runs.next_free(0), Some(0..100));
}

#[test]
#[should_panic(expected = "not free")]
fn taking_a_block_twice_is_a_fault() {
    let mut runs = Runs::new(100);
    runs.take(4, 4);
    runs.take(7, 1);
}
