//! A directory read, and the free blocks asked for.

use crate::Result;
use crate::workload::{Seat, Step, Worker};

/// Lists a directory.
pub(crate) struct List<'a> {
    seat: Seat<'a>,
}

impl<'a> List<'a> {
    pub fn new(seat: Seat<'a>) -> Result<List<'a>> {
        for n in 0..seat.scale.files {
            seat.place.create(&format!("{}/f{n}", seat.own))?;
        }
        Ok(List { seat })
    }
}

impl Worker for List<'_> {
    fn step(&mut self) -> Result<Step> {
        let found = self.seat.place.list(&self.seat.own)?;
        let wanted = self.seat.scale.files;
        if found != u64::from(wanted) {
            let path = self.seat.own.clone();
            let done = usize::try_from(found).unwrap_or(usize::MAX);
            return Err(crate::Error::Short { path, done, wanted: wanted as usize });
        }
        Ok(Step::Done)
    }
}

/// Asks for the free blocks.
pub(crate) struct Space<'a> {
    seat: Seat<'a>,
}

impl<'a> Space<'a> {
    pub fn new(seat: Seat<'a>) -> Space<'a> {
        Space { seat }
    }
}

impl Worker for Space<'_> {
    fn step(&mut self) -> Result<Step> {
        self.seat.place.free_blocks()?;
        Ok(Step::Done)
    }
}
