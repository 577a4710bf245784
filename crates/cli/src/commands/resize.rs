//! `lanefs resize`

use crate::cli::{Failure, ImageArguments, OutputArguments, Report, WholeImage, human, parse_size};
use lanefs::device::Access;
use lanefs_offline::Image;
use serde_json::json;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;

/// Changes the size of the file system in an image
#[derive(Debug, clap::Args)]
#[command(after_help = "\
An image file grows and shrinks with its file system. On a block device, an array or a partition the
file system can grow to the end of it. The image must not be in use; after a crash it is recovered
first. If the command is interrupted, run it again.

Examples:
  lanefs resize disk.img 20G                   # to 20 GiB
  lanefs resize disk.img +5G                   # by 5 GiB
  lanefs resize disk.img auto                  # as small as it can be
  lanefs resize /dev/sdx1                      # to the whole device")]
pub struct Arguments {
    /// The image
    image: PathBuf,
    /// The size in bytes (suffixes K, M, G, T), +SIZE, -SIZE, or auto: the smallest; the whole file or
    /// device if it is missing
    #[arg(allow_hyphen_values = true)]
    size: Option<Target>,
    #[command(flatten)]
    output: OutputArguments,
    #[command(flatten)]
    options: ImageArguments,
}

/// The requested size, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Target {
    To(u64),
    By(u64),
    Less(u64),
    Smallest,
}

impl FromStr for Target {
    type Err = String;
    fn from_str(text: &str) -> Result<Target, String> {
        match (text, text.strip_prefix('+'), text.strip_prefix('-')) {
            ("auto", ..) => Ok(Target::Smallest),
            (_, Some(more), _) => parse_size(more).map(Target::By),
            (.., Some(less)) => parse_size(less).map(Target::Less),
            (text, ..) => parse_size(text).map(Target::To),
        }
    }
}

/// Runs `lanefs resize`.
pub fn run(arguments: &Arguments) -> ExitCode {
    let report = Report::new("resize");
    if let Some(done) = report.given(resize(arguments)) {
        report.printed(print(arguments, &done));
    }
    report.exit()
}

struct Resized {
    before: u64,
    after: u64,
}

fn resize(arguments: &Arguments) -> Result<Resized, Failure> {
    let whole = WholeImage::open(&arguments.image, arguments.options, Access::ReadWrite)?;
    let opened = open(&whole)?;
    let before = bytes_of(&opened);
    let wanted = match arguments.size {
        None => whole.device().len(),
        Some(Target::To(bytes)) => bytes,
        Some(Target::By(bytes)) => before.saturating_add(bytes),
        Some(Target::Less(bytes)) => before.saturating_sub(bytes),
        Some(Target::Smallest) => 0,
    };
    let is_whole_file = whole.is_whole_file();
    let (whole, mut opened) = match is_whole_file && wanted > whole.device().len() {
        true => {
            drop(opened);
            set_len(arguments, wanted)?;
            whole.close()?;
            let whole = WholeImage::open(&arguments.image, arguments.options, Access::ReadWrite)?;
            let opened = open(&whole)?;
            (whole, opened)
        }
        false => (whole, opened),
    };
    let block_size = opened.geometry().block_size();
    let blocks = wanted >> block_size.bits();
    let now = opened.geometry().block_count();
    let resized = match arguments.size {
        Some(Target::Smallest) => opened.smallest().and_then(|blocks| opened.shrink(blocks)),
        _ if blocks < now => opened.shrink(blocks),
        _ => opened.grow(blocks),
    };
    resized.map_err(|error| whole.failure(error))?;
    let after = bytes_of(&opened);
    drop(opened);
    if is_whole_file && after < before {
        // The file is cut while it is locked; the bytes after the file system belong to nothing.
        set_len(arguments, after)?;
    }
    whole.close()?;
    Ok(Resized { before, after })
}

fn bytes_of(image: &Image) -> u64 {
    image.geometry().block_count() << image.geometry().block_size().bits()
}

fn open(whole: &WholeImage<'_>) -> Result<Image, Failure> {
    Image::open(whole.device()).map_err(|error| whole.failure(error))
}

/// Makes the image file longer, by a hole, or shorter, while it is locked.
fn set_len(arguments: &Arguments, bytes: u64) -> Result<(), Failure> {
    let path = arguments.image.as_path();
    let file = std::fs::File::options().write(true).open(path);
    let changed = file.and_then(|file| {
        file.set_len(bytes)?;
        file.sync_all()
    });
    changed.map_err(|error| Failure::host(path.display(), &error))
}

fn print(arguments: &Arguments, done: &Resized) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    let image = arguments.image.display();
    let Resized { before, after } = *done;
    if arguments.output.json {
        let facts = json!({ "image": image.to_string(), "bytes_before": before, "bytes": after });
        return writeln!(out, "{facts:#}");
    }
    if arguments.output.quiet {
        return Ok(());
    }
    match before == after {
        true => writeln!(out, "{image}: the file system has {} already", human(after)),
        false => writeln!(out, "{image}: {}, before {}", human(after), human(before)),
    }
}
