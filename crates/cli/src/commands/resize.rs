//! `lanefs resize`

use crate::cli::{
    Failure, ImageArguments, JournalArguments, MountedImage, OutputArguments, Report, WholeImage,
    human, parse_size,
};
use lanefs::device::Access;
use lanefs_offline::Image;
use serde_json::json;
use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;

/// Changes the size of the file system in an image
#[derive(Debug, clap::Args)]
#[command(after_help = "\
An image file grows and shrinks with its file system. On a block device, an array or a partition
the file system can grow up to the end. While Lanefs has the image mounted, the file system can
grow, and programs can use it meanwhile. Otherwise the image must not be in use; after a crash it
is recovered first. If the command is interrupted, run it again.

A growth that needs more blocks for descriptors than the resize inode reserves is refused. Only root
and the owner of the mount can enlarge a mounted file system, and only if it has a journal so long
that the changes of one group fit into a quarter of it; otherwise unmount the file system first.
File systems with sparse_super2 or bigalloc cannot be resized; those with meta_bg, ea_inode,
inline_data or stable_inodes cannot be made smaller.

Examples:
  lanefs resize disk.img 20G                   # to 20 GiB
  lanefs resize disk.img +5G                   # by 5 GiB
  lanefs resize disk.img auto                  # as small as it can be
  lanefs resize /dev/sdx1                      # to the whole device
  lanefs resize mnt +5G                        # a mounted one")]
pub struct Arguments {
    /// The image, or the directory that it is mounted on
    image: PathBuf,
    /// New size in bytes (suffixes K, M, G, T), +SIZE, -SIZE, or auto for the smallest [default:
    /// the size of the file, device or partition]
    #[arg(allow_hyphen_values = true)]
    size: Option<Target>,
    #[command(flatten)]
    output: OutputArguments,
    #[command(flatten)]
    journal: JournalArguments,
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
    Report::run("resize", |_| Ok(print(arguments, &resize(arguments)?)?))
}

struct Resized {
    before: u64,
    after: u64,
}

fn resize(arguments: &Arguments) -> Result<Resized, Failure> {
    if let Some(mounted) = MountedImage::of(&arguments.image, arguments.options) {
        return grow_mounted(arguments, &mounted);
    }
    let whole = WholeImage::open(&arguments.image, arguments.options, Access::ReadWrite)?;
    let journal = arguments.journal.open(Access::ReadWrite)?;
    let opened = whole.file_system(journal.as_ref())?;
    let before = bytes_of(&opened);
    let wanted = match arguments.size {
        None => whole.device().len(),
        Some(Target::To(bytes)) => bytes,
        Some(Target::By(bytes)) => before.saturating_add(bytes),
        Some(Target::Less(bytes)) => before.saturating_sub(bytes),
        Some(Target::Smallest) => 0,
    };
    whole.refuse_beyond_partition(wanted)?;
    let is_whole_file = whole.is_whole_file();
    let (whole, mut opened) = match is_whole_file && wanted > whole.device().len() {
        true => {
            drop(opened);
            set_len(arguments, wanted)?;
            whole.close()?;
            let whole = WholeImage::open(&arguments.image, arguments.options, Access::ReadWrite)?;
            let opened = whole.file_system(journal.as_ref())?;
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
        // The file is still locked while it is shortened. Only bytes after the end of the file
        // system are cut off.
        set_len(arguments, after)?;
    }
    whole.close()?;
    Ok(Resized { before, after })
}

/// Makes a mounted file system larger.
fn grow_mounted(arguments: &Arguments, mounted: &MountedImage) -> Result<Resized, Failure> {
    let place = arguments.image.display();
    let (blocks, block_bytes) = mounted.size()?;
    let before = blocks * block_bytes;
    let wanted = match arguments.size {
        None => length_of(&mounted.source)?,
        Some(Target::To(bytes)) => bytes,
        Some(Target::By(bytes)) => before.saturating_add(bytes),
        Some(Target::Less(_) | Target::Smallest) => 0,
    };
    if wanted / block_bytes < blocks {
        let what = "it is mounted: it can become larger now, and smaller after lanefs umount";
        return Err(Failure::new(place, what));
    }
    lanefs_fuse::grow_mounted(&mounted.mount_point, wanted / block_bytes).map_err(|error| {
        match error.kind() {
            std::io::ErrorKind::Unsupported => Failure::new(
                place,
                "it cannot become that large while it is mounted: the journal is too small or \
                 absent, or the device too short; resize it after lanefs umount",
            ),
            _ => Failure::host(place, &error),
        }
    })?;
    let (blocks, _) = mounted.size()?;
    Ok(Resized { before, after: blocks * block_bytes })
}

/// Returns the length of a file or block device in bytes.
fn length_of(path: &std::path::Path) -> Result<u64, Failure> {
    let length = File::open(path).and_then(|mut file| file.seek(SeekFrom::End(0)));
    length.map_err(Failure::on_host(path))
}

fn bytes_of(image: &Image) -> u64 {
    image.geometry().block_count() << image.geometry().block_size().bits()
}

/// Sets the length of the image file. A longer file gets a hole at its end. The caller must have
/// locked the file.
fn set_len(arguments: &Arguments, bytes: u64) -> Result<(), Failure> {
    let file = File::options().write(true).open(&arguments.image);
    let changed = file.and_then(|file| {
        file.set_len(bytes)?;
        file.sync_all()
    });
    changed.map_err(Failure::on_host(&arguments.image))
}

fn print(arguments: &Arguments, done: &Resized) -> std::io::Result<()> {
    let image = arguments.image.display().to_string();
    let Resized { before, after } = *done;
    let facts = json!({ "image": image, "bytes_before": before, "bytes": after });
    let line = match before == after {
        true => format!("{image}: the file system has {} already", human(after)),
        false => format!("{image}: {}, before {}", human(after), human(before)),
    };
    arguments.output.print(&facts, [line])
}
