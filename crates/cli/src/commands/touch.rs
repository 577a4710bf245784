//! `lanefs touch`

use crate::cli::{FileArguments, ImagePath, change_each, long_help, parse_time, process_umask};
use lanefs::{FileOptions, Follow, SetAttr, SetTime, Time};
use std::process::ExitCode;

/// Sets times of files in an image; makes files that do not exist
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true, arg = long_help())]
#[command(after_help = "\
Examples:
  lanefs touch disk.img:/stamp
  lanefs touch -d 2024-05-01T12:30:00Z disk.img:/a")]
pub struct Arguments {
    /// The files
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    places: Vec<ImagePath>,
    /// Set only the access time
    #[arg(short, conflicts_with = "modified")]
    accessed: bool,
    /// Set only the modification time
    #[arg(short)]
    modified: bool,
    /// Do not make files
    #[arg(short = 'c', long)]
    no_create: bool,
    /// Set this time instead of the present: 2024-05-01 12:30, RFC 3339, or @SECONDS since 1970
    #[arg(short, long, value_name = "TIME", value_parser = parse_time)]
    date: Option<Time>,
    /// Change symbolic links themselves, not their targets
    #[arg(short = 'h', long)]
    no_dereference: bool,
    #[command(flatten)]
    image: FileArguments,
}

/// Runs `lanefs touch`.
pub fn run(arguments: &Arguments) -> ExitCode {
    let time = Some(arguments.date.map_or(SetTime::Now, SetTime::At));
    let set = SetAttr {
        atime: time.filter(|_| !arguments.modified),
        mtime: time.filter(|_| !arguments.accessed),
        ..SetAttr::default()
    };
    let follow = if arguments.no_dereference { Follow::Nothing } else { Follow::Links };
    let umask = process_umask();
    change_each("touch", &arguments.image, &arguments.places, |fs, path| {
        match fs.set_attr(path, &set, follow) {
            Err(error) if error.is_not_found() && arguments.no_create => Ok(()),
            Err(error) if error.is_not_found() && follow == Follow::Links => {
                let new = FileOptions::new().write(true).create(true).umask(umask);
                fs.open_file_with(path, &new)?;
                fs.set_attr(path, &set, follow)
            }
            done => done,
        }
    })
}
