//! `lanefs defrag`

use super::filefrag::described;
use crate::cli::{FileArguments, ImagePath, Intent, Screen, place_facts, with_each};
use crate::walk::{Depth, each_file};
use lanefs::{FileExtent, FileOptions, FileSystem, FileType, Follow};
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

/// Moves files of an image to fewer runs of blocks
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A directory means every regular file below it. A file is left as it is if the free space has no
better place for it. A crash loses no data. A file that cannot be moved (immutable, append-only,
verity, with a block map) is reported. Blocks of directories stay. The image must not be mounted.

Examples:
  lanefs defrag disk.img:/var/db
  lanefs defrag disk.img                       # all files
  lanefs defrag --json disk.img:/var/db | jq '.after | length'")]
pub struct Arguments {
    /// Files or directories; IMAGE alone means its root directory
    #[arg(required = true, value_name = "IMAGE[:/PATH]")]
    places: Vec<ImagePath>,
    /// Print one JSON object for each file, with its extents before and after
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    image: FileArguments,
}

/// Runs `lanefs defrag`.
pub fn run(arguments: &Arguments) -> ExitCode {
    let mut out = Screen::new();
    with_each("defrag", &arguments.image, Intent::Change, &arguments.places, |fs, place, report| {
        each_file(fs, place, Depth::Tree, Follow::Links, report, &mut |_, place, entry| {
            // Directories are entered, but not moved. Special files and symbolic links are skipped
            // inside a directory, and refused as operands.
            let file_type = entry.meta.file_type;
            let is_below = entry.depth > 0 && file_type != FileType::Regular;
            if is_below || file_type == FileType::Directory {
                return Ok(());
            }
            let lists = defragment(fs, &place.path).map_err(|error| place.failure(error))?;
            let printed = print(&mut out, place, &lists, arguments.json);
            report.printed(printed.and_then(|()| out.flush()));
            Ok(())
        })
    })
}

/// The extents of a file before and after it is moved.
type Lists = [Vec<FileExtent>; 2];

fn defragment(fs: &FileSystem, path: &Path) -> lanefs::Result<Lists> {
    let file = fs.open_file_with(path, &FileOptions::new().write(true))?;
    let before = file.extents()?;
    file.defragment()?;
    Ok([before, file.extents()?])
}

fn print(
    out: &mut dyn Write,
    place: &ImagePath,
    [before, after]: &Lists,
    as_json: bool,
) -> io::Result<()> {
    match as_json {
        true => {
            let mut line = place_facts(&place.image, &place.path);
            line["before"] = described(before);
            line["after"] = described(after);
            writeln!(out, "{line}")
        }
        false => writeln!(out, "{place}: {} extents, now {}", before.len(), after.len()),
    }
}
