use super::*;
use lanefs_lanes::sync::Arc;
use lanefs_lanes::sync::unscheduled::mpsc;
use std::time::Instant;

const SOON: Duration = Duration::from_secs(5);

/// Starts readers and a watch. The receiver gets the numbers of the threads that the watch starts.
fn watched(enough: usize) -> (Arc<Readers>, mpsc::Receiver<usize>, impl FnOnce()) {
    watched_of(Readers::new(enough, enough))
}

fn watched_of(readers: Readers) -> (Arc<Readers>, mpsc::Receiver<usize>, impl FnOnce()) {
    let readers = Arc::new(readers);
    let (tell, started) = mpsc::channel();
    let watch = std::thread::spawn({
        let readers = readers.clone();
        move || readers.watch(|n| tell.send(n).is_ok(), || false)
    });
    let end = {
        let readers = readers.clone();
        move || {
            readers.end();
            assert!(watch.join().unwrap());
        }
    };
    (readers, started, end)
}

#[test]
fn a_quick_request_calls_no_thread() {
    let (readers, started, end) = watched(2);
    assert_eq!((started.recv_timeout(SOON), started.recv_timeout(SOON)), (Ok(0), Ok(1)));
    for _ in 0..3 {
        let serving = readers.begin(0);
        assert!(readers.done(0, serving));
    }
    // If one of two readers serves a slow request, no thread is started, since the other reader
    // still reads.
    readers.leave(0);
    assert_eq!(readers.join(0), Join::Reader);
    end();
    assert!(started.recv().is_err());
}

#[test]
fn the_last_reader_is_replaced_before_it_serves_a_slow_request() {
    let (readers, started, end) = watched(2);
    (0..2).for_each(|n| assert_eq!(started.recv_timeout(SOON), Ok(n)));
    readers.leave(0);
    readers.leave(1);
    assert_eq!(started.recv_timeout(SOON), Ok(2));
    // After thread 0 has joined again there are two readers, which is enough, so the next thread
    // that joins parks.
    assert_eq!(readers.join(0), Join::Reader);
    let parked = std::thread::spawn({
        let readers = readers.clone();
        move || readers.join(1)
    });
    while readers.spares.lock().parked.is_empty() {
        std::thread::yield_now();
    }
    readers.leave(0);
    readers.leave(2);
    assert_eq!(parked.join().unwrap(), Join::Called, "a parked thread is woken, none started");
    end();
    assert!(started.recv().is_err());
}

#[test]
fn a_parked_thread_ends_with_the_session() {
    let (readers, _started, end) = watched(2);
    let parked = std::thread::spawn({
        let readers = readers.clone();
        // Joins the readers, as a thread does after a slow request.
        move || {
            readers.ready.fetch_add(1, Ordering::AcqRel);
            readers.join(2)
        }
    });
    while readers.spares.lock().parked.is_empty() {
        std::thread::yield_now();
    }
    end();
    assert_eq!(parked.join().unwrap(), Join::End);
}

#[test]
fn a_request_that_turns_out_slow_is_found_by_the_watch() {
    let (readers, started, end) = watched(2);
    (0..2).for_each(|n| assert_eq!(started.recv_timeout(SOON), Ok(n)));
    for (pause, next) in [(0, 2), (300, 3)] {
        // In the second round, the watch has fallen asleep before the requests start.
        std::thread::sleep(Duration::from_millis(pause));
        let serving = [readers.begin(0), readers.begin(1)];
        let begun = Instant::now();
        assert_eq!(started.recv_timeout(SOON), Ok(next), "another thread reads");
        assert!(begun.elapsed() < SOON);
        for (me, serving) in serving.into_iter().enumerate() {
            assert!(!readers.done(me, serving));
            readers.ready.fetch_add(1, Ordering::AcqRel);
        }
        let serving = readers.begin(0);
        assert!(readers.done(0, serving));
        // Sets the count of readers back to two, as if no further thread had been started.
        readers.ready.store(2, Ordering::Release);
    }
    end();
}

#[test]
fn a_pause_is_reported_once_after_requests_of_either_kind() {
    let (readers, _started, end) = watched(2);
    assert!(readers.wait_for_pause(), "after the start");
    let serving = readers.begin(0);
    assert!(readers.done(0, serving));
    assert!(readers.wait_for_pause());
    readers.leave(0);
    assert_eq!(readers.join(0), Join::Reader);
    assert!(readers.wait_for_pause());
    let outcome = std::thread::spawn({
        let readers = readers.clone();
        move || readers.wait_for_pause()
    });
    std::thread::sleep(4 * PAUSED_LOOKS * PATIENCE);
    assert!(!outcome.is_finished(), "nothing was asked since");
    end();
    assert!(!outcome.join().unwrap());
}

#[test]
fn no_more_threads_are_started_than_may_wait() {
    let (readers, started, end) = watched(2);
    (0..2 + 2 * WAITING).for_each(|_| {
        if readers.ready.load(Ordering::Acquire) > 0 {
            readers.leave(0);
        }
    });
    (0..2 + WAITING).for_each(|n| assert_eq!(started.recv_timeout(SOON), Ok(n)));
    assert_eq!(readers.ready.load(Ordering::Acquire), 0);
    end();
    assert!(started.recv().is_err());
}

#[test]
fn readers_are_as_many_as_wanted_up_to_the_limit() {
    let (readers, started, end) = watched_of(Readers::new(2, 3));
    (0..2).for_each(|n| assert_eq!(started.recv_timeout(SOON), Ok(n)));
    assert!(!readers.is_alone());
    let parks = |me: usize| {
        let parked = std::thread::spawn({
            let readers = readers.clone();
            move || readers.shrink(me)
        });
        while !readers.spares.lock().parked.contains(&me) {
            std::thread::yield_now();
        }
        parked
    };
    let first = parks(1);
    assert!(readers.is_alone());
    assert_eq!(readers.shrink(0), Join::Reader, "one stays");
    readers.grow();
    assert_eq!(first.join().unwrap(), Join::Called, "a parked thread is woken first");
    readers.grow();
    assert_eq!(started.recv_timeout(SOON), Ok(2));
    readers.grow();
    assert_eq!(readers.ready.load(Ordering::Acquire), 3, "the most");
    end();
    assert!(started.recv().is_err());
}

#[test]
fn one_thread_alone_serves_nothing() {
    // A session without rings ends at once if it can start fewer than `FEWEST_THREADS` threads.
    for can_start in 0..2 {
        let readers = Arc::new(Readers::new(2, 2));
        let thread = std::thread::spawn({
            let readers = readers.clone();
            move || readers.wait_for_start(0)
        });
        assert!(!readers.watch(|n| n < can_start, || false));
        readers.end();
        assert!(!thread.join().unwrap(), "it has read nothing");
    }
    let beside_rings = Readers::new(1, 1);
    assert!(std::thread::scope(|scope| {
        scope.spawn(|| {
            assert!(beside_rings.wait_for_start(0));
            beside_rings.end();
        });
        beside_rings.watch(|n| n < 1, || false)
    }));
}
