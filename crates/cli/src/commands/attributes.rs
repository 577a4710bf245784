//! Modes, owners, times and sizes of files in an image.

use crate::cli::{
    Failure, FileArguments, ImagePath, Intent, ModeChange, OwnerChange, Size, UserNames,
    change_each, long_help, parse_size, parse_time, process_umask, with_each,
};
use crate::copy::{Meta, Settings, Tree};
use crate::walk::{Depth, each_file};
use lanefs::{Fallocate, FileOptions, FileSystem, FileType, Follow, SetAttr, SetTime, Time};
use std::num::NonZeroU64;
use std::path::Path;
use std::process::ExitCode;
use std::str::FromStr;

/// Changes modes in an image
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  lanefs chmod 755 disk.img:/bin/sh
  lanefs chmod -R go-w disk.img:/etc")]
pub struct Chmod {
    /// The mode, octal or symbolic: 755, u+x, go-w, a=rX
    #[arg(allow_hyphen_values = true)]
    mode: ModeChange,
    /// The files
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    places: Vec<ImagePath>,
    /// Change directories recursively
    #[arg(short = 'R', long)]
    recursive: bool,
    #[command(flatten)]
    image: FileArguments,
}

/// Runs `lanefs chmod`.
pub fn chmod(arguments: &Chmod) -> ExitCode {
    let umask = process_umask();
    let depth = if arguments.recursive { Depth::Tree } else { Depth::Itself };
    let places = &arguments.places;
    with_each("chmod", &arguments.image, Intent::Change, places, |fs, place, report| {
        each_file(fs, place, depth, Follow::Links, report, &mut |tree, _, entry| {
            // A recursive change skips the links that it meets, since a link has no mode.
            if entry.meta.file_type == FileType::Symlink {
                return Ok(());
            }
            let Meta { permissions, file_type, .. } = entry.meta;
            let permissions = Some(arguments.mode.apply(permissions, file_type, umask));
            tree.set(&entry.node, &Settings { permissions, ..Settings::default() })
        })
    })
}

/// Changes owners in an image
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true, arg = long_help())]
#[command(after_help = "\
Names are looked up in /etc/passwd and /etc/group of the image, or of the host if the image has
none.

Examples:
  lanefs chown -R 1000:1000 disk.img:/home/ann
  lanefs chown :wheel disk.img:/usr/bin/sudo")]
pub struct Chown {
    /// USER, USER:GROUP, USER: (with the login group of USER) or :GROUP; names or numbers
    owner: OwnerChange,
    /// The files
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    places: Vec<ImagePath>,
    /// Change directories and everything in them; change symbolic links themselves, not their
    /// targets
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Change symbolic links themselves, not their targets
    #[arg(short = 'h', long)]
    no_dereference: bool,
    #[command(flatten)]
    image: FileArguments,
}

/// Runs `lanefs chown`.
pub fn chown(arguments: &Chown) -> ExitCode {
    let depth = if arguments.recursive { Depth::Tree } else { Depth::Itself };
    let follow = match arguments.no_dereference || arguments.recursive {
        true => Follow::Nothing,
        false => Follow::Links,
    };
    let places = &arguments.places;
    with_each("chown", &arguments.image, Intent::Change, places, |fs, place, report| {
        let owner = arguments.owner.resolve(&UserNames::of(fs));
        let (uid, gid) = owner.map_err(|error| Failure::new(place, error))?;
        each_file(fs, place, depth, follow, report, &mut |tree, _, entry| {
            let owner = (uid.unwrap_or(entry.meta.uid), gid.unwrap_or(entry.meta.gid));
            tree.set(&entry.node, &Settings { owner: Some(owner), ..Settings::default() })
        })
    })
}

/// Sets times of files in an image; makes files that do not exist
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true, arg = long_help())]
#[command(after_help = "\
Examples:
  lanefs touch disk.img:/stamp
  lanefs touch -d 2024-05-01T12:30:00Z disk.img:/a")]
pub struct Touch {
    /// The files
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    places: Vec<ImagePath>,
    /// Set only the access time
    #[arg(short, conflicts_with = "modified")]
    accessed: bool,
    /// Set only the modification time
    #[arg(short)]
    modified: bool,
    /// Do not make files
    #[arg(short = 'c', long)]
    no_create: bool,
    /// Set this time instead of the present: 2024-05-01 12:30, RFC 3339, or @SECONDS since 1970
    #[arg(short, long, value_name = "TIME", value_parser = parse_time)]
    date: Option<Time>,
    /// Change symbolic links themselves, not their targets
    #[arg(short = 'h', long)]
    no_dereference: bool,
    #[command(flatten)]
    image: FileArguments,
}

