//! Unpacks a source tree, as tar does from an archive in memory.

use super::rounds::Rounds;
use crate::error::Result;
use crate::target_tree::{How, TargetTree};
use crate::tree::{Kind, Tree};
use crate::worker::{Assignment, Operation, Worker};
use std::time::Instant;

/// The largest number of copies of the tree that one thread unpacks in one slice.
pub(crate) const COPIES: u64 = 4;

/// Creates the entry at `index` of `tree` below `dir`. Returns [`Operation::NoneLeft`] if there is
/// no such entry.
fn make_entry(place: &dyn TargetTree, tree: &Tree, dir: &str, index: usize) -> Result<Operation> {
    let Some(entry) = tree.entries().get(index) else { return Ok(Operation::NoneLeft) };
    let path = format!("{dir}/{}", entry.path);
    match &entry.kind {
        Kind::Directory => place.make_dir(&path)?,
        Kind::File(content) => {
            let file = place.open(&path, How::New)?;
            file.write_at(0, content)?;
            file.set_modified(entry.modified)?;
        }
    }
    Ok(Operation::Done)
}

/// Creates the whole tree in the directory of `given`.
pub(crate) fn make_tree(given: &Assignment<'_>) -> Result<()> {
    let tree = &given.scale.tree;
    (0..tree.entries().len()).try_for_each(|n| {
        given.stop.check()?;
        make_entry(given.place, tree, &given.own, n).map(drop)
    })
}

/// Unpacks the tree, entry by entry.
pub(crate) struct Untar<'a> {
    rounds: Rounds<'a>,
    copy: u64,
    dir: String,
    next: usize,
    made: u32,
}

impl<'a> Untar<'a> {
    pub fn new(given: Assignment<'a>) -> Untar<'a> {
        Untar { rounds: Rounds::new(given), copy: 0, dir: String::new(), next: 0, made: 0 }
    }

    fn begin_copy(&mut self) -> Result<()> {
        self.dir = format!("{}/c{}", self.rounds.dir, self.copy);
        (self.copy, self.next) = (self.copy + 1, 0);
        self.rounds.given.place.make_dir(&self.dir)
    }
}

impl Worker for Untar<'_> {
    fn prepare(&mut self, _end: Instant) -> Result<()> {
        self.rounds.begin()?;
        (self.copy, self.made) = (0, 0);
        self.begin_copy()
    }

    fn operation(&mut self) -> Result<Operation> {
        let given = &self.rounds.given;
        if self.next == given.scale.tree.entries().len() && self.copy < COPIES {
            self.begin_copy()?;
        }
        let given = &self.rounds.given;
        if self.made == given.new_files {
            return Ok(Operation::NoneLeft);
        }
        let operation = make_entry(given.place, &given.scale.tree, &self.dir, self.next)?;
        self.next += 1;
        self.made += 1;
        Ok(operation)
    }

    fn clean(&mut self) -> Result<()> {
        self.rounds.end()
    }
}
