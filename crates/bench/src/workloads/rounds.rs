//! A new directory for each slice.

use crate::error::Result;
use crate::worker::Assignment;

/// Makes a new directory for each slice, and removes it when the slice ends.
pub(crate) struct Rounds<'a> {
    pub given: Assignment<'a>,
    pub dir: String,
    round: u32,
}

impl<'a> Rounds<'a> {
    pub fn new(given: Assignment<'a>) -> Rounds<'a> {
        Rounds { given, dir: String::new(), round: 0 }
    }

    pub fn begin(&mut self) -> Result<()> {
        self.dir = format!("{}/r{}", self.given.own, self.round);
        self.round += 1;
        self.given.place.make_dir(&self.dir)
    }

    pub fn file(&self, number: u32) -> String {
        format!("{}/f{number}", self.dir)
    }

    pub fn end(&self) -> Result<()> {
        self.given.place.remove_tree(&self.dir)
    }
}
