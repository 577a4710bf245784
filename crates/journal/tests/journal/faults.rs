//! Makes the n-th write or flush fail, for every n. No acknowledged change may be lost, and the
//! journal must keep the first failure as the cause of its abort.

use crate::toy::*;
use lanefs_device::{Device, Duration, Fault, FaultyDevice, Kept, Operation, RecordingDevice};
use lanefs_journal::{Error, Journal, Tid};
use lanefs_lanes::sync::Arc;

const CELLS: usize = 450;

/// The result of a run on a failing device.
struct Life {
    recorder: Arc<RecordingDevice>,
    faulty: Arc<FaultyDevice>,
    toy: Toy,
    /// The newest transaction that was acknowledged.
    acknowledged: Option<Tid>,
    failed: Option<Error>,
}

fn live(fault: Option<Fault>) -> Life {
    let recorder = Arc::new(RecordingDevice::new(Arc::new(image())).unwrap());
    let faulty = Arc::new(FaultyDevice::new(recorder.clone(), fault));
    let journal: ToyJournal = Journal::start(config(faulty.clone())).unwrap();
    let mut life =
        Life { recorder, faulty, toy: Toy::new(CELLS), acknowledged: None, failed: None };
    let mut rng = fastrand::Rng::with_seed(77);
    let toy = &life.toy;
    let result = (|| {
        for stamp in 1..25 {
            for _ in 0..rng.usize(1..120) {
                toy.set(&journal, rng.usize(..CELLS), stamp)?;
            }
            let tid = journal.running();
            journal.commit_now(toy)?;
            life.acknowledged = Some(tid);
            let mark = journal.note_write();
            journal.flush_if_needed(mark)?;
        }
        journal.stop_now(toy)
    })();
    life.failed = result.err();
    if life.failed.is_some() {
        let cause = journal.cause().expect("a failure aborts the journal");
        assert!(matches!(cause, Error::Device(_)), "{cause}");
        // The journal stays aborted even if the device works again. This call of `commit_now`
        // records the abort.
        assert!(matches!(journal.commit_now(&life.toy), Err(Error::Aborted { .. })));
        let marked = life.recorder.mark();
        assert!(matches!(journal.join(1), Err(Error::Aborted { .. })));
        assert!(matches!(journal.commit(journal.running()), Err(Error::Aborted { .. })));
        assert!(matches!(journal.commit(journal.durable()), Err(Error::Aborted { .. })));
        assert!(matches!(
            journal.flush_if_needed(journal.last_write()),
            Err(Error::Aborted { .. })
        ));
        assert!(matches!(journal.commit_now(&life.toy), Err(Error::Aborted { .. })));
        assert!(matches!(journal.stop_now(&life.toy), Err(Error::Aborted { .. })));
        assert_eq!(journal.cause().unwrap().to_string(), cause.to_string());
        assert_eq!(life.recorder.mark(), marked, "written to after an abort");
        assert_eq!(*life.toy.aborted.lock(), 1, "the file system is told once");
    }
    life
}

#[test]
fn no_acknowledged_commit_is_lost_whichever_operation_fails() {
    let healthy = live(None);
    assert!(healthy.failed.is_none());
    for operation in [Operation::Write, Operation::Flush] {
        let count = healthy.faulty.count(operation);
        println!("{operation:?}: {count}");
        assert!(count > 25);
        for nth in 1..=count {
            // A single failure, after which the device works again, finds more defects than a
            // permanent failure. So only one run in eight also tests a permanent failure.
            let durations = [Duration::Once, Duration::FromThenOn];
            for duration in &durations[..if nth % 8 == 0 { 2 } else { 1 }] {
                let duration = *duration;
                let life = live(Some(Fault { operation, nth, duration }));
                let what = format!("{operation:?} {nth} failed, {duration:?}");
                assert!(life.failed.is_some(), "{what}: and nobody was told");
                let recording = life.recorder.recording();
                let mut states = recording.replay();
                let cut = recording.events().len();
                for kept in [Kept::All, Kept::None, Kept::Torn { seed: nth }] {
                    let state = states.state(cut, kept);
                    let recovered = replay(&state).unwrap();
                    let tid = Tid((1 << 32) + u64::from(recovered.sequence.0) - 1);
                    let promised = life.acknowledged.unwrap_or(Tid(0));
                    assert!(tid >= promised, "{what}, {kept:?}: {tid}, promised {promised}");
                    assert_eq!(
                        stamps(&state, CELLS),
                        life.toy.state_as_of(tid),
                        "{what}, {kept:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn an_operation_that_panics_takes_its_transaction_with_it() {
    let device: Arc<dyn Device> = Arc::new(image());
    let journal: ToyJournal = Journal::start(config(device.clone())).unwrap();
    let toy = Toy::new(CELLS);
    toy.set(&journal, 1, 1).unwrap();
    journal.commit_now(&toy).unwrap();
    let half = std::panic::AssertUnwindSafe(|| {
        let mut handle = journal.join(2).unwrap();
        toy.change(&mut handle, 1, |_| 2);
        panic!("planned");
    });
    assert!(std::panic::catch_unwind(half).is_err());
    assert!(matches!(journal.cause(), Some(Error::Panicked { .. })));
    assert!(journal.join(1).is_err());
    assert!(journal.commit_now(&toy).is_err());
    replay(&device).unwrap();
    assert_eq!(stamp_at(&device, 1), 1);
}

#[test]
fn a_handle_that_spends_more_than_it_asked_for_panics() {
    let journal: ToyJournal = Journal::start(config(Arc::new(image()))).unwrap();
    let toy = Toy::new(CELLS);
    let spend = std::panic::AssertUnwindSafe(|| {
        let mut handle = journal.join(1).unwrap();
        toy.change(&mut handle, 1, |_| 2);
        toy.change(&mut handle, 2, |_| 2);
    });
    assert!(std::panic::catch_unwind(spend).is_err());
}

#[cfg(debug_assertions)]
#[test]
#[should_panic(expected = "one transaction at a time")]
fn a_thread_that_joins_twice_panics_instead_of_waiting_for_itself() {
    let journal: ToyJournal = Journal::start(config(Arc::new(image()))).unwrap();
    let _first = journal.join(1).unwrap();
    let _second = journal.join(1);
}

#[test]
fn waiters_and_joiners_are_woken_by_an_abort() {
    let fault = Fault { operation: Operation::Flush, nth: 3, duration: Duration::Once };
    let device = Arc::new(FaultyDevice::new(Arc::new(image()), Some(fault)));
    let journal: ToyJournal = Journal::start(config(device)).unwrap();
    let toy = Toy::new(CELLS);
    std::thread::scope(|scope| {
        let server = scope.spawn(|| journal.serve(&toy));
        let workers: Vec<_> = (0..4)
            .map(|me| {
                let (journal, toy) = (&journal, &toy);
                scope.spawn(move || {
                    for n in 0.. {
                        let done = toy.set(journal, me * 100 + n % 100, n as i64 + 1);
                        if done.and_then(|tid| journal.commit(tid)).is_err() {
                            return n;
                        }
                        assert!(n < 10_000, "the failure went unnoticed");
                    }
                    0
                })
            })
            .collect();
        workers.into_iter().for_each(|worker| assert!(worker.join().unwrap() < 10_000));
        server.join().unwrap();
        assert!(journal.stop().is_err());
    });
    assert_eq!(*toy.aborted.lock(), 1);
}
