//! Crash states of arrays that are created and assembled, crash, and are assembled again. Recovery
//! uses the superblocks, the bitmap and the log on the members.

use crate::rig;
use crate::rig::tape::{Kept, Planted, States, Tape, TapeDevice};
use lanefs_device::{Access, Device};
use lanefs_lanes::sync::Arc;
use lanefs_lanes::sync::unscheduled::Mutex;
use lanefs_ondisk::md::Uuid;
use lanefs_raid5::{
    ArrayOptions, Candidate, CreateOptions, Ended, InitialParity, Layout, NewConsistency,
    NewMember, OpenArray, Policies, Rebuild, Scrub, Upkeep, create,
};
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const CHUNK: u64 = 16 << 10;
const MEMBER: usize = 4 << 20;
const BLOCK: u64 = 4096;
/// Blocks of the array that the load uses.
const BLOCKS: u64 = 96;

/// A write of whole blocks, or a flush.
struct Op {
    blocks: std::ops::Range<u64>,
    /// The numbers of events on the tape at two moments: when the operation started, and when it
    /// returned.
    asked: usize,
    returned: usize,
}

struct Recorded {
    consistency: NewConsistency,
    /// The slot whose member is being rebuilt.
    rebuilt: Option<usize>,
    base: Vec<Vec<u8>>,
    tape: Arc<Tape>,
    ops: Vec<Op>,
}

fn stamp(op: usize, block: u64) -> Vec<u8> {
    let mut rng = fastrand::Rng::with_seed((op as u64) << 32 | block);
    let mut bytes = vec![0; BLOCK as usize];
    rng.fill(&mut bytes);
    bytes[..8].copy_from_slice(&(op as u64).to_le_bytes());
    bytes
}

fn devices(members: &[Vec<u8>], tape: &Arc<Tape>) -> Vec<(PathBuf, Arc<dyn Device>)> {
    let device = |(member, bytes): (usize, &Vec<u8>)| -> (PathBuf, Arc<dyn Device>) {
        let (tape, bytes, planted) = (tape.clone(), Mutex::new(bytes.clone()), Planted::Nothing);
        (format!("member {member}").into(), Arc::new(TapeDevice { tape, member, bytes, planted }))
    };
    members.iter().enumerate().map(device).collect()
}

fn assemble(
    devices: &[(PathBuf, Arc<dyn Device>)],
    lost: Option<usize>,
    carries: usize,
) -> Result<OpenArray, String> {
    let candidate = |(name, device): &(PathBuf, Arc<dyn Device>)| {
        Candidate::read(Path::new(name), device.clone()).map_err(|e| e.to_string())
    };
    let there = devices.iter().enumerate().filter(|(slot, _)| Some(*slot) != lost);
    let candidates = there.map(|(_, d)| candidate(d)).collect::<Result<Vec<_>, _>>()?;
    let options = ArrayOptions {
        upkeep: Upkeep::Caller,
        policies: Policies { log_carries: carries, ..Policies::default() },
        ..ArrayOptions::new(Access::ReadWrite)
    };
    let absent = usize::from(lost.is_some());
    OpenArray::assemble(candidates, absent, options).map_err(|e| e.to_string())
}

