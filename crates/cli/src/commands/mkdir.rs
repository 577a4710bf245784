//! `lanefs mkdir`

use crate::cli::{FileArguments, ImagePath, Kind, ModeChange, change_each, process_umask};
use lanefs::{FileSystem, Metadata, NewKind, NewNode};
use std::path::Path;
use std::process::ExitCode;

/// Makes directories in an image
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit codes: 0 success, 1 failure, 2 wrong usage. A file that fails does not stop the others, but an
image that cannot be opened does.

Example:
  lanefs mkdir -p disk.img:/usr/local/bin disk.img:/etc")]
pub struct Arguments {
    /// The directories
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    places: Vec<ImagePath>,
    /// Make missing parents too, and ignore directories that exist
    #[arg(short, long)]
    parents: bool,
    /// Mode of the directories, octal or symbolic as in chmod
    #[arg(short, long)]
    mode: Option<ModeChange>,
    #[command(flatten)]
    image: FileArguments,
}

/// Runs `lanefs mkdir`.
pub fn run(arguments: &Arguments) -> ExitCode {
    let umask = process_umask();
    let permissions = match &arguments.mode {
        Some(mode) => mode.apply(0o777, Kind::Directory, umask),
        None => 0o777 & !umask,
    };
    change_each("mkdir", &arguments.image, &arguments.places, |fs, path| {
        make(fs, path, arguments, permissions)
    })
}

fn make(
    fs: &FileSystem,
    path: &Path,
    arguments: &Arguments,
    permissions: u16,
) -> lanefs::Result<()> {
    if arguments.parents {
        if fs.metadata(path).as_ref().is_ok_and(Metadata::is_dir) {
            return Ok(());
        }
        if let Some(parent) = path.parent() {
            fs.create_dir_all(parent)?;
        }
    }
    fs.create_node(path, &NewNode { kind: NewKind::Directory, permissions, umask: 0 })
}
