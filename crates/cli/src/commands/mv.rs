//! `lanefs mv`

use super::cp::{Aim, Destination, Names, Outcome, Written, default_workers, last_name};
use crate::cli::{
    Failure, FileArguments, ImagePath, Images, Intent, Operand, Report, process_umask,
    refuse_hidden_owners,
};
use crate::copy::{Dereference, Existing, ImageTree, Keep, Plan, Recursion, Tree, Verbose};
use lanefs::{FileSystem, Follow, Metadata, Rename};
use std::cell::RefCell;
use std::fs::File;
use std::path::PathBuf;
use std::process::ExitCode;

/// Moves or renames files of an image. Between images, or between image and host, copies the files,
/// and then removes the originals
#[derive(Debug, clap::Args)]
#[command(override_usage = "lanefs mv [OPTIONS] <SOURCE>... <DEST>")]
#[command(after_help = "\
Examples:
  lanefs mv disk.img:/a disk.img:/b
  lanefs mv disk.img:/logs /var/backup")]
pub struct Arguments {
    /// Sources, then the destination; several sources need a directory
    #[arg(required = true, num_args = 2.., value_name = "PLACE")]
    operands: Vec<Operand>,
    /// Do not overwrite existing files; a file that is not moved is a failure
    #[arg(short, long)]
    no_clobber: bool,
    #[command(flatten)]
    destination: Written,
    #[command(flatten)]
    image: FileArguments,
}

/// Runs `lanefs mv`.
pub fn run(arguments: &Arguments) -> ExitCode {
    let operands = &arguments.operands;
    let Some((target, sources)) = operands.split_last() else {
        return ExitCode::from(2);
    };
    Report::run("mv", |report| {
        if operands.contains(&Operand::Standard) {
            let why = "standard input and output cannot be moved: use lanefs cp";
            return Err(Failure::new("-", why).into());
        }
        if let Some(path) = operands.iter().find_map(Operand::host) {
            refuse_hidden_owners(path.display())?;
        }
        let places = operands.iter().filter_map(Operand::place);
        let wanted = places.map(|place| place.wanted(Intent::Change));
        let images = Images::open(&arguments.image, wanted)?;
        let aim = arguments.destination.aim(sources);
        let outcome = Outcome { report, made: &RefCell::default(), links: &Names::new() };
        for source in sources {
            report.check(move_one(arguments, &images, source, target, aim, outcome));
        }
        images.close(report);
        Ok(())
    })
}

fn move_one(
    arguments: &Arguments,
    images: &Images,
    source: &Operand,
    target: &Operand,
    aim: Aim,
    outcome: Outcome<'_>,
) -> Result<(), Failure> {
    if let (Operand::Image(from), Operand::Image(to)) = (source, target) {
        let (from_fs, to_fs) = (images.get(&from.image)?, images.get(&to.image)?);
        if std::ptr::eq(from_fs, to_fs) {
            return rename(arguments, from_fs, from, to, aim, outcome);
        }
    }
    let path = match source {
        Operand::Image(place) => place.path.as_path(),
        Operand::Host(path) => path,
        Operand::Standard => return Ok(()),
    };
    if last_name(path).is_none() {
        return Err(Failure::new(source, "does not end in a name"));
    }
    // A source that could not be copied completely is not removed.
    let copied = Report::new("mv");
    let plan = Plan {
        recursion: Recursion::Trees,
        dereference: Dereference::Never,
        existing: if arguments.no_clobber { Existing::Refuse } else { Existing::Replace },
        keep: Keep { mode: true, owner: true, times: true, attributes: true, links: true },
        owner: None,
        umask: process_umask(),
        verbose: Verbose::No,
        workers: default_workers(),
    };
    let copy = Outcome { report: &copied, ..outcome };
    let dir = open_dir(target, aim)?;
    super::cp::copy(images, std::slice::from_ref(source), target, plan, aim, copy)?;
    if copied.has_failed() {
        return Err(Failure::new(source, "not removed, because the copy is incomplete"));
    }
    make_durable(images, target, dir)?;
    match source {
        Operand::Image(place) => {
            let fs = images.get(&place.image)?;
            fs.remove_dir_all(&place.path).map_err(|error| place.failure(error))
        }
        Operand::Host(path) => {
            let is_dir = path.symlink_metadata().is_ok_and(|metadata| metadata.is_dir());
            let removed =
                if is_dir { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) };
            removed.map_err(Failure::on_host(path))
        }
        Operand::Standard => Ok(()),
    }
}

/// If the copy goes to the host, opens the directory in which the copy will lie. This is done
/// before the copy, because a link that is moved to `target` may lead to another file system.
fn open_dir(target: &Operand, aim: Aim) -> Result<Option<(File, PathBuf)>, Failure> {
    let Operand::Host(path) = target else { return Ok(None) };
    let dir = Destination::on_host(aim, path)?.dir.path();
    let file = File::open(&dir).map_err(Failure::on_host(&dir))?;
    Ok(Some((file, dir)))
}

/// Makes the copy in an image, or in the directory `dir` of the host, durable. After that, the
/// source may be removed.
fn make_durable(
    images: &Images,
    target: &Operand,
    dir: Option<(File, PathBuf)>,
) -> Result<(), Failure> {
    if let Operand::Image(to) = target {
        images.get(&to.image)?.sync().map_err(|error| to.failure(error))?;
    }
    if let Some((file, dir)) = dir {
        rustix::fs::syncfs(file).map_err(Failure::on_host(&dir))?;
    }
    Ok(())
}

fn rename(
    arguments: &Arguments,
    fs: &FileSystem,
    from: &ImagePath,
    to: &ImagePath,
    aim: Aim,
    outcome: Outcome<'_>,
) -> Result<(), Failure> {
    let into_dir = fs.metadata(&to.path).as_ref().is_ok_and(Metadata::is_dir);
    let to = match aim {
        Aim::Within if !into_dir => return Err(Failure::new(to, "not a directory")),
        Aim::Within | Aim::Either if into_dir => match last_name(&from.path) {
            Some(name) => to.join(name),
            None => return Err(Failure::new(from, "does not end in a name")),
        },
        _ => to.clone(),
    };
    let how = if arguments.no_clobber { Rename::NoReplace } else { Rename::Replace };
    // Both cases below are refused. If the two paths are names of one file, rename(2) would change
    // nothing and report success. If the source is a symbolic link to the destination, the link
    // would replace the file to which it leads.
    let is =
        |old: lanefs::Result<Metadata>, new: &Metadata| old.is_ok_and(|o| o.ino() == new.ino());
    if how == Rename::Replace
        && let Ok(new) = fs.symlink_metadata(&to.path)
        && (is(fs.symlink_metadata(&from.path), &new) || is(fs.metadata(&from.path), &new))
    {
        return Err(Failure::new(from, format_args!("is the same file as {to}")));
    }
    let tree = ImageTree::new(fs, &from.image);
    let node = tree.find(&from.path, Follow::Nothing)?;
    if how == Rename::Replace
        && let Ok(there) = tree.find(&to.path, Follow::Nothing)
    {
        outcome.check_not_made(&tree.meta(&there)?, &to)?;
    }
    match fs.rename_with(&from.path, &to.path, how) {
        Err(error) if arguments.no_clobber && error.is_exists() => Err(Failure::new(to, "exists")),
        done => done.map_err(|error| from.failure(error)),
    }?;
    outcome.made.borrow_mut().insert(tree.meta(&node)?.identity);
    Ok(())
}