/// Creates an array, and writes to it at random.
fn record(seed: u64, consistency: NewConsistency, count: usize) -> Recorded {
    let mut rng = fastrand::Rng::with_seed(seed);
    let members = rng.usize(3..=5);
    let empty = Arc::new(Tape::default());
    let mut made = devices(&vec![vec![0; MEMBER]; members], &empty);
    let options = CreateOptions {
        set: Uuid([seed as u8; 16]),
        devices: (0..members).map(|m| Uuid([m as u8; 16])).collect(),
        name: "crash:test".into(),
        layout: Layout::ALL[rng.usize(..6)],
        chunk: CHUNK,
        consistency,
        size: None,
        parity: InitialParity::Right,
        missing: None,
    };
    create(&made, &options).unwrap();
    // At the start every block of the load has a stamp, and the array is clean.
    let array = assemble(&made, None, 32).unwrap();
    for block in 0..BLOCKS {
        array.write_at(block * BLOCK, &stamp(0, block)).unwrap();
    }
    array.close().unwrap();
    let wants_one = consistency == NewConsistency::PartialParity && rng.bool();
    let rebuilt = wants_one.then(|| rng.usize(..members));
    if let Some(slot) = rebuilt {
        let new = devices(&vec![vec![0x5a; MEMBER]; members], &empty).swap_remove(slot);
        let array = assemble(&made, Some(slot), 32).unwrap();
        let (name, device) = new.clone();
        array.add(NewMember { name, device, uuid: Uuid([0x99; 16]) }).unwrap();
        rebuild_some(&array, slot, rng.u64(1..12));
        array.close().unwrap();
        made[slot] = new;
    }
    let base: Vec<Vec<u8>> = made.iter().map(|(_, d)| rig::content(&**d)).collect();
    let tape = Arc::new(Tape::default());
    let array = assemble(&devices(&base, &tape), None, [0, 4, 32][rng.usize(..3)]).unwrap();
    let mut ops = Vec::new();
    for number in 1..=count {
        let asked = tape.mark();
        let from = rng.u64(..BLOCKS);
        let most = if rng.bool() { 2 } else { 20 };
        let mut blocks = from..BLOCKS.min(from + rng.u64(1..=most));
        match rng.u8(..8) {
            0 => {
                blocks = 0..0;
                array.flush().unwrap();
            }
            1 => array.array().settle().unwrap(),
            2 if rebuilt.is_some() => rebuild_some(&array, rebuilt.unwrap(), rng.u64(1..3)),
            _ => {
                let bytes: Vec<u8> = blocks.clone().flat_map(|b| stamp(number, b)).collect();
                array.write_at(from * BLOCK, &bytes).unwrap();
                ops.push(Op { blocks, asked, returned: tape.mark() });
                continue;
            }
        }
        // Only a flush makes earlier writes durable. So a call of `settle` or of `rebuild_some` is
        // recorded as a flush that never returns.
        let returned = if blocks.is_empty() { tape.mark() } else { usize::MAX };
        ops.push(Op { blocks: 0..0, asked, returned });
    }
    Recorded { consistency, rebuilt, base, tape, ops }
}

/// Continues the rebuild of the member in `slot` by this many rows, and records the progress.
fn rebuild_some(array: &OpenArray, slot: usize, rows: u64) {
    let mut left = rows;
    let on = &mut |_| {
        left -= 1;
        if left > 0 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    };
    array.array().rebuild(slot, Rebuild::Whole, on).unwrap();
}

impl Recorded {
    /// Returns the writes that each block may hold at this cut, and the blocks of writes in flight.
    fn allowed(&self, cut: usize) -> (Vec<BTreeSet<usize>>, BTreeSet<u64>) {
        let flushes = self.ops.iter().filter(|op| op.blocks.is_empty() && op.returned <= cut);
        let flushed = flushes.map(|op| op.asked).max().unwrap_or(0);
        let mut allowed = vec![BTreeSet::from([0]); BLOCKS as usize];
        let mut in_flight = BTreeSet::new();
        for (at, op) in self.ops.iter().enumerate().filter(|(_, op)| op.asked <= cut) {
            for block in op.blocks.clone() {
                if op.returned <= flushed {
                    allowed[block as usize].clear();
                } else {
                    in_flight.insert(block);
                }
                allowed[block as usize].insert(at + 1);
            }
        }
        (allowed, in_flight)
    }

