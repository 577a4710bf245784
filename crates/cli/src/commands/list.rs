//! Lists the files of an image: `ls`, `tree`, and the data of one by `cat`.

use crate::cli::{
    Failure, FileArguments, ImagePath, Report, Shown, Stop, UserNames, counted, file_facts, human,
    long_help, mode_string, print_each, printable, show_time, widths,
};
use crate::copy::{ImageNode, ImageTree, Listed, Seen, Tree as _, pump};
use crate::walk::ENTERED;
use lanefs::{File, FileSystem, FileType, Follow, Metadata};
use std::cmp::Ordering;
use std::ffi::{OsStr, OsString};
use std::io::{self, IsTerminal, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Lists directories of an image
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true, arg = long_help())]
#[command(after_help = "\
User and group names come from /etc/passwd and /etc/group of the image, or of the host if the image
has none.

Examples:
  lanefs ls disk.img
  lanefs ls -la disk.img:/etc disk.img:/home")]
pub struct Ls {
    /// Directories or files; IMAGE alone means its root directory
    #[arg(required = true, value_name = "IMAGE[:/PATH]")]
    places: Vec<ImagePath>,
    /// Show mode, link count, owner, group, size and time
    #[arg(short)]
    long: bool,
    /// Include names that begin with a dot
    #[arg(short, long, overrides_with = "almost_all")]
    all: bool,
    /// As -a, but without . and ..
    #[arg(short = 'A', long)]
    almost_all: bool,
    /// List directories themselves, not their entries
    #[arg(short, long)]
    directory: bool,
    /// List subdirectories recursively
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Print one name per line (always the case)
    #[arg(short = '1')]
    one: bool,
    /// Show inode numbers
    #[arg(short, long)]
    inode: bool,
    /// Show sizes with units: K, M, G, T
    #[arg(short = 'h', long)]
    human_readable: bool,
    /// Show numeric user and group IDs
    #[arg(short, long)]
    numeric_uid_gid: bool,
    /// Sort by size, largest first
    #[arg(short = 'S', conflicts_with_all = ["by_time", "unsorted"])]
    by_size: bool,
    /// Sort by time, newest first
    #[arg(short = 't', conflicts_with = "unsorted")]
    by_time: bool,
    /// Do not sort: keep the order of the directory
    #[arg(short = 'U')]
    unsorted: bool,
    /// Reverse the order
    #[arg(short, long)]
    reverse: bool,
    /// Print a JSON object for each name, on a line of its own
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    image: FileArguments,
}

struct Entry {
    name: OsString,
    metadata: Metadata,
    /// What a symbolic link leads to, if that is printed.
    target: Option<OsString>,
}

/// Runs `lanefs ls`.
pub fn ls(arguments: &Ls) -> ExitCode {
    let out = io::BufWriter::new(io::stdout().lock());
    let (is_terminal, mut sections) = (io::stdout().is_terminal(), 0);
    print_each("ls", &arguments.image, &arguments.places, out, |fs, place, report, out| {
        let sections = &mut sections;
        Listing { arguments, report, out, is_terminal, sections }.operand(fs, place)
    })
}

struct Listing<'a> {
    arguments: &'a Ls,
    report: &'a Report,
    out: &'a mut dyn Write,
    is_terminal: bool,
    /// The number of directories listed so far, also of earlier operands.
    sections: &'a mut usize,
}

