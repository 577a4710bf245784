//! Lists the files of an image: `ls`, `tree`, and the data of one by `cat`.

use crate::cli::{
    FileArguments, ImagePath, Report, Shown, Stop, UserNames, counted, file_facts, human,
    long_help, mode_string, print_each, printable, show_time, widths,
};
use crate::copy::pump;
use lanefs::{File, FileSystem, FileType, Metadata};
use std::cmp::Ordering;
use std::ffi::{OsStr, OsString};
use std::io::{self, IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;
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
    path: PathBuf,
    metadata: Metadata,
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
        let within = |error| place.failure(error);
        let users = match self.arguments.numeric_uid_gid {
            true => UserNames::numbers(),
            false => UserNames::of(fs),
        };
        let metadata = if self.arguments.long {
            fs.symlink_metadata(&place.path).map_err(within)?
        } else {
            fs.metadata(&place.path)
                .or_else(|_| fs.symlink_metadata(&place.path))
                .map_err(within)?
        };
        if !metadata.is_dir() || self.arguments.directory {
            // Names the image as the user gave it, so that the user recognises it.
            let mut name = place.image.clone().into_os_string();
            name.push(":");
            name.push(&place.path);
            let entry = Entry { name, path: place.path.clone(), metadata };
            return Ok(self.print(fs, &users, place, &[entry])?);
        }
        let mut dirs = vec![place.path.clone()];
        while let Some(dir) = dirs.pop() {
            self.section(place, &dir)?;
            let entries = match self.entries(fs, &dir) {
                Ok(entries) => entries,
                Err(error) => {
                    self.report.fail(within(error));
                    continue;
                }
            };
            self.print(fs, &users, place, &entries)?;
            if self.arguments.recursive {
                let below = entries.iter().rev().filter(|entry| {
                    entry.metadata.is_dir() && entry.name != "." && entry.name != ".."
                });
                dirs.extend(below.map(|entry| entry.path.clone()));
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

    fn entries(&self, fs: &FileSystem, dir: &Path) -> lanefs::Result<Vec<Entry>> {
        let mut entries = Vec::new();
        if self.arguments.all {
            for name in [".", ".."] {
                let path = dir.join(name);
                let metadata = fs.symlink_metadata(&path)?;
                entries.push(Entry { name: name.into(), path, metadata });
            }
        }
        for entry in fs.read_dir(dir)? {
            let name = entry?.file_name().to_owned();
            let hidden = name.as_bytes().starts_with(b".");
            if hidden && !self.arguments.all && !self.arguments.almost_all {
                continue;
            }
            let path = dir.join(&name);
            match fs.symlink_metadata(&path) {
                Ok(metadata) => entries.push(Entry { name, path, metadata }),
                Err(error) => self.report.fail(error),
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
        fs: &FileSystem,
        users: &UserNames,
        place: &ImagePath,
        entries: &[Entry],
    ) -> io::Result<()> {
        if self.arguments.json {
            return entries.iter().try_for_each(|Entry { path, metadata, .. }| {
                writeln!(self.out, "{}", file_facts(&place.image, path, metadata.attr()))
            });
        }
        let rows: Vec<Row> = entries.iter().map(|entry| self.row(fs, users, entry)).collect();
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

    fn row(&self, fs: &FileSystem, users: &UserNames, entry: &Entry) -> Row {
        let metadata = &entry.metadata;
        let is_device =
            matches!(metadata.file_type(), FileType::CharDevice | FileType::BlockDevice);
        let size = match () {
            () if is_device => format!("{}, {}", metadata.rdev().major, metadata.rdev().minor),
            () if self.arguments.human_readable => human(metadata.len()),
            () => metadata.len().to_string(),
        };
        let target = if self.arguments.long && metadata.is_symlink() {
            fs.read_link(&entry.path).ok().map(PathBuf::into_os_string)
        } else {
            None
        };
        let (inode, links) = (metadata.ino().0.to_string(), metadata.links().to_string());
        let (user, group) = (users.user(metadata.uid()), users.group(metadata.gid()));
        Row {
            columns: [inode, links, user, group, size],
            mode: mode_string(metadata.attr().mode()),
            time: show_time(metadata.attr().mtime, Shown::Minutes),
            name: entry.name.clone(),
            target,
        }
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
        Ok(draw(fs, place, arguments, report, out)?)
    })
}

/// A directory being printed: its remaining entries, and the indentation of their lines.
struct Level {
    dir: PathBuf,
    left: std::vec::IntoIter<(OsString, FileType)>,
    indent: String,
}

fn draw(
    fs: &FileSystem,
    place: &ImagePath,
    arguments: &Tree,
    report: &Report,
    out: &mut dyn Write,
) -> io::Result<()> {
    let entries = |dir: &Path| match entries(fs, dir, arguments) {
        Ok(entries) => entries.into_iter(),
        Err(error) => {
            report.fail(place.failure(error));
            Vec::new().into_iter()
        }
    };
    writeln!(out, "{}", printable(&place.to_string()))?;
    let (mut dirs, mut files) = (0u64, 0u64);
    let left = entries(&place.path);
    let mut levels = vec![Level { dir: place.path.clone(), left, indent: String::new() }];
    while let Some(level) = levels.last_mut() {
        let Some((name, file_type)) = level.left.next() else {
            levels.pop();
            continue;
        };
        let is_last = level.left.len() == 0;
        let (branch, below) =
            if is_last { ("└── ", "    ") } else { ("├── ", "│   ") };
        let path = level.dir.join(&name);
        write!(out, "{}{branch}{}", level.indent, printable(&name.to_string_lossy()))?;
        if file_type == FileType::Symlink
            && let Ok(target) = fs.read_link(&path)
        {
            write!(out, " -> {}", printable(&target.to_string_lossy()))?;
        }
        writeln!(out)?;
        if file_type != FileType::Directory {
            files += 1;
            continue;
        }
        dirs += 1;
        if arguments.level.is_none_or(|most| levels.len() < most) {
            let indent = levels.last().map(|l| format!("{}{below}", l.indent)).unwrap_or_default();
            let left = entries(&path);
            levels.push(Level { dir: path, left, indent });
        }
    }
    write!(out, "\n{}", counted(dirs, "directory"))?;
    if !arguments.directories {
        write!(out, ", {}", counted(files, "file"))?;
    }
    writeln!(out)
}

fn entries(
    fs: &FileSystem,
    dir: &Path,
    arguments: &Tree,
) -> lanefs::Result<Vec<(OsString, FileType)>> {
    let mut entries = Vec::new();
    for entry in fs.read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name().to_owned();
        if !arguments.all && name.as_encoded_bytes().starts_with(b".") {
            continue;
        }
        let file_type = entry.file_type()?;
        if !arguments.directories || file_type == FileType::Directory {
            entries.push((name, file_type));
        }
    }
    entries.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(entries)
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
