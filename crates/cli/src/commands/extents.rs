//! The extents of files, and the free space of an image.

use crate::cli::{
    Failure, FileArguments, ImageArguments, ImagePath, Intent, JournalArguments, MountedImage,
    OutputArguments, Report, Screen, Size, WholeImage, counted, human, place_facts, print_each,
    with_each,
};
use crate::walk::{Depth, each_file};
use lanefs::device::Access;
use lanefs::{ExtentFlags, FileExtent, FileOptions, FileSystem, FileType, Follow};
use serde_json::json;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Lists the extents of files in an image
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Offsets and lengths are bytes, in the file and on the device. The flags are those of FIEMAP: last,
unwritten (allocated, reads as zeros), inline (the data is in the inode), not_aligned, merged (an
ext2 or ext3 file, which maps blocks one by one).

Examples:
  lanefs filefrag disk.img:/var/db
  lanefs filefrag disk.img:/var/db --json | jq '.extents | length'")]
pub struct Filefrag {
    /// The files or directories
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    places: Vec<ImagePath>,
    /// Print one JSON object for each file
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    image: FileArguments,
}

/// Runs `lanefs filefrag`.
pub fn filefrag(arguments: &Filefrag) -> ExitCode {
    let out = Screen::new();
    print_each("filefrag", &arguments.image, &arguments.places, out, |fs, place, _, out| {
        let extents = fs.extents(&place.path, Follow::Links);
        let extents = extents.map_err(|error| place.failure(error))?;
        if arguments.json {
            let mut line = place_facts(&place.image, &place.path);
            line["extents"] = described(&extents);
            return Ok(writeln!(out, "{line}")?);
        }
        writeln!(out, "{place}: {}", counted(extents.len() as u64, "extent"))?;
        for extent in &extents {
            let FileExtent { offset, place, len, flags } = *extent;
            writeln!(out, "{offset:>15} {place:>18} {len:>15} {}", names(flags).join(","))?;
        }
        Ok(())
    })
}

/// Returns the extents of one file as JSON.
fn described(extents: &[FileExtent]) -> serde_json::Value {
    let extent = |extent: &FileExtent| {
        let FileExtent { offset, place, len, flags } = *extent;
        json!({ "offset": offset, "place": place, "len": len, "flags": names(flags) })
    };
    extents.iter().map(extent).collect()
}

fn names(flags: ExtentFlags) -> Vec<&'static str> {
    const NAMES: [(ExtentFlags, &str); 5] = [
        (ExtentFlags::LAST, "last"),
        (ExtentFlags::NOT_ALIGNED, "not_aligned"),
        (ExtentFlags::DATA_INLINE, "inline"),
        (ExtentFlags::UNWRITTEN, "unwritten"),
        (ExtentFlags::MERGED, "merged"),
    ];
    NAMES.iter().filter(|(flag, _)| flags.contains(*flag)).map(|(_, name)| *name).collect()
}

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
pub struct Defrag {
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
pub fn defrag(arguments: &Defrag) -> ExitCode {
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

/// Gives the free blocks of an image back to the host: punches holes in a file, discards blocks of
/// a device
#[derive(Debug, clap::Args)]
#[command(after_help = "\
On an image that Lanefs has mounted, the command works like fstrim. Otherwise the image must not
be in use; after a crash it is recovered first. The trim writes nothing. An interrupted trim has
returned only some of the free blocks.

Examples:
  lanefs trim disk.img
  lanefs trim mnt
  lanefs trim --minimum 64K --json /dev/sdx1")]
pub struct Trim {
    /// The image, or the directory that it is mounted on
    image: PathBuf,
    /// Ignore runs of free blocks that are shorter than this, in bytes
    #[arg(long, value_name = "BYTES", default_value = "0")]
    minimum: Size,
    #[command(flatten)]
    journal: JournalArguments,
    #[command(flatten)]
    output: OutputArguments,
    #[command(flatten)]
    options: ImageArguments,
}

/// Runs `lanefs trim`.
pub fn trim(arguments: &Trim) -> ExitCode {
    Report::run("trim", |_| {
        let mounted = MountedImage::of(&arguments.image, arguments.options);
        let image = mounted.as_ref().map_or(&arguments.image, |mounted| &mounted.source);
        let before = taken(image);
        let trimmed = match &mounted {
            Some(mounted) => trim_mounted(arguments, mounted)?,
            None => trim_image(arguments)?,
        };
        Ok(print_trimmed(arguments, &trimmed, before, taken(image))?)
    })
}

/// Returns how many bytes an image file takes on the host; `None` for a device.
fn taken(image: &Path) -> Option<u64> {
    let metadata = std::fs::metadata(image).ok()?;
    metadata.is_file().then(|| metadata.blocks() * 512)
}

/// How much free space was discarded.
struct Trimmed {
    bytes: u64,
    /// The number of runs of free blocks; `None` if the server of a mount discarded them.
    runs: Option<u64>,
}

fn trim_mounted(arguments: &Trim, mounted: &MountedImage) -> Result<Trimmed, Failure> {
    let least = arguments.minimum.bytes();
    let bytes = lanefs_fuse::trim_mounted(&mounted.mount_point, 0..u64::MAX, least)
        .map_err(Failure::on_host(&arguments.image))?;
    Ok(Trimmed { bytes, runs: None })
}

fn trim_image(arguments: &Trim) -> Result<Trimmed, Failure> {
    let whole = WholeImage::open(&arguments.image, arguments.options, Access::ReadWrite)?;
    let journal = arguments.journal.open(Access::ReadWrite)?;
    let trimmed = whole.file_system(journal.as_ref())?.trim(arguments.minimum.bytes());
    let trimmed = whole.end(trimmed)?;
    Ok(Trimmed { bytes: trimmed.bytes, runs: Some(trimmed.runs) })
}

fn print_trimmed(
    arguments: &Trim,
    trimmed: &Trimmed,
    before: Option<u64>,
    after: Option<u64>,
) -> std::io::Result<()> {
    let Trimmed { bytes, runs } = *trimmed;
    let image = arguments.image.display().to_string();
    let facts = json!({
        "image": image,
        "discarded_bytes": bytes,
        "runs": runs,
        "host_bytes_before": before,
        "host_bytes_after": after,
    });
    let bytes = human(bytes);
    let line = match (before.map(human), after.map(human)) {
        (Some(before), Some(after)) => {
            format!("{image}: {bytes} are free; it takes {after} of the host, before {before}")
        }
        _ => format!("{image}: {bytes} were discarded"),
    };
    arguments.output.print(&facts, [line])
}
