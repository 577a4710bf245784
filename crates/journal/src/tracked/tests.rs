use crate::tracked::*;

#[test]
fn a_change_while_the_object_waits_for_capture_saves_the_older_image() {
    let (first, second) = (Tid(1), Tid(2));
    let mut tracked = Tracked::new();
    let mut value = 10;
    assert!(tracked.touch(first, || value));
    value = 11;
    assert!(!tracked.touch(first, || value));
    assert!(tracked.touch(second, || value));
    value = 22;
    assert_eq!(tracked.take(first, || value), Some(11));
    assert!(!tracked.is_clean());
    assert_eq!(tracked.take(first, || value), None);
    assert_eq!(tracked.take(second, || value), Some(22));
    assert!(tracked.is_clean());
}

#[test]
fn an_object_left_alone_is_captured_as_it_is() {
    let mut tracked = Tracked::new();
    assert!(tracked.touch(Tid(5), || 1));
    assert_eq!(tracked.take(Tid(5), || 2), Some(2));
    assert!(tracked.touch(Tid(6), || 3));
    assert_eq!(tracked.dirty(), Some(Tid(6)));
}

#[test]
fn a_dead_object_has_an_image_only_for_the_transaction_before_its_death() {
    let mut tracked = Tracked::new();
    tracked.touch(Tid(5), || 1);
    tracked.bury(Tid(6), || 2);
    assert_eq!(tracked.take(Tid(5), || 3), Some(2));
    assert_eq!(tracked.take(Tid(6), || 4), None);
    assert!(tracked.is_clean());
    tracked.touch(Tid(7), || 5);
    tracked.bury(Tid(7), || 6);
    assert_eq!(tracked.take(Tid(7), || 7), None);
}
