//! Crash states of an array: after every cut between member writes, with unflushed writes kept,
//! dropped and torn. Recovery must make parity right on every row, keep all data that was
//! acknowledged and flushed, and change only data that was being written.

mod gathered;
use crate::rig::recovery::{apply_logs, resync_row, sum_of_others};
use crate::rig::tape::{Kept, Planted, State, States, Tape, TapeDevice, What};
use crate::rig::{DATA_OFFSET, Rig};
use lanefs_device::Device;
use lanefs_lanes::sync::Arc;
use lanefs_lanes::sync::unscheduled::Mutex;
use lanefs_lanes::sync::unscheduled::atomic::{AtomicU64, Ordering};
use lanefs_raid5::{Array, Consistency, Layout};
use std::time::{Duration, Instant};

const SECTOR: u64 = 512;
const SIGNATURE: u32 = 7;

/// One write of the load, or one flush.
#[derive(Debug, Clone)]
struct Op {
    /// The first sector, and the sector after the last; both zero for a flush.
    from: u64,
    to: u64,
    /// The number of events on the tape when the operation started, and when it returned.
    asked: usize,
    returned: usize,
    durable: bool,
}

#[derive(Debug, Clone, Copy)]
struct Load {
    layout: Layout,
    members: usize,
    chunk: u64,
    rows: u64,
    threads: u64,
    ops: usize,
    lost: Option<usize>,
    carries: usize,
    /// Writes start and end at multiples of this many sectors.
    unit: u64,
}

struct Recorded {
    rig: Rig,
    tape: Arc<Tape>,
    base: Vec<Vec<u8>>,
    /// The operations. Operations on the same sector are listed in the order in which they ran,
    /// because only one thread writes each sector.
    ops: Vec<Op>,
}

/// Returns the content of a sector in a write: the numbers of the write and the sector, and then
/// words computed from them.
fn stamp(op: u64, sector: u64) -> [u8; SECTOR as usize] {
    let mut bytes = [0; SECTOR as usize];
    for (i, word) in bytes.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let mixed = (op << 32 | sector).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(i as u32);
        *word = (if i == 0 { op << 32 | sector } else { mixed }).to_le_bytes();
    }
    bytes
}

/// Returns the number of the write that a sector's content comes from; 0 for the initial content.
fn stamped(bytes: &[u8], sector: u64) -> Option<u64> {
    let first = u64::from_le_bytes(*bytes.first_chunk()?);
    let op = first >> 32;
    (bytes == stamp(op, sector)).then_some(op)
}

/// Returns an array of recording members, their tape, and their initial content: every sector is
/// stamped with 0, and parity is right.
fn recording(
    load: Load,
    consistency: Consistency,
    planted: Planted,
) -> (Rig, Arc<Tape>, Vec<Vec<u8>>) {
    let mut rig = Rig::new(load.layout, load.members, load.chunk, load.rows).with(consistency);
    rig.policies.log_carries = load.carries;
    let tape = Arc::new(Tape::default());
    let shape = rig.shape;
    let mut base = vec![vec![0; (DATA_OFFSET + shape.member_len()) as usize]; load.members];
    for sector in 0..shape.len() / SECTOR {
        let place = shape.place(sector * SECTOR);
        let slot = shape.data_slot(place.row, place.index);
        let at = (DATA_OFFSET + place.row * shape.chunk() + place.offset) as usize;
        base[slot][at..at + SECTOR as usize].copy_from_slice(&stamp(0, sector));
    }
    (0..shape.rows()).for_each(|row| resync_row(&mut base, &shape, row));
    for (member, bytes) in base.iter().enumerate() {
        let bytes = Mutex::new(bytes.clone());
        let device: Arc<dyn Device> =
            Arc::new(TapeDevice { tape: tape.clone(), member, bytes, planted });
        rig.members[member] = (Some(member) != load.lost).then_some(device);
    }
    rig.record.tape.set(tape.clone()).unwrap();
    (rig, tape, base)
}

/// Runs a random load on recording members.
fn record(load: Load, consistency: Consistency, planted: Planted, seed: u64) -> Recorded {
    let (rig, tape, base) = recording(load, consistency, planted);
    let array = rig.start();
    let ops = Mutex::new(Vec::new());
    let next = AtomicU64::new(1);
    std::thread::scope(|s| {
        for thread in 0..load.threads {
            let (array, ops, next, tape) = (&array, &ops, &next, &tape);
            s.spawn(move || {
                let mut rng = fastrand::Rng::with_seed(seed + thread);
                for _ in 0..load.ops {
                    run_one(array, load, thread, &mut rng, next, tape, ops);
                }
            });
        }
    });
    let mut ops = ops.into_inner().unwrap();
    ops.sort_by_key(|(number, _)| *number);
    let ops = ops.into_iter().map(|(_, op)| op).collect();
    Recorded { rig, tape, base, ops }
}

