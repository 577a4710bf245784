//! `lanefs cp`

mod destination;

pub use destination::{Aim, Destination, ends_in_dot};

use crate::cli::{
    Failure, FileArguments, ImagePath, Images, Intent, Operand, Report, Stop, parse_ids,
    process_umask, refuse_hidden_owners, refuse_partition_name,
};
use crate::copy::{
    Copier, Dereference, Existing, HostTree, INTO_ITSELF, ImageNode, ImageTree, Keep, Links, Meta,
    Opening, Plan, Progress, Recursion, Seen, Settings, Trail, Tree, TreeFile, Verbose, pump,
    replace,
};
use lanefs::{FileOptions, FileSystem, FileType, Follow, Metadata, NewKind, NewNode};
use lanefs_ext4::Ascent;
use std::cell::RefCell;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Component, Path};
use std::process::ExitCode;

/// Upper limit of the default number of threads. With more threads, the device is the bottleneck.
const MAX_WORKERS: usize = 8;

/// Copies files into an image, out of it, within it, or between images
#[derive(Debug, clap::Args)]
#[command(override_usage = "lanefs cp [OPTIONS] <SOURCE>... <DEST>")]
#[command(after_help = "\
IMAGE:/PATH is a file in an image, IMAGE: its root directory. '-' is standard input or output. A
host path that contains ':/' needs ./ in front (./a:/b, or ./../../srv/a:/b for /srv/a:/b).

A file of an image that is overwritten stays until the copy is complete, if there is space for both
(standard input always needs it).
New files in an image belong to user and group 0 unless -p, -a or --owner is given. A copy out of an
image by an ordinary user does not keep owners, privileged attributes and set-ID bits.

Examples:
  lanefs cp -a rootfs/. disk.img:/            fill an image, all attributes kept
  lanefs cp disk.img:/etc/fstab .             take a file out
  lanefs cp -a disk.img:/home /backup         take a tree out
  lanefs cp -r a.img:/data b.img:/            from image to image
  tar c dir | lanefs cp - disk.img:/dir.tar   from standard input")]
pub struct Arguments {
    /// Sources, then the destination; several sources need a directory
    #[arg(required = true, num_args = 2.., value_name = "PLACE")]
    operands: Vec<Operand>,
    /// Copy recursively and keep mode, owner, times, links and all extended attributes (-rdp and
    /// more)
    #[arg(short, long)]
    archive: bool,
    /// Copy directories recursively
    #[arg(short, long, visible_short_alias = 'R')]
    recursive: bool,
    /// Keep mode, access control lists, owner and times
    #[arg(short)]
    preserve: bool,
    /// Copy symbolic links themselves, and keep hard links
    #[arg(short = 'd')]
    links: bool,
    /// Copy symbolic links themselves
    #[arg(short = 'P', long, overrides_with = "dereference")]
    no_dereference: bool,
    /// Follow symbolic links and copy their targets
    #[arg(short = 'L', long)]
    dereference: bool,
    /// Do not overwrite existing files
    #[arg(short, long)]
    no_clobber: bool,
    #[command(flatten)]
    destination: Written,
    /// Owner and group of all copies, as numbers
    #[arg(long, value_name = "UID:GID", value_parser = parse_ids)]
    owner: Option<(u32, u32)>,
    /// Number of threads [default: one per core, at most 8]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    jobs: Option<u16>,
    /// Print each file name
    #[arg(short, long)]
    verbose: bool,
    #[command(flatten)]
    image: FileArguments,
}

impl Arguments {
    fn plan(&self) -> Plan {
        let recursive = self.recursive || self.archive;
        let never = self.no_dereference || self.archive || self.links;
        let dereference = match (self.dereference, never || recursive) {
            (true, _) => Dereference::Always,
            (false, true) => Dereference::Never,
            (false, false) => Dereference::Operands,
        };
        let keep = Keep {
            mode: self.archive || self.preserve,
            owner: self.archive || self.preserve,
            times: self.archive || self.preserve,
            attributes: self.archive,
            links: self.archive || self.links,
        };
        Plan {
            recursion: if recursive { Recursion::Trees } else { Recursion::FilesOnly },
            dereference,
            existing: if self.no_clobber { Existing::Keep } else { Existing::Overwrite },
            keep,
            owner: self.owner,
            umask: process_umask(),
            verbose: if self.verbose { Verbose::Yes } else { Verbose::No },
            workers: self.jobs.map_or_else(default_workers, usize::from),
        }
    }
}

