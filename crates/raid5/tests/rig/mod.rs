//! An array of RAM members whose metadata is a value in memory, for tests of the engine alone.

// Each test file uses only a part of the rig.
#![allow(dead_code)]

pub mod hook;
pub mod made;
pub mod recovery;
pub mod tape;

use lanefs_device::{Device, RamDevice};
use lanefs_lanes::sync::Arc;
use lanefs_lanes::sync::unscheduled::{Mutex, OnceLock};
use lanefs_raid5::{
    Array, Consistency, Geometry, Layout, LogArea, Member, MetadataStore, Policies, RecordError,
    Setup, Slots,
};

/// The content that the superblocks of a real array would have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Said {
    pub active: bool,
    pub failed: Slots,
    pub recovered: Vec<(usize, u64)>,
    pub resynced: Option<u64>,
    pub bits: Vec<u8>,
}

#[derive(Debug, Default)]
pub struct MemoryRecord {
    pub said: Mutex<Said>,
    /// The tape on which changes of the bitmap are recorded.
    pub tape: OnceLock<Arc<tape::Tape>>,
}

impl MemoryRecord {
    pub fn said(&self) -> Said {
        self.said.lock().unwrap().clone()
    }
}

impl MetadataStore for MemoryRecord {
    fn mark_active(&self) -> Result<Slots, RecordError> {
        self.said.lock().unwrap().active = true;
        Ok(Slots::NONE)
    }
    fn mark_clean(&self) -> Result<Slots, RecordError> {
        self.said.lock().unwrap().active = false;
        Ok(Slots::NONE)
    }
    fn fail_members(&self, failed: Slots) -> Result<Slots, RecordError> {
        self.said.lock().unwrap().failed |= failed;
        Ok(Slots::NONE)
    }
    fn set_recovered(&self, slot: usize, bytes: u64) -> Result<Slots, RecordError> {
        self.said.lock().unwrap().recovered.push((slot, bytes));
        Ok(Slots::NONE)
    }
    fn set_resynced(&self, bytes: u64) -> Result<Slots, RecordError> {
        self.said.lock().unwrap().resynced = Some(bytes);
        Ok(Slots::NONE)
    }
    fn write_bits(&self, at: usize, bits: &[u8]) -> Result<Slots, RecordError> {
        if let Some(tape) = self.tape.get() {
            tape.push(0, tape::What::Bits { at, bytes: bits.to_vec() });
        }
        let all = &mut self.said.lock().unwrap().bits;
        if all.len() < at + bits.len() {
            all.resize(at + bits.len(), 0);
        }
        all[at..at + bits.len()].copy_from_slice(bits);
        Ok(Slots::NONE)
    }
}

/// Bytes before each member's data area.
pub const DATA_OFFSET: u64 = 64 << 10;

pub struct Rig {
    pub shape: Geometry,
    pub members: Vec<Option<Arc<dyn Device>>>,
    pub record: Arc<MemoryRecord>,
    pub consistency: Consistency,
    pub policies: Policies,
    pub unsynced_from: u64,
}

impl Rig {
    /// Creates RAM members filled with zeros, so parity is right.
    pub fn new(layout: Layout, members: usize, chunk: u64, rows: u64) -> Rig {
        let shape = Geometry::new(layout, members, chunk, chunk * rows).unwrap();
        let member = |_| -> Option<Arc<dyn Device>> {
            Some(Arc::new(RamDevice::create(DATA_OFFSET + shape.member_len()).unwrap()))
        };
        Rig {
            shape,
            members: (0..members).map(member).collect(),
            record: Arc::default(),
            consistency: Consistency::Resync,
            policies: Policies::default(),
            unsynced_from: u64::MAX,
        }
    }

    pub fn with(mut self, consistency: Consistency) -> Rig {
        self.consistency = consistency;
        self
    }

    /// Returns the log's area in the space before the data areas, if there is a log.
    pub fn log(&self) -> Option<LogArea> {
        matches!(self.consistency, Consistency::PartialParity { .. })
            .then_some(LogArea { offset: 4096, len: DATA_OFFSET - 4096 })
    }

    pub fn start(&self) -> Array {
        let member = |device: &Arc<dyn Device>| Member {
            device: device.clone(),
            data_offset: DATA_OFFSET,
            log: self.log(),
            recovered: u64::MAX,
            bad_blocks: None,
        };
        Array::start(Setup {
            geometry: self.shape,
            members: self.members.iter().map(|m| m.as_ref().map(member)).collect(),
            record: self.record.clone(),
            consistency: self.consistency.clone(),
            active: self.record.said().active,
            unsynced_from: self.unsynced_from,
            policies: self.policies,
        })
        .unwrap()
    }

    /// Puts a new device, filled with 0xa5, into `slot` of the rig. A running array gets the device
    /// only when the caller attaches the returned member.
    pub fn replace(&mut self, slot: usize) -> Member {
        let len = DATA_OFFSET + self.shape.member_len();
        let device: Arc<dyn Device> = Arc::new(RamDevice::create(len).unwrap());
        device.write_at(0, &vec![0xa5; len as usize]).unwrap();
        self.members[slot] = Some(device.clone());
        Member { device, data_offset: DATA_OFFSET, log: self.log(), recovered: 0, bad_blocks: None }
    }

    /// Returns the rows whose parity is wrong, computed without the engine.
    pub fn wrong_rows(&self) -> Vec<u64> {
        let chunk = self.shape.chunk();
        let mut wrong = Vec::new();
        for row in 0..self.shape.rows() {
            let mut sum = vec![0u8; chunk as usize];
            for member in self.members.iter().flatten() {
                let mut bytes = vec![0; chunk as usize];
                member.read_at(DATA_OFFSET + row * chunk, &mut bytes).unwrap();
                sum.iter_mut().zip(bytes).for_each(|(s, b)| *s ^= b);
            }
            if sum.iter().any(|b| *b != 0) {
                wrong.push(row);
            }
        }
        wrong
    }
}

/// Returns the whole content of a device.
pub fn content(device: &dyn Device) -> Vec<u8> {
    let mut all = vec![0; device.len() as usize];
    device.read_at(0, &mut all).unwrap();
    all
}

/// Returns a random range: small or large, aligned or not.
pub fn range(rng: &mut fastrand::Rng, len: u64, row_len: u64) -> (u64, u64) {
    let most = match rng.u8(..4) {
        0 => 600,
        1 => 9000,
        2 => row_len,
        _ => 3 * row_len,
    };
    let unit = [1, 512, 4096][rng.usize(..3)];
    let from = rng.u64(..len) / unit * unit;
    let n = (rng.u64(1..=most).next_multiple_of(unit)).min(len - from);
    (from, n)
}
