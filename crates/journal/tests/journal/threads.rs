//! Many threads transfer amounts between cells, with one committer. The sum of the cells must be
//! the same in every crash state.

use crate::toy;

use crate::toy::*;
use lanefs_device::{Device, GatedDevice, Kept, OverlayDevice, Pace, RamDevice, RecordingDevice};
use lanefs_journal::{Config, Error, Journal, Tid};
use lanefs_lanes::sync::Arc;
use lanefs_lanes::sync::unscheduled::Mutex;
use lanefs_lanes::sync::unscheduled::atomic::{AtomicBool, Ordering};
use lanefs_lanes::sync::unscheduled::mpsc::channel;
use std::time::Duration;

const THREADS: usize = 6;
/// The cells between which amounts are moved. Each thread has one more cell as a counter.
const BANK: usize = 200;
const CELLS: usize = BANK + THREADS;

struct Bank {
    toy: Toy,
    journal: ToyJournal,
}

impl Bank {
    fn new(config: Config) -> Bank {
        Bank { toy: Toy::new(CELLS), journal: Journal::start(config).unwrap() }
    }

    /// Moves an amount between two cells and increments the thread's own cell.
    fn transfer(&self, thread: usize, rng: &mut fastrand::Rng) -> Result<Tid, Error> {
        let (from, to) = (rng.usize(..BANK), rng.usize(..BANK));
        let amount = rng.i64(1..100);
        // Requests far more credits than the change needs, as operations with a large worst case
        // do.
        let mut handle = self.journal.join(rng.u32(3..60))?;
        self.toy.change(&mut handle, from, |stamp| stamp - amount);
        self.toy.change(&mut handle, to, |stamp| stamp + amount);
        self.toy.change(&mut handle, BANK + thread, |count| count + 1);
        Ok(handle.tid())
    }
}

fn assert_balanced(stamps: &[i64], what: &str) {
    assert_eq!(stamps[..BANK].iter().sum::<i64>(), 0, "{what}: a transfer is half there");
}

#[test]
fn every_crash_state_has_the_acknowledged_commits_of_each_thread() {
    let seed = 5;
    println!("seed {seed}");
    let device = Arc::new(RecordingDevice::new(Arc::new(image())).unwrap());
    let config = Config {
        commit_interval: Duration::from_millis(2),
        ..toy::config(device.clone() as Arc<dyn Device>)
    };
    let bank = Bank::new(config);
    // (event, thread, count): from this event on the thread's cell must be at least this count.
    let promised = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        let server = scope.spawn(|| bank.journal.serve(&bank.toy));
        let workers: Vec<_> = (0..THREADS)
            .map(|me| {
                let (bank, promised, device) = (&bank, &promised, &device);
                scope.spawn(move || {
                    let mut rng = fastrand::Rng::with_seed(seed * 100 + me as u64);
                    for count in 1..=1000 {
                        let tid = bank.transfer(me, &mut rng).unwrap();
                        if rng.u8(..100) == 0 {
                            match me % 2 {
                                0 => bank.journal.commit(tid).unwrap(),
                                _ => bank.journal.commit_here(tid, &bank.toy).unwrap(),
                            }
                            let mark = device.mark();
                            promised.lock().unwrap().push((mark, me, count));
                        }
                    }
                })
            })
            .collect();
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        bank.journal.stop().unwrap();
        server.join().unwrap();
    });
    let statistics = bank.journal.statistics();
    println!("{statistics:?}");
    assert!(statistics.checkpoints > 1, "{statistics:?}");
    let in_memory: Vec<i64> = (0..CELLS).map(|cell| bank.toy.stamp(cell)).collect();
    assert_eq!(stamps(&*device, CELLS), in_memory);
    assert_balanced(&in_memory, "at the end");
    assert!(in_memory[BANK..].iter().all(|count| *count == 1000));

    let recording = device.recording();
    let promised = promised.into_inner().unwrap();
    let mut states = recording.replay();
    let step = recording.events().len() / 300 + 1;
    for cut in (0..=recording.events().len()).step_by(step) {
        for kept in [Kept::None, Kept::Torn { seed: cut as u64 }] {
            let state = states.state(cut, kept);
            let recovered = replay(&state).unwrap();
            let what = format!("cut {cut}, {kept:?}");
            let found = stamps(&state, CELLS);
            assert_balanced(&found, &what);
            let tid = Tid((1 << 32) + u64::from(recovered.sequence.0) - 1);
            assert_eq!(found, bank.toy.state_as_of(tid), "{what}");
            for (mark, thread, count) in promised.iter().filter(|(mark, ..)| *mark <= cut) {
                assert!(found[BANK + thread] >= *count, "{what}: promised at {mark}");
            }
        }
    }
}

/// How the first handle uses its credits before it is dropped. This handle has all credits of the
/// transaction.
#[derive(Debug, Clone, Copy)]
enum Uses {
    /// The handle changes a cell, and has used up all credits when it is dropped.
    AllForAChange,
    /// The handle uses up all credits for objects that are both created and deleted in the
    /// transaction. So the transaction has nothing to write.
    AllForNothing,
}

