//! `lanefs filefrag`

use crate::cli::{FileArguments, ImagePath, Intent, Screen, counted, place_facts, with_each};
use lanefs::{ExtentFlags, FileExtent, Follow};
use serde_json::json;
use std::io::{self, Write};
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
pub struct Arguments {
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
pub fn run(arguments: &Arguments) -> ExitCode {
    let mut out = Screen::new();
    with_each("filefrag", &arguments.image, Intent::Read, &arguments.places, |fs, place, report| {
        let extents = fs.extents(&place.path, Follow::Links);
        let extents = extents.map_err(|error| place.failure(error))?;
        let printed = match arguments.json {
            true => {
                let mut line = place_facts(&place.image, &place.path);
                line["extents"] = described(&extents);
                writeln!(out, "{line}")
            }
            false => print(&mut out, place, &extents),
        };
        report.printed(printed.and_then(|()| out.flush()));
        Ok(())
    })
}

fn print(out: &mut dyn Write, place: &ImagePath, extents: &[FileExtent]) -> io::Result<()> {
    writeln!(out, "{place}: {}", counted(extents.len() as u64, "extent"))?;
    for extent in extents {
        let FileExtent { offset, place, len, flags } = *extent;
        writeln!(out, "{offset:>15} {place:>18} {len:>15} {}", names(flags).join(","))?;
    }
    Ok(())
}

/// Returns the extents of one file as JSON.
pub(super) fn described(extents: &[FileExtent]) -> serde_json::Value {
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
