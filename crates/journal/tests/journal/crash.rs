//! After a crash at any event of a recorded run, with any kind of lost writes, recovery restores
//! every change that was acknowledged.

use crate::toy::*;
use lanefs_device::{Device, Kept, RecordingDevice};
use lanefs_journal::{Journal, Tid};
use lanefs_lanes::sync::Arc;
use std::collections::BTreeMap;

const CELLS: usize = 500;
/// Cells from this number on may be freed. A freed cell may become metadata again, or get data.
const FREEABLE: usize = 300;

/// A recorded run of [`Toy`], and what recovery after a crash must restore.
struct Run {
    device: Arc<RecordingDevice>,
    toy: Toy,
    journal: ToyJournal,
    rng: fastrand::Rng,
    next_stamp: i64,
    /// The stamps of the cells when each transaction was closed; `None` for a cell that is not
    /// metadata.
    closed: BTreeMap<Tid, Vec<Option<i64>>>,
    now: Vec<Option<i64>>,
    /// (events recorded, transaction): once this number of events is recorded, the transaction must
    /// survive.
    acknowledged: Vec<(usize, Tid)>,
    /// (events recorded, cell, stamp): data written to a freed cell. The data is durable once this
    /// number of events is recorded.
    data: Vec<(usize, usize, i64)>,
}

impl Run {
    fn new(seed: u64) -> Run {
        println!("seed {seed}");
        let device = Arc::new(RecordingDevice::new(Arc::new(image())).unwrap());
        let journal = Journal::start(config(device.clone())).unwrap();
        let now = vec![Some(0); CELLS];
        let before = Tid(journal.running().0 - 1);
        Run {
            device,
            toy: Toy::new(CELLS),
            journal,
            rng: fastrand::Rng::with_seed(seed),
            next_stamp: 1,
            closed: BTreeMap::from([(before, now.clone())]),
            now,
            acknowledged: Vec::new(),
            data: Vec::new(),
        }
    }

    fn stamp(&mut self) -> i64 {
        self.next_stamp += 1;
        self.next_stamp
    }

    fn operate(&mut self) {
        let cells: Vec<usize> =
            (0..self.rng.usize(1..40)).map(|_| self.rng.usize(..CELLS)).collect();
        let frees = self.rng.u8(..4) == 0;
        let stamp = self.stamp();
        let mut handle = self.journal.join(cells.len() as u32 + 1).unwrap();
        for cell in cells {
            match self.now[cell] {
                // The cell is freed. If the cell becomes metadata again in the same transaction,
                // its revoke is cancelled.
                Some(_) if frees && cell >= FREEABLE => {
                    self.toy.free(&mut handle, cell);
                    self.now[cell] = None;
                }
                Some(_) => {
                    self.toy.change(&mut handle, cell, |_| stamp);
                    self.now[cell] = Some(stamp);
                }
                None if self.rng.u8(..3) == 0 && !self.has_data(cell) => {
                    self.toy.change(&mut handle, cell, |_| stamp);
                    self.now[cell] = Some(stamp);
                }
                None => {}
            }
        }
    }

    fn has_data(&self, cell: usize) -> bool {
        self.data.iter().any(|(_, c, _)| *c == cell)
    }

    fn commit(&mut self) {
        let tid = self.journal.running();
        self.closed.insert(tid, self.now.clone());
        self.journal.commit_now(&self.toy).unwrap();
        if self.journal.durable() == tid {
            self.acknowledged.push((self.device.mark(), tid));
        } else {
            self.closed.remove(&tid);
        }
    }

    /// Writes data to some of the cells that were freed and are still free.
    fn write_data(&mut self) {
        let freed = std::mem::take(&mut *self.toy.deferred.lock());
        for cell in freed {
            if self.now[cell].is_some() || self.has_data(cell) || self.rng.bool() {
                continue;
            }
            let stamp = self.stamp();
            let at = (HOME + cell as u64) * BS as u64;
            self.device.write_at(at, &content(cell, stamp)).unwrap();
            let mark = self.journal.note_write();
            self.journal.flush_if_needed(mark).unwrap();
            self.data.push((self.device.mark(), cell, stamp));
        }
    }

    fn live(&mut self, rounds: usize) {
        for _ in 0..rounds {
            for _ in 0..self.rng.usize(..6) {
                self.operate();
            }
            self.commit();
            self.write_data();
        }
    }

