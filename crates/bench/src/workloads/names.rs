//! Workloads on names: create, stat, open, rename, remove.

use super::rounds::Rounds;
use crate::error::Result;
use crate::target_tree::How;
use crate::worker::{Assignment, Operation, Worker};
use std::time::Instant;

/// Creates files.
pub(crate) struct Create<'a> {
    rounds: Rounds<'a>,
    next: u32,
    /// The contents of each file. A file is synced before closing, unless it is empty.
    content: Vec<u8>,
}

impl<'a> Create<'a> {
    /// Returns a worker that creates empty files.
    pub fn empty(given: Assignment<'a>) -> Create<'a> {
        Create { rounds: Rounds::new(given), next: 0, content: Vec::new() }
    }

    /// Returns a worker that creates files with content and syncs each file.
    pub fn durable(given: Assignment<'a>) -> Create<'a> {
        let content = vec![0x5a; usize::try_from(given.scale.access_bytes).unwrap_or_default()];
        Create { content, ..Create::empty(given) }
    }

    fn make(&self, path: &str) -> Result<()> {
        let place = self.rounds.given.place;
        if self.content.is_empty() {
            return place.create(path);
        }
        let file = place.open(path, How::New)?;
        file.write_at(0, &self.content)?;
        file.sync()
    }
}

impl Worker for Create<'_> {
    fn prepare(&mut self, _end: Instant) -> Result<()> {
        self.next = 0;
        self.rounds.begin()
    }

    fn operation(&mut self) -> Result<Operation> {
        if self.next == self.rounds.given.new_files {
            return Ok(Operation::NoneLeft);
        }
        self.make(&self.rounds.file(self.next))?;
        self.next += 1;
        Ok(Operation::Done)
    }

    fn clean(&mut self) -> Result<()> {
        self.rounds.end()
    }
}

/// The number of files in one round of [`CreateStatRemove`].
const ROUND: u32 = 1000;

/// Creates some files, then reads the attributes of each, then removes each, and starts again.
/// mdtest -F -C -r -u does the same.
pub(crate) struct CreateStatRemove<'a> {
    given: Assignment<'a>,
    files: Vec<String>,
    next: usize,
}

impl<'a> CreateStatRemove<'a> {
    pub fn new(given: Assignment<'a>) -> CreateStatRemove<'a> {
        let files = ROUND.min(given.new_files).max(1);
        let files = (0..files).map(|n| format!("{}/f{n}", given.own)).collect();
        CreateStatRemove { given, files, next: 0 }
    }
}

impl Worker for CreateStatRemove<'_> {
    fn operation(&mut self) -> Result<Operation> {
        let count = self.files.len();
        let file = &self.files[self.next % count];
        match self.next / count {
            0 => self.given.place.create(file)?,
            1 => drop(self.given.place.stat(file)?),
            _ => self.given.place.remove(file)?,
        }
        self.next = (self.next + 1) % (3 * count);
        Ok(Operation::Done)
    }
}

/// Creates an unnamed file, and closes it.
pub(crate) struct Anonymous<'a> {
    given: Assignment<'a>,
}

impl<'a> Anonymous<'a> {
    pub fn new(given: Assignment<'a>) -> Anonymous<'a> {
        Anonymous { given }
    }
}

impl Worker for Anonymous<'_> {
    fn operation(&mut self) -> Result<Operation> {
        self.given.place.make_unnamed(&self.given.own).map(drop)?;
        Ok(Operation::Done)
    }
}

/// Removes empty files.
pub(crate) struct Remove<'a> {
    rounds: Rounds<'a>,
    made: u32,
    next: u32,
}

impl<'a> Remove<'a> {
    pub fn new(given: Assignment<'a>) -> Remove<'a> {
        Remove { rounds: Rounds::new(given), made: 0, next: 0 }
    }
}

impl Worker for Remove<'_> {
    fn prepare(&mut self, end: Instant) -> Result<()> {
        self.rounds.begin()?;
        (self.made, self.next) = (0, 0);
        let place = self.rounds.given.place;
        while self.made < self.rounds.given.new_files && (self.made == 0 || Instant::now() < end) {
            self.rounds.given.stop.check()?;
            place.create(&self.rounds.file(self.made))?;
            self.made += 1;
        }
        Ok(())
    }