impl Listing<'_> {
    fn operand(&mut self, fs: &FileSystem, place: &ImagePath) -> Result<(), Stop> {
        let tree = ImageTree::new(fs, &place.image);
        let users = match self.arguments.numeric_uid_gid {
            true => UserNames::numbers(),
            false => UserNames::of(fs),
        };
        let itself = || tree.find(&place.path, Follow::Nothing);
        let top = match self.arguments.long {
            true => itself()?,
            false => tree.find(&place.path, Follow::Links).or_else(|_| itself())?,
        };
        let metadata = Metadata::from(top.attr());
        if !metadata.is_dir() || self.arguments.directory {
            // Names the image as the user gave it, so that the user recognises it.
            let mut name = place.image.clone().into_os_string();
            name.push(":");
            name.push(&place.path);
            let entry = self.entry(&tree, name, &top);
            return Ok(self.print(&users, place, &|_| place.path.clone(), &[entry])?);
        }
        let mut dirs: Vec<(ImageNode, Option<OsString>)> = vec![(top, None)];
        let mut entered = Seen::default();
        while let Some((above, name)) = dirs.pop() {
            let dir = match name {
                Some(name) => tree.child(&above, name.as_bytes()),
                None => Ok(above),
            };
            let Some(dir) = self.report.given(dir.and_then(|dir| enter(&tree, dir, &mut entered)))
            else {
                continue;
            };
            let path = dir.path();
            self.section(place, &path)?;
            let Some(entries) = self.report.given(self.entries(&tree, &dir)) else { continue };
            self.print(&users, place, &|name| path.join(name), &entries)?;
            if self.arguments.recursive {
                let below = entries.into_iter().rev().filter(|entry| {
                    entry.metadata.is_dir() && entry.name != "." && entry.name != ".."
                });
                dirs.extend(below.map(|entry| (dir.clone(), Some(entry.name))));
            }
        }
        Ok(())
    }

    /// Prints the heading of a directory, if the command lists several directories.
    fn section(&mut self, place: &ImagePath, dir: &Path) -> io::Result<()> {
        let has_several = self.arguments.places.len() > 1 || self.arguments.recursive;
        if has_several && !self.arguments.json {
            if *self.sections > 0 {
                writeln!(self.out)?;
            }
            let shown = ImagePath { image: place.image.clone(), path: dir.into() }.to_string();
            writeln!(self.out, "{}:", printable(&shown))?;
        }
        *self.sections += 1;
        Ok(())
    }

    fn entry(&self, tree: &ImageTree<'_>, name: OsString, node: &ImageNode) -> Entry {
        let metadata = Metadata::from(node.attr());
        let is_shown = self.arguments.long && metadata.is_symlink();
        let target = is_shown.then(|| tree.read_link(node).ok().map(OsString::from_vec));
        Entry { name, metadata, target: target.flatten() }
    }

    fn entries(&self, tree: &ImageTree<'_>, dir: &ImageNode) -> Result<Vec<Entry>, Failure> {
        let mut entries = Vec::new();
        if self.arguments.all {
            for name in [".", ".."] {
                let node = tree.child(dir, name.as_bytes())?;
                entries.push(self.entry(tree, name.into(), &node));
            }
        }
        for found in tree.entries(dir, self.report) {
            let hidden = found.name.starts_with(b".");
            if hidden && !self.arguments.all && !self.arguments.almost_all {
                continue;
            }
            if let Some(node) = self.report.given(tree.node_of(dir, &found)) {
                entries.push(self.entry(tree, OsString::from_vec(found.name), &node));
            }
        }
        if !self.arguments.unsorted {
            entries.sort_by(|a, b| self.order(a, b));
            if self.arguments.reverse {
                entries.reverse();
            }
        }
        Ok(entries)
    }

    fn order(&self, a: &Entry, b: &Entry) -> Ordering {
        let first = match () {
            () if self.arguments.by_size => b.metadata.len().cmp(&a.metadata.len()),
            () if self.arguments.by_time => b.metadata.modified().cmp(&a.metadata.modified()),
            () => Ordering::Equal,
        };
        first.then_with(|| a.name.cmp(&b.name))
    }

    fn print(
        &mut self,
        users: &UserNames,
        place: &ImagePath,
        path_of: &dyn Fn(&OsStr) -> PathBuf,
        entries: &[Entry],
    ) -> io::Result<()> {
        if self.arguments.json {
            return entries.iter().try_for_each(|Entry { name, metadata, .. }| {
                let facts = file_facts(&place.image, &path_of(name), metadata.attr());
                writeln!(self.out, "{facts}")
            });
        }
        let rows: Vec<Row> = entries.iter().map(|entry| self.row(users, entry)).collect();
        let [w0, w1, w2, w3, w4] = widths(rows.iter().map(|row| &row.columns));
        for Row { columns: [inode, links, user, group, size], mode, time, name, target } in &rows {
            if self.arguments.inode {
                write!(self.out, "{inode:>w0$} ")?;
            }
            if self.arguments.long {
                write!(self.out, "{mode} {links:>w1$} {user:w2$} {group:w3$} {size:>w4$} {time} ")?;
            }
            self.name(name)?;
            if let Some(target) = target {
                write!(self.out, " -> ")?;
                self.name(target)?;
            }
            writeln!(self.out)?;
        }
        Ok(())
    }

    /// Prints a name. On a terminal, control characters are replaced.
    fn name(&mut self, name: &OsStr) -> io::Result<()> {
        if self.is_terminal {
            write!(self.out, "{}", printable(&name.to_string_lossy()))
        } else {
            self.out.write_all(name.as_bytes())
        }
    }

    fn row(&self, users: &UserNames, entry: &Entry) -> Row {
        let metadata = &entry.metadata;
        let is_device =
            matches!(metadata.file_type(), FileType::CharDevice | FileType::BlockDevice);
        let size = match () {
            () if is_device => format!("{}, {}", metadata.rdev().major, metadata.rdev().minor),
            () if self.arguments.human_readable => human(metadata.len()),
            () => metadata.len().to_string(),
        };
        let (inode, links) = (metadata.ino().0.to_string(), metadata.links().to_string());
        let (user, group) = (users.user(metadata.uid()), users.group(metadata.gid()));
        Row {
            columns: [inode, links, user, group, size],
            mode: mode_string(metadata.attr().mode()),
            time: show_time(metadata.attr().mtime, Shown::Minutes),
            name: entry.name.clone(),
            target: entry.target.clone(),
        }
    }
}

/// Returns a directory that the command has not entered yet.
///
/// # Errors
/// If it has: the directories of a damaged image may form a ring.
fn enter(tree: &ImageTree<'_>, dir: ImageNode, entered: &mut Seen) -> Result<ImageNode, Failure> {
    match entered.insert(tree.meta(&dir)?.identity) {
        true => Ok(dir),
        false => Err(Failure::new(tree.show(&dir), ENTERED)),
    }
}

