//! Members that record their operations on one tape, and the states of all members after a crash.
//!
//! Each member has its own cache, and a flush of one member does not cover writes to another. So,
//! unlike in recordings of single devices, each event names its member, and a flush covers only the
//! writes of that member.

use lanefs_device::{Device, DeviceError, ReadKind, WriteKind};
use lanefs_lanes::sync::Arc;
use lanefs_lanes::sync::unscheduled::Mutex;

#[derive(Debug, Clone)]
pub struct Event {
    pub member: usize,
    pub what: What,
}

#[derive(Debug, Clone)]
pub enum What {
    Write {
        offset: u64,
        data: Vec<u8>,
        durable: bool,
    },
    /// Covers the writes before event number `covers`.
    Flush {
        covers: usize,
    },
    /// A write of bytes of the bitmap. It is durable on all members at once.
    Bits {
        at: usize,
        bytes: Vec<u8>,
    },
}

#[derive(Debug, Default)]
pub struct Tape {
    events: Mutex<Vec<Event>>,
}

impl Tape {
    pub fn mark(&self) -> usize {
        self.events.lock().unwrap().len()
    }
    pub fn push(&self, member: usize, what: What) {
        self.events.lock().unwrap().push(Event { member, what });
    }
    pub fn events(&self) -> Vec<Event> {
        self.events.lock().unwrap().clone()
    }
}

/// A bug that [`TapeDevice`] imitates on request. The tests must find it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Planted {
    Nothing,
    /// Durable writes are only cached, so the log is not durable before the data.
    DurableIsCached,
    /// All durable writes except those of log headers are only cached, so a log header is durable
    /// before the partial parity that belongs to it.
    PartialParityIsCached,
    /// Flushes of this member are forgotten.
    NoFlush(usize),
}

/// A member in memory that records its operations.
pub struct TapeDevice {
    pub tape: Arc<Tape>,
    pub member: usize,
    pub bytes: Mutex<Vec<u8>>,
    pub planted: Planted,
}

impl TapeDevice {
    fn put(&self, offset: u64, data: &[u8], durable: bool) {
        let header = data.starts_with(&[0xff; 512]);
        let durable = match self.planted {
            Planted::DurableIsCached => false,
            Planted::PartialParityIsCached => durable && header,
            Planted::Nothing | Planted::NoFlush(_) => durable,
        };
        // One lock guards the contents and the tape, so that the tape lists writes to the same
        // bytes in the order in which they took effect.
        let mut bytes = self.bytes.lock().unwrap();
        bytes[offset as usize..offset as usize + data.len()].copy_from_slice(data);
        self.tape.push(self.member, What::Write { offset, data: data.to_vec(), durable });
    }
}

impl Device for TapeDevice {
    fn len(&self) -> u64 {
        self.bytes.lock().unwrap().len() as u64
    }
    fn is_read_only(&self) -> bool {
        false
    }
    fn read(&self, offset: u64, buf: &mut [u8], _: ReadKind) -> Result<(), DeviceError> {
        let from = offset as usize;
        buf.copy_from_slice(&self.bytes.lock().unwrap()[from..from + buf.len()]);
        Ok(())
    }
    fn write(&self, mut offset: u64, bufs: &[&[u8]], kind: WriteKind) -> Result<(), DeviceError> {
        match kind.is_durable() {
            true => self.put(offset, &bufs.concat(), true),
            false => {
                for buf in bufs {
                    self.put(offset, buf, false);
                    offset += buf.len() as u64;
                }
            }
        }
        Ok(())
    }
    fn flush(&self) -> Result<(), DeviceError> {
        let covers = self.tape.mark();
        if self.planted != Planted::NoFlush(self.member) {
            self.tape.push(self.member, What::Flush { covers });
        }
        Ok(())
    }
    fn discard(&self, _: u64, _: u64) -> Result<(), DeviceError> {
        Ok(())
    }
}

/// The part of the unflushed writes that a crash keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    All,
    None,
    /// Each write is kept whole or dropped.
    Some,
    /// Each write is kept whole, dropped, or kept in some of its sectors.
    Torn,
    /// All writes that had returned are kept; the write in flight keeps only these sectors.
    Sectors {
        from: usize,
        to: usize,
    },
}

impl Kept {
    /// Returns how much the crash keeps of the writes that had returned but were not flushed.
    fn of_returned(self) -> Kept {
        match self {
            Kept::Sectors { .. } => Kept::All,
            all => all,
        }
    }
}

/// The members, and the bitmap, after a crash.
pub struct State {
    pub members: Vec<Vec<u8>>,
    pub bits: Vec<u8>,
}

/// Builds the states after crashes from recorded events. The cuts that are requested must not
/// decrease from call to call.
pub struct States<'a> {
    events: &'a [Event],
    /// For each member: the durable content, and how many events of the tape it takes into account.
    durable: Vec<(Vec<u8>, usize)>,
    bits: Vec<u8>,
}

impl<'a> States<'a> {
    pub fn new(events: &'a [Event], base: Vec<Vec<u8>>) -> States<'a> {
        let durable = base.into_iter().map(|bytes| (bytes, 0)).collect();
        States { events, durable, bits: Vec::new() }
    }

    /// Returns the state after a crash during event `cut`, which had started but not returned.
    pub fn at(&mut self, cut: usize, kept: Kept, rng: &mut fastrand::Rng) -> State {
        let before = &self.events[..cut];
        let mut members = Vec::new();
        for (member, (bytes, done)) in self.durable.iter_mut().enumerate() {
            let covers = |e: &Event| match e.what {
                What::Flush { covers } if e.member == member => Some(covers),
                _ => None,
            };
            let covered = before.iter().rev().find_map(covers).unwrap_or(0).max(*done);
            for event in self.events[*done..covered].iter().filter(|e| e.member == member) {
                write(bytes, event, Kept::All, rng);
            }
            *done = covered;
            let mut state = bytes.clone();
            for event in before[covered..].iter().filter(|e| e.member == member) {
                let durable = matches!(event.what, What::Write { durable: true, .. });
                let kept = if durable { Kept::All } else { kept.of_returned() };
                write(&mut state, event, kept, rng);
            }
            if let Some(event) = self.events.get(cut).filter(|e| e.member == member) {
                write(&mut state, event, kept, rng);
            }
            members.push(state);
        }
        for event in before {
            if let What::Bits { at, bytes } = &event.what {
                if self.bits.len() < at + bytes.len() {
                    self.bits.resize(at + bytes.len(), 0);
                }
                self.bits[*at..at + bytes.len()].copy_from_slice(bytes);
            }
        }
        State { members, bits: self.bits.clone() }
    }
}

fn write(state: &mut [u8], event: &Event, kept: Kept, rng: &mut fastrand::Rng) {
    let What::Write { offset, data, .. } = &event.what else { return };
    let torn = match kept {
        Kept::All | Kept::Sectors { .. } => false,
        Kept::None => return,
        Kept::Some if rng.bool() => return,
        Kept::Some => false,
        Kept::Torn => match rng.u8(..3) {
            0 => return,
            1 => false,
            _ => true,
        },
    };
    let chosen = match kept {
        Kept::Sectors { from, to } => from..to,
        _ => 0..usize::MAX,
    };
    let (mut from, mut number) = (0, 0);
    while from < data.len() {
        let sector = 512 - (*offset as usize + from) % 512;
        let to = data.len().min(from + sector);
        if chosen.contains(&number) && (!torn || rng.bool()) {
            state[*offset as usize + from..*offset as usize + to].copy_from_slice(&data[from..to]);
        }
        (from, number) = (to, number + 1);
    }
}
