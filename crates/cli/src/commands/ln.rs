//! `lanefs ln`

use crate::cli::{FileArguments, ImagePath, change_each};
use lanefs::Metadata;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

/// Makes links in an image
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit codes: 0 success, 1 failure, 2 wrong usage.

Examples:
  lanefs ln -s /usr/lib disk.img:/lib         a symbolic link /lib that leads to /usr/lib
  lanefs ln disk.img:/bin/a disk.img:/bin/b   a second name of one file")]
pub struct Arguments {
    /// The existing file (IMAGE:/PATH); with -s, the text of the symbolic link
    target: OsString,
    /// The new name, or a directory to make it in
    #[arg(value_name = "IMAGE:/LINK")]
    link: ImagePath,
    /// Make a symbolic link
    #[arg(short, long)]
    symbolic: bool,
    /// Replace an existing file, but not a directory
    #[arg(short, long)]
    force: bool,
    #[command(flatten)]
    image: FileArguments,
}

/// Runs `lanefs ln`.
pub fn run(arguments: &Arguments) -> ExitCode {
    let target = if arguments.symbolic {
        PathBuf::from(&arguments.target)
    } else {
        let place = ImagePath::from(arguments.target.clone());
        if place.image != arguments.link.image {
            let report = crate::cli::Report::new("ln");
            report.fail(format_args!("{place}: is not in the image of the link"));
            return report.exit();
        }
        place.path
    };
    let link = std::slice::from_ref(&arguments.link);
    change_each("ln", &arguments.image, link, |fs, path| {
        let mut path = path.to_path_buf();
        if fs.metadata(&path).as_ref().is_ok_and(Metadata::is_dir) {
            path.extend(target.file_name());
        }
        if arguments.force && fs.symlink_metadata(&path).is_ok_and(|there| !there.is_dir()) {
            fs.remove_file(&path)?;
        }
        if arguments.symbolic { fs.symlink(&target, &path) } else { fs.hard_link(&target, &path) }
    })
}
