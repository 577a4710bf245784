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
            seat.stop.check()?;
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

/// Files of one directory of a [`Walk`].
const FILES_A_DIRECTORY: u32 = 50;

/// What a walk does with each directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stride {
    /// Asks for the attributes of one file, whose path is known: as `git diff` does.
    File,
    /// Lists a directory and asks for the attributes of each file in it.
    Directory,
}

/// A walk through a tree of its own, again and again.
pub(crate) struct Walk<'a> {
    seat: Seat<'a>,
    directories: Vec<String>,
    files: Vec<String>,
    stride: Stride,
    next: usize,
}

impl<'a> Walk<'a> {
    pub fn new(seat: Seat<'a>, stride: Stride) -> Result<Walk<'a>> {
        let (mut directories, mut files) = (Vec::new(), Vec::new());
        for n in 0..seat.scale.files.max(1) {
            seat.stop.check()?;
            if n % FILES_A_DIRECTORY == 0 {
                let directory = format!("{}/d{}", seat.own, n / FILES_A_DIRECTORY);
                seat.place.make_dir(&directory)?;
                directories.push(directory);
            }
            let file = format!("{}/d{}/f{n}", seat.own, n / FILES_A_DIRECTORY);
            seat.place.create(&file)?;
            files.push(file);
        }
        Ok(Walk { seat, directories, files, stride, next: 0 })
    }
}

impl Worker for Walk<'_> {
    fn step(&mut self) -> Result<Step> {
        let place = self.seat.place;
        if self.stride == Stride::File {
            place.stat(&self.files[self.next % self.files.len()])?;
        } else {
            let directory = &self.directories[self.next % self.directories.len()];
            for name in place.names(directory)? {
                place.stat(&format!("{directory}/{name}"))?;
            }
        }
        self.next += 1;
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