/// Returns the default number of threads: one for each core, but at most `MAX_WORKERS`.
pub fn default_workers() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).min(MAX_WORKERS)
}

/// Runs `lanefs cp`.
pub fn run(arguments: &Arguments) -> ExitCode {
    let Some((target, sources)) = arguments.operands.split_last() else {
        return ExitCode::from(2);
    };
    Report::run("cp", |report| {
        let plan = arguments.plan();
        if plan.keep.owner
            && plan.owner.is_none()
            && let Some(path) = arguments.operands.iter().find_map(Operand::host)
        {
            refuse_hidden_owners(path.display())?;
        }
        let read = sources.iter().filter_map(|source| Some(source.place()?.wanted(Intent::Read)));
        let written = target.place().map(|place| place.wanted(Intent::Change));
        let images = Images::open(&arguments.image, read.chain(written))?;
        let aim = arguments.destination.aim(sources)?;
        let outcome = Outcome { report, made: &RefCell::default(), links: &Names::new() };
        report.check(copy(&images, sources, target, plan, aim, outcome));
        images.close(report);
        Ok(())
    })
}

/// Options that concern the destination.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct Written {
    /// Treat the destination as the name of the copy, even if it is a directory
    #[arg(short = 'T', long)]
    no_target_directory: bool,
}

impl Written {
    /// Returns how to interpret the destination for this number of sources.
    pub fn aim(self, sources: &[Operand]) -> Result<Aim, Failure> {
        match (self.no_target_directory, sources.len() > 1) {
            (true, true) => Err(Failure::new("-T", "it takes one source")),
            (true, false) => Ok(Aim::Itself),
            (false, true) => Ok(Aim::Within),
            (false, false) => Ok(Aim::Either),
        }
    }
}

/// The copies of files that have several names, which the operands of a command share.
pub struct Names {
    in_image: Links<ImageNode>,
    on_host: Links<Trail>,
}

impl Names {
    pub fn new() -> Names {
        Names { in_image: Links::new(), on_host: Links::new() }
    }
}

/// The results of the operands that were copied or moved.
#[derive(Clone, Copy)]
pub struct Outcome<'a> {
    pub report: &'a Report,
    /// The files to which operands were copied. No later operand may replace them.
    pub made: &'a RefCell<Seen>,
    pub links: &'a Names,
}

impl Outcome<'_> {
    /// Fails if an operand was copied to the file `there`, which is shown as `shown`.
    pub fn check_not_made(
        &self,
        there: &Meta,
        shown: impl std::fmt::Display,
    ) -> Result<(), Failure> {
        match self.made.borrow().contains(there.identity) {
            true => {
                Err(Failure::new(shown, "is not overwritten: another source was written to it"))
            }
            false => Ok(()),
        }
    }
}

