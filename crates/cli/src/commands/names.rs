//! Names in an image: made, linked, moved and removed.

use crate::cli::{
    Failure, FileArguments, ImagePath, Images, Intent, ModeChange, Operand, Report, change_each,
    process_umask, refuse_hidden_owners, with_each,
};
use crate::commands::cp::{
    Aim, Destination, Names, Outcome, Written, default_workers, ends_in_dot, last_name,
};
use crate::copy::{
    Dereference, Existing, ImageTree, Keep, Plan, Recursion, Tree, Verbose, replace,
};
use lanefs::{Cause, Ext4Error, FileSystem, FileType, Follow, Metadata, NewKind, NewNode, Rename};
use std::cell::RefCell;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::process::ExitCode;

/// Makes directories in an image
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  lanefs mkdir -p disk.img:/usr/local/bin disk.img:/etc")]
pub struct Mkdir {
    /// The directories
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    places: Vec<ImagePath>,
    /// Make missing parents too, and ignore directories that exist
    #[arg(short, long)]
    parents: bool,
    /// Mode of the directories, octal or symbolic as in chmod
    #[arg(short, long, allow_hyphen_values = true)]
    mode: Option<ModeChange>,
    #[command(flatten)]
    image: FileArguments,
}

/// Runs `lanefs mkdir`.
pub fn mkdir(arguments: &Mkdir) -> ExitCode {
    let umask = process_umask();
    change_each("mkdir", &arguments.image, &arguments.places, |fs, path| {
        make(fs, path, arguments, umask)
    })
}

fn make(fs: &FileSystem, path: &Path, arguments: &Mkdir, umask: u16) -> lanefs::Result<()> {
    let is_dir = |path: &Path| fs.metadata(path).as_ref().is_ok_and(Metadata::is_dir);
    let new = |permissions, umask| NewNode { kind: NewKind::Directory, permissions, umask };
    // A dot at the end stands for the directory itself, which is made as a parent of the dot.
    let is_parent = arguments.parents && ends_in_dot(path);
    let path = if arguments.parents { path.components().as_path() } else { path };
    if arguments.parents {
        if is_dir(path) {
            return Ok(());
        }
        let missing = path.ancestors().skip(1).take_while(|above| !is_dir(above));
        let missing: Vec<&Path> = missing.filter(|above| above.file_name().is_some()).collect();
        for above in missing.into_iter().rev() {
            // The owner may write to a new parent, whatever the umask says.
            match fs.create_node(above, &new(0o777, umask & !0o300)) {
                Err(error) if error.is_exists() && is_dir(above) => {}
                made => made?,
            }
        }
    }
    let umask = if is_parent { umask & !0o300 } else { umask };
    let Some(mode) = arguments.mode.as_ref().filter(|_| !is_parent) else {
        return fs.create_node(path, &new(0o777, umask));
    };
    let (mode, decided) = mode.applied(0o777, FileType::Directory, umask);
    fs.create_node(path, &new(mode & 0o1777, 0))?;
    // The other bits may be those that the directory has inherited. As in mkdir(1), if a bit that
    // the change names has to be set or cleared, all bits of the wanted mode are set with it.
    let made = fs.symlink_metadata(path)?.permissions();
    match (made ^ mode) & decided {
        0 => Ok(()),
        _ => fs.set_permissions(path, mode | made & !decided),
    }
}

/// Makes links in an image
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  lanefs ln -s /usr/lib disk.img:/lib         a symbolic link /lib that leads to /usr/lib
  lanefs ln disk.img:/bin/a disk.img:/bin/b   a second name of one file")]
pub struct Ln {
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
pub fn ln(arguments: &Ln) -> ExitCode {
    let target = if arguments.symbolic {
        PathBuf::from(&arguments.target)
    } else {
        let place = ImagePath::from(arguments.target.clone());
        if place.image != arguments.link.image {
            let why = Failure::new(place, "is not in the image of the link");
            return Report::run("ln", |_| Err(why.into()));
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
    arguments: &Ln,
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

/// Moves or renames files of an image. Between images, or between image and host, copies the files,
/// and then removes the originals
#[derive(Debug, clap::Args)]
#[command(override_usage = "lanefs mv [OPTIONS] <SOURCE>... <DEST>")]
#[command(after_help = "\
Examples:
  lanefs mv disk.img:/a disk.img:/b
  lanefs mv disk.img:/logs /var/backup")]
pub struct Mv {
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
pub fn mv(arguments: &Mv) -> ExitCode {
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
        let aim = arguments.destination.aim(sources)?;
        let outcome = Outcome { report, made: &RefCell::default(), links: &Names::new() };
        for source in sources {
            report.check(move_one(arguments, &images, source, target, aim, outcome));
        }
        images.close(report);
        Ok(())
    })
}

fn move_one(
    arguments: &Mv,
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
    arguments: &Mv,
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

/// Removes files from an image
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  lanefs rm -rf disk.img:/var/cache")]
pub struct Rm {
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
pub fn rm(arguments: &Rm) -> ExitCode {
    with_each("rm", &arguments.image, Intent::Change, &arguments.places, |fs, place, _| {
        let path = &place.path;
        if !path.components().any(|part| matches!(part, Component::Normal(_))) {
            let why = "the root directory cannot be removed: name the files in it";
            return Err(Failure::new(place, why));
        }
        match arguments.remove(fs, path) {
            Err(error) if arguments.force && is_absent(&error) && fs.metadata(path).is_err() => {
                Ok(())
            }
            done => done.map_err(|error| place.failure(error)),
        }
    })
}

/// Returns whether a path leads to nothing: a name is missing, or what has more names or a slash
/// behind it is no directory.
fn is_absent(error: &lanefs::Error) -> bool {
    error.is_not_found() || matches!(error.cause(), Cause::FileSystem(Ext4Error::NotDirectory))
}

impl Rm {
    fn remove(&self, fs: &FileSystem, path: &Path) -> lanefs::Result<()> {
        match () {
            () if self.recursive => fs.remove_dir_all(path),
            () if self.dir && fs.symlink_metadata(path)?.is_dir() => fs.remove_dir(path),
            () => fs.remove_file(path),
        }
    }
}
