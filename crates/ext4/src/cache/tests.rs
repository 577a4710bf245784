use super::*;

/// More than the number of buckets in these tests.
const ALL: usize = 1 << 20;

/// An object for which the test sets whether it is needed.
struct Thing {
    number: u64,
    used: Used,
    needed: AtomicBool,
    last: Tid,
}

impl Cached for Thing {
    fn number(&self) -> u64 {
        self.number
    }
    fn used(&self) -> &Used {
        &self.used
    }
    fn evict(self: &Arc<Self>, settled: Tid) -> Evicted {
        match self.needed.load(Ordering::Relaxed) || self.last > settled {
            true => Evicted::Nothing,
            false => Evicted::Object,
        }
    }
}

fn things(count: u64) -> Cache<Thing> {
    // There is room for all objects: while a map grows, a hand may pass an object twice in one
    // round.
    let cache = Cache::new(1 << 14, Rank::Load);
    for number in 0..count {
        let thing =
            Thing { number, used: Used::new(), needed: AtomicBool::new(false), last: Tid(1) };
        cache.insert(Arc::new(thing), |_| ());
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
fn an_object_that_a_transaction_owes_something_stays() {
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
        let thing =
            Thing { number: 3, used: Used::new(), needed: AtomicBool::new(false), last: Tid(0) };
        cache.insert(Arc::new(thing), |_| ());
        Ok(3)
    };
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| assert_eq!(cache.hold_or_load(3, look, load).unwrap(), 3));
        }
    });
    assert_eq!(loads.load(Ordering::Relaxed), 1);
}