/// Copies all `sources` to `target`. A source is a file of the host or of an image, or standard
/// input.
pub fn copy(
    images: &Images,
    sources: &[Operand],
    target: &Operand,
    plan: Plan,
    aim: Aim,
    outcome: Outcome<'_>,
) -> Result<(), Failure> {
    match target {
        Operand::Image(place) => {
            let fs = images.get(&place.image)?;
            let tree = ImageTree::new(fs, &place.image);
            let mut destination = Destination::find(aim, &tree, place, fs)?;
            if fills_target(images, sources, plan)? {
                // If the link leads to the operand itself, it is followed, and the copy is refused.
                let stays =
                    |found: &Metadata| plan.keep.links && !is_among(images, sources, place, found);
                destination = destination.behind_link(&tree, place, fs, stays)?;
            }
            let input = |from: &mut dyn Read, shown: &Path| {
                stream_in((fs, &tree), &destination, place, plan, (from, shown))
            };
            let target = Place { tree: &tree, destination: &destination };
            let links = &outcome.links.in_image;
            into(images, sources, target, plan, (outcome, links), |source| match source {
                Operand::Standard => Some(input(&mut io::stdin(), Path::new("-"))),
                Operand::Host(path) if plan.reads_stream(path) => {
                    let opened = File::open(path).map_err(Failure::on_host(path));
                    Some(opened.and_then(|mut file| input(&mut file, path)))
                }
                _ => None,
            })
        }
        Operand::Host(path) => {
            if let Some(host) = sources.iter().find(|s| matches!(s, Operand::Host(_))) {
                let why = match host.is_escaped() || target.is_escaped() {
                    true => {
                        "with ./ in front it is a host path; source or destination must be in an image"
                    }
                    false => {
                        "neither source nor destination is in an image (IMAGE:/PATH): use cp(1)"
                    }
                };
                let shown = if target.is_escaped() { target } else { host };
                return Err(Failure::new(shown, why));
            }
            refuse_partition_name(path)?;
            let tree = HostTree::beside(images.files());
            let mut destination = Destination::on_host(aim, path)?;
            let mut stream = None;
            if fills_target(images, sources, plan)? {
                stream = destination.path().filter(|path| is_stream(path));
                if stream.is_none() {
                    destination = destination.behind_link()?;
                }
            }
            let target = Place { tree: &tree, destination: &destination };
            let links = &outcome.links.on_host;
            into(images, sources, target, plan, (outcome, links), |source| {
                match (source, &stream) {
                    (Operand::Standard, _) => {
                        let why = "standard input can only be copied into an image";
                        Some(Err(Failure::new("-", why)))
                    }
                    (Operand::Image(place), Some(path)) => {
                        Some(images.get(&place.image).and_then(|fs| stream_out(fs, place, path)))
                    }
                    _ => None,
                }
            })
        }
        Operand::Standard => {
            let mut out = io::stdout().lock();
            for source in sources {
                let not_here = || Failure::new(source, "is not in an image");
                let place = std::slice::from_ref(source.place().ok_or_else(not_here)?);
                let printed = images.each(place, outcome.report, |fs, place| {
                    super::list::write_to(fs, place, &mut out)
                });
                outcome.report.printed(printed);
            }
            Ok(())
        }
    }
}

/// Where copies go.
struct Place<'a, T: Tree> {
    tree: &'a T,
    destination: &'a Destination<T::Node>,
}

