//! A random mixture of several workloads.

use crate::error::Result;
use crate::mix::Mix;
use crate::worker::{Operation, Worker};
use std::time::Instant;

/// Chooses one part at random, and does one operation of it. The probability of a part is its
/// share.
pub(crate) struct Mixed<'a> {
    mix: &'a Mix,
    all: u32,
    parts: Vec<Box<dyn Worker + 'a>>,
    random: fastrand::Rng,
}

impl<'a> Mixed<'a> {
    /// Chooses from `parts`, which has one worker for each workload of `mix`. `seed` initialises
    /// the random generator.
    pub fn new(mix: &'a Mix, parts: Vec<Box<dyn Worker + 'a>>, seed: u64) -> Mixed<'a> {
        Mixed { mix, all: mix.all(), parts, random: fastrand::Rng::with_seed(seed) }
    }
}

impl Worker for Mixed<'_> {
    fn prepare(&mut self, end: Instant) -> Result<()> {
        self.parts.iter_mut().try_for_each(|part| part.prepare(end))
    }

    fn operation(&mut self) -> Result<Operation> {
        let part = self.mix.at(self.random.u32(..self.all));
        self.parts[part].operation()
    }

    fn clean(&mut self) -> Result<()> {
        self.parts.iter_mut().try_for_each(|part| part.clean())
    }
}
