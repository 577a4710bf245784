//! `lanefs chmod`

use crate::cli::{FileArguments, ImagePath, Intent, ModeChange, process_umask, with_each};
use crate::copy::{Meta, Settings, Tree};
use crate::walk::{Depth, each_file};
use lanefs::{FileType, Follow};
use std::process::ExitCode;

/// Changes modes in an image
#[derive(Debug, clap::Args)]
#[command(after_help = "\
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
            let Meta { permissions, file_type, .. } = entry.meta;
            let permissions = Some(arguments.mode.apply(permissions, file_type, umask));
            tree.set(&entry.node, &Settings { permissions, ..Settings::default() })
        })
    })
}