    fn operation(&mut self) -> Result<Operation> {
        if self.next == self.made {
            return Ok(Operation::NoneLeft);
        }
        self.rounds.given.place.remove(&self.rounds.file(self.next))?;
        self.next += 1;
        Ok(Operation::Done)
    }

    fn clean(&mut self) -> Result<()> {
        self.rounds.end()
    }
}

/// Creates a file and removes it.
pub(crate) struct CreateUnlink<'a> {
    given: Assignment<'a>,
    path: String,
}

impl<'a> CreateUnlink<'a> {
    /// The worker uses a directory of its own.
    pub fn new(given: Assignment<'a>) -> CreateUnlink<'a> {
        let path = format!("{}/file", given.own);
        CreateUnlink { given, path }
    }

    /// The worker uses the directory that all workers share, and a file name of its own.
    pub fn shared(given: Assignment<'a>) -> CreateUnlink<'a> {
        let path = format!("{}/file{}", given.shared, given.thread);
        CreateUnlink { given, path }
    }
}

impl Worker for CreateUnlink<'_> {
    fn operation(&mut self) -> Result<Operation> {
        self.given.place.create(&self.path)?;
        self.given.place.remove(&self.path)?;
        Ok(Operation::Done)
    }
}

/// Moves a file to another name and back.
pub(crate) struct Move<'a> {
    given: Assignment<'a>,
    now: String,
    next: String,
}

impl<'a> Move<'a> {
    pub fn new(given: Assignment<'a>) -> Result<Move<'a>> {
        let (now, next) = (format!("{}/here", given.own), format!("{}/there", given.own));
        given.place.create(&now)?;
        Ok(Move { given, now, next })
    }
}

impl Worker for Move<'_> {
    fn operation(&mut self) -> Result<Operation> {
        self.given.place.rename(&self.now, &self.next)?;
        std::mem::swap(&mut self.now, &mut self.next);
        Ok(Operation::Done)
    }
}

/// The operation on an existing file.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Question {
    /// Reads the file's attributes.
    Stat,
    /// Opens and closes the file.
    OpenClose,
}

/// Reads the attributes of one of many files, or opens the file.
pub(crate) struct Lookup<'a> {
    given: Assignment<'a>,
    files: Vec<String>,
    question: Question,
    random: fastrand::Rng,
}

impl<'a> Lookup<'a> {
    /// Works on files in the worker's own directory.
    pub fn new(given: Assignment<'a>, question: Question) -> Result<Lookup<'a>> {
        let prefix = format!("{}/f", given.own);
        Lookup::of_files(given, &prefix, question)
    }

    /// Opens the worker's own files, which are in the directory that all workers share.
    pub fn shared(given: Assignment<'a>) -> Result<Lookup<'a>> {
        let prefix = format!("{}/t{}f", given.shared, given.thread);
        Lookup::of_files(given, &prefix, Question::OpenClose)
    }

    /// Creates the files. Each path is `prefix` and a number.
    fn of_files(given: Assignment<'a>, prefix: &str, question: Question) -> Result<Lookup<'a>> {
        let files: Vec<String> =
            (0..given.scale.files.max(1)).map(|n| format!("{prefix}{n}")).collect();
        for file in &files {
            given.stop.check()?;
            given.place.create(file)?;
        }
        let random = fastrand::Rng::with_seed(given.thread.into());
        Ok(Lookup { given, files, question, random })
    }
}

impl Worker for Lookup<'_> {
    fn operation(&mut self) -> Result<Operation> {
        let file = &self.files[self.random.usize(..self.files.len())];
        match self.question {
            Question::Stat => drop(self.given.place.stat(file)?),
            Question::OpenClose => drop(self.given.place.open(file, How::Read)?),
        }
        Ok(Operation::Done)
    }
}
