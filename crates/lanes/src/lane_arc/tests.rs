use super::*;
use crate::sync::unscheduled::Barrier;
use crate::sync::unscheduled::atomic::{AtomicUsize, Ordering};

struct Counted<'a>(&'a AtomicUsize);
impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn clones_on_different_lanes_count_on_different_lines() {
    let shared = LaneArc::new(1);
    let both = Barrier::new(2);
    let counts: Vec<_> = std::thread::scope(|s| {
        let threads: Vec<_> = (0..2)
            .map(|_| {
                s.spawn(|| {
                    let clone = shared.clone();
                    both.wait();
                    Arc::as_ptr(&clone.count).addr()
                })
            })
            .collect();
        threads.into_iter().map(|t| t.join().expect("no panic")).collect()
    });
    assert!(counts[0].abs_diff(counts[1]) >= 128, "{counts:x?}");
}

#[test]
fn the_value_goes_with_the_last_clone() {
    let drops = AtomicUsize::new(0);
    let first = LaneArc::new(Counted(&drops));
    let clone = first.clone();
    assert!(LaneArc::ptr_eq(&first, &clone));
    drop(first);
    // The first handle was dropped, so the lane of the new thread may have no count any more,
    // but cloning still works.
    let clones = std::thread::scope(|s| s.spawn(|| clone.clone()).join().expect("no panic"));
    drop(clone);
    assert_eq!(drops.load(Ordering::Relaxed), 0);
    drop(clones);
    assert_eq!(drops.load(Ordering::Relaxed), 1);
}

#[test]
fn the_last_handle_alone_gets_the_value_back() {
    let drops = AtomicUsize::new(0);
    let first = LaneArc::new(Counted(&drops));
    let clone = std::thread::scope(|s| s.spawn(|| first.clone()).join().expect("no panic"));
    drop(LaneArc::try_unwrap(first).err().expect("another handle"));
    assert_eq!(drops.load(Ordering::Relaxed), 0);
    let value = LaneArc::try_unwrap(clone).ok().expect("the last one");
    assert_eq!(drops.load(Ordering::Relaxed), 0);
    drop(value);
    assert_eq!(drops.load(Ordering::Relaxed), 1);
}
