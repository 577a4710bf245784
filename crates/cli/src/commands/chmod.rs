//! `lanefs chmod`

use super::tree_walk::{Links, each_below};
use crate::cli::{ImageArguments, ImagePath, Kind, ModeChange, change_each, process_umask};
use lanefs::{FileSystem, FileType, SetAttr};
use std::path::Path;
use std::process::ExitCode;

/// Changes modes in an image
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  lanefs chmod 755 disk.img:/bin/sh\n  lanefs chmod -R go-w disk.img:/etc"
)]
pub struct Arguments {
    /// The mode, octal or symbolic: 755, u+x, go-w, a=rX
    #[arg(allow_hyphen_values = true)]
    mode: ModeChange,
    /// The files
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    places: Vec<ImagePath>,
    /// Change directories recursively
    #[arg(short = 'R', long)]
    recursive: bool,
    #[command(flatten)]
    image: ImageArguments,
}

/// Runs `lanefs chmod`.
pub fn run(arguments: &Arguments) -> ExitCode {
    let umask = process_umask();
    let change = |fs: &FileSystem, path: &Path| change(fs, path, &arguments.mode, umask);
    change_each("chmod", arguments.image, &arguments.places, |fs, path| {
        if arguments.recursive {
            each_below(fs, path, Links::Skip, &mut |path| change(fs, path))
        } else {
            change(fs, path)
        }
    })
}

fn change(fs: &FileSystem, path: &Path, mode: &ModeChange, umask: u16) -> lanefs::Result<()> {
    let metadata = fs.metadata(path)?;
    let kind = match metadata.file_type() {
        FileType::Directory => Kind::Directory,
        _ => Kind::Other,
    };
    let permissions = Some(mode.apply(metadata.permissions(), kind, umask));
    fs.set_attr(path, &SetAttr { permissions, ..SetAttr::default() }, lanefs::Follow::Links)
}