fn is_let_in_though_a_round_found_nothing(uses: Uses) {
    let ram: Arc<dyn Device> = Arc::new(image());
    let bank = Bank::new(Config { commit_interval: Duration::from_secs(3600), ..config(ram) });
    let (joined, joins) = lanefs_lanes::sync::unscheduled::mpsc::channel();
    std::thread::scope(|scope| {
        let server = scope.spawn(|| bank.journal.serve(&bank.toy));
        let most = bank.journal.max_credits();
        let mut member = bank.journal.join(most).unwrap();
        scope.spawn(|| {
            let handle = bank.journal.join(1);
            joined.send(handle.is_ok()).unwrap();
        });
        while bank.journal.statistics().credit_waits == 0 {
            std::thread::yield_now();
        }
        // During this sleep the joiner requests a commit, and the server finds nothing to commit.
        std::thread::sleep(Duration::from_millis(200));
        if let Uses::AllForAChange = uses {
            bank.toy.change(&mut member, 0, |stamp| stamp + 1);
        }
        member.charge(member.credits());
        drop(member);
        let let_in = joins.recv_timeout(Duration::from_secs(10));
        // Releases a waiting joiner, so that the test ends.
        if let_in.is_err() {
            bank.journal.abort(Error::Stopped);
        }
        let _ = bank.journal.stop();
        server.join().unwrap();
        assert_eq!(let_in, Ok(true), "{uses:?}: the joiner waits for the commit interval");
    });
}

#[test]
fn a_joiner_whose_round_found_nothing_does_not_wait_for_the_next_change() {
    is_let_in_though_a_round_found_nothing(Uses::AllForAChange);
}

#[test]
fn a_joiner_gets_credits_that_were_used_for_nothing() {
    is_let_in_though_a_round_found_nothing(Uses::AllForNothing);
}

#[test]
fn many_waiters_share_one_commit() {
    let ram: Arc<dyn Device> = Arc::new(image());
    let bank = Bank::new(Config { commit_interval: Duration::from_secs(60), ..config(ram) });
    const ROUNDS: u64 = 50;
    std::thread::scope(|scope| {
        let server = scope.spawn(|| bank.journal.serve(&bank.toy));
        let workers: Vec<_> = (0..THREADS)
            .map(|me| {
                let bank = &bank;
                scope.spawn(move || {
                    let mut rng = fastrand::Rng::with_seed(me as u64);
                    for _ in 0..ROUNDS {
                        let tid = bank.transfer(me, &mut rng).unwrap();
                        bank.journal.commit(tid).unwrap();
                        assert!(bank.journal.durable() >= tid);
                        bank.journal.flush_if_needed(bank.journal.last_write()).unwrap();
                    }
                })
            })
            .collect();
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        bank.journal.stop().unwrap();
        server.join().unwrap();
    });
    let statistics = bank.journal.statistics();
    println!("{statistics:?}");
    // Each commit makes one flush and one durable write for any number of waiting threads. The
    // calls of `flush_if_needed` flush nothing, since no data was written.
    assert!(statistics.commits < THREADS as u64 * ROUNDS, "{statistics:?}");
    assert!(statistics.flushes <= statistics.commits + statistics.checkpoints, "{statistics:?}");
}

