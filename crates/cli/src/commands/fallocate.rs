//! `lanefs fallocate`

use crate::cli::{FileArguments, ImagePath, Size, change_each};
use lanefs::{Fallocate, FileOptions};
use std::process::ExitCode;

/// Allocates, frees, zeroes, removes or inserts a range of a file in an image
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A collapsed or inserted range consists of whole blocks, and the file must map its blocks by
extents. After a crash the file is as it was before, or as it is after.

Examples:
  lanefs fallocate -l 1G disk.img:/swap             space for 1 GiB; the file grows to this size
  lanefs fallocate -p -o 1M -l 64K disk.img:/db     a hole of 64 KiB
  lanefs fallocate -c -o 0 -l 1M disk.img:/log      removes the first MiB; byte 1M becomes byte 0
  lanefs fallocate -i -o 4K -l 8K disk.img:/f       inserts a hole of 8 KiB")]
pub struct Arguments {
    /// The file
    #[arg(value_name = "IMAGE:/PATH")]
    place: ImagePath,
    /// Start of the range in bytes (suffixes K, M, G, T)
    #[arg(short = 'o', long, value_name = "BYTES", default_value = "0")]
    start: Size,
    /// Length of the range in bytes (suffixes K, M, G, T)
    #[arg(short, long, value_name = "BYTES")]
    length: Size,
    /// Leave the size of the file as it is
    #[arg(short = 'n', long)]
    keep_size: bool,
    #[command(flatten)]
    mode: Mode,
    #[command(flatten)]
    image: FileArguments,
}

/// The change. Without one of these options, the range is allocated.
#[derive(Debug, clap::Args)]
#[group(multiple = false)]
struct Mode {
    /// Free the range, which then reads as zeros
    #[arg(short, long)]
    punch_hole: bool,
    /// Make the range read as zeros, and allocate it
    #[arg(short, long)]
    zero_range: bool,
    /// Remove the range: the bytes after it move to the start of the range
    #[arg(short, long, conflicts_with = "keep_size")]
    collapse_range: bool,
    /// Insert a hole: the bytes from the start of the range onward move to the end of the range
    #[arg(short, long, conflicts_with = "keep_size")]
    insert_range: bool,
}

impl Arguments {
    fn how(&self) -> Fallocate {
        match self.mode {
            Mode { punch_hole: true, .. } => Fallocate::PunchHole,
            Mode { zero_range: true, .. } if self.keep_size => Fallocate::ZeroRangeKeepSize,
            Mode { zero_range: true, .. } => Fallocate::ZeroRange,
            Mode { collapse_range: true, .. } => Fallocate::CollapseRange,
            Mode { insert_range: true, .. } => Fallocate::InsertRange,
            _ if self.keep_size => Fallocate::AllocateKeepSize,
            _ => Fallocate::Allocate,
        }
    }
}

/// Runs `lanefs fallocate`.
pub fn run(arguments: &Arguments) -> ExitCode {
    let place = std::slice::from_ref(&arguments.place);
    change_each("fallocate", &arguments.image, place, |fs, path| {
        let file = fs.open_file_with(path, &FileOptions::new().write(true))?;
        file.fallocate(arguments.how(), arguments.start.bytes(), arguments.length.bytes())
    })
}