/// Runs `lanefs touch`.
pub fn touch(arguments: &Touch) -> ExitCode {
    let time = Some(arguments.date.map_or(SetTime::Now, SetTime::At));
    let set = SetAttr {
        atime: time.filter(|_| !arguments.modified),
        mtime: time.filter(|_| !arguments.accessed),
        ..SetAttr::default()
    };
    let follow = if arguments.no_dereference { Follow::Nothing } else { Follow::Links };
    let umask = process_umask();
    change_each("touch", &arguments.image, &arguments.places, |fs, path| {
        match fs.set_attr(path, &set, follow) {
            Err(error) if error.is_not_found() && arguments.no_create => Ok(()),
            Err(error) if error.is_not_found() && follow == Follow::Links => {
                let new = FileOptions::new().write(true).create(true).umask(umask);
                fs.open_file_with(path, &new)?;
                fs.set_attr(path, &set, follow)
            }
            done => done,
        }
    })
}

/// Sets sizes of files in an image; makes files that do not exist
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  lanefs truncate -s 1G disk.img:/swap
  lanefs truncate -s +4K disk.img:/log")]
pub struct Truncate {
    /// The files
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    places: Vec<ImagePath>,
    /// New size in bytes (suffixes K, M, G, T); +SIZE grows and -SIZE shrinks the file, <SIZE is at
    /// most and >SIZE at least SIZE, /SIZE rounds down and %SIZE rounds up to a multiple of SIZE
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
    AtMost(u64),
    AtLeast(u64),
    DownToMultiple(NonZeroU64),
    UpToMultiple(NonZeroU64),
}

impl FromStr for SizeChange {
    type Err = String;
    fn from_str(text: &str) -> Result<SizeChange, String> {
        let Some((sign, size)) = text.split_at_checked(1) else { return Err("no size".into()) };
        let signed = || {
            let size = parse_size(size)?;
            i64::try_from(size).map_err(|_| format!("'{text}' is too large"))
        };
        let multiple = || {
            NonZeroU64::new(parse_size(size)?).ok_or_else(|| format!("'{text}' divides by zero"))
        };
        match sign {
            "+" => signed().map(SizeChange::By),
            "-" => signed().map(|size| SizeChange::By(-size)),
            "<" => parse_size(size).map(SizeChange::AtMost),
            ">" => parse_size(size).map(SizeChange::AtLeast),
            "/" => multiple().map(SizeChange::DownToMultiple),
            "%" => multiple().map(SizeChange::UpToMultiple),
            _ => parse_size(text).map(SizeChange::To),
        }
    }
}

impl SizeChange {
    fn apply(self, old: u64) -> u64 {
        match self {
            SizeChange::To(size) => size,
            SizeChange::By(by) => old.saturating_add_signed(by),
            SizeChange::AtMost(size) => old.min(size),
            SizeChange::AtLeast(size) => old.max(size),
            SizeChange::DownToMultiple(unit) => old - old % unit,
            SizeChange::UpToMultiple(unit) => {
                old.checked_next_multiple_of(unit.get()).unwrap_or(u64::MAX)
            }
        }
    }
}

/// Runs `lanefs truncate`.
pub fn truncate(arguments: &Truncate) -> ExitCode {
    let umask = process_umask();
    change_each("truncate", &arguments.image, &arguments.places, |fs, path| {
        match set(fs, path, arguments, umask) {
            Err(error) if arguments.no_create && error.is_not_found() => Ok(()),
            done => done,
        }
    })
}

fn set(fs: &FileSystem, path: &Path, arguments: &Truncate, umask: u16) -> lanefs::Result<()> {
    let options = FileOptions::new().write(true).umask(umask).create(!arguments.no_create);
    let file = fs.open_file_with(path, &options)?;
    file.set_len(arguments.size.apply(file.metadata().len()))
}

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
pub struct Allocate {
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

impl Allocate {
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
pub fn fallocate(arguments: &Allocate) -> ExitCode {
    let place = std::slice::from_ref(&arguments.place);
    change_each("fallocate", &arguments.image, place, |fs, path| {
        let file = fs.open_file_with(path, &FileOptions::new().write(true))?;
        file.fallocate(arguments.how(), arguments.start.bytes(), arguments.length.bytes())
    })
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
        assert_eq!((apply("<3", 5), apply("<7", 5)), (3, 5));
        assert_eq!((apply(">3", 5), apply(">7", 5)), (5, 7));
        assert_eq!((apply("/4", 5), apply("%4", 5), apply("%4", 8)), (4, 8, 8));
        assert_eq!(apply("%2", u64::MAX), u64::MAX);
        for wrong in ["1Q", "", "/0", "%0", "+", "\u{e9}"] {
            assert!(wrong.parse::<SizeChange>().is_err(), "{wrong}");
        }
    }
}
