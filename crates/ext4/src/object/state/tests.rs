use super::*;
use lanefs_lanes::MAX_LANES;

fn time(secs: i64) -> Time {
    Time { secs, nanos: 0 }
}

fn totals() -> LaneArc<Totals> {
    Totals::new()
}

fn contended() -> (LaneDeltas, LaneArc<Totals>) {
    let (deltas, totals) = (LaneDeltas::default(), totals());
    for other in 0..=CONTENDED {
        deltas.seen.store(other << 16 | 0xffff, Ordering::Relaxed);
        deltas.meet(&totals, 100);
    }
    assert!(deltas.is_contended());
    (deltas, totals)
}

#[test]
fn one_lane_alone_does_not_contend() {
    let (deltas, totals) = (LaneDeltas::default(), totals());
    (0..1000).for_each(|_| deltas.meet(&totals, 100));
    assert!(!deltas.is_contended());
    assert!(!deltas.add(Tid(1), time(1), 0));
}

#[test]
fn deltas_are_taken_once() {
    let (deltas, _totals) = contended();
    deltas.listed(Tid(5));
    assert!(deltas.add(Tid(5), time(10), 1));
    assert!(deltas.add(Tid(5), time(9), 1));
    assert!(deltas.are_any());
    assert_eq!(deltas.take(), Some(Delta { changes: 2, at: time(10), links: 2 }));
    assert_eq!(deltas.take(), None);
    assert!(!deltas.are_any());
}

#[test]
fn each_lane_of_a_contended_directory_takes_numbers_of_its_own() {
    assert_eq!(LaneDeltas::default().next_number(7), 7);
    let (deltas, _totals) = contended();
    // With this many threads at a time all lanes are in use, so the number of lanes no longer
    // changes.
    let barrier = lanefs_lanes::sync::unscheduled::Barrier::new(MAX_LANES);
    let take = || {
        Lane::current();
        barrier.wait();
        let take = |_| {
            let number = deltas.next_number(7);
            deltas.count_subdirectories(1);
            (number, Lane::current())
        };
        let numbers: Vec<(u32, Lane)> = (0..10).map(take).collect();
        barrier.wait();
        numbers
    };
    let taken: Vec<(u32, Lane)> = std::thread::scope(|s| {
        let threads: Vec<_> = (0..MAX_LANES).map(|_| s.spawn(take)).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
    });
    let mut lanes = std::collections::BTreeMap::new();
    for (number, lane) in taken {
        assert!(number >= 100, "{number} comes after the existing ones");
        assert_eq!(*lanes.entry(number).or_insert(lane), lane, "of {number}");
    }
    let before = deltas.next_number(7);
    deltas.count_subdirectories(1);
    deltas.count_subdirectories(-1);
    assert_eq!(deltas.next_number(7), before, "one was added and removed");
}

#[test]
fn no_delta_is_kept_before_the_inode_is_listed_in_its_transaction() {
    let (deltas, _totals) = contended();
    assert!(!deltas.add(Tid(5), time(10), 0));
    deltas.listed(Tid(5));
    assert!(deltas.add(Tid(5), time(10), 0));
    assert!(!deltas.add(Tid(6), time(11), 0));
}

#[test]
fn a_delta_of_links_is_bounded() {
    let (deltas, _totals) = contended();
    deltas.listed(Tid(5));
    let kept = (0..1000).filter(|_| deltas.add(Tid(5), time(1), 1)).count();
    assert_eq!(kept, MOST_LINKS as usize);
    assert_eq!(deltas.take().map(|delta| delta.links), Some(MOST_LINKS));
}

#[test]
fn the_number_of_directories_with_deltas_is_limited() {
    let totals = totals();
    let permits: Vec<Permit> = std::iter::from_fn(|| Totals::permit(&totals)).collect();
    assert!(Totals::permit(&totals).is_none());
    drop(permits);
    assert!(Totals::permit(&totals).is_some());
}
