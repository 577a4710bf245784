//! Arrays that are created on members in memory, and opened as a user opens them.

use lanefs_device::{Access, Device, RamDevice};
use lanefs_ondisk::md::Uuid;
use lanefs_raid5::{
    ArrayOptions, AssembleError, Candidate, CreateOptions, InitialParity, Layout, NewConsistency,
    OpenArray, Scrub, Upkeep, create,
};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

pub const LEN: u64 = 6 << 20;
pub const ALL: [NewConsistency; 3] =
    [NewConsistency::PartialParity, NewConsistency::Bitmap(Some(64 << 10)), NewConsistency::Resync];

/// The members of one array in memory, by slot.
pub struct Members(pub Vec<(PathBuf, Arc<dyn Device>)>);

pub fn ram(name: &str) -> (PathBuf, Arc<dyn Device>) {
    (name.into(), Arc::new(RamDevice::create(LEN).expect("memory")))
}

impl Members {
    pub fn create(count: usize, consistency: NewConsistency, parity: InitialParity) -> Members {
        let members: Vec<_> = (0..count).map(|slot| ram(&format!("m{slot}"))).collect();
        let options = CreateOptions {
            set: Uuid([7; 16]),
            devices: (0..count).map(|slot| Uuid([slot as u8 + 1; 16])).collect(),
            name: "test:life".into(),
            layout: Layout::LeftSymmetric,
            chunk: 32 << 10,
            consistency,
            size: None,
            parity,
            missing: None,
        };
        create(&members, &options).expect("an array");
        Members(members)
    }

    pub fn candidates(&self, without: Option<usize>) -> Vec<Candidate> {
        let members = self.0.iter().enumerate().filter(|(slot, _)| Some(*slot) != without);
        let read = |(_, (name, device)): (usize, &(PathBuf, Arc<dyn Device>))| {
            Candidate::read(name, device.clone()).expect("a member")
        };
        members.map(read).collect()
    }

    pub fn open(&self, without: Option<usize>) -> Result<OpenArray, AssembleError> {
        let absent = usize::from(without.is_some());
        let options =
            ArrayOptions { upkeep: Upkeep::Caller, ..ArrayOptions::new(Access::ReadWrite) };
        OpenArray::assemble(self.candidates(without), absent, options)
    }

    /// Opens the array with this time limit for a member's flush.
    pub fn open_with_limit(&self, limit: Duration) -> OpenArray {
        let mut options =
            ArrayOptions { upkeep: Upkeep::Caller, ..ArrayOptions::new(Access::ReadWrite) };
        options.policies.flush_limit = Some(limit);
        OpenArray::assemble(self.candidates(None), 0, options).expect("an array")
    }

    pub fn copies(&self) -> Members {
        let copy = |(name, device): &(PathBuf, Arc<dyn Device>)| {
            let copy: Arc<dyn Device> = Arc::new(RamDevice::copy_of(&**device).expect("a copy"));
            (name.clone(), copy)
        };
        Members(self.0.iter().map(copy).collect())
    }
}

/// Writes ranges of all sizes at random places; returns the content of the array.
pub fn scribble(array: &OpenArray, seed: u64, count: usize) -> Vec<u8> {
    println!("seed {seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut model = content(array);
    for _ in 0..count {
        let at = rng.usize(..model.len());
        let len = rng.usize(1..300_000).min(model.len() - at);
        model[at..at + len].fill_with(|| rng.u8(..));
        array.write_at(at as u64, &model[at..at + len]).expect("a write");
    }
    array.flush().expect("a flush");
    model
}

pub fn content(array: &OpenArray) -> Vec<u8> {
    let mut all = vec![0; array.len() as usize];
    array.read_at(0, &mut all).expect("the content");
    all
}

pub fn wrong_rows(array: &OpenArray) -> u64 {
    array
        .array()
        .scrub(Scrub::Check, &mut |_| ControlFlow::Continue(()))
        .expect("scrub")
        .0
        .wrong_rows
}