fn run_one(
    array: &Array,
    load: Load,
    thread: u64,
    rng: &mut fastrand::Rng,
    next: &AtomicU64,
    tape: &Tape,
    ops: &Mutex<Vec<(u64, Op)>>,
) {
    let number = next.fetch_add(1, Ordering::SeqCst);
    let asked = tape.mark();
    let mut op = Op { from: 0, to: 0, asked, returned: 0, durable: false };
    if rng.u8(..6) == 0 {
        array.flush().unwrap();
    } else {
        // With `n` threads, each writes every n-th stretch, so that threads share rows but not
        // sectors.
        let stretch = array.len() / SECTOR / 4 / load.threads / load.unit * load.unit;
        let base = (rng.u64(..4) * load.threads + thread) * stretch;
        let most = if rng.bool() { 8 } else { stretch };
        let from = rng.u64(..stretch) / load.unit * load.unit;
        let len = rng.u64(1..=most).next_multiple_of(load.unit).min(stretch - from);
        (op.from, op.to) = (base + from, base + from + len);
        op.durable = rng.u8(..5) == 0;
        let bytes: Vec<u8> = (op.from..op.to).flat_map(|s| stamp(number, s)).collect();
        if op.durable {
            array.write_durable_at(op.from * SECTOR, &bytes).unwrap();
        } else {
            array.write_at(op.from * SECTOR, &bytes).unwrap();
        }
    }
    op.returned = tape.mark();
    ops.lock().unwrap().push((number, op));
}

impl Recorded {
    /// Returns for each sector the oldest write whose content is allowed at this cut. Later writes
    /// are allowed too.
    fn floor(&self, cut: usize) -> Vec<u64> {
        let mut floor = vec![0; (self.rig.shape.len() / SECTOR) as usize];
        // A completed flush keeps every write that returned before the flush started.
        let flushed = self
            .ops
            .iter()
            .filter(|op| op.from == op.to && op.returned <= cut)
            .map(|op| op.asked)
            .max()
            .unwrap_or(0);
        for (at, op) in self.ops.iter().enumerate() {
            let kept = op.returned <= flushed || (op.durable && op.returned <= cut);
            if kept {
                (op.from..op.to).for_each(|s| floor[s as usize] = at as u64 + 1);
            }
        }
        floor
    }

    /// Checks one crash state; `recover` makes parity right, as a start of the array does.
    fn check(
        &self,
        cut: usize,
        mut state: State,
        lost: Option<usize>,
        recover: Recovery,
    ) -> Result<(), String> {
        let shape = self.rig.shape;
        if let Some(lost) = lost {
            state.members[lost].fill(0xee);
        }
        let log = self.rig.log();
        match (recover, log) {
            (Recovery::Nothing, _) => {}
            (Recovery::AsMeant, Some(log)) => {
                apply_logs(&mut state.members, lost, &shape, log, SIGNATURE);
            }
            (Recovery::AsMeant, None) => {
                let dirty = |row: &u64| lost.is_none() && self.dirty(&state, *row);
                let rows: Vec<u64> = (0..shape.rows()).filter(dirty).collect();
                rows.iter().for_each(|row| resync_row(&mut state.members, &shape, *row));
            }
        }
        if let Some(lost) = lost {
            for row in 0..shape.rows() {
                let sum = sum_of_others(&state.members, &shape, row, lost);
                let at = (DATA_OFFSET + row * shape.chunk()) as usize;
                state.members[lost][at..at + sum.len()].copy_from_slice(&sum);
            }
        } else {
            for row in 0..shape.rows() {
                let parity = shape.parity_slot(row);
                let sum = sum_of_others(&state.members, &shape, row, parity);
                let at = (DATA_OFFSET + row * shape.chunk()) as usize;
                if state.members[parity][at..at + sum.len()] != sum {
                    return Err(format!("cut {cut}: parity of row {row} is wrong"));
                }
            }
        }
        self.check_content(cut, &state, lost)
    }

    /// Returns whether a start without a log would resynchronise this row.
    fn dirty(&self, state: &State, row: u64) -> bool {
        match &self.rig.consistency {
            Consistency::Bitmap { chunk, .. } => {
                let bit = row * self.rig.shape.chunk() / chunk;
                state.bits.get((bit / 8) as usize).is_some_and(|b| b >> (bit % 8) & 1 == 1)
            }
            _ => true,
        }
    }

