//! `lanefs cat`

use crate::cli::{FileArguments, ImagePath, Stop, print_each};
use crate::copy::pump;
use lanefs::{File, FileSystem};
use std::io::{self, Write};
use std::process::ExitCode;

/// The number of bytes read at once.
const CHUNK: usize = 1 << 20;

/// Prints files of an image
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  lanefs cat disk.img:/etc/os-release")]
pub struct Arguments {
    /// The files
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    places: Vec<ImagePath>,
    #[command(flatten)]
    image: FileArguments,
}

/// Runs `lanefs cat`.
pub fn run(arguments: &Arguments) -> ExitCode {
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
