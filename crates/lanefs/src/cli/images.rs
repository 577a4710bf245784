//! The images that a command works on.

use super::{Failure, Size};
use lanefs::{FileSystem, OpenOptions};
use lanefs_device::Access;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Options of every command that opens an image.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct ImageArguments {
    /// Where the file system starts in the image, in bytes (suffixes K, M, G, T), as in a partition
    #[arg(long, value_name = "BYTES", default_value = "0")]
    pub offset: Size,
}

/// What a command does to an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Intent {
    /// Nothing is written.
    Read,
    /// It is changed.
    Change,
}

/// Open images, each opened once.
pub struct Images {
    open: Vec<(PathBuf, FileSystem)>,
}

impl Images {
    /// Opens each image of `wanted`, for the most that is intended with it.
    pub fn open<'a>(
        arguments: ImageArguments,
        wanted: impl IntoIterator<Item = (&'a Path, Intent)>,
    ) -> Result<Images, Failure> {
        let mut intents: Vec<(PathBuf, PathBuf, Intent)> = Vec::new();
        for (image, intent) in wanted {
            let real = image.canonicalize().map_err(|e| Failure::host(image.display(), &e))?;
            match intents.iter_mut().find(|(_, known, _)| *known == real) {
                Some((_, _, most)) => *most = intent.max(*most),
                None => intents.push((image.into(), real, intent)),
            }
        }
        let mut images = Images { open: Vec::new() };
        for (image, real, intent) in intents {
            let (options, access) = match intent {
                Intent::Read => (OpenOptions::new().read_only(), Access::ReadOnly),
                Intent::Change => (OpenOptions::new(), Access::ReadWrite),
            };
            let part = lanefs_device::OpenOptions { offset: arguments.offset.bytes(), len: None };
            let device = super::open_image(&image, access, part)
                .map_err(|error| Failure::opening(&image, &error))?;
            let fs = FileSystem::open_device(Arc::new(device), &options)
                .map_err(|error| Failure::within(image.display(), &error))?;
            images.open.push((real, fs));
        }
        Ok(images)
    }

    /// The file system of an image that was opened.
    pub fn get(&self, image: &Path) -> Result<&FileSystem, Failure> {
        let real = image.canonicalize().map_err(|e| Failure::host(image.display(), &e))?;
        let found = self.open.iter().find(|(known, _)| *known == real);
        found
            .map(|(_, fs)| fs)
            .ok_or_else(|| Failure::new(image.display(), "the image's name changed meanwhile"))
    }

    /// Closes them all; every one is closed, whatever happens to the others.
    pub fn close(self) -> Vec<Failure> {
        let close = |(image, fs): (PathBuf, FileSystem)| {
            fs.close().err().map(|error| Failure::within(image.display(), &error))
        };
        self.open.into_iter().filter_map(close).collect()
    }
}
