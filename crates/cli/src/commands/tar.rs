//! `lanefs tar`

mod archive;

use crate::cli::{
    Case, Failure, FileArguments, Glob, ImagePath, Images, Intent, OutputFile, Report, Stop,
    complain, refuse_image,
};
use crate::copy::{Identity, ImageNode, ImageTree, Tree};
use crate::walk::{Entry, Order, Visit, Walk};
use archive::{Archive, Header, Kind, Times, pieces_of, write_pieces};
use lanefs::{FileType, Follow};
use std::collections::HashMap;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;

/// Writes a tree of an image as a tar archive
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The archive has the pax format: all extended attributes and access control lists, owners and times
to the nanosecond, hard links, holes and devices. The names are sorted, so the same tree gives the
same bytes. GNU tar needs --xattrs --xattrs-include='*' --acls to unpack the attributes. An empty
/lost+found is omitted, since mkfs makes it. A socket cannot be stored.

Exit codes: 0 success, 1 something could not be stored (the rest was), 2 wrong usage.

Examples:
  lanefs tar disk.img | zstd > rootfs.tar.zst
  lanefs tar -f etc.tar disk.img:/etc
  lanefs tar disk.img --exclude '/var/cache/*' | docker import - rootfs
  lanefs tar old.img | lanefs mkfs new.img --size auto --from -")]
pub struct Arguments {
    /// The directory or file; IMAGE alone means its root directory
    #[arg(value_name = "IMAGE[:/PATH]")]
    place: ImagePath,
    /// Write to FILE, in place of standard output
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Omit the files that match GLOB, and everything below them. A pattern with a slash, like
    /// /var/log/*, is compared with the path below the operand. Any other pattern is compared with
    /// the name
    #[arg(long, value_name = "GLOB")]
    exclude: Vec<String>,
    /// Store the times of the last access and inode change too
    #[arg(long)]
    all_times: bool,
    /// Print the names on standard error
    #[arg(short, long)]
    verbose: bool,
    #[command(flatten)]
    image: FileArguments,
}

/// Runs `lanefs tar`.
pub fn run(arguments: &Arguments) -> ExitCode {
    let report = Report::new("tar");
    if arguments.file.is_none() && io::stdout().is_terminal() {
        report.fail("the archive is not written to a terminal: use -f FILE or a pipe");
        return ExitCode::from(2);
    }
    match (export(arguments, &report), &arguments.file) {
        (Ok(()), _) => {}
        (Err(Stop::Failure(failure)), _) => report.fail(failure),
        (Err(Stop::Output(error)), Some(path)) => report.fail(Failure::on_host(path)(error)),
        (Err(Stop::Output(error)), None) => report.printed(Err(error)),
    }
    report.exit()
}

fn export(arguments: &Arguments, report: &Report) -> Result<(), Stop> {
    let place = &arguments.place;
    let images = Images::open(&arguments.image, [place.wanted(Intent::Read)])?;
    let tree = ImageTree::new(images.get(&place.image)?, &place.image);
    let top = tree.find(&place.path, Follow::Nothing)?;
    let file = match &arguments.file {
        Some(path) => {
            refuse_image(path, images.files())?;
            Some(OutputFile::create(path)?)
        }
        None => None,
    };
    let out: Box<dyn Write> = match &file {
        Some(output) => Box::new(output.file.try_clone()?),
        None => Box::new(io::stdout().lock()),
    };
    let times = if arguments.all_times { Times::All } else { Times::Changed };
    let mut export = Export {
        tree: &tree,
        report,
        archive: Archive::new(out),
        times,
        verbose: arguments.verbose,
        excluded: arguments.exclude.iter().map(|glob| Excluded::new(glob)).collect(),
        single: place.path.file_name().unwrap_or_default().as_encoded_bytes().into(),
        linked: HashMap::new(),
    };
    export.run(top)?;
    Ok(file.map_or(Ok(()), OutputFile::finish)?)
}

struct Export<'a> {
    tree: &'a ImageTree<'a>,
    report: &'a Report,
    archive: Archive,
    times: Times,
    verbose: bool,
    excluded: Vec<Excluded>,
    /// The name in the archive if the operand is a single file.
    single: Vec<u8>,
    /// The hard-linked files that are archived under some of their names, but not yet under all.
    /// The value is the file's first name in the archive, and the number of names that are not
    /// archived yet.
    linked: HashMap<Identity, (Vec<u8>, u64)>,
}

