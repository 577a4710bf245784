//! `lanefs tree`

use crate::cli::{FileArguments, ImagePath, Report, counted, print_each, printable};
use lanefs::{FileSystem, FileType};
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Prints a directory tree of an image
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  lanefs tree -L 2 disk.img:/usr")]
pub struct Arguments {
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
pub fn run(arguments: &Arguments) -> ExitCode {
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
    arguments: &Arguments,
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
    arguments: &Arguments,
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
