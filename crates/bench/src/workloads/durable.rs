//! Small files that survive a crash.

use super::names::Rounds;
use crate::workload::{Seat, Step, Worker};
use crate::{How, Result};
use std::time::Instant;

/// Makes a file, writes 4 KiB, fsync.
pub(crate) struct Fsync<'a> {
    rounds: Rounds<'a>,
    next: u32,
    content: Vec<u8>,
}

impl<'a> Fsync<'a> {
    pub fn new(seat: Seat<'a>) -> Fsync<'a> {
        Fsync { rounds: Rounds::new(seat), next: 0, content: vec![0x5a; 4096] }
    }
}

impl Worker for Fsync<'_> {
    fn prepare(&mut self, _end: Instant) -> Result<()> {
        self.next = 0;
        self.rounds.begin()
    }

    fn step(&mut self) -> Result<Step> {
        if self.next == self.rounds.seat.scale.new_files {
            return Ok(Step::NothingLeft);
        }
        let file = self.rounds.seat.place.open(&self.rounds.file(self.next), How::New)?;
        file.write_at(0, &self.content)?;
        file.sync()?;
        self.next += 1;
        Ok(Step::Done)
    }

    fn clean(&mut self) -> Result<()> {
        self.rounds.end()
    }
}
