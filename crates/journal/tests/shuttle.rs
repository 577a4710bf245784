//! Runs the journal under shuttle, which chooses schedules at random and runs all threads on one
//! processor.
//!
//! `RUSTFLAGS="--cfg shuttle" cargo test -p lanefs-journal --test shuttle`
#![cfg(shuttle)]

#[path = "journal/toy/mod.rs"]
mod toy;

use lanefs_journal::{Error, Journal, Tid};
use lanefs_lanes::sync::{Arc, thread};
use toy::*;

const CELLS: usize = 6;
/// The credits that a worker requests: so many that three workers need two transactions.
const CREDITS: u32 = 100;

struct World {
    toy: Toy,
    journal: ToyJournal,
    device: Arc<lanefs_device::RamDevice>,
}

impl World {
    fn new() -> Arc<World> {
        let device = Arc::new(image());
        let journal = Journal::start(config(device.clone())).unwrap();
        Arc::new(World { toy: Toy::new(CELLS), journal, device })
    }

    fn transfer(&self, from: usize, to: usize) -> Result<Tid, Error> {
        let mut handle = self.journal.join(CREDITS)?;
        self.toy.change(&mut handle, from, |stamp| stamp - 1);
        self.toy.change(&mut handle, to, |stamp| stamp + 1);
        Ok(handle.tid())
    }

    /// Starts a thread that commits on request.
    fn serve(self: &Arc<World>) -> thread::JoinHandle<()> {
        let world = self.clone();
        thread::spawn(move || world.journal.serve(&world.toy))
    }

    /// Starts `count` threads that run `work`, each with its number.
    fn crew(
        self: &Arc<World>,
        count: usize,
        work: impl Fn(&World, usize) + Copy + Send + 'static,
    ) -> Crew {
        let start = |me| {
            let world = self.clone();
            thread::spawn(move || work(&world, me))
        };
        Crew((0..count).map(start).collect())
    }

    /// Checks that every captured transaction contains only whole transfers.
    fn assert_balanced(&self) {
        let tids: Vec<Tid> = self.toy.captured.lock().keys().copied().collect();
        for tid in tids {
            let state = self.toy.state_as_of(tid);
            assert_eq!(state.iter().sum::<i64>(), 0, "{tid}: {state:?}");
        }
    }

    /// Does the same as [`World::assert_balanced`], and checks that the cells on the device equal
    /// those in memory. Called after the last commit.
    fn check(&self) {
        self.assert_balanced();
        let in_memory: Vec<i64> = (0..CELLS).map(|cell| self.toy.stamp(cell)).collect();
        assert_eq!(stamps(&*self.device, CELLS), in_memory);
    }
}

struct Crew(Vec<thread::JoinHandle<()>>);

impl Crew {
    fn join(self) {
        self.0.into_iter().for_each(|thread| thread.join().unwrap());
    }
}

fn explore(scenario: impl Fn() + Send + Sync + 'static) {
    let mut config = shuttle::Config::new();
    config.stack_size = 1 << 20;
    config.max_steps = shuttle::MaxSteps::FailAfter(200_000);
    let scheduler = shuttle::scheduler::RandomScheduler::new(400);
    shuttle::Runner::new(scheduler, config).run(scenario);
}

#[test]
fn transfers_are_whole_in_every_transaction_and_waiters_are_served() {
    explore(|| {
        let world = World::new();
        let server = world.serve();
        let crew = world.crew(3, |world, me| {
            for round in 0..2 {
                let tid = world.transfer((me + round) % CELLS, me + 3).unwrap();
                if round == 1 {
                    world.journal.commit(tid).unwrap();
                    assert!(world.journal.durable() >= tid);
                }
            }
        });
        crew.join();
        world.journal.stop().unwrap();
        server.join().unwrap();
        world.check();
        assert!(superblock(&*world.device).start().is_none());
    });
}

#[test]
fn a_waiter_commits_for_all_waiters_and_no_thread_stays_asleep() {
    // Tests with a server that commits on request, and without a server.
    for served in [false, true] {
        explore(move || {
            let world = World::new();
            let server = served.then(|| world.serve());
            let crew = world.crew(3, move |world, me| {
                for round in 0..2 {
                    let tid = world.transfer((me + round) % CELLS, me + 3).unwrap();
                    if served && me == 2 {
                        world.journal.settle(tid).unwrap();
                    } else {
                        world.journal.commit_here(tid, &world.toy).unwrap();
                    }
                    assert!(world.journal.durable() >= tid);
                }
                // Usually there is nothing to commit.
                let running = world.journal.running();
                world.journal.commit_here(running, &world.toy).unwrap();
            });
            crew.join();
            match server {
                Some(server) => {
                    world.journal.stop().unwrap();
                    server.join().unwrap();
                }
                None => world.journal.stop_now(&world.toy).unwrap(),
            }
            world.check();
        });
    }
}

#[test]
fn two_committers_and_their_joiners_all_finish() {
    explore(|| {
        let world = World::new();
        let crew = world.crew(4, |world, me| {
            for _ in 0..2 {
                if me < 2 {
                    world.journal.commit_now(&world.toy).unwrap();
                } else {
                    world.transfer(me, me - 1).unwrap();
                }
            }
        });
        crew.join();
        world.journal.stop_now(&world.toy).unwrap();
        world.check();
    });
}

#[test]
fn a_joiner_for_all_credits_gets_them_without_other_changes() {
    explore(|| {
        let world = World::new();
        let server = world.serve();
        let crew = world.crew(3, |world, me| {
            let all = world.journal.max_credits();
            for _ in 0..2 {
                drop(world.journal.join(if me == 0 { all } else { 1 }).unwrap());
            }
        });
        crew.join();
        world.journal.stop().unwrap();
        server.join().unwrap();
        // An empty transaction is closed only if a joiner found too few credits.
        let counted = world.journal.statistics();
        assert!(counted.commits <= counted.credit_waits + 6, "{counted:?}");
    });
}

#[test]
fn an_abort_wakes_all_waiters() {
    explore(|| {
        let world = World::new();
        let server = world.serve();
        let crew = world.crew(3, |world, me| {
            for _ in 0..3 {
                let done = world.transfer(me, me + 1);
                let promised = done.and_then(|tid| match me {
                    0 => world.journal.commit(tid),
                    _ => world.journal.commit_here(tid, &world.toy),
                });
                if promised.is_err() {
                    break;
                }
            }
        });
        world.journal.abort(Error::Stopped);
        crew.join();
        server.join().unwrap();
        assert!(world.journal.stop().is_err());
        assert_eq!(*world.toy.aborted.lock(), 1);
        world.assert_balanced();
    });
}

#[test]
fn flushes_are_shared_and_cover_earlier_writes() {
    explore(|| {
        let world = World::new();
        let crew = world.crew(3, |world, _| {
            for _ in 0..2 {
                let mark = world.journal.note_write();
                world.journal.flush_if_needed(mark).unwrap();
            }
        });
        crew.join();
        let flushes = world.journal.statistics().flushes;
        assert!((1..=6).contains(&flushes), "{flushes}");
    });
}