/// Copies the sources to one target. If a source is not a file in a tree, `special` copies it. For
/// every other source, `special` returns `None`.
fn into<T: Tree>(
    images: &Images,
    sources: &[Operand],
    Place { tree: target, destination }: Place<'_, T>,
    plan: Plan,
    (outcome, links): (Outcome<'_>, &Links<T::Node>),
    special: impl Fn(&Operand) -> Option<Result<(), Failure>>,
) -> Result<(), Failure> {
    let (report, progress) = (outcome.report, Progress::new());
    let host = HostTree::beside(images.files());
    let from_host = Copier::new(&host, target, plan, links, report, &progress);
    for source in sources {
        if let Some(done) = special(source) {
            report.check(done);
            continue;
        }
        match source {
            Operand::Host(path) => {
                let node = (&Trail::new(path), path.as_path());
                report.check(one(&from_host, &host, node, target, destination, outcome));
                from_host.copy_waiting();
                from_host.finish();
            }
            Operand::Image(place) => {
                let tree = ImageTree::new(images.get(&place.image)?, &place.image);
                let copier = Copier::new(&tree, target, plan, links, report, &progress);
                let found = tree.find(&place.path, Follow::Nothing);
                report.check(found.and_then(|node| {
                    one(&copier, &tree, (&node, &place.path), target, destination, outcome)
                }));
                copier.copy_waiting();
                copier.finish();
            }
            Operand::Standard => {}
        }
    }
    Ok(())
}

/// Copies one operand.
fn one<S: Tree, T: Tree>(
    copier: &Copier<'_, S, T>,
    source: &S,
    (node, path): (&S::Node, &Path),
    target: &T,
    destination: &Destination<T::Node>,
    outcome: Outcome<'_>,
) -> Result<(), Failure> {
    let name = match (&destination.name, path.components().next_back()) {
        (Some(name), _) => name.clone(),
        (None, Some(Component::Normal(name))) if !ends_in_dot(path) => name.as_bytes().to_vec(),
        // A source without a last name, such as "dir/." or the root, is copied into the directory
        // itself.
        (None, _) => {
            if source.meta(node)?.file_type != FileType::Directory {
                return Err(Failure::new(source.show(node), "not a directory"));
            }
            check_not_within(source, node, target, &destination.dir)?;
            copier.copy_into(node, &destination.dir);
            return Ok(());
        }
    };
    if destination.slash.follows() && !copier.is_directory(node)? {
        let shown = target.show_entry(&destination.dir, &name);
        return Err(Failure::new(format_args!("{shown}/"), "not a directory"));
    }
    if let Some((there, meta)) = target.look(&destination.dir, &name)? {
        if copier.keeps(node, &meta)? {
            return Ok(());
        }
        check_not_within(source, node, target, &there)?;
        if copier.overwrites(meta.file_type) {
            outcome.check_not_made(&meta, target.show_entry(&destination.dir, &name))?;
        }
    }
    check_not_within(source, node, target, &destination.dir)?;
    if copier.copy(node, &destination.dir, &name)
        && let Some((_, made)) = target.look(&destination.dir, &name)?
    {
        outcome.made.borrow_mut().insert(made.identity);
    }
    Ok(())
}

/// Fails if the target directory `dir` is the source directory `node` or lies inside it, because
/// the copy would never terminate.
fn check_not_within<S: Tree, T: Tree>(
    source: &S,
    node: &S::Node,
    target: &T,
    dir: &T::Node,
) -> Result<(), Failure> {
    let meta = source.meta(node)?;
    if meta.file_type != FileType::Directory {
        return Ok(());
    }
    let mut at = dir.clone();
    let mut ascent = None;
    loop {
        let Some((here, there)) = target.look(&at, b".")? else { return Ok(()) };
        if there.identity == meta.identity {
            let shown = source.show(node);
            return Err(Failure::new(shown, INTO_ITSELF));
        }
        match target.look(&here, b"..")? {
            Some((above, up)) if up.identity != there.identity => {
                // In a damaged image, the parent directories can form a cycle.
                let ascent = ascent.get_or_insert_with(|| Ascent::new(there.identity));
                if ascent.step(&up.identity).is_err() {
                    let shown = target.show_entry(&here, b"..");
                    return Err(Failure::new(shown, "the parents of this directory form a ring"));
                }
                at = above;
            }
            _ => return Ok(()),
        }
    }
}

impl Plan {
    /// Returns whether `path` is a FIFO or character device of the host whose data the copy reads.
    /// A recursive copy makes a FIFO or device instead. A symbolic link that is not followed is
    /// copied as a link.
    fn reads_stream(self, path: &Path) -> bool {
        let follows = self.dereference != Dereference::Never;
        self.recursion == Recursion::FilesOnly && is_stream(path) && (follows || !path.is_symlink())
    }
}

fn is_stream(path: &Path) -> bool {
    path.metadata().is_ok_and(|metadata| {
        let kind = metadata.file_type();
        kind.is_fifo() || kind.is_char_device()
    })
}

/// Returns whether a file that exists at the target's path is overwritten in place. If the path is
/// a symbolic link, the copy then follows the link. A file is overwritten in place if existing
/// files are to be overwritten and the only source is a regular file, or a link that is followed to
/// a regular file.
fn fills_target(images: &Images, sources: &[Operand], plan: Plan) -> Result<bool, Failure> {
    let [source] = sources else { return Ok(false) };
    if plan.existing != Existing::Overwrite {
        return Ok(false);
    }
    let follows = plan.dereference != Dereference::Never;
    Ok(match source {
        Operand::Image(place) => {
            let fs = images.get(&place.image)?;
            let found = match follows {
                true => fs.metadata(&place.path),
                false => fs.symlink_metadata(&place.path),
            };
            found.is_ok_and(|found| found.is_file())
        }
        Operand::Host(path) => {
            let found = if follows { path.metadata() } else { path.symlink_metadata() };
            found.is_ok_and(|found| found.is_file())
        }
        Operand::Standard => false,
    })
}

/// Returns whether a source is the file `found` of the image of `target`.
fn is_among(images: &Images, sources: &[Operand], target: &ImagePath, found: &Metadata) -> bool {
    let same = |place: &ImagePath| {
        let source = images.get(&place.image).ok().and_then(|fs| fs.metadata(&place.path).ok());
        place.image == target.image && source.is_some_and(|source| source.ino() == found.ino())
    };
    sources.iter().filter_map(Operand::place).any(same)
}

/// Writes the data of a file of an image to a device or FIFO of the host.
fn stream_out(fs: &FileSystem, place: &ImagePath, path: &Path) -> Result<(), Failure> {
    let host = Failure::on_host(path);
    let mut out = File::options().write(true).open(path).map_err(&host)?;
    super::list::write_to(fs, place, &mut out).map_err(|stop| match stop {
        Stop::Failure(failure) => failure,
        Stop::Output(error) => host(error),
    })
}

/// Copies the data of `from`, which is shown as `shown`, into a file of an image.
fn stream_in(
    (fs, tree): (&FileSystem, &ImageTree<'_>),
    destination: &Destination<ImageNode>,
    place: &ImagePath,
    plan: Plan,
    (from, shown): (&mut dyn Read, &Path),
) -> Result<(), Failure> {
    let Some(name) = &destination.name else {
        return Err(Failure::new(place, "is a directory: standard input needs a file name"));
    };
    if destination.slash.follows() {
        return Err(Failure::new(place, "not a directory"));
    }
    if plan.existing == Existing::Keep && tree.look(&destination.dir, name)?.is_some() {
        return Ok(());
    }
    let read = |_, buffer: &mut [u8]| loop {
        match from.read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            read => break read.map_err(Failure::on_host(shown)),
        }
    };
    let buffer = vec![0; 1 << 20];
    if let Some((found, of_old)) = replaceable(fs, tree, place)? {
        let Destination { dir, name: Some(name), .. } = &found else { return Ok(()) };
        let new = NewNode { kind: NewKind::Regular, permissions: 0o600, umask: 0 };
        let replaced = replace(tree, dir, name, |temporary| {
            let (made, mut file) = tree.make_file(dir, temporary, new, Opening::New)?;
            pump(buffer, read, |at, piece| file.write_at(at, piece))?;
            tree.set(&made, &Settings { owner: plan.owner.or(of_old.owner), ..of_old })
        });
        return replaced.map(drop);
    }
    let new = FileOptions::new().write(true).create(true).truncate(true).umask(plan.umask);
    let file = fs.open_file_with(&place.path, &new);
    let file = file.map_err(|error| place.failure(error))?;
    if plan.owner.is_some() {
        let settings = Settings { owner: plan.owner, ..Settings::default() };
        tree.set(&tree.find(&place.path, Follow::Links)?, &settings)?;
    }
    pump(buffer, read, |at, piece| {
        file.write_all_at(piece, at).map_err(|error| Failure::new(place, error.cause()))
    })
}

/// Returns the file at `place`, or to which a link there leads, and its attributes, if a new file
/// can take its place.
fn replaceable(
    fs: &FileSystem,
    tree: &ImageTree<'_>,
    place: &ImagePath,
) -> Result<Option<(Destination<ImageNode>, Settings)>, Failure> {
    if !fs.metadata(&place.path).is_ok_and(|found| found.is_file()) {
        return Ok(None);
    }
    let found = Destination::find(Aim::Itself, tree, place, fs)?;
    let found = found.behind_link(tree, place, fs, |_| false)?;
    let node = tree.find(&place.path, Follow::Links)?;
    Ok(tree.replacement(&node)?.map(|of_old| (found, of_old)))
}

/// Returns the last component of an operand's path, for messages and for `mv`.
pub fn last_name(path: &Path) -> Option<&OsStr> {
    path.file_name().filter(|_| !ends_in_dot(path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn plan(options: &[&str]) -> Plan {
        let line = ["cp"].iter().chain(options).chain(&["a.img:/a", "b"]);
        Line::try_parse_from(line).unwrap().arguments.plan()
    }

    #[test]
    fn archive_keeps_everything() {
        let plan = plan(&["-a"]);
        let all = Keep { mode: true, owner: true, times: true, attributes: true, links: true };
        assert_eq!((plan.keep, plan.recursion), (all, Recursion::Trees));
        assert_eq!(plan.dereference, Dereference::Never);
    }

    #[test]
    fn links_are_followed_unless_trees_are_copied() {
        assert_eq!(plan(&[]).dereference, Dereference::Operands);
        assert_eq!(plan(&["-r"]).dereference, Dereference::Never);
        assert_eq!(plan(&["-rL"]).dereference, Dereference::Always);
        assert_eq!(plan(&["-P"]).dereference, Dereference::Never);
    }

    #[test]
    fn a_directory_with_a_dot_is_copied_into() {
        assert!(ends_in_dot(Path::new("a/.")));
        assert!(ends_in_dot(Path::new(".")));
        assert!(!ends_in_dot(Path::new("a.")));
    }
}
