//! Members that cannot read single blocks until these are written. Each phase of an array's life
//! loses exactly the blocks that cannot be computed, and no member.

use crate::rig;
use crate::rig::made::{ALL, LEN, Members, scribble};
use lanefs_device::{
    Access, Device, DeviceError, Operation, RamDevice, ReadKind, WriteKind, forward,
};
use lanefs_lanes::sync::Arc;
use lanefs_lanes::sync::unscheduled::Mutex;
use lanefs_ondisk::md::{Recovery, Uuid};
use lanefs_raid5::{
    ArrayOptions, Candidate, InitialParity, NewConsistency, NewMember, OpenArray, Rebuild,
    Replaced, Scrub, Standing, Upkeep,
};
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

const COUNT: usize = 4;
const BLOCK: u64 = 4096;
/// The blocks of a chunk.
const PER_CHUNK: u64 = 8;

/// A device that cannot read some blocks until they are written, or whose next flush fails and
/// loses what was written since the last one.
struct Sectors {
    below: Arc<dyn Device>,
    flushed: Mutex<Option<RamDevice>>,
    bad: Mutex<BTreeSet<u64>>,
    /// The operation that fails once, after this many of its kind.
    fails: Mutex<Option<(Operation, u32)>>,
    read_only: bool,
}

impl Sectors {
    fn new(below: Arc<dyn Device>) -> Sectors {
        let (flushed, bad) = (Mutex::default(), Mutex::default());
        Sectors { below, flushed, bad, fails: Mutex::default(), read_only: false }
    }

