//! `lanefs ln`

use super::cp::{Aim, Destination};
use crate::cli::{Failure, FileArguments, ImagePath, Intent, with_each};
use crate::copy::{ImageTree, replace};
use lanefs::{FileSystem, Metadata};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Makes links in an image
#[derive(Debug, clap::Args)]
#[command(after_help = "\
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
    with_each("ln", &arguments.image, Intent::Change, link, |fs, place, _| {
        let mut place = place.clone();
        if fs.metadata(&place.path).as_ref().is_ok_and(Metadata::is_dir)
            && let Some(name) = target.file_name()
        {
            place = place.join(name);
        }
        let make = |path: &Path| match arguments.symbolic {
            true => fs.symlink(&target, path),
            false => fs.hard_link(&target, path),
        };
        let there = fs.symlink_metadata(&place.path);
        match there.ok().filter(|there| arguments.force && !there.is_dir()) {
            Some(there) => replaced(arguments, fs, &target, &place, &there, &make),
            None => make(&place.path).map_err(|error| place.failure(error)),
        }
    })
}

/// Replaces the file `there` at `place` by a link.
fn replaced(
    arguments: &Arguments,
    fs: &FileSystem,
    target: &Path,
    place: &ImagePath,
    there: &Metadata,
    make: &dyn Fn(&Path) -> lanefs::Result<()>,
) -> Result<(), Failure> {
    let above = place.path.parent().unwrap_or(Path::new("/"));
    // A symbolic link to itself would take the place of the file.
    let original = match arguments.symbolic {
        true => fs.metadata(above.join(target)),
        false => fs.symlink_metadata(target),
    };
    if original.is_ok_and(|original| original.ino() == there.ino()) {
        // rename(2) of a name of the file to another one does nothing.
        return match there.links() > 1 && !arguments.symbolic && !is_one_name(fs, target, place) {
            true => Ok(()),
            false => Err(Failure::new(place, "is the same file as the target")),
        };
    }
    let Destination { dir, name: Some(name), .. } =
        Destination::find(Aim::Itself, &ImageTree::new(fs, &place.image), place, fs)?
    else {
        return Ok(());
    };
    let tree = ImageTree::new(fs, &place.image);
    let made = replace(&tree, &dir, &name, |temporary| {
        let made = make(&above.join(OsStr::from_bytes(temporary)));
        made.map_err(|error| place.failure(error))
    });
    made.map(drop)
}

/// Returns whether `a` and the path of `b` are the same name in the same directory.
fn is_one_name(fs: &FileSystem, a: &Path, b: &ImagePath) -> bool {
    let dir = |path: &Path| fs.metadata(path.parent()?).ok().map(|dir| dir.ino());
    a.file_name() == b.path.file_name() && dir(a) == dir(&b.path)
}
