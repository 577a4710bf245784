//! An image that a command processes as a whole, not file by file.

use super::patience::announce_mmp;
use super::{Failure, ImageArguments, complain, no_file_system, open_source, other_contents};
use lanefs::Source;
use lanefs::device::{Access, Device, OpenOptions};
use lanefs_offline::Image;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Opens an image or array, and prints the remarks about the members of an array.
pub fn open_with_notes(path: &Path, access: Access, part: OpenOptions) -> Result<Source, Failure> {
    let source = open_source(path, access, part)?;
    for note in source.notes() {
        complain(format_args!("lanefs: {}: {note}", path.display()));
    }
    Ok(source)
}

/// An open image or array, locked until it is closed or dropped.
pub struct WholeImage<'p> {
    path: &'p Path,
    source: Source,
    part: OpenOptions,
}

impl<'p> WholeImage<'p> {
    /// Opens the image. If the image is an array, prints the remarks about its members.
    pub fn open(
        path: &'p Path,
        arguments: ImageArguments,
        access: Access,
    ) -> Result<WholeImage<'p>, Failure> {
        let part = OpenOptions { offset: arguments.offset.bytes(), len: None };
        let source = open_with_notes(path, access, part)?;
        if access == Access::ReadWrite {
            announce_mmp("lanefs", path, &source.device());
        }
        Ok(WholeImage { path, source, part })
    }

    /// Returns the device that holds the file system.
    pub fn device(&self) -> Arc<dyn Device> {
        self.source.device()
    }

    /// Returns whether the file system takes up a whole image file, so that the file's length may
    /// be changed.
    pub fn is_whole_file(&self) -> bool {
        self.source.array().is_none() && self.part.offset == 0 && self.path.is_file()
    }

    /// Fails if a file system of `bytes` bytes would reach beyond the partition in which it begins.
    pub fn refuse_beyond_partition(&self, bytes: u64) -> Result<(), Failure> {
        let partition = match &self.source {
            Source::Image(device) => device.partition(),
            Source::Array(_) => None,
        };
        let room = self.device().len();
        match partition {
            Some(partition) if bytes > room => {
                let number = partition.number;
                let why = format_args!("{bytes} bytes: partition {number} has room for {room}");
                Err(Failure::new(self.path.display(), why))
            }
            _ => Ok(()),
        }
    }

    /// Fails if the image holds something else than an ext4 file system, damaged or not. Must be
    /// called before a repair, or the search for damage, trusts a copy of the superblock.
    pub fn refuse_other_contents(&self) -> Result<(), Failure> {
        match other_contents(&*self.device()) {
            Some(what) => {
                let why = format_args!("no ext4 file system: {what}");
                Err(Failure::new(self.path.display(), why))
            }
            None => Ok(()),
        }
    }

    /// Returns the paths of the files or devices that hold the image.
    pub fn files(&self) -> Vec<PathBuf> {
        match self.source.array() {
            None => vec![self.path.into()],
            Some(array) => array.metadata().members().into_iter().map(|m| m.name).collect(),
        }
    }

    /// Returns the open image or array, from which the caller can open the file system.
    pub fn into_source(self) -> Source {
        self.source
    }

    /// Describes an error of the image. If the image has no ext4 file system, names its contents.
    pub fn failure(&self, error: impl Display) -> Failure {
        match no_file_system(&*self.device()) {
            Some(why) => Failure::new(self.path.display(), why),
            None => Failure::new(self.path.display(), error),
        }
    }

    /// Opens the file system as a whole, with its journal if that is elsewhere.
    pub fn file_system(&self, journal: Option<&Arc<dyn Device>>) -> Result<Image, Failure> {
        Image::open_with(self.device(), journal).map_err(|error| self.failure(error))
    }

    /// Closes the image after work on it succeeded. The caller must have dropped every other
    /// reference to the device.
    pub fn end<T, E: Display>(self, done: Result<T, E>) -> Result<T, Failure> {
        let done = done.map_err(|error| self.failure(error))?;
        self.close()?;
        Ok(done)
    }

    /// Closes the image. The caller must have dropped every other reference to the device.
    pub fn close(self) -> Result<(), Failure> {
        self.source.close().map_err(|error| Failure::within(self.path.display(), &error))
    }
}
