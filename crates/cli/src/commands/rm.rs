//! `lanefs rm`

use crate::cli::{Failure, FileArguments, ImagePath, Intent, with_each};
use lanefs::FileSystem;
use std::path::{Component, Path};
use std::process::ExitCode;

/// Removes files from an image
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  lanefs rm -rf disk.img:/var/cache")]
pub struct Arguments {
    /// The files
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    places: Vec<ImagePath>,
    /// Remove directories recursively
    #[arg(short, long, visible_short_alias = 'R')]
    recursive: bool,
    /// Remove empty directories
    #[arg(short, long)]
    dir: bool,
    /// Ignore files that do not exist
    #[arg(short, long)]
    force: bool,
    #[command(flatten)]
    image: FileArguments,
}

/// Runs `lanefs rm`.
pub fn run(arguments: &Arguments) -> ExitCode {
    with_each("rm", &arguments.image, Intent::Change, &arguments.places, |fs, place, _| {
        let path = &place.path;
        if !path.components().any(|part| matches!(part, Component::Normal(_))) {
            let why = "the root directory cannot be removed: name the files in it";
            return Err(Failure::new(place, why));
        }
        match arguments.remove(fs, path) {
            Err(error) if arguments.force && error.is_not_found() => Ok(()),
            done => done.map_err(|error| place.failure(error)),
        }
    })
}

impl Arguments {
    fn remove(&self, fs: &FileSystem, path: &Path) -> lanefs::Result<()> {
        match () {
            () if self.recursive => fs.remove_dir_all(path),
            () if self.dir && fs.symlink_metadata(path)?.is_dir() => fs.remove_dir(path),
            () => fs.remove_file(path),
        }
    }
}
