//! `lanefs cat`

use crate::cli::{Failure, FileArguments, ImagePath, Images, Intent, Report};
use lanefs::{File, FileSystem};
use std::io::{self, Write};
use std::process::ExitCode;

/// The number of bytes read at once.
const CHUNK: usize = 1 << 20;

/// Prints files of an image
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit codes: 0 success, 1 failure, 2 wrong usage. A file that fails does not stop the others, but an
image that cannot be opened does.

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
    let report = Report::new("cat");
    let mut out = io::stdout().lock();
    let wanted = arguments.places.iter().map(|place| (place.image.as_path(), Intent::Read));
    match Images::open(&arguments.image, wanted) {
        Ok(images) => {
            for place in &arguments.places {
                let fs = images.get(&place.image);
                let done = fs.and_then(|fs| print(fs, place, &mut out, &report));
                report.check(done);
            }
        }
        Err(failure) => report.fail(failure),
    }
    report.exit()
}

/// Prints one file. Errors of standard output go to `report`.
pub fn print(
    fs: &FileSystem,
    place: &ImagePath,
    out: &mut dyn Write,
    report: &Report,
) -> Result<(), Failure> {
    report.printed(write_to(fs, place, out)?);
    Ok(())
}

/// Writes the data of a file to `out`. The inner result is an error if `out` cannot be written.
pub fn write_to(
    fs: &FileSystem,
    place: &ImagePath,
    out: &mut dyn Write,
) -> Result<io::Result<()>, Failure> {
    let within = |error: lanefs::Error| Failure::within(place.image.display(), &error);
    let file: File = fs.open_file(&place.path).map_err(within)?;
    let size = usize::try_from(file.metadata().len()).unwrap_or(CHUNK);
    let mut buf = vec![0; size.clamp(1, CHUNK)];
    let mut at = 0;
    loop {
        let read = file.read_at(&mut buf, at).map_err(within)?;
        if read == 0 {
            return Ok(out.flush());
        }
        at += read as u64;
        if let Err(error) = out.write_all(buf.get(..read).unwrap_or_default()) {
            return Ok(Err(error));
        }
    }
}