#[test]
fn a_waiter_for_all_credits_is_not_starved_by_small_ones() {
    let ram: Arc<dyn Device> = Arc::new(image());
    let bank = Bank::new(Config { commit_interval: Duration::from_secs(60), ..config(ram) });
    let done = AtomicBool::new(false);
    let max = bank.journal.max_credits();
    assert!(max >= 240);
    assert!(matches!(bank.journal.join(max + 1), Err(Error::TooBig { .. })));
    std::thread::scope(|scope| {
        let server = scope.spawn(|| bank.journal.serve(&bank.toy));
        for me in 0..THREADS - 1 {
            let (bank, done) = (&bank, &done);
            scope.spawn(move || {
                let mut rng = fastrand::Rng::with_seed(me as u64);
                while !done.load(Ordering::Relaxed) {
                    match bank.transfer(me, &mut rng) {
                        Ok(_) | Err(Error::Stopped) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            });
        }
        for _ in 0..20 {
            let mut handle = bank.journal.join(max).unwrap();
            for cell in 0..BANK {
                bank.toy.change(&mut handle, cell, |stamp| stamp);
            }
        }
        done.store(true, Ordering::Relaxed);
        bank.journal.stop().unwrap();
        server.join().unwrap();
    });
    assert!(bank.journal.statistics().credit_waits > 0);
}

#[test]
fn without_a_log_a_commit_is_writes_in_place_and_a_flush() {
    let device = Arc::new(RecordingDevice::new(Arc::new(image())).unwrap());
    let bank = Bank::new(Config::new(device.clone(), block_size()));
    let mut rng = fastrand::Rng::with_seed(8);
    for _ in 0..10 {
        for _ in 0..50 {
            bank.transfer(0, &mut rng).unwrap();
        }
        bank.journal.commit_now(&bank.toy).unwrap();
        let recording = device.recording();
        let state = recording.replay().state(recording.events().len(), Kept::None);
        let expected: Vec<i64> = (0..CELLS).map(|cell| bank.toy.stamp(cell)).collect();
        assert_eq!(stamps(&state, CELLS), expected);
        assert_eq!(bank.journal.image_bytes(), 0);
    }
    bank.journal.stop_now(&bank.toy).unwrap();
    assert_eq!(superblock(&*device).sequence(), superblock(&image()).sequence());
}

#[test]
fn memory_over_the_cap_is_written_in_place_early() {
    let ram: Arc<dyn Device> = Arc::new(image());
    let cap = 128 * BS as u64;
    let bank = Bank::new(Config { image_cap: cap, ..config(ram) });
    let mut rng = fastrand::Rng::with_seed(9);
    for round in 0..60 {
        for _ in 0..20 {
            bank.transfer(0, &mut rng).unwrap();
        }
        bank.journal.commit_now(&bank.toy).unwrap();
        let bytes = bank.journal.image_bytes();
        assert!(bytes <= cap + 64 * BS as u64, "round {round}: {bytes} bytes");
    }
    assert!(bank.journal.statistics().checkpoints > 5);
}

#[test]
fn images_are_found_until_they_are_written_in_place() {
    let ram = Arc::new(image());
    let bank = Bank::new(config(ram.clone()));
    let block = lanefs_ondisk::Block(HOME + 7);
    bank.toy.set(&bank.journal, 7, 42).unwrap();
    assert!(bank.journal.image(block).unwrap().is_none(), "not captured yet");
    bank.journal.commit_now(&bank.toy).unwrap();
    assert_eq!(bank.journal.image(block).unwrap().unwrap(), content(7, 42));
    assert_eq!(stamp_at(&*ram, 7), 0);
    bank.journal.stop_now(&bank.toy).unwrap();
    assert!(bank.journal.image(block).unwrap().is_none());
    assert_eq!(stamp_at(&*ram, 7), 42);
}

#[test]
fn empty_commits_write_nothing() {
    let device = Arc::new(RecordingDevice::new(Arc::new(image())).unwrap());
    let bank = Bank::new(config(device.clone()));
    let tid = bank.journal.running();
    drop(bank.journal.join(10).unwrap());
    bank.journal.commit_now(&bank.toy).unwrap();
    assert_eq!(bank.journal.running(), tid);
    std::thread::scope(|scope| {
        scope.spawn(|| bank.journal.serve(&bank.toy));
        bank.journal.commit(tid).unwrap();
        bank.journal.settle(tid).unwrap();
        bank.journal.stop().unwrap();
    });
    assert_eq!(device.mark(), 0, "a mount that changed nothing writes nothing");
}

#[test]
fn an_overlay_recovers_a_device_that_is_never_written() {
    let ram = Arc::new(image());
    let bank = Bank::new(config(ram.clone()));
    bank.toy.set(&bank.journal, 3, 33).unwrap();
    bank.journal.commit_now(&bank.toy).unwrap();
    let before = RamDevice::copy_of(&ram).unwrap();
    let overlay = OverlayDevice::new(ram.clone(), 1 << 20);
    replay(&overlay).unwrap();
    assert_eq!(stamp_at(&overlay, 3), 33);
    assert_eq!(stamps(&before, CELLS), stamps(&*ram, CELLS));
    assert!(superblock(&*ram).start().is_some());
}

/// The pause closes an empty transaction, for which a thread waits.
#[test]
fn a_pause_wakes_a_thread_that_waits_for_an_empty_transaction() {
    let pace = Pace::Time(Duration::from_millis(100));
    let device = Arc::new(GatedDevice::new(Arc::new(image()), pace));
    let (toy, journal) = (Toy::new(CELLS), ToyJournal::start(config(device)).unwrap());
    toy.set(&journal, 0, 1).unwrap();
    journal.commit_now(&toy).unwrap();
    let empty = journal.running();
    std::thread::scope(|scope| {
        let pause = scope.spawn(|| journal.pause(&toy));
        while journal.running() == empty {
            std::thread::yield_now();
        }
        let (told, hears) = channel();
        let (toy, journal) = (&toy, &journal);
        let waiter = scope.spawn(move || told.send(journal.commit_here(empty, toy)));
        let committed = hears.recv_timeout(Duration::from_secs(5));
        if committed.is_err() {
            journal.abort(Error::Stopped);
        }
        assert!(matches!(committed, Ok(Ok(()))), "{committed:?}");
        waiter.join().unwrap().unwrap();
        pause.join().unwrap().unwrap();
    });
}