struct Row {
    /// Inode, links, user, group and size.
    columns: [String; 5],
    mode: String,
    time: String,
    name: OsString,
    target: Option<OsString>,
}

/// Prints a directory tree of an image
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  lanefs tree -L 2 disk.img:/usr")]
pub struct Tree {
    /// Directories; IMAGE alone means its root directory
    #[arg(required = true, value_name = "IMAGE[:/PATH]")]
    places: Vec<ImagePath>,
    /// Include names that begin with a dot
    #[arg(short, long)]
    all: bool,
    /// Show directories only
    #[arg(short, long)]
    directories: bool,
    /// Show at most N levels
    #[arg(short = 'L', long, value_name = "N")]
    level: Option<usize>,
    #[command(flatten)]
    image: FileArguments,
}

/// Runs `lanefs tree`.
pub fn tree(arguments: &Tree) -> ExitCode {
    let out = io::BufWriter::new(io::stdout().lock());
    print_each("tree", &arguments.image, &arguments.places, out, |fs, place, report, out| {
        draw(fs, place, arguments, report, out)
    })
}

/// A directory being printed: its remaining entries, and the length of their lines' indentation.
struct Level {
    dir: ImageNode,
    left: std::vec::IntoIter<Listed>,
    indent: usize,
}

fn draw(
    fs: &FileSystem,
    place: &ImagePath,
    arguments: &Tree,
    report: &Report,
    out: &mut dyn Write,
) -> Result<(), Stop> {
    let tree = ImageTree::new(fs, &place.image);
    let entries = |dir: &ImageNode| {
        let entries = tree.entries(dir, report);
        let is_shown = |entry: &Listed| {
            (arguments.all || !entry.name.starts_with(b"."))
                && (!arguments.directories || entry.file_type == Some(FileType::Directory))
        };
        let mut shown: Vec<Listed> = entries.into_iter().filter(is_shown).collect();
        shown.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        shown.into_iter()
    };
    writeln!(out, "{}", printable(&place.to_string()))?;
    let (mut dirs, mut files) = (0u64, 0u64);
    let mut indent = String::new();
    let (mut levels, mut entered) = (Vec::new(), Seen::default());
    let top = tree.find(&place.path, Follow::Links);
    if let Some(dir) = report.given(top.and_then(|dir| enter(&tree, dir, &mut entered))) {
        levels.push(Level { left: entries(&dir), dir, indent: 0 });
    }
    while let Some(level) = levels.last_mut() {
        indent.truncate(level.indent);
        let Some(entry) = level.left.next() else {
            levels.pop();
            continue;
        };
        let is_last = level.left.len() == 0;
        let (branch, below) =
            if is_last { ("└── ", "    ") } else { ("├── ", "│   ") };
        write!(out, "{indent}{branch}{}", printable(&String::from_utf8_lossy(&entry.name)))?;
        if entry.file_type == Some(FileType::Symlink)
            && let Ok(target) =
                tree.node_of(&level.dir, &entry).and_then(|node| tree.read_link(&node))
        {
            write!(out, " -> {}", printable(&String::from_utf8_lossy(&target)))?;
        }
        writeln!(out)?;
        if entry.file_type != Some(FileType::Directory) {
            files += 1;
            continue;
        }
        dirs += 1;
        let node = tree.node_of(&level.dir, &entry);
        if arguments.level.is_none_or(|most| levels.len() < most)
            && let Some(dir) = report.given(node.and_then(|dir| enter(&tree, dir, &mut entered)))
        {
            indent.push_str(below);
            levels.push(Level { left: entries(&dir), dir, indent: indent.len() });
        }
    }
    write!(out, "\n{}", counted(dirs, "directory"))?;
    if !arguments.directories {
        write!(out, ", {}", counted(files, "file"))?;
    }
    Ok(writeln!(out)?)
}

/// The number of bytes read at once.
const CHUNK: usize = 1 << 20;

/// Prints files of an image
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  lanefs cat disk.img:/etc/os-release")]
pub struct Cat {
    /// The files
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    places: Vec<ImagePath>,
    #[command(flatten)]
    image: FileArguments,
}

/// Runs `lanefs cat`.
pub fn cat(arguments: &Cat) -> ExitCode {
    let out = io::stdout().lock();
    print_each("cat", &arguments.image, &arguments.places, out, |fs, place, _, out| {
        write_to(fs, place, out)
    })
}

/// Writes the data of a file to `out`.
pub fn write_to(fs: &FileSystem, place: &ImagePath, out: &mut dyn Write) -> Result<(), Stop> {
    let within = |error| place.failure(error);
    let file: File = fs.open_file(&place.path).map_err(within)?;
    let size = usize::try_from(file.metadata().len()).unwrap_or(CHUNK);
    let read = |at, buf: &mut [u8]| Ok::<_, Stop>(file.read_at(buf, at).map_err(within)?);
    pump(vec![0; size.clamp(1, CHUNK)], read, |_, piece| Ok(out.write_all(piece)?))?;
    Ok(out.flush()?)
}