    /// Assembles a crash state and checks the array. A torn block may mix sectors of several
    /// allowed writes.
    fn check(&self, cut: usize, members: &[Vec<u8>], lost: Option<usize>) -> Result<(), String> {
        let tape = Arc::new(Tape::default());
        let array = assemble(&devices(members, &tape), lost, 32)?;
        let on = &mut |_| ControlFlow::Continue(());
        if lost.is_none() {
            if let Some(slot) = self.rebuilt {
                let ended = array.array().rebuild(slot, Rebuild::Whole, on);
                assert_eq!(ended.map_err(|e| e.to_string())?, Ended::Done);
            }
            let ended = array.array().resync(on).map_err(|e| e.to_string())?;
            assert_eq!(ended, Ended::Done);
            let (report, _) = array.array().scrub(Scrub::Check, on).map_err(|e| e.to_string())?;
            if report.wrong_blocks > 0 {
                return Err(format!("{} blocks of parity are wrong", report.wrong_blocks));
            }
        }
        let (allowed, in_flight) = self.allowed(cut);
        let shape = *array.array().geometry();
        for block in 0..BLOCKS {
            let place = shape.place(block * BLOCK);
            let slot = shape.data_slot(place.row, place.index);
            if [lost, self.rebuilt].contains(&Some(slot)) && in_flight.contains(&block) {
                continue;
            }
            let mut got = vec![0; BLOCK as usize];
            array.read_at(block * BLOCK, &mut got).map_err(|e| e.to_string())?;
            let stamps: Vec<Vec<u8>> =
                allowed[block as usize].iter().map(|op| stamp(*op, block)).collect();
            let right = |at: usize| stamps.iter().any(|s| s[at..at + 512] == got[at..at + 512]);
            if !(0..BLOCK as usize).step_by(512).all(right) {
                return Err(format!("block {block} has none of {:?}", allowed[block as usize]));
            }
        }
        Ok(())
    }
}

/// Checks approximately `cuts` crash states of one recorded run; returns the number of states.
fn check_states(seed: u64, cuts: usize) -> usize {
    let mut rng = fastrand::Rng::with_seed(seed);
    let consistency = match seed % 3 {
        0 => NewConsistency::Bitmap(Some(64 << 10)),
        1 => NewConsistency::PartialParity,
        _ => NewConsistency::Resync,
    };
    let recorded = record(seed, consistency, 30);
    let events = recorded.tape.events();
    let mut states = States::new(&events, recorded.base.clone());
    let step = (events.len() / cuts).max(1);
    let mut count = 0;
    for cut in (rng.usize(..step)..=events.len()).step_by(step) {
        for kept in [Kept::None, Kept::Torn] {
            let state = states.at(cut, kept, &mut rng);
            // An array with a log and without a rebuild may also lose a member in the crash.
            let may_lose =
                recorded.consistency == NewConsistency::PartialParity && recorded.rebuilt.is_none();
            let lost = (may_lose && rng.bool()).then(|| rng.usize(..recorded.base.len()));
            recorded.check(cut, &state.members, lost).unwrap_or_else(|why| {
                let rebuilt = recorded.rebuilt;
                panic!("seed {seed}, {consistency:?}, cut {cut}, {kept:?}, lost {lost:?}, rebuilt {rebuilt:?}: {why}")
            });
            count += 1;
        }
    }
    count
}

#[test]
fn a_few_crashed_arrays_are_assembled_and_keep_their_promises() {
    for seed in 0..3 {
        println!("seed {seed}: {} states", check_states(seed, 12));
    }
}

#[test]
#[ignore = "long: as many crashed arrays as the seconds allow"]
fn many_crashed_arrays_are_assembled_and_keep_their_promises() {
    let from = |name: &str| std::env::var(name).ok().and_then(|v| v.parse::<u64>().ok());
    let first = from("LANEFS_SEED").unwrap_or_else(|| fastrand::u64(..1 << 32));
    let time = Duration::from_secs(from("LANEFS_SECONDS").unwrap_or(5));
    println!("first seed {first}");
    let (begun, mut count, mut seed) = (Instant::now(), 0, first);
    while begun.elapsed() < time {
        count += check_states(seed, 60);
        seed += 1;
    }
    println!("{count} states of {} arrays", seed - first);
}
