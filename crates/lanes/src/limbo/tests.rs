use super::*;
use crate::lane::MAX_LANES;
use std::cell::Cell;
use std::rc::Rc;

#[test]
fn an_advance_reads_few_lanes_for_each_value() {
    for lanes in 1..=MAX_LANES {
        let values = usual_with(lanes);
        assert!(values >= 16 * lanes || lanes < 4 && values <= 27, "{values} for {lanes}");
    }
    assert_eq!(usual_with(8), 512);
}

thread_local! { static FREED: Rc<Cell<usize>> = Rc::default() }

/// Counts the values that this thread frees.
struct Counted;
impl Drop for Counted {
    fn drop(&mut self) {
        FREED.with(|freed| freed.set(freed.get() + 1));
    }
}

#[test]
fn a_list_keeps_its_length_and_needs_two_epochs_for_each_length() {
    const KEEP: usize = 512;
    const VALUES: usize = 100 * KEEP;
    let freed = FREED.with(Rc::clone);
    let limbo = Limbo::new();
    let (mut now, mut most_at_once) = (2, 0);
    for retired in 1..=VALUES {
        // SAFETY: the box is new, and no other code has a pointer to it.
        let value = unsafe { Retired::new(Box::into_raw(Box::new(Counted))) };
        if limbo.push(value, || now) {
            let before = freed.get();
            if !limbo.collect(now - 2, KEEP) {
                now += 2;
                assert!(limbo.collect(now - 2, KEEP));
            }
            most_at_once = most_at_once.max(freed.get() - before);
        }
        assert!(limbo.len() <= KEEP + STEP);
        assert_eq!(limbo.len() + freed.get(), retired);
    }
    let advances = (now - 2) / 2;
    assert!((90..=100).contains(&advances), "{advances} times two epochs");
    assert_eq!(most_at_once, STEP, "values are freed a few at a time");
    assert!(limbo.collect(now, 0));
    assert_eq!(freed.get(), VALUES);
}

#[test]
fn large_values_are_freed_before_their_number_is_reached() {
    const LARGE: usize = 64 << 10;
    let freed = FREED.with(Rc::clone);
    let limbo = Limbo::new();
    let mut now = 2;
    for retired in 1..=1000 {
        // SAFETY: the box is new, and no other code has a pointer to it.
        let value = unsafe { Retired::with_bytes(Box::into_raw(Box::new(Counted)), LARGE) };
        if limbo.push(value, || now) && !limbo.collect(now - 2, LONGEST) {
            now += 2;
            assert!(limbo.collect(now - 2, LONGEST));
        }
        assert!(limbo.len() * LARGE <= MOST_BYTES + 2 * STEP_BYTES, "{}", limbo.len());
        assert_eq!(limbo.len() + freed.get(), retired);
    }
    assert!(limbo.len() * LARGE >= MOST_BYTES / 2);
    let advances = (now - 2) / 2;
    assert!((20..=40).contains(&advances), "{advances} times two epochs");
    assert!(limbo.collect(now, 0));
}

#[test]
fn values_that_a_pin_kept_are_freed_at_once_when_it_ends() {
    let freed = FREED.with(Rc::clone);
    let limbo = Limbo::new();
    let mut looks = 0;
    for _ in 0..10_000 {
        // SAFETY: the box is new, and no other code has a pointer to it.
        let value = unsafe { Retired::new(Box::into_raw(Box::new(Counted))) };
        if limbo.push(value, || 2) {
            looks += 1;
            assert!(!limbo.collect(0, 0), "a thread is pinned in epoch 2");
        }
    }
    assert!(looks < 100, "{looks} looks at a list that cannot be shortened");
    assert_eq!(freed.get(), 0);
    assert!(limbo.collect(2, 100));
    assert_eq!((limbo.len(), freed.get()), (100, 9_900));
    limbo.collect(2, 0);
}