    fn check_content(&self, cut: usize, state: &State, lost: Option<usize>) -> Result<(), String> {
        let (shape, floor) = (self.rig.shape, self.floor(cut));
        for sector in 0..shape.len() / SECTOR {
            let place = shape.place(sector * SECTOR);
            let slot = shape.data_slot(place.row, place.index);
            let at = (DATA_OFFSET + place.row * shape.chunk() + place.offset) as usize;
            let found = stamped(&state.members[slot][at..at + SECTOR as usize], sector);
            let floor = floor[sector as usize];
            if found == Some(floor) {
                continue;
            }
            let newer = |op: u64| {
                op > floor
                    && self
                        .ops
                        .get(op as usize - 1)
                        .is_some_and(|o| o.asked <= cut && (o.from..o.to).contains(&sector))
            };
            if found.is_some_and(newer) {
                continue;
            }
            // The block was being written, and the lost member may have had the only copy of its
            // content.
            if lost == Some(slot) && self.is_at_stake(cut, place, &in_flight(&self.ops, cut)) {
                continue;
            }
            return Err(format!("cut {cut}: sector {sector} has {found:?}, not {floor} or newer"));
        }
        Ok(())
    }

    /// Returns whether a write in flight may change the contents at `place`, which is on a lost
    /// member. A write to the same block may change them. Without a log, a write to another block
    /// with the same parity may change them too.
    fn is_at_stake(&self, cut: usize, place: lanefs_raid5::Location, in_flight: &[usize]) -> bool {
        let shape = self.rig.shape;
        let block = place.offset / 4096;
        let logged = self.rig.log().is_some();
        in_flight.iter().map(|at| &self.ops[*at]).filter(|op| op.asked <= cut).any(|op| {
            (op.from..op.to).any(|sector| {
                let there = shape.place(sector * SECTOR);
                there.row == place.row
                    && there.offset / 4096 == block
                    && (!logged || there.index == place.index)
            })
        })
    }
}

