//! `lanefs chmod`

use crate::cli::{FileArguments, ImagePath, Intent, Kind, ModeChange, process_umask, with_each};
use crate::copy::{Meta, Settings, Target};
use crate::walk::{Depth, each_file};
use lanefs::{FileType, Follow};
use std::process::ExitCode;

/// Changes modes in an image
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit codes: 0 success, 1 failure, 2 wrong usage. A file that fails does not stop the others, but an
image that cannot be opened does.

Examples:
  lanefs chmod 755 disk.img:/bin/sh
  lanefs chmod -R go-w disk.img:/etc")]
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
    image: FileArguments,
}

/// Runs `lanefs chmod`.
pub fn run(arguments: &Arguments) -> ExitCode {
    let umask = process_umask();
    let depth = if arguments.recursive { Depth::Tree } else { Depth::Itself };
    let places = &arguments.places;
    with_each("chmod", &arguments.image, Intent::Change, places, |fs, place, report| {
        // A recursive change skips symbolic links, since a link has no mode.
        let follow = if arguments.recursive { Follow::Nothing } else { Follow::Links };
        each_file(fs, place, depth, follow, report, &mut |tree, _, entry| {
            if entry.meta.file_type == FileType::Symlink {
                return Ok(());
            }
            let permissions = Some(changed(&entry.meta, &arguments.mode, umask));
            tree.set(&entry.node, &Settings { permissions, ..Settings::default() })
        });
        Ok(())
    })
}

fn changed(meta: &Meta, mode: &ModeChange, umask: u16) -> u16 {
    let kind = match meta.file_type {
        FileType::Directory => Kind::Directory,
        _ => Kind::Other,
    };
    mode.apply(meta.permissions, kind, umask)
}
