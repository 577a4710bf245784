//! Workloads on file data: random, sequential, appending.

use crate::error::Result;
use crate::target_tree::{How, Opened};
use crate::worker::{Assignment, Operation, Worker};

/// The alignment of memory for direct I/O.
const PAGE: usize = 4096;
/// The size of a sequential access in bytes.
const CHUNK: usize = 1 << 20;
/// The size at which the file of an append workload is truncated.
pub(crate) const APPENDED: u64 = 16 << 20;

/// Memory on a page boundary, which direct I/O requires.
struct Aligned {
    memory: Vec<u8>,
    start: usize,
    len: usize,
}

impl Aligned {
    fn new(len: usize) -> Aligned {
        let memory = vec![0x5a; len + PAGE];
        let start = memory.as_ptr().align_offset(PAGE);
        Aligned { memory, start, len }
    }

    fn bytes(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.len]
    }
}

/// Returns how many bytes each operation reads or writes.
fn access(given: &Assignment<'_>) -> usize {
    usize::try_from(given.scale.access_bytes).unwrap_or(PAGE)
}

/// Creates a file of `len` bytes of data, and syncs it.
fn fill(given: &Assignment<'_>, path: &str, len: u64) -> Result<()> {
    let file = given.place.open(path, How::New)?;
    file.allocate(0, len)?;
    let chunk = vec![0x5a; CHUNK];
    for offset in (0..len).step_by(CHUNK) {
        given.stop.check()?;
        file.write_at(offset, &chunk)?;
    }
    file.sync()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Read,
    Write,
}

/// Reads or writes at random offsets of one file that all threads share.
pub(crate) struct Direct<'a> {
    file: Box<dyn Opened + 'a>,
    /// How many times the length of `buffer` fits into the file.
    places: u64,
    direction: Direction,
    random: fastrand::Rng,
    buffer: Aligned,
}

impl<'a> Direct<'a> {
    pub fn new(given: Assignment<'a>, direction: Direction) -> Result<Direct<'a>> {
        let path = format!("{}/data", given.shared);
        let len = given.scale.file_bytes;
        // In a mix, direct-read and direct-write use the same file. The first of them creates it.
        if given.thread == 0 && given.place.stat(&path).is_err() {
            fill(&given, &path, len)?;
        }
        let how = match direction {
            Direction::Read => How::ReadDirect,
            Direction::Write => How::WriteDirect,
        };
        let file = given.place.open(&path, how)?;
        Ok(Direct {
            file,
            places: (len / access(&given) as u64).max(1),
            direction,
            random: fastrand::Rng::with_seed(given.thread.into()),
            buffer: Aligned::new(access(&given)),
        })
    }
}

impl Worker for Direct<'_> {
    fn operation(&mut self) -> Result<Operation> {
        let offset = self.random.u64(..self.places) * self.buffer.len as u64;
        let bytes = self.buffer.bytes();
        match self.direction {
            Direction::Read => self.file.read_at(offset, bytes)?,
            Direction::Write => self.file.write_at(offset, bytes)?,
        }
        Ok(Operation::Done)
    }
}

/// How many bytes fallocate2 adds at a time, and the largest size of its file.
const ADDED: u64 = 8 << 10;
const FULL: u64 = 1 << 20;

/// Allocates 8 KiB at a time at the end of a file until it has 1 MiB, truncates the file, and
/// repeats. This is will-it-scale's fallocate2.
pub(crate) struct Fallocate2<'a> {
    file: Box<dyn Opened + 'a>,
    at: u64,
}

impl<'a> Fallocate2<'a> {
    pub fn new(given: Assignment<'a>) -> Result<Fallocate2<'a>> {
        let file = given.place.open(&format!("{}/grows", given.own), How::New)?;
        Ok(Fallocate2 { file, at: 0 })
    }
}

impl Worker for Fallocate2<'_> {
    fn operation(&mut self) -> Result<Operation> {
        if self.at == FULL {
            self.file.set_len(0)?;
            self.at = 0;
        } else {
            self.file.allocate(self.at, ADDED)?;
            self.at += ADDED;
        }
        Ok(Operation::Done)
    }
}

/// Reads a file in sequence, repeatedly.
pub(crate) struct SeqRead<'a> {
    file: Box<dyn Opened + 'a>,
    len: u64,
    at: u64,
    buffer: Vec<u8>,
}

impl<'a> SeqRead<'a> {
    pub fn new(given: Assignment<'a>) -> Result<SeqRead<'a>> {
        let path = format!("{}/data", given.own);
        let len = given.scale.file_bytes;
        fill(&given, &path, len)?;
        let file = given.place.open(&path, How::Read)?;
        file.forget_cached()?;
        Ok(SeqRead { file, len, at: 0, buffer: vec![0; CHUNK] })
    }
}

impl Worker for SeqRead<'_> {
    fn operation(&mut self) -> Result<Operation> {
        if self.at == self.len {
            self.file.forget_cached()?;
            self.at = 0;
        }
        self.file.read_at(self.at, &mut self.buffer)?;
        self.at += CHUNK as u64;
        Ok(Operation::Done)
    }
}

/// Writes a file in sequence, syncs it, truncates it, and repeats.
pub(crate) struct SeqWrite<'a> {
    given: Assignment<'a>,
    path: String,
    file: Box<dyn Opened + 'a>,
    at: u64,
    buffer: Vec<u8>,
}

impl<'a> SeqWrite<'a> {
    pub fn new(given: Assignment<'a>) -> Result<SeqWrite<'a>> {
        let path = format!("{}/data", given.own);
        let file = given.place.open(&path, How::New)?;
        Ok(SeqWrite { given, path, file, at: 0, buffer: vec![0x5a; CHUNK] })
    }
}

impl Worker for SeqWrite<'_> {
    fn operation(&mut self) -> Result<Operation> {
        if self.at == self.given.scale.file_bytes {
            self.file = self.given.place.open(&self.path, How::Emptied)?;
            self.at = 0;
        }
        self.file.write_at(self.at, &self.buffer)?;
        self.at += CHUNK as u64;
        if self.at == self.given.scale.file_bytes {
            self.file.sync_data()?;
        }
        Ok(Operation::Done)
    }
}

/// Appends to a file, and truncates it when it is full.
pub(crate) struct Append<'a> {
    given: Assignment<'a>,
    path: String,
    file: Box<dyn Opened + 'a>,
    at: u64,
    buffer: Vec<u8>,
}

impl<'a> Append<'a> {
    pub fn new(given: Assignment<'a>) -> Result<Append<'a>> {
        let path = format!("{}/log", given.own);
        given.place.create(&path)?;
        let file = given.place.open(&path, How::Append)?;
        let buffer = vec![0x5a; access(&given)];
        Ok(Append { given, path, file, at: 0, buffer })
    }
}

impl Worker for Append<'_> {
    fn operation(&mut self) -> Result<Operation> {
        if self.at >= APPENDED {
            drop(self.given.place.open(&self.path, How::Emptied)?);
            self.file = self.given.place.open(&self.path, How::Append)?;
            self.at = 0;
        }
        // The file is open for appending, so the offset does not matter.
        self.file.write_at(0, &self.buffer)?;
        self.at += self.buffer.len() as u64;
        Ok(Operation::Done)
    }
}