    /// Recovers `state`, the device after a crash at event `cut`. Checks that the result is the
    /// state after one of the transactions, and that no change acknowledged before `cut` is lost.
    fn check(&self, state: &dyn Device, cut: usize, what: Kept) {
        let recovered = replay(state).unwrap_or_else(|e| panic!("cut {cut}, {what:?}: {e}"));
        let base = self.journal.running().0 >> 32 << 32;
        let tid = Tid(base + u64::from(recovered.sequence.0) - 1);
        let promised = self.acknowledged.iter().rfind(|(mark, _)| *mark <= cut);
        if let Some((_, promised)) = promised {
            assert!(tid >= *promised, "cut {cut}, {what:?}: {tid} after {promised} was promised");
        }
        let expected = self.closed.get(&tid).or_else(|| {
            // Before the first commit, the superblock on the device is the one that mkfs wrote,
            // whose sequence number is one lower than that of the first transaction.
            self.closed.first_key_value().filter(|(first, _)| **first > tid).map(|(_, s)| s)
        });
        let expected = expected.unwrap_or_else(|| panic!("cut {cut}, {what:?}: no {tid}"));
        for (cell, stamp) in expected.iter().enumerate() {
            if let Some(stamp) = stamp {
                assert_eq!(stamp_at(state, cell), *stamp, "cut {cut}, {what:?}, cell {cell}");
            }
        }
        for (mark, cell, stamp) in &self.data {
            if *mark <= cut {
                assert_eq!(stamp_at(state, *cell), *stamp, "cut {cut}, {what:?}: data lost");
            }
        }
    }

    fn check_all_cuts(&self, seeds: u64) {
        let recording = self.device.recording();
        let mut replay = recording.replay();
        for cut in 0..=recording.events().len() {
            let some = (0..seeds).map(|seed| Kept::Some { seed });
            let torn = (0..seeds).map(|seed| Kept::Torn { seed: seed + 1000 });
            for kept in [Kept::All, Kept::None].into_iter().chain(some).chain(torn) {
                self.check(&replay.state(cut, kept), cut, kept);
            }
        }
    }
}

#[test]
fn every_cut_recovers_to_a_transaction_not_older_than_what_was_promised() {
    let mut run = Run::new(1);
    run.live(70);
    let statistics = run.journal.statistics();
    assert!(statistics.checkpoints > 2, "the log never wrapped: {statistics:?}");
    assert!(statistics.revokes_logged > 50, "{statistics:?}");
    run.check_all_cuts(3);
}

#[test]
fn a_stopped_journal_is_empty_and_all_blocks_are_in_place() {
    let mut run = Run::new(2);
    run.live(20);
    run.operate();
    run.closed.insert(run.journal.running(), run.now.clone());
    let tid = run.journal.running();
    run.journal.stop_now(&run.toy).unwrap();
    run.acknowledged.push((run.device.mark(), tid));
    assert_eq!(superblock(&*run.device).start(), None);
    for (cell, stamp) in run.now.iter().enumerate() {
        if let Some(stamp) = stamp {
            assert_eq!(stamp_at(&*run.device, cell), *stamp);
        }
    }
    assert!(run.journal.join(1).is_err());
    run.check_all_cuts(2);
}

#[test]
fn a_second_crash_during_recovery_changes_nothing() {
    let mut run = Run::new(3);
    run.live(25);
    let recording = run.device.recording();
    let mut states = recording.replay();
    let last = recording.events().len();
    for cut in [last / 3, last / 2, last - 1, last] {
        let broken = Arc::new(states.state(cut, Kept::Torn { seed: cut as u64 }));
        let again = RecordingDevice::new(broken).unwrap();
        replay(&again).unwrap();
        let recoveries = again.recording();
        let mut second = recoveries.replay();
        for cut_again in 0..=recoveries.events().len() {
            for seed in 0..3 {
                let kept = Kept::Torn { seed };
                run.check(&second.state(cut_again, kept), cut, kept);
            }
        }
    }
}

#[test]
fn after_recovery_the_journal_continues_and_ignores_old_log_blocks() {
    let seed = 4;
    println!("seed {seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut device: Arc<dyn Device> = Arc::new(image());
    let mut model = vec![0; CELLS];
    for life in 0..25 {
        let recorder = Arc::new(RecordingDevice::new(device.clone()).unwrap());
        let journal = Journal::start(config(recorder.clone())).unwrap();
        let toy = Toy::new(CELLS);
        let mut states = vec![model.clone()];
        for round in 0..rng.usize(1..4) {
            for _ in 0..rng.usize(1..100) {
                let (cell, stamp) = (rng.usize(..CELLS), 1 + life * 10 + round as i64);
                model[cell] = stamp;
                toy.set(&journal, cell, stamp).unwrap();
            }
            journal.commit_now(&toy).unwrap();
            states.push(model.clone());
        }
        let recording = recorder.recording();
        let cut = rng.usize(..=recording.events().len());
        let state = recording.replay().state(cut, Kept::Torn { seed: life as u64 });
        replay(&state).unwrap();
        model = stamps(&state, CELLS);
        assert!(states.contains(&model), "life {life}, cut {cut}");
        device = Arc::new(state);
    }
}
