//! `lanefs trim`

use crate::cli::{
    Failure, ImageArguments, JournalArguments, MountedImage, OutputArguments, Report, Size,
    WholeImage, human,
};
use lanefs::device::Access;
use serde_json::json;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

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
pub struct Arguments {
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
pub fn run(arguments: &Arguments) -> ExitCode {
    Report::run("trim", |_| {
        let mounted = MountedImage::of(&arguments.image, arguments.options);
        let image = mounted.as_ref().map_or(&arguments.image, |mounted| &mounted.source);
        let before = taken(image);
        let trimmed = match &mounted {
            Some(mounted) => trim_mounted(arguments, mounted)?,
            None => trim(arguments)?,
        };
        Ok(print(arguments, &trimmed, before, taken(image))?)
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

fn trim_mounted(arguments: &Arguments, mounted: &MountedImage) -> Result<Trimmed, Failure> {
    let least = arguments.minimum.bytes();
    let bytes = lanefs_fuse::trim_mounted(&mounted.mount_point, 0..u64::MAX, least)
        .map_err(Failure::on_host(&arguments.image))?;
    Ok(Trimmed { bytes, runs: None })
}

fn trim(arguments: &Arguments) -> Result<Trimmed, Failure> {
    let whole = WholeImage::open(&arguments.image, arguments.options, Access::ReadWrite)?;
    let journal = arguments.journal.open(Access::ReadWrite)?;
    let trimmed = whole.file_system(journal.as_ref())?.trim(arguments.minimum.bytes());
    let trimmed = whole.end(trimmed)?;
    Ok(Trimmed { bytes: trimmed.bytes, runs: Some(trimmed.runs) })
}

fn print(
    arguments: &Arguments,
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
