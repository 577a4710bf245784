//! Crash states of gathered writes: three threads write to one row, in certain interleavings.

use super::*;
use crate::rig::hook::{HookDevice, Kind, Outcome};
use lanefs_lanes::sync::unscheduled::atomic::AtomicBool;
use std::thread::JoinHandle;

/// The number of a write, and the recorded operation.
type Numbered = (u64, Op);

/// An array whose members record their operations and can run a test's code during one of them.
struct Gathering {
    array: Arc<Array>,
    hooks: Vec<Arc<HookDevice>>,
    tape: Arc<Tape>,
    late: Arc<Mutex<Vec<JoinHandle<Numbered>>>>,
}

impl Gathering {
    fn write(&self, number: u64, from: u64, to: u64, durable: bool) -> JoinHandle<Numbered> {
        let (array, tape) = (self.array.clone(), self.tape.clone());
        std::thread::spawn(move || {
            let asked = tape.mark();
            let bytes: Vec<u8> = (from..to).flat_map(|s| stamp(number, s)).collect();
            let written = match durable {
                true => array.write_durable_at(from * SECTOR, &bytes),
                false => array.write_at(from * SECTOR, &bytes),
            };
            written.unwrap();
            (number, Op { from, to, asked, returned: tape.mark(), durable })
        })
    }

    /// Writes ranges of sectors that share parity blocks: each range is at the same offsets in
    /// another chunk of one row. The first write starts at once. The others start during the first
    /// member operation of the kind `kind`, or after the first write if no such operation occurs.
    /// Returns the writes.
    fn round(
        self: &Arc<Self>,
        kind: Kind,
        first: u64,
        ranges: &[(u64, u64)],
        durable: bool,
    ) -> Vec<Numbered> {
        let begun = Arc::new(AtomicBool::new(false));
        let others: Vec<(u64, (u64, u64))> = (first + 1..).zip(ranges[1..].to_vec()).collect();
        for hook in &self.hooks {
            let (this, begun, others) = (self.clone(), begun.clone(), others.clone());
            hook.on(kind, 0, move || {
                if !begun.swap(true, Ordering::SeqCst) {
                    this.start(&others, durable);
                }
                Outcome::Done
            });
        }
        let (from, to) = ranges[0];
        let mut done = vec![self.write(first, from, to, durable).join().unwrap()];
        self.hooks.iter().for_each(|hook| hook.clear());
        if !begun.swap(true, Ordering::SeqCst) {
            let write = |(number, (from, to)): &(u64, (u64, u64))| {
                self.write(*number, *from, *to, durable).join().unwrap()
            };
            done.extend(others.iter().map(write));
        }
        let late: Vec<_> = self.late.lock().unwrap().drain(..).collect();
        done.extend(late.into_iter().map(|thread| thread.join().unwrap()));
        done
    }

    /// Starts one writing thread for each range. Returns when all these threads wait for the row.
    fn start(&self, ranges: &[(u64, (u64, u64))], durable: bool) {
        for (number, (from, to)) in ranges {
            let waits = self.array.statistics().row_waits + 1;
            let write = self.write(*number, *from, *to, durable);
            self.late.lock().unwrap().push(write);
            while self.array.statistics().row_waits < waits {
                std::thread::yield_now();
            }
        }
    }
}

/// Records rounds of three writes, which go to chunks of one row in random order. Also returns the
/// number of writes that were gathered.
fn record_gathered(lost: Option<usize>, consistency: Consistency, seed: u64) -> (Recorded, u64) {
    let mut rng = fastrand::Rng::with_seed(seed);
    // The content of a lost member is known only for whole blocks, so the load writes whole blocks.
    let load = Load { members: 4, unit: 8, ..random_load(&mut rng, lost) };
    let (mut rig, tape, base) = recording(load, consistency, Planted::Nothing);
    let mut hooks = Vec::new();
    for member in rig.members.iter_mut().flatten() {
        let hook = Arc::new(HookDevice::new(member.clone()));
        *member = hook.clone();
        hooks.push(hook);
    }
    let array = Arc::new(rig.start());
    let gathering = Arc::new(Gathering {
        array: array.clone(),
        hooks,
        tape: tape.clone(),
        late: Arc::default(),
    });
    let (chunk, mut number, mut ops) = (load.chunk / SECTOR, 1, Vec::new());
    for _ in 0..load.ops / 3 {
        let from = rng.u64(..chunk) / load.unit * load.unit;
        let to = from + rng.u64(1..=chunk - from).next_multiple_of(load.unit).min(chunk - from);
        let row = rng.u64(..load.rows);
        let mut chunks = [0, 1, 2].map(|index| (row * 3 + index) * chunk);
        rng.shuffle(&mut chunks);
        let kind = [Kind::Read, Kind::Write][rng.usize(..2)];
        let durable = rng.u8(..4) == 0;
        let ranges = chunks.map(|at| (at + from, at + to));
        ops.extend(gathering.round(kind, number, &ranges, durable));
        number += 3;
        if rng.u8(..3) == 0 {
            let asked = tape.mark();
            array.flush().unwrap();
            let returned = tape.mark();
            ops.push((number, Op { from: 0, to: 0, asked, returned, durable: false }));
            number += 1;
        }
    }
    ops.sort_by_key(|(number, _)| *number);
    let ops = ops.into_iter().map(|(_, op)| op).collect();
    (Recorded { rig, tape, base, ops }, array.statistics().gathered)
}

/// Checks the crash states of gathered writes. The array is whole, or lacks the member `lost`. With
/// a log, the states of a whole array are also checked without one member, as if it had been lost
/// in the crash.
fn check_gathered(seed: u64, lost: Option<usize>, consistency: Consistency) -> (usize, u64) {
    println!("seed {seed}");
    let (recorded, gathered) = record_gathered(lost, consistency, seed);
    let mut rng = fastrand::Rng::with_seed(seed);
    let logged = recorded.rig.log().is_some();
    let absent = [lost, logged.then(|| lost.unwrap_or(rng.usize(..4)))];
    let states = absent.map(|lost| {
        let checked = check_states(&recorded, lost, Recovery::AsMeant, 2, &mut rng);
        checked.unwrap_or_else(|error| panic!("seed {seed} without {lost:?}: {error}"))
    });
    (states.iter().sum(), gathered)
}

#[test]
fn crash_states_of_gathered_writes_are_recovered() {
    let bitmap = Consistency::Bitmap { chunk: 32768, bits: vec![0; 8] };
    let (mut states, mut gathered) = (0, 0);
    for seed in 7100..7103 {
        for (lost, consistency) in [
            (None, ppl()),
            (None, bitmap.clone()),
            (None, Consistency::Resync),
            (Some(seed as usize % 4), ppl()),
        ] {
            let counts = check_gathered(seed, lost, consistency);
            (states, gathered) = (states + counts.0, gathered + counts.1);
        }
    }
    println!("{states} states, {gathered} writes gathered");
    assert!(gathered > 50, "{gathered} writes were gathered");
}
