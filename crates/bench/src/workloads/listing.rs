//! Workloads that read directories, trees and the number of free blocks.

use crate::error::Result;
use crate::worker::{Assignment, Operation, Worker};

/// Lists a directory.
pub(crate) struct List<'a> {
    given: Assignment<'a>,
}

impl<'a> List<'a> {
    pub fn new(given: Assignment<'a>) -> Result<List<'a>> {
        for n in 0..given.scale.files {
            given.stop.check()?;
            given.place.create(&format!("{}/f{n}", given.own))?;
        }
        Ok(List { given })
    }
}

impl Worker for List<'_> {
    fn operation(&mut self) -> Result<Operation> {
        let found = self.given.place.list(&self.given.own)?;
        let wanted = self.given.scale.files;
        if found != u64::from(wanted) {
            let path = self.given.own.clone();
            let done = usize::try_from(found).unwrap_or(usize::MAX);
            return Err(crate::error::Error::Short { path, done, wanted: wanted as usize });
        }
        Ok(Operation::Done)
    }
}

/// The number of files in each directory of a [`Walk`].
const FILES_A_DIRECTORY: u32 = 50;

/// What one operation of a walk does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stride {
    /// Reads the attributes of the next file, whose path is already known, as `git diff` does.
    File,
    /// Lists the next directory and reads the attributes of each file in it.
    Directory,
}

/// A repeated walk through a tree, one tree per thread.
pub(crate) struct Walk<'a> {
    given: Assignment<'a>,
    directories: Vec<String>,
    files: Vec<String>,
    stride: Stride,
    next: usize,
}

impl<'a> Walk<'a> {
    pub fn new(given: Assignment<'a>, stride: Stride) -> Result<Walk<'a>> {
        let (mut directories, mut files) = (Vec::new(), Vec::new());
        for n in 0..given.scale.files.max(1) {
            given.stop.check()?;
            if n % FILES_A_DIRECTORY == 0 {
                let directory = format!("{}/d{}", given.own, n / FILES_A_DIRECTORY);
                given.place.make_dir(&directory)?;
                directories.push(directory);
            }
            let file = format!("{}/d{}/f{n}", given.own, n / FILES_A_DIRECTORY);
            given.place.create(&file)?;
            files.push(file);
        }
        Ok(Walk { given, directories, files, stride, next: 0 })
    }
}

impl Worker for Walk<'_> {
    fn operation(&mut self) -> Result<Operation> {
        let place = self.given.place;
        if self.stride == Stride::File {
            place.stat(&self.files[self.next % self.files.len()])?;
        } else {
            let directory = &self.directories[self.next % self.directories.len()];
            for name in place.names(directory)? {
                place.stat(&format!("{directory}/{name}"))?;
            }
        }
        self.next += 1;
        Ok(Operation::Done)
    }
}

/// Reads the number of free blocks.
pub(crate) struct Space<'a> {
    given: Assignment<'a>,
}

impl<'a> Space<'a> {
    pub fn new(given: Assignment<'a>) -> Space<'a> {
        Space { given }
    }
}

impl Worker for Space<'_> {
    fn operation(&mut self) -> Result<Operation> {
        self.given.place.free_blocks()?;
        Ok(Operation::Done)
    }
}