/// Returns the writes that had started at this cut but are not certain to be durable.
fn in_flight(ops: &[Op], cut: usize) -> Vec<usize> {
    let flushes = ops.iter().filter(|op| op.from == op.to && op.returned <= cut);
    let flushed = flushes.map(|op| op.asked).max().unwrap_or(0);
    (0..ops.len())
        .filter(|at| {
            let op = &ops[*at];
            op.from != op.to
                && op.asked <= cut
                && op.returned > flushed
                && !(op.durable && op.returned <= cut)
        })
        .collect()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Recovery {
    AsMeant,
    /// Does no recovery: a planted bug.
    Nothing,
}

/// Checks crash states of one recorded load: at each cut, two fixed states and `each` random ones.
/// Returns the number of states.
fn check_states(
    recorded: &Recorded,
    lost: Option<usize>,
    recover: Recovery,
    each: usize,
    rng: &mut fastrand::Rng,
) -> Result<usize, String> {
    let events = recorded.tape.events();
    let mut states = States::new(&events, recorded.base.clone());
    let mut count = 0;
    for cut in 0..=events.len() {
        let kinds = [Kept::All, Kept::None]
            .into_iter()
            .chain([Kept::Some, Kept::Torn].into_iter().cycle().take(each));
        for kept in kinds {
            let state = states.at(cut, kept, rng);
            recorded.check(cut, state, lost, recover).map_err(|e| format!("{kept:?} {e}"))?;
            count += 1;
        }
    }
    Ok(count)
}

fn random_load(rng: &mut fastrand::Rng, lost: Option<usize>) -> Load {
    Load {
        layout: Layout::ALL[rng.usize(..6)],
        members: rng.usize(3..=5),
        chunk: [4096, 8192, 16384][rng.usize(..3)],
        rows: rng.u64(8..13),
        threads: [1, 1, 2, 3][rng.usize(..4)],
        ops: rng.usize(10..30),
        lost,
        carries: [0, 3, 32][rng.usize(..3)],
        // The content of a lost member is known only for whole blocks, so the load then writes
        // whole blocks.
        unit: if lost.is_some() { 8 } else { 1 },
    }
}

fn ppl() -> Consistency {
    Consistency::PartialParity { signature: SIGNATURE }
}

/// Checks crash states of random loads until at least `wanted` states are checked.
fn sample(seed: u64, wanted: usize, degraded: bool) -> usize {
    println!("seed {seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut count = 0;
    while count < wanted {
        let lost = degraded.then(|| rng.usize(..3));
        let load = random_load(&mut rng, lost);
        let consistency = match rng.u8(..4) {
            0 => Consistency::Bitmap { chunk: load.chunk.max(8192), bits: vec![0; 8] },
            1 if !degraded => Consistency::Resync,
            _ => ppl(),
        };
        let seed = rng.u64(..);
        let recorded = record(load, consistency, Planted::Nothing, seed);
        let checked = check_states(&recorded, lost, Recovery::AsMeant, 6, &mut rng);
        count += checked.unwrap_or_else(|e| panic!("{e}\nload {load:?} of seed {seed}"));
    }
    count
}

#[test]
fn a_sample_of_crash_states_of_a_whole_array_is_recovered() {
    println!("{} states", sample(101, 3000, false));
}

#[test]
fn a_sample_of_crash_states_of_a_degraded_array_is_recovered() {
    println!("{} states", sample(102, 3000, true));
}

#[test]
#[ignore = "long: 100,000 crash states under `make verify`, as many as its seconds allow otherwise"]
fn a_hundred_thousand_crash_states_are_recovered() {
    let from = |name: &str| std::env::var(name).ok().and_then(|v| v.parse::<u64>().ok());
    let seed = from("LANEFS_SEED").unwrap_or_else(|| fastrand::u64(..1 << 32));
    let seconds = from("LANEFS_SECONDS").unwrap_or(5);
    // A long run must check this number of states; a short run stops when its time is over.
    let owed = if seconds > 5 { 100_000 } else { 0 };
    let (begun, mut count, mut round) = (Instant::now(), 0, 0);
    while count < owed || begun.elapsed() < Duration::from_secs(seconds) {
        count += sample(seed + round, 2000, round % 2 == 1);
        round += 1;
    }
    println!("{count} states in {:?}", begun.elapsed());
}

/// Returns whether a crash state of any of 20 random loads shows the bug.
fn finds(planted: Planted, recover: Recovery) -> bool {
    let mut rng = fastrand::Rng::with_seed(103);
    (0..20).any(|_| {
        let load = Load { threads: 1, carries: 32, ops: 40, ..random_load(&mut rng, None) };
        let recorded = record(load, ppl(), planted, rng.u64(..));
        check_states(&recorded, None, recover, 6, &mut rng).is_err()
    })
}

#[test]
fn a_recovery_that_does_nothing_is_found() {
    assert!(finds(Planted::Nothing, Recovery::Nothing));
}

#[test]
fn a_log_that_is_not_durable_before_the_data_is_found() {
    assert!(finds(Planted::DurableIsCached, Recovery::AsMeant));
}

#[test]
fn partial_parity_that_is_not_durable_before_its_header_is_found() {
    assert!(finds(Planted::PartialParityIsCached, Recovery::AsMeant));
}

#[test]
fn a_member_that_is_not_flushed_is_found() {
    assert!(finds(Planted::NoFlush(1), Recovery::AsMeant));
}

/// Runs a load in which the log starts again at its first byte many times. Checks, for each write
/// to the log's first byte, the states in which a crash tears this write: the write keeps its first
/// sectors, its last sectors, or random sectors. Returns the number of states.
fn check_laps(carries: usize, lost: Option<usize>, torn: usize) -> Result<usize, String> {
    let seed = 104 + carries as u64;
    println!("seed {seed}");
    let load = Load {
        layout: Layout::LeftSymmetric,
        members: 3,
        // With chunks of two blocks, the first unit of a lap (`log.rs`) has one or two
        // blocks of parity, so it may be longer than the first unit of the previous lap.
        chunk: 8192,
        rows: 9,
        threads: 1,
        ops: 600,
        lost,
        carries,
        unit: 8,
    };
    let recorded = record(load, ppl(), Planted::Nothing, seed);
    let start = recorded.rig.log().unwrap().offset;
    let events = recorded.tape.events();
    let mut states = States::new(&events, recorded.base.clone());
    let mut rng = fastrand::Rng::with_seed(seed);
    let (mut laps, mut count) = (0, 0);
    for (cut, event) in events.iter().enumerate() {
        let What::Write { offset, data, .. } = &event.what else { continue };
        if *offset != start {
            continue;
        }
        laps += 1;
        let sectors = data.len() / SECTOR as usize;
        let first = (0..=sectors).map(|to| Kept::Sectors { from: 0, to });
        let last = (1..sectors).map(|from| Kept::Sectors { from, to: sectors });
        for kept in first.chain(last).chain(vec![Kept::Torn; torn]) {
            let state = states.at(cut, kept, &mut rng);
            let checked = recorded.check(cut, state, lost, Recovery::AsMeant);
            checked.map_err(|e| format!("{kept:?} of {sectors} sectors, {e}"))?;
            count += 1;
        }
    }
    assert!(laps > 20, "{laps}");
    Ok(count)
}

#[test]
fn a_log_with_a_torn_start_gives_no_old_entries() {
    for carries in [0, 32] {
        for lost in [None, Some(1)] {
            let count = check_laps(carries, lost, 4);
            println!("{} states", count.unwrap_or_else(|e| panic!("{carries}, {lost:?}: {e}")));
        }
    }
}
