use crate::cache::*;
use lanefs_lanes::sync::OnceLock;
use lanefs_lanes::sync::unscheduled::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// More buckets than any map in these tests has.
const ALL: usize = 1 << 20;

/// An object whose flag `needed` the test sets.
struct Thing {
    number: u64,
    used: Used,
    needed: AtomicBool,
    last: Tid,
    /// Called whenever a thread tries to evict this object.
    pause: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl Thing {
    fn new(number: u64, last: Tid) -> Arc<Thing> {
        let (used, needed) = (Used::new(), AtomicBool::new(false));
        Arc::new(Thing { number, used, needed, last, pause: OnceLock::new() })
    }
}

impl Cached for Thing {
    fn number(&self) -> u64 {
        self.number
    }
    fn used(&self) -> &Used {
        &self.used
    }
    fn evict(self: &Arc<Self>, settled: Tid) -> Evicted {
        if let Some(pause) = self.pause.get() {
            pause();
        }
        match self.needed.load(Ordering::Relaxed) || self.last > settled {
            true => Evicted::Nothing,
            false => Evicted::Object,
        }
    }
}

fn things(count: u64) -> Cache<Thing> {
    // The map has room for all objects, so that it does not grow. In a growing map, the clock hand
    // may pass an object twice in one round.
    let cache = Cache::new(1 << 14, Rank::Load);
    for number in 0..count {
        cache.insert(Thing::new(number, Tid(1)), |_| ());
    }
    cache
}

fn numbers(cache: &Cache<Thing>) -> Vec<u64> {
    let mut numbers = Vec::new();
    cache.for_each(|thing| numbers.push(thing.number));
    numbers.sort_unstable();
    numbers
}

#[test]
fn a_used_object_outlives_unused_ones() {
    let cache = things(1000);
    for number in 0..100 {
        assert_eq!(cache.hold(number, |thing| Some(thing.number)), Some(number));
    }
    assert_eq!(cache.evict(900, ALL, Tid(1)), 900);
    assert_eq!(numbers(&cache), (0..100).collect::<Vec<_>>());
}

#[test]
fn a_used_object_has_one_more_chance_only() {
    let cache = things(100);
    (0..100).for_each(|number| assert!(cache.hold(number, |_| Some(())).is_some()));
    assert_eq!(cache.evict(100, ALL, Tid(1)), 100);
    assert_eq!(cache.len(), 0);
}

#[test]
fn an_object_with_pending_work_of_a_transaction_stays() {
    let cache = things(10);
    assert_eq!(cache.evict(10, ALL, Tid(0)), 0);
    assert_eq!(cache.evict(10, ALL, Tid(1)), 10);
}

#[test]
fn a_needed_object_stays() {
    let cache = things(10);
    let pin = lanefs_lanes::pin();
    cache.find(&pin, 7).expect("it is there").needed.store(true, Ordering::Relaxed);
    drop(pin);
    assert_eq!(cache.evict(10, ALL, Tid(1)), 9);
    assert_eq!(numbers(&cache), [7]);
}

#[test]
fn no_more_is_evicted_than_a_stretch_beyond_what_is_wanted() {
    let cache = things(10_000);
    let evicted = cache.evict(1, ALL, Tid(1));
    assert!((1..1000).contains(&evicted), "{evicted}");
    assert_eq!(cache.len(), 10_000 - evicted);
}

#[test]
fn a_missing_object_is_loaded_once() {
    let cache = things(0);
    let loads = AtomicUsize::new(0);
    let look = || Ok(cache.hold(3, |thing| Some(thing.number)));
    let load = || {
        loads.fetch_add(1, Ordering::Relaxed);
        cache.insert(Thing::new(3, Tid(0)), |_| ());
        Ok(3)
    };
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| assert_eq!(cache.hold_or_load(3, look, load).unwrap(), 3));
        }
    });
    assert_eq!(loads.load(Ordering::Relaxed), 1);
}

/// Returns a function that, at its first call, sends a message and waits for an answer.
fn pause_once(arrived: Sender<()>, go_on: Receiver<()>) -> Box<dyn Fn() + Send + Sync> {
    let pause = Mutex::new(Rank::Bucket, Some((arrived, go_on)));
    Box::new(move || {
        let once = pause.lock().take();
        if let Some((arrived, go_on)) = once {
            arrived.send(()).expect("the test waits");
            go_on.recv().expect("the test answers");
        }
    })
}

#[test]
fn a_thread_does_not_wait_for_the_eviction_of_another_thread() {
    let cache = things(1000);
    let (arrived, arrives) = channel();
    let (go_on, goes_on) = channel();
    let pin = lanefs_lanes::pin();
    let slow = cache.find(&pin, 500).expect("it is there").clone();
    drop(pin);
    assert!(slow.pause.set(pause_once(arrived, goes_on)).is_ok());
    let ((done, evicted), cache) = (channel(), &cache);
    std::thread::scope(|scope| {
        let first = scope.spawn(|| cache.evict(1000, ALL, Tid(1)));
        arrives.recv().expect("the first thread stops in its eviction");
        scope.spawn(move || done.send(cache.evict(1000, ALL, Tid(1))));
        // The timeout ends the test if the second thread waits forever.
        let second = evicted.recv_timeout(Duration::from_secs(100));
        let left = cache.len();
        go_on.send(()).expect("the first thread waits");
        assert!(second.expect("the second thread does not wait") > 0);
        assert_eq!(left, 0, "the second thread evicted everything that was left");
        first.join().expect("no panic");
    });
}
