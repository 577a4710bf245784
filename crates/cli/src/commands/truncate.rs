//! `lanefs truncate`

use crate::cli::{FileArguments, ImagePath, change_each, parse_size, process_umask};
use lanefs::{FileOptions, FileSystem};
use std::path::Path;
use std::process::ExitCode;
use std::str::FromStr;

/// Sets sizes of files in an image; makes files that do not exist
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  lanefs truncate -s 1G disk.img:/swap
  lanefs truncate -s +4K disk.img:/log")]
pub struct Arguments {
    /// The files
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    places: Vec<ImagePath>,
    /// New size in bytes (suffixes K, M, G, T); +SIZE grows and -SIZE shrinks the file
    #[arg(short, long, allow_hyphen_values = true)]
    size: SizeChange,
    /// Do not make files
    #[arg(short = 'c', long)]
    no_create: bool,
    #[command(flatten)]
    image: FileArguments,
}

/// How a size changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SizeChange {
    To(u64),
    By(i64),
}

impl FromStr for SizeChange {
    type Err = String;
    fn from_str(text: &str) -> Result<SizeChange, String> {
        let signed = |text| {
            let size = parse_size(text)?;
            i64::try_from(size).map_err(|_| format!("'{text}' is too large"))
        };
        if let Some(more) = text.strip_prefix('+') {
            return signed(more).map(SizeChange::By);
        }
        match text.strip_prefix('-') {
            Some(less) => signed(less).map(|size| SizeChange::By(-size)),
            None => parse_size(text).map(SizeChange::To),
        }
    }
}

impl SizeChange {
    fn apply(self, old: u64) -> u64 {
        match self {
            SizeChange::To(size) => size,
            SizeChange::By(by) => old.saturating_add_signed(by),
        }
    }
}

/// Runs `lanefs truncate`.
pub fn run(arguments: &Arguments) -> ExitCode {
    let umask = process_umask();
    change_each("truncate", &arguments.image, &arguments.places, |fs, path| {
        match set(fs, path, arguments, umask) {
            Err(error) if arguments.no_create && error.is_not_found() => Ok(()),
            done => done,
        }
    })
}

fn set(fs: &FileSystem, path: &Path, arguments: &Arguments, umask: u16) -> lanefs::Result<()> {
    let options = FileOptions::new().write(true).umask(umask).create(!arguments.no_create);
    let file = fs.open_file_with(path, &options)?;
    file.set_len(arguments.size.apply(file.metadata().len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_set_or_changed() {
        let apply = |text: &str, old| text.parse::<SizeChange>().unwrap().apply(old);
        assert_eq!(apply("10", 5), 10);
        assert_eq!(apply("+1K", 5), 1029);
        assert_eq!(apply("-3", 5), 2);
        assert_eq!(apply("-1K", 5), 0);
        assert!("1Q".parse::<SizeChange>().is_err());
    }
}
