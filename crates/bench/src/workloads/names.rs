//! Names: made, asked for, moved, taken away.

use crate::workload::{Seat, Step, Worker};
use crate::{How, Result};
use std::time::Instant;

/// A directory for each slice: what one made is gone before the next begins.
pub(crate) struct Rounds<'a> {
    pub seat: Seat<'a>,
    pub dir: String,
    round: u32,
}

impl<'a> Rounds<'a> {
    pub fn new(seat: Seat<'a>) -> Rounds<'a> {
        Rounds { seat, dir: String::new(), round: 0 }
    }

    pub fn begin(&mut self) -> Result<()> {
        self.dir = format!("{}/r{}", self.seat.own, self.round);
        self.round += 1;
        self.seat.place.make_dir(&self.dir)
    }

    pub fn file(&self, number: u32) -> String {
        format!("{}/f{number}", self.dir)
    }

    pub fn end(&self) -> Result<()> {
        self.seat.place.remove_tree(&self.dir)
    }
}

/// Makes files.
pub(crate) struct Create<'a> {
    rounds: Rounds<'a>,
    next: u32,
    /// What each has, and is forced out with before it is closed; empty ones are not.
    content: Vec<u8>,
}

impl<'a> Create<'a> {
    /// Empty ones.
    pub fn empty(seat: Seat<'a>) -> Create<'a> {
        Create { rounds: Rounds::new(seat), next: 0, content: Vec::new() }
    }

    /// With content, forced out.
    pub fn durable(seat: Seat<'a>) -> Create<'a> {
        let content = vec![0x5a; usize::try_from(seat.scale.access_bytes).unwrap_or_default()];
        Create { content, ..Create::empty(seat) }
    }

    fn make(&self, path: &str) -> Result<()> {
        let place = self.rounds.seat.place;
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

    fn step(&mut self) -> Result<Step> {
        if self.next == self.rounds.seat.new_files {
            return Ok(Step::NothingLeft);
        }
        self.make(&self.rounds.file(self.next))?;
        self.next += 1;
        Ok(Step::Done)
    }

    fn clean(&mut self) -> Result<()> {
        self.rounds.end()
    }
}

/// Files of one round of [`CreateStatRemove`].
const ROUND: u32 = 1000;

/// Makes some files, asks for each, removes each, and begins again: mdtest -F -C -r -u.
pub(crate) struct CreateStatRemove<'a> {
    seat: Seat<'a>,
    files: Vec<String>,
    next: usize,
}

impl<'a> CreateStatRemove<'a> {
    pub fn new(seat: Seat<'a>) -> CreateStatRemove<'a> {
        let files = ROUND.min(seat.new_files).max(1);
        let files = (0..files).map(|n| format!("{}/f{n}", seat.own)).collect();
        CreateStatRemove { seat, files, next: 0 }
    }
}

impl Worker for CreateStatRemove<'_> {
    fn step(&mut self) -> Result<Step> {
        let count = self.files.len();
        let file = &self.files[self.next % count];
        match self.next / count {
            0 => self.seat.place.create(file)?,
            1 => drop(self.seat.place.stat(file)?),
            _ => self.seat.place.remove(file)?,
        }
        self.next = (self.next + 1) % (3 * count);
        Ok(Step::Done)
    }
}

/// Makes a file without a name, and closes it.
pub(crate) struct Anonymous<'a> {
    seat: Seat<'a>,
}

impl<'a> Anonymous<'a> {
    pub fn new(seat: Seat<'a>) -> Anonymous<'a> {
        Anonymous { seat }
    }
}

impl Worker for Anonymous<'_> {
    fn step(&mut self) -> Result<Step> {
        self.seat.place.make_unnamed(&self.seat.own).map(drop)?;
        Ok(Step::Done)
    }
}

/// Removes empty files.
pub(crate) struct Remove<'a> {
    rounds: Rounds<'a>,
    made: u32,
    next: u32,
}

impl<'a> Remove<'a> {
    pub fn new(seat: Seat<'a>) -> Remove<'a> {
        Remove { rounds: Rounds::new(seat), made: 0, next: 0 }
    }
}

impl Worker for Remove<'_> {
    fn prepare(&mut self, end: Instant) -> Result<()> {
        self.rounds.begin()?;
        (self.made, self.next) = (0, 0);
        let place = self.rounds.seat.place;
        while self.made < self.rounds.seat.new_files && (self.made == 0 || Instant::now() < end) {
            self.rounds.seat.stop.check()?;
            place.create(&self.rounds.file(self.made))?;
            self.made += 1;
        }
        Ok(())
    }

    fn step(&mut self) -> Result<Step> {
        if self.next == self.made {
            return Ok(Step::NothingLeft);
        }
        self.rounds.seat.place.remove(&self.rounds.file(self.next))?;
        self.next += 1;
        Ok(Step::Done)
    }

    fn clean(&mut self) -> Result<()> {
        self.rounds.end()
    }
}

/// Makes a file and removes it.
pub(crate) struct CreateUnlink<'a> {
    seat: Seat<'a>,
    path: String,
}

impl<'a> CreateUnlink<'a> {
    /// In a directory of its own.
    pub fn new(seat: Seat<'a>) -> CreateUnlink<'a> {
        let path = format!("{}/file", seat.own);
        CreateUnlink { seat, path }
    }

    /// In the directory that all share, under a name of its own.
    pub fn shared(seat: Seat<'a>) -> CreateUnlink<'a> {
        let path = format!("{}/file{}", seat.shared, seat.thread);
        CreateUnlink { seat, path }
    }
}

impl Worker for CreateUnlink<'_> {
    fn step(&mut self) -> Result<Step> {
        self.seat.place.create(&self.path)?;
        self.seat.place.remove(&self.path)?;
        Ok(Step::Done)
    }
}

/// Moves a file to another name and back.
pub(crate) struct Move<'a> {
    seat: Seat<'a>,
    now: String,
    next: String,
}

impl<'a> Move<'a> {
    pub fn new(seat: Seat<'a>) -> Result<Move<'a>> {
        let (now, next) = (format!("{}/here", seat.own), format!("{}/there", seat.own));
        seat.place.create(&now)?;
        Ok(Move { seat, now, next })
    }
}

impl Worker for Move<'_> {
    fn step(&mut self) -> Result<Step> {
        self.seat.place.rename(&self.now, &self.next)?;
        std::mem::swap(&mut self.now, &mut self.next);
        Ok(Step::Done)
    }
}

/// What is asked of a file that exists.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Question {
    /// Its attributes.
    Stat,
    /// Whether it opens.
    OpenClose,
}

/// Asks for one file of many.
pub(crate) struct Lookup<'a> {
    seat: Seat<'a>,
    files: Vec<String>,
    question: Question,
    random: fastrand::Rng,
}

impl<'a> Lookup<'a> {
    pub fn new(seat: Seat<'a>, question: Question) -> Result<Lookup<'a>> {
        let files: Vec<String> =
            (0..seat.scale.files.max(1)).map(|n| format!("{}/f{n}", seat.own)).collect();
        for file in &files {
            seat.stop.check()?;
            seat.place.create(file)?;
        }
        let random = fastrand::Rng::with_seed(seat.thread.into());
        Ok(Lookup { seat, files, question, random })
    }
}

impl Worker for Lookup<'_> {
    fn step(&mut self) -> Result<Step> {
        let file = &self.files[self.random.usize(..self.files.len())];
        match self.question {
            Question::Stat => drop(self.seat.place.stat(file)?),
            Question::OpenClose => drop(self.seat.place.open(file, How::Read)?),
        }
        Ok(Step::Done)
    }
}
