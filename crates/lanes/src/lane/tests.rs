use super::*;
use crate::sync::unscheduled::Barrier;
use std::collections::HashSet;

#[test]
fn a_thread_keeps_its_lane() {
    assert_eq!(Lane::current(), Lane::current());
}

#[test]
fn threads_that_live_together_get_different_lanes_and_later_ones_reuse_them() {
    // Other tests in this process use lanes too, but fewer than half of all lanes.
    const TOGETHER: usize = MAX_LANES / 2;
    for _ in 0..8 {
        let all_there = Barrier::new(TOGETHER);
        let lanes: HashSet<Lane> = std::thread::scope(|s| {
            let threads: Vec<_> = (0..TOGETHER)
                .map(|_| {
                    s.spawn(|| {
                        let lane = Lane::current();
                        all_there.wait();
                        lane
                    })
                })
                .collect();
            threads.into_iter().map(|t| t.join().expect("no panic")).collect()
        });
        assert_eq!(lanes.len(), TOGETHER);
    }
}

fn slot_of_a_thread(work: impl FnOnce() + Send + 'static) -> LaneSlot {
    let slot = || {
        work();
        LaneSlot::current()
    };
    std::thread::spawn(slot).join().expect("no panic")
}

fn is_owned(lane: Lane) -> bool {
    REGISTRY.users.lock().expect("no panic")[lane.index()].owned
}

#[test]
fn a_thread_alone_in_its_lane_owns_it_until_it_ends() {
    let slot = slot_of_a_thread(|| assert!(is_owned(Lane::current())));
    assert!(slot.owner);
}

#[test]
fn a_lane_gets_no_new_owner_while_a_pin_of_the_last_one_may_live() {
    let slot = slot_of_a_thread(|| {
        Lane::current();
        pin_depth::set(1);
    });
    assert!(slot.owner);
    assert!(is_owned(slot.lane));
}

#[test]
fn slots_of_lanes_are_128_bytes_apart() {
    let slots = PerLane::new(|lane| lane.index() as u8);
    let at: Vec<usize> = slots.iter().map(|slot| std::ptr::from_ref(slot).addr()).collect();
    assert!(at.iter().all(|a| a % 128 == 0));
    assert!(at.windows(2).all(|w| w[1] - w[0] >= 128));
    assert!(slots.iter().enumerate().all(|(i, slot)| usize::from(*slot) == i));
}
