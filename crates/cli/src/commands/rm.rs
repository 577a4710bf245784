//! `lanefs rm`

use crate::cli::{FileArguments, ImagePath, change_each};
use std::process::ExitCode;

/// Removes files from an image
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit codes: 0 success, 1 failure, 2 wrong usage. A file that fails does not stop the others, but an
image that cannot be opened does.

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
    change_each("rm", &arguments.image, &arguments.places, |fs, path| {
        let done = match () {
            () if arguments.recursive => fs.remove_dir_all(path),
            () if arguments.dir && fs.symlink_metadata(path)?.is_dir() => fs.remove_dir(path),
            () => fs.remove_file(path),
        };
        match done {
            Err(error) if arguments.force && error.is_not_found() => Ok(()),
            done => done,
        }
    })
}