/// A pattern of files to omit.
struct Excluded {
    glob: Glob,
    is_path: bool,
}

impl Excluded {
    fn new(text: &str) -> Excluded {
        let is_path = text.contains('/');
        let text = text.strip_prefix('/').unwrap_or(text);
        Excluded { glob: Glob::new(text.as_bytes(), Case::Differs), is_path }
    }

    fn matches(&self, path: &[u8], name: &[u8]) -> bool {
        self.glob.matches(if self.is_path { path } else { name }, Case::Differs)
    }
}

impl Export<'_> {
    /// Writes the archive. Returns an error only if the output cannot be written.
    fn run(&mut self, top: ImageNode) -> io::Result<()> {
        let mut walk = Walk::new(self.tree, top, Order::Sorted);
        while let Some(step) = walk.step() {
            let Some(Visit::File(entry)) = self.report.given(step) else { continue };
            let path = walk.path();
            let is_excluded =
                entry.depth > 0 && self.excluded.iter().any(|glob| glob.matches(path, walk.name()));
            match self.report.given(walk.is_spare_lost_and_found(&entry)) {
                Some(false) if !is_excluded => self.file(path, &entry)?,
                Some(_) => walk.prune(),
                None => {}
            }
        }
        self.archive.finish()
    }

    /// Stores a file under its name in the archive, `./PATH`.
    fn file(&mut self, path: &[u8], entry: &Entry<ImageNode>) -> io::Result<()> {
        let meta = &entry.meta;
        let is_dir = meta.file_type == FileType::Directory;
        let end: &[u8] = if is_dir && !path.is_empty() { b"/" } else { b"" };
        let name = match (path.is_empty(), is_dir) {
            // A single file is stored under the last component of its path in the image.
            (true, false) => self.single.clone(),
            _ => [b"./", path, end].concat(),
        };
        if self.verbose {
            complain(String::from_utf8_lossy(&name));
        }
        if !is_dir && meta.links > 1 {
            if let Some((first, left)) = self.linked.get_mut(&meta.identity) {
                let header = Header { name: &name, meta, kind: Kind::Link(first), attributes: &[] };
                header.write(Times::None, &mut self.archive)?;
                *left -= 1;
                if *left == 0 {
                    self.linked.remove(&meta.identity);
                }
                return Ok(());
            }
            self.linked.insert(meta.identity, (name.clone(), meta.links - 1));
        }
        match self.store(&name, entry) {
            Ok(()) => Ok(()),
            Err(Stop::Output(error)) => Err(error),
            Err(Stop::Failure(failure)) => {
                self.linked.remove(&meta.identity);
                self.report.fail(failure);
                Ok(())
            }
        }
    }

    fn store(&mut self, name: &[u8], entry: &Entry<ImageNode>) -> Result<(), Stop> {
        let Entry { node, meta, .. } = entry;
        let attributes = self.tree.attributes(node)?;
        let target;
        let kind = match meta.file_type {
            FileType::Regular => {
                let mut content = self.tree.open(node)?;
                let pieces = pieces_of(&mut content, meta.size)?;
                let kind = Kind::Regular(&pieces);
                let header = Header { name, meta, kind, attributes: &attributes };
                header.write(self.times, &mut self.archive)?;
                return Ok(write_pieces(&pieces, &mut content, &mut self.archive, self.report)?);
            }
            FileType::Symlink => {
                target = self.tree.read_link(node)?;
                Kind::Symlink(&target)
            }
            FileType::Directory => Kind::Directory,
            FileType::CharDevice => Kind::CharDevice,
            FileType::BlockDevice => Kind::BlockDevice,
            FileType::Fifo => Kind::Fifo,
            FileType::Socket => {
                return Err(Failure::new(self.tree.show(node), "a tar cannot hold a socket").into());
            }
        };
        let header = Header { name, meta, kind, attributes: &attributes };
        Ok(header.write(self.times, &mut self.archive)?)
    }
}