    /// Fails the operation if it is the one that is to fail.
    fn begin(&self, operation: Operation, offset: u64) -> Result<(), DeviceError> {
        let mut fails = self.fails.lock().unwrap();
        match &mut *fails {
            Some((which, 0)) if *which == operation => {
                *fails = None;
                Err(failed(operation, offset))
            }
            Some((which, after)) if *which == operation => {
                *after -= 1;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn heal(&self, offset: u64, len: u64) {
        let whole = offset.div_ceil(BLOCK)..(offset + len) / BLOCK;
        self.bad.lock().unwrap().retain(|block| !whole.contains(block));
    }
}

fn failed(operation: Operation, offset: u64) -> DeviceError {
    DeviceError::new(operation, offset, 0, std::io::Error::other("planted"))
}

impl Device for Sectors {
    forward!(below: len, discard);
    fn is_read_only(&self) -> bool {
        self.read_only
    }
    fn read(&self, offset: u64, buf: &mut [u8], kind: ReadKind) -> Result<(), DeviceError> {
        let range = offset / BLOCK..(offset + buf.len() as u64).div_ceil(BLOCK);
        match self.bad.lock().unwrap().range(range).next() {
            Some(_) => Err(failed(Operation::Read, offset)),
            None => self.below.read(offset, buf, kind),
        }
    }
    fn write(&self, mut offset: u64, bufs: &[&[u8]], kind: WriteKind) -> Result<(), DeviceError> {
        if let (true, Some(flushed)) = (kind.is_durable(), &*self.flushed.lock().unwrap()) {
            flushed.write(offset, bufs, kind)?;
        }
        let durable = bufs.concat();
        let bufs = if kind.is_durable() { &[&durable[..]] } else { bufs };
        for buf in bufs {
            assert!(!self.read_only, "a write at {offset}");
            self.begin(Operation::Write, offset)?;
            self.below.write_at(offset, buf)?;
            self.heal(offset, buf.len() as u64);
            offset += buf.len() as u64;
        }
        Ok(())
    }
    fn flush(&self) -> Result<(), DeviceError> {
        self.begin(Operation::Flush, 0)?;
        let Some(flushed) = self.flushed.lock().unwrap().take() else { return Ok(()) };
        let mut all = vec![0; LEN as usize];
        flushed.read_at(0, &mut all)?;
        self.below.write_at(0, &all)?;
        Err(failed(Operation::Flush, 0))
    }
}

/// A block position of a member: the row, the block in the chunk, the slot.
type Place = (u64, u64, usize);

/// An array on devices that fail, and its content.
struct Trial {
    devices: Vec<Arc<Sectors>>,
    members: Members,
    data: u64,
    rows: u64,
    model: Vec<u8>,
    /// What blocks may contain besides the content of `model`, after a write to them failed.
    or: Vec<(u64, Vec<u8>)>,
    bad: Vec<Place>,
}

impl Trial {
    /// Creates an array with random content; if it is dirty, it was not closed.
    fn new(rng: &mut fastrand::Rng, consistency: NewConsistency, dirty: bool) -> Trial {
        let made = Members::create(COUNT, consistency, InitialParity::Right);
        let array = made.open(None).expect("an array");
        let model = scribble(&array, rng.u64(..), 12);
        let copies = made.copies();
        array.close().expect("closed");
        Trial::of(if dirty { copies } else { made }, model)
    }

    fn of(mut members: Members, model: Vec<u8>) -> Trial {
        let mut devices = Vec::new();
        for (_, device) in &mut members.0 {
            let sectors = Arc::new(Sectors::new(device.clone()));
            *device = sectors.clone();
            devices.push(sectors);
        }
        let data = members.candidates(None)[0].superblock.data().offset;
        let rows = model.len() as u64 / (PER_CHUNK * BLOCK * (COUNT as u64 - 1));
        Trial { devices, members, data, rows, model, or: Vec::new(), bad: Vec::new() }
    }

    /// Makes one or two blocks unreadable: at the edges, in one row, or in one position.
    fn spoil(&mut self, rng: &mut fastrand::Rng, spare: Option<usize>) {
        let slots: Vec<usize> = (0..COUNT).filter(|slot| Some(*slot) != spare).collect();
        let row = [0, 1, 2, 3, self.rows - 1][rng.usize(..5)];
        let block = [0, PER_CHUNK - 1, rng.u64(..PER_CHUNK)][rng.usize(..3)];
        let first = rng.usize(..slots.len());
        self.bad = vec![(row, block, slots[first])];
        let other = slots[(first + 1 + rng.usize(..slots.len() - 1)) % slots.len()];
        match rng.u8(..4) {
            0 => {}
            1 => self.bad.push((row, block, other)),
            2 => self.bad.push((row, (block + 1) % PER_CHUNK, other)),
            _ => self.bad.push(((row + 1) % self.rows, block, other)),
        }
        self.make_unreadable();
    }

    fn make_unreadable(&self) {
        for &(row, block, slot) in &self.bad {
            let at = self.data / BLOCK + row * PER_CHUNK + block;
            self.devices[slot].bad.lock().unwrap().insert(at);
        }
    }

    /// Writes other parity, as a crash before the write of the parity leaves it.
    fn spoil_parity(&self, row: u64, block: u64) {
        let slot = COUNT - 1 - (row % COUNT as u64) as usize;
        let at = self.data + (row * PER_CHUNK + block) * BLOCK;
        self.devices[slot].below.write_at(at, &[0x5a; BLOCK as usize]).expect("a write");
    }

    /// Returns the place of a block of the array: layout left-symmetric, from its description.
    fn place(&self, block: u64) -> Place {
        let (chunk, members) = (block / PER_CHUNK, COUNT as u64);
        let (row, index) = (chunk / (members - 1), chunk % (members - 1));
        let parity = members - 1 - row % members;
        (row, block % PER_CHUNK, ((parity + 1 + index) % members) as usize)
    }

    /// Returns whether the block is lost: neither it nor all others of its position can be read.
    fn is_lost(&self, block: u64, absent: &[usize]) -> bool {
        let (row, at, slot) = self.place(block);
        let mut gone: BTreeSet<usize> = absent.iter().copied().collect();
        gone.extend(self.bad.iter().filter(|bad| (bad.0, bad.1) == (row, at)).map(|bad| bad.2));
        gone.contains(&slot) && gone.len() > 1
    }

    fn lost(&self, absent: Option<usize>) -> BTreeSet<u64> {
        let blocks = self.model.len() as u64 / BLOCK;
        (0..blocks).filter(|block| self.is_lost(*block, absent.as_slice())).collect()
    }

    /// Reads each block of the array: exactly these are lost, and all others have the content.
    fn judge(&self, array: &OpenArray, lost: &BTreeSet<u64>, what: &str) {
        let mut buf = vec![0; BLOCK as usize];
        let mut seen = BTreeSet::new();
        for (block, right) in (0..).zip(self.model.chunks(BLOCK as usize)) {
            match array.read_at(block * BLOCK, &mut buf) {
                Ok(()) => assert!(buf == right, "{what}: block {block}, bad {:?}", self.bad),
                Err(_) => assert!(seen.insert(block)),
            }
        }
        assert_eq!(seen, *lost, "{what}: bad {:?}", self.bad);
    }

    /// Compares parity with the data, without the array: the second reader. Positions with a block
    /// that the device or its bad-block log names are left out.
    fn judge_members(&self, what: &str) {
        let candidates = self.members.candidates(None);
        let named: Vec<_> = candidates.iter().map(|c| c.bad_blocks().expect("a log")).collect();
        for at in (self.data..self.data + self.rows * PER_CHUNK * BLOCK).step_by(BLOCK as usize) {
            let mut sum = vec![0; BLOCK as usize];
            let mut buf = vec![0; BLOCK as usize];
            let read = (0..COUNT).all(|slot| {
                let named = named[slot].iter().any(|bad| bad.start < at + BLOCK && at < bad.end);
                let read = !named && self.members.0[slot].1.read_at(at, &mut buf).is_ok();
                sum.iter_mut().zip(&buf).for_each(|(sum, byte)| *sum ^= byte);
                read
            });
            assert!(!read || sum.iter().all(|byte| *byte == 0), "{what}: parity at {at}");
        }
    }

    fn fresh(&mut self, slot: usize) -> NewMember {
        let device = Arc::new(Sectors::new(rig::made::ram("new").1));
        let name = std::path::PathBuf::from(format!("new{slot}"));
        self.devices[slot] = device.clone();
        self.members.0[slot] = (name.clone(), device.clone());
        NewMember { name, device, uuid: Uuid([77; 16]) }
    }

    /// Closes and opens the array, and writes the lost blocks, after which all of it is right, also
    /// without any one of its members.
    fn settle(self, array: OpenArray, lost: &BTreeSet<u64>, what: &str) {
        let in_sync = |array: &OpenArray| {
            array.array().status().members.iter().all(|s| *s == Standing::InSync)
        };
        assert!(in_sync(&array), "{what}: a member failed");
        array.close().expect("closed");
        self.judge_members(what);
        let array = self.members.open(None).expect("an array");
        self.judge(&array, lost, &format!("{what}, opened again"));
        let row = (COUNT - 1) * (PER_CHUNK * BLOCK) as usize;
        for (at, bytes) in (0..).zip(self.model.chunks(row)) {
            array.write_at(at * row as u64, bytes).expect("a write of a row");
        }
        self.judge(&array, &BTreeSet::new(), what);
        assert!(in_sync(&array), "{what}: a member failed");
        array.close().expect("closed");
        for slot in 0..COUNT {
            let named = self.members.candidates(None)[slot].bad_blocks().expect("a log");
            assert_eq!(named, [], "{what}: slot {slot}");
            let array = self.members.copies().open(Some(slot)).expect("an array");
            self.judge(&array, &BTreeSet::new(), &format!("{what}, without {slot}"));
        }
    }
}

const GO_ON: fn(lanefs_raid5::Progress) -> ControlFlow<()> = |_| ControlFlow::Continue(());

fn clean(rng: &mut fastrand::Rng, consistency: NewConsistency) {
    let mut trial = Trial::new(rng, consistency, false);
    trial.spoil(rng, None);
    let lost = trial.lost(None);
    let array = trial.members.open(None).expect("an array");
    if rng.bool() {
        let (report, _) = array.array().scrub(Scrub::Repair, &mut { GO_ON }).expect("a scrub");
        let pair = trial.bad.len() == 2 && trial.bad[0].1 == trial.bad[1].1;
        let pair = pair && trial.bad[0].0 == trial.bad[1].0;
        assert_eq!((report.unreadable_blocks, report.wrong_blocks), (u64::from(pair), 0));
    }
    trial.judge(&array, &lost, "clean");
    trial.settle(array, &lost, "clean");
}

fn read_only(rng: &mut fastrand::Rng, consistency: NewConsistency) {
    let mut trial = Trial::new(rng, consistency, false);
    for (slot, (_, device)) in trial.members.0.iter_mut().enumerate() {
        let sectors = Sectors { read_only: true, ..Sectors::new(device.clone()) };
        trial.devices[slot] = Arc::new(sectors);
        *device = trial.devices[slot].clone();
    }
    trial.spoil(rng, None);
    let options = ArrayOptions { upkeep: Upkeep::Caller, ..ArrayOptions::new(Access::ReadOnly) };
    let array = OpenArray::assemble(trial.members.candidates(None), 0, options).expect("an array");
    let (report, _) = array.array().scrub(Scrub::Check, &mut { GO_ON }).expect("a scrub");
    assert!((1..=2).contains(&report.unreadable_blocks) && report.skipped == 0);
    trial.judge(&array, &trial.lost(None), "read-only");
    assert!(array.array().degraded().is_empty());
}

fn rebuilding(rng: &mut fastrand::Rng, consistency: NewConsistency) {
    let mut trial = Trial::new(rng, consistency, false);
    let slot = rng.usize(..COUNT);
    trial.spoil(rng, Some(slot));
    let lost = trial.lost(Some(slot));
    let array = trial.members.open(Some(slot)).expect("an array");
    trial.judge(&array, &lost, "degraded");
    let new = trial.fresh(slot);
    assert_eq!(array.add(new).expect("added").misses, Some(Rebuild::Whole));
    // The rows that are rebuilt have all members, so nothing is lost there that the new one has.
    let until = rng.u64(1..=trial.rows);
    let mut rows = 0;
    let mut part = |_| {
        rows += 1;
        if rows == until { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    array.array().rebuild(slot, Rebuild::Whole, &mut part).expect("rebuilt in part");
    // One more block cannot be read, in a row that is rebuilt: it is computed.
    let (row, block) = (rng.u64(..until), rng.u64(..PER_CHUNK));
    if !trial.bad.iter().any(|bad| (bad.0, bad.1) == (row, block)) {
        let at = trial.data / BLOCK + row * PER_CHUNK + block;
        let other = (slot + 1 + rng.usize(..COUNT - 1)) % COUNT;
        trial.devices[other].bad.lock().unwrap().insert(at);
    }
    trial.judge(&array, &lost, "rebuilt in part");
    array.array().rebuild(slot, Rebuild::Whole, &mut { GO_ON }).expect("rebuilt");
    trial.judge(&array, &lost, "rebuilt");
    trial.settle(array, &lost, "rebuilt");
}

fn replacing(rng: &mut fastrand::Rng, consistency: NewConsistency) {
    let mut trial = Trial::new(rng, consistency, false);
    let slot = rng.usize(..COUNT);
    trial.spoil(rng, None);
    let lost = trial.lost(None);
    let array = trial.members.open(None).expect("an array");
    let new = trial.fresh(slot);
    let done = array.replace(slot, new, &mut { GO_ON }).expect("replaced");
    assert!(matches!(done, Replaced::Done));
    trial.judge(&array, &lost, "replaced");
    trial.settle(array, &lost, "replaced");
}

fn resyncing(rng: &mut fastrand::Rng) {
    let mut trial = Trial::new(rng, NewConsistency::Resync, true);
    trial.spoil(rng, None);
    // Parity is in doubt, so an unreadable block of data is lost at once.
    let bad: BTreeSet<Place> = trial.bad.iter().copied().collect();
    let blocks = trial.model.len() as u64 / BLOCK;
    let lost = (0..blocks).filter(|block| bad.contains(&trial.place(*block))).collect();
    let array = trial.members.open(None).expect("an array");
    trial.judge(&array, &lost, "in doubt");
    array.array().resync(&mut { GO_ON }).expect("resynced");
    trial.judge(&array, &lost, "resynced");
    trial.settle(array, &lost, "resynced");
}

impl Trial {
    /// Creates an array that crashed after a write of one block, which its log names. Returns the
    /// block too.
    fn logged(rng: &mut fastrand::Rng) -> (Trial, u64) {
        let made = Members::create(COUNT, NewConsistency::PartialParity, InitialParity::Right);
        let array = made.open(None).expect("an array");
        let mut model = scribble(&array, rng.u64(..), 12);
        let written = rng.u64(..8) + rng.u64(..4) * 3 * PER_CHUNK;
        let range = (written * BLOCK) as usize..((written + 1) * BLOCK) as usize;
        model[range.clone()].fill_with(|| rng.u8(..));
        array.write_at(written * BLOCK, &model[range]).expect("a write");
        (Trial::of(made.copies(), model), written)
    }
}

/// A start with a log of which a logged block cannot be read.
fn replaying(rng: &mut fastrand::Rng) {
    let (mut trial, written) = Trial::logged(rng);
    let (row, block, slot) = trial.place(written);
    let other = (slot + 1 + rng.usize(..COUNT - 1)) % COUNT;
    trial.bad = vec![(row, block, slot)];
    match rng.u8(..3) {
        0 => {}
        1 => trial.bad.push((row, block, other)),
        _ => trial.bad.push((row, (block + 1) % PER_CHUNK, other)),
    }
    trial.make_unreadable();
    let array = trial.members.open(None).expect("an array");
    // The parity of the written block is unknown, so no block beside it can be computed.
    let is_lost = |at: &u64| {
        let place = trial.place(*at);
        (place.0, place.1) == (row, block) && trial.bad.contains(&place)
    };
    let lost = (0..trial.model.len() as u64 / BLOCK).filter(is_lost).collect();
    trial.judge(&array, &lost, "replayed");
    trial.settle(array, &lost, "replayed");
}

/// The log of a member cannot be read after a crash: the array starts without this member.
fn log_unreadable(rng: &mut fastrand::Rng) {
    let mut trial = Trial::new(rng, NewConsistency::PartialParity, true);
    let slot = rng.usize(..COUNT);
    let log = trial.members.candidates(None)[slot].superblock.ppl().expect("a log").offset;
    trial.devices[slot].bad.lock().unwrap().insert(log / BLOCK);
    let refused = trial.members.open(None).expect_err("a log is unreadable").to_string();
    assert!(refused.contains(&format!("m{slot}")), "{refused}");
    let array = trial.members.open(Some(slot)).expect("an array");
    trial.judge(&array, &BTreeSet::new(), "without the log");
    let new = trial.fresh(slot);
    array.add(new).expect("added");
    array.array().rebuild(slot, Rebuild::Whole, &mut { GO_ON }).expect("rebuilt");
    trial.settle(array, &BTreeSet::new(), "without the log");
}

/// Whether the parity of an array is known to be right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Parity {
    Right,
    InDoubt,
}

/// Work on an array during which one operation fails, beside the blocks that cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Clean,
    Degraded,
    Rebuilding,
    Resyncing,
    Replacing,
}

impl Trial {
    /// Writes a few whole blocks, all of which may fail.
    fn write_some(&mut self, rng: &mut fastrand::Rng, array: &OpenArray) {
        for _ in 0..6 {
            // Where blocks cannot be read, so that the rows meet.
            let near = self.bad[rng.usize(..self.bad.len())].0 * PER_CHUNK * (COUNT as u64 - 1);
            let block = near + rng.u64(..PER_CHUNK * (COUNT as u64 - 1));
            let range = (block * BLOCK) as usize..((block + 1) * BLOCK) as usize;
            let new: Vec<u8> = std::iter::repeat_with(|| rng.u8(..)).take(range.len()).collect();
            match array.write_at(block * BLOCK, &new) {
                Ok(()) => {
                    self.model[range].copy_from_slice(&new);
                    self.or.retain(|(at, _)| *at != block);
                    let place = self.place(block);
                    self.bad.retain(|bad| *bad != place || array.array().status().stopped);
                    if self.bad.is_empty() {
                        return;
                    }
                }
                Err(_) => self.or.push((block, new)),
            }
        }
    }

    /// Checks that each block that can be read has the content of a write that may be there, and
    /// that each other one is lost, or was not written.
    ///
    /// While parity is in doubt, any block of a missing member is lost, and any that cannot be
    /// read.
    fn judge_what_is_left(&self, array: &OpenArray, absent: &[usize], parity: Parity, what: &str) {
        let mut buf = vec![0; BLOCK as usize];
        for (block, right) in (0..).zip(self.model.chunks(BLOCK as usize)) {
            let mut or = self.or.iter().filter(|(at, _)| *at == block);
            match array.read_at(block * BLOCK, &mut buf) {
                Ok(()) if buf == right => {}
                Ok(()) => assert!(or.any(|(_, new)| buf == *new), "{what}: block {block}"),
                Err(error) => {
                    let place = self.place(block);
                    let is_torn = self.or.iter().any(|(at, _)| self.place(*at).0 == place.0);
                    let is_gone = absent.contains(&place.2) || self.bad.contains(&place);
                    let is_lost = match parity {
                        Parity::Right => self.is_lost(block, absent),
                        Parity::InDoubt => is_gone,
                    };
                    assert!(is_lost || is_torn, "{what}: {error} at {block}, bad {:?}", self.bad);
                }
            }
        }
    }
}

fn fails_once(rng: &mut fastrand::Rng, consistency: NewConsistency, phase: Phase) {
    let consistency = match phase {
        Phase::Resyncing => NewConsistency::Resync,
        _ => consistency,
    };
    let mut trial = Trial::new(rng, consistency, phase == Phase::Resyncing);
    let slot = rng.usize(..COUNT);
    let without = matches!(phase, Phase::Degraded | Phase::Rebuilding).then_some(slot);
    trial.spoil(rng, without);
    if phase == Phase::Resyncing {
        (0..trial.rows).for_each(|row| trial.spoil_parity(row, rng.u64(..PER_CHUNK)));
    }
    let array = trial.members.open(without).expect("an array");
    let victim = rng.usize(..COUNT);
    let which = if rng.bool() { Operation::Write } else { Operation::Flush };
    let what = format!("{phase:?}, {consistency:?}, {which:?} of {victim}");
    let old = (trial.devices[slot].clone(), trial.members.0[slot].clone());
    let new = (phase == Phase::Rebuilding || phase == Phase::Replacing).then(|| trial.fresh(slot));
    *trial.devices[victim].fails.lock().unwrap() = Some((which, rng.u32(..12)));
    trial.write_some(rng, &array);
    let _ = match (phase, new) {
        (Phase::Rebuilding, Some(new)) => array.add(new).map_err(drop).and_then(|_| {
            array.array().rebuild(slot, Rebuild::Whole, &mut { GO_ON }).map(drop).map_err(drop)
        }),
        (Phase::Replacing, Some(new)) => {
            let replaced = array.replace(slot, new, &mut { GO_ON });
            if replaced.is_err() {
                (trial.devices[slot], trial.members.0[slot]) = old;
            }
            replaced.map(drop).map_err(drop)
        }
        (Phase::Resyncing, _) => array.array().resync(&mut { GO_ON }).map(drop).map_err(drop),
        _ => array.array().scrub(Scrub::Repair, &mut { GO_ON }).map(drop).map_err(drop),
    };
    if !trial.bad.is_empty() {
        trial.write_some(rng, &array);
    }
    let _ = array.flush();
    let status = array.array().status();
    let absent: Vec<usize> =
        (0..COUNT).filter(|slot| status.members[*slot] != Standing::InSync).collect();
    // What was lost while the slot was empty stays lost after the rebuild.
    let was_absent: Vec<usize> = match phase {
        Phase::Rebuilding => absent.iter().copied().chain([slot]).collect(),
        _ => absent.clone(),
    };
    let in_doubt = absent.len() > 1 || phase == Phase::Resyncing;
    let parity = if in_doubt { Parity::InDoubt } else { Parity::Right };
    trial.judge_what_is_left(&array, &was_absent, parity, &what);
    if !status.stopped && absent.is_empty() {
        array.close().expect("closed");
        trial.judge_members(&what);
    }
}

/// One write or flush fails while the log is applied, beside blocks that cannot be read. The array
/// starts then or at the next try, and no block has other data than it had.
fn replay_fails_once(rng: &mut fastrand::Rng) {
    let (mut trial, written) = Trial::logged(rng);
    let (row, block, _) = trial.place(written);
    trial.spoil_parity(row, block);
    trial.spoil(rng, None);
    let victim = rng.usize(..COUNT);
    let which = if rng.bool() { Operation::Write } else { Operation::Flush };
    let what = format!("replaying, {which:?} of {victim}");
    *trial.devices[victim].fails.lock().unwrap() = Some((which, rng.u32(..8)));
    let array = match trial.members.open(None) {
        Ok(array) => array,
        Err(_) => {
            assert!(trial.devices[victim].fails.lock().unwrap().is_none(), "{what}: no fault");
            trial.members.open(None).expect("the fault is over")
        }
    };
    let missing = |array: &OpenArray| -> Vec<usize> {
        let members = array.array().status().members;
        (0..COUNT).filter(|slot| members[*slot] != Standing::InSync).collect()
    };
    let absent = missing(&array);
    assert!(absent.iter().all(|slot| *slot == victim), "{what}: {absent:?} are missing");
    // The log of the last writes may have been emptied by a start that failed later.
    trial.judge_what_is_left(&array, &absent, Parity::InDoubt, &what);
    let _ = array.array().resync(&mut { GO_ON });
    trial.write_some(rng, &array);
    let absent = missing(&array);
    trial.judge_what_is_left(&array, &absent, Parity::InDoubt, &what);
    if absent.is_empty() && !array.array().status().stopped {
        array.close().expect("closed");
        trial.judge_members(&what);
    }
}

/// The flush of a degraded array fails, and a member loses what it had in its cache.
fn flush_fails(rng: &mut fastrand::Rng, consistency: NewConsistency) {
    let trial = Trial::new(rng, consistency, false);
    let slot = rng.usize(..COUNT);
    let array = trial.members.open(Some(slot)).expect("an array");
    array.write_at(0, &trial.model[..512]).expect("the array is active");
    array.flush().expect("a flush");
    let other = (slot + 1 + rng.usize(..COUNT - 1)) % COUNT;
    let cache = RamDevice::copy_of(&*trial.devices[other].below).expect("a copy");
    *trial.devices[other].flushed.lock().unwrap() = Some(cache);
    let mut model = trial.model.clone();
    let block = rng.u64(..model.len() as u64 / BLOCK);
    let range = (block * BLOCK) as usize..((block + 1) * BLOCK) as usize;
    model[range.clone()].fill_with(|| rng.u8(..));
    array.write_at(block * BLOCK, &model[range]).expect("a write");
    array.flush().expect_err("a flush fails");
    let mut buf = vec![0; BLOCK as usize];
    for at in 0..model.len() as u64 / BLOCK {
        let (row, _, on) = trial.place(at);
        let range = (at * BLOCK) as usize..((at + 1) * BLOCK) as usize;
        match array.read_at(at * BLOCK, &mut buf) {
            // A member may return what it had before the write, but nothing else.
            Ok(()) => assert!(buf == model[range.clone()] || buf == trial.model[range]),
            Err(_) => assert_eq!((row, on), (trial.place(block).0, slot)),
        }
    }
}

fn round(seed: u64) {
    println!("seed {seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    let consistency = ALL[rng.usize(..3)];
    clean(&mut rng, consistency);
    read_only(&mut rng, consistency);
    rebuilding(&mut rng, consistency);
    replacing(&mut rng, consistency);
    resyncing(&mut rng);
    replaying(&mut rng);
    log_unreadable(&mut rng);
    let phases = [Phase::Clean, Phase::Degraded, Phase::Rebuilding, Phase::Resyncing];
    for phase in phases.into_iter().chain([Phase::Replacing]) {
        fails_once(&mut rng, consistency, phase);
    }
    replay_fails_once(&mut rng);
    flush_fails(&mut rng, consistency);
}

#[test]
#[ignore = "long: every phase of an array"]
fn each_phase_loses_only_the_blocks_that_cannot_be_computed() {
    (0..2).for_each(round);
}

#[test]
#[ignore = "long: new places for LANEFS_SECONDS"]
fn blocks_of_all_places_cannot_be_read() {
    let number = |name: &str| std::env::var(name).ok()?.parse().ok();
    let seconds = number("LANEFS_SECONDS").unwrap_or(5);
    let (begun, limit) = (Instant::now(), Duration::from_secs(seconds));
    let mut seed = number("LANEFS_SEED").or(number("LANEFS_FIRST_SEED")).unwrap_or(100);
    while begun.elapsed() < limit {
        round(seed);
        seed += 1;
    }
}

/// A member is rebuilt twice at once, as by a command and in the background.
#[test]
fn a_rebuild_leaves_rows_alone_that_another_rebuild_has_written() {
    for (other_ends, goes_on) in [(true, true), (true, false), (false, true), (false, false)] {
        let mut rng = fastrand::Rng::with_seed(7);
        let mut trial = Trial::new(&mut rng, NewConsistency::Resync, false);
        let array = trial.members.open(Some(1)).expect("an array");
        let new = trial.fresh(1);
        array.add(new).expect("added");
        let (mut is_first, mut rows) = (true, 0);
        let mut other = |_| {
            rows += 1;
            if other_ends || rows < 10 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        let mut meanwhile = |_| {
            if std::mem::take(&mut is_first) {
                array.array().rebuild(1, Rebuild::Whole, &mut other).expect("rebuilt");
                trial.bad = vec![(3, 2, 0)];
                trial.make_unreadable();
            }
            if goes_on { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        array.array().rebuild(1, Rebuild::Whole, &mut meanwhile).expect("rebuilt");
        assert_eq!(array.unreadable_blocks(), 0);
        let recovery = trial.members.candidates(None)[1].superblock.recovery();
        match recovery {
            Recovery::InSync => assert!(other_ends || goes_on),
            Recovery::Below(sector) => {
                assert!(!other_ends && !goes_on);
                assert!(sector >= 10 * PER_CHUNK * BLOCK / 512, "it is not set back");
            }
        }
        array.array().rebuild(1, Rebuild::Whole, &mut { GO_ON }).expect("rebuilt");
        trial.judge(&array, &BTreeSet::new(), "rebuilt");
        trial.settle(array, &BTreeSet::new(), "rebuilt twice");
    }
}

/// The blocks that cannot be computed are counted, also if a member with such blocks goes.
#[test]
fn lost_blocks_of_members_that_go_stay_counted() {
    let mut rng = fastrand::Rng::with_seed(8);
    let mut trial = Trial::new(&mut rng, NewConsistency::Resync, false);
    let array = trial.members.open(Some(1)).expect("an array");
    trial.bad = vec![(1, 1, 0), (2, 2, 0)];
    trial.make_unreadable();
    let new = trial.fresh(1);
    array.add(new).expect("added");
    array.array().rebuild(1, Rebuild::Whole, &mut { GO_ON }).expect("rebuilt");
    assert_eq!(array.unreadable_blocks(), 2);
    let new = trial.fresh(1);
    array.replace(1, new, &mut { GO_ON }).expect("replaced");
    assert_eq!(array.unreadable_blocks(), 4);
    array.array().fail(1).expect("failed");
    assert_eq!(array.unreadable_blocks(), 4);
}

#[test]
fn only_the_block_that_cannot_be_read_is_computed() {
    let mut trial = Trial::new(&mut fastrand::Rng::with_seed(6), NewConsistency::Resync, false);
    let array = trial.members.open(None).expect("an array");
    // The parity of the first block of row 1 is wrong, and nobody knows.
    let (row, slot) = (1, trial.place(PER_CHUNK * (COUNT as u64 - 1)).2);
    let parity = trial.data + row * PER_CHUNK * BLOCK;
    let on = COUNT - 1 - row as usize;
    trial.members.0[on].1.write_at(parity, &[0x5a; BLOCK as usize]).expect("a write");
    trial.bad = vec![(row, 3, slot)];
    trial.make_unreadable();
    let (from, len) = (trial.model.len() / trial.rows as usize, (PER_CHUNK * BLOCK) as usize);
    let mut buf = vec![0; len];
    for _ in 0..2 {
        array.read_at(from as u64, &mut buf).expect("a read of the chunk");
        assert!(buf == trial.model[from..from + len]);
    }
    assert!(trial.devices[slot].bad.lock().unwrap().is_empty(), "it was written");
    let scrubbed = array.array().scrub(Scrub::Repair, &mut { GO_ON }).expect("a scrub");
    assert_eq!(scrubbed.0.wrong_blocks, 1);
    trial.judge(&array, &BTreeSet::new(), "scrubbed");
}

#[test]
fn a_named_block_of_the_log_is_computed_and_named_no_more() {
    let made = Members::create(3, NewConsistency::PartialParity, InitialParity::Right);
    let array = made.open(None).expect("an array");
    let model = scribble(&array, 5, 10);
    array.close().expect("closed");
    let mut named = made.candidates(None).remove(0);
    let area = named.superblock.bad_block_log().expect("a log");
    let sector = named.superblock.data().offset / 512 + 4 * 64;
    let mut entries = vec![0xff; area.len as usize];
    entries[..8].copy_from_slice(&(sector << 10 | 8).to_le_bytes());
    named.device.write_at(area.offset, &entries).expect("a write");
    named.superblock.set_bad_blocks(lanefs_ondisk::md::BadBlocks::Some);
    named.device.write_at(4096, &named.superblock.encode()).expect("a write");
    named.device.write_at(sector * 512, &[0xee; 4096]).expect("a write");
    let array = made.open(None).expect("an array");
    assert!(rig::made::content(&array) == model);
    array.flush().expect("a flush");
    let read: Vec<_> = made.candidates(None).iter().map(Candidate::bad_blocks).collect();
    assert!(read.iter().all(|bad| bad.as_ref().is_ok_and(Vec::is_empty)), "{read:?}");
    assert!(array.array().degraded().is_empty());
    drop(array);
    assert!(rig::made::content(&made.open(Some(1)).expect("an array")) == model);
}
